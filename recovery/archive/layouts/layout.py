"""How an archive names its objects: which prefixes are partitions, what makes up a segment, how it is read.

A layout is one module: it recognises a partition (`partition_at`), groups the objects below it into segments
(`partition`), and opens a segment's files (`files`). If each object is a copy of one of a broker's files, it extends
`CopyLayout` and defines little more than names. `recovery/archive/layouts/layouts.py` registers the layouts; nothing
else knows them by name.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Protocol, Self
from uuid import UUID

from recovery.archive.stores.archived import ArchivedSegment, PartitionPrefix, PartKind, StoredObject
from recovery.archive.stores.segment_table import ArchivedPartition, ObjectTable
from recovery.archive.stores.store import Store
from recovery.check.folder_files import MOST_SMALL_FILE_BYTES
from recovery.check.segment_files import MOST_INDEX_BYTES
from recovery.read.opened_log import OpenedLog
from segfmt.filenames import (
    LEADER_EPOCH_CHECKPOINT,
    FileKind,
    file_kind,
    log_name,
    offset_index_name,
    snapshot_name,
    time_index_name,
    txn_index_name,
)
from segfmt.remote_log_metadata import RemoteSegment

_KINDS = {
    FileKind.LOG: PartKind.LOG,
    FileKind.OFFSET_INDEX: PartKind.OFFSET_INDEX,
    FileKind.TIME_INDEX: PartKind.TIME_INDEX,
    FileKind.TXN_INDEX: PartKind.TXN_INDEX,
    FileKind.SNAPSHOT: PartKind.SNAPSHOT,
}


_NAMES = {
    PartKind.LOG: log_name,
    PartKind.OFFSET_INDEX: offset_index_name,
    PartKind.TIME_INDEX: time_index_name,
    PartKind.TXN_INDEX: txn_index_name,
}


def kafka_name(kind: PartKind, base_offset: int, end_offset: int | None = None) -> str:
    """Return the name that a broker gives a part of a segment; for parts that no broker has, the kind's own.

    Args:
        kind: of the part.
        base_offset: of the segment.
        end_offset: of the segment, which names its snapshot; None if it is not known.
    """
    if kind is PartKind.SNAPSHOT:
        return snapshot_name(base_offset if end_offset is None else end_offset)
    if kind is PartKind.LEADER_EPOCHS:
        return LEADER_EPOCH_CHECKPOINT
    return _NAMES[kind](base_offset) if kind in _NAMES else kind.value


def part_kind(name: str) -> PartKind | None:
    """Return the part of a segment that Kafka calls *name*, None if there is none."""
    if name == LEADER_EPOCH_CHECKPOINT:
        return PartKind.LEADER_EPOCHS
    return _KINDS.get(file_kind(name))


def is_gone(error: FileNotFoundError) -> bool:
    """Return whether an object that was listed has gone since, which a store names; else a segment has no such part."""
    return error.filename is not None


class ArchivedFiles(Protocol):
    """The files of one archived segment: those of `SegmentFiles`, and the small ones."""

    def open(self, name: str) -> OpenedLog:
        """Open the log, by any name."""
        ...

    def read_index(self, name: str, take: Callable[[int], None]) -> tuple[bytes, int]:
        """Return the first bytes of an index and its size, by the name that Kafka gives it.

        Raises:
            ChunkError, MissingKeyError: as `read_part`.
        """
        ...

    def read_part(self, kind: PartKind) -> bytes:
        """Return all bytes of a small file.

        Raises:
            FileNotFoundError: the segment has no such part, or it has gone (`is_gone`).
            ChunkError: it cannot be restored from its object.
            MissingKeyError: it is encrypted with a key that was not given.
            OSError: it cannot be read, or is larger than any file of its kind.
        """
        ...

    def log_bytes(self) -> int:
        """Return the size of the log as a broker has it."""
        ...

    def described(self) -> RemoteSegment | None:
        """Return what the archive itself says of the segment, None if it says nothing."""
        ...

    def contradictions(self) -> list[tuple[PartKind, str]]:
        """Return the objects that contradict the archive's own description, and how."""
        ...


class PartitionLayouts(Protocol):
    """The layouts of an archive's partitions: one for all, as a rule."""

    def at(self, prefix: str) -> Layout:
        """Return the layout of the partition at *prefix*."""
        ...


