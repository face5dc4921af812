"""Offset indexes that have fewer entries than `index.interval.bytes` of the topic asks for: it may have been another.

A topic has the setting that it has now; the broker went by the one of that time. What the next sound index with entries
shows of it, before or after, is believed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from recovery.archive.check.scanned import ScannedSegment
from recovery.check.rules.indexes import IndexAgreement
from segfmt.filenames import offset_index_name

_WHY = "an index next to it passes over as many bytes, so index.interval.bytes was another one"


def excuse_other_intervals(segments: Sequence[ScannedSegment]) -> None:
    """Make notes of what is missing at the end of offset indexes, where the one before or after passes over as much.

    Args:
        segments: of a partition, in the order of base offsets; their findings are changed.
    """
    agreements = [_agreement(scanned) for scanned in segments]
    before, after = list(_known(agreements)), [*_known(agreements[::-1])][::-1]
    for scanned, agreement, *known_bytes in zip(segments, agreements, before, after, strict=True):
        if scanned.result is None or agreement is None or max(known_bytes) < agreement.rest_bytes:
            continue
        name = offset_index_name(scanned.segment.base_offset)
        scanned.result.findings = [
            replace(finding.as_note(), detail=f"{finding.detail}; {_WHY}")
            if (finding.file, finding.rule, finding.severity) == (name, "index-sparse", "damage")
            else finding
            for finding in scanned.result.findings
        ]


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
