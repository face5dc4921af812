"""What an inventory says of a partition's segments, and what it is told of them. Values only."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from recovery.archive.remote.lineage import Lineage, OffsetRange
from recovery.archive.remote.remote_cache import RemoteLogCache
from recovery.archive.stores.archived import PartKind
from recovery.check.finding import Finding
from segfmt.checkpoint import LeaderEpochEntry


class SegmentStatus(enum.Enum):
    """What a segment is, by metadata and listing; the value is what reports call it."""

    ARCHIVED = "archived"
    """All its objects are there, and it is finished, as far as anybody says."""
    INCOMPLETE = "incomplete"
    """It is finished, and some of its objects are missing."""
    MISSING = "missing"
    """It is finished, and nothing of it is there."""
    COPY_STARTED = "copy-started"
    DELETE_STARTED = "delete-started"
    DELETED = "deleted"
    """Its deletion is finished, and yet objects of it are there."""
    ORPHAN = "orphan"
    """Objects of a segment that the metadata does not know."""


class LineagePlace(enum.Enum):
    """Where a finished segment stands in the log; the value is what reports call it."""

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
        end_offset: of its last record, None where nobody says.
        present: the objects that are there.
        size_bytes: of these.
        leader_epochs: as the metadata says, none without it.
    """

    base_offset: int
    segment_id: str
    status: SegmentStatus
    place: LineagePlace = LineagePlace.UNKNOWN
    end_offset: int | None = None
    present: frozenset[PartKind] = frozenset()
    size_bytes: int = 0
    leader_epochs: tuple[LeaderEpochEntry, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionInventory:
    """All segments of one partition, by base offset, and what is wrong.

    Attributes:
        lineage: of what the metadata knows; None without it.
        gone: offsets, in order, of segments whose deletion was begun, or below the log start: what is missing of them
            is no gap.
    """

    entries: tuple[InventoryEntry, ...]
    findings: tuple[Finding, ...]
    lineage: Lineage | None = None
    gone: tuple[OffsetRange, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What is known of a partition besides its objects.

    Attributes:
        cache: what the metadata topic says; None where it is not at hand.
        epochs: of the log, None where they are not known: they are then taken from the segments.
        log_start_offset: None where it is not known.
        hides_records: whether records of the metadata topic are missing or damaged: an orphan may be none then.
    """

    cache: RemoteLogCache | None = None
    epochs: tuple[LeaderEpochEntry, ...] | None = None
    log_start_offset: int | None = None
    hides_records: bool = False
