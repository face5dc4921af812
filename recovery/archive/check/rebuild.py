"""What is rebuilt of a segment, once its partition is judged: as a value, and the rebuilding of its indexes.

Judging comes first, over the whole partition; then the indexes of many segments are rebuilt side by side, each from its
log; the partition is judged once more, and what needs the state before a segment is rebuilt on the way.

Kafka: LogSegment.recover.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from native.segment_scan import SegmentScanner
from recovery.archive.layouts.layout import Layout
from recovery.archive.stores.archived import ArchivedSegment, PartKind, SegmentKey, StoredObject
from recovery.archive.stores.store import Store
from recovery.errors import error_text
from recovery.load.segment_recovery import index_entries
from recovery.read.opened_log import OpenedLog
from recovery.read.windows import Windows, scan_windows, thread_buffer
from segfmt.errors import FormatError
from segfmt.filenames import log_name
from segfmt.offset_index import encode_offset_index
from segfmt.offset_index import max_entries as max_offset_entries
from segfmt.time_index import encode_time_index
from segfmt.time_index import max_entries as max_time_entries

Write = Callable[[ArchivedSegment, PartKind, bytes], StoredObject]
"""Writes a rebuilt part of a segment, and returns the object."""
_INDEXES = (PartKind.OFFSET_INDEX, PartKind.TIME_INDEX)


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildWork:
    """What is to be rebuilt of one segment.

    Attributes:
        kinds: the parts that are missing or wrong.
        index_interval_bytes, segment_index_bytes: settings of its log.
    """

    segment: ArchivedSegment
    kinds: frozenset[PartKind]
    index_interval_bytes: int
    segment_index_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuiltIndexes:
    """The indexes of one segment that were rebuilt.

    Attributes:
        key: of the segment in its partition.
        kinds: what is to be rebuilt of it, the other parts as well.
        parts: what was written.
        failures: why others were not.
    """

    key: SegmentKey
    kinds: frozenset[PartKind]
    parts: Mapping[PartKind, StoredObject] = field(default_factory=dict)
    failures: Mapping[PartKind, str] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Rebuilding:
    """What the fold needs to rebuild: the segments for which that was decided, and their rebuilt indexes.

    Attributes:
        write: writes a rebuilt part.
        indexes: by segment.
        failures: of writing other parts, by segment and part.
    """

    write: Write
    failures: dict[tuple[SegmentKey, PartKind], str] = field(default_factory=dict)
    indexes: dict[SegmentKey, RebuiltIndexes] = field(default_factory=dict)


def rebuild_indexes(work: RebuildWork, store: Store, layout: Layout, write: Write) -> RebuiltIndexes:
    """Rebuild and write the indexes of a segment that are to be. A failure is a value."""
    segment = work.segment
    wanted = [kind for kind in _INDEXES if kind in work.kinds]
    done = partial(RebuiltIndexes, key=segment.key, kinds=work.kinds)
    if not wanted:
        return done()
    try:
        _refuse_changed(store, segment.parts[PartKind.LOG])
        made = indexes_of(
            layout.files(store, segment).open(log_name(segment.base_offset)),
            base_offset=segment.base_offset,
            index_interval_bytes=work.index_interval_bytes,
            segment_index_bytes=work.segment_index_bytes,
        )
    except (OSError, FormatError) as error:
        return done(failures=dict.fromkeys(work.kinds, error_text(error)))
    parts: dict[PartKind, StoredObject] = {}
    failures: dict[PartKind, str] = {}
    for kind in wanted:
        try:
            parts[kind] = write(segment, kind, made[kind])
        except OSError as error:
            failures[kind] = error_text(error)
    return done(parts=parts, failures=failures)


def indexes_of(
    log: OpenedLog, *, base_offset: int, index_interval_bytes: int, segment_index_bytes: int
) -> dict[PartKind, bytes]:
    """Return the bytes of both indexes of a sound *log*; the log is closed.

    Raises:
        OSError: it cannot be read.
    """
    try:
        scanner = SegmentScanner(
            base_offset=base_offset,
            size_bytes=log.end_position,
            index_interval_bytes=index_interval_bytes,
            max_index_entries=max_offset_entries(segment_index_bytes),
            max_time_index_entries=max_time_entries(segment_index_bytes),
        )
        scan_windows(scanner, Windows(log, buffer=thread_buffer()))
    finally:
        log.close()
    scan = scanner.result()
    return {
        PartKind.OFFSET_INDEX: encode_offset_index(index_entries(scan)),
        PartKind.TIME_INDEX: encode_time_index(scan.time_index),
    }


def _refuse_changed(store: Store, log: StoredObject) -> None:
    """Raise OSError if a log is not the one that was judged."""
    if log.version and store.stat(log.key).version != log.version:
        raise OSError(errno.ESTALE, "the log was replaced after it was read", log.key)
