# mypy: ignore-errors
# ^ kernels: numba infers their types, mypy cannot follow it
"""The kernel that lists records: a row each, with the positions of its key, value and headers. Nothing is copied.

Kafka: DefaultRecordBatch.iterator, DefaultRecord.readFrom, AbstractLegacyRecordBatch.DeepRecordsIterator.
"""

from __future__ import annotations

import numpy as np

from native._jit import inlined, kernel
from native._memory import (
    load_be32,
    load_be64,
    load_i8,
    load_le32,
    load_le64,
    load_u8,
    rows_at,
    store_le32,
    store_le64,
    store_u8,
)
from native._record_kernel import (
    _VARINT_BYTES,
    _VARLONG_BYTES,
    BAD_SIZE,
    BYTES_LEFT,
    CUT_OFF,
    SOUND,
    _skip_headers,
    _varint,
)
from native.record_rows import HEADER_ENTRY_DTYPE, RECORD_ROW_DTYPE, UNIT_DTYPE
from segfmt import byte_layout

_INT32, _INT64 = np.dtype(np.int32), np.dtype(np.int64)
_MOST_INT32 = np.int64(2**31 - 1)
_NO_BOUND = np.int64(2**63 - 1)

# How a listing ends, besides the faults of `native._record_kernel`; `record_walk.RecordFault` has the meanings.
BAD_COUNT, BAD_MESSAGE, NESTED_WRAPPER, EMPTY_WRAPPER, WRAPPER_OFFSET, FULL = 20, 21, 22, 23, 24, 30
# What a unit holds; `native.record_rows.UnitKind` has the meanings.
_RECORDS, _MESSAGES, _RELATIVE_MESSAGES = 0, 1, 2


@inlined
def _wrap_int(value):
    """Return *value* as a Java int would hold it."""
    return ((value + 2**31) & 0xFFFFFFFF) - 2**31


@inlined
def _sequence(base_sequence, delta):
    """Kafka: DefaultRecordBatch.incrementSequence; -1 without a base."""
    if base_sequence < 0:
        return np.int64(byte_layout.NO_SEQUENCE)
    if base_sequence > _wrap_int(_MOST_INT32 - delta):
        return _wrap_int(delta - (_MOST_INT32 - base_sequence) - 1)
    return _wrap_int(base_sequence + delta)


@inlined
def _bytes(at, end):
    """Return (size or -1 for null, where the bytes begin, position after them or -1 - fault)."""
    size, at = _varint(at, end, _VARINT_BYTES)
    if at < 0:
        return np.int64(-1), at, at
    if size < 0:
        return np.int64(-1), at, at
    if size > end - at:
        return np.int64(-1), at, np.int64(-1 - CUT_OFF)
    return size, at, at + size


@inlined
def _record(at, end, unit, row):
    """Fill *row* from the record at *at*; return the position after it, or -1 - fault."""
    record_bytes, at = _varint(at, end, _VARINT_BYTES)
    if at < 0:
        return at
    record_end = at + record_bytes
    if record_bytes < 0 or record_end > end:
        return np.int64(-1 - CUT_OFF)
    if at >= record_end:
        return np.int64(-1 - BAD_SIZE)
    timestamp_delta_ms, at = _varint(at + 1, record_end, _VARLONG_BYTES)
    if at < 0:
        return at
    offset_delta, at = _varint(at, record_end, _VARINT_BYTES)
    if at < 0:
        return at
    key_bytes, key_address, at = _bytes(at, record_end)
    if at < 0:
        return at
    value_bytes, value_address, at = _bytes(at, record_end)
    if at < 0:
        return at
    header_count, headers_address = _varint(at, record_end, _VARINT_BYTES)
    at = _skip_headers(at, record_end)
    if at < 0:
        return at
    if at != record_end:
        return np.int64(-1 - BAD_SIZE)
    row.offset = unit.base_offset + offset_delta
    row.timestamp_ms = unit.stamp_ms if unit.is_stamped else unit.base_timestamp_ms + timestamp_delta_ms
    row.sequence = _sequence(np.int64(unit.base_sequence), offset_delta)
    row.key_address, row.key_bytes = key_address, key_bytes
    row.value_address, row.value_bytes = value_address, value_bytes
    row.headers_address, row.header_count = headers_address, header_count
    return at


