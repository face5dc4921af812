"""The segments of a partition that can be restored, and why others cannot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise

from recovery.archive.copy.account import CopiedFolder
from recovery.archive.copy.manifest import MANIFEST_KEY
from recovery.archive.layouts.layout import ArchivedFiles, Layout
from recovery.archive.records.read_request import PlannedSegments
from recovery.archive.restore.source import READABLE, SOUND, SourceSegment
from recovery.archive.stores.archived import ArchivedSegment, PartKind
from recovery.archive.stores.store import Store
from recovery.check.rules.indexes import without_preallocated
from recovery.errors import error_text
from segfmt.errors import FormatError
from segfmt.filenames import log_name, time_index_name
from segfmt.remote_log_metadata import RemoteSegment
from segfmt.time_index import view_time_index

_GONE = (
    "its log had gone from its log dir when that was copied last, and its indexes had not. Remedy: put it back there, "
    f"and copy again; or, if an earlier copy has left it at the output, move {MANIFEST_KEY} away while this one is "
    "restored (--partition): then what is there is taken as it is"
)


def source_segments(
    store: Store,
    layout: Layout,
    planned: PlannedSegments,
    lineage: Mapping[str, RemoteSegment] | None,
    copied: CopiedFolder | None,
) -> tuple[list[SourceSegment], list[str]]:
    """Return the segments that can be restored, and why others cannot."""
    segments: list[SourceSegment] = []
    reasons: list[str] = []
    # brokers before 4.0 do not say whether there are aborted transactions
    says_aborted = lineage is not None and any(one.has_no_transactions for one in lineage.values())
    for row, segment in enumerate(planned.segments):
        told = None if lineage is None else lineage.get(segment.segment_id)
        try:
            one = _segment(store, layout, segment, planned.end_offsets[row], told, copied)
            has_aborted = says_aborted and told is not None and not told.has_no_transactions
            segments.append(replace(one, has_aborted=has_aborted))
        except (OSError, FormatError) as error:
            text = error_text(error)
            remedy = "" if "Remedy: " in text else f". {READABLE if isinstance(error, OSError) else SOUND}"
            reasons.append(f"segment {segment.base_offset}: {text}{remedy}")
    return segments, reasons


def _segment(
    store: Store,
    layout: Layout,
    segment: ArchivedSegment,
    next_offset: int | None,
    told: RemoteSegment | None,
    copied: CopiedFolder | None,
) -> SourceSegment:
    if PartKind.LOG not in segment.parts:
        has_gone = copied is not None and log_name(segment.base_offset) in copied.gone
        raise FormatError(_GONE if has_gone else f"its log is not in the archive. {SOUND}")
    if layout.last_part is not None and layout.last_part not in segment.parts:
        raise FormatError(f"it has no {layout.last_part.noun}, so it is not complete. {SOUND}")
    files = layout.files(store, segment)
    for name, what in _wrong_sizes(layout, segment, files, told):
        raise FormatError(f"{name} is not complete: {what}. {SOUND}")
    described = told or files.described()
    end = None if described is None else described.end_offset
    return SourceSegment(
        segment=segment,
        until_offset=next_offset,
        end_offset=end,
        log_bytes=files.log_bytes(),
        max_timestamp_ms=_max_timestamp_ms(files, segment)
        if described is None
        else described.max_timestamp_ms,
        sha256=None if copied is None else copied.sha256(log_name(segment.base_offset)),
    )


def _wrong_sizes(
    layout: Layout, segment: ArchivedSegment, files: ArchivedFiles, told: RemoteSegment | None
) -> Iterator[tuple[str, str]]:
    """Yield which objects of a segment in tiered storage do not have the size that they must have, and what tells."""
    for kind, what in files.contradictions():
        yield layout.name_of(segment, kind), what
    name = layout.name_of(segment, PartKind.LOG)
    if told is not None and layout.has_plain_logs and segment.log_bytes != told.size_bytes:
        yield name, f"{segment.log_bytes:,} bytes, the metadata topic says {told.size_bytes:,}"
    elif layout.is_tiered and not segment.log_bytes:
        yield name, "0 bytes, and no broker archives an empty log"


def _max_timestamp_ms(files: ArchivedFiles, segment: ArchivedSegment) -> int | None:
    """Return the last timestamp in a segment's index, None without one."""
    with suppress(OSError, FormatError):
        data, _ = files.read_index(time_index_name(segment.base_offset), lambda _size: None)
        entries = without_preallocated(view_time_index(data))
        return int(entries["timestamp_ms"].max()) if len(entries) else None
    return None


def gaps_between(segments: Sequence[SourceSegment], ends: Sequence[int | None]) -> list[str]:
    """Return which offsets no segment has; *ends*: of their last records, None if not known."""
    return [
        f"offsets {end + 1} to {after.segment.base_offset - 1} are in no segment of the archive"
        for end, (_, after) in zip(ends, pairwise(segments), strict=False)
        if end is not None and end + 1 < after.segment.base_offset
    ]
