"""What a restore reports to its observers: the events of a recovery, about the log dirs that partitions go to.

A byte counts twice: when it is fetched, and when it is checked. A partition is finished once its folder is in its log
dir. What the engine says of the stage is told of the log dir in which it lies; that a log without indexes has none, or
that a damaged one would be cut, is no news: the partition is refused, and the reason says why.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from recovery.archive.restore.plan import PlannedRestore
from recovery.archive.restore.report import RestoredPartition, Status
from recovery.errors import error_text
from recovery.watch.events import (
    AuxStateBuilt,
    BytesScanned,
    Event,
    Level,
    LogDirFinished,
    LogDirOffline,
    LogDirStarted,
    Observer,
    PartitionFinished,
    PartitionStarted,
    PartitionStatus,
    Remark,
    RunFinished,
    RunStarted,
    SegmentRecovered,
    SegmentRecoveryStarted,
    SegmentsLeft,
)
from recovery.watch.notifier import Notifier

_STATUSES: Mapping[Status, PartitionStatus] = {
    "restored": "recovered",
    "unchanged": "unchanged",
    "refused": "refused",
    "failed": "failed",
}


class RestoreProgress:
    """Turns the steps of a restore into events.

    Args:
        observers: notified.
    """

    def __init__(self, observers: Iterable[Observer]) -> None:
        self._notify = Notifier(observers)
        self._work_bytes: dict[tuple[str, str], int] = {}
        self._segment_counts: dict[tuple[str, str], int] = {}
        self._log_counts: Counter[str] = Counter()
        self._finished_counts: Counter[str] = Counter()
        self._started_s: dict[tuple[str, str], float] = {}
        self._held: dict[tuple[str, str], list[Remark]] = {}
        self._dir_started_s: dict[str, float] = {}

    def start(
        self, log_dirs: Iterable[str], *, cordoned: Iterable[str], threads_per_dir: int, dry_run: bool
    ) -> None:
        """Begin the run; nothing of the archive is known yet."""
        self._notify(
            RunStarted(
                log_dirs=tuple(log_dirs),
                threads_per_dir=threads_per_dir,
                command="archive restore",
                dry_run=dry_run,
                cordoned_log_dirs=tuple(cordoned),
                has_shared_pace=True,  # the archive's
            )
        )

    def remark(
        self, text: str, level: Level = "info", *, log_dir: str | None = None, partition: str | None = None
    ) -> None:
        """Say what the operator should read."""
        self._notify(Remark(text=text, level=level, log_dir=log_dir, partition=partition))

    def start_log_dir(
        self,
        log_dir: str,
        partitions: Iterable[PlannedRestore],
        bytes_to_fetch: Mapping[str, int],
    ) -> None:
        """Report what goes to a log dir.

        Args:
            bytes_to_fetch: by partition; what an interrupted run has fetched does not count.
        """
        for one in partitions:
            self._log_counts[log_dir] += 1
            if one.mode == "full":
                place = log_dir, one.source.name
                self._work_bytes[place] = bytes_to_fetch.get(one.source.name, 0) + one.source.size_bytes
                self._segment_counts[place] = len(one.source.segments)
        self._dir_started_s[log_dir] = time.monotonic()
        self._notify(
            LogDirStarted(
                log_dir=log_dir,
                had_clean_shutdown=False,
                log_count=self._log_counts[log_dir],
                segment_count=sum(
                    count for (place, _), count in self._segment_counts.items() if place == log_dir
                ),
                bytes_total=sum(
                    size_bytes for (place, _), size_bytes in self._work_bytes.items() if place == log_dir
                ),
            )
        )

    def start_segment(self, log_dir: str, partition: str, thread_num: int) -> None:
        """Report that a thread fetches a segment of *partition* next."""
        self._started_s.setdefault((log_dir, partition), time.monotonic())
        self._notify(self._partition_started(log_dir, partition, thread_num))

    def fetched(self, log_dir: str, partition: str, thread_num: int, fetched_bytes: int) -> None:
        """Report bytes that are in the stage now."""
        self._notify(
            BytesScanned(
                log_dir=log_dir, partition=partition, thread_num=thread_num, scanned_bytes=fetched_bytes
            )
        )

    def of_engine(self, log_dirs: Mapping[str, str]) -> Observer:
        """Return an observer for the engine, which recovers stages.

        Args:
            log_dirs: the log dir of each staged one.
        """

        def take(event: Event) -> None:
            match event:
                case PartitionStarted():
                    log_dir = log_dirs[event.log_dir]
                    started = self._partition_started(log_dir, event.partition, event.thread_num)
                    self._notify(replace(started, now_ms=event.now_ms, monotonic_s=event.monotonic_s))
                    count = self._segment_counts[log_dir, event.partition]
                    self._notify(
                        SegmentsLeft(log_dir=log_dir, thread_num=event.thread_num, remaining_segments=count)
                    )
                case SegmentRecoveryStarted() | BytesScanned() | SegmentRecovered():
                    self._notify(replace(event, log_dir=log_dirs[event.log_dir]))
                case Remark(level="warning" | "error"):
                    remark = replace(
                        event, log_dir=None if event.log_dir is None else log_dirs[event.log_dir]
                    )
                    if remark.log_dir is None or remark.partition is None:
                        self._notify(remark)
                    else:
                        self._held.setdefault((remark.log_dir, remark.partition), []).append(remark)
                case _:
                    pass

        return take

    def finish_partition(self, result: RestoredPartition) -> None:
        """Report what became of a partition that was to be restored."""
        assert result.log_dir is not None
        log_dir, name = result.log_dir, f"{result.topic}-{result.partition}"
        # Of a log of which not all was fetched, they tell of losses that are none
        for remark in self._held.pop((log_dir, name), ()):
            if result.status == "restored":
                self._notify(remark)
        self._finished_counts[log_dir] += 1
        now_s = time.monotonic()
        duration_s = now_s - self._started_s.get((log_dir, name), self._dir_started_s.get(log_dir, now_s))
        self._notify(
            PartitionFinished(
                log_dir=log_dir,
                partition=name,
                thread_num=0,
                status=_STATUSES[result.status],
                log_start_offset=result.log_start_offset or 0,
                log_end_offset=result.log_end_offset or 0,
                segment_count=result.segments,
                truncated_bytes=0,
                truncated_batches=0,
                duration_ms=round(duration_s * 1000),
                finished_count=self._finished_counts[log_dir],
                log_count=self._log_counts[log_dir],
                topic_id=result.topic_id or None,
                reason="; ".join(result.reasons),
            )
        )
        self.count_aux(result)

    def refuse(self, result: RestoredPartition) -> None:
        """Report a partition that is left alone before anything was written."""
        if result.status in ("refused", "failed"):
            self.remark(
                f"{result.status}: {'; '.join(result.reasons)}",
                "error",
                log_dir=result.log_dir,
                partition=f"{result.topic}-{result.partition}",
            )
        self.count_aux(result)

    def count_aux(self, result: RestoredPartition) -> None:
        """Count an auxiliary state that was made, or would be in a dry run, or could not be."""
        if result.mode == "aux" and result.status != "unchanged":
            self._notify(AuxStateBuilt(topic=result.topic, error="; ".join(result.reasons)))

    def finish_log_dir(self, log_dir: str, error: OSError | None) -> None:
        """Report that nothing more is done in a log dir."""
        if error is not None:
            self._notify(LogDirOffline(log_dir=log_dir, error=error_text(error)))
            return
        duration_s = time.monotonic() - self._dir_started_s[log_dir]
        self._notify(LogDirFinished(log_dir=log_dir, duration_ms=round(duration_s * 1000)))

    def finish(self, exit_code: int) -> None:
        """End the run."""
        self._notify(RunFinished(exit_code=exit_code))

    def _partition_started(self, log_dir: str, partition: str, thread_num: int) -> PartitionStarted:
        return PartitionStarted(
            log_dir=log_dir,
            partition=partition,
            thread_num=thread_num,
            unflushed_segment_count=self._segment_counts[log_dir, partition],
            recover_bytes=self._work_bytes[log_dir, partition],
        )
