# mypy: ignore-errors
# ^ kernels: numba infers their types, mypy cannot follow it
"""The kernel that walks over the records of one batch without materialising them.

Kafka: DefaultRecord.readFrom, ByteUtils.readVarint, readVarlong.
"""

from __future__ import annotations

import numpy as np

from native._jit import inlined, kernel
from native._memory import load_be16, load_be64, load_u8, rows_at
from native.batch_headers import HEADER_ROW_DTYPE
from segfmt import byte_layout

_INT64 = np.dtype(np.int64)

# How a walk ends; `native.record_walk.RecordFault` has the meanings.
SOUND, CUT_OFF, LONG_VARINT, BAD_SIZE, BAD_HEADER_COUNT, NULL_HEADER_KEY = 0, 1, 2, 3, 4, 5
BYTES_LEFT, BAD_OFFSET_DELTA, LATE_TIMESTAMP = 6, 7, 8

_VARINT_BYTES, _VARLONG_BYTES = 5, 10
_ONE, _SEVEN = np.uint64(1), np.uint64(7)


@inlined
def _varint(at, end, most_bytes):
    """Return (value, position after it); without a value the position is -1 - fault."""
    raw = np.uint64(0)
    shift = np.uint64(0)
    for _ in range(most_bytes):
        if at >= end:
            return np.int64(0), np.int64(-1 - CUT_OFF)
        octet = np.uint64(load_u8(at))
        raw |= (octet & np.uint64(0x7F)) << shift
        at += 1
        if octet < np.uint64(0x80):
            if most_bytes == _VARINT_BYTES:
                raw &= np.uint64(0xFFFFFFFF)
            return np.int64(raw >> _ONE) ^ -np.int64(raw & _ONE), np.int64(at)
        shift += _SEVEN
    return np.int64(0), np.int64(-1 - LONG_VARINT)


@inlined
def _skip_bytes(at, end):
    """Return (is null, position after a size and that many bytes), or a fault as `_varint` does."""
    size, at = _varint(at, end, _VARINT_BYTES)
    if at < 0 or size < 0:
        return size < 0, at
    if size > end - at:
        return False, np.int64(-1 - CUT_OFF)
    return False, at + size


@inlined
def _skip_headers(at, end):
    """Return the position after the headers of a record, or a fault as `_varint` does."""
    count, at = _varint(at, end, _VARINT_BYTES)
    if at < 0:
        return at
    if count < 0 or count > end - at:
        return np.int64(-1 - BAD_HEADER_COUNT)
    for _ in range(count):
        is_null, at = _skip_bytes(at, end)
        if at < 0:
            return at
        if is_null:
            return np.int64(-1 - NULL_HEADER_KEY)
        is_null, at = _skip_bytes(at, end)
        if at < 0:
            return at
    return at


@inlined
def _walk(address, size, record_count, last_offset_delta, base_timestamp_ms, max_timestamp_ms):
    """Walk over *record_count* records at *address*.

    *max_timestamp_ms* is the upper bound of the timestamps; the greatest int64 means none.

    Returns:
        (fault, number of the faulty record from 0, its position).
    """
    at = np.int64(address)
    end = at + np.int64(size)
    last_delta = np.int64(-1)
    for number in range(record_count):
        start = at
        record_bytes, at = _varint(at, end, _VARINT_BYTES)
        if at < 0:
            return np.int64(-1 - at), number, start - address
        record_end = at + record_bytes
        if record_bytes < 0 or record_end > end:
            return np.int64(CUT_OFF), number, start - address
        if at >= record_end:
            return np.int64(BAD_SIZE), number, start - address
        at += 1  # attributes
        timestamp_delta_ms, at = _varint(at, record_end, _VARLONG_BYTES)
        if at < 0:
            return np.int64(-1 - at), number, start - address
        offset_delta, at = _varint(at, record_end, _VARINT_BYTES)
        if at < 0:
            return np.int64(-1 - at), number, start - address
        _, at = _skip_bytes(at, record_end)
        if at >= 0:
            _, at = _skip_bytes(at, record_end)
        if at >= 0:
            at = _skip_headers(at, record_end)
        if at < 0:
            return np.int64(-1 - at), number, start - address
        if at != record_end:
            return np.int64(BAD_SIZE), number, start - address
        if offset_delta <= last_delta or offset_delta > last_offset_delta:
            return np.int64(BAD_OFFSET_DELTA), number, start - address
        last_delta = offset_delta
        if base_timestamp_ms + timestamp_delta_ms > max_timestamp_ms:
            return np.int64(LATE_TIMESTAMP), number, start - address
    if at != end:
        return np.int64(BYTES_LEFT), np.int64(record_count), at - address
    return np.int64(SOUND), np.int64(record_count), at - address


@inlined
def _walk_batches(address, rows):
    """Return (row, fault, number of the record, its position in the records).

    The row is rows.size if all are sound.
    """
    for place in range(rows.size):
        row = rows[place]
        if row.magic < byte_layout.MAGIC_V2 or row.record_count <= 0:
            continue
        at = np.int64(address) + row.position - rows[0].position
        attributes = load_be16(at + byte_layout.ATTRIBUTES_POSITION)
        if attributes & byte_layout.COMPRESSION_CODEC_MASK:
            continue
        bound_ms = load_be64(at + byte_layout.MAX_TIMESTAMP_POSITION)
        if attributes & byte_layout.TIMESTAMP_TYPE_MASK:
            bound_ms = np.int64(0x7FFFFFFFFFFFFFFF)
        fault, number, position = _walk(
            at + byte_layout.RECORDS_POSITION,
            row.size_bytes - byte_layout.RECORDS_POSITION,
            np.int64(row.record_count),
            np.int64(row.last_offset_delta),
            load_be64(at + byte_layout.BASE_TIMESTAMP_POSITION),
            bound_ms,
        )
        if fault != SOUND:
            return np.int64(place), fault, number, position
    return np.int64(rows.size), np.int64(SOUND), np.int64(0), np.int64(0)


@kernel
def walk_records(
    address, size, record_count, last_offset_delta, base_timestamp_ms, max_timestamp_ms, result_address
):
    """Walk over *record_count* records at *address*.

    Args:
        max_timestamp_ms: upper bound of the timestamps; the greatest int64 means none.
        result_address: of two int64s: number of the faulty record from 0, its position. Written.

    Returns:
        The fault.
    """
    fault, number, position = _walk(
        address, size, record_count, last_offset_delta, base_timestamp_ms, max_timestamp_ms
    )
    result = rows_at(result_address, 2, _INT64)
    result[0] = number
    result[1] = position
    return fault


@kernel
def walk_plain_batches(address, rows_address, row_count, result_address):
    """Walk over the records of the batches that are not compressed; the first batch is at *address*.

    Args:
        rows_address: of *row_count* HEADER_ROW_DTYPE.
        result_address: of three int64s: fault, number of the record, its position in the records. Written.

    Returns:
        The row of the faulty batch; *row_count* if all are sound.
    """
    row, fault, number, position = _walk_batches(address, rows_at(rows_address, row_count, HEADER_ROW_DTYPE))
    result = rows_at(result_address, 3, _INT64)
    result[0] = fault
    result[1] = number
    result[2] = position
    return row
