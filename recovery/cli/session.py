"""What a command that works for a while shares with others: signals that end it, and its result on standard output."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import TYPE_CHECKING

from recovery.errors import InterruptedRecoveryError

if TYPE_CHECKING:
    from recovery.stop_request import StopRequest


_NO_FILE_ERRNOS = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EROFS})
"""Of fsync(2) on a pipe, a terminal, a device."""


def print_result(text: str, signals: Signals | None = None) -> bool:
    """Print the result, and return whether it was taken whole: by a reader, or by the disk if it goes to a file.

    The work is done: a reader who has gone (`| head`), or never was (`>&-`), changes nothing about it.

    Args:
        signals: end the wait for a slow reader at once.

    Raises:
        OSError: it could not be written.
        InterruptedRecoveryError: by a signal while it was.
    """
    try:
        with nullcontext() if signals is None else signals.raising():
            _write(text)
    except BrokenPipeError:
        _discard_output()
        return False
    except OSError as error:
        _discard_output()
        if error.errno == errno.EBADF:
            return False
        raise OSError(error.errno, f"the report could not be written: {error.strerror}") from error
    except InterruptedRecoveryError as error:
        _discard_output()
        raise InterruptedRecoveryError(error.signal_number, "the report was not written whole") from error
    return True


def _write(text: str) -> None:
    """Write *text* to standard output, however often that takes: Python's own does not, where it has no buffer.

    Names in it may be no UTF-8. A report in a file must outlive the machine, for what it tells is told once.

    Raises:
        OSError: it was not written, or did not come to the disk.
    """
    stream = sys.stdout
    try:
        descriptor = stream.fileno()
    except io.UnsupportedOperation:  # a caller's own
        print(text, flush=True)  # noqa: T201 - what a command line says
        return
    stream.flush()
    left = memoryview(f"{text}\n".encode(stream.encoding, "backslashreplace"))
    while left:
        try:
            left = left[os.write(descriptor, left) :]
        except BlockingIOError:  # a full pipe that somebody else has opened
            select.select((), (descriptor,), ())
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_FILE_ERRNOS:
            raise


def _discard_output() -> None:
    """Let the interpreter's last flush succeed."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Signals:
    """Remembers a signal until there is something to stop."""

    def __init__(self) -> None:
        self._number = 0
        self._stop: StopRequest | None = None
        self._raises = False

    def receive(self, number: int, _frame: FrameType | None) -> None:
        """Take a signal, in the main thread, at any moment."""
        self._number = number
        if self._stop is not None:
            self._stop.request(number)
        if self._raises:
            raise InterruptedRecoveryError(number)

    @contextmanager
    def raising(self) -> Iterator[None]:
        """Let a signal end at once what is done within: it may wait for long, and leaves nothing half done."""
        self._raises = True
        try:
            yield
        finally:
            self._raises = False

    def install(self) -> None:
        """Take SIGTERM and SIGINT again, after somebody else has."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.receive)

    def forward_to(self, stop: StopRequest) -> None:
        """Let *stop* know of signals from now on.

        Raises:
            InterruptedRecoveryError: there was one already.
        """
        self._stop = stop
        if self._number:
            raise InterruptedRecoveryError(self._number)


@contextmanager
def watched_signals() -> Iterator[Signals]:
    """Let SIGTERM and SIGINT end the run at the next safe place; from before the slow imports on."""
    signals = Signals()
    previous = {number: signal.signal(number, signals.receive) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield signals
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
