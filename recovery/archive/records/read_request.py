"""A request for an archive's records, and its division into tasks. Values only, picklable."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, Self, overload

from recovery.archive.layouts.aiven_cipher import NO_KEYS, AivenKeys
from recovery.archive.records.batch_heads import Fault
from recovery.archive.records.offset_limits import OffsetLimits, TopicPartition
from recovery.archive.records.read_options import ReadOptions
from recovery.archive.stores.archived import ArchivedSegment, PartitionPrefix
from recovery.archive.stores.segment_table import SegmentTable
from segfmt.checkpoint import LeaderEpochEntry
from segfmt.filenames import CLUSTER_METADATA_TOPIC
from segfmt.remote_log_metadata import RemoteSegment

TASK_BYTES = 256 << 20
"""Of logs as stored in the archive; this gives a task some seconds of work."""
TASK_SEGMENTS = 500
"""In a task at most: in a bucket, opening a small segment costs as much as reading some MiB."""
MOST_EARLIER: Final = 4
"""Segments before its own that a run knows: they may go on where one of its own ends early."""
_INTERNAL_TOPICS: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state", CLUSTER_METADATA_TOPIC}
)
"""A pattern does not match them: Kafka's clients leave them out, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which segments are requested.

    Attributes:
        topics, partitions: None for all.
        pattern: a regular expression for the whole name of a topic; None for all.
        assigned: partitions of topics; None for all.
        topic_ids: incarnations of topics; None for the one there is, none for all of them.
        starts, ends: where each partition begins and ends; None: where the archive does.
        task_bytes: about how much a task reads.
        task_segments: the most segments of a task.
        uses_time_index: skip segments that end before `ReadOptions.lowest_timestamp_ms`, if the time index and what the
            metadata topic or the manifest says of the segment agree on it.
    """

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    pattern: str | None = None
    assigned: frozenset[TopicPartition] | None = None
    topic_ids: frozenset[str] | None = None
    starts: OffsetLimits | None = None
    ends: OffsetLimits | None = None
    task_bytes: int = TASK_BYTES
    task_segments: int = TASK_SEGMENTS
    uses_time_index: bool = True

    def has(self, where: PartitionPrefix) -> bool:
        """Return whether a partition is requested."""
        if self.topics is not None and where.topic not in self.topics:
            return False
        if self.partitions is not None and where.partition not in self.partitions:
            return False
        if self.assigned is not None and (where.topic, where.partition) not in self.assigned:
            return False
        return self.pattern is None or (
            where.topic not in _INTERNAL_TOPICS and re.fullmatch(self.pattern, where.topic) is not None
        )


class Told(NamedTuple):
    """What the metadata topic, or its description in the archive, says of a segment."""

    end_offset: int
    max_timestamp_ms: int
    size_bytes: int
    has_no_aborts: bool
    leader_epochs: tuple[LeaderEpochEntry, ...]

    @classmethod
    def by(cls, remote: RemoteSegment) -> Self:
        """Return what *remote* says."""
        return cls(
            remote.end_offset,
            remote.max_timestamp_ms,
            remote.size_bytes,
            remote.has_no_transactions,
            remote.leader_epochs,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSegment:
    """One segment to be read, or that should be there.

    Attributes:
        end_offset: records from here on belong to another segment; None for the last one.
        is_last: nothing follows in the archive, and a killed broker or copy may have left a torn end.
        told: by the metadata topic; None if it does not know the segment.
    """

    segment: ArchivedSegment
    end_offset: int | None = None
    is_last: bool = False
    told: Told | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSegments(Sequence[PlannedSegment]):
    """Segments of one partition to be read, as columns.

    Attributes:
        end_offsets, told: see `PlannedSegment`.
        has_last: `is_last` of the last one.
    """

    segments: SegmentTable
    end_offsets: Sequence[int | None]
    told: Sequence[Told | None]
    has_last: bool

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.segments)

    @overload
    def __getitem__(self, row: int) -> PlannedSegment: ...
    @overload
    def __getitem__(self, row: slice) -> Self: ...
    def __getitem__(self, row: int | slice) -> PlannedSegment | Self:
        """Return one segment, or some of them."""
        rows = range(len(self))[row]
        if isinstance(rows, range):
            return self.take(rows)
        return PlannedSegment(
            segment=self.segments[rows],
            end_offset=self.end_offsets[rows],
            told=self.told[rows],
            is_last=self.has_last and rows == len(self) - 1,
        )

    def take(self, rows: Sequence[int]) -> Self:
        """Return the segments in *rows*, ascending."""
        return type(self)(
            segments=self.segments.take(rows),
            end_offsets=[self.end_offsets[row] for row in rows],
            told=[self.told[row] for row in rows],
            has_last=self.has_last and bool(rows) and rows[-1] == len(self) - 1,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """The offsets from *start* on and before *end*; None for no bound.

    Attributes:
        is_known: whether the archive has had all of them, so that an end that is not reached is damage.
    """

    start: int | None = None
    end: int | None = None
    is_known: bool = False

    def within(self, options: ReadOptions) -> ReadOptions:
        """Return *options* for these offsets alone."""
        lowest = [offset for offset in (options.lowest_offset, self.start) if offset is not None]
        last = None if self.end is None else self.end - 1
        highest = [offset for offset in (options.highest_offset, last) if offset is not None]
        return replace(
            options, lowest_offset=max(lowest, default=None), highest_offset=min(highest, default=None)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRun:
    """Consecutive segments of one partition.

    Attributes:
        topic_id: of the topic, empty if it is not known.
        before: the last segments before these, as many as go with a task, if they may go on where one of these ends.
        offsets: what is requested of them, within what the request's options say.
        start_offset: the log start offset, None if not known.
        last_stable_offset: see `SegmentView`.
        after: the next segments, as many as go with a task, and whatever they are.
        outside: ids of segments after these that are listed and not read, as the metadata topic says.
        following: the next segments that may have a transaction index, as many as go with a task, with the objects to
            read it from.
        follows_more: whether there are further ones.
        has_txn_indexes: whether no transaction index can be missing: each segment of the partition has one, or a broker
            has said that there is nothing to keep in it.
        local_aborted: entries (as in a transaction index) of what was aborted on the broker after the archive's end.
        open_txns: producer ids and first offsets of the transactions that are open at the archive's end; None if that
            does not matter.
        open_before: the same as the snapshot before the last segment says; none if it is not known.
        is_compacted: whether the log is known to be compacted, so that offsets may be missing.
        gone: first and last offsets, ascending, of what was deleted: if it is missing, that is no damage.
        faults: what planning has found, by the objects that it is about. A run with these has no segments.
    """

    where: PartitionPrefix
    topic_id: str = ""
    segments: PlannedSegments
    before: Sequence[PlannedSegment] = ()
    offsets: OffsetRange = OffsetRange()
    start_offset: int | None = None
    last_stable_offset: int | None = None
    after: Sequence[PlannedSegment] = ()
    outside: frozenset[str] = frozenset()
    following: SegmentTable = field(default_factory=SegmentTable)
    follows_more: bool = False
    has_txn_indexes: bool = False
    local_aborted: bytes = b""
    open_txns: tuple[tuple[int, int], ...] | None = None
    open_before: tuple[tuple[int, int], ...] = ()
    is_compacted: bool = False
    gone: tuple[tuple[int, int], ...] = ()
    faults: tuple[tuple[str, Fault], ...] = ()

    def earlier(self, number: int) -> list[PlannedSegment]:
        """Return the last segments before one of the run, in it or not."""
        own = list(self.segments[max(0, number - MOST_EARLIER) : number])
        left = min(MOST_EARLIER - len(own), len(self.before))
        return [*self.before[len(self.before) - left :], *own]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRequest:
    """What to read: the same for all tasks. A task is some `SegmentRun`s.

    Attributes:
        url: of the archive.
        layout: its name.
        keys: for encrypted segments.
        needs_aborted: whether it matters which transactions were aborted.
    """

    url: str
    layout: str
    keys: AivenKeys = NO_KEYS
    options: ReadOptions
    selection: Selection
    needs_aborted: bool
