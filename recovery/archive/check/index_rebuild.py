"""Offset and time index of a segment made anew, as a broker's recovery makes them.

Kafka: LogSegment.recover.
"""

from __future__ import annotations

import errno

from native.segment_scan import SegmentScanner
from recovery.archive.stores.archived import PartKind
from recovery.check.segment_window import WINDOW_BYTES, window_buffer
from recovery.load.segment_recovery import index_entries
from recovery.read.opened_log import OpenedLog
from recovery.read.partition_files import SLACK_BYTES, decide_control
from segfmt.offset_index import encode_offset_index
from segfmt.offset_index import max_entries as max_offset_entries
from segfmt.time_index import encode_time_index
from segfmt.time_index import max_entries as max_time_entries


def rebuild_indexes(
    log: OpenedLog, *, base_offset: int, index_interval_bytes: int, segment_index_bytes: int
) -> dict[PartKind, bytes]:
    """Return the bytes of both indexes of a sound *log*, which is closed.

    Raises:
        OSError: it cannot be read.
    """
    try:
        size = log.end_position
        scanner = SegmentScanner(
            base_offset=base_offset,
            size_bytes=size,
            index_interval_bytes=index_interval_bytes,
            max_index_entries=max_offset_entries(segment_index_bytes),
            max_time_index_entries=max_time_entries(segment_index_bytes),
        )
        while not scanner.finished:
            position = scanner.position
            wanted = min(max(WINDOW_BYTES, scanner.needed_bytes), size - position)
            log.approach(position)
            window = window_buffer(SLACK_BYTES + wanted)
            if log.read_at(window[SLACK_BYTES:], position) < wanted:
                raise OSError(errno.EIO, "the log became shorter while it was read")
            scanner.feed(window, SLACK_BYTES)
            while scanner.paused_control:
                decide_control(scanner, window[SLACK_BYTES + scanner.control_position - position :])
            log.leave(scanner.position)
    finally:
        log.close()
    scan = scanner.result()
    return {
        PartKind.OFFSET_INDEX: encode_offset_index(index_entries(scan)),
        PartKind.TIME_INDEX: encode_time_index(scan.time_index),
    }
