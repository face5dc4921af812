"""Work in the background, one piece after another: while one group is written to disk, the next is read.

If the system allows no more threads, the submitting thread does it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from recovery.threads import is_started


class Committer:
    """Does one piece of work at a time, each in a thread of its own.

    Args:
        name: of its threads.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._last: threading.Thread | None = None

    def submit(self, work: Callable[[], None]) -> None:
        """Begin *work*, which must not raise, once the piece before it is done."""
        with self._lock:
            if self._last is not None:
                self._last.join()
            thread = threading.Thread(target=work, name=self._name)
            if is_started(thread):
                self._last = thread
                return
            self._last = None
            work()

    def drain(self) -> None:
        """Wait until all that was submitted is done."""
        with self._lock:
            if self._last is not None:
                self._last.join()
                self._last = None
