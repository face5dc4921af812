"""The guards notice what they are there for: overruns of the kernels, cases that cost too much, deaths."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from native import cpu
from native.cpu_path import CpuPath
from native.segment_scan import SegmentScanner, warm_up
from tests.fuzz.budget import Budget, BudgetExceededError
from tests.fuzz.children import in_child
from tests.fuzz.guard_pages import GuardedPages
from tests.fuzz.kernels import TARGETS
from tests.fuzz.minimise import minimise, signature
from tests.fuzz.targets import Target
from tests.logs import builders

pytestmark = pytest.mark.long

PATHS = pytest.mark.parametrize("path", cpu.supported(), ids=[path.name.lower() for path in cpu.supported()])


def scan(window: np.ndarray, size_bytes: int, path: CpuPath, *, before: int = 0) -> SegmentScanner:
    """Scan *size_bytes* from *before* bytes in front of *window* on, whether they are there or not."""
    scanner = SegmentScanner(base_offset=0, size_bytes=size_bytes, cpu_path=path)
    scanner._run(window.ctypes.data - before, size_bytes)
    return scanner


@PATHS
@pytest.mark.parametrize("missing", [1, 8, 64, 700])
@pytest.mark.parametrize("value_bytes", [20, 190, 1000, 5000])
def test_load_behind_the_window_is_noticed(missing: int, value_bytes: int, path: CpuPath) -> None:
    warm_up(path)
    log = b"".join(builders.data_batch(i, value_bytes=value_bytes) for i in range(8))
    pages = GuardedPages(len(log))
    assert in_child(lambda _: scan(pages.place(log), len(log), path).result()).error is None
    cut = log[: len(log) - missing]
    assert in_child(lambda _: scan(pages.place(cut), len(log), path)).error == "SIGSEGV"


@PATHS
@pytest.mark.parametrize("missing", [1, 17, 61])
def test_load_before_the_window_is_noticed(missing: int, path: CpuPath) -> None:
    warm_up(path)
    log = builders.data_batch(0, value_bytes=700)
    pages = GuardedPages(len(log))
    found = in_child(
        lambda _: scan(pages.place(log[missing:], at_start=True), len(log), path, before=missing)
    )
    assert found.error == "SIGSEGV"


@PATHS
def test_messages_and_short_tails_stay_within_the_window(path: CpuPath) -> None:
    """Logs of all lengths around a batch's header and a message, at both ends of the pages."""
    warm_up(path)
    log = builders.data_batch(0, value_bytes=3) + builders.message(1) + builders.message(2, magic=0)
    pages = GuardedPages(len(log))

    def work(_: object) -> None:
        for size in range(len(log) + 1):
            for at_start in (False, True):
                for check_crc in (False, True):
                    window = pages.place(log[:size], at_start=at_start)
                    scanner = SegmentScanner(
                        base_offset=0, size_bytes=size, cpu_path=path, check_crc=check_crc
                    )
                    if not scanner.finished:
                        scanner.feed(window)
                    assert scanner.result().batch_count <= 3

    assert in_child(work).error is None


@PATHS
def test_first_window_of_any_length_changes_nothing(path: CpuPath) -> None:
    """Windows that lack a byte, a header or a batch, each at the end of the pages."""
    warm_up(path)
    log = builders.data_batch(0, value_bytes=3) + builders.message(1) + builders.data_batch(2)
    pages = GuardedPages(len(log))

    def work(_: object) -> None:
        for size in range(len(log) + 1):
            scanner = SegmentScanner(base_offset=0, size_bytes=len(log), cpu_path=path)
            scanner.feed(pages.place(log[:size]))
            if not scanner.finished:
                scanner.feed(pages.place(log[scanner.position :]))
            assert (scanner.result().batch_count, scanner.position) == (3, len(log)), size

    assert in_child(work).error is None


def test_tables_are_not_left_by_kernels_with_checked_bounds(tmp_path: Path) -> None:
    """Machine code of a folder of its own: the checks are compiled in. One path; the campaign takes all."""
    environment = {
        **os.environ, "NUMBA_BOUNDSCHECK": "1", "XDG_CACHE_HOME": str(tmp_path), "NUMBA_CACHE_DIR": "",
        "NUMBA_CPU_NAME": "x86-64", "NUMBA_CPU_FEATURES": "",
    }  # fmt: skip
    command = [sys.executable, "-m", "tests.fuzz.bounds", "1", "150"]
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout == f"{150 * len(TARGETS)} cases within bounds\n"


def test_unchecked_kernels_are_not_taken_for_checked_ones() -> None:
    command = [sys.executable, "-m", "tests.fuzz.bounds", "1", "1"]
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_BOUNDSCHECK"}
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert "bounds are not checked" in finished.stderr


def test_slow_and_hungry_cases_are_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    def hungry(data: bytes) -> None:
        bytearray(b"x") * (300 << 20 if data else 0)

    def slow(data: bytes) -> None:
        end_s = time.process_time() + (0.02 if data else 0)
        while time.process_time() < end_s:
            pass

    def search(run: object) -> None:
        budget = Budget(Target(name="made", run=run))
        budget.run(b"")
        budget.run(b"x")

    told = in_child(lambda _: search(hungry)).error  # where no other thread takes memory meanwhile
    assert told is not None
    assert re.search(r"BudgetExceededError: made: (299|300|301) MB more", told)
    monkeypatch.setattr("tests.fuzz.budget.MOST_SECONDS", 0.01)
    with pytest.raises(BudgetExceededError, match="1 bytes took"):
        search(slow)


def test_child_that_raises_or_dies_is_told_with_its_input() -> None:
    def raising(note) -> None:
        note.write(b"what it was")
        raise LookupError("gone")

    raised = in_child(raising)
    assert raised.error is not None
    assert raised.error.endswith("LookupError: gone\n")
    assert raised.data == b"what it was"
    assert in_child(lambda _: os.abort()).error == "SIGABRT"
    assert in_child(lambda _: None).error is None


def test_findings_are_made_small_and_told_apart() -> None:
    assert minimise(b"abc" * 50 + b"X" + b"def" * 50, lambda data: b"X" in data) == b"X"
    assert minimise(b"aXbY", lambda data: b"X" in data and data.endswith(b"Y")) == b"XY"
    text = 'Traceback\n  File "a/segfmt/varint.py", line 7, in x\nKeyError: 3\n'
    assert signature(text) == "KeyError at segfmt/varint.py:7"
    assert signature("SIGSEGV") == "SIGSEGV"
