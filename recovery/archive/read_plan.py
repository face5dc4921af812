"""Reading records, first half: which segments are read, and by which task.

Each offset is read from one segment, as a broker reads it. Copies of one start offset may be there several times in
tiered storage, and after a change of leaders segments may overlap: of equal start offsets the whole one is taken, of
these the largest, and a segment is read up to where the next one begins. With the metadata topic at hand, the lineage
of the partition says it instead (`recovery.archive.lineage`).

Batches are listed as they lie there, every copy of them.
"""

from __future__ import annotations

import errno
import itertools
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace

from recovery.archive.archived import ArchivedSegment, PartKind
from recovery.archive.broker_view import BrokerView
from recovery.archive.layout import Layout
from recovery.archive.read_request import PlannedSegment, ReadTask, SegmentRun
from recovery.archive.record_schema import Include
from recovery.archive.segment_table import ArchivedPartition
from recovery.archive.stable_offset import last_stable_offset
from recovery.archive.store import Store
from recovery.archive.walk import Walked, walk
from recovery.folder_files import MOST_SMALL_FILE_BYTES
from segfmt.checkpoint import read_offset_checkpoint
from segfmt.filenames import LOG_START_OFFSET_CHECKPOINT
from segfmt.transaction_index import encode_transaction_index

MOST_FOLLOWING = 64
_READ_PARTS = frozenset(
    {
        PartKind.LOG,
        PartKind.OFFSET_INDEX,
        PartKind.TIME_INDEX,
        PartKind.TXN_INDEX,
        PartKind.INDEXES,
        PartKind.MANIFEST,
    }
)


def plan_reads(
    store: Store, layout: Layout, task: ReadTask, broker: BrokerView | None = None
) -> Iterator[ReadTask]:
    """Yield the tasks that read what is wanted, each with runs of about so many bytes.

    Args:
        store: the archive.
        layout: its layout.
        task: without runs: what is wanted.
        broker: what the log dirs say of it, None where they are not at hand.

    Raises:
        OSError: the archive, or a prefix that is wanted, cannot be listed.
        UsageError, FormatError: see `last_stable_offset`.
    """
    runs: list[SegmentRun] = []
    left_bytes = task.selection.task_bytes
    for found in walk(store, layout, is_chosen=task.selection.has):
        if found.partition is None:
            raise OSError(errno.EIO, f"{found.prefix}: cannot be listed: {found.error}")
        if not task.selection.has(found.partition.where):
            continue
        partition = _PlannedPartition(store, layout, task, found, broker)
        places: list[int] = []
        for place in partition.wanted():
            size_bytes = partition.planned[place].segment.log_bytes
            if size_bytes > left_bytes and (runs or places):
                runs += partition.runs(places)
                yield replace(task, runs=tuple(runs))
                runs, places, left_bytes = [], [], task.selection.task_bytes
            places.append(place)
            left_bytes -= size_bytes
        runs += partition.runs(places)
    if runs:
        yield replace(task, runs=tuple(runs))


def choose_segments(
    partition: ArchivedPartition, layout: Layout, lineage: Sequence[str] | None = None
) -> tuple[PlannedSegment, ...]:
    """Return the segments that are read for records, each up to where the next one begins.

    Args:
        partition: as it lies there.
        layout: its layout.
        lineage: the ids of those that a broker reads, None where that is not known.
    """
    chosen: dict[int, ArchivedSegment] = {}
    for segment in partition.segments:
        if PartKind.LOG not in segment.parts or (lineage is not None and segment.segment_id not in lineage):
            continue
        known = chosen.get(segment.base_offset)
        if known is None or _rank(segment, layout) > _rank(known, layout):
            chosen[segment.base_offset] = segment
    segments = [chosen[base] for base in sorted(chosen)]
    planned = []
    for place, segment in enumerate(segments):
        following = segments[place + 1] if place + 1 < len(segments) else None
        planned.append(
            PlannedSegment(
                segment=segment,
                end_offset=None if following is None else following.base_offset,
                is_last=following is None and (not segment.segment_id or not _is_whole(segment, layout)),
            )
        )
    return tuple(planned)


def _rank(segment: ArchivedSegment, layout: Layout) -> tuple[bool, int, str]:
    return _is_whole(segment, layout), segment.log_bytes, segment.segment_id


def _is_whole(segment: ArchivedSegment, layout: Layout) -> bool:
    return segment.parts.keys() >= layout.required_parts


