"""What of a partition is restored: its segments in order, its leader epochs, and why it is not, or not wholly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recovery.archive.layouts.layout import Layout
from recovery.archive.stores.archived import ArchivedSegment, PartitionPrefix, StoredObject
from segfmt.checkpoint import LeaderEpochEntry

READABLE = "Remedy: see that this user can read it, and start again"
REBUILT = "Remedy: archive recover rebuilds it"
SOUND = "Remedy: put its objects there from another copy of the archive"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSegment:
    """A segment that is restored.

    Attributes:
        until_offset: its batches from here on are left to the next segment; None: all are its own.
        end_offset: of its last record, None if only the log says.
        log_bytes: of its log, without `zero_bytes`.
        max_timestamp_ms: of its records, None if not known.
        sha256: of its log, by the manifest of the copy; None without one.
        zero_bytes: behind its last batch: what `preallocate` leaves in a log whose broker was killed.
        has_aborted: whether the metadata topic says that it has aborted transactions; without it that is not known.
    """

    segment: ArchivedSegment
    until_offset: int | None
    end_offset: int | None
    log_bytes: int
    max_timestamp_ms: int | None
    sha256: str | None = None
    zero_bytes: int = 0
    has_aborted: bool = False

    @property
    def overlaps_next(self) -> bool:
        """Whether it has records from the next segment on, which are left to that one."""
        return (
            self.end_offset is not None
            and self.until_offset is not None
            and self.end_offset >= self.until_offset
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePartition:
    """A partition that is restored, or not.

    Attributes:
        segments: ascending.
        topic_id: as the archive has it; empty if it does not say.
        epochs: leader epochs of the log.
        log_start_offset: None if not known: the log begins with its first segment.
        end_offset: of its last record, None if not known.
        snapshots_before: of producers at the beginning of the first segment or before, as a part in remote storage
            has left them.
        gaps: offsets that no segment has, a sentence each; a compacted log may have some. What may have them follows.
        warnings: what the restored log will lack.
        reasons: why it cannot be restored; a sentence each.
    """

    where: PartitionPrefix
    layout: Layout
    topic_id: str = ""
    segments: Sequence[SourceSegment] = ()
    epochs: Sequence[LeaderEpochEntry] = ()
    log_start_offset: int | None = None
    end_offset: int | None = None
    snapshots_before: Sequence[StoredObject] = ()
    gaps: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Topic and number, as a folder is named."""
        return f"{self.where.topic}-{self.where.partition}"

    @property
    def size_bytes(self) -> int:
        """Bytes of all logs."""
        return sum(segment.log_bytes for segment in self.segments)

    @property
    def first_offset(self) -> int:
        """Where the log begins in a broker's log dir."""
        base = self.segments[0].segment.base_offset if self.segments else 0
        return max(base, self.log_start_offset or 0)
