"""The map step over logs only: many small ones in one call of a kernel, and one row for all that are sound.

The kernel only says which logs are sound. All others, and those that are large or not stored in the broker's form, go
through the check of `verify`, which alone says what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

import numpy as np

from native.log_checks import LOG_ROW_DTYPE, LogRows, check_logs
from recovery.archive.check.logs.sound_logs import SoundLogs
from recovery.archive.check.scanned import PartitionWork, ScannedSegment
from recovery.archive.check.segment_map import SegmentMap
from recovery.archive.layouts.layout import Layout
from recovery.archive.stores.archived import PartKind
from recovery.archive.stores.segment_table import LETTERS
from recovery.archive.stores.store import Store
from recovery.read.windows import SLACK_BYTES, WINDOW_BYTES, thread_buffer
from segfmt.remote_log_metadata import RemoteSegment

MOST_SMALL_BYTES = 1 << 20
"""A larger log is read in windows: reading its bytes costs more than handling it singly."""
_BUFFER_BYTES = WINDOW_BYTES
_SEGMENTS_TOGETHER = 512


class LogScan:
    """Reads logs and no other objects.

    Args:
        store: the archive.
        layout: its layout.
    """

    def __init__(self, store: Store, layout: Layout) -> None:
        self._store = store
        self._layout = layout
        self._closely = SegmentMap(store, layout, is_logs_only=True)

    def scan(self, works: PartitionWork) -> Iterator[SoundLogs | tuple[ScannedSegment, bytes]]:
        """Yield the results for the logs of *works*: sound ones together, each other one with its digest."""
        for start in range(0, len(works), _SEGMENTS_TOGETHER):
            yield from self._scan(works.between(start, min(start + _SEGMENTS_TOGETHER, len(works))))

    def _scan(self, works: PartitionWork) -> Iterator[SoundLogs | tuple[ScannedSegment, bytes]]:
        rows = self._rows(works)
        for group in _groups(rows, np.flatnonzero(rows["is_sound"]).tolist()):
            self._check(works, rows, group)
        for number in np.flatnonzero(~rows["is_sound"]).tolist():
            (work,) = works.between(number, number + 1)
            scanned = self._closely.scan(work)
            if scanned.result is not None:
                scanned.result.pieces = []  # of producers, which are not needed
            if work.segment.other_file or not _is_sound(scanned):
                yield scanned, work.digest
            else:
                _enter(scanned, rows[number])
        if rows["is_sound"].any():
            yield _sound_logs(works, rows)

    def _rows(self, works: PartitionWork) -> LogRows:
        """Return a row for each segment; those that may be sound are marked so until they are read."""
        segments = works.segments
        rows = np.zeros(len(segments), LOG_ROW_DTYPE)
        rows["size_bytes"] = segments.part_bytes(PartKind.LOG)
        rows["base_offset"] = segments.base_offsets
        rows["next_base_offset"] = [-1 if offset is None else offset for offset in segments.next_base_offsets]
        if self._layout.has_plain_logs:
            log = LETTERS[PartKind.LOG]
            rows["is_sound"] = [
                shape == log and not other_file
                for shape, other_file in zip_longest(segments.shapes(), segments.other_files)
            ]
            rows["is_sound"] &= rows["size_bytes"] <= MOST_SMALL_BYTES
        return rows

    def _check(self, works: PartitionWork, rows: LogRows, group: Sequence[int]) -> None:
        """Read the logs with the numbers in *group* one after another, and enter which are sound."""
        buffer = thread_buffer().memory(_BUFFER_BYTES + 1)  # a log may have one byte more than it should
        names, prefix = works.segments.objects.names, works.segments.objects.prefix
        firsts = [end - 1 for end in works.segments.ends]  # of one object each
        starts, read = [], []
        position = SLACK_BYTES
        for number in group:
            size_bytes = int(rows["size_bytes"][number])
            target = memoryview(buffer.data)[position : position + size_bytes + 1]
            try:
                count = self._store.read_into(prefix + names[firsts[number]], target)
            except OSError:
                continue  # the closer check reports it
            if count == size_bytes:
                read.append(number)
                starts.append(position)
                position += size_bytes
        rows["is_sound"][group] = False
        logs = rows[read]
        logs["start"] = starts
        check_logs(buffer, logs)
        if self._layout.is_tiered:
            logs["is_sound"] &= logs["batch_count"] > 0
        rows[read] = logs
        for number in read if works.remote else ():
            remote = works.remote.get(works.segments.segment_ids[number])
            if remote is not None and not _agrees(rows[number], remote):
                rows["is_sound"][number] = False


def _sound_logs(works: PartitionWork, rows: LogRows) -> SoundLogs:
    taken, sound_rows = works.take(np.flatnonzero(rows["is_sound"]).tolist()), rows[rows["is_sound"]]
    return SoundLogs(
        segments=taken.segments,
        digests=taken.digests,
        log_bytes=sound_rows["size_bytes"].copy(),
        first_offsets=sound_rows["first_offset"].copy(),
        last_offsets=sound_rows["last_offset"].copy(),
        batch_counts=sound_rows["batch_count"].copy(),
        has_compacted=sound_rows["has_compacted"].copy(),
    )


def _groups(rows: LogRows, numbers: Sequence[int]) -> Iterator[list[int]]:
    """Yield *numbers*, as many at a time as fit into the buffer."""
    group: list[int] = []
    size = 0
    for number in numbers:
        needed = int(rows["size_bytes"][number])
        if group and size + needed > _BUFFER_BYTES:
            yield group
            group, size = [], 0
        group.append(number)
        size += needed
    if group:
        yield group


def _agrees(row: np.void, remote: RemoteSegment) -> bool:
    """Return whether a log agrees with what the metadata topic says of it."""
    return (row["base_offset"], row["size_bytes"], row["last_offset"], row["max_timestamp_ms"]) == (
        remote.start_offset,
        remote.size_bytes,
        remote.end_offset,
        remote.max_timestamp_ms,
    )


def _is_sound(scanned: ScannedSegment) -> bool:
    """Return whether a log that was checked closely has no findings."""
    result = scanned.result
    if result is None or scanned.findings or result.findings or not result.is_whole:
        return False
    return result.has_compacted or not result.gaps


def _enter(scanned: ScannedSegment, row: np.void) -> None:
    """Enter the results for a sound log."""
    result = scanned.result
    assert result is not None
    row["is_sound"] = True
    row["size_bytes"] = scanned.log_bytes
    row["first_offset"] = -1 if result.first_offset is None else result.first_offset
    row["last_offset"] = -1 if result.last_offset is None else result.last_offset
    row["batch_count"] = result.batch_count
    row["has_compacted"] = result.has_compacted
