"""Looks at single positions of an open log: whether a sound batch begins there, and where the next one is."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from native.batch_headers import HeaderRows
from native.crc32c import crc32c
from recovery.read.opened_log import OpenedLog
from recovery.read.windows import WINDOW_BYTES, batch_bytes
from segfmt import byte_layout

_MOST_PROBES, _MOST_SEARCHES = 64, 100


class BatchSearch:
    """Searches for the next sound batch of a log after damage, a bounded number of times, each at a bounded cost.

    Args:
        log: opened.
        most_batch_bytes: larger batches are not considered.
    """

    def __init__(self, log: OpenedLog, *, most_batch_bytes: int) -> None:
        self._log = log
        self._most_batch_bytes = most_batch_bytes
        self._searches = 0

    def find(
        self,
        position: int,
        rest: HeaderRows | None,
        index_positions: Callable[[], npt.ArrayLike],
        *,
        base_offset: int,
    ) -> int | None:
        """Return where the next sound batch begins; None if none is found, or after too many searches.

        Args:
            position: of the damage.
            rest: the batches from there on by their lengths, HEADER_ROW_DTYPE; None if they cannot be followed.
            index_positions: returns the positions in the offset index.
            base_offset: no batch below it counts.
        """
        self._searches += 1
        if self._searches > _MOST_SEARCHES:
            return None
        candidates: set[int] = set()
        if rest is not None:
            candidates.update((rest["position"] + rest["size_bytes"])[:_MOST_PROBES].tolist())
        indexed = np.asarray(index_positions(), np.int64)
        candidates.update(indexed[indexed > position][:_MOST_PROBES].tolist())
        for candidate in sorted(candidates):
            if self.is_sound(candidate, base_offset=base_offset):
                return candidate
        return None

    def is_sound(self, position: int, *, base_offset: int) -> bool:
        """Return whether a batch with a correct CRC and a possible offset begins at *position*."""
        header = np.zeros(byte_layout.RECORD_BATCH_OVERHEAD_BYTES, np.uint8)
        if self._log.read_at(header, position) <= byte_layout.HEADER_UP_TO_MAGIC_BYTES:
            return False
        octets = header.tobytes()
        offset = int.from_bytes(octets[: byte_layout.LENGTH_POSITION], "big", signed=True)
        size = batch_bytes(octets)
        most_bytes = min(self._log.end_position - position, self._most_batch_bytes)
        if size < byte_layout.LOG_OVERHEAD_BYTES + byte_layout.MIN_MESSAGE_BYTES or size > most_bytes:
            return False
        return offset >= base_offset and has_right_crc(self._log, position, size)


def is_zero_range(log: OpenedLog, start: int, end: int) -> bool:
    """Return whether the bytes from *start* to *end* are all zeros."""
    buffer = np.zeros(min(WINDOW_BYTES, max(0, end - start)), np.uint8)
    while start < end:
        count = log.read_at(buffer[: end - start], start)
        if count == 0 or buffer[:count].any():
            return count == 0
        start += count
    return True


def has_right_crc(
    log: OpenedLog, position: int, size_bytes: int, take: Callable[[int], None] = lambda _: None
) -> bool:
    """Return whether the CRC of the batch at *position* is correct, reading it piece by piece.

    *take* is called with the size of each piece before it is read.
    """
    header = np.zeros(byte_layout.RECORD_BATCH_OVERHEAD_BYTES, np.uint8)
    if log.read_at(header, position) <= byte_layout.HEADER_UP_TO_MAGIC_BYTES:
        return False
    octets = header.tobytes()
    is_message = int.from_bytes(octets[16:17], "big", signed=True) < byte_layout.MAGIC_V2
    if is_message:
        at, start = byte_layout.MESSAGE_CRC_POSITION, byte_layout.MESSAGE_CRC_START_POSITION
    else:
        at, start = byte_layout.BATCH_CRC_POSITION, byte_layout.ATTRIBUTES_POSITION
        if size_bytes < byte_layout.RECORD_BATCH_OVERHEAD_BYTES:
            return False
    stored = int.from_bytes(octets[at : at + 4], "big")
    crc, piece_position, end = 0, position + start, position + size_bytes
    buffer = np.zeros(min(WINDOW_BYTES, size_bytes), np.uint8)
    while piece_position < end:
        take(min(len(buffer), end - piece_position))
        count = log.read_at(buffer[: end - piece_position], piece_position)
        if count == 0:
            return False
        crc = zlib.crc32(buffer[:count].data, crc) if is_message else crc32c(buffer[:count], crc)
        piece_position += count
    return crc == stored
