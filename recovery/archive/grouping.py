"""Objects whose names hold a start offset and a segment's id, put together to segments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from recovery.archive.archived import (
    ArchivedPartition,
    ArchivedSegment,
    PartitionPrefix,
    PartKind,
    StoredObject,
)
from segfmt.kafka_uuid import format_uuid
from segfmt.remote_names import RemoteFileName


def group_by_segment(
    where: PartitionPrefix,
    objects: Sequence[StoredObject],
    read_name: Callable[[str], RemoteFileName | None],
    kinds: Mapping[str, PartKind],
) -> ArchivedPartition:
    """Return the partition that *objects* make up.

    Args:
        where: the partition.
        objects: below its prefix.
        read_name: takes a name apart.
        kinds: of parts, by the suffix of a name.
    """
    parts: dict[tuple[int, str], dict[PartKind, StoredObject]] = {}
    others = []
    for one in objects:
        found = read_name(one.name)
        if found is None:
            others.append(one)
            continue
        key = found.start_offset, format_uuid(found.segment_id)
        parts.setdefault(key, {})[kinds[found.suffix]] = one
    segments = tuple(
        ArchivedSegment(base_offset=base, segment_id=segment_id, parts=found)
        for (base, segment_id), found in sorted(parts.items(), key=lambda item: item[0])
    )
    return ArchivedPartition(where=where, segments=segments, others=tuple(others))
