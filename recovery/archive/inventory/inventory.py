"""The inventory of one partition of an archive: what is expected of it, and what lies there. Pure.

What is expected comes from the metadata topic (`remote_cache`), where it is at hand; what lies there from the listing,
names and sizes alone. Each segment of either gets one `SegmentStatus`; finished ones that are known also get their
place in the lineage (`lineage`). Segments on their way are no damage: a broker goes on with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple
from uuid import UUID

from recovery.archive.inventory.entry import (
    Expectation,
    InventoryEntry,
    LineagePlace,
    PartitionInventory,
    SegmentStatus,
)
from recovery.archive.layouts.layout import Layout
from recovery.archive.remote.lineage import (
    Lineage,
    OffsetRange,
    cut_epochs,
    derive_epochs,
    merge_ranges,
    subtract_ranges,
    trace_lineage,
)
from recovery.archive.remote.remote_cache import RemoteLogCache
from recovery.archive.stores.archived import ArchivedSegment, PartKind
from recovery.archive.stores.segment_table import ArchivedPartition, SegmentTable, parts_in
from recovery.check.finding import Finding, Rule, Severity
from segfmt.errors import FormatError
from segfmt.kafka_uuid import format_uuid, read_uuid
from segfmt.remote_log_metadata import RemoteSegment, RemoteSegmentState

RULES_OF_READING = frozenset({"missing-object", "object-size", "overlap"})
"""Rules that whoever reads the segments finds broken, too."""


def take_inventory(
    archived: ArchivedPartition, layout: Layout, expected: Expectation | None = None
) -> PartitionInventory:
    """Return what is to be said of a partition.

    Args:
        archived: what was listed; without segments, of a partition that has no prefix at all.
        layout: of the archive.
        expected: nothing is known beside the objects if it is left out.
    """
    expected = expected or Expectation()
    if expected.cache is None:
        found = _by_names(archived, layout)
    else:
        found = _Comparison(archived, layout, expected, expected.cache).compare()
    return replace(found, findings=(*found.findings, *_foreign(archived, layout)))


def _foreign(archived: ArchivedPartition, layout: Layout) -> tuple[Finding, ...]:
    """Return a note of each object that no broker has put there; a broker's own folder has files of other kinds."""
    words = "its name is not that of a segment's part"
    return tuple(
        Finding(file=one.name, position=None, rule="foreign-file", detail=words, severity="note")
        for one in (archived.others if layout.is_tiered else ())
    )


class _Listed(NamedTuple):
    """What lies there of one segment."""

    base_offset: int
    segment_id: str
    present: frozenset[PartKind] = frozenset()
    log_bytes: int = 0
    size_bytes: int = 0


def _listed(segments: SegmentTable) -> Iterator[_Listed]:
    """Yield what lies there of each of *segments*."""
    return map(
        _Listed,
        segments.base_offsets,
        segments.segment_ids,
        map(parts_in, segments.shapes()),
        segments.part_bytes(PartKind.LOG),
        segments.size_bytes(),
    )


def _by_names(archived: ArchivedPartition, layout: Layout) -> PartitionInventory:
    """Return what names alone tell: parts that are missing, offsets that are there twice."""
    entries: list[InventoryEntry] = []
    findings: list[Finding] = []
    for segment in _listed(archived.segments):
        status = SegmentStatus.ARCHIVED
        if not segment.present >= layout.required_parts:
            status, finding = _incomplete(layout, segment)
            findings.append(finding)
        if entries and segment.segment_id and entries[-1].base_offset == segment.base_offset:
            words = f"segment {entries[-1].segment_id} begins at the same offset"
            findings.append(_finding(layout, segment, "duplicate", words, severity="note"))
        entries.append(_entry(segment, status))
    return PartitionInventory(entries=tuple(entries), findings=tuple(findings))


