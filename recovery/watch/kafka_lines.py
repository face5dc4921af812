"""What a broker's log says at the same moment, by its release, word for word, so that known searches find it here too.

    LogManager    Loading logs ..., Recovering/Skipping recovery of N logs ..., Completed load of Log(...),
                  Loaded N logs in Tms
    LogLoader     with its prefix "[LogLoader partition=T-P, dir=D] ": Recovering unflushed segment B. x/y
                  recovered for T-P., Corruption found in segment B, truncating to offset O, ...
    LogSegment    Found invalid messages in log segment F at byte offset P.

What Kafka does not say (bytes cut, thread, reason) follows as fields, never inside the text.

Differs: x/y is written out as in 3.3 to 3.9, where 4.x prints the integer quotient, always 0. A log that was
refused or failed is an error here, where Kafka says "Error while loading" at INFO.

From 4.4 on LogManager is written in Java, and lists log dirs as Java does: `[A, B]` in place of `ArrayBuffer(A, B)`.
Where the release is not known, the older words stand.

Nothing is printed here and no clock is read: an event comes in, lines come out.

Kafka: LogManager.loadLogs, LogLoader.recoverLog, LogSegment.recover, UnifiedLog.toString.
"""

import os.path
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from recovery.errors import INTERRUPTED_EXIT_CODES
from recovery.quantity import count_text
from recovery.watch.events import (
    AuxStateBuilt,
    BrokerRestarted,
    BytesScanned,
    Command,
    CorruptionFound,
    CutByEarlierRun,
    Event,
    IndexFileProblem,
    Level,
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
from recovery.watch.figures import DOING, DONE, RESUMED
from segfmt.filenames import format_offset

Field = str | int | float | bool

_OF_BROKERS: tuple[Command, ...] = ("recover", "watch")
"""Commands about which a broker's own lines are said."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a log: Kafka's words or ours, and the fields that follow them."""

    text: str
    level: Level = "info"
    fields: Mapping[str, Field] = field(default_factory=dict)


def topic_and_partition(folder: str) -> tuple[str, str]:
    """Split the name of a partition folder, without its "-future", "-stray" or "-delete" mark.

    Names that Kafka would refuse come back whole as the topic: a log line must not fail on them.

    Kafka: LocalLog.parseTopicPartitionName.
    """
    if folder.endswith(("-future", "-stray", "-delete")):
        folder = folder.rpartition(".")[0] or folder
    topic, dash, partition = folder.rpartition("-")
    return (topic, partition) if dash else (folder, "")


def _topic_partition(folder: str) -> str:
    topic, partition = topic_and_partition(folder)
    return f"{topic}-{partition}" if partition else topic


def _loader(event: SegmentRecoveryStarted | CorruptionFound | SegmentsDeleted | IndexFileProblem) -> str:
    return f"[LogLoader partition={_topic_partition(event.partition)}, dir={event.log_dir}] "


class KafkaLines:
    """Turns events into lines. Keeps what the last line needs: the counts of logs and the unclean dirs."""

    def __init__(self) -> None:
        self._started_s = 0.0
        self._log_count = 0
        self._left_count = 0
        self._is_over = False
        self._command: Command = "recover"
        self._listed = _array_buffer
        self._unclean_log_dirs: list[str] = []

    def lines(self, event: Event) -> Iterator[Line]:
        """Yield the lines of *event*: one for most, none for the finer events."""
        match event:
            case RunStarted():
                self._command = event.command
                self._started_s, self._is_over = event.monotonic_s, False
                self._log_count, self._left_count, self._unclean_log_dirs = 0, 0, []
                self._listed = _java_list if event.has_java_log_manager else _array_buffer
                yield _run_started(event, self._listed)
            case LogDirStarted():
                self._log_count += event.log_count
                if event.log_count and event.had_clean_shutdown is False:
                    self._unclean_log_dirs.append(event.log_dir)
                yield _log_dir_started(event, self._command)
            case SegmentRecoveryStarted():
                yield _segment_started(event)
            case CorruptionFound():
                yield from _corruption(event)
            case SegmentsDeleted():
                yield from _segments_deleted(event)
            case IndexFileProblem():
                yield _index_file_problem(event)
            case PartitionFinished():
                self._left_count += event.status in ("refused", "failed")
                yield _partition_finished(event)
            case PartitionChecked():
                yield _partition_checked(event, self._command)
            case CutByEarlierRun():
                yield Line(event.text, "warning", {"log_dir": event.log_dir, "partition": event.partition})
            case LogDirHandedOver():
                yield _handed_over(event)
            case LogDirOffline():
                yield Line(f"Error while loading log dir {event.log_dir}", "error", {"error": event.error})
            case Remark():
                yield Line(event.text, event.level, _place(event))
            case BrokerRestarted():
                yield Line(event.text, "warning")
            case SourceLost():
                yield Line(event.text, "error")
            case RunFinished():
                yield self._run_finished(event)
            case (
                PartitionStarted()
                | BytesScanned()
                | SegmentRecovered()
                | SegmentsLeft()
                | LogDirSampled()
                | LogDirFinished()
                | AuxStateBuilt()
            ):
                pass  # Kafka has no lines for these

    def _run_finished(self, event: RunFinished) -> Line:
        """Kafka says nothing after a fatal error or a kill; we say how it ended."""
        fields: dict[str, Field] = {"exit_code": event.exit_code}
        if self._is_over and self._command != "watch":
            return Line("The process ended with an error after the run; the report is lost.", "error", fields)
        self._is_over = True
        duration_ms = round((event.monotonic_s - self._started_s) * 1000)
        if event.exit_code in INTERRUPTED_EXIT_CODES:
            then = "; start the same command again to resume" if self._command in RESUMED else ""
            return Line(f"Interrupted{then}.", "warning", fields)
        if event.exit_code in (1, 3) or (event.exit_code == 4 and self._command == "watch"):
            what = "Recovery" if self._command in _OF_BROKERS else DOING[self._command]
            return Line(f"{what} ended early.", "error", fields)
        if self._command not in _OF_BROKERS:
            level: Level = "info" if event.exit_code == 0 else "warning"
            left = self._left_count
            logs = (
                f"{self._log_count - left} of {self._log_count} logs" if left else f"{self._log_count} logs"
            )
            return Line(f"{DONE[self._command]} {logs} in {duration_ms}ms", level, fields)
        dirs = self._unclean_log_dirs
        unclean = f" (unclean log dirs = {self._listed(dirs)})" if dirs else ""
        return Line(f"Loaded {self._log_count} logs in {duration_ms}ms{unclean}", fields=fields)


def _array_buffer(log_dirs: Sequence[str]) -> str:
    return f"ArrayBuffer({', '.join(log_dirs)})"


def _java_list(log_dirs: Sequence[str]) -> str:
    return f"[{', '.join(log_dirs)}]"


def _run_started(event: RunStarted, listed: Callable[[Sequence[str]], str]) -> Line:
    if event.command not in _OF_BROKERS:
        return Line(f"{DOING[event.command]} logs in log dirs {listed(event.log_dirs)}")
    facts: dict[str, Field] = {"dry_run": True} if event.dry_run else {}
    if event.cpu_path:
        facts |= {"cpu_path": event.cpu_path, "kernels": event.kernel_origin}
    return Line(f"Loading logs from log dirs {listed(event.log_dirs)}", fields=facts)


def _log_dir_started(event: LogDirStarted, command: Command) -> Line:
    if command not in _OF_BROKERS:
        fields = {"segments": event.segment_count, "bytes": event.bytes_total}
        return Line(f"{DOING[command]} {event.log_count} logs in {event.log_dir}", fields=fields)
    if event.log_count == 0:
        return Line(f"No logs found to be loaded in {event.log_dir}")
    if event.had_clean_shutdown is None:
        return Line(f"{event.log_count} logs left to load in {event.log_dir}")
    if event.had_clean_shutdown:
        return Line(
            f"Skipping recovery of {event.log_count} logs from {event.log_dir} since "
            "clean shutdown file was found"
        )
    is_known = command == "recover" or event.segment_count
    return Line(
        f"Recovering {event.log_count} logs from {event.log_dir} since no clean shutdown file was found",
        fields={"unflushed_segments": event.segment_count, "unflushed_bytes": event.bytes_total}
        if is_known
        else {},
    )


def _segment_started(event: SegmentRecoveryStarted) -> Line:
    # Of a broker that is watched by its log alone neither is known.
    out_of = f"{event.ordinal}/{event.count}" if event.count else f"{event.ordinal}"
    size = {"size_bytes": event.size_bytes} if event.size_bytes or event.count else {}
    return Line(
        f"{_loader(event)}Recovering unflushed segment {event.base_offset}. "
        f"{out_of} recovered for {_topic_partition(event.partition)}.",
        fields=size | {"thread": event.thread_num},
    )


def _corruption(event: CorruptionFound) -> Iterator[Line]:
    if event.found_invalid_messages:
        log_file = os.path.join(event.log_dir, event.partition, f"{format_offset(event.base_offset)}.log")
        yield Line(
            f"Found invalid messages in log segment {log_file} at byte offset {event.truncate_position}.",
            "warning",
            {"reason": event.reason},
        )
    if event.found_invalid_offset:
        yield Line(
            f"{_loader(event)}Found invalid offset during recovery. Deleting the corrupt segment and "
            f"creating an empty one with starting offset {event.base_offset}",
            "warning",
            {"reason": event.reason},
        )
    yield Line(
        f"{_loader(event)}Corruption found in segment {event.base_offset}, "
        f"truncating to offset {event.truncate_offset}",
        "warning",
        {"position": event.truncate_position, "reason": event.reason},
    )


def _segments_deleted(event: SegmentsDeleted) -> Iterator[Line]:
    if event.log_end_offset is not None and event.log_start_offset is not None:
        yield Line(
            f"{_loader(event)}Deleting all segments because logEndOffset ({event.log_end_offset}) is smaller "
            f"than logStartOffset {event.log_start_offset}. "
            "This could happen if segment files were deleted from the file system.",
            "warning",
        )
    segments = ", ".join(f"LogSegment(baseOffset={base_offset})" for base_offset in event.base_offsets)
    yield Line(f"{_loader(event)}Deleting segments as part of log recovery: {segments}")


def _index_file_problem(event: IndexFileProblem) -> Line:
    rebuilding = "recovering segment and rebuilding index files..."
    match event.problem:
        case "missing":
            text = f"Could not find offset index file corresponding to log file {event.path}, {rebuilding}"
            return Line(_loader(event) + text, "error")
        case "corrupt":
            text = (
                f"Found a corrupted index file corresponding to log file {event.path} "
                f"due to {event.error}, {rebuilding}"
            )
            return Line(_loader(event) + text, "warning")
        case "orphaned":
            text = f"Found an orphaned index file {event.path}, with no corresponding log file."
            return Line(_loader(event) + text, "warning")


def _partition_finished(event: PartitionFinished) -> Line:
    where = os.path.join(event.log_dir, event.partition)
    done = f"({event.finished_count}/{event.log_count} completed in {event.log_dir})"
    fields: dict[str, Field] = {"status": event.status, "thread": event.thread_num}
    if event.status in ("refused", "failed"):
        fields["reason"] = event.reason
        text = f"Error while loading logs in {where} in {event.duration_ms}ms {done}"
        return Line(text, "error", fields)
    if event.truncated_bytes:
        fields |= {"truncated_bytes": event.truncated_bytes, "truncated_batches": event.truncated_batches}
    start, end = event.log_start_offset, event.log_end_offset
    local_start = start if event.local_log_start_offset is None else event.local_log_start_offset
    topic, partition = topic_and_partition(event.partition)
    topic_id = f"topicId={event.topic_id}, " if event.topic_id else ""
    # A broker has not read its high watermarks yet when it prints this: both are where its local log starts.
    log = (
        f"Log(dir={where}, {topic_id}topic={topic}, partition={partition}, highWatermark={local_start}, "
        f"lastStableOffset={local_start}, logStartOffset={start}, logEndOffset={end})"
    )
    return Line(
        f"Completed load of {log} with {event.segment_count} segments, local-log-start-offset {local_start} "
        f"and log-end-offset {end} in {event.duration_ms}ms {done}",
        fields=fields,
    )


def _partition_checked(event: PartitionChecked, command: Command) -> Line:
    where = os.path.join(event.log_dir, event.partition)
    done = f"({event.finished_count}/{event.log_count} completed in {event.log_dir})"
    text = f"{DONE[command]} {where} with {event.segment_count} segments {done}"
    if event.finding_count:
        return Line(text, "warning", {"found": count_text(event.finding_count, "finding")})
    return Line(text)


def _handed_over(event: LogDirHandedOver) -> Line:
    fields: dict[str, Field] = {"handoff": event.handoff, "wrote_marker": event.wrote_marker}
    if event.handoff == "clean-shutdown" and not event.wrote_marker:
        text = f"Handed {event.log_dir} over without clean shutdown file: not all of its logs are recovered"
        return Line(text, "warning", fields)
    return Line(f"Handed {event.log_dir} over to the broker", fields=fields)


def _place(event: Remark) -> dict[str, Field]:
    fields: dict[str, Field] = {}
    if event.log_dir is not None:
        fields["log_dir"] = event.log_dir
    if event.partition is not None:
        fields["partition"] = event.partition
    return fields
