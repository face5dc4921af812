"""Kafka's LocalTieredStorage: plain copies of a segment's files, with the segment's id in their names."""

from __future__ import annotations

from uuid import UUID

from recovery.archive.layouts.grouping import group_by_segment
from recovery.archive.layouts.layout import CopyLayout
from recovery.archive.stores.archived import ArchivedSegment, PartitionPrefix, PartKind
from recovery.archive.stores.segment_table import ArchivedPartition, ObjectTable
from segfmt.kafka_uuid import format_uuid
from segfmt.remote_names import LocalTieredFolder, read_local_tiered_folder

_SUFFIXES = {
    PartKind.LOG: ".log",
    PartKind.OFFSET_INDEX: ".index",
    PartKind.TIME_INDEX: ".timeindex",
    PartKind.TXN_INDEX: ".txnindex",
    PartKind.SNAPSHOT: ".snapshot",
    PartKind.LEADER_EPOCHS: ".leader_epoch_checkpoint",
}
_KINDS = {suffix: kind for kind, suffix in _SUFFIXES.items()}


class LocalTieredLayout(CopyLayout):
    """Folders `<topic>-<partition>-<topic id>` of files `<start offset>-<segment id>.<part>`."""

    name = "local-tiered"
    required_parts = frozenset(_SUFFIXES) - {PartKind.TXN_INDEX}
    is_tiered = True

    def partition_at(self, path: str) -> PartitionPrefix | None:
        """Return the partition whose folder is at *path*."""
        folder = path.rpartition("/")[2]
        name = read_local_tiered_folder(folder)
        if name is None:
            return None
        return PartitionPrefix(
            prefix=f"{path}/",
            topic=name.topic,
            partition=name.partition,
            topic_id=format_uuid(name.topic_id),
            folder=folder,
        )

    def prefix_of(self, topic: str, topic_id: UUID, partition: int) -> str:
        """Return the partition's folder."""
        return f"{LocalTieredFolder(topic=topic, partition=partition, topic_id=topic_id)}/"

    def partition(self, where: PartitionPrefix, objects: ObjectTable) -> ArchivedPartition:
        """Group the files of a partition's folder by start offset and segment id."""
        return group_by_segment(where, objects, _KINDS)

    def name_of(self, segment: ArchivedSegment, kind: PartKind) -> str:
        """Return the name that LocalTieredStorage gives a part."""
        return f"{segment.base_offset:020d}-{segment.segment_id}{_SUFFIXES[kind]}"