def _incomplete(layout: Layout, segment: _Listed) -> tuple[SegmentStatus, Finding]:
    """Return what is to be said of a segment that lacks parts, as far as names tell."""
    missing = layout.required_parts - segment.present
    last = layout.last_part
    if last is None or last not in missing:
        return SegmentStatus.INCOMPLETE, _missing_parts(layout, segment, missing, "damage")
    words = (
        f"there is no {last.noun}: its upload or its deletion was not finished, or the {last.noun} is lost"
    )
    return (
        SegmentStatus.COPY_STARTED,
        _finding(layout, segment, "interrupted-copy", words, severity="note"),
    )


class _Comparison:
    """What is expected of a partition against what is there."""

    def __init__(
        self, archived: ArchivedPartition, layout: Layout, expected: Expectation, cache: RemoteLogCache
    ) -> None:
        self._archived = archived
        self._layout = layout
        self._expected = expected
        self._cache = cache
        self._findings: list[Finding] = []
        self._knows_epochs = False
        # brokers before 4.0 do not say whether there are aborted transactions
        self._says_transactions = any(one.has_no_transactions for one in cache.segments.values())

    def compare(self) -> PartitionInventory:
        lineage = self._lineage()
        places = _places(lineage)
        entries = []
        there: set[UUID] = set()
        for segment in _listed(self._archived.segments):
            segment_id = _read_id(segment.segment_id)
            known = self._known(segment_id)
            if segment_id is None or known is None:
                entries.append(self._orphan(segment))
                continue
            there.add(segment_id)
            entries.append(self._present(segment, known, places.get(segment_id, LineagePlace.UNKNOWN)))
        for segment_id, known in self._cache.segments.items():
            if segment_id not in there:
                entry = self._absent(known, places.get(segment_id, LineagePlace.UNKNOWN))
                entries += [entry] if entry is not None else []
        entries.sort(key=lambda one: (one.base_offset, one.segment_id))
        self._tell_of(lineage)
        return PartitionInventory(
            entries=tuple(entries), findings=tuple(self._findings), lineage=lineage, gone=self._gone()
        )

    def _lineage(self) -> Lineage:
        segments = self._cache.segments.values()
        epochs, start = cut_epochs(self._expected.epochs or ()), self._expected.log_start_offset
        newest = max((one.leader_epochs[-1].epoch for one in segments if _is_finished(one)), default=-1)
        self._knows_epochs = bool(epochs) and epochs[-1].epoch >= newest
        if not self._knows_epochs:
            epochs = derive_epochs(segments)
        elif start is not None:
            # a broker cuts its leader epochs at once, and writes the log start down once a minute
            start = max(start, epochs[0].start_offset)
        return trace_lineage(self._cache, epochs, log_start_offset=start)

    def _known(self, segment_id: UUID | None) -> RemoteSegment | None:
        if segment_id is None:
            return None
        return self._cache.segments.get(segment_id) or self._cache.deleted.get(segment_id)

    def _orphan(self, segment: _Listed) -> InventoryEntry:
        words = "the metadata topic does not know this segment"
        if self._expected.hides_records:
            words += ", but some of its records are missing or damaged"
        self._find(segment, "orphan", words, severity="note")
        return _entry(segment, SegmentStatus.ORPHAN)

    def _present(self, segment: _Listed, known: RemoteSegment, place: LineagePlace) -> InventoryEntry:
        status = _STATUS[known.state]
        missing = self._missing(segment, known)
        if known.start_offset != segment.base_offset:
            words = f"begins at offset {known.start_offset} by the metadata topic"
            self._find(segment, "metadata", words)
        if status is SegmentStatus.ARCHIVED:
            self._check_size(segment, known)
            if missing:
                status = SegmentStatus.INCOMPLETE
                is_read = place is LineagePlace.READ
                self._findings.append(
                    _missing_parts(self._layout, segment, missing, "damage" if is_read else "note")
                )
        else:
            rule, words = _ON_ITS_WAY[status]
            there = "none is missing" if not missing else f"missing: {_in_words(missing)}"
            self._find(segment, rule, f"{words}; of its objects {there}", severity="note")
        return _entry(segment, status, known, place)

    def _absent(self, known: RemoteSegment, place: LineagePlace) -> InventoryEntry | None:
        """Return the entry of a segment of which nothing is there."""
        segment = _named(known)
        status = _STATUS[known.state]
        if status is SegmentStatus.ARCHIVED:
            status = SegmentStatus.MISSING
            words = (
                f"offsets {known.start_offset} to {known.end_offset}: finished, and no object of it is there"
            )
            self._find(
                segment, "missing-segment", words, severity="damage" if place is LineagePlace.READ else "note"
            )
        else:
            rule, words = _ON_ITS_WAY[status]
            self._find(segment, rule, f"{words}; none of its objects is there", severity="note")
        return _entry(segment, status, known, place)

    def _missing(self, segment: _Listed, known: RemoteSegment) -> frozenset[PartKind]:
        missing = self._layout.required_parts - segment.present
        if self._says_transactions and not known.has_no_transactions:
            missing |= self._layout.objects_of(PartKind.TXN_INDEX) - segment.present
        return missing

    def _check_size(self, segment: _Listed, known: RemoteSegment) -> None:
        """Compare the sizes of objects with what was said of them when they were copied."""
        if PartKind.LOG not in segment.present:
            return
        if self._layout.has_plain_logs and segment.log_bytes != known.size_bytes:
            words = f"{segment.log_bytes} bytes, the metadata topic says {known.size_bytes}"
            self._find(segment, "object-size", words)
        told = self._layout.told_bytes(known)
        is_whole = segment.present >= self._layout.required_parts
        if is_whole and told is not None and told != segment.size_bytes:
            words = f"its objects have {segment.size_bytes} bytes, the plugin told the brokers of {told}"
            self._find(segment, "object-size", words)

    def _tell_of(self, lineage: Lineage) -> None:
        """Report what the lineage shows."""
        unread: tuple[tuple[Sequence[RemoteSegment], Rule, str], ...] = (
            (lineage.below, "below-log-start", "ends below the log start offset: a broker deletes it"),
            (lineage.outside, "outside-lineage", "is of leader epochs that were cut off: no broker reads it"),
            (lineage.superseded, "duplicate", "later copies have its offsets: no broker reads it"),
        )
        for segments, rule, words in unread:
            for one in segments:
                self._find(
                    _named(one),
                    rule,
                    f"offsets {one.start_offset} to {one.end_offset}: {words}",
                    severity="note",
                )
        for overlap, segment in zip(lineage.overlaps, lineage.second_of_overlaps, strict=True):
            words = f"offsets {overlap.start_offset} to {overlap.end_offset} are in two segments that are both read"
            self._find(_named(segment), "overlap", words, severity="note")
        self._tell_of_gaps(lineage)

    def _tell_of_gaps(self, lineage: Lineage) -> None:
        """A gap that a deletion has left is none: the log start was raised first, and is not known here.

        Where the log's own epochs are not known, neither is which of two histories of the same offsets is the log's.
        """
        deleted = self._deleted()
        others = merge_ranges(() if self._knows_epochs else (*lineage.outside, *lineage.superseded))
        for gap, segment in zip(lineage.gaps, lineage.behind_gaps, strict=True):
            for start, end in subtract_ranges(gap, deleted):
                words = f"offsets {start} to {end} are in no segment that is finished"
                severity: Severity = "damage"
                if not subtract_ranges(OffsetRange(start_offset=start, end_offset=end), others):
                    words, severity = f"{words}, but for other leader epochs", "note"
                self._find(_named(segment), "archive-gap", words, severity=severity)

    def _deleted(self) -> list[OffsetRange]:
        """Return the offsets of segments whose deletion was begun."""
        known = [*self._cache.segments.values(), *self._cache.deleted.values()]
        return merge_ranges(one for one in known if one.state >= RemoteSegmentState.DELETE_SEGMENT_STARTED)

    def _gone(self) -> tuple[OffsetRange, ...]:
        """Return these, and what lies below the log start."""
        start = self._expected.log_start_offset
        below = [OffsetRange(start_offset=0, end_offset=start - 1)] if start else []
        return tuple(merge_ranges([*self._deleted(), *below]))

    def _find(self, segment: _Listed, rule: Rule, words: str, *, severity: Severity = "damage") -> None:
        self._findings.append(_finding(self._layout, segment, rule, words, severity=severity))


