"""One partition of a read: its segments, where it begins and ends, and what each run of them must know.

For records one segment is read for each offset (`segment_choice`); batches are listed as they are stored, every copy of
them.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from recovery.archive.inventory.log_starts import judge_log_start
from recovery.archive.layouts.layout import Layout
from recovery.archive.layouts.walk import Walked
from recovery.archive.records.batch_heads import Fault
from recovery.archive.records.broker_view import BrokerView, LocalLog, RemoteLog
from recovery.archive.records.log_starts import copied_log_start
from recovery.archive.records.log_tails import LogTails
from recovery.archive.records.offset_range import OffsetLookup
from recovery.archive.records.planned_faults import PlannedFault, planned_fault
from recovery.archive.records.read_options import Corrupt
from recovery.archive.records.read_request import (
    MOST_EARLIER,
    OffsetRange,
    PlannedSegment,
    PlannedSegments,
    ReadRequest,
    SegmentRun,
)
from recovery.archive.records.record_schema import Include
from recovery.archive.records.run_files import described_files
from recovery.archive.records.segment_choice import choose_segments
from recovery.archive.records.stable_offset import OpenTransactions, archived_end, open_transactions
from recovery.archive.records.uncompared import find_uncompared
from recovery.archive.remote.log_dir_copy import LogDirCopy
from recovery.archive.stores.archived import PartitionPrefix, PartKind
from recovery.archive.stores.segment_table import LETTERS, ArchivedPartition, SegmentTable, parts_in
from recovery.archive.stores.store import Store
from recovery.check.finding import REMEDIES
from recovery.errors import DamagedSegmentError, UsageError
from segfmt.errors import FormatError, MissingKeyError
from segfmt.transaction_index import Entries, encode_transaction_index

MOST_FOLLOWING = 8
"""Segments after its own that a task knows, for their transaction indexes. The first that is not empty nearly always
suffices; a task that must look further lists the partition."""
MOST_AFTER = 4
"""Segments after its own that a task knows, for the ends of transactions that are open after its last one. Nearly all
end in the first; a task that must look further lists the partition."""
_READ_PARTS = (PartKind.LOG, PartKind.OFFSET_INDEX, PartKind.TIME_INDEX, PartKind.TXN_INDEX)


class FoundPartition(NamedTuple):
    """A partition as it was listed.

    Attributes:
        log_dir: the checkpoints next to its folder.
        topic_id: by its name, or the file in its folder; empty if it is not known.
    """

    walked: Walked
    log_dir: LogDirCopy
    topic_id: str


class PlannedPartition:
    """The segments of one partition that may be read, and what each run of them must know.

    Attributes:
        where: the partition.
        topic_id: empty if it is not known.
        planned: its segments.
        start_offset: the log start offset, None if it is not known.
        last_stable_offset: where a consumer of committed records ends; None if it reads all, or no transaction is open.
        offsets: what is requested of it.
        lost_line: see `OffsetLookup`.
    """

    def __init__(
        self,
        store: Store,
        layout: Layout,
        request: ReadRequest,
        found: FoundPartition,
        broker: BrokerView | None,
        remote: RemoteLog | None,
    ) -> None:
        partition, topic_id = found.walked.partition, found.topic_id
        self.where, self.topic_id, self._request = partition.where, topic_id, request
        if request.options.include is Include.BATCHES:
            self.planned = _all_segments(partition, layout)
        else:
            self.planned = choose_segments(partition, layout, None if remote is None else remote.segments)
        is_listing = request.options.include is Include.BATCHES
        self.start_offset, faults = _log_start(store, layout, found, broker)
        if broker is not None and layout.is_tiered:
            faults += find_uncompared(store, layout, partition, broker, remote)
        self._faults = () if is_listing else tuple(faults)
        self._refuse(lambda fault: fault.base_offset is None)
        self.unread_line = "" if is_listing else _unread_line(partition, layout, remote, self._faults)
        self._tails = LogTails(store, layout, most_batch_bytes=request.options.most_batch_bytes)
        self._gone = () if remote is None else remote.gone
        self._is_compacted = not layout.is_tiered and _is_compacted(found)
        local = None if broker is None else broker.local_log(replace(self.where, topic_id=topic_id))
        self.last_stable_offset: int | None = None
        self._open_txns: tuple[tuple[int, int], ...] | None = None
        self._open_before: tuple[tuple[int, int], ...] = ()
        self._local_aborted: Entries | None = None
        if self.planned and (request.options.is_committed or (request.needs_aborted and local is not None)):
            self._find_open(store, layout, local)
        segments = self.planned.segments.without_versions()
        self._indexed = _with_txn_indexes(segments, layout) if request.needs_aborted else []
        self._has_txn_indexes = request.needs_aborted and _has_txn_indexes(self.planned, self._indexed)
        self._indexes = segments.take(self._indexed).only(layout.objects_of(PartKind.TXN_INDEX))
        self._outside = [] if is_listing or remote is None else _outside(partition.segments, self.planned)
        parts = layout.objects_of(*_READ_PARTS, PartKind.SNAPSHOT)
        self._after = replace(
            self.planned, segments=segments.only(parts) if request.needs_aborted else segments
        )
        self.planned = replace(self.planned, segments=segments.only(layout.objects_of(*_READ_PARTS)))
        self.offsets = OffsetRange()
        lookup = OffsetLookup(
            request,
            self.where,
            self.topic_id,
            self.planned,
            start_offset=self.start_offset,
            last_stable_offset=self.last_stable_offset,
            runs_of=self.runs,
            tails=self._tails,
        )
        self.offsets = lookup.range()
        self.lost_line = lookup.lost_line

    def _find_open(self, store: Store, layout: Layout, local: LocalLog | None) -> None:
        """Find the transactions that are open at the end of the archive, and how they ended on the broker."""
        until = self.planned[: self._tails.last_row(self.planned) + 1]
        transactions = _open_transactions(store, layout, until, self.where)
        open_txns = tuple(transactions.begins.items())
        if local is not None and open_txns:
            self._local_aborted = local.settle(transactions, archived_end(store, layout, until))
        stable = transactions.first_offset()
        if self._request.options.is_committed:
            self.last_stable_offset = stable
            if self._request.options.include is Include.RECORDS:
                self._open_txns = open_txns
                self._open_before = self._find_open_before(store, layout)

    def _find_open_before(self, store: Store, layout: Layout) -> tuple[tuple[int, int], ...]:
        """Return which transactions were open where the last segment of tiered storage begins, by the one before it."""
        if not layout.is_tiered or len(self.planned) < 2:
            return ()
        before, last = self.planned[-2], self.planned[-1]
        transactions = OpenTransactions()
        if self._tails.of(before).end_offset == last.segment.base_offset:
            transactions.read_snapshot(store, layout, before.segment)
        return tuple(transactions.begins.items())

    def wanted(self) -> Iterator[tuple[int, int]]:
        """Yield row and bytes of the segments that may have requested records, by their names."""
        options, segments = self.offsets.within(self._request.options), self.planned.segments
        lowest = options.lowest_offset
        if options.include is Include.RECORDS:
            lowest = max(
                (offset for offset in (lowest, self.start_offset) if offset is not None), default=None
            )
        columns = zip(
            segments.base_offsets,
            self.planned.end_offsets,
            segments.part_bytes(PartKind.LOG),
            strict=True,
        )
        for row, (base_offset, end_offset, size_bytes) in enumerate(columns):
            if lowest is not None and end_offset is not None and end_offset <= lowest:
                continue
            if options.highest_offset is not None and base_offset > options.highest_offset:
                continue
            yield row, size_bytes

    def fault_runs(self) -> list[SegmentRun]:
        """Return a run without segments that tells of what planning has found, if that is requested.

        Raises:
            DamagedSegmentError: there is something, and damage fails the query.
        """
        self._refuse(self._is_requested)
        faults = tuple((one.name, one.fault) for one in self._faults if self._is_requested(one))
        if not faults:
            return []
        nothing = self.planned.take(())
        return [SegmentRun(where=self.where, topic_id=self.topic_id, segments=nothing, faults=faults)]

    def _refuse(self, is_meant: Callable[[PlannedFault], bool]) -> None:
        if self._request.options.corrupt is Corrupt.FAIL:
            for fault in filter(is_meant, self._faults):
                fault.refuse()

    def _is_requested(self, fault: PlannedFault) -> bool:
        """Return whether a fault is about requested offsets; how far a segment goes that is not known nobody says."""
        highest = self.offsets.within(self._request.options).highest_offset
        return fault.base_offset is None or highest is None or fault.base_offset <= highest

    def runs(self, rows: Sequence[int]) -> list[SegmentRun]:
        """Return the run of the segments in *rows*; no run without segments."""
        if not rows:
            return []
        first = bisect_right(self._indexed, rows[-1])
        segments = self.planned.take(rows)
        return [
            SegmentRun(
                where=self.where,
                topic_id=self.topic_id,
                segments=segments,
                before=self._before(rows[0]),
                offsets=self.offsets,
                start_offset=self.start_offset if self._request.options.include is Include.RECORDS else None,
                last_stable_offset=self.last_stable_offset,
                after=self._following(rows[-1]),
                outside=self._outside_after(segments.segments.base_offsets[-1]),
                following=self._indexes[first : first + MOST_FOLLOWING],
                follows_more=len(self._indexed) > first + MOST_FOLLOWING,
                local_aborted=self._aborted_within(segments),
                has_txn_indexes=self._has_txn_indexes,
                open_txns=self._open_txns,
                open_before=self._open_before,
                is_compacted=self._is_compacted,
                gone=self._gone,
            )
        ]

    def _before(self, row: int) -> Sequence[PlannedSegment]:
        """Return the segments before one that may go on where it ends: for records, by names alone."""
        is_listing = self._request.options.include is Include.BATCHES
        if is_listing or not self._tails.has_rests(self.planned[row]):
            return ()
        return self.planned[max(0, row - MOST_EARLIER) : row]

    def _following(self, row: int) -> Sequence[PlannedSegment]:
        """Return the segments after one, in which transactions may end that are open at its end."""
        request = self._request
        if not request.needs_aborted or request.options.include is Include.BATCHES:
            return ()
        return self._after[row + 1 : row + 1 + MOST_AFTER]

    def _outside_after(self, base_offset: int) -> frozenset[str]:
        return frozenset(segment_id for base, segment_id in self._outside if base > base_offset)

    def _aborted_within(self, segments: PlannedSegments) -> bytes:
        """Return what was aborted on the broker after the archive's end and reaches into *segments*."""
        entries = self._local_aborted
        if entries is None:
            return b""
        is_within = entries["last_offset"] >= segments.segments.base_offsets[0]
        if (end_offset := segments.end_offsets[-1]) is not None:
            is_within &= entries["first_offset"] < end_offset
        return encode_transaction_index(entries[is_within])


