"""Looks at single places of an open log: whether a sound batch stands there, whether there are only zeros."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import numpy as np

from native.crc32c import crc32c
from recovery.read.opened_log import OpenedLog
from segfmt import layout

_CHUNK_BYTES = 4 << 20


def is_zero_range(log: OpenedLog, start: int, end: int) -> bool:
    """Return whether the bytes from *start* to *end* are all zeros."""
    buffer = np.zeros(min(_CHUNK_BYTES, max(0, end - start)), np.uint8)
    while start < end:
        count = log.read_at(buffer[: end - start], start)
        if count == 0 or buffer[:count].any():
            return count == 0
        start += count
    return True


def is_sound_batch(
    log: OpenedLog, position: int, end_position: int, *, base_offset: int, most_bytes: int
) -> bool:
    """Return whether a batch with a right CRC and a possible offset stands at *position*."""
    header = np.zeros(layout.RECORD_BATCH_OVERHEAD_BYTES, np.uint8)
    if log.read_at(header, position) <= layout.HEADER_UP_TO_MAGIC_BYTES:
        return False
    octets = header.tobytes()
    offset = int.from_bytes(octets[:8], "big", signed=True)
    length = int.from_bytes(octets[8:12], "big", signed=True)
    size = length + layout.LOG_OVERHEAD_BYTES
    if length < layout.MIN_MESSAGE_BYTES or size > min(end_position - position, most_bytes):
        return False
    return offset >= base_offset and is_sound_large_batch(log, position, size)


def is_sound_large_batch(
    log: OpenedLog, position: int, size_bytes: int, take: Callable[[int], None] = lambda _: None
) -> bool:
    """Return whether the CRC of the batch at *position* is right, reading it piece by piece.

    *take* is asked before each piece.
    """
    header = np.zeros(layout.RECORD_BATCH_OVERHEAD_BYTES, np.uint8)
    if log.read_at(header, position) <= layout.HEADER_UP_TO_MAGIC_BYTES:
        return False
    octets = header.tobytes()
    is_message = int.from_bytes(octets[16:17], "big", signed=True) < layout.MAGIC_V2
    if is_message:
        at, start = layout.MESSAGE_CRC_POSITION, layout.MESSAGE_CRC_START_POSITION
    else:
        at, start = layout.BATCH_CRC_POSITION, layout.ATTRIBUTES_POSITION
        if size_bytes < layout.RECORD_BATCH_OVERHEAD_BYTES:
            return False
    stored = int.from_bytes(octets[at : at + 4], "big")
    crc, place, end = 0, position + start, position + size_bytes
    buffer = np.zeros(min(_CHUNK_BYTES, size_bytes), np.uint8)
    while place < end:
        take(min(len(buffer), end - place))
        count = log.read_at(buffer[: end - place], place)
        if count == 0:
            return False
        crc = zlib.crc32(buffer[:count].data, crc) if is_message else crc32c(buffer[:count], crc)
        place += count
    return crc == stored
