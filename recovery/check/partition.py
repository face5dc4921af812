"""The check of one partition's folder: what is read of its segments, and what follows from all of them together.

`tasks` returns the segments to be read; their results come back in the order of base offsets, and `finish` returns
what is wrong with each file. The driver reads; this module parses only small files, which it is given as bytes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from native.producer_sequences import Sequences
from recovery.check.facts import PartitionFacts
from recovery.check.finding import Finding, Rule
from recovery.check.folder_files import FolderFiles
from recovery.check.rules.epochs import check_epochs
from recovery.check.rules.neighbours import find_cut_ends, find_gaps, find_lossy_swaps, find_no_segment
from recovery.check.rules.producers import ProducerChecks
from recovery.check.rules.sequences import SequenceChecks
from recovery.check.rules.transaction_index import (
    KnownAborts,
    check_transaction_index,
    known_aborts,
    txn_begins,
)
from recovery.check.task import SegmentResult, SegmentTask
from recovery.check.tasks import other_task, segment_task, unflushed_from
from recovery.logdir.checkpoints import is_line_of_log
from segfmt import byte_layout
from segfmt.filenames import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    FileKind,
    FolderState,
    file_kind,
    log_name,
    offset_index_name,
    snapshot_name,
    time_index_name,
    txn_index_name,
)
from segfmt.java_text import LONG_MAX
from segfmt.kafka_uuid import format_uuid
from segfmt.transaction_index import view_transaction_index

_SURE_OF_SNAPSHOT = 3
"""With fewer segments, a power loss may have destroyed the only snapshot. Kafka: UnifiedLog.roll."""


@dataclass(slots=True, kw_only=True)
class _Aborts:
    """The aborted transactions of a segment, and how far they are known.

    Attributes:
        file: the name of its `.txnindex`.
    """

    file: str
    known: KnownAborts
    was_complete: bool
    end_offset: int


class PartitionCheck:
    """The checks of one partition.

    Args:
        facts: what is known of the partition.
        files: names, sizes and small files of its folder.
        earlier_ends: of a live partition, the offset after the last one of each segment as an earlier look found it,
            by base offset; the `.txnindex` files, read since, have all aborts before it.
    """

    def __init__(
        self, facts: PartitionFacts, files: FolderFiles, earlier_ends: Mapping[int, int] | None = None
    ) -> None:
        self._earlier_ends = earlier_ends
        self.facts = facts
        self.files = files
        self.findings: list[Finding] = list(files.findings)
        self.checked_bytes: dict[str, int] = dict(files.checked_bytes)
        self._results: list[SegmentResult] = []
        self._other_results: list[SegmentResult] = []
        self._aborts: list[_Aborts] = []
        start = self._first_base = files.base_offsets[0] if files.base_offsets else 0
        self._producers = ProducerChecks(
            files.snapshots,
            start_offset=start,
            log_start_offset=max(0, facts.log_start_offset or 0),
            now_ms=facts.now_ms,
            expiration_ms=facts.expiration_ms,
        )
        self._sequences = SequenceChecks(
            expiration_ms=facts.expiration_ms, log_start_offset=max(0, facts.log_start_offset or 0)
        )

    def tasks(self) -> list[SegmentTask]:
        """Return the segments to be read, ascending."""
        bases, snapshots = self.files.base_offsets, sorted(self.files.snapshots)
        flushed_end = unflushed_from(self.facts, bases)
        tasks = []
        for base, following in zip(bases, [*bases[1:], None], strict=False):
            end = len(snapshots) if following is None else bisect_left(snapshots, following)
            tasks.append(
                segment_task(
                    self.facts,
                    base,
                    next_base_offset=following,
                    unflushed_from=flushed_end,
                    snapshot_offsets=tuple(snapshots[bisect_right(snapshots, base) : end]),
                )
            )
        # `.log.swap` files, which a broker would put in place of segments, and KRaft's snapshots
        other_names = [*sorted(self.files.swaps), *self.files.kraft_snapshots]
        return [*tasks, *(other_task(self.facts, name) for name in other_names)]

    def take(self, result: SegmentResult) -> None:
        """Take in the result of the next task, in the order of `tasks`."""
        task = result.task
        if not task.has_indexes:
            result.pieces = []
            self._other_results.append(result)
            return
        was_complete = self._producers.is_complete
        start = self._log_end_offset() if self._results else self._first_base
        if self._results or start < task.base_offset:
            if start != task.base_offset:
                self._producers.break_off()  # a segment is missing before it, could not be read, or overlaps
            if start <= task.base_offset:
                self._producers.reach(task.base_offset)
            was_complete = self._producers.is_complete
        expected, begins = [], []
        for piece in result.pieces:
            expected.append(self._producers.take(task.log, piece.scan))
            begins.append(txn_begins(piece.scan))
            if piece.is_broken:
                self._producers.break_off()
                was_complete = False
            if piece.snapshot_offset is not None:
                self._producers.reach(piece.snapshot_offset)
        was_complete &= self._producers.is_complete and result.is_whole
        end_offset = task.base_offset if result.last_offset is None else result.last_offset + 1
        if result.is_whole and end_offset > task.base_offset:
            self._producers.reach(end_offset)
        self._sequences.take(result)
        result.pieces = []
        if not self.facts.is_live:  # of a live log, a second look needs them again
            result.sequences = Sequences()
        self._aborts.append(
            _Aborts(
                file=txn_index_name(task.base_offset),
                known=known_aborts(expected, begins, [run.first_offset for run in result.epoch_runs[1:]]),
                was_complete=was_complete,
                end_offset=end_offset,
            )
        )
        self._results.append(result)

    def forget_before(self, offset: int) -> None:
        """Accept snapshots without the producers that have written nothing from *offset* on."""
        self._producers.log_start_offset = offset

    @property
    def producer_findings(self) -> list[Finding]:
        """The findings about producers so far."""
        return self._producers.findings

    def rebuilt_aborts(self) -> KnownAborts | None:
        """Return the transactions aborted in the last segment taken; None if some are unknown."""
        aborts = self._aborts[-1]
        return aborts.known if aborts.was_complete else None

    def rebuilt_snapshot(self) -> bytes:
        """Return the snapshot at the end of the last segment taken, empty if not everything is known of producers."""
        return self._producers.snapshot_at(self._aborts[-1].end_offset)

    def restart_producers(self, offset: int) -> None:
        """Continue from the snapshot at *offset*, which has been replaced."""
        self._producers.restart(offset)

    def finish(self) -> list[Finding]:
        """Return all findings of the folder."""
        for result in (*self._results, *self._other_results):
            self.findings += result.findings
            for name, size in result.checked_bytes.items():
                self.checked_bytes[name] = size
        is_whole = not self._unread and all(result.is_whole for result in self._results)
        end_offset = self._log_end_offset()
        self._judge_producers(end_offset if is_whole else None)
        self._judge_topic_id()
        self._judge_row(end_offset if is_whole else None)
        self._judge_indexes()
        self._judge_epochs(end_offset if is_whole and not self.facts.is_live else None)
        if is_whole and self.files.base_offsets:
            self._judge_offsets(end_offset)
        return self.findings

    # -- what follows from all segments ----------------------------------------------------------------------

    def _judge_epochs(self, end_offset: int | None) -> None:
        if self.files.epochs is None:
            return
        is_complete = self.facts.is_contiguous and not self.facts.is_live and not self._is_compacted
        self.findings += check_epochs(
            [(result.task.log, run) for result in self._results for run in result.epoch_runs],
            self.files.epochs,
            log_end_offset=end_offset,
            is_clean=self.facts.had_clean_shutdown,
            log_start_offset=max(0, self.facts.log_start_offset or 0),
            has_all_batches=is_complete
            and not self._unread
            and all(result.has_all_batches for result in self._results),
        )

    def _judge_producers(self, end_offset: int | None) -> None:
        if self._is_compacted:
            self.findings += [
                finding for finding in self._producers.findings if finding.rule != "snapshot-content"
            ]
        else:
            self.findings += self._producers.findings
        facts = self.facts
        if facts.is_live or facts.is_metadata_log or end_offset is None:
            return
        for offset in self.files.snapshots:
            if offset > end_offset:
                detail = f"taken at offset {offset}, the log ends at {end_offset}"
                self._add(
                    snapshot_name(offset), "snapshot-content", detail, is_note=not facts.had_clean_shutdown
                )
        has_unread = any(file_kind(name) is FileKind.SNAPSHOT for name in self._unread_files)
        if not self._producers.has_producers or self.files.snapshots or has_unread:
            return
        if facts.had_clean_shutdown:
            detail = (
                "the log has producers, but no snapshot of them: after this clean shutdown they are forgotten"
            )
            self._add(snapshot_name(end_offset), "missing-snapshot", detail)
        elif len(self.files.base_offsets) >= _SURE_OF_SNAPSHOT:
            detail = (
                "the log has producers, but no snapshot of them, although each new segment comes with one"
            )
            self._add(snapshot_name(self.files.base_offsets[-1]), "missing-snapshot", detail)

    def _judge_topic_id(self) -> None:
        """Judge whether a broker that starts would set the log aside. Kafka: LogManager.isStrayReplica."""
        if not self._has_lines:
            return
        if self.facts.is_topic_gone and not self.facts.is_live:
            detail = "the metadata log has no topic of this name: a broker that starts calls the log stray"
            self._add(PARTITION_METADATA, "topic-id", detail, is_note=True)
        expected_id, stored_id = self.facts.topic_id, self.files.topic_id
        if None not in (expected_id, stored_id) and expected_id != stored_id:
            assert expected_id is not None
            assert stored_id is not None
            detail = f"topic id {format_uuid(stored_id)}, the metadata log says {format_uuid(expected_id)}"
            self._add(PARTITION_METADATA, "topic-id", detail)

    def _judge_row(self, end_offset: int | None) -> None:
        """Judge the segments next to each other."""
        swaps = [result for result in self._other_results if result.task.log in self.files.swaps]
        if self.facts.is_contiguous and not self._is_compacted:
            self.findings += find_gaps(self._results, swaps, self.files.names, self._unread)
            if not self._unread:
                self.findings += self._sequences.finish(self._results)
        if self.facts.is_contiguous:
            self.findings += find_lossy_swaps(self._results, swaps)
        if end_offset is not None and not self.facts.is_live:
            self.findings += find_cut_ends(self._results, self._files_beyond(end_offset))
        if not self.files.base_offsets and not swaps:
            start = max(0, self.facts.log_start_offset or 0)
            kinds = {file_kind(name) for name in self.files.names}
            has_traces = bool(self.files.epochs or self.facts.recovery_point or kinds - {FileKind.OTHER})
            self.findings.append(find_no_segment(start, has_traces=has_traces))

    def _files_beyond(self, end_offset: int) -> list[str]:
        """Return the files that know of offsets past the end of the log."""
        beyond = [snapshot_name(offset) for offset in self.files.snapshots if offset > end_offset]
        point = self.facts.recovery_point if self._has_lines else None
        if point is not None and point > end_offset:
            beyond.append(RECOVERY_POINT_CHECKPOINT)
        if self.files.epochs and self.files.epochs[-1].start_offset > end_offset:
            beyond.append(LEADER_EPOCH_CHECKPOINT)
        return beyond

    def _judge_indexes(self) -> None:
        names = self.files.names
        self._judge_active_indexes()
        for number, (result, aborts) in enumerate(zip(self._results, self._aborts, strict=True)):
            base, is_flushed = result.task.base_offset, result.task.is_flushed
            for name in (offset_index_name(base), time_index_name(base)):
                if name not in names and result.batch_count:
                    self._add(
                        name,
                        "missing-index",
                        f"the file is missing, but {log_name(base)} is there",
                        is_flushed=is_flushed,
                    )
            data = self.files.transaction_indexes.get(base)
            known = aborts.known.ended_at(self._next_epoch(number))
            if self._earlier_ends is not None:
                known = known.before(self._earlier_ends.get(base, base))
            if data is None and (not len(known.entries) or aborts.file in self._unread_files):
                continue
            findings = check_transaction_index(
                aborts.file,
                view_transaction_index(data or b""),
                known,
                base_offset=base,
                end_offset=aborts.end_offset if result.is_whole else LONG_MAX,
                is_complete=aborts.was_complete,
                is_compacted=self._may_lack_batches,
            )
            self.findings += [replace(finding, is_flushed=is_flushed) for finding in findings]

    def _next_epoch(self, number: int) -> int:
        """Return where, behind a segment, the next leader epoch begins or the log ends; the greatest int64 if neither.

        Of tiered storage: the last segment there is not the last one of the log.
        """
        result = self._results[number]
        if number + 1 == len(self._results):
            return LONG_MAX if result.task.is_tiered else self._aborts[number].end_offset
        following = self._results[number + 1]
        runs = result.epoch_runs[-1:] + following.epoch_runs[:1]
        is_another = len(runs) == 2 and runs[0].epoch != runs[1].epoch
        return following.task.base_offset if is_another else LONG_MAX

    def _judge_active_indexes(self) -> None:
        """Find indexes that a broker does not map at a clean start. Kafka: AbstractIndex.resize."""
        facts = self.facts
        if (
            not self.files.base_offsets
            or not facts.had_clean_shutdown
            or facts.is_live
            or facts.is_metadata_log
        ):
            return
        base, most_bytes = self.files.base_offsets[-1], facts.segment_index_bytes
        for name, dtype in (
            (offset_index_name(base), byte_layout.OFFSET_INDEX_DTYPE),
            (time_index_name(base), byte_layout.TIME_INDEX_DTYPE),
        ):
            size = self.files.names[name].size_bytes if name in self.files.names else 0
            if most_bytes is not None and size // dtype.itemsize > most_bytes // dtype.itemsize:
                detail = f"{size} bytes, but segment.index.bytes allows {most_bytes}: a broker stops at it"
                self._add(name, "index-size", detail)

    def _judge_offsets(self, end_offset: int) -> None:
        """Judge the lines of the log dir's checkpoints that concern this log."""
        facts = self.facts
        if not self._has_lines:
            return
        name = f"{facts.topic}-{facts.partition}"
        point, start = facts.recovery_point, facts.log_start_offset
        if point is not None and (point < 0 or point > end_offset):
            detail = f"{name}: recovery point {point}, the log ends at {end_offset}"
            self._add(RECOVERY_POINT_CHECKPOINT, "recovery-point", detail)
        elif point is None and facts.had_clean_shutdown and not (facts.is_live or facts.is_archived):
            self._add(RECOVERY_POINT_CHECKPOINT, "recovery-point", f"{name} has no line", is_note=True)
        elif point is not None and point != end_offset and facts.had_clean_shutdown and not facts.is_live:
            if point < end_offset and point in self.files.snapshots:
                late = f"the log ends at {end_offset}, recovery point and snapshot of the clean shutdown at {point}"
                self._add(self._results[-1].task.log, "late-end", late)
            detail = (
                f"{name}: recovery point {point}, the log ends at {end_offset}: no clean shutdown leaves that"
            )
            self._add(RECOVERY_POINT_CHECKPOINT, "recovery-point", detail, is_note=True)
        mark = facts.high_watermark
        if mark is not None and mark > end_offset and not facts.is_live:
            detail = f"{name}: high watermark {mark}, the log ends at {end_offset}"
            is_own = facts.marked_ns is not None and is_line_of_log(self.files.names, facts.marked_ns)
            # A recovery that has cut the log leaves the line as it is.
            is_note = facts.had_clean_shutdown or not is_own
            self._add(REPLICATION_OFFSET_CHECKPOINT, "high-watermark", detail, is_note=is_note)
        if start is not None and (start < 0 or start > end_offset):
            detail = f"{name}: log start offset {start}, the log ends at {end_offset}"
            self._add(LOG_START_OFFSET_CHECKPOINT, "log-start", detail)

    # -- what is known ---------------------------------------------------------------------------------------

    @cached_property
    def _unread(self) -> list[int]:
        """Base offsets, ascending, of the segments that could not be read; known once all others are taken in."""
        read = {result.task.base_offset for result in self._results}
        return [base for base in self.files.base_offsets if base not in read]

    @cached_property
    def _unread_files(self) -> set[str]:
        """Names of the small files that could not be read."""
        return {finding.file for finding in self.files.findings if finding.rule == "unreadable"}

    @property
    def _is_compacted(self) -> bool:
        return not self.facts.is_contiguous or any(result.has_compacted for result in self._results)

    @cached_property
    def _may_lack_batches(self) -> bool:
        """Whether batches may have been compacted away. Where no offset is missing, none was, whatever the policy."""
        if self.facts.is_contiguous:
            return self._is_compacted
        has_gaps = bool(find_gaps(self._results, (), self.files.names, self._unread))
        return has_gaps or any(result.has_compacted for result in self._results)

    @property
    def _has_lines(self) -> bool:
        """Whether the checkpoints' lines are about this log: a stray log's lines belong to another log of that name."""
        return not self.facts.is_metadata_log and not self.facts.folder.endswith(FolderState.STRAY.value)

    def _log_end_offset(self) -> int:
        if not self._results:
            return 0
        last = self._results[-1]
        return last.task.base_offset if last.last_offset is None else last.last_offset + 1

    def _add(
        self, file: str, rule: Rule, detail: str, *, is_note: bool = False, is_flushed: bool = True
    ) -> None:
        self.findings.append(
            Finding(
                file=file,
                position=None,
                rule=rule,
                detail=detail,
                severity="note" if is_note else "damage",
                is_flushed=is_flushed,
            )
        )
