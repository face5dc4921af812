"""The offset and time index of a segment, rebuilt as a broker's recovery does.

Kafka: LogSegment.recover.
"""

from __future__ import annotations

from native.segment_scan import SegmentScanner
from recovery.archive.stores.archived import PartKind
from recovery.load.segment_recovery import index_entries
from recovery.read.opened_log import OpenedLog
from recovery.read.windows import Windows, scan_windows, thread_buffer
from segfmt.offset_index import encode_offset_index
from segfmt.offset_index import max_entries as max_offset_entries
from segfmt.time_index import encode_time_index
from segfmt.time_index import max_entries as max_time_entries


def rebuild_indexes(
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
