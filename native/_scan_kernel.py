# mypy: ignore-errors
# ^ kernels: numba infers their types, mypy cannot follow it
"""The kernel of the segment scan: one forward pass, one visit per batch, no Python.

It follows LogSegment.recover statement by statement; the order of the checks is Kafka's and is part of the
result. It does not raise, allocate or call: it returns a status, and resumes where it was when it is called
again.

Small batches are bound by the number of instructions, so what hardly ever happens is kept out of the way. A
batch with everything in order costs one comparison for where it ends, one for its checksum, and one each for
range, timestamp, index point, leader epoch, producer, and for what is usual of that producer. A full table is
noticed when a row is added, by moving the end of what may be taken without a second look.

Kafka: LogSegment.recover, FileLogInputStream.nextBatch, DefaultRecordBatch.ensureValid,
LegacyRecord.ensureValid, ProducerAppendInfo.append.
"""

from __future__ import annotations

import numpy as np

from native import _crc32, _scan_producers, _scan_rules
from native._crc32c import checksum
from native._hints import rarely
from native._jit import inlined, kernel
from native._memory import load_be16, load_be32, load_be64, load_i8, load_u8, rows_at, table_at
from native._scan_rules import KIND_MARKER, KIND_UNKNOWN, has_room, stop
from native._scan_state import (
    FULL,
    NEED_BYTES,
    PAUSED,
    PRODUCER_ROW_DTYPE,
    RUNNING,
    SLOT_DTYPE,
    STATE_DTYPE,
    USUAL_OPEN,
    USUAL_OUTSIDE,
    USUAL_UNKNOWN,
)
from native.raw_scan import TIME_INDEX_ROW_DTYPE, TXN_EVENT_DTYPE, Stop, TxnEventKind
from segfmt import byte_layout

# numba freezes module-level integers; it does not look through an enum's members as cheaply.
_END = int(Stop.END)
_TORN = int(Stop.TORN)
_BAD_LENGTH = int(Stop.BAD_LENGTH)
_CRC_MISMATCH = int(Stop.CRC_MISMATCH)
_OFFSET_OVERFLOW = int(Stop.OFFSET_OVERFLOW)
_INVALID_TXN = int(Stop.INVALID_TXN)
_TIME_INDEX_INVALID_OFFSET = int(Stop.TIME_INDEX_INVALID_OFFSET)
_CONTROL_FATAL = int(Stop.CONTROL_FATAL)
_SHORT_HEADER = int(Stop.SHORT_HEADER)
_EVENT_BEGIN = int(TxnEventKind.BEGIN)
_EVENT_NON_TRANSACTIONAL = int(TxnEventKind.NON_TRANSACTIONAL)
_EVENT_INVALID_TXN = int(TxnEventKind.INVALID_TXN)

_INT32 = np.dtype(np.int32)
_INT64 = np.dtype(np.int64)
_MAX_INT32 = np.uint64(0x7FFFFFFF)
_UINT32_MASK = np.int64(0xFFFFFFFF)
_NEVER = np.int64(-1) << np.int64(62)
_EVENT_BITS = byte_layout.TRANSACTIONAL_MASK | byte_layout.CONTROL_MASK

_HEADER_BYTES = byte_layout.HEADER_UP_TO_MAGIC_BYTES
_LOG_OVERHEAD = byte_layout.LOG_OVERHEAD_BYTES
_BATCH_OVERHEAD = byte_layout.RECORD_BATCH_OVERHEAD_BYTES
_MIN_LENGTH = byte_layout.MIN_MESSAGE_BYTES