_STATUS = {
    RemoteSegmentState.COPY_SEGMENT_STARTED: SegmentStatus.COPY_STARTED,
    RemoteSegmentState.COPY_SEGMENT_FINISHED: SegmentStatus.ARCHIVED,
    RemoteSegmentState.DELETE_SEGMENT_STARTED: SegmentStatus.DELETE_STARTED,
    RemoteSegmentState.DELETE_SEGMENT_FINISHED: SegmentStatus.DELETED,
}
_ON_ITS_WAY: dict[SegmentStatus, tuple[Rule, str]] = {
    SegmentStatus.COPY_STARTED: ("interrupted-copy", "its copy was begun and not finished"),
    SegmentStatus.DELETE_STARTED: ("unfinished-delete", "its deletion was begun and not finished"),
    SegmentStatus.DELETED: ("undeleted", "its deletion is said to be finished"),
}


def _places(lineage: Lineage) -> dict[UUID, LineagePlace]:
    lists = {
        LineagePlace.READ: lineage.segments,
        LineagePlace.BELOW_LOG_START: lineage.below,
        LineagePlace.OUTSIDE: lineage.outside,
        LineagePlace.SUPERSEDED: lineage.superseded,
    }
    return {one.segment_id: place for place, segments in lists.items() for one in segments}


