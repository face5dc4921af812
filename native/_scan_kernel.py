# mypy: ignore-errors
# ^ kernels: numba infers their types, mypy cannot follow it
"""The kernel of the segment scan: one forward pass, one visit a batch, no Python.

It follows LogSegment.recover statement by statement; the order of the checks is Kafka's and is part of the
result. It does not raise, allocate or call: it leaves with a status and goes on where it was when called
again.

Kafka: LogSegment.recover, FileLogInputStream.nextBatch, DefaultRecordBatch.ensureValid,
LegacyRecord.ensureValid, OffsetIndex.append, TimeIndex.maybeAppend, LeaderEpochFileCache.assign,
ProducerAppendInfo.append.
"""

from __future__ import annotations

import functools

import numpy as np
from numba import types
from numba.np import numpy_support

from native import _crc32
from native._cpu_type import CpuPathType
from native._crc32c import checksum
from native._jit import inlined, kernel
from native._memory import load_be16, load_be32, load_be64, load_i8, load_u8
from native._scan_state import (
    FULL,
    NEED_BYTES,
    PAUSED,
    PRODUCER_ROW_DTYPE,
    STATE_DTYPE,
    TXN_NONE,
    TXN_NONE_BEFORE_MARKER,
    TXN_OPEN,
    TXN_UNKNOWN,
)
from native.raw_scan import TIME_INDEX_ROW_DTYPE, TXN_EVENT_DTYPE, ControlKind, Stop, TxnEventKind
from segfmt import layout

# numba freezes module-level integers; it does not look through an enum's members as cheaply.
_END = int(Stop.END)
_TORN = int(Stop.TORN)
_BAD_LENGTH = int(Stop.BAD_LENGTH)
_CRC_MISMATCH = int(Stop.CRC_MISMATCH)
_OFFSET_OVERFLOW = int(Stop.OFFSET_OVERFLOW)
_INDEX_FULL = int(Stop.INDEX_FULL)
_INVALID_OFFSET = int(Stop.INVALID_OFFSET)
_TIME_INDEX_FULL = int(Stop.TIME_INDEX_FULL)
_TIME_INDEX_INVALID_OFFSET = int(Stop.TIME_INDEX_INVALID_OFFSET)
_INVALID_TXN = int(Stop.INVALID_TXN)
_CONTROL_FATAL = int(Stop.CONTROL_FATAL)
_SHORT_HEADER = int(Stop.SHORT_HEADER)
_KIND_MARKER = int(ControlKind.MARKER)
_KIND_NOTHING = int(ControlKind.NOTHING)
_KIND_UNKNOWN = 0
_EVENT_BEGIN = int(TxnEventKind.BEGIN)
_EVENT_NON_TRANSACTIONAL = int(TxnEventKind.NON_TRANSACTIONAL)
_EVENT_INVALID_TXN = int(TxnEventKind.INVALID_TXN)
_EVENT_MARKER = int(TxnEventKind.MARKER)

_MAX_INT32 = 0x7FFFFFFF
_UINT32_MASK = np.int64(0xFFFFFFFF)
_HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # 2**64 / golden ratio, odd: neighbouring ids land far apart
_HASH_SHIFT = np.uint64(32)

_HEADER_BYTES = layout.HEADER_UP_TO_MAGIC_BYTES
_LOG_OVERHEAD = layout.LOG_OVERHEAD_BYTES
_BATCH_OVERHEAD = layout.RECORD_BATCH_OVERHEAD_BYTES
_MIN_LENGTH = layout.MIN_MESSAGE_BYTES
_TRANSACTIONAL = layout.TRANSACTIONAL_MASK
_CONTROL = layout.CONTROL_MASK
_LOG_APPEND_TIME = layout.TIMESTAMP_TYPE_MASK
_COMPRESSION = layout.COMPRESSION_CODEC_MASK
_RECORDS = layout.RECORDS_POSITION

