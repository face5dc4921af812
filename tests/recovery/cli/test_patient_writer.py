"""What takes the place of standard error: as Python's own, but for a reader that stalls after a signal."""

from __future__ import annotations

import io
import math
import os
import pty
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from recovery.cli import patient_writer
from recovery.cli.patient_writer import PatientWriter
from tests.patience import LONGEST_WAIT_SECONDS

LARGE = bytes(range(256)) * 4096


def ends_of(kind: str) -> tuple[int, int]:
    """The reader's end and the writer's."""
    if kind == "terminal":
        return pty.openpty()
    if kind == "socket":
        reader, writer = socket.socketpair()
        return reader.detach(), writer.detach()
    return os.pipe()


@pytest.fixture(params=["pipe", "another's pipe", "socket", "terminal"])
def ends(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, int]]:
    """What may not be opened once more is written to as it is."""
    if request.param == "another's pipe":
        monkeypatch.setattr(patient_writer, "_reopened", lambda _: None)
    ends = ends_of(request.param)
    yield ends
    for descriptor in ends:
        with suppress(OSError):
            os.close(descriptor)


@pytest.fixture
def writer(ends: tuple[int, int]) -> Iterator[PatientWriter]:
    with PatientWriter(ends[1]) as writer:
        yield writer


def write_unread(writer: PatientWriter) -> threading.Thread:
    thread = threading.Thread(target=writer.write, args=(LARGE,), daemon=True)
    thread.start()
    return thread


def test_a_slow_reader_gets_all_of_what_several_threads_write(
    ends: tuple[int, int], writer: PatientWriter
) -> None:
    lines = [bytes([letter]) * 9000 + b"\n" for letter in b"abc"]
    threads = [threading.Thread(target=writer.write, args=(line * 20,), daemon=True) for line in lines]
    for thread in threads:
        thread.start()
    read = b""
    while read.count(b"\n") < 60:
        read += os.read(ends[0], 1000)
    for thread in threads:
        thread.join(LONGEST_WAIT_SECONDS)
    assert sorted(read.replace(b"\r", b"").splitlines(keepends=True)) == sorted(lines * 20)
    assert os.get_blocking(ends[1])


def test_after_one_signal_a_reader_may_take_a_while(
    ends: tuple[int, int], writer: PatientWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patient_writer, "GRACE_S", math.inf)
    writer.hasten(signal.SIGTERM)
    thread = write_unread(writer)
    while thread.is_alive():
        os.read(ends[0], 1 << 20)
        thread.join(0.001)
    assert writer.given_up_signal == 0


@pytest.mark.parametrize(("grace_s", "signals"), [(0, [1]), (math.inf, [15, 2])])
def test_what_is_not_read_after_that_is_given_up(
    grace_s: float, signals: list[int], writer: PatientWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patient_writer, "GRACE_S", grace_s)
    thread = write_unread(writer)
    for number in signals:
        writer.hasten(number)
    thread.join(LONGEST_WAIT_SECONDS)
    assert not thread.is_alive()
    assert writer.given_up_signal == signals[-1]
    assert writer.write(b"words\n") == 6  # dropped, too: half a line stands before them


@pytest.mark.parametrize("may_reopen", [True, False])
def test_a_reader_that_has_gone_is_an_error(may_reopen: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not may_reopen:
        monkeypatch.setattr(patient_writer, "_reopened", lambda _: None)
    reader, descriptor = os.pipe()
    with PatientWriter(descriptor) as writer:
        going = threading.Timer(0.1, os.close, (reader,))
        going.start()
        with pytest.raises(BrokenPipeError):
            writer.write(LARGE)
        going.join()
    os.close(descriptor)


@pytest.mark.parametrize("kind", ["pipe", "socket", "terminal"])
def test_the_stream_is_as_it_was(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patient_writer, "_standard_error", None)
    reader, descriptor = ends_of(kind)
    with open(descriptor, "w", encoding="ascii", errors="backslashreplace", buffering=1) as before:
        monkeypatch.setattr(sys, "stderr", before)
        patient_writer.replace_standard_error()
        after = sys.stderr
        assert after is not before
        assert (after.encoding, after.errors) == ("ascii", "backslashreplace")
        assert (after.line_buffering, after.isatty()) == (True, kind == "terminal")
        assert after.fileno() == descriptor
        print("Größe", "in bytes", file=after)
        assert os.read(reader, 1000).rstrip() == b"Gr\\xf6\\xdfe in bytes"
        after.close()
        assert os.fstat(descriptor)  # it is the caller's
    os.close(reader)


@pytest.mark.parametrize("name", ["/dev/null", "file"])
def test_what_nobody_reads_at_the_time_stays(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open(tmp_path / name, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        patient_writer.replace_standard_error()
        assert sys.stderr is stream


def test_a_stream_of_a_caller_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    patient_writer.replace_standard_error()
    assert sys.stderr is stream


def test_the_main_thread_is_not_kept_from_its_handlers_by_another_one_that_waits(
    writer: PatientWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patient_writer, "GRACE_S", 0)
    write_unread(writer)
    before = signal.signal(signal.SIGUSR1, lambda number, _: writer.hasten(number))
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1))
    timer.start()
    writer.write(b"words\n")
    timer.join()
    signal.signal(signal.SIGUSR1, before)
    assert writer.given_up_signal == signal.SIGUSR1
