# ruff: noqa: ANN001, ANN201, ANN202
# ^ numba infers the types of kernels
"""The kernel of the generator: appends batches to a segment as a broker does, one `write` a batch.

It keeps what a running broker keeps beside a log (index entries, producers, open transactions), by the rules
of LogSegment.append and ProducerAppendInfo, which are not those of the scan: so a generated log dir is what a
crashed broker leaves, and no output of the program that is to be measured.

Records are real ones, `null` keys and values of noise, or taken, compressed, from a store of contents; a
consumer can read them.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import types

from native._crc32c import checksum
from native._jit import in_process, inlined

STATE_DTYPE: Final = np.dtype(
    [
        (name, "<i8")
        for name in (
            "random",  # xorshift64*, never 0
            "clock_us",
            "clock_step_us",
            "total_bytes",  # of the whole partition, all segments
            "epoch_count",
            "written_bytes",
            "next_offset",
            "leader_epoch",
            "seen_producers",
            "next_producer_id",
            "batch_count",
            "transactional_count",
            "marker_count",
            # of the segment
            "base_offset",
            "position",
            "bytes_since_index_entry",
            "max_timestamp_ms",
            "max_timestamp_offset",
            "last_time_index_ms",
            "index_count",
            "time_index_count",
            "aborted_count",
            "epoch_entry_count",
        )
    ]
)
PRODUCER_DTYPE: Final = np.dtype(
    [
        (name, "<i8")
        for name in (
            "producer_id",
            "seen",  # order of the first batch, from 1; 0: none yet
            "epoch",
            "next_sequence",
            "last_sequence",
            "last_offset",
            "offset_delta",
            "timestamp_ms",
            "coordinator_epoch",
            "txn_first_offset",
            "txn_batches_left",
        )
    ]
)
ABORTED_DTYPE: Final = np.dtype(
    [(name, "<i8") for name in ("producer_id", "first_offset", "last_offset", "last_stable_offset")]
)

WRITE_FAILED: Final = -1

_HEADER_BYTES: Final = 61
_MARKER_BYTES: Final = 78
_RECORD_BYTES: Final = 1000
"""A batch holds as many records as fit, of about so many bytes."""
_RECORD_OVERHEAD_BYTES: Final = 8
_TRANSACTIONAL, _CONTROL = 0x10, 0x20
_LAST_EPOCH: Final = 32766
_COORDINATOR_EPOCH: Final = 0

_copy = types.ExternalFunction("memcpy", types.intp(types.intp, types.intp, types.intp))
_write = types.ExternalFunction("write", types.int64(types.int32, types.intp, types.intp))


@inlined
def _next_random(state, below):
    """Return a number in [0, below)."""
    x = np.uint64(state.random)
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    state.random = np.int64(x)
    return np.int64((x * np.uint64(0x2545F4914F6CDD1D) >> np.uint64(33)) % np.uint64(below))


@inlined
def _store(buffer, position, value, size_bytes):
    """Store *value* big-endian."""
    for i in range(size_bytes):
        buffer[position + i] = np.uint8((value >> (8 * (size_bytes - 1 - i))) & 0xFF)


@inlined
def _store_varint(buffer, position, value):
    """Store *value* >= 0 zig-zag encoded; return the position behind it."""
    rest = value << 1
    while rest > 0x7F:
        buffer[position] = np.uint8(rest & 0x7F | 0x80)
        position += 1
        rest >>= 7
    buffer[position] = np.uint8(rest)
    return position + 1


@inlined
def _varint_bytes(value):
    size_bytes = 1
    rest = value << 1
    while rest > 0x7F:
        size_bytes += 1
        rest >>= 7
    return size_bytes


@inlined
def _store_records(buffer, state, noise, size_bytes):
    """Fill about *size_bytes* behind the header with records; return (record count, position behind them)."""
    record_count = max(1, size_bytes // _RECORD_BYTES)
    value_bytes = max(1, size_bytes // record_count - _RECORD_OVERHEAD_BYTES)
    position = _HEADER_BYTES
    for i in range(record_count):
        # attributes, timestamp delta, offset delta, key -1, value, no headers
        body = 1 + 2 * _varint_bytes(i) + 1 + _varint_bytes(value_bytes) + value_bytes + 1
        position = _store_varint(buffer, position, body)
        buffer[position] = 0
        position = _store_varint(buffer, position + 1, i)
        position = _store_varint(buffer, position, i)
        buffer[position] = 1
        position = _store_varint(buffer, position + 1, value_bytes)
        start = _next_random(state, noise.size - value_bytes)
        _copy(buffer.ctypes.data + position, noise.ctypes.data + start, value_bytes)
        position += value_bytes
        buffer[position] = 0
        position += 1
    return record_count, position


@inlined
def _store_header(path, buffer, state, producer, total_bytes, attributes, count, timestamp_ms, sequence):
    _store(buffer, 0, state.next_offset, 8)
    _store(buffer, 8, total_bytes - 12, 4)
    _store(buffer, 12, state.leader_epoch, 4)
    buffer[16] = 2
    _store(buffer, 21, attributes, 2)
    _store(buffer, 23, count - 1, 4)
    _store(buffer, 27, timestamp_ms, 8)
    _store(buffer, 35, timestamp_ms + count - 1, 8)
    _store(buffer, 43, producer.producer_id, 8)
    _store(buffer, 51, producer.epoch, 2)
    _store(buffer, 53, sequence, 4)
    _store(buffer, 57, count, 4)
    _store(buffer, 17, checksum(path, buffer.ctypes.data + 21, total_bytes - 21), 4)


@inlined
def _see(state, producer):
    """Give a producer its id, and its place in the order of first batches."""
    if producer.seen == 0:
        state.seen_producers += 1
        producer.seen = state.seen_producers
        producer.producer_id = state.next_producer_id
        state.next_producer_id += 1
        producer.coordinator_epoch = -1
        producer.txn_first_offset = -1


@inlined
def _forget_batches(producer):
    """Kafka: ProducerStateEntry.maybeUpdateProducerEpoch."""
    producer.next_sequence = 0
    producer.last_sequence = -1
    producer.last_offset = -1
    producer.offset_delta = 0


@inlined
def _take_content(buffer, state, contents, content_rows):
    """Take any of the compressed contents; return (record count, position behind it)."""
    row = _next_random(state, content_rows.shape[0])
    start, end = content_rows[row, 0], content_rows[row, 1]
    _copy(buffer.ctypes.data + _HEADER_BYTES, contents.ctypes.data + start, end - start)
    return content_rows[row, 2], _HEADER_BYTES + end - start


@inlined
def _data_batch(
    path,
    buffer,
    state,
    producer,
    noise,
    contents,
    content_rows,
    codec,
    size_bytes,
    is_transactional,
    timestamp_ms,
):
    """Build a batch of *producer*; return (record count, total bytes)."""
    _see(state, producer)
    if not is_transactional and producer.epoch < _LAST_EPOCH and _next_random(state, 20_000) == 0:
        producer.epoch += 1
        _forget_batches(producer)
    if is_transactional and producer.txn_first_offset < 0:
        producer.txn_first_offset = state.next_offset
        producer.txn_batches_left = 1 + _next_random(state, 9)
    if codec != 0:
        count, total_bytes = _take_content(buffer, state, contents, content_rows)
    else:
        count, total_bytes = _store_records(buffer, state, noise, size_bytes - _HEADER_BYTES)
    sequence = producer.next_sequence
    attributes = codec | (_TRANSACTIONAL if is_transactional else 0)
    _store_header(path, buffer, state, producer, total_bytes, attributes, count, timestamp_ms, sequence)
    producer.last_sequence = (sequence + count - 1) & 0x7FFFFFFF
    producer.next_sequence = (sequence + count) & 0x7FFFFFFF
    producer.last_offset = state.next_offset + count - 1
    producer.offset_delta = count - 1
    producer.timestamp_ms = timestamp_ms + count - 1
    if is_transactional:
        producer.txn_batches_left -= 1
        state.transactional_count += 1
    return count, total_bytes


@inlined
def _marker(path, buffer, state, producers, producer, timestamp_ms, aborted):
    """Build the marker that ends a transaction, with the next epoch, as since KIP-890."""
    producer.epoch += 1
    is_abort = _next_random(state, 10) == 0
    # One record: key (version, type), value (version, coordinator epoch).
    for i, byte in enumerate((32, 0, 0, 0, 8, 0, 0, 0, 0 if is_abort else 1, 12)):
        buffer[_HEADER_BYTES + i] = byte
    _store(buffer, _HEADER_BYTES + 10, _COORDINATOR_EPOCH, 6)
    buffer[_HEADER_BYTES + 16] = 0
    attributes = _TRANSACTIONAL | _CONTROL
    _store_header(path, buffer, state, producer, _MARKER_BYTES, attributes, 1, timestamp_ms, -1)
    if is_abort:
        last_stable_offset = state.next_offset + 1
        for i in range(producers.size):
            other = producers[i]
            if other.producer_id != producer.producer_id and other.txn_first_offset >= 0:
                last_stable_offset = min(last_stable_offset, other.txn_first_offset)
        entry = aborted[state.aborted_count]
        entry.producer_id = producer.producer_id
        entry.first_offset = producer.txn_first_offset
        entry.last_offset = state.next_offset
        entry.last_stable_offset = last_stable_offset
        state.aborted_count += 1
    _forget_batches(producer)
    producer.timestamp_ms = timestamp_ms
    producer.coordinator_epoch = _COORDINATOR_EPOCH
    producer.txn_first_offset = -1
    state.marker_count += 1


@inlined
def _index(state, offset_index, time_index, last_offset, timestamp_ms, total_bytes, interval_bytes):
    """Kafka: LogSegment.append."""
    if timestamp_ms > state.max_timestamp_ms:
        state.max_timestamp_ms = timestamp_ms
        state.max_timestamp_offset = last_offset
    if state.bytes_since_index_entry > interval_bytes:
        offset_index[state.index_count, 0] = last_offset - state.base_offset
        offset_index[state.index_count, 1] = state.position
        state.index_count += 1
        if state.max_timestamp_ms > state.last_time_index_ms:
            state.last_time_index_ms = state.max_timestamp_ms
            time_index[state.time_index_count, 0] = state.max_timestamp_ms
            time_index[state.time_index_count, 1] = state.max_timestamp_offset - state.base_offset
            state.time_index_count += 1
        state.bytes_since_index_entry = 0
    state.bytes_since_index_entry += total_bytes


@in_process
def append_segment(
    path,
    descriptor,
    states,
    producers,
    transactional_start,
    noise,
    contents,
    content_rows,
    codec,
    buffer,
    segment_bytes,
    least_bytes,
    most_bytes,
    interval_bytes,
    offset_index,
    time_index,
    aborted,
    epochs,
):
    """Append batches to a new segment until it holds *segment_bytes*.

    Args:
        path: CpuPath, for the checksums.
        descriptor: of the open `.log`.
        states: STATE_DTYPE, shape (1,). Read and written.
        producers: PRODUCER_DTYPE, shape (n,): idempotent ones, from *transactional_start* on transactional
            ones. Read and written.
        transactional_start: row of the first transactional producer.
        noise: uint8, larger than a record.
        contents: uint8: what lies behind the header of a batch whose records are compressed.
        content_rows: int64, shape (n, 3): start and end in *contents*, records; of each.
        codec: of the contents; 0: none of them is taken, records are made of *noise*.
        buffer: uint8, shape (at least most_bytes + 1024,). Written.
        segment_bytes: int64.
        least_bytes, most_bytes: about the sizes of batches.
        interval_bytes: index.interval.bytes.
        offset_index: int64, shape (n, 2): relative offset, position. Written.
        time_index: int64, shape (n, 2): timestamp, relative offset. Written.
        aborted: ABORTED_DTYPE, shape (n,): the segment's aborted transactions. Written.
        epochs: int64, shape (n, 2): leader epoch, start offset; of the whole partition. Written.

    Returns:
        Bytes of the segment, or WRITE_FAILED.
    """
    state = states[0]
    state.base_offset = state.next_offset
    state.position = 0
    state.bytes_since_index_entry = 0
    state.max_timestamp_ms = -1
    state.max_timestamp_offset = state.base_offset
    state.last_time_index_ms = -1
    state.index_count = 0
    state.time_index_count = 0
    state.aborted_count = 0
    transactional_producers = producers.size - transactional_start
    while state.position < segment_bytes:
        state.leader_epoch = min(
            state.written_bytes * state.epoch_count // state.total_bytes, state.epoch_count - 1
        )
        if state.epoch_entry_count <= state.leader_epoch:
            epochs[state.epoch_entry_count, 0] = state.leader_epoch
            epochs[state.epoch_entry_count, 1] = state.next_offset
            state.epoch_entry_count += 1
        state.clock_us += _next_random(state, 2 * state.clock_step_us + 1)
        # Producers' clocks and delays differ: timestamps are not in order.
        timestamp_ms = state.clock_us // 1000 - _next_random(state, 50)
        size_bytes = least_bytes + _next_random(state, most_bytes - least_bytes + 1)
        count, total_bytes = 1, _MARKER_BYTES
        # 6 % of the turns are transactional producers': on average five batches, 5 %, and a marker, 1 %.
        if _next_random(state, 100) >= 6:
            producer = producers[_next_random(state, transactional_start)]
            count, total_bytes = _data_batch(
                path,
                buffer,
                state,
                producer,
                noise,
                contents,
                content_rows,
                codec,
                size_bytes,
                False,
                timestamp_ms,
            )
        else:
            row = transactional_start + _next_random(state, transactional_producers)
            producer = producers[row]
            if producer.txn_first_offset >= 0 and producer.txn_batches_left == 0:
                _marker(path, buffer, state, producers, producer, timestamp_ms, aborted)
            elif producer.seen == 0 or producer.txn_first_offset >= 0 or producer.epoch < _LAST_EPOCH:
                count, total_bytes = _data_batch(
                    path,
                    buffer,
                    state,
                    producer,
                    noise,
                    contents,
                    content_rows,
                    codec,
                    size_bytes,
                    True,
                    timestamp_ms,
                )
            else:
                continue  # out of epochs; a real producer would get another id
        written = _write(descriptor, buffer.ctypes.data, total_bytes)
        if written != total_bytes:
            return np.int64(WRITE_FAILED)
        last_offset = state.next_offset + count - 1
        _index(
            state,
            offset_index,
            time_index,
            last_offset,
            timestamp_ms + count - 1,
            total_bytes,
            interval_bytes,
        )
        state.next_offset += count
        state.position += total_bytes
        state.written_bytes += total_bytes
        state.batch_count += 1
    return np.int64(state.position)
