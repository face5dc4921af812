"""What the files beside a log say of a segment: how old its records are, and up to which offset it should go."""

from __future__ import annotations

from recovery.archive.layouts.holed_log import ChunkError
from recovery.archive.layouts.layout import ArchivedFiles, Layout
from recovery.archive.records.batch_heads import Fault
from recovery.archive.records.read_request import PlannedSegment, ReadRequest
from recovery.archive.records.run_files import RunFiles, told_of
from recovery.archive.stores.archived import PartKind
from recovery.check.finding import Rule
from segfmt.errors import FormatError
from segfmt.filenames import offset_index_name, time_index_name
from segfmt.offset_index import view_offset_index
from segfmt.time_index import check_time_index, last_entry, view_time_index


def judge_age(
    request: ReadRequest, planned: PlannedSegment, files: ArchivedFiles
) -> tuple[bool, Fault | None]:
    """Return whether all records are older than what is requested, and what is wrong with the time index.

    Once the segment was rolled, the last entry of the time index has its greatest timestamp. An index may have been cut
    since, and nothing in it shows that, so it must agree with what a broker said of the segment when it was archived:
    in the metadata topic, or in the manifest. Without that, the segment is read.
    """
    lowest_ms, base_offset = request.options.lowest_timestamp_ms, planned.segment.base_offset
    if lowest_ms is None or planned.is_last or not request.selection.uses_time_index:
        return False, None
    told = told_of(planned, files)
    if told is None or not 0 <= told.max_timestamp_ms < lowest_ms:
        return False, None
    told_ms = told.max_timestamp_ms
    try:
        data, size_bytes = files.read_index(time_index_name(base_offset), lambda _: None)
        check_time_index(data, base_offset)
    except FileNotFoundError:
        return False, None
    except ChunkError as error:
        return False, Fault("chunk", str(error))
    except FormatError as error:
        return False, Fault("index-order", f"the time index is malformed: {error}")
    last_ms = last_entry(view_time_index(data), base_offset).timestamp_ms
    if len(data) == size_bytes and last_ms == told_ms:
        return True, None
    detail = (
        f"the last entry is of timestamp {last_ms}, the segment was archived with timestamps up to {told_ms}"
    )
    return False, Fault("index-sparse" if last_ms < told_ms else "index-entry", detail)


def expected_end(
    layout: Layout, run_files: RunFiles, planned: PlannedSegment, start: int, known_end: int
) -> int | None:
    """Return the offset up to which a segment should go, by all that is known; None if nothing is.

    Args:
        layout: of the archive.
        run_files: of the segment's run.
        planned: the segment.
        start: the offset after its last batch.
        known_end: an offset up to which the archive has been before, 0 if none is known.
    """
    if planned.end_offset is not None:
        return planned.end_offset
    segment = planned.segment
    if PartKind.LOG not in segment.parts:
        told_end = segment.base_offset + 1 if planned.told is None else planned.told.end_offset + 1
        return max(told_end, known_end)
    files = run_files.of(segment)
    told = told_of(planned, files)
    if told is not None:  # after a roll a segment may own offsets past its last batch
        told_end = told.end_offset + 1
        return (
            max(told_end, known_end) if files.log_bytes() != told.size_bytes or known_end > told_end else None
        )
    if not layout.is_tiered:
        return known_end
    end_offset = end_by_indexes(planned, files, start) if segment.log_bytes else segment.base_offset + 1
    return max(end_offset, known_end)


def end_by_indexes(planned: PlannedSegment, files: ArchivedFiles, start: int) -> int:
    """Return the end offset of which the indexes of the last segment know, or *start* if that is later."""
    base_offset = planned.segment.base_offset
    known = [start]
    for name, view in (
        (offset_index_name(base_offset), view_offset_index),
        (time_index_name(base_offset), view_time_index),
    ):
        try:
            data, _ = files.read_index(name, lambda _: None)
        except (FileNotFoundError, ChunkError):
            continue
        entries = view(data)
        if len(entries):
            known.append(base_offset + int(entries["relative_offset"][-1]) + 1)
    return max(known)


def why_missing(layout: Layout, planned: PlannedSegment, *, is_known: bool) -> tuple[Rule, str]:
    """Return by which rule the offsets at the end of a segment are missing, and how the sentence about them begins.

    Args:
        layout: of the archive.
        planned: the segment.
        is_known: whether the checkpoint of a stream says how far the archive has gone.
    """
    segment = planned.segment
    if not segment.parts and segment.segment_id:
        return "missing-segment", "the segment has no objects: "
    if PartKind.LOG not in segment.parts:
        return "missing-object", "the segment has no log: "
    if not segment.log_bytes and layout.is_tiered:
        return "empty-log", "the log is empty: "
    if planned.end_offset is None:
        return "cut-end", f"{'the checkpoint, or ' if is_known else ''}other files know of later ones: "
    return "offset-gap", ""
