# mypy: ignore-errors
# ^ kernels: numba infers their types, mypy cannot follow it
"""The kernel of the segment scan: one forward pass, one visit a batch, no Python.

It follows LogSegment.recover statement by statement; the order of the checks is Kafka's and is part of the
result. It does not raise, allocate or call: it leaves with a status and goes on where it was when called
again.

Small batches are bound by the number of instructions, so what hardly ever happens is kept out of the way: a
batch with everything in order meets one comparison for where it ends, one for its checksum, and then one
each for range, timestamp, index point, leader epoch, kind and transaction. Counters that change seldom stay
in memory.

Kafka: LogSegment.recover, FileLogInputStream.nextBatch, DefaultRecordBatch.ensureValid,
LegacyRecord.ensureValid, LeaderEpochFileCache.assign, ProducerAppendInfo.appendDataBatch.
"""

from __future__ import annotations

import functools

import numpy as np
from numba import types
from numba.np import numpy_support

from native import _crc32, _scan_rules
from native._cpu_type import CpuPathType
from native._crc32c import checksum
from native._hints import unlikely
from native._jit import inlined, kernel
from native._memory import load_be16, load_be32, load_be64, load_i8, load_u8
from native._scan_rules import KIND_MARKER, KIND_UNKNOWN, stop
from native._scan_state import (
    FULL,
    NEED_BYTES,
    PAUSED,
    PRODUCER_ROW_DTYPE,
    RUNNING,
    STATE_DTYPE,
    TXN_NONE_BEFORE_MARKER,
    TXN_OPEN,
    TXN_UNKNOWN,
)
from native.raw_scan import TIME_INDEX_ROW_DTYPE, TXN_EVENT_DTYPE, Stop, TxnEventKind
from segfmt import layout

# numba freezes module-level integers; it does not look through an enum's members as cheaply.
_END = int(Stop.END)
_TORN = int(Stop.TORN)
_BAD_LENGTH = int(Stop.BAD_LENGTH)
_CRC_MISMATCH = int(Stop.CRC_MISMATCH)
_OFFSET_OVERFLOW = int(Stop.OFFSET_OVERFLOW)
_INVALID_TXN = int(Stop.INVALID_TXN)
_CONTROL_FATAL = int(Stop.CONTROL_FATAL)
_SHORT_HEADER = int(Stop.SHORT_HEADER)
_EVENT_BEGIN = int(TxnEventKind.BEGIN)
_EVENT_NON_TRANSACTIONAL = int(TxnEventKind.NON_TRANSACTIONAL)
_EVENT_INVALID_TXN = int(TxnEventKind.INVALID_TXN)
_EVENT_MARKER = int(TxnEventKind.MARKER)

_MAX_INT32 = np.uint64(0x7FFFFFFF)
_UINT32_MASK = np.int64(0xFFFFFFFF)
_NEVER = np.int64(-1) << np.int64(62)

_HEADER_BYTES = layout.HEADER_UP_TO_MAGIC_BYTES
_LOG_OVERHEAD = layout.LOG_OVERHEAD_BYTES
_BATCH_OVERHEAD = layout.RECORD_BATCH_OVERHEAD_BYTES
_MIN_LENGTH = layout.MIN_MESSAGE_BYTES


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


@inlined
def _examine(path, state, batch, position, window_bytes, left_bytes):
    """Examine a batch, every case, in Kafka's order; return (status, total bytes, magic).

    The batch is at address *batch*; from there the window has *window_bytes* and the file *left_bytes*. The
    status is RUNNING for a batch that may be taken.
    """
    check_crc = state.check_crc != 0
    state.needed_bytes = _BATCH_OVERHEAD
    none = np.int64(0)
    if left_bytes <= _HEADER_BYTES:
        return stop(state, _END, position, 0, 0), none, none
    if window_bytes < _HEADER_BYTES:
        return np.int64(NEED_BYTES), none, none
    length = load_be32(batch + layout.LENGTH_POSITION)
    if length < _MIN_LENGTH:
        return stop(state, _BAD_LENGTH, position, length, _MIN_LENGTH), none, none
    total_bytes = _LOG_OVERHEAD + length
    if left_bytes < total_bytes:
        return stop(state, _TORN, position, length, left_bytes - _LOG_OVERHEAD), none, none
    if window_bytes < total_bytes:
        state.needed_bytes = max(total_bytes, _BATCH_OVERHEAD)
        return np.int64(NEED_BYTES), none, none
    magic = load_i8(batch + layout.MAGIC_POSITION)
    if magic < layout.MAGIC_V2:
        if check_crc:
            stored = load_be32(batch + layout.MESSAGE_CRC_POSITION) & _UINT32_MASK
            start = layout.MESSAGE_CRC_START_POSITION
            computed = _crc32.checksum(batch + start, total_bytes - start)
            if stored != computed:
                return stop(state, _CRC_MISMATCH, position, stored, computed), none, none
    elif check_crc:
        if total_bytes < _BATCH_OVERHEAD:
            return stop(state, _BAD_LENGTH, position, length, _BATCH_OVERHEAD - _LOG_OVERHEAD), none, none
        stored = load_be32(batch + layout.BATCH_CRC_POSITION) & _UINT32_MASK
        start = layout.ATTRIBUTES_POSITION
        computed = checksum(path, batch + start, total_bytes - start)
        if stored != computed:
            return stop(state, _CRC_MISMATCH, position, stored, computed), none, none
    elif total_bytes < _BATCH_OVERHEAD:
        # Without ensureValid Kafka reads a whole header from the file, wherever the batch ends.
        if left_bytes < _BATCH_OVERHEAD:
            return stop(state, _SHORT_HEADER, position, total_bytes, left_bytes), none, none
        if window_bytes < _BATCH_OVERHEAD:
            return np.int64(NEED_BYTES), none, none
    return np.int64(RUNNING), total_bytes, magic


