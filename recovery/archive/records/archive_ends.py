"""Where an archive that grows ends at present, partition by partition: up to there a stream may read.

An end is where the last whole segment ends: by the metadata topic or the manifest, else by the log's last batch, which
the offset index leads to. A segment whose upload is under way does not count. For read_committed it is the last stable
offset. An end that is too low only delays rows; one that is too high loses them. No checksum covers the base offset of
a batch, so an end counts only if its batch continues the one before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from recovery.archive.layouts.layout import ArchivedFiles, Layout
from recovery.archive.layouts.log_windows import BatchWindow, LogWindows
from recovery.archive.records.broker_view import BrokerView
from recovery.archive.records.offset_limits import Incarnation
from recovery.archive.records.offset_range import NOTHING
from recovery.archive.records.partition_plans import planned_partitions
from recovery.archive.records.planned_partition import PlannedPartition
from recovery.archive.records.read_request import ReadRequest, Selection
from recovery.archive.records.run_files import index_positions
from recovery.archive.stores.archived import ArchivedSegment, PartitionPrefix, PartKind
from recovery.archive.stores.store import Store
from recovery.check.rules.batches import are_wrappers
from segfmt.errors import FormatError
from segfmt.filenames import log_name


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSpan:
    """What the archive has of one partition.

    Attributes:
        key: topic, partition and topic id.
        first_offset: where it begins.
        start_offset: where reading begins, by the request; None for the first offset.
        end_offset: where it ends.
        is_live: whether the brokers' log dirs hold the topic with this id.
    """

    key: Incarnation
    first_offset: int
    start_offset: int | None
    end_offset: int
    is_live: bool = False


class ArchiveEnds:
    """Finds the ends again and again; what was read of a segment's end is kept while the segment is the same.

    Args:
        store: the archive.
        layout: its layout.
        request: what is read; each call has its own selection.
    """

    def __init__(self, store: Store, layout: Layout, request: ReadRequest) -> None:
        self._store = store
        self._layout = layout
        self._request = request
        self._known: dict[tuple[str, int, str], int] = {}

    def find(
        self,
        selection: Selection,
        broker: BrokerView | None,
        *,
        on_seen: Callable[[PartitionPrefix], None],
        on_note: Callable[[str], None],
    ) -> Iterator[PartitionSpan]:
        """Yield the partitions of *selection* that have segments; the rest is as for `plan_reads`."""
        request = replace(self._request, selection=selection)
        partitions = planned_partitions(
            self._store, self._layout, request, broker, on_seen=on_seen, on_note=on_note
        )
        known: dict[tuple[str, int, str], int] = {}
        for partition in partitions:
            if not partition.planned:
                continue
            end_offset = self._end_offset(partition, known)
            first_offset = max(partition.planned.segments.base_offsets[0], partition.start_offset or 0)
            start_offset = partition.offsets.start
            if end_offset < first_offset:  # nothing that is there is read; later segments may be
                continue
            yield PartitionSpan(
                key=(partition.where.topic, partition.where.partition, partition.topic_id),
                first_offset=first_offset,
                start_offset=end_offset if partition.offsets == NOTHING else start_offset,
                end_offset=end_offset,
                is_live=broker is not None and partition.topic_id in broker.topic_ids(partition.where.topic),
            )
        self._known = known

    def _end_offset(self, partition: PlannedPartition, known: dict[tuple[str, int, str], int]) -> int:
        last = partition.planned[-1]
        base_offset = last.segment.base_offset
        log = last.segment.parts.get(PartKind.LOG)
        if last.told is not None:  # a task reports it if the log is missing, or another one
            end_offset = last.told.end_offset + 1
        elif log is None or (last.is_last and self._layout.is_tiered):  # its upload is under way
            end_offset = base_offset
        else:
            identity = log.key, log.size_bytes, log.version
            found = self._known.get(identity)
            end_offset = self._log_end(last.segment, is_last=last.is_last) if found is None else found
            known[identity] = end_offset
        stable = partition.last_stable_offset
        return end_offset if stable is None else min(end_offset, stable)

    def _log_end(self, segment: ArchivedSegment, *, is_last: bool) -> int:
        files = self._layout.files(self._store, segment)
        described = files.described()
        if described is not None:
            return described.end_offset + 1
        hints = _positions(files, segment.base_offset)
        log = files.open(log_name(segment.base_offset))
        try:
            for position in (
                *hints[-2:-1],
                0,
            ):  # the last batch may be that of the last entry, and has one before it
                windows = LogWindows(
                    log,
                    base_offset=segment.base_offset,
                    is_last=is_last,
                    most_batch_bytes=self._request.options.most_batch_bytes,
                    position=position,
                )
                end_offset, is_sound = _last_end(windows, segment.base_offset, is_begin=not position)
                if is_sound:
                    break
        finally:
            log.close()
        return end_offset


def _last_end(windows: LogWindows, base_offset: int, *, is_begin: bool) -> tuple[int, bool]:
    """Return the offset after the last sound batch that continues another, and whether all batches are such.

    Args:
        windows: of the log.
        base_offset: of the segment.
        is_begin: whether they begin with the log, so that the first batch has the base offset of the segment.
    """
    end_offset, is_sound = base_offset, True
    before: int | None = base_offset if is_begin else None
    for window in windows:
        if not isinstance(window, BatchWindow):
            is_sound &= not window.is_damage
            before = None
            continue
        rows = window.rows[window.is_valid]
        is_sound &= len(rows) == len(window.rows)
        if not len(rows):
            continue
        ends = rows["last_offset"] + np.int64(1)
        follows = are_wrappers(rows)  # nothing but the offset of their last record is known of these
        follows[1:] |= rows["base_offset"][1:] == ends[:-1]
        follows[0] |= before == int(rows["base_offset"][0])
        is_sound &= bool(follows[0 if before is not None else 1 :].all())
        end_offset = max(end_offset, int(ends[follows].max(initial=base_offset)))
        before = int(ends[-1])
    return end_offset, is_sound and end_offset > base_offset


def _positions(files: ArchivedFiles, base_offset: int) -> list[int]:
    """Return the positions in the offset index that lie in the log, none without a sound index."""
    try:
        size_bytes = files.log_bytes()
        return [position for position in index_positions(files, base_offset) if 0 <= position < size_bytes]
    except FormatError:
        return []
