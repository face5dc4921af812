# mypy: ignore-errors
# ^ kernels: numba infers their types, mypy cannot follow it
"""The rules of the segment scan that most batches do not meet, one function a rule, inlined by the kernel.

Kafka: OffsetIndex.append, TimeIndex.maybeAppend, DefaultRecordBatch.incrementSequence,
ProducerAppendInfo.append, EndTransactionMarker.deserialize, ProducerStateEntry.
"""

from __future__ import annotations

import numpy as np

from native._hints import rarely
from native._jit import inlined, kernel
from native._memory import load_be16, load_be32, load_be64, load_u8, rows_at
from native._scan_state import (
    CLEARED,
    MARKER_WAS_LAST,
    PRODUCER_ROW_DTYPE,
    RUNNING,
    USUAL_OUTSIDE,
    USUAL_UNKNOWN,
)
from native.raw_scan import ControlKind, Stop
from segfmt import layout

# numba freezes module-level integers; it does not look through an enum's members as cheaply.
_INDEX_FULL = int(Stop.INDEX_FULL)
_INVALID_OFFSET = int(Stop.INVALID_OFFSET)
_TIME_INDEX_FULL = int(Stop.TIME_INDEX_FULL)
_TIME_INDEX_INVALID_OFFSET = int(Stop.TIME_INDEX_INVALID_OFFSET)
KIND_UNKNOWN = 0
KIND_MARKER = int(ControlKind.MARKER)
KIND_NOTHING = int(ControlKind.NOTHING)

_INT32 = np.dtype(np.int32)
_MAX_INT32 = 0x7FFFFFFF
_HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # 2**64 / golden ratio, odd: neighbouring ids land far apart
_HALF = np.uint64(32)

# The one shape of a marker that is decoded here: varints of one byte, key 4 bytes, value 6, no headers.
#   0 size | 1 attributes | 2 timestampDelta | 3 offsetDelta | 4 keyLength | 5 version i16 | 7 type i16
#   9 valueLength | 10 version i16 | 12 coordinatorEpoch i32 | 16 headerCount
_MARKER_BYTES = 17
_MARKER_SIZE_VARINT = 2 * (_MARKER_BYTES - 1)
_MARKER_KEY_VARINT = 2 * layout.CONTROL_KEY_BYTES
_MARKER_VALUE_VARINT = 2 * layout.END_TXN_MARKER_VALUE_BYTES


@inlined
def stop(state, status, position, detail_0, detail_1):
    """Note why and where the scan stops; return *status*."""
    state.stop_position = position
    state.detail_0 = detail_0
    state.detail_1 = detail_1
    return np.int64(status)


@inlined
def has_room(state, offset_index, time_index, epochs, producers, events):
    """Return whether every table has a free row: a batch adds at most one to each."""
    return (
        state.index_count < offset_index.shape[0]
        and state.time_index_count < time_index.size
        and state.epoch_count < epochs.shape[0]
        and state.producer_count < producers.size
        and state.event_count < events.size
    )


@inlined
def append_index_entries(state, offset_index, time_index, last_offset, position):
    """Append to both indexes at an index point; return RUNNING or why the scan stops.

    A time index that refuses leaves the entry of the offset index.
    """
    count = state.index_count
    if count >= state.max_index_entries:
        return stop(state, _INDEX_FULL, position, count, state.max_index_entries)
    if count > 0 and last_offset <= state.last_index_offset:
        return stop(state, _INVALID_OFFSET, position, last_offset, state.last_index_offset)
    offset_index[count, 0] = last_offset - state.base_offset
    offset_index[count, 1] = position
    state.index_count = count + 1
    state.last_index_offset = last_offset
    count = state.time_index_count
    if count >= state.max_time_index_entries - 1:
        return stop(state, _TIME_INDEX_FULL, position, count, state.max_time_index_entries)
    offset = state.max_timestamp_offset
    if count > 0 and offset < state.last_time_index_offset:
        # The kernel puts the position of the batch with that timestamp in the place of this one's.
        return stop(state, _TIME_INDEX_INVALID_OFFSET, position, offset, state.last_time_index_offset)
    max_timestamp_ms = state.max_timestamp_ms
    if max_timestamp_ms > state.last_time_index_ms:
        time_index[count].timestamp_ms = max_timestamp_ms
        time_index[count].relative_offset = offset - state.base_offset
        state.time_index_count = count + 1
        state.last_time_index_ms = max_timestamp_ms
        state.last_time_index_offset = offset
    state.last_indexed_position = position
    return np.int64(RUNNING)


@inlined
def add_epoch(state, epochs, leader_epoch, base_offset, position):
    """Note that a higher leader epoch begins."""
    count = state.epoch_count
    epochs[count, 0] = leader_epoch
    epochs[count, 1] = base_offset
    epochs[count, 2] = position
    state.highest_epoch = leader_epoch
    state.epoch_count = count + 1


@inlined
def _int32(value):
    """Return *value* as Java's int arithmetic would leave it."""
    return np.int64(np.int32(value))


@inlined
def last_sequence(base_sequence, last_offset_delta):
    """Kafka: DefaultRecordBatch.lastSequence and incrementSequence, overflows included."""
    if (base_sequence | last_offset_delta) >= 0:
        return (base_sequence + last_offset_delta) & _MAX_INT32
    rarely()
    if base_sequence == -1:
        return np.int64(-1)
    if base_sequence > _int32(_MAX_INT32 - last_offset_delta):
        return _int32(last_offset_delta - (_MAX_INT32 - base_sequence) - 1)
    return _int32(base_sequence + last_offset_delta)


