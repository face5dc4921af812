"""Which of a partition's segments are read for records.

Each offset is read from one segment, as by a broker. In tiered storage there may be several copies with one start
offset, and after a change of leaders segments may overlap: of equal start offsets a complete segment is preferred, then
the largest, and a segment is read up to where the next one begins. If the metadata topic is available, the lineage of
the partition decides instead (`recovery.archive.remote.lineage`). Segments that should be there are among them.
"""

from __future__ import annotations

from collections.abc import Mapping

from recovery.archive.layouts.layout import Layout
from recovery.archive.records.read_request import PlannedSegments, Told
from recovery.archive.stores.archived import ArchivedSegment, PartKind
from recovery.archive.stores.segment_table import LETTERS, ArchivedPartition, SegmentTable, parts_in
from segfmt.errors import FileNameError
from segfmt.filenames import INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX, read_offset
from segfmt.remote_log_metadata import RemoteSegment

_INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)


def choose_segments(
    partition: ArchivedPartition, layout: Layout, lineage: Mapping[str, RemoteSegment] | None = None
) -> PlannedSegments:
    """Return the segments that are read for records, each up to where the next one begins.

    A segment without its log is one of them, if there is no other that begins at its offset: the log is missing. One
    without the part that is uploaded last was never complete, and is not.

    Args:
        partition: as it was listed.
        layout: its layout.
        lineage: those that a broker reads, by id, whether they are there or not; None if not known.
    """
    segments, required = partition.segments, layout.required_parts
    shapes = segments.shapes()
    are_whole = [parts_in(shape) >= required for shape in shapes]
    ranks = list(zip(are_whole, segments.part_bytes(PartKind.LOG), segments.segment_ids, strict=True))
    last_letter = "" if layout.last_part is None else LETTERS[layout.last_part]
    chosen: dict[int, int] = {}
    for row, shape in enumerate(shapes):
        if last_letter not in shape if lineage is None else segments.segment_ids[row] not in lineage:
            continue
        base_offset = segments.base_offsets[row]
        if base_offset not in chosen or ranks[row] > ranks[chosen[base_offset]]:
            chosen[base_offset] = row
    rows = [chosen[base] for base in sorted(chosen)]
    is_last_whole = bool(rows) and are_whole[rows[-1]]
    table = _with_absent(partition, segments.take(rows), lineage)
    return PlannedSegments(
        segments=table,
        end_offsets=[*table.base_offsets[1:], None][: len(table)],
        told=[None if lineage is None else Told.by(lineage[segment_id]) for segment_id in table.segment_ids],
        has_last=bool(rows) and not (layout.is_tiered and is_last_whole),
    )


def _with_absent(
    partition: ArchivedPartition, chosen: SegmentTable, lineage: Mapping[str, RemoteSegment] | None
) -> SegmentTable:
    """Return the *chosen* segments, and those that should be there and have no object at all."""
    listed = set(chosen.base_offsets)
    absent = [
        ArchivedSegment(base_offset=remote.start_offset, segment_id=segment_id, parts={})
        for segment_id, remote in (lineage or {}).items()
        if remote.start_offset not in listed
    ]
    prefix = partition.where.prefix
    for name in () if lineage is not None else partition.others.names:
        base_offset = _offset_of_index(name)
        if base_offset is not None and base_offset not in listed:
            listed.add(base_offset)
            absent.append(ArchivedSegment(base_offset=base_offset, parts={}))
    if not absent:
        return chosen
    return SegmentTable.of(prefix, sorted([*chosen, *absent], key=lambda segment: segment.base_offset))


def _offset_of_index(name: str) -> int | None:
    """Return the base offset of the segment in a broker's folder that the index *name* is of; None for other files."""
    if not name.endswith(_INDEX_SUFFIXES):
        return None
    try:
        return read_offset(name)
    except FileNameError:
        return None
