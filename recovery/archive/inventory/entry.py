"""What an inventory says of a partition's segments, and what it starts from. Values only."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from recovery.archive.remote.lineage import Lineage, OffsetRange
from recovery.archive.remote.remote_cache import RemoteLogCache
from recovery.archive.stores.archived import PartKind, SegmentKey
from recovery.check.finding import Finding
from segfmt.checkpoint import LeaderEpochEntry


class SegmentStatus(enum.Enum):
    """The status of a segment by metadata and listing; the value is its name in reports."""

    ARCHIVED = "archived"
    """All its objects are there, and nothing says that it is unfinished."""
    INCOMPLETE = "incomplete"
    """It is finished, and some of its objects are missing."""
    MISSING = "missing"
    """It is finished, and nothing of it is there."""
    COPY_STARTED = "copy-started"
    DELETE_STARTED = "delete-started"
    DELETED = "deleted"
    """Its deletion is finished, but objects of it remain."""
    ORPHAN = "orphan"
    """Objects of a segment that the metadata does not know."""
    NOT_COMPARED = "not-compared"
    """The same, or a copy that was begun, but records of the metadata topic are missing or damaged, or too old."""


class LineagePlace(enum.Enum):
    """The place of a finished segment in the log; the value is its name in reports."""

    READ = "read"
    BELOW_LOG_START = "below-log-start"
    OUTSIDE = "outside-lineage"
    SUPERSEDED = "superseded"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class InventoryEntry:
    """One segment.

    Attributes:
        segment_id: as text; empty in plain copies.
        end_offset: of its last record, None if not known.
        present: the objects that are there.
        size_bytes: of these.
        leader_epochs: by the metadata, none without it.
        twin_id: of the complete segment beside it, if it is incomplete and there is no metadata; else empty.
    """

    base_offset: int
    segment_id: str
    status: SegmentStatus
    place: LineagePlace = LineagePlace.UNKNOWN
    end_offset: int | None = None
    present: frozenset[PartKind] = frozenset()
    size_bytes: int = 0
    leader_epochs: tuple[LeaderEpochEntry, ...] = ()
    twin_id: str = ""

    @property
    def key(self) -> SegmentKey:
        """Which segment it is in its partition."""
        return self.base_offset, self.segment_id


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionInventory:
    """All segments of one partition, by base offset, and what is wrong.

    Attributes:
        lineage: of the segments in the metadata; None without it.
        gone: offsets, ascending, of segments whose deletion was begun, or below the log start: if they are missing,
            that is not a gap.
    """

    entries: tuple[InventoryEntry, ...]
    findings: tuple[Finding, ...]
    lineage: Lineage | None = None
    gone: tuple[OffsetRange, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What is known of a partition besides its objects.

    Attributes:
        cache: what the metadata topic says; None if it is not available.
        is_unknown: whether it is available, and no record that was read is about the partition.
        epochs: of the log, None if not known: they are then taken from the segments.
        log_start_offset: None if not known.
        local_start_offset: where the first segment on a broker begins, None if not known.
        hides_records: whether records of the metadata topic that may be about it are missing or damaged, so that an
            apparent orphan may not be one, and a copy that was begun may have been finished.
    """

    cache: RemoteLogCache | None = None
    is_unknown: bool = False
    epochs: tuple[LeaderEpochEntry, ...] | None = None
    log_start_offset: int | None = None
    local_start_offset: int | None = None
    hides_records: bool = False
