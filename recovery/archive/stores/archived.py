"""What an archive holds, as values: objects, the segments that they make up. Frozen and picklable.

Of a whole partition `recovery/archive/stores/segment_table.py` has them as columns.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field


class PartKind(enum.Enum):
    """What a part of a segment is; the value is what verdicts call it."""

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
        """What a sentence calls it."""
        return self.name.lower().replace("_", " ")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObject:
    """One object of a store, as it was listed.

    Attributes:
        key: path below the archive's root, parts divided by `/`.
        size_bytes: as listed.
        version: what changes with the object: an ETag, or a file's mtime and inode. Empty where nobody knows.
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
        segment_id: its UUID as text, empty where the layout's names have none.
        other_file: name of what lies beside a folder's segments and is read like one: a `.log.swap`, a snapshot of the
            metadata log. Empty for a segment.
        parts: its objects. In plain copies the snapshot is the one that the next segment begins with, as it is in
            tiered storage: the producers at the segment's end.
        next_base_offset: of the segment behind it in the same folder, in plain copies; None for the last one.
        snapshots: further snapshots, by their offset, within the segment, or (of the first one) at its start.
    """

    base_offset: int
    segment_id: str = ""
    other_file: str = ""
    parts: Mapping[PartKind, StoredObject]
    next_base_offset: int | None = None
    snapshots: Mapping[int, StoredObject] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        """Bytes of all its objects."""
        return sum(one.size_bytes for one in (*self.parts.values(), *self.snapshots.values()))

    @property
    def log_bytes(self) -> int:
        """Bytes of the object that holds its batches, 0 without one."""
        log = self.parts.get(PartKind.LOG)
        return 0 if log is None else log.size_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPrefix:
    """Where the segments of one partition lie.

    Attributes:
        prefix: ends in `/`; empty where the archive is the partition's folder itself.
        topic_id: 22 characters, empty where the layout's names have none.
        folder: as the layout calls it: `orders-3`, `orders-3-<topic id>`.
    """

    prefix: str
    topic: str
    partition: int
    topic_id: str = ""
    folder: str = ""
