"""Whether what follows from a log may be replaced: only if nothing says that the log is not what it was.

A log that was cut between two batches, or swapped with another, is sound by itself. That it is the wrong one is known
only from what was derived from the right one: an index whose last entry is of no batch in the log, a snapshot of other
producers, a segment that begins elsewhere. Such files are evidence. Whoever replaces them by what the wrong log gives
destroys the last trace of a loss, so they stay, and everything else of the segment with them.

A file that is missing, or malformed by itself, says nothing about its log and can be replaced. One that contradicts the
log can be, too, if the metadata topic or a manifest confirms the log's size, end and timestamps.

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
from recovery.check.rules.indexes import IndexAgreement
from segfmt.filenames import offset_index_name, time_index_name

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
_NO_INDEX = IndexAgreement(agreed_count=0, is_beyond=False, contradicts_end=False)


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
    is_contiguous: bool,
) -> str:
    """Return why nothing that follows from a segment's log is replaced, empty if it may be.

    Args:
        scanned: the segment.
        findings: all that concern it, by the part that they blame.
        row: of the segments of its partition.
        is_finished: whether its copy is complete, and its deletion was not begun.
        is_contiguous: whether offsets that are missing in its log are found.
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
    if not scanned.is_confirmed:
        is_end_known = row.begins_at(scanned.end_offset)
        evidence = _evidence(scanned, findings, is_contiguous=is_contiguous, is_end_known=is_end_known)
        if evidence:
            names = " and ".join(kind.noun for kind in evidence)
            return f"its {names} and its log contradict each other: either may be of another log"
    return ""


def _evidence(
    scanned: ScannedSegment,
    findings: Mapping[PartKind, Sequence[Finding]],
    *,
    is_contiguous: bool,
    is_end_known: bool,
) -> list[PartKind]:
    """Return the derived parts that contradict the log of a segment, though they are well-formed.

    If both indexes have entries of this very log, it is not another one; if it has no gap, and the next segment begins
    at its end, it is not cut either. An index that contradicts it is then damaged itself, if the other one agrees to
    the end, and so are the other files, if both do.
    """
    assert scanned.result is not None
    base_offset, agreements = scanned.segment.base_offset, scanned.result.agreements
    index = agreements.get(offset_index_name(base_offset), _NO_INDEX)
    time_index = agreements.get(time_index_name(base_offset), _NO_INDEX)
    is_this_log = is_contiguous and index.agreed_count > 0 and time_index.agreed_count > 0
    evidence = [
        kind
        for kind, agreement, other in (
            (PartKind.OFFSET_INDEX, index, time_index),
            (PartKind.TIME_INDEX, time_index, index),
        )
        if agreement.contradicts_end
        and not (is_this_log and not other.contradicts_end and (is_end_known or not agreement.is_beyond))
    ]
    if not is_end_known:
        # An index that ends too early was cut; or its log is a longer one than it was made from.
        evidence += [
            kind
            for kind in (PartKind.OFFSET_INDEX, PartKind.TIME_INDEX)
            if "index-sparse"
            in {found.rule for found in findings.get(kind, ()) if found.severity == "damage"}
        ]
    if is_this_log and is_end_known and not (index.contradicts_end or time_index.contradicts_end):
        return evidence
    return evidence + [kind for kind in STATEFUL if any(map(is_contradiction, findings.get(kind, ())))]