def _all_segments(partition: ArchivedPartition, layout: Layout) -> PlannedSegments:
    """Return all copies of all segments."""
    segments = partition.segments.take(_with_logs(partition.segments))
    following = dict(itertools.pairwise(sorted(set(segments.base_offsets))))
    return PlannedSegments(
        segments=segments,
        end_offsets=[following.get(base_offset) for base_offset in segments.base_offsets],
        told=[None] * len(segments),
        has_last=bool(segments) and not layout.is_tiered,
    )


def _unread_line(
    partition: ArchivedPartition,
    layout: Layout,
    remote: RemoteLog | None,
    faults: Sequence[PlannedFault],
) -> str:
    """Return how many segments no broker reads: unfinished copies and deletions, those outside the lineage; as text."""
    segments = partition.segments
    if remote is not None:
        states = Counter(
            remote.unfinished[segment_id]
            for segment_id in segments.segment_ids
            if segment_id in remote.unfinished
        )
        counts = [f"{count} {state.name}" for state, count in sorted(states.items())]
        if others := sum(segment_id in remote.unread for segment_id in segments.segment_ids):
            counts.append(f"{others} below the log start or outside the lineage")
        not_compared = sum(fault.base_offset is not None for fault in faults)
        unknown = sum(not remote.knows(segment_id) for segment_id in segments.segment_ids)
        if orphans := unknown - not_compared:
            counts.append(f"{orphans} that the metadata topic does not know")
    elif layout.last_part is not None:
        letter = LETTERS[layout.last_part]
        count = sum(letter not in shape for shape in segments.shapes())
        counts = [f"{count} without {layout.last_part.noun}"] if count else []
    else:
        return ""
    if not counts:
        return ""
    return f"{partition.where.prefix}: no broker reads {', '.join(counts)}: these segments are left out"