# The one shape of a marker that is decoded here: varints of one byte, key 4 bytes, value 6, no headers.
#   0 size | 1 attributes | 2 timestampDelta | 3 offsetDelta | 4 keyLength | 5 version i16 | 7 type i16
#   9 valueLength | 10 version i16 | 12 coordinatorEpoch i32 | 16 headerCount
_MARKER_BYTES = 17
_MARKER_SIZE_VARINT = 2 * (_MARKER_BYTES - 1)
_MARKER_KEY_VARINT = 2 * layout.CONTROL_KEY_BYTES
_MARKER_VALUE_VARINT = 2 * layout.END_TXN_MARKER_VALUE_BYTES


@inlined
def _int32(value):
    """Return *value* as Java's int arithmetic would leave it."""
    return np.int64(np.int32(value))


@inlined
def _last_sequence(base_sequence, last_offset_delta):
    """Kafka: DefaultRecordBatch.lastSequence and incrementSequence, overflows included."""
    if base_sequence == -1:
        return np.int64(-1)
    if base_sequence > _int32(_MAX_INT32 - last_offset_delta):
        return _int32(last_offset_delta - (_MAX_INT32 - base_sequence) - 1)
    return _int32(base_sequence + last_offset_delta)


@inlined
def _find_producer(producers, slots, producer_count, producer_id):
    """Return the row of *producer_id*, which is *producer_count* if it was made just now.

    *slots* is an open hash table, a power of two long and at most half full: 0 free, otherwise row + 1.
    """
    mask = np.uint64(slots.size - 1)
    slot = ((np.uint64(producer_id) * _HASH_FACTOR) >> _HASH_SHIFT) & mask
    while True:
        row = np.int64(slots[slot]) - 1
        if row < 0:
            slots[slot] = producer_count + 1
            new = producers[producer_count]
            new.producer_id = producer_id
            new.last_offset = -1
            new.timestamp_ms = -1
            new.data_timestamp_ms = -1
            new.last_sequence = -1
            new.offset_delta = 0
            new.coordinator_epoch = -1
            new.first_epoch = -1
            new.epoch = -1
            new.has_data = False
            new.has_marker = False
            new.cleared = False
            new.txn = TXN_UNKNOWN
            return producer_count
        if producers[row].producer_id == producer_id:
            return row
        slot = (slot + np.uint64(1)) & mask


@inlined
def _add_event(
    events, count, kind, producer, offset, last_offset, position, marker_type, coordinator_epoch, epoch
):
    event = events[count]
    event.kind = kind
    event.producer = producer
    event.offset = offset
    event.last_offset = last_offset
    event.position = position
    event.marker_type = marker_type
    event.coordinator_epoch = coordinator_epoch
    event.epoch = epoch


@inlined
def _apply_marker(row, epoch, coordinator_epoch, timestamp_ms):
    """Kafka: ProducerAppendInfo.appendEndTxnMarker, ProducerStateEntry.update."""
    if row.has_data or row.has_marker:
        if row.epoch != epoch:
            row.cleared = True
    else:
        row.first_epoch = epoch
    row.epoch = epoch
    row.coordinator_epoch = coordinator_epoch
    row.timestamp_ms = timestamp_ms
    row.has_marker = True
    row.txn = TXN_NONE


