"""How the segments of a folder are read: the role of each in its log. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from recovery.check.facts import PartitionFacts
from recovery.check.task import SegmentTask, Tail
from recovery.load.segments import first_unflushed
from segfmt.filenames import KRAFT_SNAPSHOT_SUFFIX, log_name, read_offset


def unflushed_from(facts: PartitionFacts, base_offsets: Sequence[int]) -> int:
    """Return the base offset of the first segment past the recovery point, or if none is, one that no segment has.

    Args:
        facts: of the partition.
        base_offsets: of its segments, ascending.
    """
    beyond = (base_offsets[-1] + 1) if base_offsets else 0
    if (
        not base_offsets
        or facts.is_live
        or facts.is_archived
        or (facts.had_clean_shutdown and not facts.is_metadata_log)
    ):
        return beyond
    if facts.is_metadata_log:
        return base_offsets[-1]
    point = 0 if facts.recovery_point is None else facts.recovery_point
    return max(first_unflushed(base_offsets, point), base_offsets[0])


class Standing(NamedTuple):
    """What the other files say about a segment: the same bytes are judged differently by it.

    Attributes:
        log_start_offset: that of the log, if the segment begins before it; else 0.
    """

    tail: Tail
    is_flushed: bool
    log_start_offset: int


def standing_of(facts: PartitionFacts, base_offset: int, *, is_last: bool, unflushed_from: int) -> Standing:
    """Return the standing of one segment; arguments as for `segment_task`."""
    is_flushed = base_offset < unflushed_from
    log_start_offset = facts.log_start_offset or 0
    return Standing(
        tail=_tail(facts, is_last=is_last, is_flushed=is_flushed),
        is_flushed=is_flushed,
        log_start_offset=log_start_offset if log_start_offset > base_offset else 0,
    )


def segment_task(
    facts: PartitionFacts,
    base_offset: int,
    *,
    next_base_offset: int | None,
    unflushed_from: int,
    snapshot_offsets: tuple[int, ...],
) -> SegmentTask:
    """Return the task of one segment.

    Args:
        facts: of the partition.
        base_offset: of the segment.
        next_base_offset: that of the next segment, None for the last one.
        unflushed_from: as the function of that name returns it.
        snapshot_offsets: those inside the segment, ascending.
    """
    is_last = next_base_offset is None
    standing = standing_of(facts, base_offset, is_last=is_last, unflushed_from=unflushed_from)
    return SegmentTask(
        folder=facts.path,
        base_offset=base_offset,
        log=log_name(base_offset),
        next_base_offset=next_base_offset,
        tail=standing.tail,
        is_flushed=standing.is_flushed,
        is_preallocated=facts.is_preallocated,
        may_be_preallocated=is_last,
        is_deep=facts.is_deep,
        snapshot_offsets=snapshot_offsets,
        expiration_ms=facts.expiration_ms,
        log_start_offset=standing.log_start_offset,
        is_metadata_log=facts.is_metadata_log,
    )


def other_task(facts: PartitionFacts, log: str) -> SegmentTask:
    """Return the task of what is read like a closed segment: a `.log.swap`, or a snapshot of the metadata log."""
    return SegmentTask(
        folder=facts.path,
        base_offset=0 if log.endswith(KRAFT_SNAPSHOT_SUFFIX) else read_offset(log),
        log=log,
        next_base_offset=None,
        has_indexes=False,
        is_deep=facts.is_deep,
        is_metadata_log=facts.is_metadata_log,
    )


def _tail(facts: PartitionFacts, *, is_last: bool, is_flushed: bool) -> Tail:
    if facts.is_live:
        return Tail.LIVE if is_last else Tail.CLOSED
    if not is_flushed:
        return Tail.UNCLEAN
    return Tail.LYING if is_last and facts.had_clean_shutdown else Tail.CLOSED
