"""The row of a log's segments: offsets that are missing between them, ends that are cut off, none at all. Pure.

Where a segment is missing the verdict is that of the missing file, if its snapshot or an index is left to name it;
else that of the segment before. Where a log ends too early several files have to say so: one alone may be wrong itself.

Kafka: LocalLog.roll, UnifiedLog.close, LogLoader.load.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from recovery.check.finding import Finding, Rule
from recovery.check.task import SegmentResult
from segfmt.filenames import log_name, offset_index_name, snapshot_name, time_index_name, txn_index_name

_FEWEST_WITNESSES = 2


def find_gaps(
    results: Sequence[SegmentResult], swaps: Sequence[SegmentResult], names: Collection[str]
) -> list[Finding]:
    """Return the offsets that no batch has, within segments and between them.

    Args:
        results: of the segments, ascending.
        swaps: of the `.log.swap` files that a broker would put in place.
        names: of the files in the folder.
    """
    gaps = [gap for result in results for gap in result.gaps]
    before: SegmentResult | None = None
    for result in results:
        gaps += find_gaps_before(result, before, swaps, names)
        before = result
    return gaps


def find_gaps_before(
    result: SegmentResult,
    before: SegmentResult | None,
    swaps: Sequence[SegmentResult],
    names: Collection[str],
) -> list[Finding]:
    """Return the offsets that are missing between a segment's first batch and the segment *before* it.

    Args:
        swaps, names: as for `find_gaps`.
    """
    gaps = []
    first, base = result.first_offset, result.task.base_offset
    if first is not None and first > base and (before is None or before.is_whole):
        words = f"offsets {base} to {first - 1} are missing at its start"
        gaps.append(_finding(result, "offset-gap", words, position=0))
    if before is not None and before.is_whole:
        end = _end_offset(before)
        if _swapped_in(swaps, end) < base:
            gaps.append(_gap_behind(before, end, base, names))
    return gaps


def find_lossy_swaps(results: Sequence[SegmentResult], swaps: Sequence[SegmentResult]) -> list[Finding]:
    """Return the `.log.swap` files that have fewer batches than what a broker would replace by them."""
    by_base = {result.task.base_offset: result for result in results}
    findings = []
    for swap in swaps:
        base = swap.task.base_offset
        live = by_base.get(base)
        start = base if live is None or live.first_offset is None else live.first_offset
        end = None if live is None else live.last_offset
        begins_late = swap.first_offset is not None and swap.first_offset > start
        ends_early = end is not None and (swap.last_offset is None or swap.last_offset < end)
        if swap.gaps or begins_late or ends_early:
            words = f"it would replace {log_name(base)}, and has not all of its batches"
            findings.append(Finding(file=swap.task.log, position=None, rule="swap", detail=words))
    return findings


def find_cut_ends(results: Sequence[SegmentResult], beyond: Collection[str]) -> list[Finding]:
    """Return the logs that went on once, as several other files tell.

    Args:
        beyond: the files that know of offsets behind the end of the last segment, its indexes aside.
    """
    findings = []
    for number, result in enumerate(results):
        is_last = number == len(results) - 1
        witnesses = sorted({*result.indexes_beyond, *(beyond if is_last else ())})
        if result.is_whole and len(witnesses) >= _FEWEST_WITNESSES:
            words = (
                f"the log ends at offset {_end_offset(result)}, {' and '.join(witnesses)} know of later ones"
            )
            findings.append(_finding(result, "cut-end", words, position=_size(result)))
    return findings


def find_no_segment(start_offset: int, *, has_traces: bool) -> Finding:
    """Return that a folder has no segment; a note where nothing says that there was one."""
    words = f"the folder has no segment: a broker makes an empty one at offset {start_offset}"
    return Finding(
        file=log_name(start_offset),
        position=None,
        rule="no-segment",
        detail=words,
        severity="damage" if has_traces else "note",
    )


def _gap_behind(before: SegmentResult, end: int, base: int, names: Collection[str]) -> Finding:
    words = f"offsets {end} to {base - 1} are missing before the next segment"
    makers = (snapshot_name, offset_index_name, time_index_name, txn_index_name)
    has_traces = log_name(end) not in names and any(name_of(end) in names for name_of in makers)
    if before.last_offset is not None and has_traces:
        found = _finding(before, "offset-gap", f"the file is missing: {words}")
        return replace(found, file=log_name(end))
    return _finding(before, "offset-gap", words, position=_size(before))


def _swapped_in(swaps: Sequence[SegmentResult], end: int) -> int:
    """Return how far a log goes behind *end* once a broker has put its `.log.swap` files in place."""
    for swap in sorted(swaps, key=lambda one: one.task.base_offset):
        if swap.task.base_offset <= end and swap.last_offset is not None:
            end = max(end, swap.last_offset + 1)
    return end


def _end_offset(result: SegmentResult) -> int:
    return result.task.base_offset if result.last_offset is None else result.last_offset + 1


def _size(result: SegmentResult) -> int:
    return result.checked_bytes.get(result.task.log, 0)


def _finding(result: SegmentResult, rule: Rule, words: str, *, position: int | None = None) -> Finding:
    return Finding(
        file=result.task.log,
        position=position,
        rule=rule,
        detail=words,
        is_flushed=result.task.is_flushed,
    )
