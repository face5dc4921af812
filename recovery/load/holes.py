"""Offsets that a broker does not find: missing from what was read, or hidden by a later segment; or there twice. Pure.

A broker notices none of it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import chain, islice, pairwise, zip_longest

from recovery.load.model import BatchSpan, Cut, FileStat, Hole, PartitionTask
from recovery.load.segments import Segment, live_bases, log_base_offsets, misnamed_logs, pending_bases
from recovery.load.stops import (
    words_of_a_missing_end,
    words_of_an_acknowledged_cut,
    words_of_an_older_mark,
)
from segfmt import byte_layout
from segfmt.filenames import DELETED_SUFFIX, SWAP_SUFFIX, log_name, read_offset
from segfmt.java_text import LONG_MAX

_MOST_HOLES = 100


def look_for_holes(
    task: PartitionTask,
    segments: Iterable[Segment],
    batches_of: Callable[[str], Iterable[BatchSpan]],
    is_empty: Callable[[Segment], bool],
    cuts: Sequence[Cut],
    orphaned_indexes: Iterable[str],
) -> tuple[tuple[Hole, ...], tuple[str, ...]]:
    """Return the holes of a log, and warnings; holes are only warned of if the log may be a compacted one.

    Of a compacted log those of lost segments are known, no others.

    Args:
        segments, batches_of: as for `find_holes`.
        is_empty: whether a segment has no byte.
        cuts: what this load has taken out, which is not a hole.
        orphaned_indexes: index files without a log.
    """
    segments = tuple(segments)
    lost = tuple(find_lost(task, segments, orphaned_indexes))
    is_compacted = None if task.is_stray_folder else task.settings.is_compacted
    if is_compacted:
        return lost, ()
    floor_offset = max(task.log_start_offset, task.cleaned_offset)
    there = (one for one in segments if not _is_made_of_misnamed(one, task.files))
    all_holes = chain(
        lost,
        find_cut_out(segments, task.files, floor_offset, batches_of),
        find_holes(there, floor_offset, batches_of),
        find_hidden(segments, floor_offset, is_empty),
    )
    holes = tuple(islice((left for hole in all_holes for left in _without(hole, cuts)), _MOST_HOLES))
    more = (
        (f"only the first {_MOST_HOLES} holes are reported; there may be more",)
        if len(holes) == _MOST_HOLES
        else ()
    )
    if is_compacted is None:
        doubt = "whether the topic is compacted is not known"
        if not task.is_stray_folder:  # no setting is about it
            doubt += ". Remedy: tell it by --topic-config (cleanup.policy)"
        return (), (*more, *(f"{hole}; {doubt}" for hole in holes))
    return holes, more


def find_lost(
    task: PartitionTask, segments: Sequence[Segment], orphaned_indexes: Iterable[str]
) -> Iterator[Hole]:
    """Yield the offsets of segments whose `.log` is gone, or no file: indexes are left, or a folder is in its place.

    A broker that deletes a segment renames its log first, and all its files before it unlinks any; so does the cleaner.
    What lies between two recovered segments is left to `find_holes`, unless the log is a compacted one.

    Args:
        segments: of the log, ascending.

    Kafka: LogSegment.changeFileSuffixes, LogSegment.deleteIfExists.
    """
    lost = [*_lost_bases(task, orphaned_indexes), *log_base_offsets(task.others).values()]
    first = segments[0].base_offset
    yield from _hole(min(lost, default=LONG_MAX), first, segments[0], task.log_start_offset)
    is_all = bool(task.settings.is_compacted)
    yield from _between(segments, lost, task.log_start_offset, is_all=is_all)


def _between(
    segments: Sequence[Segment], lost: Sequence[int], floor_offset: int, *, is_all: bool
) -> Iterator[Hole]:
    """Yield the offsets from each first base of *lost* between two segments on, up to the second of these.

    Args:
        is_all: whether also between segments that were both recovered, which `find_holes` compares.
    """
    bases = sorted(lost)
    for segment, following in pairwise(segments) if lost else ():
        first = _first_between(bases, segment.base_offset, following.base_offset)
        if first is not None and (is_all or segment.scan is None or following.scan is None):
            yield from _hole(first, following.base_offset, following, floor_offset)


def _lost_bases(task: PartitionTask, orphaned_indexes: Iterable[str]) -> list[int]:
    """Return the base offsets of segments of which only indexes are left, though no broker was deleting them."""
    bases = map(read_offset, orphaned_indexes)
    return [base for base in bases if log_name(base, DELETED_SUFFIX) not in task.files]


def warn_of_lost_segments(
    task: PartitionTask, log_end_offset: int, orphaned_indexes: Iterable[str]
) -> Iterator[str]:
    """Yield a warning if indexes of segments behind the log are left: what those held is not known."""
    lost = [base for base in _lost_bases(task, orphaned_indexes) if base >= log_end_offset]
    if lost:
        yield (
            f"the log ends at offset {log_end_offset}, but of a segment from offset {min(lost)} on the indexes are "
            "left without it: what it held is gone. Remedy: compare with the other replicas"
        )


def missing_end(
    task: PartitionTask, log_end_offset: int, last_log: str, tail: tuple[int, int], cuts: Sequence[Cut]
) -> tuple[tuple[Hole, ...], tuple[str, ...]]:
    """Return the offsets that a log had by its log dir's checkpoints, and has no more; and a warning that tells why.

    Only for moments they may tell so of a sound log, too: a follower that truncates its log to its leader's writes the
    recovery points again afterwards.

    Args:
        last_log: the last segment's `.log`.
        tail: where the batches in it end, and how many bytes follow that a broker does not see.
        cuts: what this load has taken out, which is not a hole.
    """
    if log_end_offset >= task.known_end_offset:
        return (), words_of_an_older_mark(task, log_end_offset)
    first_offset = _end_of_cuts(cuts, log_end_offset)
    if first_offset is None:  # the cut is told, and the warning how far it may have gone
        return (), words_of_a_missing_end(task, log_end_offset, is_hole=False)
    if first_offset >= task.known_end_offset:
        return (), words_of_an_acknowledged_cut(task, log_end_offset)
    position, hidden_bytes = tail
    hole = Hole(
        first_offset=first_offset,
        last_offset=task.known_end_offset - 1,
        before=last_log,
        position=position + hidden_bytes,
        is_hidden=hidden_bytes > 0,
        is_at_end=not hidden_bytes,
    )
    return (hole,), words_of_a_missing_end(task, log_end_offset, is_hole=True)


def _end_of_cuts(cuts: Iterable[Cut], log_end_offset: int) -> int | None:
    """Return the first offset behind those that were cut from *log_end_offset* on; None if it is not known."""
    of_end = [cut for cut in cuts if not (cut.is_preallocated or 0 <= cut.first_offset < log_end_offset)]
    if not of_end:
        return log_end_offset
    last = max(of_end, key=lambda cut: cut.first_offset)
    is_known = min(cut.first_offset for cut in of_end) >= 0 and last.known_last_offset >= 0
    return last.known_last_offset + 1 if is_known else None


def find_holes(
    segments: Iterable[Segment], floor_offset: int, batches_of: Callable[[str], Iterable[BatchSpan]]
) -> Iterator[Hole]:
    """Yield the offsets from *floor_offset* on that are missing from recovered segments, or before them.

    Args:
        segments: of the log, ascending. What is missing after one that was not recovered is not known.
        batches_of: returns the batches of a `.log`; called if a scan has found a gap.
    """
    end_offset: int | None = None  # of what was read without a break up to here
    last: Segment | None = None
    for segment in segments:
        if segment.scan is None:
            end_offset = None
        elif segment.scan.batch_count:
            start = _start_of(segment)
            if start <= segment.scan.last_offset:  # else it is a damaged base offset: see `find_disorder`
                expected = segment.base_offset if end_offset is None else end_offset
                around = (segment,) if last is None or end_offset is None else (last, segment)
                if expected < start and not any(_was_compacted(one, batches_of) for one in around):
                    yield from _hole(expected, start, segment, floor_offset)
            end_offset = segment.scan.last_offset + 1
            if segment.scan.gap_count:
                yield from _inner_holes(segment.log, floor_offset, batches_of(segment.log))
        last = segment
    if last is not None and end_offset is not None and last.scan is not None and not last.scan.batch_count:
        yield from _hole(end_offset, last.base_offset, last, floor_offset)  # the active segment is empty


def _was_compacted(segment: Segment, batches_of: Callable[[str], Iterable[BatchSpan]]) -> bool:
    """Return whether a batch shows that *segment* was once compacted: offsets may be missing around it, too."""
    return any(batch.has_compacted for batch in batches_of(segment.log))


def find_hidden(
    segments: Sequence[Segment], floor_offset: int, is_empty: Callable[[Segment], bool]
) -> Iterator[Hole]:
    """Yield the offsets from *floor_offset* on that a broker looks for in a segment that has none of them.

    It takes the last segment that begins at or before an offset, and goes on to later ones; so of the segment before,
    all offsets from there on are hidden. Where that one was not recovered, its end is not known: of what an empty
    segment has in place of them, all up to the next segment counts.

    Args:
        segments: of the log, ascending.
        is_empty: whether a segment has no byte.

    Kafka: LocalLog.read, LogSegments.floorSegment.
    """
    end_offset: int | None = None  # of all before; None if it is not known
    for segment, following in zip_longest(segments, segments[1:]):
        scan = segment.scan
        has_batches = scan is not None and scan.batch_count and _start_of(segment) <= scan.last_offset
        if not (has_batches or is_empty(segment)):
            end_offset = None
            continue
        bounds = (
            end_offset,
            None if following is None else following.base_offset,
            _start_of(segment) if has_batches else None,
        )
        known = [bound for bound in bounds if bound is not None]
        is_found = has_batches and end_offset is None  # by `find_holes`
        if known and not is_found:
            yield from _hole(segment.base_offset, min(known), segment, floor_offset, is_hidden=True)
        if scan is not None and has_batches:
            end_offset = max(end_offset or 0, scan.last_offset + 1)


def find_cut_out(
    segments: Sequence[Segment],
    files: Mapping[str, FileStat],
    floor_offset: int,
    batches_of: Callable[[str], Iterable[BatchSpan]],
) -> Iterator[Hole]:
    """Yield the offsets from *floor_offset* on of segments that were pending deletion while later ones were not.

    A broker that truncates a log renames the segments in order. Killed meanwhile, it leaves those behind in place, and
    loads them at the next start. What lies between two recovered segments is left to `find_holes`.

    Args:
        segments: of the log, ascending.
        files: what was in the folder.
        batches_of: returns the batches of a `.log`; called if it was not recovered, and one behind it is pending.

    Kafka: LocalLog.truncateTo, LocalLog.removeAndDeleteSegments.
    """
    pending = pending_bases(files)
    left = {segment.base_offset: segment for segment in segments} if pending else {}
    for base, following in pairwise(live_bases(files)) if pending else ():
        first_pending = _first_between(pending, base, following)
        scans = [left[one].scan if one in left else None for one in (base, following)]
        if first_pending is not None and None in scans:
            known_end = _end_of(left[base], batches_of) if base in left else 0
            first_offset = max(first_pending, known_end, floor_offset)
            if first_offset < following:
                yield Hole(first_offset=first_offset, last_offset=following - 1, before=log_name(following))


def _first_between(bases: Sequence[int], base: int, following: int) -> int | None:
    """Return the first of *bases*, ascending, that is above *base* and below *following*."""
    at = bisect_right(bases, base)
    return bases[at] if at < len(bases) and bases[at] < following else None


def _end_of(segment: Segment, batches_of: Callable[[str], Iterable[BatchSpan]]) -> int:
    """Return the offset behind the last batch of *segment*, by its headers if it was not recovered; 0 without any."""
    if segment.scan is not None:
        return segment.scan.last_offset + 1
    return max((batch.last_offset + 1 for batch in batches_of(segment.log)), default=0)


def bases_of_missing(
    task: PartitionTask,
    segments: Sequence[Segment],
    holes: Collection[Hole],
    log_end_offset: int,
    batches_of: Callable[[str], Iterable[BatchSpan]],
) -> frozenset[int]:
    """Return the base offsets of segments that are pending deletion and may hold what no other segment has.

    Those that a broker was to delete because they are old, or compacted into others, do not.

    Args:
        segments: of the log, ascending.
        batches_of: as of `find_cut_out`.
    """
    end_of = cache(partial(_end_of, batches_of=batches_of))
    pending = [] if task.is_delete_folder else pending_bases(task.files)
    live = live_bases(task.files) if pending else []
    floor_offset = max(task.log_start_offset, task.cleaned_offset)
    compacted = _compacted_into(task) if pending else frozenset()
    kept = set()
    for base in pending:
        at = bisect_left(live, base)
        is_between = 0 < at < len(live) and live[at] != base
        is_behind = at == len(live) and log_end_offset <= base < task.known_end_offset
        if (
            (is_between or is_behind)
            and base >= floor_offset
            and not _is_covered(segments, base, compacted, end_of)
        ):
            kept.add(base)
    for hole in holes:
        count = bisect_right(live, hole.first_offset)  # of those that begin up to there
        kept |= {base for base in pending if base <= hole.last_offset and bisect_right(live, base) >= count}
    return frozenset(kept)


def _compacted_into(task: PartitionTask) -> frozenset[int]:
    """Return the base offsets of segments that may have taken the place of several.

    The cleaner makes one of them, with the base offset of the first, which is pending deletion as well.

    Kafka: Cleaner.cleanSegments, LocalLog.replaceSegments.
    """
    if task.settings.is_compacted is False and not task.is_stray_folder:
        return frozenset()
    stems = (
        name.removesuffix(suffix)
        for name in task.files
        for suffix in (DELETED_SUFFIX, SWAP_SUFFIX)
        if name.endswith(suffix)
    )
    return frozenset(log_base_offsets(stems).values())


def _is_covered(
    segments: Sequence[Segment], offset: int, compacted: Collection[int], end_of: Callable[[Segment], int]
) -> bool:
    """Return whether the segment in which a broker looks for *offset* goes on to it, or is one of *compacted*."""
    at = bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1
    if at < 0:
        return False
    return segments[at].base_offset in compacted or end_of(segments[at]) > offset


def find_disorder(segments: Iterable[Segment]) -> Iterator[str]:
    """Yield a warning on each recovered segment that does not begin behind the one before it, and before its own end.

    A broker takes all of it.

    Args:
        segments: of the log, ascending.
    """
    last: Segment | None = None
    for segment in segments:
        if segment.scan is None or not segment.scan.batch_count:
            last = None if segment.scan is None else last
            continue
        start = _start_of(segment)
        if start > segment.scan.last_offset:
            yield (
                f"{segment.log} begins at offset {start}, but ends at {segment.scan.last_offset}: the base offset of a "
                "batch, which no checksum covers, is damaged. Remedy: compare with another replica"
            )
        elif last is not None and last.scan is not None and start <= last.scan.last_offset:
            yield (
                f"{segment.log} begins at offset {start}, but {last.log} goes on to {last.scan.last_offset}: a broker "
                "takes both. Remedy: if somebody has put one of them there, take the recovery back with undo, move it "
                "away and recover again; else compare with another replica"
            )
        last = segment


def _start_of(segment: Segment) -> int:
    return segment.base_offset if segment.first_offset is None else segment.first_offset


def _is_made_of_misnamed(segment: Segment, files: Collection[str]) -> bool:
    """Return whether *segment* is the empty one that a broker makes of `40.log`: nothing has been there.

    Args:
        files: what was in the folder.
    """
    is_empty = segment.scan is not None and not segment.scan.batch_count
    return is_empty and segment.log not in files and segment.log in misnamed_logs(files).values()


def _without(hole: Hole, cuts: Sequence[Cut]) -> list[Hole]:
    """Return the parts of *hole* that none of *cuts* covers."""
    left = [hole]
    for cut in cuts:
        if 0 <= cut.first_offset <= cut.last_offset:
            before = [replace(part, last_offset=min(part.last_offset, cut.first_offset - 1)) for part in left]
            after = [replace(part, first_offset=max(part.first_offset, cut.last_offset + 1)) for part in left]
            pairs = zip(before, after, strict=True)
            left = [part for pair in pairs for part in pair if part.first_offset <= part.last_offset]
    return left


def _hole(
    end_offset: int, start_offset: int, segment: Segment, floor_offset: int, *, is_hidden: bool = False
) -> Iterator[Hole]:
    first = max(end_offset, floor_offset)
    if first < start_offset:
        yield Hole(first_offset=first, last_offset=start_offset - 1, before=segment.log, is_hidden=is_hidden)


def _inner_holes(log: str, floor_offset: int, batches: Iterable[BatchSpan]) -> list[Hole]:
    """Return the offsets that are missing between *batches*; none if a batch shows that *log* was once compacted.

    The headers of messages, magic 0 and 1, need not hold the base offset.
    """
    holes: list[Hole] = []
    end_offset: int | None = None
    for batch in batches:
        if batch.has_compacted:
            return []
        first = batch.base_offset if end_offset is None else max(end_offset, floor_offset)
        if first < batch.base_offset and batch.magic >= byte_layout.MAGIC_V2:
            holes.append(
                Hole(
                    first_offset=first,
                    last_offset=batch.base_offset - 1,
                    before=log,
                    position=batch.position,
                )
            )
        end_offset = batch.last_offset + 1
    return holes
