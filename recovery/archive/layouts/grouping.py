"""Grouping of objects whose names hold a start offset and a segment's id into segments."""

from __future__ import annotations

from collections.abc import Mapping

from recovery.archive.stores.archived import PartitionPrefix, PartKind
from recovery.archive.stores.segment_table import LETTERS, ArchivedPartition, ObjectTable, SegmentTable
from segfmt.remote_names import SEGMENT_NAME_CHARS, read_segment_name


def group_by_segment(
    where: PartitionPrefix, objects: ObjectTable, kinds: Mapping[str, PartKind]
) -> ArchivedPartition:
    """Return the partition that *objects* make up.

    Args:
        where: the partition.
        objects: below its prefix, in the order of their names: those of a segment are neighbours.
        kinds: of parts, by the suffix of a name.
    """
    letters = {suffix: LETTERS[kind] for suffix, kind in kinds.items()}
    base_offsets: list[int] = []
    segment_ids: list[str] = []
    ends: list[int] = []
    taken: list[int] = []
    letter_list: list[str] = []
    other_rows: list[int] = []
    current, parsed = "", None
    for row, name in enumerate(objects.names):
        letter, segment = letters.get(name[SEGMENT_NAME_CHARS:]), name[:SEGMENT_NAME_CHARS]
        if letter is not None and segment != current:
            current, parsed = segment, read_segment_name(segment)
            if parsed is not None:
                base_offsets.append(parsed[0])
                segment_ids.append(parsed[1])
                ends.append(len(taken))
        if letter is None or parsed is None:
            other_rows.append(row)
        else:
            taken.append(row)
            letter_list.append(letter)
    segments = SegmentTable(
        base_offsets=base_offsets,
        segment_ids=segment_ids,
        next_base_offsets=[None] * len(base_offsets),
        ends=[*ends[1:], len(taken)] if ends else [],
        kinds="".join(letter_list),
        objects=objects.take(taken),
    )
    return ArchivedPartition(where=where, segments=segments, others=objects.take(other_rows))
