"""Slow, obvious twins of the kernels: CRC-32C by crcmod, the scan of a segment by struct, one statement
after another.

They are written from Kafka's sources and know nothing of how the kernels go about it. The only thing shared
is the vocabulary of results (`Stop`, `TxnEventKind`).

Kafka: LogSegment.recover and what it calls.
"""

from __future__ import annotations

import dataclasses
import struct
import zlib
from dataclasses import dataclass, field
from typing import Any

import crcmod.predefined

from native.raw_scan import ControlKind, RawScan, Stop, TxnEventKind

crc32c = crcmod.predefined.mkPredefinedCrcFun("crc-32c")

MAX_INT = 2**31 - 1


def java_int(value: int) -> int:
    return (value + 2**31) % 2**32 - 2**31


def java_long(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


def increment_sequence(sequence: int, increment: int) -> int:
    """Kafka: DefaultRecordBatch.incrementSequence; Java's ints wrap round."""
    if sequence > java_int(MAX_INT - increment):
        return java_int(java_int(increment - java_int(MAX_INT - sequence)) - 1)
    return java_int(sequence + increment)


@dataclass
class Producer:
    producer_id: int
    last_offset: int = -1
    timestamp_ms: int = -1
    data_timestamp_ms: int = -1
    last_sequence: int = -1
    offset_delta: int = 0
    coordinator_epoch: int = -1
    first_epoch: int = -1
    epoch: int = -1
    has_data: bool = False
    has_marker: bool = False
    cleared: bool = False


@dataclass
class Scan:
    """RawScan with lists of tuples."""

    stop: Stop
    valid_bytes: int
    stop_position: int
    stop_detail: tuple[int, int]
    batch_count: int = 0
    legacy_batch_count: int = 0
    last_offset: int = -1
    max_timestamp_ms: int = -1
    max_timestamp_offset: int = -1
    offset_index: list[tuple[int, int]] = field(default_factory=list)
    time_index: list[tuple[int, int]] = field(default_factory=list)
    epochs: list[tuple[int, int]] = field(default_factory=list)
    epoch_positions: list[int] = field(default_factory=list)
    producers: list[tuple[Any, ...]] = field(default_factory=list)
    txn_events: list[tuple[Any, ...]] = field(default_factory=list)
    producer_end_offset: int = -1
    txns_in_order: bool = True
    settled_txn_count: int = 0
    first_settled_offset: int = -1
    last_settled_offset: int = -1
    gap_count: int = 0


def plain(raw: RawScan) -> Scan:
    """Return *raw* in the twin's terms, to compare the two."""
    return Scan(
        **{
            **raw._asdict(),
            "offset_index": [tuple(row) for row in raw.offset_index.tolist()],
            "time_index": raw.time_index.tolist(),
            "epochs": [tuple(row) for row in raw.epochs.tolist()],
            "epoch_positions": raw.epoch_positions.tolist(),
            "producers": raw.producers.tolist(),
            "txn_events": raw.txn_events.tolist(),
        }
    )


class _StopScanError(Exception):
    def __init__(self, stop: Stop, position: int, *detail: int) -> None:
        self.stop, self.position, self.detail = stop, position, detail


class ReferenceScan:
    """One walk; `scan` is the way in."""

    def __init__(
        self,
        data: bytes,
        *,
        base_offset: int,
        start_position: int = 0,
        index_interval_bytes: int = 4096,
        max_index_entries: int = 1310720,
        max_time_index_entries: int = 873813,
        check_crc: bool = True,
        build_index: bool = True,
        settles_txns: bool = True,
    ) -> None:
        self.data = data
        self.base_offset = base_offset
        self.position = start_position
        self.last_indexed = start_position
        self.interval = index_interval_bytes
        self.max_index_entries = max_index_entries
        self.max_time_index_entries = max_time_index_entries
        self.check_crc = check_crc
        self.build_index = build_index
        self.max_timestamp = (-1, base_offset)
        self.max_timestamp_position = start_position
        self.producers: dict[int, Producer] = {}
        self.open: dict[int, bool] = {}  # by this segment's events; absent: neither BEGIN nor MARKER was seen
        self.reported_outside: set[int] = set()
        self.known: dict[int, int | None] = {}  # behind their first marker: where the open transaction began
        self.begins: list[int] = []
        self.settled: list[int] = []
        self.may_settle = settles_txns
        self.out = Scan(Stop.END, 0, 0, (0, 0))

    def run(self) -> Scan:
        try:
            while self.step():
                pass
        except _StopScanError as stopped:
            self.out.stop = stopped.stop
            self.out.stop_position = stopped.position
            self.out.stop_detail = (stopped.detail[0], stopped.detail[1])
        self.out.valid_bytes = self.position
        reached_end = self.out.stop in (
            Stop.END, Stop.TORN, Stop.BAD_LENGTH, Stop.CRC_MISMATCH, Stop.INVALID_CONTROL,
        )  # fmt: skip
        if reached_end and self.build_index:
            try:
                self.maybe_append_time(self.base_offset)
            except _StopScanError as stopped:
                self.out.stop = stopped.stop
                self.out.stop_position = stopped.position
                self.out.stop_detail = (stopped.detail[0], stopped.detail[1])
        self.out.max_timestamp_ms, self.out.max_timestamp_offset = self.max_timestamp
        self.out.txns_in_order = self.may_settle
        self.out.settled_txn_count = len(self.settled)
        self.out.first_settled_offset = min(self.settled, default=-1)
        self.out.last_settled_offset = max(self.settled, default=-1)
        self.out.producers = [dataclasses.astuple(producer) for producer in self.producers.values()]
        return self.out

    def step(self) -> bool:
        data, position, end = self.data, self.position, len(self.data)
        if position >= end - 17:
            raise _StopScanError(Stop.END, position, 0, 0)
        offset, length = struct.unpack_from(">qi", data, position)
        if length < 14:
            raise _StopScanError(Stop.BAD_LENGTH, position, length, 14)
        if position > end - 12 - length:
            raise _StopScanError(Stop.TORN, position, length, end - 12 - position)
        (magic,) = struct.unpack_from(">b", data, position + 16)
        batch = data[position : position + 12 + length]
        if magic < 2:
            self.legacy(offset, magic, batch)
        else:
            self.modern(offset, batch)
        return True

    def legacy(self, offset: int, magic: int, batch: bytes) -> None:
        if self.check_crc:
            (stored,) = struct.unpack_from(">I", batch, 12)
            computed = zlib.crc32(batch[16:])
            if stored != computed:
                raise _StopScanError(Stop.CRC_MISMATCH, self.position, stored, computed)
        timestamp = -1 if magic == 0 else struct.unpack_from(">q", batch, 18)[0]
        self.account(offset, timestamp, batch)
        self.out.legacy_batch_count += 1

    def modern(self, base_offset: int, batch: bytes) -> None:
        position = self.position
        header = batch[:61]
        if self.check_crc:
            if len(batch) < 61:
                raise _StopScanError(Stop.BAD_LENGTH, position, len(batch) - 12, 49)
            (stored,) = struct.unpack_from(">I", batch, 17)
            computed = crc32c(batch[21:])
            if stored != computed:
                raise _StopScanError(Stop.CRC_MISMATCH, position, stored, computed)
        elif len(batch) < 61:
            header = self.data[position : position + 61]
            if len(header) < 61:
                raise _StopScanError(Stop.SHORT_HEADER, position, len(batch), len(header))
        leader_epoch, _magic, _crc, attributes, delta = struct.unpack_from(">ibIhi", header, 12)
        _base_timestamp, max_timestamp = struct.unpack_from(">qq", header, 27)
        producer_id, epoch, base_sequence, _count = struct.unpack_from(">qhii", header, 43)
        last_offset = java_long(base_offset + delta)
        before, is_first = self.out.last_offset, not self.out.batch_count
        self.account(last_offset, max_timestamp, batch)
        self.out.gap_count += not is_first and java_long(base_offset - 1) > before
        highest = self.out.epochs[-1][0] if self.out.epochs else -1
        if leader_epoch >= 0 and leader_epoch > highest:
            self.out.epochs.append((leader_epoch, base_offset))
            self.out.epoch_positions.append(position)
        if producer_id > -1:
            if attributes & 0x20:
                self.control(producer_id, epoch, base_offset, last_offset, position, batch)
            else:
                self.transaction(
                    producer_id, epoch, base_offset, last_offset, position, bool(attributes & 0x10)
                )
                producer = self.producer(producer_id)
                if not (producer.has_data or producer.has_marker):
                    producer.first_epoch = epoch
                producer.epoch = epoch
                producer.has_data = True
                producer.cleared = False
                producer.last_sequence = (
                    -1 if base_sequence == -1 else increment_sequence(base_sequence, delta)
                )
                producer.last_offset = last_offset
                producer.offset_delta = java_int(last_offset - base_offset)
                producer.timestamp_ms = producer.data_timestamp_ms = max_timestamp
        self.out.producer_end_offset = java_long(last_offset + 1)

    def account(self, last_offset: int, timestamp: int, batch: bytes) -> None:
        relative = java_long(last_offset - self.base_offset)
        if (self.check_crc or self.build_index) and not 0 <= relative <= MAX_INT:
            raise _StopScanError(Stop.OFFSET_OVERFLOW, self.position, last_offset, self.base_offset)
        if timestamp > self.max_timestamp[0]:
            self.max_timestamp = (timestamp, last_offset)
            self.max_timestamp_position = self.position
        if self.build_index and self.position - self.last_indexed > self.interval:
            index = self.out.offset_index
            if len(index) >= self.max_index_entries:
                raise _StopScanError(Stop.INDEX_FULL, self.position, len(index), self.max_index_entries)
            last_indexed = java_long(self.base_offset + index[-1][0]) if index else 0
            if index and last_offset <= last_indexed:
                raise _StopScanError(Stop.INVALID_OFFSET, self.position, last_offset, last_indexed)
            index.append((relative, self.position))
            count = len(self.out.time_index)
            if count >= self.max_time_index_entries - 1:
                raise _StopScanError(Stop.TIME_INDEX_FULL, self.position, count, self.max_time_index_entries)
            self.maybe_append_time(self.base_offset)
            self.last_indexed = self.position
        self.position += len(batch)
        self.out.batch_count += 1
        self.out.last_offset = last_offset

    def maybe_append_time(self, base_offset: int) -> None:
        timestamp, offset = self.max_timestamp
        entries = self.out.time_index
        last_timestamp, last_relative = entries[-1] if entries else (-1, 0)
        last_offset = java_long(base_offset + last_relative)
        if entries and offset < last_offset:
            raise _StopScanError(
                Stop.TIME_INDEX_INVALID_OFFSET,
                self.max_timestamp_position,
                offset,
                last_offset,
            )
        if timestamp > last_timestamp:
            entries.append((timestamp, java_long(offset - base_offset)))

    def producer(self, producer_id: int) -> Producer:
        return self.producers.setdefault(producer_id, Producer(producer_id))

    def event(
        self, kind: TxnEventKind, producer_id: int, epoch: int, offset: int, last_offset: int, position: int,
        marker_type: int = -1, coordinator_epoch: int = -1, oldest_other: int = -1,
    ) -> None:  # fmt: skip
        self.producer(producer_id)
        row = list(self.producers).index(producer_id)
        self.out.txn_events.append(
            (kind, row, offset, last_offset, position, marker_type, coordinator_epoch, epoch, oldest_other)
        )

    def transaction(
        self, producer_id: int, epoch: int, offset: int, last_offset: int, position: int, transactional: bool
    ) -> None:
        place = (producer_id, epoch, offset, last_offset, position)
        if transactional and not self.open.get(producer_id):
            self.open[producer_id] = True
            self.event(TxnEventKind.BEGIN, *place)
            self.may_settle = self.may_settle and offset > max(self.begins, default=-1)
            self.begins.append(offset)
            if producer_id in self.known:
                del self.known[producer_id]  # so that the dict has them in the order in which they began
                self.known[producer_id] = offset
        elif not transactional and self.open.get(producer_id):
            self.event(TxnEventKind.INVALID_TXN, *place)
            raise _StopScanError(Stop.INVALID_TXN, position, producer_id, offset)
        elif not transactional and producer_id not in self.open:
            if producer_id not in self.reported_outside:
                self.event(TxnEventKind.NON_TRANSACTIONAL, *place)
            self.reported_outside.add(producer_id)

    def control(
        self, producer_id: int, epoch: int, offset: int, last_offset: int, position: int, batch: bytes
    ) -> None:
        kind, marker_type, coordinator_epoch, timestamp = decode_control(batch)
        if kind is ControlKind.INVALID:
            raise _StopScanError(Stop.INVALID_CONTROL, position, producer_id, offset)
        if kind is ControlKind.FATAL:
            raise _StopScanError(Stop.CONTROL_FATAL, position, producer_id, offset)
        producer = self.producer(producer_id)
        if kind is ControlKind.NOTHING:
            return
        if producer.has_data or producer.has_marker:
            producer.cleared = producer.cleared or producer.epoch != epoch
        else:
            producer.first_epoch = epoch
        producer.epoch = epoch
        producer.has_marker = True
        producer.coordinator_epoch = coordinator_epoch
        producer.timestamp_ms = timestamp
        self.open[producer_id] = False
        is_known, first = producer_id in self.known, self.known.pop(producer_id, None)
        self.known[producer_id] = None
        if is_known and first is None:
            return
        others = [other for other in self.known.values() if other is not None]
        told = (position, marker_type, coordinator_epoch, others[0] if others else -1)
        if first is None or not self.may_settle:
            self.event(TxnEventKind.MARKER, producer_id, epoch, offset, last_offset, *told)
            return
        self.settled.append(first)
        row = list(self.producers).index(producer_id)
        begun = [i for i, event in enumerate(self.out.txn_events) if event[:2] == (TxnEventKind.BEGIN, row)]
        del self.out.txn_events[begun[-1]]
        if marker_type == 0:
            self.event(TxnEventKind.ABORTED, producer_id, epoch, first, offset, *told)


def scan(data: bytes, **options: Any) -> Scan:
    """Return what the scan of *data* must yield, control batches decoded by `decode_control`."""
    return ReferenceScan(data, **options).run()


class _InvalidRecordError(Exception):
    pass


class _FatalError(Exception):
    pass


class _Buffer:
    def __init__(self, data: bytes) -> None:
        self.data, self.position = data, 0

    def take(self, size: int) -> bytes:
        if not 0 <= size <= len(self.data) - self.position:
            raise _InvalidRecordError
        self.position += size
        return self.data[self.position - size : self.position]

    def varint(self, most_bytes: int = 5) -> int:
        value = 0
        for i in range(most_bytes):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << 7 * i
            if byte < 0x80:
                bits = 32 if most_bytes == 5 else 64
                value &= 2**bits - 1
                return value >> 1 ^ -(value & 1)
        raise OverflowError

    def sized(self) -> bytes | None:
        size = self.varint()
        return None if size < 0 else self.take(size)


def decode_control(batch: bytes) -> tuple[ControlKind, int, int, int]:
    """Return (kind, marker type, coordinator epoch, timestamp) of a control batch; uncompressed or gzip.

    Kafka: ProducerAppendInfo.append, DefaultRecordBatch.RecordIterator, DefaultRecord.readFrom,
    ControlRecordType.parse, EndTransactionMarker.deserialize.
    """
    try:
        return _decode_control(batch)
    except _InvalidRecordError:
        return ControlKind.INVALID, 0, 0, 0
    except _FatalError:
        return ControlKind.FATAL, 0, 0, 0


def _decode_control(batch: bytes) -> tuple[ControlKind, int, int, int]:
    if len(batch) < 61:
        raise _FatalError
    attributes, _delta, base_timestamp, max_timestamp, _pid, _epoch, _sequence, count = struct.unpack_from(
        ">hiqqqhii", batch, 21
    )
    if count == 0:
        return ControlKind.NOTHING, 0, 0, 0
    if attributes & 7:
        timestamp_delta, key, value = _first_of_compressed(batch[61:], attributes & 7, count)
    else:
        timestamp_delta, key, value = _first_of_plain(batch[61:], count)
    if key is None:
        raise _FatalError
    if len(key) < 4:
        raise _InvalidRecordError
    key_version, marker_type = struct.unpack(">hh", key[:4])
    if key_version < 0:
        raise _InvalidRecordError
    if marker_type not in (0, 1) or value is None or len(value) < 2:
        raise _FatalError
    if struct.unpack(">h", value[:2])[0] < 0:
        raise _InvalidRecordError
    if len(value) < 6:
        raise _FatalError
    (coordinator_epoch,) = struct.unpack(">i", value[2:6])
    timestamp = max_timestamp if attributes & 8 else java_long(base_timestamp + timestamp_delta)
    return ControlKind.MARKER, marker_type, coordinator_epoch, timestamp


def _first_of_plain(payload: bytes, count: int) -> tuple[int, bytes | None, bytes | None]:
    """Kafka: DefaultRecordBatch.uncompressedIterator; only the first record is read."""
    if count < 0:
        raise _InvalidRecordError
    buffer = _Buffer(payload)
    try:
        size = buffer.varint()
    except OverflowError:
        raise _FatalError from None  # outside of the try block that turns it into InvalidRecordException
    try:
        record = _read_record(buffer, size)
    except OverflowError:
        raise _InvalidRecordError from None
    if count == 1 and buffer.position != len(payload):
        raise _InvalidRecordError
    return record


def _first_of_compressed(payload: bytes, codec: int, count: int) -> tuple[int, bytes | None, bytes | None]:
    """Kafka: DefaultRecordBatch.iterator, StreamRecordIterator; all records are read, gzip alone is known
    here."""
    if codec != 1:
        raise _FatalError
    try:
        buffer = _Buffer(zlib.decompress(payload, wbits=31))
    except zlib.error:
        raise _FatalError from None
    if count < 0:
        raise _InvalidRecordError
    records = []
    for _ in range(count):
        try:
            body = buffer.take(buffer.varint())
            records.append(_read_record(_Buffer(body), len(body)))
        except OverflowError:
            raise _InvalidRecordError from None
    if buffer.position != len(buffer.data):
        raise _InvalidRecordError
    return records[0]


def _read_record(buffer: _Buffer, size: int) -> tuple[int, bytes | None, bytes | None]:
    if len(buffer.data) - buffer.position < size:
        raise _InvalidRecordError
    start = buffer.position
    buffer.take(1)
    timestamp_delta = buffer.varint(10)
    buffer.varint()
    key = buffer.sized()
    value = buffer.sized()
    header_count = buffer.varint()
    if header_count < 0 or header_count > len(buffer.data) - buffer.position:
        raise _InvalidRecordError
    for _ in range(header_count):
        if buffer.sized() is None:
            raise _InvalidRecordError
        buffer.sized()
    if buffer.position - start != size:
        raise _InvalidRecordError
    return timestamp_delta, key, value
