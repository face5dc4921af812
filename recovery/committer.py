"""Work in the background, one piece after another: while one group is brought to disk, the next is read."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Committer:
    """One piece of work at a time, each in a thread of its own.

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
            self._last = threading.Thread(target=work, name=self._name)
            self._last.start()

    def drain(self) -> None:
        """Wait until all that was submitted is done."""
        with self._lock:
            if self._last is not None:
                self._last.join()
                self._last = None
