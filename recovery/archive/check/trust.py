"""Whether what follows from a log may be replaced: only if nothing says that the log is not what it was.

A log that was cut between two batches, or swapped with another, is sound by itself. That it is the wrong one is known
only from what was derived from the right one: an index whose last entry is of no batch in the log, a snapshot of other
producers, a segment that begins elsewhere. Such files are evidence. Whoever replaces them by what the wrong log gives
destroys the last trace of a loss, so they stay, and everything else of the segment with them.

A file that is missing, or malformed by itself, says nothing about its log, and can be replaced. One that contradicts
the log never is, whatever else speaks for the log: that sizes, ends and neighbours agree shows how long the log is, not
that its batches are the right ones.

Pure: results of scans and findings in, reasons out.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from recovery.archive.check.scanned import ScannedSegment
from recovery.archive.stores.archived import PartKind
from recovery.check.finding import Finding
from recovery.check.rules.blame import is_contradiction
from segfmt.filenames import offset_index_name, read_offset, time_index_name

DERIVED: tuple[PartKind, ...] = (
    PartKind.OFFSET_INDEX,
    PartKind.TIME_INDEX,
    PartKind.TXN_INDEX,
    PartKind.SNAPSHOT,
    PartKind.LEADER_EPOCHS,
)
"""What can be rebuilt from a log and what precedes it."""
STATEFUL: tuple[PartKind, ...] = (PartKind.TXN_INDEX, PartKind.SNAPSHOT, PartKind.LEADER_EPOCHS)
"""Those of them that follow from earlier logs as well."""


class Row:
    """The segments of a partition by offset: which offsets they have.

    Args:
        scanned: in the order of base offsets.
        gone: first and last offsets of what is deleted or below the log start.
    """

    def __init__(self, scanned: Sequence[ScannedSegment], gone: Iterable[tuple[int, int]]) -> None:
        self._bases = [segment.segment.base_offset for segment in scanned]
        ends = (
            segment.segment.base_offset if segment.end_offset is None else segment.end_offset
            for segment in scanned
        )
        self._ends = list(accumulate(ends, max))
        self._gone = tuple(gone)

    def begins_at(self, offset: int) -> bool:
        """Return whether a segment begins at *offset*."""
        count = bisect_right(self._bases, offset)
        return bool(count) and self._bases[count - 1] == offset

    def is_continued(self, end_offset: int) -> bool:
        """Return whether another segment has *end_offset*, or none has a later one, or it is known to be gone."""
        count = bisect_right(self._bases, end_offset)
        if count == len(self._bases) or self.begins_at(end_offset):
            return True
        has_it = bool(count) and self._ends[count - 1] > end_offset
        return has_it or any(first <= end_offset <= last for first, last in self._gone)


def obstacle_of(
    scanned: ScannedSegment,
    findings: Mapping[PartKind, Sequence[Finding]],
    row: Row,
    *,
    is_finished: bool,
    is_tiered: bool,
) -> str:
    """Return why nothing that follows from a segment's log is replaced, empty if it may be.

    Args:
        scanned: the segment.
        findings: all that concern it, by the part that they blame.
        row: of the segments of its partition.
        is_finished: whether its copy is complete, and its deletion was not begun.
        is_tiered: whether it is of tiered storage; else the names of snapshots are their offsets.
    """
    if scanned.result is None or not scanned.result.is_whole or scanned.end_offset is None:
        return "its log could not be read to the end"
    if any(finding.severity != "note" for finding in findings.get(PartKind.LOG, ())):
        return "its log is damaged, and what contradicts it is evidence"
    if not is_finished:
        return (
            "no broker reads it: its copy or its deletion is not finished, or the metadata does not know it"
        )
    if not row.is_continued(scanned.end_offset):
        return "offsets after its end are missing, so its log may have been cut"
    if not is_tiered and _is_beyond(scanned, scanned.end_offset):
        return "a snapshot was taken at a later offset than its end, so its log may have been cut"
    evidence = _evidence(scanned, findings, is_end_known=row.begins_at(scanned.end_offset))
    if evidence:
        names = " and ".join(kind.noun for kind in evidence)
        return f"its {names} and its log contradict each other: either may be of another log"
    return ""


def _evidence(
    scanned: ScannedSegment, findings: Mapping[PartKind, Sequence[Finding]], *, is_end_known: bool
) -> list[PartKind]:
    """Return the derived parts that contradict the log of a segment, though they are well-formed."""
    assert scanned.result is not None
    base_offset, agreements = scanned.segment.base_offset, scanned.result.agreements
    names = {
        PartKind.OFFSET_INDEX: offset_index_name(base_offset),
        PartKind.TIME_INDEX: time_index_name(base_offset),
    }
    evidence = []
    for kind in DERIVED:
        of_kind = [finding for finding in findings.get(kind, ()) if finding.severity == "damage"]
        if kind in names:
            agreement = agreements.get(names[kind])
            contradicts = agreement is not None and agreement.contradicts
            # One that ends too early was cut; or its log is a longer one than it was made from.
            contradicts |= not is_end_known and any(finding.rule == "index-sparse" for finding in of_kind)
        else:
            contradicts = any(map(is_contradiction, of_kind))
        if contradicts:
            evidence.append(kind)
    return evidence


def _is_beyond(scanned: ScannedSegment, end_offset: int) -> bool:
    """Return whether a plain segment has a snapshot, by its name, past the end of its log."""
    segment = scanned.segment
    named = segment.parts.get(PartKind.SNAPSHOT)
    offsets = [*segment.snapshots, *([read_offset(named.name)] if named is not None else [])]
    return any(offset > end_offset for offset in offsets)
