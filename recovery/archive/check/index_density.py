"""Offset indexes that have fewer entries than `index.interval.bytes` of the topic asks for: it may have been another.

A topic has the setting that it has now; the broker went by the one of that time. What the next sound index with entries
shows of it, before or after, is believed; and where neighbours lack entries alike, that is the setting rather than
damage, as in a topic of little traffic, whose segments are all smaller than the interval.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from recovery.archive.check.scanned import ScannedSegment
from recovery.check.finding import Finding
from recovery.check.rules.indexes import IndexAgreement
from segfmt.filenames import offset_index_name

_PASSES_OVER = "an index next to it passes over as many bytes, so index.interval.bytes was another one"
_AS_SPARSE = "so has the one next to it, so index.interval.bytes was probably another one"


def excuse_other_intervals(segments: Sequence[ScannedSegment]) -> None:
    """Make notes of what is missing at the end of offset indexes, where their neighbours show another interval.

    Args:
        segments: of a partition, in the order of base offsets; their findings are changed.
    """
    agreements = [_agreement(scanned) for scanned in segments]
    before, after = list(_known(agreements)), [*_known(agreements[::-1])][::-1]
    sparse = [False, *(_find_sparse(scanned) is not None for scanned in segments), False]
    for number, (scanned, agreement) in enumerate(zip(segments, agreements, strict=True)):
        found = _find_sparse(scanned)
        if scanned.result is None or agreement is None or found is None:
            continue
        if max(before[number], after[number]) >= agreement.rest_bytes:
            why = _PASSES_OVER
        elif sparse[number] or sparse[number + 2]:
            why = _AS_SPARSE
        else:
            continue
        place = scanned.result.findings.index(found)
        scanned.result.findings[place] = replace(found.as_note(), detail=f"{found.detail}; {why}")


def _find_sparse(scanned: ScannedSegment) -> Finding | None:
    """Return the finding that entries are missing at the end of a segment's offset index, if it is damage."""
    name = offset_index_name(scanned.segment.base_offset)
    findings = () if scanned.result is None else scanned.result.findings
    return next(
        (
            finding
            for finding in findings
            if (finding.file, finding.rule, finding.severity) == (name, "index-sparse", "damage")
        ),
        None,
    )


def _agreement(scanned: ScannedSegment) -> IndexAgreement | None:
    name = offset_index_name(scanned.segment.base_offset)
    return None if scanned.result is None else scanned.result.agreements.get(name)


def _known(agreements: Iterable[IndexAgreement | None]) -> Iterator[int]:
    """Yield for each index how many bytes the last sound one with entries before it passes over; 0 without one."""
    step_bytes = 0
    for agreement in agreements:
        yield step_bytes
        if agreement is not None and agreement.step_bytes:
            step_bytes = agreement.step_bytes