@inlined
def _message_bytes(at, end):
    """Read an int32 size and that many bytes; return as `_bytes` does."""
    if end - at < 4:
        return np.int64(-1), at, np.int64(-1 - BAD_MESSAGE)
    size = load_be32(at)
    at += 4
    if size < 0:
        return np.int64(-1), at, at
    if size > end - at:
        return np.int64(-1), at, np.int64(-1 - BAD_MESSAGE)
    return size, at, at + size


@inlined
def _message(at, unit, base, row):
    """Fill *row* from the message at *at*, checked by `_is_message`; return the position after it, or -1 - fault."""
    size = load_be32(at + byte_layout.LENGTH_POSITION)
    if size < byte_layout.MIN_MESSAGE_BYTES:
        return np.int64(-1 - BAD_MESSAGE)
    end = at + byte_layout.LOG_OVERHEAD_BYTES + size
    magic = load_i8(at + byte_layout.MAGIC_POSITION)
    if magic >= byte_layout.MAGIC_V2:
        return np.int64(-1 - BAD_MESSAGE)
    key_position = np.int64(byte_layout.MESSAGE_KEY_SIZE_POSITION_V0)
    timestamp_ms = np.int64(byte_layout.NO_TIMESTAMP_MS)
    if magic != byte_layout.MAGIC_V0:
        key_position = np.int64(byte_layout.MESSAGE_KEY_SIZE_POSITION_V1)
        if end - at < key_position:
            return np.int64(-1 - BAD_MESSAGE)
        timestamp_ms = load_be64(at + byte_layout.MESSAGE_TIMESTAMP_POSITION)
        if magic == byte_layout.MAGIC_V1 and unit.is_stamped:
            timestamp_ms = np.int64(unit.stamp_ms)
    key_bytes, key_address, value_at = _message_bytes(at + key_position, end)
    if value_at < 0:
        return value_at
    value_bytes, value_address, behind = _message_bytes(value_at, end)
    if behind < 0:
        return behind
    if load_u8(at + byte_layout.MESSAGE_ATTRIBUTES_POSITION) & byte_layout.COMPRESSION_CODEC_MASK:
        return np.int64(-1 - NESTED_WRAPPER)
    row.offset = base + load_be64(at)
    row.timestamp_ms = timestamp_ms
    row.key_address, row.key_bytes = key_address, key_bytes
    row.value_address, row.value_bytes = value_address, value_bytes
    row.sequence = byte_layout.NO_SEQUENCE
    row.header_count = 0
    row.headers_address = 0
    return end


@inlined
def _is_message(at, end):
    """Return whether a whole message begins at *at*: Kafka silently drops an incomplete one."""
    if end - at < byte_layout.LOG_OVERHEAD_BYTES:
        return False
    size = load_be32(at + byte_layout.LENGTH_POSITION)
    return size < byte_layout.MIN_MESSAGE_BYTES or size <= end - at - byte_layout.LOG_OVERHEAD_BYTES


@inlined
def _check_messages(unit, row):
    """Return (fault, how many messages *unit* holds, what to add to their offsets); *row* is overwritten."""
    at, end = np.int64(unit.address), np.int64(unit.address + unit.size_bytes)
    count, last_offset = np.int64(0), np.int64(0)
    while _is_message(at, end):
        at = _message(at, unit, np.int64(0), row)
        if at < 0:
            return np.int64(-1 - at), count, np.int64(0)
        last_offset = np.int64(row.offset)
        count += 1
    if count == 0:
        return np.int64(EMPTY_WRAPPER), count, np.int64(0)
    base = np.int64(0)
    if unit.kind == _RELATIVE_MESSAGES:
        base = unit.base_offset - last_offset
        if base < 0:
            return np.int64(WRAPPER_OFFSET), count, base
    return np.int64(SOUND), count, base


@inlined
def _check_records(unit, row):
    """Return the fault in the records of *unit*; *row* is overwritten."""
    at, end = np.int64(unit.address), np.int64(unit.address + unit.size_bytes)
    for _ in range(unit.record_count):
        at = _record(at, end, unit, row)
        if at < 0:
            return np.int64(-1 - at)
    return np.int64(SOUND) if at == end else np.int64(BYTES_LEFT)


@inlined
def _begin(unit, row, most_rows):
    """Return (fault, how many records are in *unit*, what to add to their offsets); *row* is overwritten.

    A unit that is listed in parts is checked as a whole before the first part.
    """
    if unit.kind != _RECORDS:
        return _check_messages(unit, row)
    count = np.int64(unit.record_count)
    if count < 0:
        return np.int64(BAD_COUNT), count, np.int64(0)
    fault = np.int64(SOUND)
    if count > most_rows:
        fault = _check_records(unit, row)
    return fault, count, np.int64(0)


