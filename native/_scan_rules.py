# mypy: ignore-errors
# ^ kernels: numba infers their types, mypy cannot follow it
"""The rules of the segment scan that most batches never reach, one function per rule, inlined by the kernel.

Kafka: OffsetIndex.append, TimeIndex.maybeAppend, ProducerAppendInfo.append, EndTransactionMarker.deserialize.
"""

from __future__ import annotations

import numpy as np

from native._jit import inlined
from native._memory import load_be16, load_be32, load_be64, load_u8
from native._scan_state import RUNNING
from native.raw_scan import ControlKind, Stop
from segfmt import byte_layout

# numba freezes module-level integers; it does not look through an enum's members as cheaply.
_INDEX_FULL = int(Stop.INDEX_FULL)
_INVALID_OFFSET = int(Stop.INVALID_OFFSET)
_TIME_INDEX_FULL = int(Stop.TIME_INDEX_FULL)
_TIME_INDEX_INVALID_OFFSET = int(Stop.TIME_INDEX_INVALID_OFFSET)
KIND_UNKNOWN = 0
KIND_MARKER = int(ControlKind.MARKER)
KIND_NOTHING = int(ControlKind.NOTHING)


# The one shape of a marker that is decoded here: varints of one byte, key 4 bytes, value 6, no headers.
#   0 size | 1 attributes | 2 timestampDelta | 3 offsetDelta | 4 keyLength | 5 version i16 | 7 type i16
#   9 valueLength | 10 version i16 | 12 coordinatorEpoch i32 | 16 headerCount
_MARKER_BYTES = 17
_MARKER_SIZE_VARINT = 2 * (_MARKER_BYTES - 1)
_MARKER_KEY_VARINT = 2 * byte_layout.CONTROL_KEY_BYTES
_MARKER_VALUE_VARINT = 2 * byte_layout.END_TXN_MARKER_VALUE_BYTES


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

    If the time index refuses its entry, that of the offset index stays.
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
        # The kernel replaces this position by that of the batch with the greatest timestamp.
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
def decode_marker(batch, total_bytes):
    """Return (kind, marker type, coordinator epoch, timestamp) of the control batch at address *batch*.

    Kafka: ProducerAppendInfo.append, EndTransactionMarker.deserialize. Differs: anything but the shape that
    brokers write is left to the caller (kind 0); it may still be a marker.
    """
    attributes = load_u8(batch + byte_layout.ATTRIBUTES_LOW_BYTE_POSITION)
    record_count = load_be32(batch + byte_layout.RECORD_COUNT_POSITION)
    if record_count == 0:
        return KIND_NOTHING, np.int64(0), np.int64(0), np.int64(0)
    record = batch + byte_layout.RECORDS_POSITION
    if (
        record_count != 1
        or attributes & byte_layout.COMPRESSION_CODEC_MASK != 0
        or total_bytes != byte_layout.RECORDS_POSITION + _MARKER_BYTES
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
    if marker_type != byte_layout.CONTROL_TYPE_ABORT and marker_type != byte_layout.CONTROL_TYPE_COMMIT:
        return KIND_UNKNOWN, np.int64(0), np.int64(0), np.int64(0)
    if attributes & byte_layout.TIMESTAMP_TYPE_MASK != 0:
        timestamp_ms = load_be64(batch + byte_layout.MAX_TIMESTAMP_POSITION)
    else:
        zigzag = load_u8(record + 2)
        delta_ms = (zigzag >> 1) ^ -(zigzag & 1)
        timestamp_ms = load_be64(batch + byte_layout.BASE_TIMESTAMP_POSITION) + delta_ms
    return KIND_MARKER, marker_type, load_be32(record + 12), timestamp_ms
