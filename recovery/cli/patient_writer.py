"""Standard error whose reader may stall: that holds up the run, as with any tool, but not once a signal has come.

A thread in `write(2)` cannot be told to give up: handlers run in the main thread, and Python goes back into a call that
was interrupted (PEP 475). So no write waits; what waits looks up now and then. Nor is there a buffer of Python's: a
handler could not interrupt the main thread's wait for its lock.
"""

from __future__ import annotations

import io
import os
import select
import stat
import sys
import threading
import time
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from typing import BinaryIO

    from _typeshed import ReadableBuffer

GRACE_S = 1.0
"""How long after a signal a reader may take before it reads on."""
_LOOK_MS = 100
_PAUSE_S = 0.001
"""`poll(2)` may see room on a terminal that is too little for it: then the wait must not be a busy one."""


class PatientWriter(io.RawIOBase):
    """Writes to a pipe, a socket or a terminal, from any thread, and gives up what is not read after a signal.

    What is given up is dropped without an error, and so is all that follows: a run that ends has its own exit code.

    Args:
        descriptor: stays the caller's, in the mode that it has: other processes may share it.
    """

    mode = "wb"

    def __init__(self, descriptor: int) -> None:
        self.name = "<stderr>"
        self.given_up_signal = 0
        self._given = descriptor
        self._signal_number = 0
        self._signal_count = 0
        self._signal_s = 0.0
        # Reentrant: a signal handler may write while its own thread does.
        self._lock = threading.RLock()
        self._own = _reopened(descriptor)
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)

    def fileno(self) -> int:
        """Return the descriptor that was given."""
        return self._given

    def isatty(self) -> bool:
        """Return whether it is a terminal."""
        return os.isatty(self._given)

    def writable(self) -> bool:
        """Return True."""
        return True

    def hasten(self, signal_number: int) -> None:
        """Do not wait much longer, or not at all if this is the second time. Safe in a signal handler."""
        if not self._signal_count:
            self._signal_s = time.monotonic()
        self._signal_number = signal_number
        self._signal_count += 1

    def write(self, data: ReadableBuffer, /) -> int:
        """Write all of *data*, or as much of it as is read.

        Raises:
            OSError: nobody can read it any more.
        """
        with self._lock:
            unwritten = memoryview(data)
            size = len(unwritten)
            since_s = time.monotonic()
            while unwritten and not self.given_up_signal:
                if written := self._write_at_once(unwritten):
                    unwritten = unwritten[written:]
                    since_s = time.monotonic()
                elif self._is_enough(since_s):
                    self.given_up_signal = self._signal_number
                else:
                    time.sleep(_PAUSE_S)
                    self._poll.poll(_LOOK_MS)
            return size

    def _write_at_once(self, data: memoryview) -> int:
        """Write what there is room for, and return how much that was."""
        try:
            if self._own is not None:
                return os.write(self._own, data)
            # A blocking one: a pipe that can be written to takes so much, if nobody else writes to it just then.
            return os.write(self._given, data[: select.PIPE_BUF]) if self._poll.poll(0) else 0
        except BlockingIOError:
            return 0

    def _is_enough(self, since_s: float) -> bool:
        """Return whether the wait that began at *since_s* is over."""
        if self._signal_count == 1:
            return time.monotonic() - max(since_s, self._signal_s) >= GRACE_S
        return self._signal_count > 1

    def close(self) -> None:
        """Close what was opened beside the descriptor that was given."""
        super().close()
        if self._own is not None:
            os.close(self._own)
            self._own = None


def _reopened(descriptor: int) -> int | None:
    """Open the same file once more, in non-blocking mode; None if it is a socket, or another user's, or gone."""
    try:
        return os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return None


_standard_error: PatientWriter | None = None


def replace_standard_error() -> None:
    """Let standard error wait for its reader as a `PatientWriter` does, if somebody may be reading it."""
    global _standard_error
    stream = sys.stderr
    if not isinstance(stream, io.TextIOWrapper):  # a caller's own
        return
    try:
        descriptor = stream.fileno()
        mode = os.fstat(descriptor).st_mode
    except (OSError, ValueError):
        return
    if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor):
        _standard_error = PatientWriter(descriptor)
        sys.stderr = io.TextIOWrapper(
            cast("BinaryIO", _standard_error),
            encoding=stream.encoding,
            errors=stream.errors,
            newline="\n",
            line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )


def hasten(signal_number: int) -> None:
    """Let the waits for the reader of standard error end. Safe in a signal handler."""
    if _standard_error is not None:
        _standard_error.hasten(signal_number)


def given_up_signal() -> int:
    """Return the signal for which words to standard error were given up, or 0."""
    return 0 if _standard_error is None else _standard_error.given_up_signal