@inlined
def _first_slot(producer_id, slot_count):
    """Return where to look for *producer_id* first.

    The product's highest bits choose: neighbouring ids, which is how brokers give them out, then hardly ever
    meet, and an unforeseen second look costs as much as a quarter of a small batch.
    """
    high = (np.uint64(producer_id) * _HASH_FACTOR) >> _HALF
    return (high * np.uint64(slot_count)) >> _HALF


@inlined
def first_guess(slots, producer_id):
    """Return the row in the slot where *producer_id* is looked for first: mostly its own."""
    return np.uint64(np.uint32(slots[_first_slot(producer_id, slots.size)]))


@inlined
def find_producer(producers, slots, producer_id):
    """Return the row of *producer_id*, uint64, or 0.

    *slots* is an open hash table, a power of two long and at most half full: 0 free, otherwise a row.
    """
    mask = np.uint64(slots.size - 1)
    slot = _first_slot(producer_id, slots.size)
    while True:
        row = np.uint64(np.uint32(slots[slot]))
        if row == 0 or producers[row].producer_id == producer_id:
            return row
        slot = (slot + np.uint64(1)) & mask


@inlined
def known_producer(state, producers, slots, producer_id):
    """Return the row of *producer_id*, which is made if there is none."""
    row = find_producer(producers, slots, producer_id)
    if row != 0:
        return row
    row = np.uint64(state.producer_count)
    state.producer_count += 1
    mask = np.uint64(slots.size - 1)
    slot = _first_slot(producer_id, slots.size)
    while slots[slot] != 0:
        slot = (slot + np.uint64(1)) & mask
    slots[slot] = row
    new = producers[row]
    new.producer_id = producer_id
    new.last_offset = -1
    new.data_timestamp_ms = -1
    new.marker_timestamp_ms = -1
    new.last_sequence = -1
    new.offset_delta = 0
    new.coordinator_epoch = -1
    new.first_epoch = -1
    new.epoch = -1
    new.usual = USUAL_UNKNOWN
    new.flags = 0
    new.has_marker = False
    return row


@inlined
def add_event(state, events, kind, row, offset, last_offset, position, marker_type, coordinator_epoch, epoch):
    """Note a transaction event of the producer in *row*."""
    event = events[state.event_count]
    state.event_count += 1
    event.kind = kind
    event.producer = np.int64(row) - 1
    event.offset = offset
    event.last_offset = last_offset
    event.position = position
    event.marker_type = marker_type
    event.coordinator_epoch = coordinator_epoch
    event.epoch = epoch


@inlined
def apply_marker(producer, epoch, coordinator_epoch, timestamp_ms):
    """Kafka: ProducerAppendInfo.appendEndTxnMarker, ProducerStateEntry.update."""
    flags = producer.flags | MARKER_WAS_LAST
    if producer.usual == USUAL_UNKNOWN:
        producer.first_epoch = epoch
    elif producer.epoch != epoch:
        flags |= CLEARED
    producer.flags = flags
    producer.epoch = epoch
    producer.coordinator_epoch = coordinator_epoch
    producer.marker_timestamp_ms = timestamp_ms
    producer.has_marker = True
    producer.usual = USUAL_OUTSIDE


@inlined
def decode_marker(batch, total_bytes):
    """Return (kind, marker type, coordinator epoch, timestamp) of the control batch at address *batch*.

    Kafka: ProducerAppendInfo.append, EndTransactionMarker.deserialize. Differs: anything but the shape that
    brokers write is left to the caller (kind 0); it may still be a marker.
    """
    attributes = load_u8(batch + layout.ATTRIBUTES_LOW_BYTE_POSITION)
    record_count = load_be32(batch + layout.RECORD_COUNT_POSITION)
    if record_count == 0:
        return KIND_NOTHING, np.int64(0), np.int64(0), np.int64(0)
    record = batch + layout.RECORDS_POSITION
    if (
        record_count != 1
        or attributes & layout.COMPRESSION_CODEC_MASK != 0
        or total_bytes != layout.RECORDS_POSITION + _MARKER_BYTES
        or load_u8(record) != _MARKER_SIZE_VARINT
        or load_u8(record + 2) >= 128
        or load_u8(record + 3) >= 128
        or load_u8(record + 4) != _MARKER_KEY_VARINT
        or load_u8(record + 9) != _MARKER_VALUE_VARINT
        or load_u8(record + 16) != 0
        or load_be16(record + 5) < 0
        or load_be16(record + 10) < 0
    ):
        return KIND_UNKNOWN, np.int64(0), np.int64(0), np.int64(0)
    marker_type = load_be16(record + 7)
    if marker_type != layout.CONTROL_TYPE_ABORT and marker_type != layout.CONTROL_TYPE_COMMIT:
        return KIND_UNKNOWN, np.int64(0), np.int64(0), np.int64(0)
    if attributes & layout.TIMESTAMP_TYPE_MASK != 0:
        timestamp_ms = load_be64(batch + layout.MAX_TIMESTAMP_POSITION)
    else:
        zigzag = load_u8(record + 2)
        delta_ms = (zigzag >> 1) ^ -(zigzag & 1)
        timestamp_ms = load_be64(batch + layout.BASE_TIMESTAMP_POSITION) + delta_ms
    return KIND_MARKER, marker_type, load_be32(record + 12), timestamp_ms


@kernel
def rebuild_slots(producers_address, producers_rows, producer_count, slots_address, slots_rows):
    """Enter the rows 1, 2, ... *producer_count* - 1 of the producers into the slots, which are all free."""
    producers = rows_at(producers_address, producers_rows, PRODUCER_ROW_DTYPE)
    slots = rows_at(slots_address, slots_rows, _INT32)
    mask = np.uint64(slots.size - 1)
    for row in range(1, producer_count):
        slot = _first_slot(producers[row].producer_id, slots.size)
        while slots[slot] != 0:
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = row
    return np.int64(0)
