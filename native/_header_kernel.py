# mypy: ignore-errors
# ^ kernels: numba infers their types, mypy cannot follow it
"""The kernel of the walk over batch headers: one row per batch; only lengths are checked.

Kafka: FileLogInputStream.nextBatch.
"""

from __future__ import annotations

import numpy as np

from native._jit import inlined, kernel
from native._memory import load_be16, load_be32, load_be64, load_i8, load_u8, rows_at
from native.batch_headers import HEADER_ROW_DTYPE
from segfmt import byte_layout

_INT64 = np.dtype(np.int64)

# How a walk ends; `native.batch_headers.WalkEnd` has the meanings.
NEED_BYTES, FULL, END, TORN, BAD_LENGTH = 0, 1, 2, 3, 4


@inlined
def _walk(at, end, position, end_position, rows):
    """Return (status, rows filled, position after the last of them)."""
    count = np.int64(0)
    while True:
        left = end_position - position
        if left <= byte_layout.HEADER_UP_TO_MAGIC_BYTES:
            return np.int64(END), count, position
        if count == rows.size:
            return np.int64(FULL), count, position
        if end - at < min(left, byte_layout.RECORD_BATCH_OVERHEAD_BYTES):
            return np.int64(NEED_BYTES), count, position
        length = load_be32(at + byte_layout.LENGTH_POSITION)
        if length < byte_layout.MIN_MESSAGE_BYTES:
            return np.int64(BAD_LENGTH), count, position
        size = length + byte_layout.LOG_OVERHEAD_BYTES
        if size > left:
            return np.int64(TORN), count, position
        magic = load_i8(at + byte_layout.MAGIC_POSITION)
        if magic >= byte_layout.MAGIC_V2 and size < byte_layout.RECORD_BATCH_OVERHEAD_BYTES:
            return np.int64(BAD_LENGTH), count, position
        if size > end - at:
            return np.int64(NEED_BYTES), count, position
        row = rows[count]
        offset = load_be64(at)
        row.position = position
        row.size_bytes = size
        row.base_offset = offset
        row.magic = magic
        if magic >= byte_layout.MAGIC_V2:
            delta = load_be32(at + byte_layout.LAST_OFFSET_DELTA_POSITION)
            row.last_offset = offset + delta
            row.last_offset_delta = delta
            row.max_timestamp_ms = load_be64(at + byte_layout.MAX_TIMESTAMP_POSITION)
            row.leader_epoch = load_be32(at + byte_layout.PARTITION_LEADER_EPOCH_POSITION)
            row.record_count = load_be32(at + byte_layout.RECORD_COUNT_POSITION)
            row.producer_id = load_be64(at + byte_layout.PRODUCER_ID_POSITION)
            row.producer_epoch = load_be16(at + byte_layout.PRODUCER_EPOCH_POSITION)
            row.base_sequence = load_be32(at + byte_layout.BASE_SEQUENCE_POSITION)
            row.attributes = load_be16(at + byte_layout.ATTRIBUTES_POSITION)
        else:
            row.last_offset = offset
            row.last_offset_delta = 0
            row.max_timestamp_ms = byte_layout.NO_TIMESTAMP_MS
            if magic != byte_layout.MAGIC_V0 and size >= byte_layout.MESSAGE_KEY_SIZE_POSITION_V1:
                row.max_timestamp_ms = load_be64(at + byte_layout.MESSAGE_TIMESTAMP_POSITION)
            row.leader_epoch = byte_layout.NO_PARTITION_LEADER_EPOCH
            row.record_count = -1
            row.producer_id = byte_layout.NO_PRODUCER_ID
            row.producer_epoch = byte_layout.NO_PRODUCER_EPOCH
            row.base_sequence = byte_layout.NO_SEQUENCE
            row.attributes = load_u8(at + byte_layout.MESSAGE_ATTRIBUTES_POSITION)
        count += 1
        at += size
        position += size


@kernel
def walk_headers(address, window_bytes, position, end_position, rows_address, row_count, result_address):
    """Fill rows from the window at *address*, whose first byte is at *position* in the file.

    Args:
        rows_address: of *row_count* HEADER_ROW_DTYPE. Written.
        result_address: of two int64s: rows filled, position after the last of them. Written.

    Returns:
        How the walk ends.
    """
    rows = rows_at(rows_address, row_count, HEADER_ROW_DTYPE)
    status, count, position = _walk(address, address + window_bytes, position, end_position, rows)
    result = rows_at(result_address, 2, _INT64)
    result[0] = count
    result[1] = position
    return status
