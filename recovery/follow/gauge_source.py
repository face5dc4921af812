"""The gauges of a broker as a source: read again and again by a thread, so that nothing waits for a slow answer."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator

from recovery.errors import UsageError
from recovery.follow.endpoint import Endpoint, NoReadingError, endpoint_of
from recovery.follow.gauge_load import GaugeLoad
from recovery.follow.gauge_reading import Reading
from recovery.watch.events import Event, Remark, SourceLost


class GaugeSource:
    """One broker, or one run of this tool, seen through its metrics or through Jolokia.

    Args:
        endpoint: where to look.
        interval_s: how often; a look that takes longer is followed by the next one at once.
        is_patient: whether to wait for a broker that does not answer at the first look.
    """

    has_history = False

    def __init__(self, endpoint: Endpoint, interval_s: float = 1.0, *, is_patient: bool = False) -> None:
        self._endpoint = endpoint
        self._interval_s = interval_s
        self._is_patient = is_patient
        self._load = GaugeLoad()
        self._looks: queue.SimpleQueue[Reading | NoReadingError] = queue.SimpleQueue()
        self._is_closed = threading.Event()
        self._is_lost = False
        self.is_current = False
        self._thread = threading.Thread(target=self._look, name="watched-gauges", daemon=True)
        self._thread.start()

    @property
    def name(self) -> str:
        """The URL."""
        return self._endpoint.url

    @property
    def has_ended(self) -> bool:
        """Whether nothing more can come: never, the broker may be started again."""
        return False

    def poll(self, wait_s: float) -> Iterator[Event]:
        """Yield what a look has found, waiting for at most *wait_s* seconds for one.

        Raises:
            UsageError: the first look has found nothing to watch.
        """
        try:
            look = self._looks.get(timeout=wait_s)
        except queue.Empty:
            return
        if isinstance(look, NoReadingError):
            if not self.is_current and not self._is_patient:
                raise UsageError(f"{look}. Remedy: check the URL, and that the broker has been started")
            self.is_current = True
            if not self._is_lost:
                self._is_lost = True
                yield SourceLost(text=str(look))
            return
        self.is_current = True
        if self._is_lost:
            self._is_lost = False
            yield Remark(text=f"{self.name}: is back")
        yield from self._load.take(look, time.monotonic())

    def close(self) -> None:
        """Look no more. An answer that is still waited for is not heard."""
        self._is_closed.set()

    def _look(self) -> None:
        while not self._is_closed.is_set():
            began_s = time.monotonic()
            try:
                self._looks.put(self._endpoint.read())
            except NoReadingError as error:
                self._looks.put(error)
            self._is_closed.wait(max(self._interval_s - (time.monotonic() - began_s), 0.05))


def open_gauges(url: str, interval_s: float, *, is_patient: bool) -> GaugeSource:
    """Open the source of a URL.

    Raises:
        UsageError: it is none.
    """
    return GaugeSource(endpoint_of(url), interval_s, is_patient=is_patient)