@inlined
def _decode_marker(batch, total_bytes, attributes):
    """Return (kind, marker type, coordinator epoch, timestamp) of the control batch at address *batch*.

    Kafka: ProducerAppendInfo.append, EndTransactionMarker.deserialize. Differs: anything but the shape that
    brokers write is left to the caller (kind 0); it may still be a marker.
    """
    record_count = load_be32(batch + layout.RECORD_COUNT_POSITION)
    if record_count == 0:
        return _KIND_NOTHING, np.int64(0), np.int64(0), np.int64(0)
    record = batch + _RECORDS
    if (
        record_count != 1
        or attributes & _COMPRESSION != 0
        or total_bytes != _RECORDS + _MARKER_BYTES
        or load_u8(record) != _MARKER_SIZE_VARINT
        or load_u8(record + 2) >= 128
        or load_u8(record + 3) >= 128
        or load_u8(record + 4) != _MARKER_KEY_VARINT
        or load_u8(record + 9) != _MARKER_VALUE_VARINT
        or load_u8(record + 16) != 0
        or load_be16(record + 5) < 0
        or load_be16(record + 10) < 0
    ):
        return _KIND_UNKNOWN, np.int64(0), np.int64(0), np.int64(0)
    marker_type = load_be16(record + 7)
    if marker_type != layout.CONTROL_TYPE_ABORT and marker_type != layout.CONTROL_TYPE_COMMIT:
        return _KIND_UNKNOWN, np.int64(0), np.int64(0), np.int64(0)
    if attributes & _LOG_APPEND_TIME != 0:
        timestamp_ms = load_be64(batch + layout.MAX_TIMESTAMP_POSITION)
    else:
        zigzag = load_u8(record + 2)
        delta_ms = (zigzag >> 1) ^ -(zigzag & 1)
        timestamp_ms = load_be64(batch + layout.BASE_TIMESTAMP_POSITION) + delta_ms
    return _KIND_MARKER, marker_type, load_be32(record + 12), timestamp_ms


@kernel
def rebuild_slots(producers, producer_count, slots):
    """Enter the first *producer_count* rows of *producers* into *slots*, which are all free."""
    mask = np.uint64(slots.size - 1)
    for row in range(producer_count):
        slot = ((np.uint64(producers[row].producer_id) * _HASH_FACTOR) >> _HASH_SHIFT) & mask
        while slots[slot] != 0:
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = row + 1


@functools.cache
def entry(path):
    """Return `scan` by *path*, compiled: a function of the arguments behind the path.

    The types of the arguments are settled here once. numba's own dispatch looks at every argument of every
    call, and takes some microseconds for arrays of structures: as long as a window of 100 KB.
    """
    tables = [
        types.Array(numpy_support.from_dtype(dtype), ndim, "C")
        for dtype, ndim in (
            (STATE_DTYPE, 1),
            (np.dtype(np.int32), 2),
            (TIME_INDEX_ROW_DTYPE, 1),
            (np.dtype(np.int64), 2),
            (PRODUCER_ROW_DTYPE, 1),
            (np.dtype(np.int32), 1),
            (TXN_EVENT_DTYPE, 1),
        )
    ]
    compiled = _scan.compile(types.int64(CpuPathType(path), types.int64, types.int64, *tables))
    return functools.partial(compiled, path)


