"""Work in a forked child, so that a death by signal is a result."""

from __future__ import annotations

import mmap
import os
import signal
import traceback
from collections.abc import Callable
from dataclasses import dataclass

_NOTE_BYTES = 1 << 16
_SIZE_BYTES = 4


class Note:
    """The input that a child is working on, readable when it is dead."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _NOTE_BYTES)

    def write(self, data: bytes) -> None:
        """Put *data*, up to 64 KiB of it, where the parent finds it."""
        kept = data[: _NOTE_BYTES - _SIZE_BYTES]
        self._memory[: _SIZE_BYTES + len(kept)] = len(kept).to_bytes(_SIZE_BYTES, "big") + kept

    def read(self) -> bytes:
        """What was written last."""
        size = int.from_bytes(self._memory[:_SIZE_BYTES], "big")
        return self._memory[_SIZE_BYTES : _SIZE_BYTES + size]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildOutcome:
    """How a child ended.

    Attributes:
        error: the traceback of what it raised, or the name of the signal that it died of; None if all went well.
        data: the input that it worked on last.
    """

    error: str | None
    data: bytes


def in_child(work: Callable[[Note], None]) -> ChildOutcome:
    """Call *work* in a fork of this process and wait for its end."""
    note = Note()
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        _run(work, note, write_end)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        raised = pipe.read().decode("utf-8", "replace")
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        raised = signal.Signals(os.WTERMSIG(status)).name
    return ChildOutcome(error=raised or None, data=note.read())


def _run(work: Callable[[Note], None], note: Note, write_end: int) -> None:
    """The child's whole life: it never comes back from here."""
    try:
        # The default action for a fault: faulthandler would print a stack that nobody reads.
        for number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT):
            signal.signal(number, signal.SIG_DFL)
        work(note)
    except BaseException:
        os.write(write_end, traceback.format_exc().encode("utf-8", "replace")[-8000:])
        os._exit(1)
    os._exit(0)
