"""The inventory of one partition of an archive: what is expected of it, and what is there. Pure.

What is expected comes from the metadata topic (`remote_cache`), if it is available; what is there from the listing,
by names and sizes alone. Each segment of either gets one `SegmentStatus`; finished ones in the metadata also get their
place in the lineage (`lineage`). Unfinished copies and deletions are not damage: a broker resumes them. A copy that may
have been finished, by records that were not read, is not compared.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
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
from recovery.archive.inventory.orphans import Known, doubt_orphan
from recovery.archive.inventory.own_span import OwnSpan
from recovery.archive.layouts.layout import Layout
from recovery.archive.remote.lineage import (
    Lineage,
    OffsetRange,
    cut_epochs,
    derive_epochs,
    merge_ranges,
    subtract_ranges,
    trace_lineage,
    with_earlier_epochs,
)
from recovery.archive.remote.remote_cache import RemoteLogCache
from recovery.archive.stores.archived import ArchivedSegment, PartKind, SegmentKey, is_temporary
from recovery.archive.stores.segment_table import ArchivedPartition, SegmentTable, parts_in
from recovery.check.finding import Finding, Rule, Severity
from segfmt.errors import FormatError
from segfmt.filenames import FileKind, file_kind
from segfmt.kafka_uuid import format_uuid, read_uuid
from segfmt.remote_log_metadata import RemoteSegment, RemoteSegmentState

RULES_OF_READING = frozenset({"missing-object", "object-size", "overlap"})
"""Rules that reading the segments checks, too."""
_RENAMED_OBJECT = re.compile(r"\.?(\d{20})-([\w-]{22})\.\w+\.")
_RENAMED_LOG = re.compile(r"\.?(\d{20})\.log\.")
_LEFT_BEHIND = "a run in place that was killed has left it; the next `archive recover --in-place` removes it"


def take_inventory(
    archived: ArchivedPartition,
    layout: Layout,
    expected: Expectation | None = None,
    *,
    own_span: Callable[[ArchivedSegment], OwnSpan | None] | None = None,
) -> PartitionInventory:
    """Return the inventory of a partition.

    Args:
        archived: what was listed; without segments for a partition that has no prefix at all.
        layout: of the archive.
        expected: what is known besides the objects; nothing by default.
        own_span: looks up what a segment itself says of its end, None if that cannot be read; called only for those
            that seem to be orphans. Without it these are judged by their names.
    """
    expected = expected or Expectation()
    if expected.cache is None:
        inventory = _by_names(archived, layout)
        if expected.is_unknown:
            inventory = replace(inventory, findings=(*inventory.findings, _not_compared()))
    else:
        inventory = _Comparison(archived, layout, expected, expected.cache, own_span).compare()
    return replace(inventory, findings=(*inventory.findings, *_foreign(archived, layout)))


def _not_compared() -> Finding:
    """Return the finding of a partition that no record is about: another broker may have the records, or none has."""
    detail = (
        "no record of the metadata topic that was read is about this partition: its segments are not compared, and "
        "none of them is called an orphan"
    )
    return Finding(file="", position=None, rule="not-compared", detail=detail, severity="unchecked")


def _foreign(archived: ArchivedPartition, layout: Layout) -> Iterator[Finding]:
    """Yield a finding on each object that no broker has put there; a broker's own folder has files of other kinds.

    It is a note, unless the name begins with that of a segment of which nothing else is there: it may be all of it.
    """
    segments = archived.segments
    known = set(zip(segments.base_offsets, segments.segment_ids, strict=True))
    for stored in archived.others:
        if is_temporary(stored.name):
            yield _foreign_file(stored.name, _LEFT_BEHIND)
        elif (key := _segment_named(stored.name, layout)) is not None and key not in known:
            detail = "its name is that of a segment's part and more, and the segment is not there: it was not checked"
            yield _foreign_file(stored.name, detail, "unchecked")
        elif layout.is_tiered:
            yield _foreign_file(stored.name, "its name is not that of a segment's part")


def _foreign_file(name: str, detail: str, severity: Severity = "note") -> Finding:
    return Finding(file=name, position=None, rule="foreign-file", detail=detail, severity=severity)


def _segment_named(name: str, layout: Layout) -> SegmentKey | None:
    """Return the segment whose log or object a file would be, were it not for what its name has in front or at its end.

    Such files are left by compression and by copies that were interrupted: `X.log.gz`, `.X.log.Ab12Cd`.
    """
    found = (_RENAMED_OBJECT if layout.is_tiered else _RENAMED_LOG).match(name)
    if found is None or (not layout.is_tiered and file_kind(name) is not FileKind.OTHER):
        return None
    return int(found[1]), found[2] if layout.is_tiered else ""


class _Listed(NamedTuple):
    """What is there of one segment."""

    base_offset: int
    segment_id: str
    present: frozenset[PartKind] = frozenset()
    log_bytes: int = 0
    size_bytes: int = 0


def _listed(segments: SegmentTable) -> Iterator[_Listed]:
    """Yield what is there of each of *segments*."""
    return map(
        _Listed,
        segments.base_offsets,
        segments.segment_ids,
        map(parts_in, segments.shapes()),
        segments.part_bytes(PartKind.LOG),
        segments.size_bytes(),
    )


def _by_names(archived: ArchivedPartition, layout: Layout) -> PartitionInventory:
    """Return the inventory by names alone: parts that are missing, offsets that occur twice."""
    entries: list[InventoryEntry] = []
    findings: list[Finding] = []
    listed = list(_listed(archived.segments))
    whole: dict[int, _Listed] = {}
    for segment in listed:
        longest = whole.get(segment.base_offset, segment)
        if segment.present >= layout.required_parts and longest.log_bytes <= segment.log_bytes:
            whole[segment.base_offset] = segment
    for segment in listed:
        status, twin = SegmentStatus.ARCHIVED, None
        if not segment.present >= layout.required_parts:
            twin = whole.get(segment.base_offset) if layout.is_tiered else None
            if twin is not None and twin.log_bytes < segment.log_bytes:
                twin = None
            is_last = segment.base_offset == listed[-1].base_offset
            status, finding = _incomplete(layout, segment, twin, is_last=is_last)
            findings.append(finding)
        if entries and segment.segment_id and entries[-1].base_offset == segment.base_offset:
            detail = f"segment {entries[-1].segment_id} begins at the same offset"
            findings.append(_finding(layout, segment, "duplicate", detail, severity="note"))
        entry = _entry(segment, status)
        entries.append(entry if twin is None else replace(entry, twin_id=twin.segment_id))
    return PartitionInventory(entries=tuple(entries), findings=tuple(findings))


def _incomplete(
    layout: Layout, segment: _Listed, twin: _Listed | None, *, is_last: bool
) -> tuple[SegmentStatus, Finding]:
    """Return the status of a segment that lacks parts, and a finding, as far as names tell.

    Args:
        layout: of the archive.
        segment: the segment.
        twin: a complete one that begins at the same offset and whose log is not shorter, None without one.
        is_last: whether no other segment of the partition begins after it: its upload may be under way.
    """
    missing = layout.required_parts - segment.present
    last = layout.last_part
    if twin is not None:
        detail = f"it has no {_in_words(missing)}; segment {twin.segment_id}, which begins at the same offset, has all"
    elif is_last and last is not None and last in missing:
        detail = f"there is no {last.noun}: its upload was not finished, or the {last.noun} is lost"
    else:
        return SegmentStatus.INCOMPLETE, _missing_parts(layout, segment, missing, "damage")
    return (
        SegmentStatus.COPY_STARTED,
        _finding(layout, segment, "interrupted-copy", detail, severity="note"),
    )


class _Comparison:
    """The comparison of what is expected of a partition with what is there."""

    def __init__(
        self,
        archived: ArchivedPartition,
        layout: Layout,
        expected: Expectation,
        cache: RemoteLogCache,
        own_span: Callable[[ArchivedSegment], OwnSpan | None] | None,
    ) -> None:
        self._archived = archived
        self._own_span = own_span
        self._layout = layout
        self._expected = expected
        self._cache = cache
        self._findings: list[Finding] = []
        self._knows_epochs = False
        self._covered: list[OffsetRange] = []
        self._is_outdated = False
        known = [*cache.segments.values(), *cache.deleted.values()]
        self._known_end = max((segment.end_offset for segment in known), default=-1)
        self._known_epoch = max(
            [*cache.leader_epochs, *(entry.epoch for entry in expected.epochs or ())], default=-1
        )
        # brokers before 4.0 do not say whether there are aborted transactions
        self._says_transactions = any(segment.has_no_transactions for segment in cache.segments.values())

    def compare(self) -> PartitionInventory:
        lineage = self._lineage()
        places = _places(lineage)
        entries = []
        present_ids: set[UUID] = set()
        listed = list(_listed(self._archived.segments))
        self._covered = merge_ranges([*lineage.segments, *lineage.below, *lineage.superseded, *self._gone()])
        self._is_outdated = any(self._is_newer(segment) for segment in listed)
        for row, segment in enumerate(listed):
            segment_id = _read_id(segment.segment_id)
            remote = self._remote_segment(segment_id)
            if segment_id is None or remote is None:
                entries.append(self._unknown(segment, row))
                continue
            present_ids.add(segment_id)
            entries.append(self._present(segment, remote, places.get(segment_id, LineagePlace.UNKNOWN)))
        for segment_id, remote in self._cache.segments.items():
            if segment_id not in present_ids:
                entry = self._absent(remote, places.get(segment_id, LineagePlace.UNKNOWN))
                entries += [entry] if entry is not None else []
        entries.sort(key=lambda entry: (entry.base_offset, entry.segment_id))
        self._report_lineage(lineage)
        return PartitionInventory(
            entries=tuple(entries), findings=tuple(self._findings), lineage=lineage, gone=self._gone()
        )

    def _lineage(self) -> Lineage:
        segments = self._cache.segments.values()
        epochs, start = cut_epochs(self._expected.epochs or ()), self._expected.log_start_offset
        newest = max(
            (segment.leader_epochs[-1].epoch for segment in segments if _is_finished(segment)), default=-1
        )
        self._knows_epochs = bool(epochs) and epochs[-1].epoch >= newest
        if not self._knows_epochs:
            epochs = derive_epochs(segments)
        else:
            epochs = with_earlier_epochs(epochs, segments)
            if start is not None:
                # a broker cuts its leader epochs at once, but writes the log start only once a minute
                start = max(start, epochs[0].start_offset)
        return trace_lineage(self._cache, epochs, log_start_offset=start)

    def _remote_segment(self, segment_id: UUID | None) -> RemoteSegment | None:
        if segment_id is None:
            return None
        return self._cache.segments.get(segment_id) or self._cache.deleted.get(segment_id)

    def _is_newer(self, segment: _Listed) -> bool:
        """Return whether a segment begins after all that the metadata topic knows."""
        return segment.base_offset > self._known_end

    def _unknown(self, segment: _Listed, row: int) -> InventoryEntry:
        """Report a segment that the metadata topic does not know: an orphan, unless it may be newer than the topic."""
        detail = "the metadata topic does not know this segment"
        missing = self._layout.required_parts - segment.present
        if missing:
            detail += f", which has no {_in_words(missing)}"
        known = Known(
            end_offset=self._known_end,
            epoch=self._known_epoch,
            covered=self._covered,
            hides_records=self._expected.hides_records,
        )
        look = self._own_span
        span_of = None if look is None else lambda: look(self._archived.segments[row])
        doubt = doubt_orphan(segment.base_offset, known, span_of, is_whole=not missing)
        if doubt:
            self._find(segment, "not-compared", f"{detail}, {doubt}", severity="unchecked")
            return _entry(segment, SegmentStatus.NOT_COMPARED)
        self._find(segment, "orphan", detail, severity="note")
        return _entry(segment, SegmentStatus.ORPHAN)

    def _present(self, segment: _Listed, remote: RemoteSegment, place: LineagePlace) -> InventoryEntry:
        status = _STATUS[remote.state]
        missing = self._missing(segment, remote)
        if remote.start_offset != segment.base_offset:
            detail = f"begins at offset {remote.start_offset} according to the metadata topic"
            self._find(segment, "metadata", detail)
        if status is SegmentStatus.ARCHIVED:
            self._check_size(segment, remote)
            if missing:
                status = SegmentStatus.INCOMPLETE
                is_read = place is LineagePlace.READ
                self._findings.append(
                    _missing_parts(self._layout, segment, missing, "damage" if is_read else "note")
                )
        else:
            state_of_objects = (
                "no object is missing" if not missing else f"missing objects: {_in_words(missing)}"
            )
            status = self._on_its_way(segment, remote, state_of_objects, is_whole=not missing)
        return _entry(segment, status, remote, place)

    def _absent(self, remote: RemoteSegment, place: LineagePlace) -> InventoryEntry | None:
        """Return the entry of a segment without any objects."""
        segment = _named(remote)
        status = _STATUS[remote.state]
        if status is SegmentStatus.ARCHIVED:
            status = SegmentStatus.MISSING
            detail = (
                f"offsets {remote.start_offset} to {remote.end_offset}: the segment is finished, "
                "but it has no objects"
            )
            self._find(
                segment,
                "missing-segment",
                detail,
                severity="damage" if place is LineagePlace.READ else "note",
            )
        else:
            status = self._on_its_way(segment, remote, "it has no objects", is_whole=False)
        return _entry(segment, status, remote, place)

    def _on_its_way(
        self, segment: _Listed, remote: RemoteSegment, state_of_objects: str, *, is_whole: bool
    ) -> SegmentStatus:
        """Report a segment whose copy or deletion was begun; return its status."""
        status = _STATUS[remote.state]
        doubt = self._doubt_copy(remote, is_whole=is_whole) if status is SegmentStatus.COPY_STARTED else ""
        if doubt:
            detail = f"its copy was begun; {state_of_objects}; whether it was finished is not known: {doubt}"
            self._find(segment, "not-compared", detail, severity="unchecked")
            return SegmentStatus.NOT_COMPARED
        rule, detail = _ON_ITS_WAY[status]
        self._find(segment, rule, f"{detail}; {state_of_objects}", severity="note")
        return status

    def _doubt_copy(self, remote: RemoteSegment, *, is_whole: bool) -> str:
        """Return why a copy that was begun may have been finished; empty if others have its offsets, or if it was not.

        A broker reports a copy at once, and copies a segment again if it could not report it.
        """
        offsets = OffsetRange(start_offset=remote.start_offset, end_offset=remote.end_offset)
        if not subtract_ranges(offsets, self._covered):
            return ""
        if self._expected.hides_records:
            return "records of the metadata topic are missing or damaged"
        if self._is_outdated:
            return "the archive has segments after it that the metadata topic does not know"
        return (
            "no finished segment has its offsets: the log dirs may be older than the archive"
            if is_whole
            else ""
        )

    def _missing(self, segment: _Listed, remote: RemoteSegment) -> frozenset[PartKind]:
        missing = self._layout.required_parts - segment.present
        if self._says_transactions and not remote.has_no_transactions:
            missing |= self._layout.objects_of(PartKind.TXN_INDEX) - segment.present
        return missing

    def _check_size(self, segment: _Listed, remote: RemoteSegment) -> None:
        """Compare the sizes of objects with those reported when they were copied."""
        if PartKind.LOG not in segment.present:
            return
        if self._layout.has_plain_logs and segment.log_bytes != remote.size_bytes:
            detail = f"{segment.log_bytes} bytes, the metadata topic says {remote.size_bytes}"
            self._find(segment, "object-size", detail)
        reported_bytes = self._layout.told_bytes(remote)
        is_whole = segment.present >= self._layout.required_parts
        if is_whole and reported_bytes is not None and reported_bytes != segment.size_bytes:
            detail = f"its objects have {segment.size_bytes} bytes, the plugin reported {reported_bytes} to the brokers"
            self._find(segment, "object-size", detail)

    def _report_lineage(self, lineage: Lineage) -> None:
        """Report what the lineage shows."""
        unread: tuple[tuple[Sequence[RemoteSegment], Rule, str], ...] = (
            (lineage.below, "below-log-start", "ends below the log start offset: a broker deletes it"),
            (lineage.outside, "outside-lineage", "its leader epochs were cut off: no broker reads it"),
            (lineage.superseded, "duplicate", "later copies have its offsets: no broker reads it"),
        )
        for segments, rule, detail in unread:
            for remote in segments:
                self._find(
                    _named(remote),
                    rule,
                    f"offsets {remote.start_offset} to {remote.end_offset}: {detail}",
                    severity="note",
                )
        for overlap, segment in zip(lineage.overlaps, lineage.second_of_overlaps, strict=True):
            detail = f"offsets {overlap.start_offset} to {overlap.end_offset} are in two segments that are both read"
            self._find(_named(segment), "overlap", detail, severity="note")
        self._report_gaps(lineage)

    def _report_gaps(self, lineage: Lineage) -> None:
        """Report gaps, but for those left by a deletion: the log start was raised first, and is not known here.

        If the log's own epochs are not known, neither is which of two histories of the same offsets is the log's.
        """
        deleted = self._deleted()
        other_ranges = merge_ranges(() if self._knows_epochs else (*lineage.outside, *lineage.superseded))
        for gap, segment in zip(lineage.gaps, lineage.behind_gaps, strict=True):
            for start, end in subtract_ranges(gap, deleted):
                detail = f"offsets {start} to {end} are in no finished segment"
                severity: Severity = "damage"
                if not subtract_ranges(OffsetRange(start_offset=start, end_offset=end), other_ranges):
                    detail, severity = f"{detail}, except of other leader epochs", "note"
                self._find(_named(segment), "archive-gap", detail, severity=severity)
        self._report_gap_at_the_end(lineage)

    def _report_gap_at_the_end(self, lineage: Lineage) -> None:
        """Report the offsets between the last segment that is read and the first one on a broker.

        A broker removes a segment only after it was copied. Where the metadata may be too old, nothing is reported.
        """
        expected, end_offset = self._expected, lineage.end_offset
        if expected.log_start_offset is None or expected.local_start_offset is None or end_offset is None:
            return
        start = max(end_offset + 1, expected.log_start_offset)
        if start < expected.local_start_offset and not (expected.hides_records or self._is_outdated):
            last = max(lineage.segments, key=lambda segment: segment.end_offset)
            detail = (
                f"offsets {start} to {expected.local_start_offset - 1} are in no finished segment, and the log on the "
                f"broker begins at {expected.local_start_offset}"
            )
            self._find(_named(last), "archive-gap", detail)

    def _deleted(self) -> list[OffsetRange]:
        """Return the offsets of segments whose deletion was begun."""
        segments = [*self._cache.segments.values(), *self._cache.deleted.values()]
        return merge_ranges(
            segment for segment in segments if segment.state >= RemoteSegmentState.DELETE_SEGMENT_STARTED
        )

    def _gone(self) -> tuple[OffsetRange, ...]:
        """Return the deleted offsets, and those below the log start."""
        start = self._expected.log_start_offset
        below = [OffsetRange(start_offset=0, end_offset=start - 1)] if start else []
        return tuple(merge_ranges([*self._deleted(), *below]))

    def _find(self, segment: _Listed, rule: Rule, detail: str, *, severity: Severity = "damage") -> None:
        self._findings.append(_finding(self._layout, segment, rule, detail, severity=severity))


_STATUS = {
    RemoteSegmentState.COPY_SEGMENT_STARTED: SegmentStatus.COPY_STARTED,
    RemoteSegmentState.COPY_SEGMENT_FINISHED: SegmentStatus.ARCHIVED,
    RemoteSegmentState.DELETE_SEGMENT_STARTED: SegmentStatus.DELETE_STARTED,
    RemoteSegmentState.DELETE_SEGMENT_FINISHED: SegmentStatus.DELETED,
}
_ON_ITS_WAY: dict[SegmentStatus, tuple[Rule, str]] = {
    SegmentStatus.COPY_STARTED: ("interrupted-copy", "its copy was begun and not finished"),
    SegmentStatus.DELETE_STARTED: ("unfinished-delete", "its deletion was begun and not finished"),
    SegmentStatus.DELETED: ("undeleted", "its deletion is finished according to the metadata topic"),
}


def _places(lineage: Lineage) -> dict[UUID, LineagePlace]:
    lists = {
        LineagePlace.READ: lineage.segments,
        LineagePlace.BELOW_LOG_START: lineage.below,
        LineagePlace.OUTSIDE: lineage.outside,
        LineagePlace.SUPERSEDED: lineage.superseded,
    }
    return {segment.segment_id: place for place, segments in lists.items() for segment in segments}


def _entry(
    segment: _Listed,
    status: SegmentStatus,
    remote: RemoteSegment | None = None,
    place: LineagePlace = LineagePlace.UNKNOWN,
) -> InventoryEntry:
    return InventoryEntry(
        base_offset=segment.base_offset,
        segment_id=segment.segment_id,
        status=status,
        place=place,
        end_offset=None if remote is None else remote.end_offset,
        present=segment.present,
        size_bytes=segment.size_bytes,
        leader_epochs=() if remote is None else remote.leader_epochs,
    )


def _named(segment: RemoteSegment) -> _Listed:
    """Return a segment with the names of *segment* but without objects."""
    return _Listed(segment.start_offset, format_uuid(segment.segment_id))


def _name(layout: Layout, segment: _Listed, kind: PartKind) -> str:
    named = ArchivedSegment(base_offset=segment.base_offset, segment_id=segment.segment_id, parts={})
    return layout.name_of(named, kind)


def _missing_parts(
    layout: Layout, segment: _Listed, missing: frozenset[PartKind], severity: Severity
) -> Finding:
    kind = min(missing, key=lambda kind: list(PartKind).index(kind))
    detail = f"the segment is finished, but it has no {_in_words(missing)}"
    return Finding(
        file=_name(layout, segment, kind),
        position=None,
        rule="missing-object",
        detail=detail,
        severity=severity,
    )


def _finding(
    layout: Layout, segment: _Listed, rule: Rule, detail: str, *, severity: Severity = "damage"
) -> Finding:
    name = _name(layout, segment, PartKind.LOG)
    return Finding(file=name, position=None, rule=rule, detail=detail, severity=severity)


def _in_words(kinds: Iterable[PartKind]) -> str:
    return ", ".join(sorted(kind.value for kind in kinds))


def _is_finished(segment: RemoteSegment) -> bool:
    return segment.state is RemoteSegmentState.COPY_SEGMENT_FINISHED


def _read_id(text: str) -> UUID | None:
    try:
        return read_uuid(text)
    except FormatError:
        return None
