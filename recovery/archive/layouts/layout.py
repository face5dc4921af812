"""How an archive names things: which prefixes are partitions, which objects make up a segment, how they are read.

A layout is one module: it says what it calls a partition (`partition_at`), groups the objects below it into segments
(`partition`), and opens a segment's files (`files`). `recovery/archive/layouts/layouts.py` lists the layouts that there
are.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Protocol

from recovery.archive.stores.archived import ArchivedSegment, PartitionPrefix, PartKind, StoredObject
from recovery.archive.stores.segment_table import ArchivedPartition, ObjectTable
from recovery.archive.stores.store import Store
from recovery.check.folder_files import MOST_SMALL_FILE_BYTES
from recovery.check.segment_files import MOST_INDEX_BYTES
from recovery.read.opened_log import OpenedLog
from segfmt.filenames import LEADER_EPOCH_CHECKPOINT, FileKind, file_kind
from segfmt.remote_log_metadata import RemoteSegment

_KINDS = {
    FileKind.LOG: PartKind.LOG,
    FileKind.OFFSET_INDEX: PartKind.OFFSET_INDEX,
    FileKind.TIME_INDEX: PartKind.TIME_INDEX,
    FileKind.TXN_INDEX: PartKind.TXN_INDEX,
    FileKind.SNAPSHOT: PartKind.SNAPSHOT,
}


def part_kind(name: str) -> PartKind | None:
    """Return which part of a segment Kafka gives *name* to, None for none."""
    if name == LEADER_EPOCH_CHECKPOINT:
        return PartKind.LEADER_EPOCHS
    return _KINDS.get(file_kind(name))


class ArchivedFiles(Protocol):
    """The files of one archived segment: `SegmentFiles`, and the small ones."""

    def open(self, name: str) -> OpenedLog:
        """Open the log, by any name."""
        ...

    def read_index(self, name: str, take: Callable[[int], None]) -> tuple[bytes, int]:
        """Return the first bytes of an index and its size, by the name that Kafka gives it."""
        ...

    def read_part(self, kind: PartKind) -> bytes:
        """Return all bytes of a small file.

        Raises:
            FileNotFoundError: the segment has no such part.
            OSError: it cannot be read, or is larger than any file of its kind.
        """
        ...

    def log_bytes(self) -> int:
        """Return the size of the log as a broker has it."""
        ...

    def described(self) -> RemoteSegment | None:
        """Return what the archive itself says of the segment, None where it says nothing."""
        ...

    def contradictions(self) -> list[tuple[PartKind, str]]:
        """Return the objects that are not as the archive says, and in words why."""
        ...


class Layout(Protocol):
    """One way to lay out an archive."""

    @property
    def name(self) -> str:
        """What `--layout` calls it."""
        ...

    @property
    def required_parts(self) -> frozenset[PartKind]:
        """The objects that every whole segment has."""
        ...

    @property
    def has_own_epochs(self) -> bool:
        """Whether each segment comes with the leader epochs and producers at its end: tiered storage."""
        ...

    @property
    def has_plain_logs(self) -> bool:
        """Whether the object of a log is the log itself, byte for byte."""
        ...

    def partition_at(self, path: str) -> PartitionPrefix | None:
        """Return the partition at *path*, parts divided by `/` and none at its end; None: look further down."""
        ...

    def partition(self, where: PartitionPrefix, objects: ObjectTable) -> ArchivedPartition:
        """Group the *objects* below a partition's prefix, in the order of their names, into segments."""
        ...

    def files(self, store: Store, segment: ArchivedSegment) -> ArchivedFiles:
        """Return the files of a segment.

        Raises:
            FormatError: what describes them is malformed.
            OSError: what describes them cannot be read.
        """
        ...

    def name_of(self, segment: ArchivedSegment, kind: PartKind) -> str:
        """Return the name, without prefix, of a part that is not there."""
        ...


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
            raise FileNotFoundError(errno.ENOENT, "no part of a segment", name)
        found = self._object(kind)
        take(min(found.size_bytes, MOST_INDEX_BYTES))
        data = self._store.read(found.key, most_bytes=MOST_INDEX_BYTES)
        return data, max(found.size_bytes, len(data))

    def read_part(self, kind: PartKind) -> bytes:
        """Return all bytes of a small file."""
        found = self._object(kind)
        data = self._store.read(found.key, most_bytes=MOST_SMALL_FILE_BYTES + 1)
        if len(data) > MOST_SMALL_FILE_BYTES:
            raise OSError(errno.EFBIG, f"larger than {MOST_SMALL_FILE_BYTES} bytes", found.key)
        return data

    def log_bytes(self) -> int:
        """Return the size of the log."""
        return self._segment.log_bytes

    def described(self) -> RemoteSegment | None:
        """Return None: there is nothing but the files."""
        return None

    def contradictions(self) -> list[tuple[PartKind, str]]:
        """Return nothing."""
        return []

    def _object(self, kind: PartKind) -> StoredObject:
        found = self._segment.parts.get(kind)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, f"the segment has no {kind.value}")
        return found
