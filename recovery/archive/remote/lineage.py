"""Which remote segments make up a partition's log, by its leader epochs. Pure.

After a change of leaders the same offsets may have been copied twice, and offsets that were later cut off may be in
segments of an epoch that the log no longer has. A broker looks up the leader epoch of an offset, and then the segment
at that offset in the epoch's map (`remote_cache`). The lineage is what is read in this way from the log start on, each
segment to the end of its epoch; a finished segment that is not read is outside the log, or superseded; offsets that
are in no segment read are a gap.

Kafka: RemoteLogManager.isRemoteSegmentWithinLeaderEpochs, buildFilteredLeaderEpochMap, read; LeaderEpochFileCache.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
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
    """How a broker would use the finished segments of a partition.

    Attributes:
        segments: those that it reads, in the order of reading.
        gaps: offsets between the log start and the last one read that are in no segment.
        behind_gaps: the segment after each gap.
        overlaps: offsets that two consecutive segments both have; legal after a change of leaders.
        second_of_overlaps: the second segment of each overlap.
        below: those that end below the log start offset: they await deletion.
        outside: those that are not within the leader epochs: they belong to a log that was cut off.
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
        """The last offset that is read, None if nothing is."""
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
        cache: what the broker knows of the segments.
        epochs: of the log; `derive_epochs` replaces them if they are not known.
        log_start_offset: where the log begins; None if not known: then it begins with the first segment whose first
            offset is within the leader epochs, or where these begin in it.
        log_end_offset: after the last record, local ones included; None: after the last segment.
    """
    finished = sorted(
        (
            segment
            for segment in cache.segments.values()
            if segment.state is RemoteSegmentState.COPY_SEGMENT_FINISHED
        ),
        key=lambda segment: (segment.start_offset, segment.end_offset, segment.segment_id.bytes),
    )
    end = (
        max((segment.end_offset + 1 for segment in finished), default=0)
        if log_end_offset is None
        else log_end_offset
    )
    epochs = cut_epochs(epochs)
    within = {segment.segment_id for segment in finished if is_within_leader_epochs(segment, end, epochs)}
    start = log_start_offset
    if start is None:
        start = min(
            (
                _read_from(segment)
                for segment in finished
                if segment.segment_id in within or _begins_within(segment, epochs)
            ),
            default=0,
        )
    read, gaps = _read_through(cache, epochs, start)
    is_read = {segment.segment_id for segment in read}
    unread = [segment for segment in finished if segment.segment_id not in is_read]
    unread_above_start = [segment for segment in unread if segment.end_offset >= start]
    overlaps = _overlaps(read)
    return Lineage(
        segments=tuple(read),
        gaps=tuple(gaps),
        behind_gaps=tuple(gaps.values()),
        overlaps=tuple(overlaps),
        second_of_overlaps=tuple(overlaps.values()),
        below=tuple(segment for segment in unread if segment.end_offset < start),
        outside=tuple(segment for segment in unread_above_start if segment.segment_id not in within),
        superseded=tuple(segment for segment in unread_above_start if segment.segment_id in within),
    )


def consecutive(
    segments: Sequence[RemoteSegment], epochs: Sequence[LeaderEpochEntry]
) -> Sequence[RemoteSegment]:
    """Return those of *segments* that have the same offsets of the log, each up to where the next one begins.

    A broker may leave a segment for another and come back: after an unclean election the new leader's first one may
    begin before one of the old leader's, whose end was cut off. What lies between is in both.

    Args:
        segments: those that a broker reads.
        epochs: of the log.
    """
    ordered, epochs = sorted(segments, key=lambda segment: segment.start_offset), cut_epochs(epochs)
    ends = {segment.segment_id: _end_within(segment, epochs) for segment in ordered}
    if not ordered or (
        ends[ordered[-1].segment_id] == max(ends.values())
        and all(
            ends[one.segment_id] >= min(one.end_offset, after.start_offset - 1)
            for one, after in pairwise(ordered)
        )
    ):
        return segments
    kept: list[RemoteSegment] = []
    left = deque(ordered)
    best, offset = left[0], left[0].start_offset
    while left or ends[best.segment_id] >= offset:
        while left and left[0].start_offset <= offset:
            best = max(best, left.popleft(), key=lambda segment: ends[segment.segment_id])
        if ends[best.segment_id] >= offset:
            kept.append(best)
            offset = ends[best.segment_id] + 1
        elif left:
            offset = left[0].start_offset
    return kept


def cut_by(segment: RemoteSegment, epochs: Iterable[LeaderEpochEntry]) -> LeaderEpochEntry | None:
    """Return the later one of the log's *epochs* that begins within *segment*, and so has cut off its end; or None."""
    last_epoch = max(entry.epoch for entry in segment.leader_epochs)
    return next(
        (entry for entry in epochs if entry.epoch > last_epoch and entry.start_offset <= segment.end_offset),
        None,
    )