def _is_compacted(found: FoundPartition) -> bool:
    """Return whether the log of a plain copy is known to be compacted."""
    where = found.walked.partition.where
    return not found.log_dir.facts(where, is_deep=False, is_tiered=False, now_ms=0).is_contiguous


def _open_transactions(
    store: Store, layout: Layout, planned: PlannedSegments, where: PartitionPrefix
) -> OpenTransactions:
    """Return the transactions that are open at the archive's end, or name the segment that cannot be read for it."""
    try:
        return open_transactions(store, layout, planned, where.folder)
    except MissingKeyError as error:
        raise UsageError(f"{store.url}/{where.prefix}: missing-key: {error}") from error
    except (FormatError, FileNotFoundError):
        for segment in reversed(planned.segments):
            fault = described_files(store, layout, segment)
            if isinstance(fault, Fault):
                name = layout.name_of(segment, layout.last_part or PartKind.LOG)
                raise DamagedSegmentError(
                    f"{store.url}/{where.prefix}{name}: {fault}. Which transactions are open at the end is not known. "
                    f"Remedy: {REMEDIES[fault.rule]}, or read with isolation=read_uncommitted"
                ) from None
        raise


def _log_start(
    store: Store, layout: Layout, found: FoundPartition, broker: BrokerView | None
) -> tuple[int | None, list[PlannedFault]]:
    """Return where the partition's log begins, by the checkpoint of a log dir, or of a copy of one; and its faults."""
    partition = found.walked.partition
    where = replace(partition.where, topic_id=found.topic_id)
    if broker is not None:
        start_offset, fault = broker.log_start(where)
        if start_offset is not None or fault is not None:
            return start_offset, [] if fault is None else [fault]
    if layout.is_tiered:
        return None, []
    start_offset, fault = copied_log_start(f"{store.url}/{found.walked.parent}", found.log_dir, where)
    if start_offset is not None:
        finding = judge_log_start(store, layout, partition.segments, where, start_offset)
        fault = None if finding is None else planned_fault(finding)
    return (start_offset, []) if fault is None else (None, [fault])


