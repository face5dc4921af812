"""Standard error that nobody reads: it holds up a run, and a signal ends that."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from recovery.cli.session import ENDING_SIGNALS
from tests.logs.samples import Sample, differences, tree_of, unpack
from tests.patience import LONGEST_WAIT_SECONDS, wait_until
from tests.runs.command import recover, start

pytestmark = pytest.mark.long

EXIT_CODES = {number: 128 + number for number in ENDING_SIGNALS}
PIPE_BYTES = 4096
TERMINAL_BYTES = 4095
"""What a line discipline of Linux holds for the reader."""
LOOKS = 8


@dataclass(frozen=True, slots=True)
class Unread:
    """A pipe or a terminal that nobody reads."""

    reader: int
    writer: int

    def fill(self, room_bytes: int = 0) -> None:
        """Let it take only *room_bytes* more."""
        own = os.open(f"/proc/self/fd/{self.writer}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
        with suppress(BlockingIOError):
            while True:
                os.write(own, b"." * (PIPE_BYTES - room_bytes if room_bytes else 1))
        os.close(own)

    def is_full_terminal(self) -> bool:
        """Fill it; whether the kernel has also moved as much as it can to the reader's side, which makes new room."""
        self.fill()
        found = fcntl.ioctl(self.reader, termios.FIONREAD, bytes(4))
        return int.from_bytes(found, sys.byteorder) >= TERMINAL_BYTES

    def read(self) -> str:
        """All that is in it, up to its end; nobody else may write any more."""
        os.close(self.writer)
        with open(self.reader, closefd=False) as file:
            return file.read()


