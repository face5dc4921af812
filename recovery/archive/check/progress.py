"""What a run over an archive reports to its observers: the events of a verify, with the archive as the log dir.

A driver only learns of whole tasks. So bytes and segments advance as tasks finish, and a partition is finished with the
task of its last segment: the resolution is that of tasks, and nothing is interpolated between them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from recovery.watch.events import (
    BytesScanned,
    Command,
    LogDirFinished,
    LogDirStarted,
    PartitionChecked,
    PartitionStarted,
    RunFinished,
    RunStarted,
    SegmentsLeft,
)
from recovery.watch.notifier import Notifier


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskShare:
    """The share of one task in the whole.

    Attributes:
        begun: prefix, segments and bytes of each partition whose first segment is in the task.
        ended: prefixes of those whose last segment is.
    """

    log_bytes: int
    segment_count: int
    begun: tuple[tuple[str, int, int], ...] = ()
    ended: tuple[str, ...] = ()


class ArchiveProgress:
    """Turns finished tasks into events.

    Args:
        notifier: of the observers.
        url: of the archive.
        command: the command that is run over it.
    """

    def __init__(self, notifier: Notifier, url: str, command: Command) -> None:
        self._notify = notifier
        self._url = url
        self._command: Command = command
        self._left: deque[TaskShare] = deque()
        self._log_count = self._finished_logs = 0
        self._remaining_segments = 0
        self._partition = ""
        self._segment_counts: dict[str, int] = {}

    def start(self) -> None:
        """Begin the run; the archive is being listed. Kafka's gauge is per thread: a driver has one wave at a time."""
        is_dry = self._command == "archive verify"
        self._notify(
            RunStarted(log_dirs=(self._url,), threads_per_dir=1, command=self._command, dry_run=is_dry)
        )

    def surveyed(self, *, partition_count: int, segment_count: int, log_bytes: int) -> None:
        """Report what is to be read, now that it is known."""
        self._log_count = partition_count
        self._notify(
            LogDirStarted(
                log_dir=self._url,
                had_clean_shutdown=False,
                log_count=partition_count,
                segment_count=segment_count,
                bytes_total=log_bytes,
            )
        )

    def start_wave(self, shares: Iterable[TaskShare]) -> None:
        """Begin a wave of tasks."""
        self._left = deque(shares)
        self._remaining_segments = sum(share.segment_count for share in self._left)
        self._show_remaining()

    def finish_tasks(self, count: int) -> None:
        """Count *count* more finished tasks; which ones is not known, so they are counted in their order."""
        for _ in range(min(count, len(self._left))):
            share = self._left.popleft()
            for prefix, segment_count, log_bytes in share.begun:
                self._partition = prefix
                self._segment_counts[prefix] = segment_count
                self._notify(
                    PartitionStarted(
                        log_dir=self._url,
                        partition=prefix,
                        thread_num=0,
                        unflushed_segment_count=segment_count,
                        recover_bytes=log_bytes,
                    )
                )
            if share.log_bytes:
                self._notify(
                    BytesScanned(
                        log_dir=self._url,
                        partition=self._partition,
                        thread_num=0,
                        scanned_bytes=share.log_bytes,
                    )
                )
            for prefix in share.ended:
                self._finish_partition(prefix)
            self._remaining_segments -= share.segment_count
            self._show_remaining()

    def finish_wave(self) -> None:
        """End the wave: all its tasks are finished."""
        self.finish_tasks(len(self._left))

    def finish(self, exit_code: int) -> None:
        """End the run."""
        self._notify(LogDirFinished(log_dir=self._url, duration_ms=0))
        self._notify(RunFinished(exit_code=exit_code))

    def _finish_partition(self, prefix: str) -> None:
        self._finished_logs += 1
        self._notify(
            PartitionChecked(
                log_dir=self._url,
                partition=prefix,
                thread_num=0,
                segment_count=self._segment_counts.pop(prefix, 0),
                finding_count=None,
                finished_count=self._finished_logs,
                log_count=self._log_count,
            )
        )

    def _show_remaining(self) -> None:
        """Set Kafka's gauge for the driver's one wave."""
        self._notify(
            SegmentsLeft(log_dir=self._url, thread_num=0, remaining_segments=self._remaining_segments)
        )
