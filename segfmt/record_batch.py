"""Record batches, magic 2, and the walk over a log that holds them.

The fields are in `byte_layout`. A log is batches back to back; only their own length fields separate them. The CRC
covers everything from the attributes on, so base offset, length, leader epoch and magic are not protected.
Kafka reads every magic from 2 to 127 as this format.

Kafka: DefaultRecordBatch, FileLogInputStream.nextBatch.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from segfmt import byte_layout
from segfmt import crc32c as plain
from segfmt.compression import Codec, codec_of
from segfmt.entry_view import Buffer, view_octets
from segfmt.errors import (
    BufferUnderflowError,
    ChecksumMismatchError,
    CorruptBatchError,
    UnsupportedMagicError,
)

_HEADER = struct.Struct(">qiibIhiqqqhii")
_HEADER_NAMES = byte_layout.RECORD_BATCH_HEADER_DTYPE.names or ()


class BatchSlice(NamedTuple):
    """Where a batch or message is in a log, from its first 17 bytes alone.

    Attributes:
        position: bytes from the start of the buffer.
        size_bytes: of the whole batch.
        offset: the leading int64: base offset of a record batch, last offset of a compressed message.
        magic: int8, signed; below 2 a message.
    """

    position: int
    size_bytes: int
    offset: int
    magic: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordBatchHeader:
    """The 61 bytes before the records of a batch, and what follows from them.

    Attributes:
        base_offset: int64.
        partition_leader_epoch: int32, -1 unknown.
        magic: int8, 2 in what Kafka writes.
        attributes: int16, only the low byte has a meaning.
        last_offset_delta: int32, not negative in what Kafka writes.
        base_timestamp_ms: int64; the delete horizon if that bit is set.
        max_timestamp_ms: int64.
        producer_id: int64, -1 none.
        producer_epoch: int16, -1 none.
        base_sequence: int32, -1 none.
        record_count: int32.
        length: int32, bytes after the length field.
        crc: uint32, as stored.
    """

    base_offset: int
    partition_leader_epoch: int = byte_layout.NO_PARTITION_LEADER_EPOCH
    magic: int = byte_layout.MAGIC_V2
    attributes: int = 0
    last_offset_delta: int = 0
    base_timestamp_ms: int = byte_layout.NO_TIMESTAMP_MS
    max_timestamp_ms: int = byte_layout.NO_TIMESTAMP_MS
    producer_id: int = byte_layout.NO_PRODUCER_ID
    producer_epoch: int = byte_layout.NO_PRODUCER_EPOCH
    base_sequence: int = byte_layout.NO_SEQUENCE
    record_count: int = 0
    length: int = byte_layout.RECORD_BATCH_OVERHEAD_BYTES - byte_layout.LOG_OVERHEAD_BYTES
    crc: int = 0

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole batch. Kafka: DefaultRecordBatch.sizeInBytes."""
        return byte_layout.LOG_OVERHEAD_BYTES + self.length

    @property
    def last_offset(self) -> int:
        """Offset of the last record, kept through compaction; int64, wraps like Java's."""
        return wrap_long(self.base_offset + self.last_offset_delta)

    @property
    def has_compacted(self) -> bool:
        """Whether it holds fewer records than offsets, as after compaction."""
        return self.record_count <= self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, -1 without one. Kafka: DefaultRecordBatch.lastSequence."""
        if self.base_sequence == byte_layout.NO_SEQUENCE:
            return byte_layout.NO_SEQUENCE
        return increment_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def codec(self) -> Codec:
        """How the records are compressed; raises UnsupportedCodecError for ids 5 to 7."""
        return codec_of(self.attributes)

    @property
    def is_transactional(self) -> bool:
        """Whether it is part of a transaction; markers are, too."""
        return bool(self.attributes & byte_layout.TRANSACTIONAL_MASK)

    @property
    def is_control(self) -> bool:
        """Whether it holds a control record: a transaction marker or one of KRaft's own."""
        return bool(self.attributes & byte_layout.CONTROL_MASK)

    @property
    def is_log_append_time(self) -> bool:
        """Whether every record's timestamp is `max_timestamp_ms`."""
        return bool(self.attributes & byte_layout.TIMESTAMP_TYPE_MASK)

    @property
    def has_delete_horizon(self) -> bool:
        """Whether the base timestamp is the time from which tombstones may be removed."""
        return bool(self.attributes & byte_layout.DELETE_HORIZON_MASK)


def wrap_long(value: int) -> int:
    """Return *value* as a Java long would hold it."""
    return (value + 2**63) % 2**64 - 2**63


def increment_sequence(sequence: int, increment: int) -> int:
    """Return the sequence *increment* after *sequence*; 0 follows 2**31 - 1.

    Kafka: DefaultRecordBatch.incrementSequence, with the overflows of Java's int.
    """
    if sequence > _wrap_int(2**31 - 1 - increment):
        return _wrap_int(increment - (2**31 - 1 - sequence) - 1)
    return _wrap_int(sequence + increment)


def _wrap_int(value: int) -> int:
    return (value + 2**31) % 2**32 - 2**31