@inlined
def _examine(state, room, batch, position, window_bytes, left_bytes):
    """Look closely at a batch that is not plain; return (status, total bytes, magic).

    The batch is at address *batch*; from there the window has *window_bytes* and the file *left_bytes*. The
    status is RUNNING if the batch may be taken; the checksum of a message has then been checked.
    """
    check_crc = state.check_crc != 0
    state.needed_bytes = _BATCH_OVERHEAD
    none = np.int64(0)
    if not room:
        return np.int64(FULL), none, none
    if left_bytes <= _HEADER_BYTES:
        return stop(state, _END, position, 0, 0), none, none
    if window_bytes < _HEADER_BYTES:
        return np.int64(NEED_BYTES), none, none
    length = load_be32(batch + byte_layout.LENGTH_POSITION)
    if length < _MIN_LENGTH:
        return stop(state, _BAD_LENGTH, position, length, _MIN_LENGTH), none, none
    total_bytes = _LOG_OVERHEAD + length
    if left_bytes < total_bytes:
        return stop(state, _TORN, position, length, left_bytes - _LOG_OVERHEAD), none, none
    if window_bytes < total_bytes:
        state.needed_bytes = max(total_bytes, _BATCH_OVERHEAD)
        return np.int64(NEED_BYTES), none, none
    magic = load_i8(batch + byte_layout.MAGIC_POSITION)
    if magic < byte_layout.MAGIC_V2:
        if check_crc:
            stored = load_be32(batch + byte_layout.MESSAGE_CRC_POSITION) & _UINT32_MASK
            start = byte_layout.MESSAGE_CRC_START_POSITION
            computed = _crc32.checksum(batch + start, total_bytes - start)
            if stored != computed:
                return stop(state, _CRC_MISMATCH, position, stored, computed), none, none
    elif check_crc:
        # A record batch that is complete and not plain can only be too short.
        return stop(state, _BAD_LENGTH, position, length, _BATCH_OVERHEAD - _LOG_OVERHEAD), none, none
    elif total_bytes < _BATCH_OVERHEAD:
        # Without ensureValid Kafka reads a whole header from the file, wherever the batch ends.
        if left_bytes < _BATCH_OVERHEAD:
            return stop(state, _SHORT_HEADER, position, total_bytes, left_bytes), none, none
        if window_bytes < _BATCH_OVERHEAD:
            return np.int64(NEED_BYTES), none, none
    return np.int64(RUNNING), total_bytes, magic


@inlined
def _is_in_range(state, last_offset):
    """Kafka: LogSegment.ensureOffsetInRange; not called in walks without ensureValid."""
    return np.uint64(last_offset - state.base_offset) <= _MAX_INT32 or state.check_range == 0


@inlined
def _note_timestamp(state, timestamp_ms, last_offset, batch):
    if timestamp_ms > state.max_timestamp_ms:
        state.max_timestamp_ms = timestamp_ms
        state.max_timestamp_offset = last_offset
        state.max_timestamp_address = batch


@inlined
def _take_message(state, offset_index, time_index, batch, position, magic):
    """Take in a message of magic 1 or below; return RUNNING or why the scan stops."""
    offset = load_be64(batch)
    if not _is_in_range(state, offset):
        return stop(state, _OFFSET_OVERFLOW, position, offset, state.base_offset)
    if magic != byte_layout.MAGIC_V0:  # only magic 0 has no timestamp
        timestamp_ms = load_be64(batch + byte_layout.MESSAGE_TIMESTAMP_POSITION)
        _note_timestamp(state, timestamp_ms, offset, batch)
    if batch > state.index_beyond_address:
        status = _scan_rules.append_index_entries(state, offset_index, time_index, offset, position)
        if status != RUNNING:
            return status
        state.index_beyond_address = batch + state.index_interval_bytes
    state.batch_count += 1
    state.legacy_batch_count += 1
    state.last_offset = offset
    return np.int64(RUNNING)


@inlined
def _take_decision(state, producers, slots, events):
    """Apply the caller's decision on the control batch at which the scan paused."""
    slot = _scan_producers.known_producer(state, producers, slots, state.control_producer_id)
    if state.control_kind == KIND_MARKER:
        _scan_producers.take_marker(
            state,
            producers,
            slots,
            events,
            slot,
            state.control_base_offset,
            state.control_last_offset,
            state.control_position,
            state.control_epoch,
            state.control_marker_type,
            state.control_coordinator_epoch,
            state.control_timestamp_ms,
        )
    state.producer_end_offset = state.control_last_offset + 1
    state.control_kind = 0


@inlined
def _take_control_batch(
    state, producers, slots, events, batch, total_bytes, position, producer_id, last_offset
):
    """Take in a control batch of a producer; return RUNNING, PAUSED or why the scan stops."""
    base_offset = load_be64(batch)
    epoch = load_be16(batch + byte_layout.PRODUCER_EPOCH_POSITION)
    if total_bytes < _BATCH_OVERHEAD:
        # Only without CRC check: the records' iterator reads the count from the batch's own bytes.
        return stop(state, _CONTROL_FATAL, position, producer_id, base_offset)
    kind, marker_type, coordinator_epoch, timestamp_ms = _scan_rules.decode_marker(batch, total_bytes)
    if kind == KIND_UNKNOWN:
        state.control_position = position
        state.control_producer_id = producer_id
        state.control_epoch = epoch
        state.control_base_offset = base_offset
        state.control_last_offset = last_offset
        return stop(state, PAUSED, position, producer_id, base_offset)
    slot = _scan_producers.known_producer(state, producers, slots, producer_id)
    if kind == KIND_MARKER:
        _scan_producers.take_marker(
            state,
            producers,
            slots,
            events,
            slot,
            base_offset,
            last_offset,
            position,
            epoch,
            marker_type,
            coordinator_epoch,
            timestamp_ms,
        )
    return np.int64(RUNNING)


