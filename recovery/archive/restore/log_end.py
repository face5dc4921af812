"""Where the segments of an archived log end, and whether something tells that the log went on."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import replace

from recovery.archive.copy.manifest import MANIFEST_KEY
from recovery.archive.inventory.own_span import OwnSpan, read_own_span
from recovery.archive.layouts.layout import Layout
from recovery.archive.remote.log_dir_copy import LogDirCopy
from recovery.archive.remote.told_ends import ToldEnd, ends_by_files
from recovery.archive.restore.source import SourceSegment
from recovery.archive.stores.archived import PartitionPrefix, StoredObject
from recovery.archive.stores.store import Store
from recovery.read.batch_probe import is_zero_range
from segfmt.errors import FormatError
from segfmt.filenames import RECOVERY_POINT_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT, log_name

RECOVER_COPY = (
    f"take {RECOVERY_POINT_CHECKPOINT} out of the copied log dir, recover that (kafka-log-recovery recover --force "
    f"--log-dirs FOLDER), move {MANIFEST_KEY} away if there is one, and restore this one again (--partition)"
)
"""What is left of a copied log once it is cut as a broker would cut it."""


def measured(
    store: Store, layout: Layout, segments: Sequence[SourceSegment]
) -> tuple[list[SourceSegment], list[int | None]]:
    """Return *segments*, the last one without the zeros at its end, and the offsets of their last records.

    An offset is one before the first if a segment is empty, None if it cannot be read.
    """
    found: list[SourceSegment] = []
    ends: list[int | None] = []
    for one in segments:
        if one.end_offset is not None or not one.log_bytes:
            found.append(one)
            ends.append(one.segment.base_offset - 1 if one.end_offset is None else one.end_offset)
            continue
        span = read_own_span(store, layout, one.segment)
        is_last = one is segments[-1] and not layout.is_tiered
        zero_bytes = _zero_bytes(store, layout, one, span) if is_last else 0
        found.append(replace(one, log_bytes=one.log_bytes - zero_bytes, zero_bytes=zero_bytes))
        ends.append(None if span is None else span.end_offset)
    return found, ends


def _zero_bytes(store: Store, layout: Layout, one: SourceSegment, span: OwnSpan | None) -> int:
    """Return how many bytes behind the last batch there are if all of them are zeros; else 0."""
    if span is None or span.end_position is None or span.end_position >= one.log_bytes:
        return 0
    with suppress(OSError, FormatError):
        files = layout.files(store, one.segment)
        with closing(files.open(log_name(one.segment.base_offset))) as log:
            if is_zero_range(log, span.end_position, one.log_bytes):
                return one.log_bytes - span.end_position
    return 0


def zeros_left_out(segments: Sequence[SourceSegment]) -> list[str]:
    """Return a warning if a log ends in zeros."""
    return [
        f"{log_name(one.segment.base_offset)}: {one.zero_bytes:,} zeros behind its last batch are left out, as by a "
        "broker that loads it: preallocate puts them there, or a loss of power"
        for one in segments
        if one.zero_bytes
    ]


def missing_end(
    store: Store,
    objects: Sequence[StoredObject],
    copy: LogDirCopy,
    where: PartitionPrefix,
    ends: Sequence[int | None],
) -> list[str]:
    """Return why a copied log ends too early; what lies beside it is never ahead of it."""
    told = list(ends_by_files(store, objects))
    flushed = copy.offset(RECOVERY_POINT_CHECKPOINT, where)
    if flushed is not None:
        told.append(ToldEnd(flushed, RECOVERY_POINT_CHECKPOINT))
    end = max(told, default=ToldEnd(0, ""))
    if (ends and ends[-1] is None) or end.end_offset <= _log_end(ends):
        return []
    truncated = ", unless a new leader has truncated the log since" if end.is_doubtful else ""
    return [
        f"its last offset is {_log_end(ends) - 1}, and {end.witness} tells of {end.end_offset - 1}{truncated}. "
        f"Remedy: copy the log dir again; if its source is gone, which gives up what is missing, {RECOVER_COPY}"
    ]


def uncommitted_end(copy: LogDirCopy, where: PartitionPrefix, ends: Sequence[int | None]) -> list[str]:
    """Return a warning if the high watermark, which a recovery does not touch, is above the log's end."""
    committed = copy.offset(REPLICATION_OFFSET_CHECKPOINT, where)
    if committed is None or (ends and ends[-1] is None) or committed <= _log_end(ends):
        return []
    return [
        f"offsets {_log_end(ends)} to {committed - 1} were committed, by {REPLICATION_OFFSET_CHECKPOINT}, and are not "
        "in the archive"
    ]


def _log_end(ends: Sequence[int | None]) -> int:
    last = ends[-1] if ends else None
    return 0 if last is None else last + 1
