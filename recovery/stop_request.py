"""A request that a run end early, made by a signal or a caller."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from recovery.errors import InterruptedRecoveryError


class StopRequest:
    """A flag that a signal handler raises and the threads look at between windows and actions."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self.signal_number = 0
        self._raising_thread = 0

    @property
    def is_made(self) -> bool:
        """Whether the run is to end."""
        return self._event.is_set()

    def request(self, signal_number: int) -> None:
        """Ask the run to end. Safe in a signal handler.

        Raises:
            InterruptedRecoveryError: the handler has interrupted what `raising` encloses.
        """
        self.signal_number = signal_number
        self._event.set()
        if self._raising_thread == threading.get_ident():
            raise InterruptedRecoveryError(signal_number)

    @contextmanager
    def raising(self) -> Iterator[None]:
        """Let a signal end the block at once: it may wait for long, and leaves nothing half done."""
        self.check()
        self._raising_thread = threading.get_ident()
        try:
            yield
        finally:
            self._raising_thread = 0

    def check(self) -> None:
        """Raise InterruptedRecoveryError once the run is to end."""
        if self._event.is_set():
            raise InterruptedRecoveryError(self.signal_number)
