"""The segments of a log together: offsets missing between them, ends that are cut off, or no segment at all. Pure.

If a segment is missing, the finding names the missing file, provided that its snapshot or an index is left; else the
segment before. That a log ends too early must be said by several files: one alone may be wrong itself.

Kafka: LocalLog.roll, UnifiedLog.close, LogLoader.load.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import replace

from recovery.check.finding import Finding, Rule
from recovery.check.task import SegmentResult
from segfmt.filenames import log_name, offset_index_name, snapshot_name, time_index_name, txn_index_name

_FEWEST_WITNESSES = 2


def find_gaps(
    results: Sequence[SegmentResult],
    swaps: Sequence[SegmentResult],
    names: Collection[str],
    unread: Sequence[int] = (),
) -> list[Finding]:
    """Return the offsets that no batch has, within segments and between them.

    Args:
        results: those of the segments, ascending.
        swaps: those of the `.log.swap` files that a broker would put in place.
        names: names of the files in the folder.
        unread: base offsets, ascending, of segments that could not be read: they may have what others lack.
    """
    gaps = [gap for result in results for gap in result.gaps]
    before: SegmentResult | None = None
    for result in results:
        base = result.task.base_offset
        if before is not None and bisect_left(unread, before.task.base_offset) < bisect_left(unread, base):
            before = None
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
    first_offset, base = result.first_offset, result.task.base_offset
    if first_offset is not None and first_offset > base and (before is None or before.is_whole):
        detail = f"offsets {base} to {first_offset - 1} are missing at its start"
        gaps.append(_finding(result, "offset-gap", detail, position=0))
    if before is not None and before.is_whole:
        end = _end_offset(before)
        if _swapped_in(swaps, end) < base:
            gaps.append(_gap_after(before, end, base, names))
    return gaps


def find_lossy_swaps(results: Sequence[SegmentResult], swaps: Sequence[SegmentResult]) -> list[Finding]:
    """Return the `.log.swap` files that have fewer batches than the segments a broker would replace with them."""
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
            detail = f"it would replace {log_name(base)}, but does not have all of its batches"
            findings.append(Finding(file=swap.task.log, position=None, rule="swap", detail=detail))
    return findings


def find_cut_ends(results: Sequence[SegmentResult], beyond: Collection[str]) -> list[Finding]:
    """Return the logs that once had later offsets, according to several other files.

    Args:
        beyond: the files other than its indexes that know of offsets past the end of the last segment.
    """
    findings = []
    for number, result in enumerate(results):
        is_last = number == len(results) - 1
        witnesses = sorted({*result.indexes_beyond, *(beyond if is_last else ())})
        if result.is_whole and len(witnesses) >= _FEWEST_WITNESSES:
            detail = f"the log ends at offset {_end_offset(result)}, but {' and '.join(witnesses)} know of later ones"
            findings.append(_finding(result, "cut-end", detail, position=_size(result)))
    return findings


def find_no_segment(start_offset: int, *, has_traces: bool) -> Finding:
    """Return that a folder has no segment: a note if nothing says that there was one."""
    detail = f"the folder has no segment: a broker makes an empty one at offset {start_offset}"
    return Finding(
        file=log_name(start_offset),
        position=None,
        rule="no-segment",
        detail=detail,
        severity="damage" if has_traces else "note",
    )


def _gap_after(before: SegmentResult, end: int, base: int, names: Collection[str]) -> Finding:
    if before.last_offset is None:
        detail = f"offsets {end} to {base - 1} are not found by a broker: it looks for them here, and there is no batch"
    else:
        detail = f"offsets {end} to {base - 1} are missing before the next segment"
    makers = (snapshot_name, offset_index_name, time_index_name, txn_index_name)
    has_traces = log_name(end) not in names and any(name_of(end) in names for name_of in makers)
    if before.last_offset is not None and has_traces:
        finding = _finding(before, "offset-gap", f"the file is missing: {detail}")
        return replace(finding, file=log_name(end))
    return _finding(before, "offset-gap", detail, position=_size(before))


def _swapped_in(swaps: Sequence[SegmentResult], end: int) -> int:
    """Return the end offset of a log that ends at *end*, once a broker has put its `.log.swap` files in place."""
    for swap in sorted(swaps, key=lambda result: result.task.base_offset):
        if swap.task.base_offset <= end and swap.last_offset is not None:
            end = max(end, swap.last_offset + 1)
    return end


def _end_offset(result: SegmentResult) -> int:
    return result.task.base_offset if result.last_offset is None else result.last_offset + 1


def _size(result: SegmentResult) -> int:
    return result.checked_bytes.get(result.task.log, 0)


def _finding(result: SegmentResult, rule: Rule, detail: str, *, position: int | None = None) -> Finding:
    return Finding(
        file=result.task.log,
        position=position,
        rule=rule,
        detail=detail,
        is_flushed=result.task.is_flushed,
    )