@inlined
def _list_unit(place, unit, rows, filled, state):
    """Fill rows from *filled* on with what is left of *unit* by *state*; return (fault or FULL, rows filled)."""
    number, at, base, count = state[1], state[2], state[3], state[4]
    first = filled
    end = np.int64(unit.address + unit.size_bytes)
    while number < count:
        if filled == rows.size:
            state[1], state[2] = number, at
            return np.int64(FULL), filled
        row = rows[filled]
        at = _record(at, end, unit, row) if unit.kind == _RECORDS else _message(at, unit, base, row)
        if at < 0:
            return np.int64(-1 - at), first
        row.unit = place
        filled += 1
        number += 1
    if unit.kind == _RECORDS and count > 0 and at != end:
        return np.int64(BYTES_LEFT), first
    state[1] = 0
    return np.int64(SOUND), filled


@kernel
def list_records(units_address, unit_count, rows_address, most_rows, state_address):
    """List the records of units, from where *state* points.

    A unit is listed whole, unless it has more records than *most_rows*; then it comes in parts.

    Args:
        units_address: of *unit_count* UNIT_DTYPE.
        rows_address: of *most_rows* RECORD_ROW_DTYPE, at least one. Written.
        state_address: of six int64s: the unit; how many of its records are done, the position of the next, what is
            added to offsets, how many there are; rows filled. Zeros at first. Written.

    Returns:
        SOUND at the end of all units, FULL before that, or the fault of the unit, which then has no rows.
    """
    units = rows_at(units_address, unit_count, UNIT_DTYPE)
    rows = rows_at(rows_address, most_rows, RECORD_ROW_DTYPE)
    state = rows_at(state_address, 6, _INT64)
    filled = np.int64(0)
    fault = np.int64(SOUND)
    while state[0] < unit_count:
        place = state[0]
        unit = units[place]
        if filled == most_rows:
            fault = np.int64(FULL)
            break
        if state[1] == 0:
            fault, count, base = _begin(unit, rows[filled], most_rows)
            if fault != SOUND:
                break
            if filled > 0 and count > most_rows - filled:
                fault = np.int64(FULL)
                break
            state[2], state[3], state[4] = unit.address, base, count
        fault, filled = _list_unit(place, unit, rows, filled, state)
        if fault != SOUND:
            break
        state[0] += 1
    state[5] = filled
    return fault


@kernel
def list_headers(rows_address, row_count, entries_address):
    """List the headers of records that have been listed.

    Args:
        rows_address: of *row_count* RECORD_ROW_DTYPE.
        entries_address: of as many HEADER_ENTRY_DTYPE as the rows have headers. Written.

    Returns:
        How many there are.
    """
    rows = rows_at(rows_address, row_count, RECORD_ROW_DTYPE)
    entries = rows_at(entries_address, _NO_BOUND, HEADER_ENTRY_DTYPE)
    filled = np.int64(0)
    for place in range(row_count):
        at = np.int64(rows[place].headers_address)
        for _ in range(rows[place].header_count):
            entry = entries[filled]
            size, start, at = _bytes(at, _NO_BOUND)
            entry.key_bytes, entry.key_address = size, start
            size, start, at = _bytes(at, _NO_BOUND)
            entry.value_bytes, entry.value_address = size, start
            filled += 1
    return filled


@inlined
def _copy(target, source, size):
    if size >= 8:
        last = size - 8
        at = np.int64(0)
        while at < last:
            store_le64(target + at, load_le64(source + at))
            at += 8
        store_le64(target + last, load_le64(source + last))
    elif size >= 4:
        head, tail = load_le32(source), load_le32(source + size - 4)
        store_le32(target, head)
        store_le32(target + size - 4, tail)
    else:
        for at in range(size):
            store_u8(target + at, load_u8(source + at))


@kernel
def join_bytes(address_of_first, stride, count, offsets_address, target_address):
    """Copy strings of bytes one after another into the target.

    Args:
        address_of_first: where the address of the first is stored; those of the others follow *stride* bytes apart.
        offsets_address: of *count* + 1 int32s: where each begins and ends in the target.
        target_address: of as many bytes as the last of these offsets. Written.

    Returns:
        0.
    """
    offsets = rows_at(offsets_address, count + 1, _INT32)
    for number in range(count):
        start = np.int64(offsets[number])
        source = np.int64(load_le64(address_of_first + number * stride))
        _copy(target_address + start, source, np.int64(offsets[number + 1]) - start)
    return np.int64(0)
