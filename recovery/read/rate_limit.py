"""A limit on bytes a second for all threads together."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from recovery.errors import UsageError

_MOST_SLEEP_S = 0.1


def refuse_wrong_rate(bytes_per_second: int | None) -> None:
    """Raise UsageError for a limit below 1."""
    if bytes_per_second is not None and bytes_per_second < 1:
        raise UsageError(f"--max-bytes-per-second {bytes_per_second}: expected an integer from 1 on")


class RateLimit:
    """Lets *bytes_per_second* pass, for all callers together.

    Each request gets the next free stretch of time and waits for its beginning, so that at any moment no more has
    passed than the rate allows, plus one request a thread.

    Args:
        bytes_per_second: None for no limit.
        check: called while waiting; may raise to end the wait.
        clock: seconds, monotonic.
        sleep: waits for a number of seconds.
    """

    def __init__(
        self,
        bytes_per_second: int | None,
        *,
        check: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._bytes_per_second = bytes_per_second
        self._check = check
        self._clock = clock
        self._sleep = sleep
        self._free_s = 0.0
        self._lock = threading.Lock()

    @property
    def window_bytes(self) -> int:
        """How many bytes to ask for at once: those of a quarter of a second, but not too few."""
        if self._bytes_per_second is None:
            return 1 << 30
        return max(64 << 10, self._bytes_per_second // 4)

    def take(self, size_bytes: int) -> None:
        """Return when *size_bytes* may be read."""
        self._check()
        if self._bytes_per_second is None or size_bytes <= 0:
            return
        with self._lock:
            start_s = max(self._free_s, self._clock())
            self._free_s = start_s + size_bytes / self._bytes_per_second
        while (left_s := start_s - self._clock()) > 0:
            self._check()
            self._sleep(min(left_s, _MOST_SLEEP_S))
