"""Which remote segments make up a partition's log, by its leader epochs. Pure.

After a change of leaders the same offsets may have been copied twice, and offsets that were cut off again lie in
segments of an epoch that the log no longer has. A broker looks up the leader epoch of an offset, and then the segment
that the epoch's map has there (`remote_cache`). The lineage is what is read in that way from the log start on, each
segment to the end of its epoch; what is finished and not read is outside of the log, or superseded; where nothing is
read there is a gap.

Kafka: RemoteLogManager.isRemoteSegmentWithinLeaderEpochs, buildFilteredLeaderEpochMap, read; LeaderEpochFileCache.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from uuid import UUID

from recovery.archive.remote.remote_cache import RemoteLogCache, end_in_epoch
from segfmt.checkpoint import LeaderEpochEntry
from segfmt.remote_log_metadata import RemoteSegment, RemoteSegmentState


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """Offsets from the first to the last, both included."""

    start_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """What a broker would make of the finished segments of a partition.

    Attributes:
        segments: those that it reads, in the order in which it comes to them.
        gaps: offsets from the log start to the last one that is read, which no segment gives.
        behind_gaps: the segment behind each gap.
        overlaps: offsets that two segments in a row both have; legal after a change of leaders.
        second_of_overlaps: the second segment of each overlap.
        below: those that end below the log start offset: they wait for their deletion.
        outside: those that are not within the leader epochs: of a log that was cut off.
        superseded: all others: later copies have their offsets.
    """

    segments: tuple[RemoteSegment, ...]
    gaps: tuple[OffsetRange, ...]
    behind_gaps: tuple[RemoteSegment, ...]
    overlaps: tuple[OffsetRange, ...]
    second_of_overlaps: tuple[RemoteSegment, ...]
    below: tuple[RemoteSegment, ...]
    outside: tuple[RemoteSegment, ...]
    superseded: tuple[RemoteSegment, ...]

    @property
    def end_offset(self) -> int | None:
        """The last offset that is read, None where nothing is."""
        return max((segment.end_offset for segment in self.segments), default=None)


def trace_lineage(
    cache: RemoteLogCache,
    epochs: Sequence[LeaderEpochEntry],
    *,
    log_start_offset: int | None = None,
    log_end_offset: int | None = None,
) -> Lineage:
    """Return what a broker with these leader *epochs* reads.

    Args:
        cache: what it knows of the segments.
        epochs: of the log; see `derive_epochs` where nobody has them.
        log_start_offset: where the log begins; None where that is not known: with the first segment within the
            leader epochs.
        log_end_offset: behind the last record, local ones included; None: behind the last segment.
    """
    finished = sorted(
        (one for one in cache.segments.values() if one.state is RemoteSegmentState.COPY_SEGMENT_FINISHED),
        key=lambda one: (one.start_offset, one.end_offset, one.segment_id.bytes),
    )
    end = (
        max((one.end_offset + 1 for one in finished), default=0) if log_end_offset is None else log_end_offset
    )
    epochs = cut_epochs(epochs)
    within = {one.segment_id for one in finished if is_within_leader_epochs(one, end, epochs)}
    start = log_start_offset
    if start is None:
        start = min((one.start_offset for one in finished if one.segment_id in within), default=0)
    read, gaps = _read_through(cache, epochs, start)
    is_read = {one.segment_id for one in read}
    others = [one for one in finished if one.segment_id not in is_read]
    rest = [one for one in others if one.end_offset >= start]
    overlaps = _overlaps(read)
    return Lineage(
        segments=tuple(read),
        gaps=tuple(gaps),
        behind_gaps=tuple(gaps.values()),
        overlaps=tuple(overlaps),
        second_of_overlaps=tuple(overlaps.values()),
        below=tuple(one for one in others if one.end_offset < start),
        outside=tuple(one for one in rest if one.segment_id not in within),
        superseded=tuple(one for one in rest if one.segment_id in within),
    )


def is_within_leader_epochs(
    segment: RemoteSegment, log_end_offset: int, epochs: Sequence[LeaderEpochEntry]
) -> bool:
    """Return whether *segment* is a part of the log that has these *epochs*.

    Args:
        segment: its first epoch may begin above the log's, its last one may end below.
        log_end_offset: the offset behind the log's last record.
        epochs: of the log, ascending, as `filter_epochs` leaves them. Without any, nothing is within.

    Kafka: RemoteLogManager.isRemoteSegmentWithinLeaderEpochs. Differs: Kafka throws where there are no epochs.
    """
    starts = dict(epochs)
    own = filter_epochs(segment.leader_epochs)
    if not epochs or not epochs[0].epoch <= own[-1].epoch <= epochs[-1].epoch:
        return False
    following = dict(zip(starts, epochs[1:], strict=False))
    relevant = [entry for entry in own if entry.epoch >= epochs[0].epoch]
    for number, (epoch, start_offset) in enumerate(relevant):
        if epoch not in starts:
            return False
        if number == 0 and epoch != epochs[0].epoch and start_offset < starts[epoch]:
            return False
        behind = following.get(epoch)
        if number + 1 < len(relevant):
            if behind != relevant[number + 1]:
                return False
        elif behind is not None and segment.end_offset > behind.start_offset - 1:
            return False
    return segment.end_offset < log_end_offset


def filter_epochs(epochs: Iterable[LeaderEpochEntry]) -> list[LeaderEpochEntry]:
    """Return *epochs* without those that have no record: the next one begins at the same offset.

    Kafka: RemoteLogManager.buildFilteredLeaderEpochMap.
    """
    ascending = sorted({epoch: LeaderEpochEntry(epoch, start) for epoch, start in epochs}.values())
    kept: list[LeaderEpochEntry] = []
    for entry in ascending:
        if kept and kept[-1].start_offset == entry.start_offset:
            kept.pop()
        kept.append(entry)
    return kept


def derive_epochs(segments: Iterable[RemoteSegment]) -> list[LeaderEpochEntry]:
    """Return the leader epochs of the log that finished *segments* tell of, for want of the log's own checkpoint.

    An epoch begins where the first segment has it. A segment with two epochs in a row says that there is none between
    them. Lower epochs that begin at or above a higher one are of a log that was cut off.
    """
    starts: dict[int, int] = {}
    before: dict[int, int] = {}
    for segment in sorted(segments, key=lambda one: one.event_timestamp_ms):
        if segment.state is RemoteSegmentState.COPY_SEGMENT_FINISHED:
            for epoch, start_offset in segment.leader_epochs:
                starts[epoch] = min(start_offset, starts.get(epoch, start_offset))
            before |= {after.epoch: one.epoch for one, after in pairwise(segment.leader_epochs)}
    kept: list[LeaderEpochEntry] = []
    for epoch in sorted(starts, reverse=True):
        if kept and epoch > before.get(kept[-1].epoch, epoch):
            continue
        kept.append(LeaderEpochEntry(epoch, starts[epoch]))
    return cut_epochs(kept)


def cut_epochs(epochs: Iterable[LeaderEpochEntry]) -> list[LeaderEpochEntry]:
    """Return *epochs* ascending, without those that a higher one has cut off: it begins at or below their start.

    Kafka: LeaderEpochFileCache.assign treats its entries so.
    """
    kept: list[LeaderEpochEntry] = []
    for entry in sorted(epochs, reverse=True):
        if not kept or (entry.epoch < kept[-1].epoch and entry.start_offset < kept[-1].start_offset):
            kept.append(entry)
    return kept[::-1]


def epoch_for_offset(epochs: Sequence[LeaderEpochEntry], offset: int) -> int | None:
    """Return the place in *epochs* of the one that *offset* is of. Kafka: LeaderEpochFileCache.epochForOffset."""
    place = bisect_right(epochs, offset, key=lambda entry: entry.start_offset)
    return place - 1 if place else None


def merge_ranges(segments: Iterable[RemoteSegment | OffsetRange]) -> list[OffsetRange]:
    """Return the offsets of *segments* as ranges in order that do not touch."""
    merged: list[OffsetRange] = []
    for one in sorted(segments, key=lambda one: one.start_offset):
        if merged and one.start_offset <= merged[-1].end_offset + 1:
            last = merged.pop()
            end_offset = max(last.end_offset, one.end_offset)
            merged.append(OffsetRange(start_offset=last.start_offset, end_offset=end_offset))
        else:
            merged.append(OffsetRange(start_offset=one.start_offset, end_offset=one.end_offset))
    return merged


def subtract_ranges(gap: OffsetRange, ranges: Sequence[OffsetRange]) -> list[tuple[int, int]]:
    """Return the parts of *gap* that none of the *ranges* has, which are in order."""
    left: list[tuple[int, int]] = []
    start = gap.start_offset
    first = bisect_left(ranges, start, key=lambda one: one.end_offset)
    for place in range(first, len(ranges)):
        one = ranges[place]
        if one.start_offset > gap.end_offset:
            break
        if one.start_offset > start:
            left.append((start, one.start_offset - 1))
        start = one.end_offset + 1
    return [*left, (start, gap.end_offset)] if start <= gap.end_offset else left


def _read_through(
    cache: RemoteLogCache, epochs: Sequence[LeaderEpochEntry], log_start_offset: int
) -> tuple[list[RemoteSegment], dict[OffsetRange, RemoteSegment]]:
    """Return the segments that are read from the log start on, and where nothing is, with what is behind it."""
    read: list[RemoteSegment] = []
    gaps: dict[OffsetRange, RemoteSegment] = {}
    seen: set[UUID] = set()
    offset = covered_to = log_start_offset
    while True:
        place = epoch_for_offset(epochs, offset)
        behind = 0 if place is None else place + 1
        epoch_end = epochs[behind].start_offset - 1 if behind < len(epochs) else None
        segment = None if place is None else cache.find(epochs[place].epoch, offset)
        if segment is not None and place is not None:
            if segment.segment_id not in seen:
                read.append(segment)
                seen.add(segment.segment_id)
            if offset > covered_to:
                gaps[OffsetRange(start_offset=covered_to, end_offset=offset - 1)] = segment
            last = end_in_epoch(segment, epochs[place].epoch)
            offset = covered_to = (last if epoch_end is None else min(last, epoch_end)) + 1
            continue
        following = None if place is None else cache.next_start(epochs[place].epoch, offset)
        if following is not None and (epoch_end is None or following <= epoch_end):
            offset = following
        elif epoch_end is not None:
            offset = epoch_end + 1
        else:
            return read, gaps


def _overlaps(segments: Sequence[RemoteSegment]) -> dict[OffsetRange, RemoteSegment]:
    found: dict[OffsetRange, RemoteSegment] = {}
    for before, after in pairwise(segments):
        first = max(before.start_offset, after.start_offset)
        last = min(before.end_offset, after.end_offset)
        if first <= last:
            found[OffsetRange(start_offset=first, end_offset=last)] = after
    return found
