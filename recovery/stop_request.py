"""A request that a run end early, made by a signal or a caller."""

from __future__ import annotations

import threading

from recovery.errors import InterruptedRecoveryError


class StopRequest:
    """A flag that a signal handler raises and the threads look at between windows and actions."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self.signal_number = 0

    @property
    def is_made(self) -> bool:
        """Whether the run is to end."""
        return self._event.is_set()

    def request(self, signal_number: int) -> None:
        """Ask the run to end. Safe in a signal handler."""
        self.signal_number = signal_number
        self._event.set()

    def check(self) -> None:
        """Raise InterruptedRecoveryError once the run is to end."""
        if self._event.is_set():
            raise InterruptedRecoveryError(self.signal_number)
