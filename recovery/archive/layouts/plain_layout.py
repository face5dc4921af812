"""Plain copies: of log dirs, of folders of them, or of single partitions; named as the broker names them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from uuid import UUID

from recovery.archive.layouts.layout import CopyLayout, kafka_name
from recovery.archive.stores.archived import ArchivedSegment, PartitionPrefix, PartKind
from recovery.archive.stores.segment_table import (
    FURTHER_SNAPSHOT,
    LETTERS,
    ArchivedPartition,
    ObjectTable,
    SegmentTable,
)
from segfmt.errors import FileNameError
from segfmt.filenames import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    FolderState,
    format_offset,
    read_folder_name,
)
from segfmt.java_text import parse_long

_LOG, _SNAPSHOT = LETTERS[PartKind.LOG], LETTERS[PartKind.SNAPSHOT]
_LETTERS = {
    LOG_SUFFIX: _LOG,
    INDEX_SUFFIX: LETTERS[PartKind.OFFSET_INDEX],
    TIME_INDEX_SUFFIX: LETTERS[PartKind.TIME_INDEX],
    TXN_INDEX_SUFFIX: LETTERS[PartKind.TXN_INDEX],
    SNAPSHOT_SUFFIX: _SNAPSHOT,
}


class PlainLayout(CopyLayout):
    """Folders `<topic>-<partition>`, at any depth."""

    name = "plain"
    required_parts = frozenset({PartKind.LOG})
    is_tiered = False

    def partition_at(self, path: str) -> PartitionPrefix | None:
        """Return the partition whose folder is at *path*; folders that await deletion do not count."""
        folder = path.rpartition("/")[2]
        try:
            name = read_folder_name(folder)
        except FileNameError:
            return None
        if name.state is FolderState.DELETE or name.partition < 0:
            return None
        return PartitionPrefix(prefix=f"{path}/", topic=name.topic, partition=name.partition, folder=folder)

    def prefix_of(self, topic: str, _topic_id: UUID, partition: int) -> str:
        """Return the partition's folder."""
        return f"{topic}-{partition}/"

    def partition(self, where: PartitionPrefix, objects: ObjectTable) -> ArchivedPartition:
        """Group the files of a partition's folder; each snapshot belongs to the segment that ends at it."""
        rows_by_offset = _by_offset(objects.names)
        bases = sorted(offset for offset, parts in rows_by_offset.items() if _LOG in parts)
        offsets = sorted(offset for offset, parts in rows_by_offset.items() if _SNAPSHOT in parts)
        taken: list[int] = []
        followings = [*bases[1:], None][: len(bases)]
        kinds, ends = [], []
        first = 0
        for base, following in zip(bases, followings, strict=True):
            for kind, row in rows_by_offset[base].items():
                if kind != _SNAPSHOT:
                    kinds.append(kind)
                    taken.append(row)
            last = len(offsets) if following is None else bisect_right(offsets, following)
            own_offsets = offsets[first:last]
            end = (
                following
                if following is not None
                else (own_offsets[-1] if own_offsets and own_offsets[-1] > base else None)
            )
            own_offsets.sort(key=lambda offset: offset != end)
            kinds += [_SNAPSHOT if offset == end else FURTHER_SNAPSHOT for offset in own_offsets]
            taken += [rows_by_offset[offset][_SNAPSHOT] for offset in own_offsets]
            ends.append(len(taken))
            first = last
        segments = SegmentTable(
            base_offsets=bases,
            segment_ids=[""] * len(bases),
            next_base_offsets=followings,
            ends=ends,
            kinds="".join(kinds),
            objects=objects.take(taken),
        )
        rest = sorted(set(range(len(objects))).difference(taken))
        return ArchivedPartition(where=where, segments=segments, others=objects.take(rest))

    def name_of(self, segment: ArchivedSegment, kind: PartKind) -> str:
        """Return the name that a broker gives a part."""
        return kafka_name(kind, segment.base_offset, segment.next_base_offset)


def _by_offset(names: Sequence[str]) -> dict[int, dict[str, int]]:
    """Return the rows of the files in *names* that are named as Kafka names them, by offset and kind."""
    rows_by_offset: dict[int, dict[str, int]] = {}
    current, parts = "", None
    for row, name in enumerate(names):
        start = name.partition(".")[0]
        letter = _LETTERS.get(name[len(start) :])
        if letter is None:
            continue
        if start != current:
            current, parts, offset = start, None, parse_long(start)
            if offset is not None and format_offset(offset) == start:
                parts = rows_by_offset.setdefault(offset, {})
        if parts is not None:
            parts[letter] = row
    return rows_by_offset
