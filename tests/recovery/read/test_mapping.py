"""Mappings whose files are cut or cannot be read: the process lives on, and a fault elsewhere still ends it."""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from recovery.read.mapping import MappedFile
from tests.patience import LONGEST_WAIT_SECONDS

PAGE = mmap.PAGESIZE


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"\x01" * (8 * PAGE))
    return path


def mapped(path: Path, size_bytes: int) -> MappedFile:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return MappedFile(descriptor, size_bytes)
    finally:
        os.close(descriptor)


def test_the_view_is_the_file_and_may_not_be_written(file: Path) -> None:
    with mapped(file, 8 * PAGE - 5) as mapping:
        assert mapping.view.dtype == np.uint8
        assert mapping.view.size == 8 * PAGE - 5
        assert int(mapping.view.sum()) == 8 * PAGE - 5
        with pytest.raises(ValueError, match="read-only"):
            mapping.view[0] = 2
        assert not mapping.has_faulted


def test_a_file_cut_under_the_mapping_reads_as_zeros_and_is_marked(file: Path) -> None:
    with mapped(file, 8 * PAGE) as mapping:
        os.truncate(file, 2 * PAGE)
        assert int(mapping.view.sum()) == 2 * PAGE
        assert mapping.has_faulted


def test_a_cut_at_the_first_byte(file: Path) -> None:
    with mapped(file, 8 * PAGE) as mapping:
        os.truncate(file, 0)
        assert not mapping.view.any()
        assert mapping.has_faulted


def test_what_was_read_before_the_cut_is_not_marked(file: Path) -> None:
    with mapped(file, 8 * PAGE) as mapping:
        assert mapping.view[: 2 * PAGE].all()
        os.truncate(file, 4 * PAGE)
        assert mapping.view[: 2 * PAGE].all()
        assert not mapping.has_faulted
        assert not mapping.view[5 * PAGE]
        assert mapping.has_faulted


def test_only_the_mapping_that_faulted_is_marked(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.log"
    other.write_bytes(b"\x02" * PAGE)
    with mapped(file, 8 * PAGE) as first, mapped(other, PAGE) as second:
        os.truncate(file, 0)
        assert not first.view.any()
        assert second.view.all()
        assert first.has_faulted
        assert not second.has_faulted


def test_the_same_file_again_after_a_fault(file: Path) -> None:
    for _ in range(3):
        with mapped(file, file.stat().st_size) as mapping:
            os.truncate(file, PAGE)
            assert int(mapping.view[:PAGE].sum()) == PAGE
        file.write_bytes(b"\x01" * (8 * PAGE))
    with mapped(file, 8 * PAGE) as mapping:
        assert int(mapping.view.sum()) == 8 * PAGE
        assert not mapping.has_faulted


def test_many_threads_may_fault_at_once(tmp_path: Path) -> None:
    barrier, found = threading.Barrier(6), []

    def read(number: int) -> None:
        path = tmp_path / f"{number}.log"
        path.write_bytes(b"\x01" * (64 * PAGE))
        with mapped(path, 64 * PAGE) as mapping:
            os.truncate(path, number * PAGE)
            barrier.wait(timeout=LONGEST_WAIT_SECONDS)
            found.append((number, int(mapping.view.sum()), mapping.has_faulted))

    threads = [threading.Thread(target=read, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=LONGEST_WAIT_SECONDS)
    assert sorted(found) == [(number, number * PAGE, True) for number in range(6)]


def run_child(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        timeout=LONGEST_WAIT_SECONDS,
    )


FAULT_ELSEWHERE = """
import mmap, os, sys, resource
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
from recovery.read.mapping import MappedFile
with open(sys.argv[1], "rb") as file, MappedFile(file.fileno(), 4096) as mapping:
    assert mapping.view[0] == 1
    foreign = mmap.mmap(file.fileno(), 8 * mmap.PAGESIZE, prot=mmap.PROT_READ)
    os.truncate(sys.argv[1], 0)
    print("before", flush=True)
    foreign[5 * mmap.PAGESIZE]
print("after", flush=True)
"""


def test_a_fault_in_somebody_elses_mapping_still_ends_the_process(file: Path) -> None:
    child = run_child(FAULT_ELSEWHERE, str(file))
    assert child.stdout == "before\n"
    assert child.returncode == -signal.SIGBUS


FAULT_WITH_A_HANDLER_BEFORE = """
import faulthandler, mmap, os, sys, resource
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
faulthandler.enable()
from recovery.read.mapping import MappedFile
with open(sys.argv[1], "rb") as file, MappedFile(file.fileno(), 8 * mmap.PAGESIZE) as mapping:
    os.truncate(sys.argv[1], mmap.PAGESIZE)
    print(int(mapping.view.sum()) == mmap.PAGESIZE, mapping.has_faulted, flush=True)
    foreign = mmap.mmap(file.fileno(), mmap.PAGESIZE, prot=mmap.PROT_READ)
    os.truncate(sys.argv[1], 0)
    foreign[0]
"""


def test_the_handler_that_was_there_before_gets_the_faults_that_are_not_ours(file: Path) -> None:
    child = run_child(FAULT_WITH_A_HANDLER_BEFORE, str(file))
    assert child.stdout == "True True\n"
    assert "Fatal Python error: Bus error" in child.stderr
    assert child.returncode == -signal.SIGBUS


FAULT_IN_A_CHILD = """
import mmap, os, sys
from recovery.read.mapping import MappedFile
with open(sys.argv[1], "rb") as file:
    with MappedFile(file.fileno(), mmap.PAGESIZE):
        pass
    if (child := os.fork()) == 0:
        with MappedFile(file.fileno(), 8 * mmap.PAGESIZE) as mapping:
            os.truncate(sys.argv[1], 0)
            os._exit(0 if not mapping.view.any() and mapping.has_faulted else 1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_child_is_guarded_too(file: Path) -> None:
    assert run_child(FAULT_IN_A_CHILD, str(file)).stdout == "0\n"


def test_after_the_with_the_view_is_gone_and_the_range_free(file: Path) -> None:
    with mapped(file, PAGE) as mapping:
        pass
    with pytest.raises(AssertionError):
        _ = mapping.view
