"""A call that waits is interrupted by a signal, whenever that comes.

Python's handlers run between two steps of the main thread. A signal that comes just before the thread enters a system
call, or that the kernel gives to another thread, is only noted: `read(2)` of a pipe to which nobody writes then waits
for ever, and the handler with it.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_NUDGE = signal.SIGURG
"""Is ignored where nobody handles it, and no library of ours sends it."""

_PAUSES_S = (0.1, 0.4, 1.5)
"""The first is enough unless the main thread gets no processor for so long."""


@contextmanager
def nudged() -> Iterator[None]:
    """Interrupt what the main thread waits for, again, shortly after each signal that has a handler.

    Without a thread for it (none can be started) a signal may wait with the call, as it does in all of Python.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = signal.signal(_NUDGE, _do_nothing)
    other = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        threading.Thread(target=_nudge, args=(reader,), name="nudge", daemon=True).start()
    except RuntimeError:
        os.close(reader)
    try:
        yield
    finally:
        signal.set_wakeup_fd(other)
        signal.signal(_NUDGE, before)
        os.close(writer)


def _do_nothing(_number: int, _frame: FrameType | None) -> None:
    """Python runs the handlers of all signals that it has noted, not only this one."""


def _nudge(reader: int) -> None:
    """Nudge the main thread after each signal, whose number is in *reader*, to the end of that."""
    thread = threading.main_thread().ident
    assert thread is not None
    while number := os.read(reader, 1):
        if number[0] == _NUDGE:
            continue
        for pause_s in _PAUSES_S:
            time.sleep(pause_s)
            signal.pthread_kill(thread, _NUDGE)
    os.close(reader)
