"""Events in, gauge values out: what KIP-831 shows of a recovery, and what we show beyond it.

Kafka's two gauges, one line for each log dir, and one for each log dir and thread number:

    remainingLogsToRecover      logs of the dir not finished yet; clean and failed ones count too
    remainingSegmentsToRecover  unflushed segments left of the log that the thread is working on

Their life: a dir's gauges exist from `LogDirStarted` (or from `LogDirOffline`, at 0), fall to 0, and disappear
with `RunFinished`. Our own figures stay after that, so that an alert reads a value and not "no data".

Differs: a thread that has not recovered anything yet has null in Kafka; here it has 0, which can be scraped.

No clock is read here. Every time comes with an event or as an argument, so a replay gives the same values.

Kafka: LogManager.loadLogs, addLogRecoveryMetrics, removeLogRecoveryMetrics; LogLoader.recoverLog.
"""

from collections import Counter
from threading import Lock
from typing import assert_never

from recovery.errors import INTERRUPTED_EXIT_CODES
from recovery.watch.events import (
    AuxStateBuilt,
    BrokerRestarted,
    BytesScanned,
    Command,
    CorruptionFound,
    CutByEarlierRun,
    Event,
    IndexFileProblem,
    LogDirFinished,
    LogDirHandedOver,
    LogDirOffline,
    LogDirSampled,
    LogDirStarted,
    PartitionChecked,
    PartitionFinished,
    PartitionStarted,
    Remark,
    RunFinished,
    RunStarted,
    SegmentRecovered,
    SegmentRecoveryStarted,
    SegmentsDeleted,
    SegmentsLeft,
    SourceLost,
)
from recovery.watch.figures import WORKING, GaugeValues, LogDirValues, RunState
from recovery.watch.log_dir_progress import LogDirProgress
from recovery.watch.pace import Pace, Work, shared_etas

_END_STATES: dict[int, RunState] = {
    0: "complete",
    2: "complete",
    4: "incomplete",
    **dict.fromkeys(INTERRUPTED_EXIT_CODES, "interrupted"),
}


