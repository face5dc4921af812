"""Plain copies: of log dirs, of folders of them, or of single partitions; named as the broker names them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from recovery.archive.archived import (
    ArchivedPartition,
    ArchivedSegment,
    PartitionPrefix,
    PartKind,
    StoredObject,
)
from recovery.archive.layout import PlainFiles
from recovery.archive.store import Store
from segfmt.errors import FileNameError
from segfmt.filenames import (
    FileKind,
    FolderState,
    file_kind,
    log_name,
    offset_index_name,
    read_folder_name,
    read_offset,
    snapshot_name,
    time_index_name,
    txn_index_name,
)

_NAMES = {
    PartKind.LOG: log_name,
    PartKind.OFFSET_INDEX: offset_index_name,
    PartKind.TIME_INDEX: time_index_name,
    PartKind.TXN_INDEX: txn_index_name,
}


class PlainLayout:
    """Folders `<topic>-<partition>`, at any depth."""

    name = "plain"
    required_parts = frozenset({PartKind.LOG})
    has_own_epochs = False

    def partition_at(self, path: str) -> PartitionPrefix | None:
        """Return the partition whose folder is at *path*; those that wait for their deletion are none."""
        folder = path.rpartition("/")[2]
        try:
            found = read_folder_name(folder)
        except FileNameError:
            return None
        if found.state is FolderState.DELETE or found.partition < 0:
            return None
        return PartitionPrefix(prefix=f"{path}/", topic=found.topic, partition=found.partition, folder=folder)

    def partition(self, where: PartitionPrefix, objects: Sequence[StoredObject]) -> ArchivedPartition:
        """Group the files of a partition's folder; each snapshot belongs to the segment that ends at it."""
        by_name = {one.name: one for one in objects}
        bases = sorted(offset for offset in map(_log_offset, by_name) if offset is not None)
        snapshots = {
            offset: one for name, one in by_name.items() if (offset := _snapshot_offset(name)) is not None
        }
        offsets = sorted(snapshots)
        segments = []
        for place, base in enumerate(bases):
            following = bases[place + 1] if place + 1 < len(bases) else None
            parts = {kind: by_name[make(base)] for kind, make in _NAMES.items() if make(base) in by_name}
            first = bisect_right(offsets, base) if place else 0
            own = offsets[first:] if following is None else offsets[first : bisect_right(offsets, following)]
            end = following if following is not None else (own[-1] if own and own[-1] > base else None)
            if end in snapshots:
                parts[PartKind.SNAPSHOT] = snapshots[end]
            segments.append(
                ArchivedSegment(
                    base_offset=base,
                    parts=parts,
                    next_base_offset=following,
                    snapshots={offset: snapshots[offset] for offset in own if offset != end},
                )
            )
        used = {
            one.key for segment in segments for one in (*segment.parts.values(), *segment.snapshots.values())
        }
        others = tuple(one for one in objects if one.key not in used)
        return ArchivedPartition(where=where, segments=tuple(segments), others=others)

    def files(self, store: Store, segment: ArchivedSegment) -> PlainFiles:
        """Return the files of a segment."""
        return PlainFiles(store, segment)

    def name_of(self, segment: ArchivedSegment, kind: PartKind) -> str:
        """Return the name that a broker gives a part."""
        if kind is PartKind.SNAPSHOT:
            end = segment.next_base_offset
            return snapshot_name(segment.base_offset if end is None else end)
        return _NAMES[kind](segment.base_offset)


def _log_offset(name: str) -> int | None:
    return _offset(name) if file_kind(name) is FileKind.LOG else None


def _snapshot_offset(name: str) -> int | None:
    return _offset(name) if file_kind(name) is FileKind.SNAPSHOT else None


def _offset(name: str) -> int | None:
    """Return the offset of a file that has the name that Kafka would give it."""
    try:
        offset = read_offset(name)
    except FileNameError:
        return None
    return offset if name in (log_name(offset), snapshot_name(offset)) else None