@pytest.fixture
def pipe() -> Iterator[Unread]:
    """A small one."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    yield Unread(reader, writer)
    for descriptor in (reader, writer):
        with suppress(OSError):
            os.close(descriptor)


@pytest.fixture
def terminal() -> Iterator[Unread]:
    ours, theirs = pty.openpty()
    yield Unread(ours, theirs)
    os.close(ours)
    os.close(theirs)


@pytest.fixture
def sample(tmp_path: Path) -> Sample:
    return unpack("crashed", tmp_path)


def arguments(command: str, sample: Sample, progress: str) -> list[str]:
    clock = ["--now", str(sample.now_ms)] if command == "recover" else []
    return [command, "-c", str(sample.config), *clock, "--format", "json", "--progress", progress]


def wait_until_stalled(process: subprocess.Popen[str]) -> None:
    """Return once a signal does not kill it, and it does nothing as far as can be seen; or it has ended."""
    spent: list[int] = []

    def is_stalled() -> bool:
        if process.poll() is not None:
            return True
        status = Path(f"/proc/{process.pid}/status").read_text()
        handled = [int(status.partition(name)[2].split()[0], 16) for name in ("SigIgn:", "SigCgt:")]
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        spent.append(int(fields[11]) + int(fields[12]))
        does_nothing = len(spent) >= LOOKS and spent[-LOOKS] == spent[-1]
        return does_nothing and any(mask >> (signal.SIGTERM - 1) & 1 for mask in handled)

    wait_until(is_stalled, pause_seconds=0.1)


def ended(process: subprocess.Popen[str], *numbers: signal.Signals) -> int:
    """Send it these signals once it has stalled; its exit code."""
    try:
        wait_until_stalled(process)
        assert process.poll() is None, "nothing has stalled"
        for number in numbers:
            process.send_signal(number)
            time.sleep(0.01)  # they are to come one after the other
        return process.wait(LONGEST_WAIT_SECONDS)
    finally:
        process.kill()
        process.communicate()


def recover_again(sample: Sample, tmp_path: Path) -> None:
    """The next run reaches what a run that nothing has held up reaches."""
    whole = unpack("crashed", tmp_path / "whole")
    assert (recover(whole).exit_code, recover(sample).exit_code) == (0, 0)
    for expected, actual in zip(whole.log_dirs, sample.log_dirs, strict=True):
        assert differences(tree_of(expected), tree_of(actual)) == []


@pytest.mark.parametrize(
    ("command", "progress", "number"),
    [
        ("recover", "log", signal.SIGTERM),
        ("recover", "json", signal.SIGINT),
        ("verify", "log", signal.SIGHUP),
        ("verify", "json", signal.SIGTERM),
    ],
)
@pytest.mark.parametrize("room_bytes", [0, 3000])
def test_a_signal_ends_a_run_whose_progress_nobody_reads(
    command: str,
    progress: str,
    number: signal.Signals,
    room_bytes: int,
    pipe: Unread,
    sample: Sample,
    tmp_path: Path,
) -> None:
    pipe.fill(room_bytes)
    process = start(*arguments(command, sample, progress), stderr=pipe.writer, stdout=subprocess.DEVNULL)
    assert ended(process, number) == EXIT_CODES[number]
    assert os.get_blocking(pipe.writer)
    recover_again(sample, tmp_path)


@pytest.mark.parametrize("command", ["recover", "verify"])
def test_a_signal_ends_a_run_whose_terminal_nobody_reads(
    command: str, terminal: Unread, sample: Sample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    wait_until(terminal.is_full_terminal)
    terminal.fill()
    process = start(*arguments(command, sample, "bar"), stderr=terminal.writer, stdout=subprocess.DEVNULL)
    assert ended(process, signal.SIGTERM) == 143
    assert os.get_blocking(terminal.writer)
    recover_again(sample, tmp_path)


@pytest.mark.parametrize(
    "numbers",
    [
        (signal.SIGTERM, signal.SIGTERM),
        (signal.SIGINT, signal.SIGHUP),
        (signal.SIGTERM, signal.SIGTERM, signal.SIGINT, signal.SIGHUP),
    ],
    ids=lambda numbers: " ".join(number.name for number in numbers),
)
def test_more_signals_do_no_harm(numbers: tuple[signal.Signals, ...], pipe: Unread, sample: Sample) -> None:
    process = start(*arguments("recover", sample, "log"), stderr=pipe.writer, stdout=subprocess.DEVNULL)
    assert ended(process, *numbers) in {EXIT_CODES[number] for number in numbers}


def test_a_report_in_the_same_pipe_is_given_up_as_well(pipe: Unread, sample: Sample) -> None:
    process = start(*arguments("recover", sample, "log"), stderr=pipe.writer, stdout=pipe.writer)
    assert ended(process, signal.SIGTERM) == 143


@pytest.mark.parametrize("number", EXIT_CODES, ids=lambda number: number.name)
@pytest.mark.parametrize(
    "words",
    [
        ["recover", "--log-dirs", "/nowhere", "--progress", "none"],
        ["quarantine", "list", "--log-dirs", "/nowhere"],
        ["recover", "--no-such-option"],
    ],
    ids=" ".join,
)
def test_a_signal_ends_the_wait_for_a_reader_of_the_error(
    words: list[str], number: signal.Signals, pipe: Unread
) -> None:
    pipe.fill()
    process = start(*words, stderr=pipe.writer)
    assert ended(process, number) == EXIT_CODES[number]


@pytest.mark.parametrize("progress", ["log", "json"])
def test_a_reader_that_comes_late_gets_all_lines(progress: str, pipe: Unread, sample: Sample) -> None:
    process = start(*arguments("recover", sample, progress), stderr=pipe.writer, stdout=subprocess.DEVNULL)
    wait_until_stalled(process)
    assert process.poll() is None, "nothing has stalled"
    lines = pipe.read().splitlines()
    process.communicate(timeout=LONGEST_WAIT_SECONDS)
    assert process.returncode == 0
    beginning, end = ("[", "") if progress == "log" else ('{"version":1,', "}")
    assert all(line.startswith(beginning) and line.endswith(end) for line in lines)
    assert len(lines) > 100


def test_a_reader_that_has_gone_holds_nothing_up(pipe: Unread, sample: Sample) -> None:
    os.close(pipe.reader)
    process = start(*arguments("recover", sample, "log"), stderr=pipe.writer, stdout=subprocess.DEVNULL)
    process.communicate(timeout=LONGEST_WAIT_SECONDS)
    assert process.returncode == 0