class _PlannedPartition:
    """The segments of one partition that may be read, and what each run of them must know."""

    def __init__(
        self, store: Store, layout: Layout, task: ReadTask, found: Walked, broker: BrokerView | None
    ) -> None:
        assert found.partition is not None
        partition, self._where, self._task = found.partition, found.partition.where, task
        if task.options.include is Include.BATCHES:
            self.planned = _all_segments(partition)
        else:
            lineage = None if broker is None else broker.lineage(self._where)
            self.planned = choose_segments(partition, layout, lineage)
        self._start_offset = _log_start_offset(store, layout, found, broker)
        local = None if broker is None else broker.local_log(self._where)
        self._last_stable_offset = None
        if task.options.is_committed and self.planned and local is not None:
            self._last_stable_offset = local.last_stable_offset(self._where.folder)
        elif task.options.is_committed and self.planned:
            self._last_stable_offset = last_stable_offset(
                [one.segment for one in self.planned],
                lambda segment: layout.files(store, segment),
                self._where.folder,
            )
        self._local_aborted = local.aborted() if local is not None and task.needs_aborted else None
        self._indexed = [
            place
            for place, one in enumerate(self.planned)
            if task.needs_aborted and not _has_no_txn_index(one.segment)
        ]

    def wanted(self) -> Iterator[int]:
        """Yield the places of the segments that may have rows that are wanted, by their names."""
        options = self._task.options
        lowest = options.lowest_offset
        if options.include is Include.RECORDS:
            lowest = max((one for one in (lowest, self._start_offset) if one is not None), default=None)
        for place, one in enumerate(self.planned):
            if lowest is not None and one.end_offset is not None and one.end_offset <= lowest:
                continue
            if options.highest_offset is not None and one.segment.base_offset > options.highest_offset:
                continue
            yield place

    def runs(self, places: Sequence[int]) -> list[SegmentRun]:
        """Return the run of the segments in *places*, none of no segments."""
        if not places:
            return []
        behind = self._indexed[bisect_right(self._indexed, places[-1]) :]
        return [
            SegmentRun(
                where=self._where,
                segments=tuple(
                    replace(self.planned[place], segment=_slim(self.planned[place].segment))
                    for place in places
                ),
                start_offset=self._start_offset if self._task.options.include is Include.RECORDS else None,
                last_stable_offset=self._last_stable_offset,
                following=tuple(_slim(self.planned[place].segment) for place in behind[:MOST_FOLLOWING]),
                follows_more=len(behind) > MOST_FOLLOWING,
                local_aborted=self._aborted_within(places),
            )
        ]

    def _aborted_within(self, places: Sequence[int]) -> bytes:
        """Return the entries of the broker's own indexes that reach into the segments in *places*."""
        entries = self._local_aborted
        if entries is None:
            return b""
        first, last = self.planned[places[0]], self.planned[places[-1]]
        is_within = entries["last_offset"] >= first.segment.base_offset
        if last.end_offset is not None:
            is_within &= entries["first_offset"] < last.end_offset
        return encode_transaction_index(entries[is_within])


def _all_segments(partition: ArchivedPartition) -> tuple[PlannedSegment, ...]:
    """Return all copies of all segments."""
    segments = [segment for segment in partition.segments if PartKind.LOG in segment.parts]
    bases = sorted({segment.base_offset for segment in segments})
    following = dict(itertools.pairwise(bases))
    return tuple(
        PlannedSegment(
            segment=segment,
            end_offset=following.get(segment.base_offset),
            is_last=segment.base_offset not in following and not segment.segment_id,
        )
        for segment in segments
    )


def _log_start_offset(store: Store, layout: Layout, found: Walked, broker: BrokerView | None) -> int | None:
    """Return where the partition's log begins, by the checkpoint of the log dir, or of the copy of one."""
    assert found.partition is not None
    where = found.partition.where
    if broker is not None and (known := broker.log_start_offset(where)) is not None:
        return known
    beside = [one for one in found.siblings if one.name == LOG_START_OFFSET_CHECKPOINT]
    if layout.has_own_epochs or not beside:
        return None
    checkpoint = read_offset_checkpoint(store.read(beside[0].key, most_bytes=MOST_SMALL_FILE_BYTES))
    return checkpoint.get((where.topic, where.partition))


def _has_no_txn_index(segment: ArchivedSegment) -> bool:
    if PartKind.INDEXES in segment.parts:
        return False  # the manifest tells
    index = segment.parts.get(PartKind.TXN_INDEX)
    return index is None or index.size_bytes == 0


def _slim(segment: ArchivedSegment) -> ArchivedSegment:
    """Return *segment* with the objects that are read for its records."""
    parts = {kind: one for kind, one in segment.parts.items() if kind in _READ_PARTS}
    return replace(segment, parts=parts, snapshots={})