class Layout(PartitionLayouts, Protocol):
    """One way to lay out an archive."""

    @property
    def name(self) -> str:
        """Its name for `--layout`."""
        ...

    @property
    def required_parts(self) -> frozenset[PartKind]:
        """The objects that every complete segment has."""
        ...

    @property
    def last_part(self) -> PartKind | None:
        """The object that is uploaded last, without which a segment was never complete; None if there is no order."""
        ...

    @property
    def is_tiered(self) -> bool:
        """Whether segments are those of tiered storage: closed, each with the leader epochs and producers at its end.

        Else a partition is a broker's folder, with the names that the broker gives its files.
        """
        ...

    @property
    def has_plain_logs(self) -> bool:
        """Whether the object of a log is the log itself, byte for byte."""
        ...

    @property
    def in_place_obstacle(self) -> str:
        """Why rebuilt objects cannot replace the present ones, with a remedy; empty if they can."""
        ...

    def partition_at(self, path: str) -> PartitionPrefix | None:
        """Return the partition at *path*, which has no `/` at its end; None: look further down."""
        ...

    def prefix_of(self, topic: str, topic_id: UUID, partition: int) -> str:
        """Return the prefix, with its `/`, that a partition would have directly below the archive's root."""
        ...

    def partition(self, where: PartitionPrefix, objects: ObjectTable) -> ArchivedPartition:
        """Group the *objects* below a partition's prefix, in the order of their names, into segments."""
        ...

    def files(self, store: Store, segment: ArchivedSegment) -> ArchivedFiles:
        """Return the files of a segment.

        Raises:
            FormatError: their description is malformed.
            OSError: their description cannot be read.
        """
        ...

    def name_of(self, segment: ArchivedSegment, kind: PartKind) -> str:
        """Return the name, without prefix, of a part that is missing."""
        ...

    def objects_of(self, *parts: PartKind) -> frozenset[PartKind]:
        """Return the objects needed to read *parts*."""
        ...

    def told_bytes(self, remote: RemoteSegment) -> int | None:
        """Return the bytes of all objects of a segment as reported to the brokers, None if they were not reported."""
        ...


def stored_part(
    layout: Layout, where: PartitionPrefix, segment: ArchivedSegment, kind: PartKind
) -> StoredObject:
    """Return a part of *segment* as it is stored; if it is missing, an empty object of the name that it should have."""
    stored = segment.parts.get(kind)
    return stored or StoredObject(key=where.prefix + layout.name_of(segment, kind), size_bytes=0)


class CopyLayout:
    """The common part of layouts in which each object is a copy of one of a broker's files."""

    last_part: PartKind | None = None
    has_plain_logs = True
    in_place_obstacle = ""

    def at(self, _prefix: str) -> Self:
        """Return this layout, which all partitions have."""
        return self

    def files(self, store: Store, segment: ArchivedSegment) -> PlainFiles:
        """Return the files of a segment."""
        return PlainFiles(store, segment)

    def objects_of(self, *parts: PartKind) -> frozenset[PartKind]:
        """Return *parts*: each is an object of its own."""
        return frozenset(parts)

    def told_bytes(self, _remote: RemoteSegment) -> int | None:
        """Return None: a broker knows only the size of the log."""
        return None


class PlainFiles:
    """The files of a segment whose objects are copies of the broker's.

    Args:
        store: where they are.
        segment: the segment.
    """

    def __init__(self, store: Store, segment: ArchivedSegment) -> None:
        self._store = store
        self._segment = segment

    def open(self, _name: str) -> OpenedLog:
        """Open the log."""
        return self._store.open(self._object(PartKind.LOG).key)

    def read_index(self, name: str, take: Callable[[int], None]) -> tuple[bytes, int]:
        """Return the first bytes of an index and its size."""
        kind = part_kind(name)
        if kind is None:
            raise FileNotFoundError(errno.ENOENT, f"{name} is no part of a segment")
        stored = self._object(kind)
        take(min(stored.size_bytes, MOST_INDEX_BYTES))
        data = self._store.read(stored.key, most_bytes=MOST_INDEX_BYTES)
        return data, max(stored.size_bytes, len(data))

    def read_part(self, kind: PartKind) -> bytes:
        """Return all bytes of a small file."""
        stored = self._object(kind)
        data = self._store.read(stored.key, most_bytes=MOST_SMALL_FILE_BYTES + 1)
        if len(data) > MOST_SMALL_FILE_BYTES:
            raise OSError(errno.EFBIG, f"larger than {MOST_SMALL_FILE_BYTES} bytes", stored.key)
        return data

    def log_bytes(self) -> int:
        """Return the size of the log."""
        return self._segment.log_bytes

    def described(self) -> RemoteSegment | None:
        """Return None: there are only the files."""
        return None

    def contradictions(self) -> list[tuple[PartKind, str]]:
        """Return an empty list: nothing describes the files."""
        return []

    def _object(self, kind: PartKind) -> StoredObject:
        stored = self._segment.parts.get(kind)
        if stored is None:
            raise FileNotFoundError(errno.ENOENT, f"the segment has no {kind.value}")
        return stored
