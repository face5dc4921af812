"""What is asked of an archive's records, and how that is divided into tasks. Values only, picklable."""

from __future__ import annotations

from recovery.archive.aiven_cipher import NO_KEYS, AivenKeys
from recovery.archive.archived import ArchivedSegment, PartitionPrefix
from recovery.archive.record_columns import ReadOptions
from segfmt.value_class import dataclass

TASK_BYTES = 256 << 20
"""Of logs, as they lie in the archive; a task has some seconds of work then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which segments are wanted at all.

    Attributes:
        topics, partitions: None for all.
        task_bytes: about as much is read by a task.
        uses_time_index: pass over segments whose time index ends below `ReadOptions.lowest_timestamp_ms`.
    """

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    task_bytes: int = TASK_BYTES
    uses_time_index: bool = True

    def has(self, where: PartitionPrefix) -> bool:
        """Return whether a partition is wanted."""
        return (self.topics is None or where.topic in self.topics) and (
            self.partitions is None or where.partition in self.partitions
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSegment:
    """One segment to be read.

    Attributes:
        end_offset: records from here on are another segment's; None for the last one.
        is_last: nothing follows in the archive, and its end may be what a killed broker or copy has left.
    """

    segment: ArchivedSegment
    end_offset: int | None = None
    is_last: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRun:
    """Segments of one partition that follow one another.

    Attributes:
        start_offset: the log start offset, None where it is not known.
        last_stable_offset: see `SegmentView`.
        following: the next segments behind it that may have a transaction index, as many as go with a task.
        follows_more: there are further ones.
        local_aborted: entries of transaction indexes (as in a file) that the broker has itself.
    """

    where: PartitionPrefix
    segments: tuple[PlannedSegment, ...]
    start_offset: int | None = None
    last_stable_offset: int | None = None
    following: tuple[ArchivedSegment, ...] = ()
    follows_more: bool = False
    local_aborted: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTask:
    """What one task reads.

    Attributes:
        url: of the archive.
        layout: its name.
        keys: for encrypted segments.
        needs_aborted: whether anybody asks which transactions were aborted.
    """

    url: str
    layout: str
    keys: AivenKeys = NO_KEYS
    options: ReadOptions
    selection: Selection
    needs_aborted: bool
    runs: tuple[SegmentRun, ...] = ()
