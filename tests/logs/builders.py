"""Valid bytes of Kafka's log format, for tests: production code never writes a batch.

Everything that a batch says can be set, consistent or not; checksums are right unless one is given. They
come from crcmod and zlib, which share no code with the project.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import crcmod.predefined

_crc32c = crcmod.predefined.mkPredefinedCrcFun("crc-32c")

BASE_TIMESTAMP_MS = 1_700_000_000_000

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
ABORT, COMMIT = 0, 1


def unsigned_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint(value: int) -> bytes:
    """Zig-zag, as Kafka's varint and varlong."""
    return unsigned_varint(value << 1 if value >= 0 else (-value << 1) - 1)


def _sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def record(
    *,
    key: bytes | None = None,
    value: bytes | None = b"value",
    offset_delta: int = 0,
    timestamp_delta_ms: int = 0,
    headers: Sequence[tuple[bytes, bytes | None]] = (),
    attributes: int = 0,
) -> bytes:
    """One record of magic 2, its size included."""
    body = struct.pack(">b", attributes) + varint(timestamp_delta_ms) + varint(offset_delta)
    body += _sized(key) + _sized(value) + varint(len(headers))
    body += b"".join(_sized(name) + _sized(header) for name, header in headers)
    return varint(len(body)) + body


def record_batch(
    *,
    base_offset: int = 0,
    records: bytes | Sequence[bytes] = (),
    record_count: int | None = None,
    last_offset_delta: int | None = None,
    base_timestamp_ms: int = BASE_TIMESTAMP_MS,
    max_timestamp_ms: int | None = None,
    leader_epoch: int = 0,
    magic: int = 2,
    codec: int = 0,
    log_append_time: bool = False,
    transactional: bool = False,
    control: bool = False,
    delete_horizon: bool = False,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    crc: int | None = None,
) -> bytes:
    """One batch of magic 2.

    *records* are bytes as they stand in the batch (then `record_count` is 1 unless given) or a list of
    records. The delta of the last offset is one less than the count, and at least 0, unless given.
    """
    if isinstance(records, bytes):
        payload, count = records, 1
    else:
        payload, count = b"".join(records), len(records)
    if record_count is None:
        record_count = count
    if last_offset_delta is None:
        last_offset_delta = max(0, record_count - 1)
    attributes = codec | log_append_time << 3 | transactional << 4 | control << 5 | delete_horizon << 6
    covered = struct.pack(
        ">hiqqqhii",
        attributes,
        last_offset_delta,
        base_timestamp_ms,
        base_timestamp_ms if max_timestamp_ms is None else max_timestamp_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )
    covered += payload
    if crc is None:
        crc = _crc32c(covered)
    return struct.pack(">qiibI", base_offset, 9 + len(covered), leader_epoch, magic, crc) + covered


def data_batch(base_offset: int, record_count: int = 1, *, value_bytes: int = 20, **fields: Any) -> bytes:
    """A batch of *record_count* records of *value_bytes* each; other *fields* as in `record_batch`."""
    value = bytes(i * 7 & 0xFF for i in range(value_bytes))
    records = [record(value=value, offset_delta=i) for i in range(record_count)]
    return record_batch(base_offset=base_offset, records=records, **fields)


def control_record(
    control_type: int,
    *,
    coordinator_epoch: int = 0,
    key_version: int = 0,
    value_version: int = 0,
    timestamp_delta_ms: int = 0,
) -> bytes:
    """The record of an end-of-transaction marker."""
    return record(
        key=struct.pack(">hh", key_version, control_type),
        value=struct.pack(">hi", value_version, coordinator_epoch),
        timestamp_delta_ms=timestamp_delta_ms,
    )


def marker_batch(
    base_offset: int,
    control_type: int = COMMIT,
    *,
    producer_id: int,
    producer_epoch: int = 0,
    coordinator_epoch: int = 0,
    **fields: Any,
) -> bytes:
    """An end-of-transaction marker, as a transaction coordinator has it written."""
    return record_batch(
        base_offset=base_offset,
        records=control_record(control_type, coordinator_epoch=coordinator_epoch),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
        **fields,
    )


def message(
    offset: int,
    *,
    magic: int = 1,
    attributes: int = 0,
    timestamp_ms: int = BASE_TIMESTAMP_MS,
    key: bytes | None = None,
    value: bytes | None = b"value",
    crc: int | None = None,
) -> bytes:
    """One message of magic 0 or 1 (any other magic is laid out as 1)."""
    covered = struct.pack(">bb", magic, attributes)
    if magic != 0:
        covered += struct.pack(">q", timestamp_ms)
    for data in (key, value):
        covered += struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data
    if crc is None:
        crc = zlib.crc32(covered)
    return struct.pack(">qiI", offset, 4 + len(covered), crc) + covered


def gzip(data: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=31)
    return compressor.compress(data) + compressor.flush()


def compressed_message(messages: Iterable[bytes], *, offset: int, magic: int = 1, **fields: Any) -> bytes:
    """A gzip wrapper around *messages*; *offset* is the last inner offset."""
    value = gzip(b"".join(messages))
    return message(offset, magic=magic, attributes=GZIP, value=value, **fields)


def recompute_crc(batch: bytes) -> bytes:
    """Return the batch of magic 2 with the checksum that its bytes ask for."""
    return batch[:17] + struct.pack(">I", _crc32c(batch[21:])) + batch[21:]