@kernel
def _scan(path, address, window_bytes, states, offset_index, time_index, epochs, producers, slots, events):
    """Scan the whole batches of one window.

    Args:
        path: CpuPath.
        address: int64, of the file's byte at `position`.
        window_bytes: int64, >= 0, bytes that may be read there.
        states: STATE_DTYPE, shape (1,). Read and written.
        offset_index: int32, shape (n, 2). Written.
        time_index: TIME_INDEX_ROW_DTYPE, shape (n,). Written.
        epochs: int64, shape (n, 3): epoch, base offset, position. Written.
        producers: PRODUCER_ROW_DTYPE, shape (n,). Read and written.
        slots: int32, a power of two long, at least 2 n of *producers*; 0 free, otherwise row + 1. Read and
            written.
        events: TXN_EVENT_DTYPE, shape (n,). Written.

    Returns:
        NEED_BYTES, FULL, PAUSED or a Stop; the same in the state. Never raises.
    """
    state = states[0]
    base_offset_of_segment = state.base_offset
    size_bytes = state.size_bytes
    interval_bytes = state.index_interval_bytes
    check_crc = state.check_crc != 0
    check_range = state.check_range != 0
    position = state.position
    batch_count = state.batch_count
    last_offset = state.last_offset
    max_timestamp_ms = state.max_timestamp_ms
    last_indexed_position = state.last_indexed_position
    highest_epoch = state.highest_epoch
    producer_end_offset = state.producer_end_offset
    producer_count = state.producer_count
    event_count = state.event_count

    # A table that has become full ends the call behind the batch that filled it: every batch finds room in
    # all of them, and pays for it only when it adds a row.
    has_room = (
        state.index_count < offset_index.shape[0]
        and state.time_index_count < time_index.size
        and state.epoch_count < epochs.shape[0]
        and producer_count < producers.size
        and event_count < events.size
    )
    origin = address - position  # where the file's first byte would be
    window_end = position + min(window_bytes, size_bytes - position)
    stop_position = position
    detail_0 = np.int64(0)
    detail_1 = np.int64(0)
    needed_bytes = np.int64(_BATCH_OVERHEAD)
    status = np.int64(FULL)

    pending = state.control_kind
    if pending != 0 and has_room:
        row_number = _find_producer(producers, slots, producer_count, state.control_producer_id)
        producer_count += row_number == producer_count
        if pending == _KIND_MARKER:
            _apply_marker(
                producers[row_number],
                state.control_epoch,
                state.control_coordinator_epoch,
                state.control_timestamp_ms,
            )
            _add_event(
                events,
                event_count,
                _EVENT_MARKER,
                row_number,
                state.control_base_offset,
                state.control_last_offset,
                state.control_position,
                state.control_marker_type,
                state.control_coordinator_epoch,
                state.control_epoch,
            )
            event_count += 1
        producer_end_offset = state.control_last_offset + 1
        state.control_kind = 0
        has_room = producer_count < producers.size and event_count < events.size

    while has_room:
        stop_position = position
        if position >= size_bytes - _HEADER_BYTES:
            status = _END
            break
        if window_end - position < _HEADER_BYTES:
            status = NEED_BYTES
            break
        batch = origin + position
        length = load_be32(batch + layout.LENGTH_POSITION)
        if length < _MIN_LENGTH:
            status, detail_0, detail_1 = _BAD_LENGTH, length, _MIN_LENGTH
            break
        if position > size_bytes - _LOG_OVERHEAD - length:
            status, detail_0, detail_1 = _TORN, length, size_bytes - _LOG_OVERHEAD - position
            break
        total_bytes = _LOG_OVERHEAD + length
        if window_end - position < total_bytes:
            status, needed_bytes = NEED_BYTES, max(total_bytes, _BATCH_OVERHEAD)
            break
        base_offset = load_be64(batch)
        is_legacy = load_i8(batch + layout.MAGIC_POSITION) < layout.MAGIC_V2
        if is_legacy:
            if check_crc:
                stored = load_be32(batch + layout.MESSAGE_CRC_POSITION) & _UINT32_MASK
                computed = _crc32.checksum(
                    batch + layout.MESSAGE_CRC_START_POSITION, total_bytes - layout.MESSAGE_CRC_START_POSITION
                )
                if stored != computed:
                    status, detail_0, detail_1 = _CRC_MISMATCH, stored, computed
                    break
            batch_last_offset = base_offset
            last_offset_delta = np.int64(0)
            # Only magic 0 has no timestamp: a negative magic is read as magic 1.
            if load_i8(batch + layout.MAGIC_POSITION) == layout.MAGIC_V0:
                timestamp_ms = np.int64(layout.NO_TIMESTAMP_MS)
            else:
                timestamp_ms = load_be64(batch + layout.MESSAGE_TIMESTAMP_POSITION)
        else:
            if check_crc:
                if total_bytes < _BATCH_OVERHEAD:
                    status, detail_0, detail_1 = _BAD_LENGTH, length, _BATCH_OVERHEAD - _LOG_OVERHEAD
                    break
                stored = load_be32(batch + layout.BATCH_CRC_POSITION) & _UINT32_MASK
                computed = checksum(
                    path, batch + layout.ATTRIBUTES_POSITION, total_bytes - layout.ATTRIBUTES_POSITION
                )
                if stored != computed:
                    status, detail_0, detail_1 = _CRC_MISMATCH, stored, computed
                    break
            elif total_bytes < _BATCH_OVERHEAD:
                # Without ensureValid Kafka reads a whole header from the file, wherever the batch ends.
                if size_bytes - position < _BATCH_OVERHEAD:
                    status, detail_0, detail_1 = _SHORT_HEADER, total_bytes, size_bytes - position
                    break
                if window_end - position < _BATCH_OVERHEAD:
                    status = NEED_BYTES
                    break
            last_offset_delta = load_be32(batch + layout.LAST_OFFSET_DELTA_POSITION)
            batch_last_offset = base_offset + last_offset_delta
            timestamp_ms = load_be64(batch + layout.MAX_TIMESTAMP_POSITION)

        relative_offset = batch_last_offset - base_offset_of_segment
        if check_range and (relative_offset < 0 or relative_offset > _MAX_INT32):
            status, detail_0, detail_1 = _OFFSET_OVERFLOW, batch_last_offset, base_offset_of_segment
            break
        if timestamp_ms > max_timestamp_ms:
            max_timestamp_ms = timestamp_ms
            state.max_timestamp_offset = batch_last_offset
            state.max_timestamp_position = position
        if position - last_indexed_position > interval_bytes:
            # Rare enough (once in index.interval.bytes) for its state to stay in memory.
            index_count = state.index_count
            if index_count >= state.max_index_entries:
                status, detail_0, detail_1 = _INDEX_FULL, index_count, state.max_index_entries
                break
            if index_count > 0 and batch_last_offset <= state.last_index_offset:
                status, detail_0, detail_1 = _INVALID_OFFSET, batch_last_offset, state.last_index_offset
                break
            offset_index[index_count, 0] = relative_offset
            offset_index[index_count, 1] = position
            state.index_count = index_count + 1
            state.last_index_offset = batch_last_offset
            time_index_count = state.time_index_count
            if time_index_count >= state.max_time_index_entries - 1:
                status, detail_0, detail_1 = _TIME_INDEX_FULL, time_index_count, state.max_time_index_entries
                break
            if time_index_count > 0 and state.max_timestamp_offset < state.last_time_index_offset:
                status = _TIME_INDEX_INVALID_OFFSET
                detail_0, detail_1 = state.max_timestamp_offset, state.last_time_index_offset
                stop_position = state.max_timestamp_position
                break
            if max_timestamp_ms > state.last_time_index_ms:
                time_index[time_index_count].timestamp_ms = max_timestamp_ms
                time_index[time_index_count].relative_offset = (
                    state.max_timestamp_offset - base_offset_of_segment
                )
                state.time_index_count = time_index_count + 1
                state.last_time_index_ms = max_timestamp_ms
                state.last_time_index_offset = state.max_timestamp_offset
            last_indexed_position = position
            if index_count + 1 >= offset_index.shape[0] or time_index_count + 1 >= time_index.size:
                has_room = False

        position += total_bytes
        batch_count += 1
        last_offset = batch_last_offset
        if is_legacy:
            state.legacy_batch_count += 1
            continue

        leader_epoch = load_be32(batch + layout.PARTITION_LEADER_EPOCH_POSITION)
        if leader_epoch > highest_epoch:
            epochs[state.epoch_count, 0] = leader_epoch
            epochs[state.epoch_count, 1] = base_offset
            epochs[state.epoch_count, 2] = stop_position
            state.epoch_count += 1
            highest_epoch = leader_epoch
            if state.epoch_count >= epochs.shape[0]:
                has_room = False

        producer_id = load_be64(batch + layout.PRODUCER_ID_POSITION)
        if producer_id >= 0:
            epoch = load_be16(batch + layout.PRODUCER_EPOCH_POSITION)
            attributes = load_u8(batch + layout.ATTRIBUTES_LOW_BYTE_POSITION)
            if attributes & _CONTROL != 0:
                if total_bytes < _BATCH_OVERHEAD:
                    # Only without CRC check: the records' iterator reads the count from the batch's own
                    # bytes.
                    status, detail_0, detail_1 = _CONTROL_FATAL, producer_id, base_offset
                    break
                kind, marker_type, coordinator_epoch, marker_timestamp_ms = _decode_marker(
                    batch, total_bytes, attributes
                )
                if kind == _KIND_UNKNOWN:
                    state.control_position = stop_position
                    state.control_producer_id = producer_id
                    state.control_epoch = epoch
                    state.control_base_offset = base_offset
                    state.control_last_offset = batch_last_offset
                    status, detail_0, detail_1 = PAUSED, producer_id, base_offset
                    break
                row_number = _find_producer(producers, slots, producer_count, producer_id)
                if row_number == producer_count:
                    producer_count += 1
                    if producer_count >= producers.size:
                        has_room = False
                if kind == _KIND_MARKER:
                    _apply_marker(producers[row_number], epoch, coordinator_epoch, marker_timestamp_ms)
                    _add_event(
                        events,
                        event_count,
                        _EVENT_MARKER,
                        row_number,
                        base_offset,
                        batch_last_offset,
                        stop_position,
                        marker_type,
                        coordinator_epoch,
                        epoch,
                    )
                    event_count += 1
                    if event_count >= events.size:
                        has_room = False
            else:
                row_number = _find_producer(producers, slots, producer_count, producer_id)
                if row_number == producer_count:
                    producer_count += 1
                    if producer_count >= producers.size:
                        has_room = False
                row = producers[row_number]
                txn = row.txn
                event = np.int64(0)
                if attributes & _TRANSACTIONAL != 0:
                    if txn != TXN_OPEN:
                        event = _EVENT_BEGIN
                        row.txn = TXN_OPEN
                elif txn < TXN_NONE_BEFORE_MARKER:
                    if txn == TXN_OPEN:
                        event = _EVENT_INVALID_TXN
                    else:
                        event = _EVENT_NON_TRANSACTIONAL
                        row.txn = TXN_NONE_BEFORE_MARKER
                if event != 0:
                    _add_event(
                        events,
                        event_count,
                        event,
                        row_number,
                        base_offset,
                        batch_last_offset,
                        stop_position,
                        -1,
                        -1,
                        epoch,
                    )
                    event_count += 1
                    if event_count >= events.size:
                        has_room = False
                    if event == _EVENT_INVALID_TXN:
                        status, detail_0, detail_1 = _INVALID_TXN, producer_id, base_offset
                        break
                if not (row.has_data or row.has_marker):
                    row.first_epoch = epoch
                row.epoch = epoch
                row.last_offset = batch_last_offset
                row.offset_delta = last_offset_delta
                row.last_sequence = _last_sequence(
                    load_be32(batch + layout.BASE_SEQUENCE_POSITION), last_offset_delta
                )
                row.timestamp_ms = timestamp_ms
                row.data_timestamp_ms = timestamp_ms
                row.has_data = True
                row.cleared = False
        producer_end_offset = batch_last_offset + 1

    state.position = position
    state.needed_bytes = needed_bytes
    state.status = status
    state.stop_position = stop_position
    state.detail_0 = detail_0
    state.detail_1 = detail_1
    state.batch_count = batch_count
    state.last_offset = last_offset
    state.max_timestamp_ms = max_timestamp_ms
    state.last_indexed_position = last_indexed_position
    state.highest_epoch = highest_epoch
    state.producer_end_offset = producer_end_offset
    state.producer_count = producer_count
    state.event_count = event_count
    return status
