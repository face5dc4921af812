"""A fourth layout, as somebody may add one: short names without ids, `<topic>.<partition>/<base offset>.<part>`."""

from __future__ import annotations

import re
from uuid import UUID

from recovery.archive.layouts.layout import CopyLayout
from recovery.archive.stores.archived import ArchivedSegment, PartitionPrefix, PartKind, StoredObject
from recovery.archive.stores.segment_table import ArchivedPartition, ObjectTable, SegmentTable

_FOLDER = re.compile(r"([a-z]+)\.(\d+)", re.ASCII)
_SUFFIXES = {
    PartKind.LOG: "log",
    PartKind.OFFSET_INDEX: "index",
    PartKind.TIME_INDEX: "timeindex",
    PartKind.TXN_INDEX: "txnindex",
    PartKind.SNAPSHOT: "snapshot",
    PartKind.LEADER_EPOCHS: "epochs",
}
_KINDS = {suffix: kind for kind, suffix in _SUFFIXES.items()}


class FlatLayout(CopyLayout):
    """Folders `<topic>.<partition>` of files `<base offset>.<part>`, base offsets without leading zeros."""

    name = "flat"
    required_parts = frozenset(_SUFFIXES) - {PartKind.TXN_INDEX}
    is_tiered = True

    def partition_at(self, path: str) -> PartitionPrefix | None:
        """Return the partition whose folder is at *path*."""
        folder = path.rpartition("/")[2]
        found = _FOLDER.fullmatch(folder)
        if found is None:
            return None
        return PartitionPrefix(
            prefix=f"{path}/", topic=found[1], partition=int(found[2]), folder=f"{found[1]}-{found[2]}"
        )

    def prefix_of(self, topic: str, _topic_id: UUID, partition: int) -> str:
        """Return the partition's folder."""
        return f"{topic}.{partition}/"

    def partition(self, where: PartitionPrefix, objects: ObjectTable) -> ArchivedPartition:
        """Group the files of a partition's folder by base offset."""
        parts: dict[int, dict[PartKind, StoredObject]] = {}
        others = []
        for one in objects:
            base_offset, _, suffix = one.name.partition(".")
            if base_offset.isdigit() and suffix in _KINDS:
                parts.setdefault(int(base_offset), {})[_KINDS[suffix]] = one
            else:
                others.append(one)
        segments = [ArchivedSegment(base_offset=base, parts=found) for base, found in sorted(parts.items())]
        return ArchivedPartition(
            where=where,
            segments=SegmentTable.of(where.prefix, segments),
            others=ObjectTable.of(where.prefix, others),
        )

    def name_of(self, segment: ArchivedSegment, kind: PartKind) -> str:
        """Return the name of a part."""
        return f"{segment.base_offset}.{_SUFFIXES[kind]}"
