"""Reads parts of files for the scrub of a segment: single batches of an open log, with `pread`, and indexes."""

from __future__ import annotations

import errno
import os
import stat
import zlib
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from native.crc32c import crc32c
from segfmt import layout

MOST_INDEX_BYTES = 32 << 20
_CHUNK_BYTES = 4 << 20


def read_index_file(path: str, take: Callable[[int], None]) -> tuple[bytes, int]:
    """Return the first bytes of an index, as many as are looked at, and its size.

    *take* is asked before they are read.

    Raises:
        FileNotFoundError: there is no such file, or what has its name is no file: a FIFO would never end.
        OSError: it cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise FileNotFoundError(errno.ENOENT, "no regular file", path)
        size = min(found.st_size, MOST_INDEX_BYTES)
        take(size)
        data = np.zeros(size, np.uint8)
        return data[: read_at(descriptor, data, 0)].tobytes(), found.st_size
    finally:
        os.close(descriptor)


def read_at(descriptor: int, target: npt.NDArray[np.uint8], position: int) -> int:
    """Fill *target* from *position* on; return how many bytes there were."""
    view = memoryview(target.data)
    done = 0
    while done < len(view):
        count = os.preadv(descriptor, [view[done:]], position + done)
        if count == 0:
            break
        done += count
    return done


def is_zero_range(descriptor: int, start: int, end: int) -> bool:
    """Return whether the bytes from *start* to *end* are all zeros."""
    buffer = np.zeros(min(_CHUNK_BYTES, max(0, end - start)), np.uint8)
    while start < end:
        count = read_at(descriptor, buffer[: end - start], start)
        if count == 0 or buffer[:count].any():
            return count == 0
        start += count
    return True


def is_sound_batch(
    descriptor: int, position: int, end_position: int, *, base_offset: int, most_bytes: int
) -> bool:
    """Return whether a batch with a right CRC and a possible offset stands at *position*."""
    header = np.zeros(layout.RECORD_BATCH_OVERHEAD_BYTES, np.uint8)
    if read_at(descriptor, header, position) <= layout.HEADER_UP_TO_MAGIC_BYTES:
        return False
    octets = header.tobytes()
    offset = int.from_bytes(octets[:8], "big", signed=True)
    length = int.from_bytes(octets[8:12], "big", signed=True)
    size = length + layout.LOG_OVERHEAD_BYTES
    if length < layout.MIN_MESSAGE_BYTES or size > min(end_position - position, most_bytes):
        return False
    return offset >= base_offset and is_sound_large_batch(descriptor, position, size)


def is_sound_large_batch(
    descriptor: int, position: int, size_bytes: int, take: Callable[[int], None] = lambda _: None
) -> bool:
    """Return whether the CRC of the batch at *position* is right, reading it piece by piece.

    *take* is asked before each piece.
    """
    header = np.zeros(layout.RECORD_BATCH_OVERHEAD_BYTES, np.uint8)
    if read_at(descriptor, header, position) <= layout.HEADER_UP_TO_MAGIC_BYTES:
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
        count = read_at(descriptor, buffer[: end - place], place)
        if count == 0:
            return False
        crc = zlib.crc32(buffer[:count].data, crc) if is_message else crc32c(buffer[:count], crc)
        place += count
    return crc == stored