@inlined
def _take_decision(state, producers, slots, events):
    """Do to the control batch at which the scan paused what its caller says."""
    row = _scan_rules.find_producer(state, producers, slots, state.control_producer_id)
    if state.control_kind == KIND_MARKER:
        _scan_rules.apply_marker(
            producers[row], state.control_epoch, state.control_coordinator_epoch, state.control_timestamp_ms
        )
        _scan_rules.add_event(
            state,
            events,
            _EVENT_MARKER,
            row,
            state.control_base_offset,
            state.control_last_offset,
            state.control_position,
            state.control_marker_type,
            state.control_coordinator_epoch,
            state.control_epoch,
        )
    state.producer_end_offset = state.control_last_offset + 1
    state.control_kind = 0


@inlined
def _control_batch(
    state, producers, slots, events, batch, total_bytes, position, attributes, producer_id, last_offset
):
    """Take in a control batch of a producer; return RUNNING, PAUSED or why the scan stops."""
    base_offset = load_be64(batch)
    epoch = load_be16(batch + layout.PRODUCER_EPOCH_POSITION)
    if total_bytes < _BATCH_OVERHEAD:
        # Only without CRC check: the records' iterator reads the count from the batch's own bytes.
        return stop(state, _CONTROL_FATAL, position, producer_id, base_offset)
    kind, marker_type, coordinator_epoch, timestamp_ms = _scan_rules.decode_marker(
        batch, total_bytes, attributes
    )
    if kind == KIND_UNKNOWN:
        state.control_position = position
        state.control_producer_id = producer_id
        state.control_epoch = epoch
        state.control_base_offset = base_offset
        state.control_last_offset = last_offset
        return stop(state, PAUSED, position, producer_id, base_offset)
    row = _scan_rules.find_producer(state, producers, slots, producer_id)
    if kind == KIND_MARKER:
        _scan_rules.apply_marker(producers[row], epoch, coordinator_epoch, timestamp_ms)
        _scan_rules.add_event(
            state,
            events,
            _EVENT_MARKER,
            row,
            base_offset,
            last_offset,
            position,
            marker_type,
            coordinator_epoch,
            epoch,
        )
    return np.int64(RUNNING)


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
        NEED_BYTES, FULL, PAUSED or a Stop. Never raises.
    """
    state = states[0]
    base_offset_of_segment = state.base_offset
    max_timestamp_ms = state.max_timestamp_ms
    highest_epoch = state.highest_epoch
    batch_count = state.batch_count

    # Addresses instead of positions: one value less to keep. `origin` is where the file's first byte would
    # be.
    origin = address - state.position
    file_end = origin + state.size_bytes
    window_end = min(address + window_bytes, file_end)
    index_beyond = origin + state.last_indexed_position + state.index_interval_bytes
    batch = address
    # Up to here a record batch needs no second look; without checksums all of them do.
    plain_end = window_end if state.check_crc != 0 else _NEVER

    status = np.int64(FULL)
    room = _scan_rules.has_room(state, offset_index, time_index, epochs, producers, events)
    if state.control_kind != 0 and room:
        _take_decision(state, producers, slots, events)
        room = _scan_rules.has_room(state, offset_index, time_index, epochs, producers, events)
    while room:
        available_bytes = plain_end - batch
        total_bytes = np.int64(0)
        is_plain = False
        if not unlikely(available_bytes < _BATCH_OVERHEAD):
            total_bytes = _LOG_OVERHEAD + load_be32(batch + layout.LENGTH_POSITION)
            # One unsigned comparison: not shorter than its header, and all there.
            fits = np.uint64(total_bytes - _BATCH_OVERHEAD) <= np.uint64(available_bytes - _BATCH_OVERHEAD)
            is_plain = fits and load_i8(batch + layout.MAGIC_POSITION) >= layout.MAGIC_V2
        if unlikely(not is_plain):
            status, total_bytes, magic = _examine(
                path, state, batch, batch - origin, window_end - batch, file_end - batch
            )
            if status != RUNNING:
                break
            status = np.int64(FULL)
        else:
            magic = np.int64(layout.MAGIC_V2)
            stored = load_be32(batch + layout.BATCH_CRC_POSITION) & _UINT32_MASK
            computed = checksum(
                path, batch + layout.ATTRIBUTES_POSITION, total_bytes - layout.ATTRIBUTES_POSITION
            )
            if unlikely(stored != computed):
                status = stop(state, _CRC_MISMATCH, batch - origin, stored, computed)
                break

        base_offset = load_be64(batch)
        if unlikely(magic < layout.MAGIC_V2):
            last_offset_delta = np.int64(0)
            last_offset = base_offset
            # Only magic 0 has no timestamp: a negative magic is read as magic 1.
            timestamp_ms = np.int64(layout.NO_TIMESTAMP_MS)
            if magic != layout.MAGIC_V0:
                timestamp_ms = load_be64(batch + layout.MESSAGE_TIMESTAMP_POSITION)
        else:
            last_offset_delta = load_be32(batch + layout.LAST_OFFSET_DELTA_POSITION)
            last_offset = base_offset + last_offset_delta
            timestamp_ms = load_be64(batch + layout.MAX_TIMESTAMP_POSITION)
        if unlikely(np.uint64(last_offset - base_offset_of_segment) > _MAX_INT32) and state.check_range != 0:
            status = stop(state, _OFFSET_OVERFLOW, batch - origin, last_offset, base_offset_of_segment)
            break
        if timestamp_ms > max_timestamp_ms:
            max_timestamp_ms = timestamp_ms
            state.max_timestamp_offset = last_offset
            state.max_timestamp_position = batch - origin
        if unlikely(batch > index_beyond):
            status = _scan_rules.append_index_entries(
                state, offset_index, time_index, last_offset, batch - origin, max_timestamp_ms
            )
            if status != RUNNING:
                break
            status = np.int64(FULL)
            index_beyond = batch + state.index_interval_bytes
            room = _scan_rules.has_room(state, offset_index, time_index, epochs, producers, events)

        # Kafka's validBytes moves here: what is found below concerns a batch that stays.
        this = batch
        batch += total_bytes
        batch_count += 1
        state.last_offset = last_offset
        if unlikely(magic < layout.MAGIC_V2):
            state.legacy_batch_count += 1
            continue
        leader_epoch = load_be32(this + layout.PARTITION_LEADER_EPOCH_POSITION)
        if unlikely(leader_epoch > highest_epoch):
            highest_epoch = leader_epoch
            _scan_rules.add_epoch(state, epochs, leader_epoch, base_offset, this - origin)
            room = _scan_rules.has_room(state, offset_index, time_index, epochs, producers, events)
        producer_id = load_be64(this + layout.PRODUCER_ID_POSITION)
        if producer_id >= 0:
            attributes = load_u8(this + layout.ATTRIBUTES_LOW_BYTE_POSITION)
            if unlikely(attributes & layout.CONTROL_MASK != 0):
                status = _control_batch(
                    state,
                    producers,
                    slots,
                    events,
                    this,
                    total_bytes,
                    this - origin,
                    attributes,
                    producer_id,
                    last_offset,
                )
                if status != RUNNING:
                    break
                status = np.int64(FULL)
                room = _scan_rules.has_room(state, offset_index, time_index, epochs, producers, events)
            else:
                row = _scan_rules.find_producer(state, producers, slots, producer_id)
                producer = producers[row]
                epoch = load_be16(this + layout.PRODUCER_EPOCH_POSITION)
                txn = producer.txn
                is_transactional = attributes & layout.TRANSACTIONAL_MASK != 0
                if unlikely(is_transactional != (txn == TXN_OPEN) or txn == TXN_UNKNOWN):
                    if is_transactional:
                        event = np.int64(_EVENT_BEGIN)
                    elif txn == TXN_OPEN:
                        event = np.int64(_EVENT_INVALID_TXN)
                    else:
                        event = np.int64(_EVENT_NON_TRANSACTIONAL)
                    _scan_rules.add_event(
                        state, events, event, row, base_offset, last_offset, this - origin, -1, -1, epoch
                    )
                    if event == _EVENT_INVALID_TXN:
                        status = stop(state, _INVALID_TXN, this - origin, producer_id, base_offset)
                        break
                    if txn == TXN_UNKNOWN:
                        producer.first_epoch = epoch
                    producer.txn = TXN_OPEN if is_transactional else TXN_NONE_BEFORE_MARKER
                    room = _scan_rules.has_room(state, offset_index, time_index, epochs, producers, events)
                producer.epoch = epoch
                producer.last_offset = last_offset
                producer.offset_delta = last_offset_delta
                producer.last_sequence = _scan_rules.last_sequence(
                    load_be32(this + layout.BASE_SEQUENCE_POSITION), last_offset_delta
                )
                producer.timestamp_ms = timestamp_ms
                producer.data_timestamp_ms = timestamp_ms
                producer.has_data = True
                producer.cleared = False
        state.producer_end_offset = last_offset + 1

    state.position = batch - origin
    state.last_indexed_position = index_beyond - origin - state.index_interval_bytes
    state.max_timestamp_ms = max_timestamp_ms
    state.highest_epoch = highest_epoch
    state.batch_count = batch_count
    return status
