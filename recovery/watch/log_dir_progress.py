"""The progress of one log dir, moved by events: counts that end up right, whatever the order of events.

`Gauges` keeps one for each log dir and gives each event to the one it names.
"""

from dataclasses import dataclass, field

from recovery.watch.events import (
    BytesScanned,
    CutByEarlierRun,
    LogDirSampled,
    LogDirStarted,
    PartitionChecked,
    PartitionFinished,
    PartitionStarted,
    SegmentRecovered,
)
from recovery.watch.figures import LogDirValues, LogStatus
from recovery.watch.pace import Pace, Work


@dataclass(slots=True)
class _Log:
    """A log being worked on: how much of its share is scanned and recovered.

    Attributes:
        folded_bytes: of recovered segments that belong to the share: not of those that an interrupted run has scanned.
        valid_bytes: of all recovered segments.
        told_share: how much of the log the ETA counts as done, where no bytes are known.
    """

    recover_bytes: int
    segment_count: int
    scanned_bytes: int = 0
    folded_bytes: int = 0
    recovered_segments: int = 0
    valid_bytes: int = 0
    told_share: float = 0.0

    @property
    def done_bytes(self) -> int:
        # Helpers scan ahead of the fold. Somebody else's recovery may tell of segments, and not of bytes.
        return min(max(self.scanned_bytes, self.folded_bytes), self.recover_bytes)

    @property
    def done_segments(self) -> int:
        # Also flushed ones may be recovered, which were not counted before.
        return min(self.recovered_segments, self.segment_count)