def walk_batches(data: Buffer, position: int = 0) -> Iterator[BatchSlice]:
    """Yield where each batch or message of a log is, without looking at CRCs or contents.

    Ends silently when at most 17 bytes are left or the last batch is cut off.

    Args:
        data: a log from *position* to the end of the buffer.
        position: where the first batch begins.

    Raises:
        CorruptBatchError: a length below 14 (preallocated zeros, garbage), with its position.

    Kafka: FileLogInputStream.nextBatch.
    """
    octets = view_octets(data)
    end = len(octets)
    while position < end - byte_layout.HEADER_UP_TO_MAGIC_BYTES:
        size_bytes = read_batch_size(octets[position : position + byte_layout.LOG_OVERHEAD_BYTES], position)
        if size_bytes > end - position:
            return
        magic = octets[position + byte_layout.MAGIC_POSITION]
        offset = int.from_bytes(octets[position : position + 8], "big", signed=True)
        yield BatchSlice(position, size_bytes, offset, magic - 256 if magic > 127 else magic)
        position += size_bytes


def read_batch_size(head: memoryview, position: int) -> int:
    """Return the bytes of the batch or message that begins with *head*, by its length field.

    Args:
        head: 12 bytes at least.
        position: of the batch in the log, for the error.

    Raises:
        CorruptBatchError: a length below 14.
    """
    length = int.from_bytes(
        head[byte_layout.LENGTH_POSITION : byte_layout.LOG_OVERHEAD_BYTES], "big", signed=True
    )
    if length < byte_layout.MIN_MESSAGE_BYTES:
        raise CorruptBatchError(
            f"position {position}: length {length}, the least is {byte_layout.MIN_MESSAGE_BYTES}",
            position=position,
        )
    return byte_layout.LOG_OVERHEAD_BYTES + length


def read_record_batch_header(data: Buffer, position: int = 0) -> RecordBatchHeader:
    """Return the header of the batch at *position*. Only its presence and the magic are verified.

    Raises:
        BufferUnderflowError: fewer than 61 bytes.
        UnsupportedMagicError: a magic below 2, see `message_set`.
    """
    octets = view_octets(data)[position : position + byte_layout.RECORD_BATCH_OVERHEAD_BYTES]
    if len(octets) < byte_layout.RECORD_BATCH_OVERHEAD_BYTES:
        raise BufferUnderflowError(
            f"position {position}: {len(octets)} bytes, a batch header has "
            f"{byte_layout.RECORD_BATCH_OVERHEAD_BYTES}",
            position=position,
        )
    fields = dict(zip(_HEADER_NAMES, _HEADER.unpack(octets), strict=True))
    if fields["magic"] < byte_layout.MAGIC_V2:
        raise UnsupportedMagicError(
            f"position {position}: magic {fields['magic']} is a message, not a record batch",
            position=position + byte_layout.MAGIC_POSITION,
        )
    return RecordBatchHeader(**fields)


def check_record_batch(
    data: Buffer, position: int = 0, *, crc32c: Callable[[bytes], int] = plain.crc32c
) -> RecordBatchHeader:
    """Return the header of the batch at *position* if its size and CRC hold.

    Args:
        data: holds the whole batch.
        position: where it begins.
        crc32c: CRC-32C of bytes.

    Raises:
        BufferUnderflowError: the buffer ends within the batch.
        CorruptBatchError: shorter than its own header.
        ChecksumMismatchError: the stored CRC is not that of the bytes.
        UnsupportedMagicError: a message.

    Kafka: DefaultRecordBatch.ensureValid.
    """
    octets = view_octets(data)[position:]
    header = read_record_batch_header(octets)
    if header.size_bytes < byte_layout.RECORD_BATCH_OVERHEAD_BYTES:
        raise CorruptBatchError(
            f"position {position}: {header.size_bytes} bytes, the least is "
            f"{byte_layout.RECORD_BATCH_OVERHEAD_BYTES}",
            position=position,
        )
    if header.size_bytes > len(octets):
        raise BufferUnderflowError(
            f"position {position}: {len(octets)} of {header.size_bytes} bytes are there", position=position
        )
    actual = crc32c(octets[byte_layout.ATTRIBUTES_POSITION : header.size_bytes].tobytes())
    if actual != header.crc:
        raise ChecksumMismatchError(
            f"position {position}: CRC {header.crc:#010x} stored, {actual:#010x} computed",
            position=position,
            expected=header.crc,
            actual=actual,
        )
    return header


def encode_record_batch(
    header: RecordBatchHeader, records: bytes, *, crc32c: Callable[[bytes], int] = plain.crc32c
) -> bytes:
    """Return the batch with *header* and *records*, as they are (compressed if the attributes say so).

    `length` and `crc` of *header* are not used: both are computed.
    """
    fields = np.zeros(1, byte_layout.RECORD_BATCH_HEADER_DTYPE)
    for name in byte_layout.RECORD_BATCH_HEADER_DTYPE.names or ():
        fields[name] = getattr(header, name)
    size_bytes = byte_layout.RECORD_BATCH_OVERHEAD_BYTES + len(records)
    fields["length"] = size_bytes - byte_layout.LOG_OVERHEAD_BYTES
    batch = bytearray(fields.tobytes() + records)
    crc = crc32c(bytes(batch[byte_layout.ATTRIBUTES_POSITION :]))
    batch[byte_layout.BATCH_CRC_POSITION : byte_layout.ATTRIBUTES_POSITION] = crc.to_bytes(4, "big")
    return bytes(batch)