def _end_within(segment: RemoteSegment, epochs: Sequence[LeaderEpochEntry]) -> int:
    """Return the last offset of *segment* that the log with these *epochs* has, too."""
    ends = [segment.start_offset - 1]
    next_starts = dict(
        zip((entry.epoch for entry in epochs), [entry.start_offset for entry in epochs][1:], strict=False)
    )
    known = {entry.epoch for entry in epochs}
    for epoch, _ in segment.leader_epochs:
        if epoch in known:
            last = end_in_epoch(segment, epoch)
            ends.append(min(last, next_starts.get(epoch, last + 1) - 1))
    return max(ends)


def _read_from(segment: RemoteSegment) -> int:
    """Return the first offset of *segment* that its broker could read: the log may have begun within the segment."""
    return max(segment.start_offset, segment.leader_epochs[0].start_offset)


def _begins_within(segment: RemoteSegment, epochs: Sequence[LeaderEpochEntry]) -> bool:
    """Return whether the log with these *epochs* has the first offset of *segment*, though maybe not its last one."""
    number = epoch_for_offset(epochs, _read_from(segment))
    return number is not None and epochs[number].epoch == segment.leader_epochs[0].epoch


def is_within_leader_epochs(
    segment: RemoteSegment, log_end_offset: int, epochs: Sequence[LeaderEpochEntry]
) -> bool:
    """Return whether *segment* is part of the log that has these *epochs*.

    Args:
        segment: its first epoch may begin above the log's, its last one may end below it.
        log_end_offset: the offset after the log's last record.
        epochs: of the log, ascending, as `filter_epochs` leaves them. Without any, nothing is within.

    Kafka: RemoteLogManager.isRemoteSegmentWithinLeaderEpochs. Differs: Kafka throws if there are no epochs.
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
        next_entry = following.get(epoch)
        if number + 1 < len(relevant):
            if next_entry != relevant[number + 1]:
                return False
        elif next_entry is not None and segment.end_offset > next_entry.start_offset - 1:
            return False
    return segment.end_offset < log_end_offset


def filter_epochs(epochs: Iterable[LeaderEpochEntry]) -> list[LeaderEpochEntry]:
    """Return *epochs* without those that have no record, because the next one begins at the same offset.

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
    """Return the leader epochs of the log as its finished *segments* give them, for want of the log's checkpoint.

    An epoch begins at the lowest start that a segment gives it. A segment with two consecutive epochs rules out any
    between them. Lower epochs that begin at or above the start of a higher one belong to a log that was cut off.
    """
    starts: dict[int, int] = {}
    before: dict[int, int] = {}
    for segment in sorted(segments, key=lambda segment: segment.event_timestamp_ms):
        if segment.state is RemoteSegmentState.COPY_SEGMENT_FINISHED:
            for epoch, start_offset in segment.leader_epochs:
                starts[epoch] = min(start_offset, starts.get(epoch, start_offset))
            before |= {after.epoch: entry.epoch for entry, after in pairwise(segment.leader_epochs)}
    kept: list[LeaderEpochEntry] = []
    for epoch in sorted(starts, reverse=True):
        if kept and epoch > before.get(kept[-1].epoch, epoch):
            continue
        kept.append(LeaderEpochEntry(epoch, starts[epoch]))
    return cut_epochs(kept)


def with_earlier_epochs(
    epochs: Sequence[LeaderEpochEntry], segments: Iterable[RemoteSegment]
) -> list[LeaderEpochEntry]:
    """Return the leader *epochs* of a log with those before its first line that its finished *segments* know.

    A replica that began anew, or whose log start has moved, does not know them; the segments are there nevertheless.
    """
    if not epochs:
        return []
    first = epochs[0]
    earlier = [
        entry
        for entry in derive_epochs(segments)
        if entry.epoch <= first.epoch and entry.start_offset <= first.start_offset
    ]
    is_known = bool(earlier) and earlier[-1].epoch == first.epoch
    return cut_epochs([*earlier, *(epochs[1:] if is_known else epochs)])