def _has_txn_indexes(planned: PlannedSegments, indexed: Sequence[int]) -> bool:
    """Return whether no transaction index can be missing unnoticed.

    The metadata topic says that a segment has none because nothing was aborted, or an object that each segment has in
    its layout.
    """
    rows = set(indexed)
    return all(
        row in rows or (told is not None and told.has_no_aborts) for row, told in enumerate(planned.told)
    )


def _with_txn_indexes(segments: SegmentTable, layout: Layout) -> list[int]:
    """Return the rows of the segments that may have aborted transactions in their index, by the listing."""
    objects = layout.objects_of(PartKind.TXN_INDEX)
    if PartKind.TXN_INDEX in objects:
        return [row for row, size_bytes in enumerate(segments.part_bytes(PartKind.TXN_INDEX)) if size_bytes]
    return [row for row, shape in enumerate(segments.shapes()) if parts_in(shape) >= objects]


def _outside(listed: SegmentTable, planned: PlannedSegments) -> list[tuple[int, str]]:
    """Return base offset and id of each listed segment that is not read."""
    read = set(planned.segments.segment_ids)
    return [
        (base_offset, segment_id)
        for base_offset, segment_id in zip(listed.base_offsets, listed.segment_ids, strict=True)
        if segment_id not in read
    ]


def _with_logs(segments: SegmentTable) -> list[int]:
    """Return the rows of the segments that have a log."""
    letter = LETTERS[PartKind.LOG]
    return [row for row, shape in enumerate(segments.shapes()) if letter in shape]