@inlined
def _take_event(state, producers, slots, events, batch, position, attributes, producer_id, last_offset):
    """Note what a data batch changes in its producer's transactions; return (status, slot)."""
    base_offset = load_be64(batch)
    epoch = load_be16(batch + byte_layout.PRODUCER_EPOCH_POSITION)
    slot = _scan_producers.known_producer(state, producers, slots, producer_id)
    _scan_producers.expect_data(state, producers, slots, slot)
    row = np.int64(slots[slot].row)
    producer = producers[row]
    if attributes & _EVENT_BITS == np.int64(producer.usual):
        return np.int64(RUNNING), slot
    if attributes & byte_layout.TRANSACTIONAL_MASK != 0:
        kind = np.int64(_EVENT_BEGIN)
        usual = USUAL_OPEN
    elif producer.usual == USUAL_OPEN:
        kind = np.int64(_EVENT_INVALID_TXN)
        usual = USUAL_OPEN
    else:
        kind = np.int64(_EVENT_NON_TRANSACTIONAL)
        usual = USUAL_OUTSIDE
    place = _scan_producers.add_event(state, events, kind, row, base_offset, last_offset, position, epoch)
    if kind == _EVENT_INVALID_TXN:
        return stop(state, _INVALID_TXN, position, producer_id, base_offset), slot
    if kind == _EVENT_BEGIN:
        _scan_producers.note_begin(state, producers, row, place, base_offset)
    if producer.usual == USUAL_UNKNOWN:
        producer.first_epoch = epoch
    producer.usual = usual
    slots[slot].usual = usual
    return np.int64(RUNNING), slot


