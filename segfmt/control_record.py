"""Control records: the first record of a control batch, which says what the batch is for.

    key    version i16 | type i16     0 ABORT 1 COMMIT 2 LEADER_CHANGE 3 SNAPSHOT_HEADER 4 SNAPSHOT_FOOTER
                                      5 KRAFT_VERSION 6 KRAFT_VOTERS
    value  version i16 | coordinator epoch i32          (ABORT and COMMIT)

Transaction markers come from a producer, KRaft's own records have producer id -1. What a broken marker does
to a broker that recovers its log depends on how it is broken; the errors here make that distinction:

    None                        a batch without records: the transaction has been compacted away
    InvalidRecordError          the broker keeps this batch and cuts the log after it
    InvalidControlRecordError   the broker fails (as with UnsupportedCodecError and DecompressionError)

Kafka: ControlRecordType, EndTransactionMarker, ProducerAppendInfo.append.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from segfmt import byte_layout
from segfmt.compression import Codec
from segfmt.entry_view import Buffer, view_octets
from segfmt.errors import InvalidControlRecordError, InvalidRecordError
from segfmt.record import Record, read_records
from segfmt.record_batch import RecordBatchHeader, read_record_batch_header
from segfmt.varint import read_varint

CURRENT_VERSION = 0
MAX_CONTENT_BYTES = 1 << 20
"""A marker has 17 bytes. What decompresses to a million is not a marker, and must not fill the memory."""


class ControlType(enum.IntEnum):
    """Type of a control record. Kafka: ControlRecordType."""

    UNKNOWN = -1
    ABORT = byte_layout.CONTROL_TYPE_ABORT
    COMMIT = byte_layout.CONTROL_TYPE_COMMIT
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


_TYPE_BY_NUMBER = {int(control_type): control_type for control_type in ControlType}


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransactionMarker:
    """What the marker at the end of a transaction says.

    Attributes:
        is_abort: False for a commit.
        coordinator_epoch: int32, of the transaction coordinator that sent it.
        timestamp_ms: int64, of the record (the batch's maximum with LogAppendTime).
    """

    is_abort: bool
    coordinator_epoch: int
    timestamp_ms: int


def read_control_type(key: bytes) -> ControlType:
    """Return the type in the key of a control record.

    Raises:
        InvalidRecordError: fewer than 4 bytes or a negative version. Newer versions are read like the
            current one.

    Kafka: ControlRecordType.parse.
    """
    if len(key) < byte_layout.CONTROL_KEY_BYTES:
        raise InvalidRecordError(f"control record key of {len(key)} bytes, the least is 4")
    version = int.from_bytes(key[:2], "big", signed=True)
    if version < CURRENT_VERSION:
        raise InvalidRecordError(f"control record key of version {version}")
    number = int.from_bytes(key[2:4], "big", signed=True)
    return _TYPE_BY_NUMBER.get(number, ControlType.UNKNOWN)


def read_end_transaction_marker(
    data: Buffer, position: int = 0, *, header: RecordBatchHeader | None = None
) -> EndTransactionMarker | None:
    """Return the marker in the control batch at *position*, None if the batch has no records.

    Args:
        data: holds the whole batch; its CRC is not checked.
        position: where the batch begins.
        header: of the batch, if it has been read already.

    Raises:
        InvalidRecordError: the broker catches this one.
        InvalidControlRecordError, UnsupportedCodecError, DecompressionError: it does not.
        BufferUnderflowError: the buffer ends within the batch.

    Kafka: ProducerAppendInfo.append, EndTransactionMarker.deserialize. Differs: of a compressed marker whose
    stream is damaged after a record that does not parse, Kafka reports the record (InvalidRecordError), this function
    the stream; and one of more than MAX_CONTENT_BYTES is not opened (DecompressionError). Brokers do not compress
    markers.
    """
    if header is None:
        header = read_record_batch_header(data, position)
    _check_first_size(data, position, header)
    records = read_records(data, position, header=header, max_bytes=MAX_CONTENT_BYTES)
    first = next(records, None)
    if first is None:
        return None
    if header.codec is not Codec.NONE:
        for _ in records:  # a compressed batch is read to its end before its first record is examined
            pass
    return read_marker_record(first)


def read_marker_record(record: Record) -> EndTransactionMarker:
    """Return what the first record of a control batch says. Raises like `read_end_transaction_marker`."""
    if record.key is None:
        raise InvalidControlRecordError("control record without key", kafka="NullPointerException")
    control_type = read_control_type(record.key)
    if control_type not in (ControlType.ABORT, ControlType.COMMIT):
        raise InvalidControlRecordError(f"control record of type {control_type.name} from a producer")
    value = record.value
    if value is None:
        raise InvalidControlRecordError("transaction marker without value", kafka="NullPointerException")
    if len(value) >= 2 and int.from_bytes(value[:2], "big", signed=True) < CURRENT_VERSION:
        raise InvalidRecordError("transaction marker of a negative version")
    if len(value) < byte_layout.END_TXN_MARKER_VALUE_BYTES:
        raise InvalidControlRecordError(
            f"transaction marker of {len(value)} bytes, the least is 6", kafka="BufferUnderflowException"
        )
    return EndTransactionMarker(
        is_abort=control_type is ControlType.ABORT,
        coordinator_epoch=int.from_bytes(value[2:6], "big", signed=True),
        timestamp_ms=record.timestamp_ms,
    )


def encode_control_key(control_type: ControlType) -> bytes:
    """Return the key of a control record of *control_type*."""
    return CURRENT_VERSION.to_bytes(2, "big") + int(control_type).to_bytes(2, "big", signed=True)


def encode_marker_value(coordinator_epoch: int) -> bytes:
    """Return the value of a transaction marker."""
    return CURRENT_VERSION.to_bytes(2, "big") + coordinator_epoch.to_bytes(4, "big", signed=True)


def _check_first_size(data: Buffer, position: int, header: RecordBatchHeader) -> None:
    """Raise the error that Kafka does not catch: an endless varint in place of the size of the first record."""
    if header.record_count <= 0 or header.codec is not Codec.NONE:
        return
    batch = view_octets(data)[position : position + header.size_bytes]
    first = batch[byte_layout.RECORDS_POSITION : byte_layout.RECORDS_POSITION + 5]
    if len(first) < 5:
        return
    try:
        read_varint(first, 0)
    except InvalidRecordError as error:
        raise InvalidControlRecordError(
            str(error), position=position + byte_layout.RECORDS_POSITION
        ) from error
