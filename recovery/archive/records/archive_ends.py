"""Where an archive that grows ends at present, partition by partition: up to there a stream may read.

An end is where the last whole segment ends: by the metadata topic or the manifest, else by the log's last batch, which
the offset index leads to. A segment whose upload is under way does not count. For read_committed it is the last stable
offset. An end that is too low only delays rows; one that is too high loses them. No checksum covers the base offset of
a batch, so an end counts only if its batch continues the one before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from recovery.archive.layouts.layout import Layout
from recovery.archive.records.broker_view import BrokerView
from recovery.archive.records.log_tails import Identity, LogTails, Tail
from recovery.archive.records.offset_limits import Incarnation
from recovery.archive.records.offset_range import NOTHING
from recovery.archive.records.partition_plans import planned_partitions
from recovery.archive.records.planned_partition import PlannedPartition
from recovery.archive.records.read_options import Corrupt
from recovery.archive.records.read_request import ReadRequest, Selection
from recovery.archive.stores.archived import PartitionPrefix, PartKind
from recovery.archive.stores.store import Store
from recovery.check.finding import REMEDIES
from recovery.errors import DamagedSegmentError


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
        self._known: dict[Identity, Tail] = {}

    def find(
        self,
        selection: Selection,
        broker: BrokerView | None,
        *,
        on_seen: Callable[[PartitionPrefix], None],
        on_note: Callable[[str], None],
    ) -> Iterator[PartitionSpan]:
        """Yield the partitions of *selection* that have segments; the rest is as for `plan_reads`.

        Raises:
            DamagedSegmentError: the last segment of one has a malformed description, and damage fails the query.
        """
        request = replace(self._request, selection=selection)
        partitions = planned_partitions(
            self._store, self._layout, request, broker, on_seen=on_seen, on_note=on_note
        )
        most_bytes = request.options.most_batch_bytes
        tails = LogTails(self._store, self._layout, self._known, most_batch_bytes=most_bytes)
        for partition in partitions:
            if not partition.planned:
                continue
            end_offset = self._end_offset(partition, tails)
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
        self._known = tails.found

    def _end_offset(self, partition: PlannedPartition, tails: LogTails) -> int:
        planned = partition.planned
        last = planned[-1]
        is_under_way = last.told is None and self._layout.is_tiered and last.is_last
        base_offset = last.segment.base_offset
        end_offset = base_offset if is_under_way else tails.of(planned[tails.last_row(planned)]).end_offset
        fault = tails.of(last).fault
        if fault is not None and self._request.options.corrupt is Corrupt.FAIL:
            name = partition.where.prefix + self._layout.name_of(
                last.segment, self._layout.last_part or PartKind.LOG
            )
            raise DamagedSegmentError(
                f"{self._store.url}/{name}: {fault}. Where the archive ends is not known. Remedy: "
                f"{REMEDIES[fault.rule]}. To read on: corrupt=skip ends the stream before this segment for now"
            )
        stable = partition.last_stable_offset
        return end_offset if stable is None else min(end_offset, stable)
