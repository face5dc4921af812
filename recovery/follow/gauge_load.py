"""A load of logs that is known by its gauges alone, as events: readings come in, one after the other.

Gauges say how many logs are left in each log dir, and how many segments in the log that each thread recovers. They are
there while logs are loaded, and neither before nor after. What a log is called, and how large it is, they do not say.
This tool's own metrics have bytes and segments, too.

No clock is read here, and nothing is opened.

Kafka: LogManager.loadLogs, addLogRecoveryMetrics, removeLogRecoveryMetrics.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from recovery.follow.gauge_reading import RUNNING, LogDirReading, Reading
from recovery.watch.events import (
    BrokerRestarted,
    Event,
    LogDirFinished,
    LogDirOffline,
    LogDirSampled,
    LogDirStarted,
    Remark,
    RunFinished,
    RunStarted,
)

OVER = 0
ENDED_BEFORE = 4
"""Exit codes: the load is over; it has ended before it was."""

SETTLED_S = 60.0
"""How long gauges may be missing until a broker that does not show its state counts as one that has loaded its logs.

It knows its log dirs before it loads them, which begins when it has caught up with the metadata of its cluster.
"""
_SAME_START_S = 1.5
_ENDS = {"complete": OVER, "incomplete": OVER, "interrupted": ENDED_BEFORE, "failed": ENDED_BEFORE}
"""How a run of this tool has ended."""


class GaugeLoad:
    """Turns readings of one broker, or of one run of this tool, into events; it may be started several times."""

    def __init__(self) -> None:
        self.is_open = False
        self._is_over = False
        self._is_waiting_told = False
        self._started_s: float | None = None
        self._idle_since_s: float | None = None
        self._known: dict[str, LogDirSampled] = {}
        self._began_s: dict[str, float] = {}
        self._ended: set[str] = set()

    def take(self, reading: Reading, now_s: float) -> Iterator[Event]:
        """Yield the events of a reading at *now_s*, a monotonic time."""
        yield from self._restart(reading)
        if reading.started_s is not None:
            self._started_s = reading.started_s
        recovering = reading.recovering
        if recovering:
            if not self.is_open:
                yield from self._begin(tuple(sorted(recovering)), reading, now_s)
            for path, log_dir in sorted(recovering.items()):
                yield from self._take_dir(path, log_dir, now_s)
        elif self.is_open:
            yield from self._end(reading.run_state, now_s)
        elif not self._is_over:
            yield from self._wait(reading, now_s)

    def _restart(self, reading: Reading) -> Iterator[Event]:
        if self._started_s is not None and reading.started_s is not None:
            is_new = abs(reading.started_s - self._started_s) > _SAME_START_S
        else:
            is_new = False
        if self.is_open and (is_new or self._has_risen(reading)):
            yield BrokerRestarted()
        elif is_new:
            yield Remark(text="the broker was started again")
        else:
            return
        self.is_open = self._is_over = self._is_waiting_told = False
        self._idle_since_s = None

    def _has_risen(self, reading: Reading) -> bool:
        """Return whether more logs are left than before, which one load cannot bring about."""
        return any(
            path in self._known and (log_dir.remaining_logs or 0) > self._known[path].remaining_logs
            for path, log_dir in reading.recovering.items()
        )

    def _begin(self, log_dirs: tuple[str, ...], reading: Reading, now_s: float) -> Iterator[Event]:
        """Yield that the load has begun: now, as far as a broker shows; a run of this tool shows when."""
        self.is_open, self._is_over = True, False
        self._known, self._began_s, self._ended = {}, {}, set()
        started = RunStarted(log_dirs=log_dirs, threads_per_dir=0, command="watch")
        if reading.started_s is not None and reading.elapsed_s is not None:
            began_s = now_s - reading.elapsed_s
            started = replace(started, now_ms=round(reading.started_s * 1000), monotonic_s=began_s)
        yield started

    def _take_dir(self, path: str, reading: LogDirReading, now_s: float) -> Iterator[Event]:
        if path in self._ended:
            return
        figures = reading.figures
        remaining_logs = reading.remaining_logs or 0
        if path not in self._began_s:
            self._began_s[path] = now_s
            yield LogDirStarted(
                log_dir=path,
                had_clean_shutdown=None,
                log_count=int(figures.get("logs", remaining_logs)),
                segment_count=int(figures.get("segments", 0)),
                bytes_total=int(figures.get("bytes", 0)),
            )
        if reading.is_offline or figures.get("log_dir_offline"):
            self._ended.add(path)
            yield LogDirOffline(log_dir=path, error="the broker has taken it offline; its log says why")
            return
        sampled = _sampled(path, remaining_logs, reading)
        if sampled != self._known.get(path):
            self._known[path] = sampled
            yield sampled
        if not remaining_logs and figures.get("log_dir_finished", 1):
            yield from self._finish(path, now_s)

    def _finish(self, path: str, now_s: float) -> Iterator[Event]:
        if path not in self._ended:
            self._ended.add(path)
            if self._known[path].remaining_logs:  # the last ones were finished since the last look
                yield LogDirSampled(
                    log_dir=path,
                    remaining_logs=0,
                    remaining_segments=dict.fromkeys(self._known[path].remaining_segments, 0),
                )
            yield LogDirFinished(log_dir=path, duration_ms=round((now_s - self._began_s[path]) * 1000))

    def _end(self, run_state: str | None, now_s: float) -> Iterator[Event]:
        """Yield that the gauges have gone: a broker removes them when all logs are loaded."""
        exit_code = _ENDS.get(run_state or "", OVER)
        if exit_code == OVER:
            for path in self._began_s:
                yield from self._finish(path, now_s)
        else:
            yield Remark(text=f"the run that was watched is {run_state}", level="error")
        self.is_open, self._is_over = False, True
        yield RunFinished(exit_code=exit_code)

    def _wait(self, reading: Reading, now_s: float) -> Iterator[Event]:
        """Yield that nothing has to be recovered, as soon as that is sure."""
        if reading.broker_state == RUNNING or reading.run_state in _ENDS or self._has_settled(reading, now_s):
            yield from self._begin(tuple(sorted(reading.log_dirs)), reading, now_s)
            yield Remark(text="no recovery: no log dir has a gauge of one, and the broker runs")
            self.is_open, self._is_over = False, True
            yield RunFinished(exit_code=_ENDS.get(reading.run_state or "", OVER))
        elif not self._is_waiting_told:
            self._is_waiting_told = True
            yield Remark(text="the broker does not load its logs yet")

    def _has_settled(self, reading: Reading, now_s: float) -> bool:
        """Return whether a broker without a state has had log dirs and no gauges of a recovery for a while."""
        if reading.broker_state is not None or reading.run_state is not None or not reading.log_dirs:
            self._idle_since_s = None
            return False
        if self._idle_since_s is None:
            self._idle_since_s = now_s
        return now_s - self._idle_since_s >= SETTLED_S


def _sampled(path: str, remaining_logs: int, reading: LogDirReading) -> LogDirSampled:
    def figure(name: str) -> int | None:
        value = reading.figures.get(name)
        return None if value is None else int(value)

    return LogDirSampled(
        log_dir=path,
        remaining_logs=remaining_logs,
        remaining_segments=dict(reading.remaining_segments),
        unrecovered_segments=figure("remaining_segments"),
        remaining_bytes=figure("remaining_bytes"),
        scanned_bytes=figure("scanned_bytes_total"),
        recovered_segments=figure("recovered_segments_total"),
        recovered_bytes=figure("recovered_bytes_total"),
        truncated_bytes=figure("truncated_bytes_total"),
        truncated_batches=figure("truncated_batches_total"),
    )
