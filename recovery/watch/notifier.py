"""Hands events on to observers, one at a time; an observer that fails is switched off, and the run continues."""

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from threading import RLock

from recovery.watch.events import UNSTAMPED, Event, Observer

_logger = logging.getLogger(__name__)


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class Notifier:
    """Hands each event to every observer; one that raises is switched off and the run continues.

    Call it from any thread. Observers are called one event at a time under a lock, so they need no locks of their
    own among themselves. Without observers a call costs next to nothing. A notifier is an observer itself.
    """

    def __init__(
        self,
        observers: Iterable[Observer] = (),
        *,
        wall_clock_ms: Callable[[], int] = _wall_clock_ms,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._observers = tuple(observers)
        self._wall_clock_ms = wall_clock_ms
        self._monotonic_s = monotonic_s
        # Reentrant: a signal handler may notify while its own thread is in here.
        self._lock = RLock()

    @property
    def observers(self) -> tuple[Observer, ...]:
        """The observers that are still switched on."""
        return self._observers

    def notify(self, event: Event) -> None:
        """Stamp *event* with the time, unless it carries one, and hand it to every observer. Never raises."""
        if not self._observers:
            return
        with self._lock:
            stamped = self._stamp(event)
            for observer in self._observers:
                try:
                    observer(stamped)
                except Exception as error:
                    self._switch_off(observer, stamped, error)

    __call__ = notify

    def _stamp(self, event: Event) -> Event:
        # Inside the lock, so that the times an observer sees never go back.
        if event.now_ms != UNSTAMPED:
            return event
        return replace(event, now_ms=self._wall_clock_ms(), monotonic_s=self._monotonic_s())

    def _switch_off(self, observer: Observer, event: Event, error: Exception) -> None:
        self._observers = tuple(other for other in self._observers if other is not observer)
        name = getattr(observer, "__qualname__", type(observer).__qualname__)
        _logger.warning(
            "Switched off observer %s: it raised %s: %s on %s; the run continues.",
            name,
            type(error).__name__,
            error,
            type(event).__name__,
            exc_info=_logger.isEnabledFor(logging.DEBUG),
        )