def cut_epochs(epochs: Iterable[LeaderEpochEntry]) -> list[LeaderEpochEntry]:
    """Return *epochs* ascending, without those cut off by a higher one that begins at or below their start.

    Kafka: LeaderEpochFileCache.assign.
    """
    kept: list[LeaderEpochEntry] = []
    for entry in sorted(epochs, reverse=True):
        if not kept or (entry.epoch < kept[-1].epoch and entry.start_offset < kept[-1].start_offset):
            kept.append(entry)
    return kept[::-1]


def truncate_from_start(epochs: Sequence[LeaderEpochEntry], log_start_offset: int) -> list[LeaderEpochEntry]:
    """Return *epochs*, ascending, as they are once the log begins at *log_start_offset*.

    Kafka: LeaderEpochFileCache.truncateFromStartAsyncFlush.
    """
    count = bisect_right(epochs, log_start_offset, key=lambda entry: entry.start_offset)
    first = [LeaderEpochEntry(epochs[count - 1].epoch, log_start_offset)] if count else []
    return [*first, *epochs[count:]]


def epoch_for_offset(epochs: Sequence[LeaderEpochEntry], offset: int) -> int | None:
    """Return the index in *epochs* of the epoch of *offset*. Kafka: LeaderEpochFileCache.epochForOffset."""
    count = bisect_right(epochs, offset, key=lambda entry: entry.start_offset)
    return count - 1 if count else None


def merge_ranges(segments: Iterable[RemoteSegment | OffsetRange]) -> list[OffsetRange]:
    """Return the offsets of *segments* as ascending ranges that do not touch."""
    merged: list[OffsetRange] = []
    for offsets in sorted(segments, key=lambda offsets: offsets.start_offset):
        if merged and offsets.start_offset <= merged[-1].end_offset + 1:
            last = merged.pop()
            end_offset = max(last.end_offset, offsets.end_offset)
            merged.append(OffsetRange(start_offset=last.start_offset, end_offset=end_offset))
        else:
            merged.append(OffsetRange(start_offset=offsets.start_offset, end_offset=offsets.end_offset))
    return merged


def subtract_ranges(gap: OffsetRange, ranges: Sequence[OffsetRange]) -> list[tuple[int, int]]:
    """Return the parts of *gap* that are in none of *ranges*, which are ascending."""
    left: list[tuple[int, int]] = []
    start = gap.start_offset
    first = bisect_left(ranges, start, key=lambda offsets: offsets.end_offset)
    for number in range(first, len(ranges)):
        offsets = ranges[number]
        if offsets.start_offset > gap.end_offset:
            break
        if offsets.start_offset > start:
            left.append((start, offsets.start_offset - 1))
        start = offsets.end_offset + 1
    return [*left, (start, gap.end_offset)] if start <= gap.end_offset else left


def _read_through(
    cache: RemoteLogCache, epochs: Sequence[LeaderEpochEntry], log_start_offset: int
) -> tuple[list[RemoteSegment], dict[OffsetRange, RemoteSegment]]:
    """Return the segments that are read from the log start on, and the gaps, with the segment after each."""
    read: list[RemoteSegment] = []
    gaps: dict[OffsetRange, RemoteSegment] = {}
    seen: set[UUID] = set()
    offset = covered_to = log_start_offset
    while True:
        number = epoch_for_offset(epochs, offset)
        next_number = 0 if number is None else number + 1
        epoch_end = epochs[next_number].start_offset - 1 if next_number < len(epochs) else None
        segment = None if number is None else cache.find(epochs[number].epoch, offset)
        if segment is not None and number is not None:
            if segment.segment_id not in seen:
                read.append(segment)
                seen.add(segment.segment_id)
            if offset > covered_to:
                gaps[OffsetRange(start_offset=covered_to, end_offset=offset - 1)] = segment
            last = end_in_epoch(segment, epochs[number].epoch)
            offset = covered_to = (last if epoch_end is None else min(last, epoch_end)) + 1
            continue
        following = None if number is None else cache.next_start(epochs[number].epoch, offset)
        if following is not None and (epoch_end is None or following <= epoch_end):
            offset = following
        elif epoch_end is not None:
            offset = epoch_end + 1
        else:
            return read, gaps


def _overlaps(segments: Sequence[RemoteSegment]) -> dict[OffsetRange, RemoteSegment]:
    overlaps: dict[OffsetRange, RemoteSegment] = {}
    for before, after in pairwise(segments):
        first = max(before.start_offset, after.start_offset)
        last = min(before.end_offset, after.end_offset)
        if first <= last:
            overlaps[OffsetRange(start_offset=first, end_offset=last)] = after
    return overlaps
