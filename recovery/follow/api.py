"""`recovery.watch_broker`: the library call. It reads a source, and writes, locks and starts nothing."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from typing import Any

from recovery.errors import InterruptedRecoveryError, UsageError
from recovery.follow.broker_load import ENDED_BEFORE, OVER, OVER_WITH_LOSS
from recovery.follow.broker_log import BrokerLog
from recovery.follow.log_feed import open_feed
from recovery.follow.options import WatchOptions
from recovery.follow.report import Outcome, WatchReport
from recovery.follow.source import LOST_S, Source
from recovery.follow.unflushed import WatchedDirs
from recovery.logdir.dirs import find_broker_dirs
from recovery.stop_request import StopRequest
from recovery.watch.events import Event, Observer, Remark, RunFinished, RunStarted, SourceLost
from recovery.watch.gauges import Gauges
from recovery.watch.notifier import Notifier

_OTHER_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")
_SILENT_S = 5.0
"""How long a source may say nothing about a load of logs until that is said."""
_THREADS = "num.recovery.threads.per.data.dir"


def watch_broker(
    source: str,
    options: WatchOptions | None = None,
    *,
    observers: Iterable[Observer] = (),
    stop: StopRequest | None = None,
    **changes: Any,  # noqa: ANN401 - the fields of WatchOptions, whose types stand there alone
) -> WatchReport:
    """Watch the recovery of a broker, or of this tool elsewhere, until it is over.

    Args:
        source: "-" for standard input, the path of a log, or a URL.
        options: None for the defaults.
        observers: notified of all that is seen, as of a run of `recover`.
        stop: lets another thread end the watch.
        changes: fields of `WatchOptions` that differ from *options*: `watch_broker("server.log", once=True)`.

    Returns:
        How it ended; `exit_code` is 0 if it is over, 2 if it was this tool's and lost something, 4 if not all was
        recovered, or the source ended before.

    Raises:
        UsageError: wrong options; there is no such source, or nothing about a recovery in all of it.
    """
    options = replace(options or WatchOptions(), **changes)
    options.refuse_wrong_values()
    with closing(_open(source, options)) as opened:
        return _Watch(opened, options, observers, stop or StopRequest()).run()


def _open(source: str, options: WatchOptions) -> Source:
    if source.lower().startswith(("http://", "https://")):
        from recovery.follow.gauge_source import open_gauges  # HTTP: slow to import

        if options.log_dirs is not None or options.config is not None:
            raise UsageError(
                f"{source}: gauges do not name segments, so log dirs are of no use beside them. Remedy: watch the "
                "broker's log for bytes, or leave out -c and --log-dirs"
            )
        return open_gauges(source, options.interval_s, is_patient=options.forever)
    if _OTHER_URL.match(source):
        raise UsageError(f"{source}: no such source. Remedy: give a log, -, or a URL of http:// or https://")
    dirs, threads_per_dir = _dirs(options)
    return BrokerLog(open_feed(source, may_be_missing=options.forever), dirs, threads_per_dir)


def _dirs(options: WatchOptions) -> tuple[WatchedDirs | None, int]:
    """Return the broker's dirs, and how many threads each has, as far as the properties say."""
    if options.log_dirs is None and options.config is None:
        return None, 0
    config = options.config or {}
    found = find_broker_dirs(options.log_dirs, config, may_be_foreign=True)
    threads_per_dir = found.broker.recovery_threads_per_data_dir if _THREADS in config else 0
    return WatchedDirs(found.log_dirs), threads_per_dir


