"""Whether the records of a batch parse, checked by a kernel: no Python per record.

Kafka: DefaultRecordBatch.iterator, DefaultRecord.readFrom.
Differs: Kafka does not check offset deltas and timestamps here.
"""

from __future__ import annotations

import ctypes
import enum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from native import kernels
from native.address import address_of
from native.batch_headers import HeaderRows


class RecordFault(enum.IntEnum):
    """What is wrong with a record, or with what holds it."""

    SOUND = 0
    CUT_OFF = 1
    """A field reaches beyond the record, or the record beyond the records."""
    LONG_VARINT = 2
    """A varint of more than 5 bytes, or a varlong of more than 10."""
    BAD_SIZE = 3
    """The record's own size is not that of its fields."""
    BAD_HEADER_COUNT = 4
    NULL_HEADER_KEY = 5
    BYTES_LEFT = 6
    """There are bytes after the last record."""
    BAD_OFFSET_DELTA = 7
    """Not above the one before, or above the batch's last."""
    LATE_TIMESTAMP = 8
    """Above the batch's greatest."""
    # of a unit whose records are listed (`native.record_rows`), which may hold older messages
    BAD_COUNT = 20
    """A negative record count."""
    BAD_MESSAGE = 21
    """A message with an impossible size, magic, key or value."""
    NESTED_WRAPPER = 22
    """A compressed message inside a compressed message."""
    EMPTY_WRAPPER = 23
    """A compressed message without messages in it."""
    WRAPPER_OFFSET = 24
    """A wrapper's offset below that of its last message."""


class RecordWalk(NamedTuple):
    """The first fault: its kind, the record's number from 0, its position in the (opened) records."""

    fault: RecordFault
    number: int
    position: int


def walk_plain_batches(window: npt.NDArray[np.uint8], rows: HeaderRows) -> tuple[int, RecordWalk]:
    """Walk over the records of all batches in *window* that are not compressed; messages are passed over.

    Args:
        window: uint8, C-contiguous; its first byte is that of the batch of ``rows[0]``.
        rows: of batches that are entirely in *window*, record counts not negative.

    Returns:
        The number in *rows* of the first batch with a fault, ``len(rows)`` without one, and the fault.
    """
    if not len(rows):
        return 0, RecordWalk(RecordFault.SOUND, 0, 0)
    address = address_of(window)
    rows = np.ascontiguousarray(rows)
    rows_address = address_of(rows)
    result = (ctypes.c_int64 * 3)()
    walk = kernels.entry(kernels.WALK_PLAIN_BATCHES)
    place = walk(address, rows_address, len(rows), ctypes.addressof(result))
    fault, number, position = result
    return place, RecordWalk(RecordFault(fault), number, position)


def walk_records(
    records: npt.NDArray[np.uint8],
    *,
    record_count: int,
    last_offset_delta: int,
    base_timestamp_ms: int,
    max_timestamp_ms: int | None,
) -> RecordWalk:
    """Walk over the records of one batch.

    Args:
        records: uint8, shape (n,), C-contiguous, not compressed (any more). Not written.
        record_count: of the batch's header, not negative.
        last_offset_delta: of the batch's header.
        base_timestamp_ms: of the batch's header.
        max_timestamp_ms: of the batch's header; None if it does not bound the timestamps.
    """
    bound_ms = int(np.iinfo(np.int64).max) if max_timestamp_ms is None else max_timestamp_ms
    address = address_of(records)
    result = (ctypes.c_int64 * 2)()
    walk = kernels.entry(kernels.WALK_RECORDS)
    fault = walk(
        address,
        records.size,
        record_count,
        last_offset_delta,
        base_timestamp_ms,
        bound_ms,
        ctypes.addressof(result),
    )
    return RecordWalk(RecordFault(fault), *result)
