"""The records inside a record batch.

    size varint | attributes i8 | timestamp delta varlong | offset delta varint | key size varint, key
                | value size varint, value | header count varint | (key size, key, value size, value)*

Signed varints are zig-zag; size -1 stands for null. In a compressed batch the records are one compressed
stream.

Kafka: DefaultRecord, DefaultRecordBatch.iterator.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from segfmt import byte_layout
from segfmt.compression import MAX_BYTES, Codec, decompress
from segfmt.entry_view import Buffer, view_octets
from segfmt.errors import BufferUnderflowError, InvalidRecordError
from segfmt.record_batch import RecordBatchHeader, increment_sequence, read_record_batch_header, wrap_long
from segfmt.varint import encode_varint, read_varint, read_varlong


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordHeader:
    """One header of a record: a key, UTF-8 by convention, and a value or None."""

    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record, its offset and timestamp absolute.

    Attributes:
        offset: int64.
        timestamp_ms: int64; the batch's maximum with LogAppendTime.
        sequence: int32, -1 without a producer.
        key: None for null.
        value: None for null, a tombstone if the topic is compacted.
        headers: in order.
        attributes: int8, unused by Kafka.
    """

    offset: int
    timestamp_ms: int
    sequence: int = byte_layout.NO_SEQUENCE
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[RecordHeader, ...] = ()
    attributes: int = 0


def read_records(
    data: Buffer,
    position: int = 0,
    *,
    header: RecordBatchHeader | None = None,
    max_bytes: int = MAX_BYTES,
) -> Iterator[Record]:
    """Yield the records of the batch at *position*.

    Args:
        data: holds the whole batch; its CRC is not checked.
        position: where the batch begins.
        header: of the batch, if it has been read already.
        max_bytes: give up when the records decompress to more.

    Raises:
        BufferUnderflowError: the buffer ends within the batch.
        InvalidRecordError: a record does not parse, its size is wrong, or the count does not fit the bytes.
        UnsupportedCodecError, DecompressionError: the stream cannot be opened.

    Kafka: DefaultRecordBatch.iterator, DefaultRecord.readFrom.
    """
    if header is None:
        header = read_record_batch_header(data, position)
    batch = view_octets(data)[position : position + header.size_bytes]
    if len(batch) < header.size_bytes:
        raise BufferUnderflowError(
            f"position {position}: {len(batch)} of {header.size_bytes} bytes are there", position=position
        )
    if header.record_count == 0:
        return
    codec = header.codec
    payload: bytes | memoryview = batch[byte_layout.RECORDS_POSITION :]
    if codec is not Codec.NONE:
        payload = decompress(codec, bytes(payload), magic=header.magic, max_bytes=max_bytes)
    if header.record_count < 0:
        raise InvalidRecordError(f"record count {header.record_count} is negative", position=position)
    yield from _read_all(payload, header)


def encode_record(record: Record, *, base_offset: int, base_timestamp_ms: int) -> bytes:
    """Return *record* as it is in an uncompressed batch with that base offset and timestamp."""
    parts = [
        record.attributes.to_bytes(1, "big", signed=True),
        encode_varint(record.timestamp_ms - base_timestamp_ms),
        encode_varint(record.offset - base_offset),
        _encode_bytes(record.key),
        _encode_bytes(record.value),
        encode_varint(len(record.headers)),
    ]
    for header in record.headers:
        parts += [_encode_bytes(header.key), _encode_bytes(header.value)]
    body = b"".join(parts)
    return encode_varint(len(body)) + body


def encode_records(records: Iterable[Record], *, base_offset: int, base_timestamp_ms: int) -> bytes:
    """Return *records* back to back, uncompressed."""
    return b"".join(
        encode_record(record, base_offset=base_offset, base_timestamp_ms=base_timestamp_ms)
        for record in records
    )


def _read_all(payload: bytes | memoryview, header: RecordBatchHeader) -> Iterator[Record]:
    position = 0
    for number in range(1, header.record_count + 1):
        try:
            record, position = _read_record(payload, position, header)
        except BufferUnderflowError as error:
            raise InvalidRecordError(
                f"record {number}: the records end within it", position=error.position
            ) from error
        if number == header.record_count and position != len(payload):
            raise InvalidRecordError(
                f"{len(payload) - position} bytes left after the last of {number} records", position=position
            )
        yield record


def _read_record(payload: bytes | memoryview, position: int, header: RecordBatchHeader) -> tuple[Record, int]:
    size, start = read_varint(payload, position)
    if size > len(payload) - start:
        raise InvalidRecordError(
            f"record size {size}, {len(payload) - start} bytes are left", position=position
        )
    if start >= len(payload):
        raise BufferUnderflowError("no byte left for the attributes", position=start)
    attributes = payload[start]
    timestamp_delta_ms, position = read_varlong(payload, start + 1)
    offset_delta, position = read_varint(payload, position)
    key, position = _read_bytes(payload, position)
    value, position = _read_bytes(payload, position)
    headers, position = _read_headers(payload, position)
    if position - start != size:
        raise InvalidRecordError(f"record size {size}, {position - start} bytes were read", position=start)
    timestamp_ms = wrap_long(header.base_timestamp_ms + timestamp_delta_ms)
    sequence = byte_layout.NO_SEQUENCE
    if header.base_sequence >= 0:
        sequence = increment_sequence(header.base_sequence, offset_delta)
    record = Record(
        offset=wrap_long(header.base_offset + offset_delta),
        timestamp_ms=header.max_timestamp_ms if header.is_log_append_time else timestamp_ms,
        sequence=sequence,
        key=key,
        value=value,
        headers=headers,
        attributes=attributes - 256 if attributes > 127 else attributes,
    )
    return record, position


def _read_headers(payload: bytes | memoryview, position: int) -> tuple[tuple[RecordHeader, ...], int]:
    count, position = read_varint(payload, position)
    if not 0 <= count <= len(payload) - position:
        raise InvalidRecordError(f"{count} record headers cannot be", position=position)
    headers: list[RecordHeader] = []
    for _ in range(count):
        key, position = _read_bytes(payload, position)
        if key is None:
            raise InvalidRecordError("the key of a record header is null", position=position)
        value, position = _read_bytes(payload, position)
        headers.append(RecordHeader(key=key, value=value))
    return tuple(headers), position


def _read_bytes(payload: bytes | memoryview, position: int) -> tuple[bytes | None, int]:
    size, position = read_varint(payload, position)
    if size < 0:
        return None, position
    if size > len(payload) - position:
        raise InvalidRecordError(
            f"{size} bytes announced, {len(payload) - position} are left", position=position
        )
    return bytes(payload[position : position + size]), position + size


def _encode_bytes(value: bytes | None) -> bytes:
    return encode_varint(-1) if value is None else encode_varint(len(value)) + value
