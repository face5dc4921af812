"""What an archive holds, as values: objects, and the segments that they make up. Frozen and picklable.

`recovery/archive/stores/segment_table.py` holds those of a whole partition as columns.
"""

from __future__ import annotations

import enum
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

SegmentKey = tuple[int, str]
"""Base offset and id, which name a segment within its partition."""

_MOST_NAME_BYTES = 200
"""Of a temporary name: a file system takes 255."""
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{16}\.recovery-tmp")


class PartKind(enum.Enum):
    """The kinds of parts of a segment; the value is the name in verdicts."""

    LOG = "log"
    OFFSET_INDEX = "index"
    TIME_INDEX = "timeindex"
    TXN_INDEX = "txnindex"
    SNAPSHOT = "snapshot"
    LEADER_EPOCHS = "leader-epoch-checkpoint"
    INDEXES = "indexes"  # all of them in one object
    MANIFEST = "rsm-manifest"  # describes the other objects

    __hash__ = object.__hash__  # members are compared by identity; hashing their names takes a call in Python

    @property
    def noun(self) -> str:
        """Its name in a sentence."""
        return self.name.lower().replace("_", " ")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObject:
    """One object of a store, as it was listed.

    Attributes:
        key: path below the archive's root, parts separated by `/`.
        size_bytes: as listed.
        version: changes with the object: an ETag, or a file's mtime and inode. Empty if unknown.
    """

    key: str
    size_bytes: int
    version: str = ""

    @property
    def name(self) -> str:
        """The last part of the key."""
        return self.key.rpartition("/")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedSegment:
    """One segment of an archive.

    Attributes:
        base_offset: from its name.
        segment_id: its UUID as text, empty if the layout's names have none.
        other_file: name of a file that is not a segment but is read like one: a `.log.swap`, a snapshot of the
            metadata log. Empty for a segment.
        parts: its objects. In plain copies, as in tiered storage, the snapshot is the one at the segment's end, with
            which the next segment begins.
        next_base_offset: of the segment after it in the same folder, in plain copies; None for the last one.
        snapshots: further snapshots by their offset, within the segment or, for the first segment, at its start.
    """

    base_offset: int
    segment_id: str = ""
    other_file: str = ""
    parts: Mapping[PartKind, StoredObject]
    next_base_offset: int | None = None
    snapshots: Mapping[int, StoredObject] = field(default_factory=dict)

    @property
    def key(self) -> SegmentKey:
        """What names it within its partition."""
        return self.base_offset, self.segment_id

    @property
    def size_bytes(self) -> int:
        """Bytes of all its objects."""
        return sum(stored.size_bytes for stored in (*self.parts.values(), *self.snapshots.values()))

    @property
    def log_bytes(self) -> int:
        """Bytes of the object that holds its batches, 0 without one."""
        log = self.parts.get(PartKind.LOG)
        return 0 if log is None else log.size_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPrefix:
    """Where the segments of one partition are.

    Attributes:
        prefix: ends in `/`; empty if the archive is the partition's folder itself.
        topic_id: 22 characters, empty if the layout's names have none.
        folder: its name in the layout: `orders-3`, `orders-3-<topic id>`.
    """

    prefix: str
    topic: str
    partition: int
    topic_id: str = ""
    folder: str = ""


def temporary_name(name: str, token: str) -> str:
    """Return a name for a file while it is being written, before it gets its own *name*.

    Spark and Arrow do not read files whose names begin with a dot.

    Args:
        name: of the file; one that leaves no room for more is cut.
        token: 16 hexadecimal digits that no other writer has.
    """
    return f".{os.fsdecode(os.fsencode(name)[:_MOST_NAME_BYTES])}.{token}.recovery-tmp"


def is_temporary(name: str) -> bool:
    """Return whether *name* is one of a file that was being written; a writer that was killed leaves it."""
    return _TEMPORARY.fullmatch(name) is not None