@kernel
def scan(path, state_address, address, window_bytes):
    """Scan the whole batches of one window.

    Args:
        path: CpuPath.
        state_address: int64, of a STATE_DTYPE, which knows where the tables are. Read and written, as are
            the tables: offset_index, int32, shape (n, 2); time_index, TIME_INDEX_ROW_DTYPE; epochs, int64,
            shape (n, 3): epoch, base offset, position; producers, PRODUCER_ROW_DTYPE; slots, SLOT_DTYPE, a power
            of two long, at least 2 n of *producers*; events, TXN_EVENT_DTYPE.
        address: int64, of the file's byte at `position`.
        window_bytes: int64, >= 0, bytes that may be read there.

    Returns:
        NEED_BYTES, FULL, PAUSED or a Stop. Never raises.
    """
    states = rows_at(state_address, 1, STATE_DTYPE)
    state = states[0]
    offset_index = table_at(state.offset_index_address, state.offset_index_rows, 2, _INT32)
    time_index = rows_at(state.time_index_address, state.time_index_rows, TIME_INDEX_ROW_DTYPE)
    epochs = table_at(state.epochs_address, state.epochs_rows, 3, _INT64)
    producers = rows_at(state.producers_address, state.producers_rows, PRODUCER_ROW_DTYPE)
    slots = rows_at(state.slots_address, state.slots_rows, SLOT_DTYPE)
    events = rows_at(state.events_address, state.events_rows, TXN_EVENT_DTYPE)
    # Addresses instead of positions: one value less to keep. `origin` is where the file's first byte would be.
    origin = address - state.position
    file_end = origin + state.size_bytes
    window_end = min(address + window_bytes, file_end)
    state.max_timestamp_address = origin + state.max_timestamp_position
    state.index_beyond_address = origin + state.last_indexed_position + state.index_interval_bytes
    batch = address
    # Up to here a complete record batch needs no second look. Without checksums all of them do.
    plain_end = window_end if state.check_crc != 0 else _NEVER
    room = has_room(state, offset_index, time_index, epochs, producers, events)
    if state.control_kind != 0 and room:
        _take_decision(state, producers, slots, events)
        room = has_room(state, offset_index, time_index, epochs, producers, events)
    plain_end_now = plain_end if room else _NEVER

    while True:
        available_bytes = plain_end_now - batch
        total_bytes = np.int64(0)
        is_plain = False
        if available_bytes >= _BATCH_OVERHEAD:
            total_bytes = _LOG_OVERHEAD + load_be32(batch + byte_layout.LENGTH_POSITION)
            # One unsigned comparison: not shorter than its header, and complete.
            fits = np.uint64(total_bytes - _BATCH_OVERHEAD) <= np.uint64(available_bytes - _BATCH_OVERHEAD)
            is_plain = fits and load_i8(batch + byte_layout.MAGIC_POSITION) >= byte_layout.MAGIC_V2
        if is_plain:
            stored = load_be32(batch + byte_layout.BATCH_CRC_POSITION) & _UINT32_MASK
            start = byte_layout.ATTRIBUTES_POSITION
            computed = checksum(path, batch + start, total_bytes - start)
            if stored != computed:
                rarely()
                status = stop(state, _CRC_MISMATCH, batch - origin, stored, computed)
                break
        else:
            rarely()
            room = has_room(state, offset_index, time_index, epochs, producers, events)
            position = batch - origin
            status, total_bytes, magic = _examine(
                state, room, batch, position, window_end - batch, file_end - batch
            )
            if status != RUNNING:
                break
            if magic < byte_layout.MAGIC_V2:
                status = _take_message(state, offset_index, time_index, batch, position, magic)
                if status != RUNNING:
                    break
                room = has_room(state, offset_index, time_index, epochs, producers, events)
                plain_end_now = plain_end if room else _NEVER
                batch += total_bytes
                continue

        last_offset_delta = load_be32(batch + byte_layout.LAST_OFFSET_DELTA_POSITION)
        last_offset = load_be64(batch) + last_offset_delta
        timestamp_ms = load_be64(batch + byte_layout.MAX_TIMESTAMP_POSITION)
        if not _is_in_range(state, last_offset):
            rarely()
            status = stop(state, _OFFSET_OVERFLOW, batch - origin, last_offset, state.base_offset)
            break
        _note_timestamp(state, timestamp_ms, last_offset, batch)
        if batch > state.index_beyond_address:
            rarely()
            status = _scan_rules.append_index_entries(
                state, offset_index, time_index, last_offset, batch - origin
            )
            if status != RUNNING:
                break
            state.index_beyond_address = batch + state.index_interval_bytes
            room = has_room(state, offset_index, time_index, epochs, producers, events)
            plain_end_now = plain_end if room else _NEVER

        # Kafka's validBytes moves here: what is found below concerns a batch that is kept.
        this = batch
        batch += total_bytes
        if load_be64(this) - 1 > state.last_offset and state.batch_count != 0:
            rarely()
            state.gap_count += 1
        state.batch_count += 1
        state.last_offset = last_offset
        leader_epoch = load_be32(this + byte_layout.PARTITION_LEADER_EPOCH_POSITION)
        if leader_epoch > state.highest_epoch:
            rarely()
            _scan_rules.add_epoch(state, epochs, leader_epoch, load_be64(this), this - origin)
            room = has_room(state, offset_index, time_index, epochs, producers, events)
            plain_end_now = plain_end if room else _NEVER
        producer_id = load_be64(this + byte_layout.PRODUCER_ID_POSITION)
        if producer_id >= 0:
            attributes = load_u8(this + byte_layout.ATTRIBUTES_LOW_BYTE_POSITION)
            slot = _scan_producers.first_slot(producer_id, slots.size)
            if slots[slot].producer_id != producer_id:
                rarely()
                slot = _scan_producers.find_slot(slots, producer_id)
            # Nothing is usual in a free slot, or in one whose producer has no batch in this window so far.
            if attributes & _EVENT_BITS != np.int64(slots[slot].usual):
                rarely()
                if attributes & byte_layout.CONTROL_MASK != 0:
                    status = _take_control_batch(
                        state,
                        producers,
                        slots,
                        events,
                        this,
                        total_bytes,
                        this - origin,
                        producer_id,
                        last_offset,
                    )
                else:
                    status, slot = _take_event(
                        state,
                        producers,
                        slots,
                        events,
                        this,
                        this - origin,
                        attributes,
                        producer_id,
                        last_offset,
                    )
                if status != RUNNING:
                    break
                room = has_room(state, offset_index, time_index, epochs, producers, events)
                plain_end_now = plain_end if room else _NEVER
                if attributes & byte_layout.CONTROL_MASK != 0:
                    state.producer_end_offset = last_offset + 1
                    continue
            slots[slot].last_batch = this
        state.producer_end_offset = last_offset + 1

    _scan_producers.settle_all(state, producers, slots)
    state.position = batch - origin
    state.max_timestamp_position = state.max_timestamp_address - origin
    if status == _TIME_INDEX_INVALID_OFFSET:
        state.stop_position = state.max_timestamp_position
    return status
