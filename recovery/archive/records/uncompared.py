"""What the metadata topic leaves open of a partition: segments that it should know, and records of it that are lost.

By the rules of the inventory (`recovery.archive.inventory.orphans`): a segment that the topic does not know is an
orphan only if others have its offsets. Without that nobody can say whether a broker reads it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from recovery.archive.inventory.orphans import doubt_orphan
from recovery.archive.inventory.own_span import read_own_span
from recovery.archive.layouts.layout import Layout
from recovery.archive.records.batch_heads import Fault
from recovery.archive.records.broker_view import BrokerView, RemoteLog
from recovery.archive.records.planned_faults import PlannedFault
from recovery.archive.stores.archived import ArchivedSegment, PartKind
from recovery.archive.stores.segment_table import LETTERS, ArchivedPartition, parts_in
from recovery.archive.stores.store import Store
from segfmt.kafka_uuid import format_uuid


def is_outdated(layout: Layout, partition: ArchivedPartition, remote: RemoteLog | None) -> bool:
    """Return whether the metadata topic and the listing of a partition of tiered storage contradict each other.

    Either may be older than the other: a segment was archived or deleted in between, unless something is lost.

    Args:
        layout: of the archive.
        partition: as it was listed.
        remote: what the metadata topic says of the partition, None if no record is about it.
    """
    segments = partition.segments
    if remote is None:
        return len(segments) > 0
    whole = set()
    for base_offset, segment_id, shape in zip(
        segments.base_offsets, segments.segment_ids, segments.shapes(), strict=True
    ):
        if base_offset > remote.known.end_offset and not remote.knows(segment_id):
            return True
        if parts_in(shape) >= layout.required_parts:
            whole.add(segment_id)
    return not whole.issuperset(remote.segments)


def find_uncompared(
    store: Store, layout: Layout, partition: ArchivedPartition, broker: BrokerView, remote: RemoteLog | None
) -> Iterator[PlannedFault]:
    """Yield what the metadata topic leaves open of a partition of tiered storage.

    Args:
        store: the archive.
        layout: its layout.
        partition: as it was listed.
        broker: what the log dirs show.
        remote: what the metadata topic says of the partition, None if no record is about it.
    """
    prefix = f"{store.url}/{partition.where.prefix}"
    hiding = broker.hiding(partition.where)
    if hiding is not None:
        detail = f"{hiding.detail}: what became of the segments of {prefix} is not known"
        yield PlannedFault(hiding.file, Fault("metadata-topic", detail))
    elif remote is None and len(partition.segments):
        detail = "no record of the metadata topic that was read is about this partition"
        yield PlannedFault(prefix, Fault("not-compared", detail))
    if remote is None:
        return
    segments = partition.segments
    if remote.cut_off is not None:
        cut, why = remote.cut_off
        named = ArchivedSegment(
            base_offset=cut.start_offset, segment_id=format_uuid(cut.segment_id), parts={}
        )
        name = prefix + layout.name_of(named, PartKind.LOG)
        yield PlannedFault(name, Fault("not-compared", why), cut.start_offset)
    last_letter = "" if layout.last_part is None else LETTERS[layout.last_part]
    for row, (base_offset, segment_id, shape) in enumerate(
        zip(segments.base_offsets, segments.segment_ids, segments.shapes(), strict=True)
    ):
        is_uploaded = last_letter in shape  # one that is under way is not read anyway
        if not is_uploaded or remote.knows(segment_id):
            continue
        span_of = partial(read_own_span, store, layout, segments[row])
        is_whole = parts_in(shape) >= layout.required_parts
        doubt = doubt_orphan(base_offset, remote.known, span_of, is_whole=is_whole)
        if not doubt:
            continue
        detail = f"the metadata topic does not know this segment, {doubt}"
        named = ArchivedSegment(base_offset=base_offset, segment_id=segment_id, parts={})
        name = prefix + layout.name_of(named, PartKind.LOG)
        yield PlannedFault(name, Fault("not-compared", detail), base_offset)