def _entry(
    segment: _Listed,
    status: SegmentStatus,
    known: RemoteSegment | None = None,
    place: LineagePlace = LineagePlace.UNKNOWN,
) -> InventoryEntry:
    return InventoryEntry(
        base_offset=segment.base_offset,
        segment_id=segment.segment_id,
        status=status,
        place=place,
        end_offset=None if known is None else known.end_offset,
        present=segment.present,
        size_bytes=segment.size_bytes,
        leader_epochs=() if known is None else known.leader_epochs,
    )


def _named(segment: RemoteSegment) -> _Listed:
    """Return a segment with the names of *segment*, and no objects."""
    return _Listed(segment.start_offset, format_uuid(segment.segment_id))


def _name(layout: Layout, segment: _Listed, kind: PartKind) -> str:
    named = ArchivedSegment(base_offset=segment.base_offset, segment_id=segment.segment_id, parts={})
    return layout.name_of(named, kind)


def _missing_parts(
    layout: Layout, segment: _Listed, missing: frozenset[PartKind], severity: Severity
) -> Finding:
    kind = min(missing, key=lambda one: list(PartKind).index(one))
    words = f"there is no {_in_words(missing)} of a segment that is finished"
    return Finding(
        file=_name(layout, segment, kind),
        position=None,
        rule="missing-object",
        detail=words,
        severity=severity,
    )


def _finding(
    layout: Layout, segment: _Listed, rule: Rule, words: str, *, severity: Severity = "damage"
) -> Finding:
    name = _name(layout, segment, PartKind.LOG)
    return Finding(file=name, position=None, rule=rule, detail=words, severity=severity)


def _in_words(kinds: Iterable[PartKind]) -> str:
    return ", ".join(sorted(kind.value for kind in kinds))


def _is_finished(segment: RemoteSegment) -> bool:
    return segment.state is RemoteSegmentState.COPY_SEGMENT_FINISHED


def _read_id(text: str) -> UUID | None:
    try:
        return read_uuid(text)
    except FormatError:
        return None
