"""The scans of one partition, shared among the threads of its log dir.

The thread that owns a partition folds its scans in order. Threads without a partition of their own take the
next scan that no thread has begun. So one large partition keeps all threads of its log dir busy, and each scan
is made once, by whichever thread comes first.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Condition

from native.raw_scan import RawScan
from recovery.load.model import Original, ScanMode, ScanRequest


class SharedScans:
    """Scans that can be made ahead of the fold.

    Args:
        scan: makes one; called from any thread.
        requests: the scans expected, in the order of the fold.
        most_ahead: how many scans may be begun or done but not yet folded: they take memory.
    """

    def __init__(
        self, scan: Callable[[ScanRequest], RawScan], requests: list[ScanRequest], *, most_ahead: int = 8
    ) -> None:
        self._scan = scan
        self._most_ahead = most_ahead
        self._pending = {_key(request): request for request in requests}
        self._running: set[Original] = set()
        self._done: dict[Original, RawScan | BaseException] = {}
        self._changed = Condition()

    def has_pending(self) -> bool:
        """Whether there is a scan that no thread has begun and that may be begun now."""
        return bool(self._pending) and len(self._running) + len(self._done) < self._most_ahead

    def help(self) -> bool:
        """Make the next scan that no thread has begun; return False if there is none, or none may be begun now."""
        with self._changed:
            if not self.has_pending():
                return False
            key = next(iter(self._pending))
            request = self._begin(key)
        self._make(key, request)
        return True

    def scan(self, request: ScanRequest) -> RawScan:
        """Return the scan for the fold: one made ahead, awaited, or made here."""
        key = _key(request)
        if request.mode is not ScanMode.RECOVER or not self._is_forecast(key):
            return self._scan(request)
        while True:
            with self._changed:
                if key in self._done:
                    return _unwrap(self._done.pop(key))
                if key in self._pending:
                    self._begin(key)
                    break
                if not self.has_pending():
                    self._changed.wait()
                    continue
            self.help()  # another thread has begun it: make the next one meanwhile
        self._make(key, request)
        with self._changed:
            return _unwrap(self._done.pop(key))

    def cancel(self) -> None:
        """Begin no further scan: the fold has ended, perhaps at a cut."""
        with self._changed:
            self._pending.clear()

    def _is_forecast(self, key: Original) -> bool:
        with self._changed:
            return key in self._pending or key in self._running or key in self._done

    def _begin(self, key: Original) -> ScanRequest:
        self._running.add(key)
        return self._pending.pop(key)

    def _make(self, key: Original, request: ScanRequest) -> None:
        result: RawScan | BaseException
        try:
            result = self._scan(request)
        except BaseException as error:  # handed to the thread that folds
            result = error
        with self._changed:
            self._done[key] = result
            self._running.discard(key)
            self._changed.notify_all()


def _key(request: ScanRequest) -> Original:
    return request.part


def _unwrap(result: RawScan | BaseException) -> RawScan:
    if isinstance(result, BaseException):
        raise result
    return result
