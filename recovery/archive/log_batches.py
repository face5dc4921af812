"""The record batches of one opened log, in order, a window at a time: for topics that are read for what they say.

What is damaged is told, and reading goes on behind it as far as lengths can be followed: a batch whose CRC is wrong is
left out, a length that cannot be, or a batch that is cut off, ends the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from native.crc32c import crc32c_of_bytes
from recovery.segment_files import OpenedLog
from segfmt import layout
from segfmt.errors import FormatError
from segfmt.record_batch import RecordBatchHeader, check_record_batch, walk_batches
from segfmt.value_class import dataclass

WINDOW_BYTES = 4 << 20
MOST_BATCH_BYTES = 128 << 20
"""A larger batch is not read; a broker's `message.max.bytes` is 1 MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedBatch:
    """One sound batch.

    Attributes:
        position: in the log.
        data: the whole batch.
    """

    position: int
    header: RecordBatchHeader
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDamage:
    """What is wrong with a log.

    Attributes:
        is_torn: the log ends within its last batch: what a crash leaves, and a copy of a live log.
    """

    position: int
    detail: str
    is_torn: bool = False


def read_batches(log: OpenedLog, report: Callable[[LogDamage], None]) -> Iterator[LoggedBatch]:
    """Yield the sound batches of *log*; tell *report* of what is damaged.

    Raises:
        OSError: it cannot be read.
    """
    position, window_bytes, end = 0, WINDOW_BYTES, log.end_position
    while position < end:
        window = _read(log, position, min(window_bytes, end - position))
        consumed = 0
        try:
            for place in walk_batches(window):
                consumed = place.position + place.size_bytes
                batch = _checked(window[place.position : consumed], position + place.position, report)
                if batch is not None:
                    yield batch
        except FormatError as error:
            report(LogDamage(position=position + consumed, detail=f"no batch: {error}"))
            return
        needed = _next_bytes(window[consumed:])
        position += consumed
        if position + needed > end or len(window) < min(window_bytes, end - position + consumed):
            if position < end:
                words = f"{end - position} bytes of a batch that is cut off"
                report(LogDamage(position=position, detail=words, is_torn=True))
            return
        if needed > MOST_BATCH_BYTES:
            report(LogDamage(position=position, detail=f"a batch of {needed} bytes is not read"))
            return
        window_bytes = max(WINDOW_BYTES, needed)
        log.leave(position)


def _read(log: OpenedLog, position: int, size: int) -> bytes:
    target = np.zeros(size, np.uint8)
    return target[: log.read_at(target, position)].tobytes()


def _checked(data: bytes, position: int, report: Callable[[LogDamage], None]) -> LoggedBatch | None:
    try:
        header = check_record_batch(data, crc32c=crc32c_of_bytes)
    except FormatError as error:
        report(LogDamage(position=position, detail=f"left out: {error}"))
        return None
    return LoggedBatch(position=position, header=header, data=data)


def _next_bytes(rest: bytes) -> int:
    """Return the size of the batch that *rest* begins with, as far as can be told: at least that of a header."""
    if len(rest) < layout.LOG_OVERHEAD_BYTES:
        return layout.RECORD_BATCH_OVERHEAD_BYTES
    length = int.from_bytes(rest[layout.LENGTH_POSITION : layout.LOG_OVERHEAD_BYTES], "big", signed=True)
    return max(layout.LOG_OVERHEAD_BYTES + length, layout.RECORD_BATCH_OVERHEAD_BYTES)