@dataclass(slots=True, kw_only=True)
class LogDirProgress:
    """The counts of one log dir. Not thread-safe."""

    log_dir: str
    threads_per_dir: int
    is_registered: bool = False
    is_finished: bool = False
    is_offline: bool = False
    is_cordoned: bool | None = None
    had_clean_shutdown: bool | None = False
    log_count: int = 0
    finished_logs: int = 0
    earlier_logs: int | None = None
    segment_count: int = 0
    finished_segments: int = 0
    bytes_total: int = 0
    finished_bytes: int = 0
    recovered_segments: int = 0
    recovered_bytes: int = 0
    truncated_bytes: int = 0
    truncated_batches: int = 0
    remaining_segments: dict[int, int] = field(default_factory=dict)
    threads: dict[int, str] = field(default_factory=dict)
    logs: dict[str, _Log] = field(default_factory=dict)
    partitions: dict[LogStatus, int] = field(default_factory=dict)
    taken_segments: dict[int, int] = field(default_factory=dict)
    logs_with_segments: int = 0
    logs_in_hand: float = 0.0
    scanned: Pace = field(default_factory=Pace)
    work: Work = field(default_factory=Work)

    def start(self, event: LogDirStarted) -> None:
        """Take the counts of the inventory; from now on the gauges exist."""
        self.is_registered = True
        self.had_clean_shutdown = event.had_clean_shutdown
        self.log_count = event.log_count
        self.segment_count = event.segment_count
        self.bytes_total = event.bytes_total
        self.scanned.start(event.monotonic_s)
        self.work.start(event.monotonic_s)

    def start_log(self, event: PartitionStarted) -> None:
        """Kafka: LogLoader.recoverLog, where it puts numUnflushed for its thread."""
        self.threads[event.thread_num] = event.partition
        if (log := self.logs.get(event.partition)) is not None:  # more is known of it by now
            log.recover_bytes, log.segment_count = event.recover_bytes, event.unflushed_segment_count or 0
            return
        self.logs[event.partition] = _Log(event.recover_bytes, event.unflushed_segment_count or 0)
        if event.unflushed_segment_count is not None:
            self.remaining_segments[event.thread_num] = event.unflushed_segment_count

    def scan(self, event: BytesScanned) -> None:
        """Count bytes read, by the owner of the log or by a helper."""
        self.scanned.add(event.scanned_bytes, event.monotonic_s)
        self.work.add(event.scanned_bytes, 0, event.monotonic_s)
        if log := self.logs.get(event.partition):
            log.scanned_bytes += event.scanned_bytes

    def recover_segment(self, event: SegmentRecovered) -> float:
        """Count a segment as done; return which part of a log that is for the ETA, where no bytes are known.

        Kafka: LogLoader.recoverLog, numUnflushed - numFlushed, or 0 after a truncation.
        """
        if event.remaining_segments is not None:
            self.remaining_segments[event.thread_num] = event.remaining_segments
        self.recovered_segments += 1
        self.recovered_bytes += event.valid_bytes
        if log := self.logs.get(event.partition):
            log.folded_bytes += 0 if event.was_scanned_before else event.size_bytes
            log.recovered_segments += 1
            log.valid_bytes += event.valid_bytes
            if not self.bytes_total:
                return self._count_part(log, event.monotonic_s)
        return 0.0

    def _count_part(self, log: _Log, monotonic_s: float) -> float:
        """Count a log in hand by its segments, so that the ETA need not wait until it is finished.

        How many it has, a broker may not say (4.x does not): then as many as those that are finished had.
        """
        expected_segments = float(log.segment_count)
        if not expected_segments and self.logs_with_segments:
            in_hand = sum(one.recovered_segments for one in self.logs.values())
            expected_segments = (self.recovered_segments - in_hand) / self.logs_with_segments
        if not expected_segments:
            return 0.0
        done_share = log.recovered_segments / max(expected_segments, log.recovered_segments + 1)
        done_part = max(done_share - log.told_share, 0.0)
        log.told_share += done_part
        self.logs_in_hand += done_part
        self.work.add(0, done_part, monotonic_s)
        return done_part

    def finish_log(self, event: PartitionFinished) -> float:
        """Count a log as done, what was cut from it, and what an interrupted run has recovered of it.

        Returns:
            How much of the log was not counted as done before, for the ETA.
        """
        log = self.logs.get(event.partition, _Log(0, 0))
        self.recovered_segments += max((event.recovered_segments or 0) - log.recovered_segments, 0)
        self.recovered_bytes += max((event.recovered_bytes or 0) - log.valid_bytes, 0)
        self.truncated_bytes += event.truncated_bytes
        self.truncated_batches += event.truncated_batches
        return self._finish_log(event, event.status)

    def finish_check(self, event: PartitionChecked) -> float:
        """Count a log as done, as `finish_log` does."""
        return self._finish_log(event, "damaged" if event.finding_count else "checked")

    def _finish_log(self, event: PartitionFinished | PartitionChecked, status: LogStatus) -> float:
        """Count a log as done with its whole share: what a cut or a refusal leaves out is not waited for."""
        log = self.logs.pop(event.partition, None)
        if log is not None:
            self.finished_bytes += log.recover_bytes
            self.finished_segments += log.segment_count
            self.logs_with_segments += log.recovered_segments > 0
        # Else its thread is working on the next one
        if self.threads.get(event.thread_num) in (None, event.partition):
            self.remaining_segments[event.thread_num] = 0
            self.threads.pop(event.thread_num, None)
        # Some were done before, if a broker is watched from the middle of its load; its threads' lines may overtake.
        earlier_logs = max(event.finished_count - 1, 0)
        if self.earlier_logs is not None:
            earlier_logs = min(earlier_logs, self.earlier_logs)
        self.finished_logs += 1 + earlier_logs - (self.earlier_logs or 0)
        self.earlier_logs = earlier_logs
        self.partitions[status] = self.partitions.get(status, 0) + 1
        told_share = 0.0 if log is None else log.told_share
        self.logs_in_hand -= told_share
        self.work.add(0, 1 - told_share, event.monotonic_s)
        return 1 - told_share

    def sample(self, event: LogDirSampled) -> tuple[int, float]:
        """Take what the gauges of somebody else's recovery say; return the bytes scanned and logs done since before.

        Where they show no bytes, a log in hand counts by the segments that are left of it, for the ETA alone.
        """
        done_logs = self.finished_logs + self.logs_in_hand
        self.finished_logs = max(self.log_count - event.remaining_logs, 0)
        self._sample_threads(event)
        if event.unrecovered_segments is not None:
            self.finished_segments = max(self.segment_count - event.unrecovered_segments, 0)
        if event.remaining_bytes is not None:
            self.finished_bytes = max(self.bytes_total - event.remaining_bytes, 0)
        for name in ("recovered_segments", "recovered_bytes", "truncated_bytes", "truncated_batches"):
            if (value := getattr(event, name)) is not None:
                setattr(self, name, value)
        scanned_bytes = 0
        if event.scanned_bytes is not None:
            if not self.scanned.amount:  # what was scanned before it was watched has no pace
                self.scanned = Pace()
                self.scanned.start(event.monotonic_s, event.scanned_bytes)
            scanned_bytes = max(event.scanned_bytes - int(self.scanned.amount), 0)
            self.scanned.add(scanned_bytes, event.monotonic_s)
        done_logs = max(self.finished_logs + self.logs_in_hand - done_logs, 0.0)
        self.work.add(scanned_bytes, done_logs, event.monotonic_s)
        return scanned_bytes, done_logs

    def _sample_threads(self, event: LogDirSampled) -> None:
        """Take the segments that are left to each thread. A thread that has more than before has taken a log."""
        for thread_num, remaining in event.remaining_segments.items():
            before = self.remaining_segments.get(thread_num, 0)
            if remaining > before:
                self.taken_segments[thread_num] = remaining
            self.remaining_segments[thread_num] = remaining
        # A log with none left is about to count as finished
        self.logs_in_hand = (
            sum(
                1 - remaining / self.taken_segments[thread_num]
                for thread_num, remaining in self.remaining_segments.items()
                if remaining
            )
            if event.remaining_bytes is None
            else 0.0
        )

    def count_earlier_cut(self, event: CutByEarlierRun) -> None:
        """Count what an earlier run has cut, whose own figures are gone."""
        self.truncated_bytes += event.truncated_bytes
        self.truncated_batches += event.truncated_batches

    def finish(self) -> None:
        """Let the gauges fall to 0: nothing is left to do."""
        self.is_finished = True
        self._let_go()
        # The inventory's count is only expected: a log may turn out to need fewer segments.
        self.finished_segments = self.segment_count

    def go_offline(self, *, is_shown: bool) -> None:
        """Let the gauges fall to 0: nothing more will be done.

        Args:
            is_shown: whether a dir that was never listed has gauges, which are 0 then: so with brokers before 4.4.
                Since then their value is null, and exporters leave them out.

        Kafka: LogManager.loadLogs counts failed logs as done, too.
        """
        self.is_registered = self.is_registered or is_shown
        self.is_offline = True
        self._let_go()

    def _let_go(self) -> None:
        for log in self.logs.values():
            self.finished_bytes += log.done_bytes
            self.finished_segments += log.done_segments
        self.logs.clear()
        self.threads.clear()
        self.remaining_segments.clear()

    @property
    def thread_count(self) -> int:
        """How many threads the dir has; if nobody says, as many as have told of segments at a time."""
        return self.threads_per_dir or 1 + max(self.remaining_segments, default=-1)

    @property
    def has_ended(self) -> bool:
        """Whether no more work will be done here."""
        return self.is_finished or self.is_offline

    @property
    def remaining_logs(self) -> int:
        """How many logs are not finished."""
        return 0 if self.has_ended else max(self.log_count - self.finished_logs, 0)

    @property
    def remaining_bytes(self) -> int:
        """How many bytes are to be scanned."""
        done_bytes = self.finished_bytes + sum(log.done_bytes for log in self.logs.values())
        return 0 if self.has_ended else max(self.bytes_total - done_bytes, 0)

    @property
    def remaining_work(self) -> tuple[int, float]:
        """Bytes to be scanned, and logs to be finished, of which one in hand may count in part."""
        return self.remaining_bytes, max(self.remaining_logs - self.logs_in_hand, 0)

    def values(
        self, monotonic_s: float, *, run_has_ended: bool, shared_eta_s: float | None = None
    ) -> LogDirValues:
        """Return the figures as they are at *monotonic_s*.

        Args:
            shared_eta_s: the time left if that depends on other log dirs.
        """
        has_gauges = self.is_registered and not run_has_ended
        eta_s = self.work.eta_s(*self.remaining_work, monotonic_s) if shared_eta_s is None else shared_eta_s
        done_segments = sum(log.done_segments for log in self.logs.values())
        finished_segments = min(self.finished_segments + done_segments, self.segment_count)
        is_foreseen = bool(
            self.segment_count or self.bytes_total or self.threads_per_dir or self.had_clean_shutdown
        )
        is_idle = self.has_ended or run_has_ended
        return LogDirValues(
            log_dir=self.log_dir,
            had_clean_shutdown=self.had_clean_shutdown,
            remaining_logs=self.remaining_logs if has_gauges else None,
            remaining_segments=tuple(self.remaining_segments.get(i, 0) for i in range(self.thread_count))
            if has_gauges
            else (),
            log_count=self.log_count,
            finished_logs=self.finished_logs,
            is_foreseen=is_foreseen,
            segment_count=self.segment_count,
            finished_segments=finished_segments,
            recovered_segments=self.recovered_segments,
            bytes_total=self.bytes_total,
            remaining_bytes=self.remaining_bytes,
            scanned_bytes=int(self.scanned.amount),
            recovered_bytes=self.recovered_bytes,
            truncated_bytes=self.truncated_bytes,
            truncated_batches=self.truncated_batches,
            partitions=dict(self.partitions),
            bytes_per_second=self._bytes_per_second(monotonic_s, is_idle=is_idle) if is_foreseen else None,
            eta_seconds=self._eta_seconds(eta_s, run_has_ended=run_has_ended),
            threads=dict(self.threads),
            is_finished=self.is_finished,
            is_offline=self.is_offline,
            is_cordoned=self.is_cordoned,
        )

    def _bytes_per_second(self, monotonic_s: float, *, is_idle: bool) -> float | None:
        return 0.0 if is_idle else self.scanned.per_second(monotonic_s)

    def _eta_seconds(self, estimate_s: float | None, *, run_has_ended: bool) -> float | None:
        if self.has_ended:
            return 0.0
        return None if run_has_ended or not self.is_registered else estimate_s