class _Watch:
    """One watch: what a source gives goes to the observers, until it is over."""

    def __init__(
        self, source: Source, options: WatchOptions, observers: Iterable[Observer], stop: StopRequest
    ) -> None:
        self._source = source
        self._options = options
        self._stop = stop
        self._gauges = Gauges()
        self._notifier = Notifier((self._gauges, *observers))
        self._is_open = False
        self._exit_code: int | None = None
        self._starts = 0
        self._lost_since_s: float | None = None
        self._is_stall_told = False
        self._began_s = time.monotonic()
        self._is_silence_told = False

    def run(self) -> WatchReport:
        """Return how it ended."""
        try:
            while (outcome := self._look()) is None:
                pass
        except InterruptedRecoveryError as error:
            if self._is_open:
                self._notifier.notify(RunFinished(exit_code=error.signal_exit_code))
            return self._report("interrupted", error.signal_exit_code)
        exit_code = self._exit_code if outcome == "over" else None
        return self._report(outcome, ENDED_BEFORE if outcome == "incomplete" else exit_code or OVER)

    def _look(self) -> Outcome | None:
        """Look once; return how the watch ends, None if it goes on."""
        self._stop.check()
        for event in self._source.poll(self._options.interval_s):
            self._take(event)
            self._stop.check()
        self._judge_pace()
        self._judge_silence()
        if self._options.once:
            if not (self._source.is_current or self._source.has_ended):
                return None
            has_seen_none = self._exit_code is None and not self._is_open
            return self._end() if has_seen_none and self._source.has_history else self._outcome()
        if self._source.has_ended or (self._has_gone() and not self._options.forever):
            return self._end()
        if self._options.forever or self._exit_code is None or not self._source.is_current:
            return None
        return self._outcome()

    def _take(self, event: Event) -> None:
        if isinstance(event, SourceLost):
            self._lost_since_s = time.monotonic()
        else:
            self._lost_since_s = None
        if isinstance(event, RunStarted):
            self._starts += 1
            self._is_open, self._exit_code, self._is_stall_told = True, None, False
        elif isinstance(event, RunFinished):
            self._is_open, self._exit_code = False, event.exit_code
        self._notifier.notify(event)

    def _has_gone(self) -> bool:
        """Whether the source has been lost for longer than a broker takes to start again."""
        return self._lost_since_s is not None and time.monotonic() - self._lost_since_s > LOST_S

    def _end(self) -> Outcome:
        """Return how it stands when nothing more comes.

        Raises:
            UsageError: nothing has come at all.
        """
        if self._is_open:
            text = f"{self._source.name} has ended before the recovery was over"
            self._notifier.notify(Remark(text=text, level="error"))
            self._take(RunFinished(exit_code=ENDED_BEFORE))
        if self._exit_code is None:
            if self._lost_since_s is not None:
                raise UsageError(
                    f"{self._source.name} has gone, and nothing was seen of a load. Remedy: start again with the broker"
                )
            raise UsageError(
                f"{self._source.name}: nothing in it about a broker that loads its logs. Remedy: give the whole log of "
                "its last start; it has to log kafka.log at INFO"
            )
        return self._outcome()

    def _outcome(self) -> Outcome:
        if self._is_open:
            return "running"
        if self._exit_code is None:
            return "none"
        return "over" if self._exit_code in (OVER, OVER_WITH_LOSS) else "incomplete"

    def _judge_pace(self) -> None:
        """Say once that nothing moves."""
        if not self._is_open or self._is_stall_told:
            return
        values = self._gauges.values(time.monotonic())
        since_ms = values.last_progress_ms or values.started_ms
        if since_ms is None or time.time() * 1000 - since_ms < self._options.stall_seconds * 1000:
            return
        self._is_stall_told = True
        text = f"no progress for {self._options.stall_seconds:.0f} seconds"
        self._notifier.notify(Remark(text=text, level="warning"))

    def _judge_silence(self) -> None:
        """Say once that there is nothing about a load of logs: it may be another source than was meant."""
        if self._starts or self._is_silence_told or self._lost_since_s is not None:
            return
        if time.monotonic() - self._began_s > _SILENT_S:
            self._is_silence_told = True
            text = (
                f"{self._source.name}: nothing in it yet about a broker that loads its logs; waiting for it"
            )
            self._notifier.notify(Remark(text=text, level="info"))

    def _report(self, outcome: Outcome, exit_code: int) -> WatchReport:
        return WatchReport(
            source=self._source.name,
            outcome=outcome,
            values=self._gauges.values(time.monotonic()),
            restarts=max(self._starts - 1, 0),
            exit_code=exit_code,
        )