class Gauges:
    """An observer that keeps the figures; `values` may be called from another thread at any time."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._state: RunState = "waiting"
        self._command: Command = "recover"
        self._shows_unlisted = True
        self._dry_run = False
        self._has_shared_pace = False
        self._threads_per_dir = 0
        self._log_dirs: dict[str, LogDirProgress] = {}
        self._scanned = Pace()
        self._work = Work()
        self._started_ms: int | None = None
        self._started_s: float | None = None
        self._finished_s: float | None = None
        self._last_event_s = 0.0
        self._last_progress_ms: int | None = None
        self._moved_s = 0.0
        self._exit_code: int | None = None
        self._aux_requests: Counter[str] = Counter()
        self._aux_errors: Counter[str] = Counter()
        self._is_source_gone = False

    def __call__(self, event: Event) -> None:
        """Take one event in."""
        with self._lock:
            self._last_event_s = max(self._last_event_s, event.monotonic_s)
            self._is_source_gone = isinstance(event, SourceLost)
            if not isinstance(event, Remark | SourceLost):
                self._moved_s = event.monotonic_s
            self._take(event)

    def values(self, monotonic_s: float | None = None) -> GaugeValues:
        """Return the figures at *monotonic_s*, a time of the events' clock; without it, at the last event."""
        with self._lock:
            return self._values(self._last_event_s if monotonic_s is None else monotonic_s)

    def _take(self, event: Event) -> None:
        match event:
            case RunStarted():
                self._start(event)
            case LogDirStarted():
                self._state = WORKING[self._command]
                self._scanned.start(event.monotonic_s)
                self._work.start(event.monotonic_s)
                self._log_dir(event.log_dir).start(event)
            case PartitionStarted():
                self._log_dir(event.log_dir).start_log(event)
            case BytesScanned():
                self._last_progress_ms = event.now_ms
                self._scanned.add(event.scanned_bytes, event.monotonic_s)
                self._work.add(event.scanned_bytes, 0, event.monotonic_s)
                self._log_dir(event.log_dir).scan(event)
            case SegmentRecovered():
                self._last_progress_ms = event.now_ms
                self._work.add(0, self._log_dir(event.log_dir).recover_segment(event), event.monotonic_s)
            case SegmentsLeft():
                self._last_progress_ms = event.now_ms
                self._log_dir(event.log_dir).remaining_segments[event.thread_num] = event.remaining_segments
            case LogDirSampled():
                self._last_progress_ms = event.now_ms
                scanned_bytes, done_logs = self._log_dir(event.log_dir).sample(event)
                self._scanned.add(scanned_bytes, event.monotonic_s)
                self._work.add(scanned_bytes, done_logs, event.monotonic_s)
            case PartitionFinished():
                self._last_progress_ms = event.now_ms
                self._work.add(0, self._log_dir(event.log_dir).finish_log(event), event.monotonic_s)
            case PartitionChecked():
                self._last_progress_ms = event.now_ms
                self._work.add(0, self._log_dir(event.log_dir).finish_check(event), event.monotonic_s)
            case CutByEarlierRun():
                self._log_dir(event.log_dir).count_earlier_cut(event)
            case LogDirHandedOver():
                self._last_progress_ms = event.now_ms
            case LogDirFinished():
                self._last_progress_ms = event.now_ms
                self._log_dir(event.log_dir).finish()
            case LogDirOffline():
                self._log_dir(event.log_dir).go_offline(is_shown=self._shows_unlisted)
            case AuxStateBuilt():
                self._aux_requests[event.topic] += 1
                self._aux_errors[event.topic] += bool(event.error)
            case BrokerRestarted():  # what the old process had done is nobody's progress
                self._state = "waiting"
                self._log_dirs = {}
                self._started_ms = self._started_s = self._last_progress_ms = None
            case RunFinished():
                if self._exit_code is None:  # else the run was over, and then its report could not be written
                    self._finished_s = event.monotonic_s
                    self._state = _END_STATES.get(event.exit_code, "failed")
                self._exit_code = event.exit_code
            case (
                SegmentRecoveryStarted()
                | CorruptionFound()
                | SegmentsDeleted()
                | IndexFileProblem()
                | Remark()
                | SourceLost()
            ):
                pass  # the changes are counted when the segment or the log is finished
            case _:
                assert_never(event)

    def _start(self, event: RunStarted) -> None:
        """Begin to count: anew if a broker that is watched has been started again."""
        self._state = "listing"
        self._log_dirs = {}
        self._scanned = Pace()
        self._work = Work()
        self._finished_s = self._last_progress_ms = self._exit_code = None
        self._command = event.command
        self._dry_run = event.dry_run
        self._has_shared_pace = event.has_shared_pace
        self._shows_unlisted = not event.has_java_log_manager
        self._threads_per_dir = event.threads_per_dir
        self._started_ms = event.now_ms
        self._started_s = event.monotonic_s
        knows_cordons = event.command in ("recover", "verify", "archive restore")
        for log_dir in event.log_dirs:
            is_cordoned = log_dir in event.cordoned_log_dirs
            self._log_dir(log_dir).is_cordoned = is_cordoned if knows_cordons else None

    def _log_dir(self, log_dir: str) -> LogDirProgress:
        progress = self._log_dirs.get(log_dir)
        if progress is None:
            progress = LogDirProgress(log_dir=log_dir, threads_per_dir=self._threads_per_dir)
            self._log_dirs[log_dir] = progress
        return progress

    def _values(self, monotonic_s: float) -> GaugeValues:
        has_ended = self._finished_s is not None
        shared_etas_s = self._shared_etas_s(monotonic_s)
        log_dirs = tuple(
            progress.values(monotonic_s, run_has_ended=has_ended, shared_eta_s=shared_etas_s.get(log_dir))
            for log_dir, progress in self._log_dirs.items()
        )
        until_s = monotonic_s if self._finished_s is None else self._finished_s
        return GaugeValues(
            state=self._state,
            command=self._command,
            dry_run=self._dry_run,
            log_dirs=log_dirs,
            bytes_per_second=0.0 if has_ended else self._scanned.per_second(monotonic_s),
            eta_seconds=_last_to_end(log_dirs),
            started_ms=self._started_ms,
            last_progress_ms=self._last_progress_ms,
            seconds_without_progress=max(monotonic_s - self._moved_s, 0.0)
            if self._state in ("listing", *WORKING.values())
            else None,
            elapsed_seconds=0.0 if self._started_s is None else until_s - self._started_s,
            exit_code=self._exit_code,
            aux_requests=dict(self._aux_requests),
            aux_errors=dict(self._aux_errors),
            is_source_gone=self._is_source_gone,
        )

    def _shared_etas_s(self, monotonic_s: float) -> dict[str, float]:
        """Return the time left of each log dir if they share one pace; none while that would be a guess."""
        left = {log_dir: one.remaining_work for log_dir, one in self._log_dirs.items() if not one.has_ended}
        if not self._has_shared_pace or not left:
            return {}
        all_bytes, all_logs = (sum(work) for work in zip(*left.values(), strict=True))
        costs = self._work.costs(int(all_bytes), all_logs, monotonic_s)
        if costs is None:
            return {}
        byte_s, log_s = costs
        etas_s = shared_etas([some_bytes * byte_s + logs * log_s for some_bytes, logs in left.values()])
        return dict(zip(left, etas_s, strict=True))


def _last_to_end(log_dirs: tuple[LogDirValues, ...]) -> float | None:
    """Return the ETA of the run. Each dir has threads of its own, so it is that of the slowest dir."""
    etas = [values.eta_seconds for values in log_dirs]
    known_etas = [eta for eta in etas if eta is not None]
    return max(known_etas) if known_etas and len(known_etas) == len(etas) else None
