"""Messages, magic 0 and 1: the log format before Kafka 0.11.

    0 offset i64 | 8 size i32 | 12 crc u32 | 16 magic i8 | 17 attributes i8 | [18 timestamp i64]
    | key size i32, key | value size i32, value                 size -1 is null; no timestamp in magic 0

A compressed message is a wrapper: its value is a compressed message set, its offset that of the last message
inside. Inside, magic 0 has absolute offsets; magic 1 counts from 0, relative to the wrapper's offset.
With LogAppendTime all messages inside have the wrapper's timestamp.

Kafka: LegacyRecord, AbstractLegacyRecordBatch (DeepRecordsIterator).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from segfmt import byte_layout
from segfmt.compression import MAX_BYTES, Codec, codec_of, decompress
from segfmt.entry_view import Buffer, view_octets
from segfmt.errors import (
    BufferUnderflowError,
    ChecksumMismatchError,
    CorruptBatchError,
    InvalidRecordError,
    UnsupportedMagicError,
)

MAX_SET_BYTES = 100 << 20
"""What a wrapper may decompress to if only its first offset is wanted: as much as a Kafka request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message, wrapper or not.

    Attributes:
        offset: int64; of a wrapper, that of its last message.
        magic: int8; 0, 1, or a negative number, which Kafka reads like 1.
        attributes: int8: codec in the low three bits, LogAppendTime in the fourth.
        timestamp_ms: int64, -1 in magic 0.
        key: None for null.
        value: None for null; the compressed message set of a wrapper.
    """

    offset: int
    magic: int
    attributes: int = 0
    timestamp_ms: int = byte_layout.NO_TIMESTAMP_MS
    key: bytes | None = None
    value: bytes | None = None

    @property
    def codec(self) -> Codec:
        """How the value is compressed; raises UnsupportedCodecError for ids 5 to 7."""
        return codec_of(self.attributes)

    @property
    def is_log_append_time(self) -> bool:
        """Whether the timestamp is the broker's."""
        return self.magic != byte_layout.MAGIC_V0 and bool(self.attributes & byte_layout.TIMESTAMP_TYPE_MASK)


def check_message(data: Buffer, position: int = 0) -> int:
    """Return the size in bytes of the message at *position* if its CRC holds.

    Raises:
        BufferUnderflowError: the buffer ends within the message.
        CorruptBatchError: a size below 14.
        ChecksumMismatchError: the stored CRC is not that of the bytes.
        UnsupportedMagicError: a record batch.

    Kafka: LegacyRecord.ensureValid.
    """
    message = _slice(data, position)
    stored = int.from_bytes(
        message[byte_layout.MESSAGE_CRC_POSITION : byte_layout.MESSAGE_CRC_START_POSITION], "big"
    )
    actual = zlib.crc32(message[byte_layout.MESSAGE_CRC_START_POSITION :])
    if stored != actual:
        raise ChecksumMismatchError(
            f"position {position}: CRC {stored:#010x} stored, {actual:#010x} computed",
            position=position,
            expected=stored,
            actual=actual,
        )
    return len(message)


def read_message(data: Buffer, position: int = 0) -> Message:
    """Return the message at *position* as it is, a wrapper unopened. The CRC is not checked.

    Raises:
        BufferUnderflowError, CorruptBatchError, UnsupportedMagicError: as `check_message`.
        InvalidRecordError: key or value do not fit into the message.
    """
    message = _slice(data, position)
    magic = _int(message, byte_layout.MAGIC_POSITION, 1)
    timestamp_ms, key_at = byte_layout.NO_TIMESTAMP_MS, byte_layout.MESSAGE_KEY_SIZE_POSITION_V0
    if magic != byte_layout.MAGIC_V0:
        timestamp_ms = _int(message, byte_layout.MESSAGE_TIMESTAMP_POSITION, 8)
        key_at = byte_layout.MESSAGE_KEY_SIZE_POSITION_V1
    key, value_at = _read_bytes(message, key_at)
    value, _ = _read_bytes(message, value_at)
    return Message(
        offset=_int(message, byte_layout.OFFSET_POSITION, 8),
        magic=magic,
        attributes=_int(message, byte_layout.MESSAGE_ATTRIBUTES_POSITION, 1),
        timestamp_ms=timestamp_ms,
        key=key,
        value=value,
    )


def read_messages(data: Buffer, position: int = 0, *, max_bytes: int = MAX_BYTES) -> Iterator[Message]:
    """Yield the message at *position*, or the messages inside if it is a wrapper, with absolute offsets.

    Args:
        data: holds the whole message; its CRC is not checked.
        position: where it begins.
        max_bytes: give up when a wrapper decompresses to more.

    Raises:
        InvalidRecordError: an empty, nested or mis-numbered wrapper, or one compressed with zstd.
        DecompressionError, UnsupportedCodecError: the wrapper cannot be opened.
        And what `read_message` raises.

    Kafka: AbstractLegacyRecordBatch.iterator.
    """
    wrapper = read_message(data, position)
    if wrapper.codec is Codec.NONE:
        yield wrapper
        return
    yield from _open_wrapper(wrapper, position, max_bytes)


def base_offset(data: Buffer, position: int = 0) -> int:
    """Return the offset of the first message at *position*; a wrapper is opened for it.

    Raises: as `read_messages`. Kafka: AbstractLegacyRecordBatch.baseOffset. Differs: a wrapper of more than
    MAX_SET_BYTES is not opened (DecompressionError).
    """
    return next(read_messages(data, position, max_bytes=MAX_SET_BYTES)).offset


def encode_message(message: Message) -> bytes:
    """Return *message* with its size and CRC."""
    timestamp = (
        b"" if message.magic == byte_layout.MAGIC_V0 else message.timestamp_ms.to_bytes(8, "big", signed=True)
    )
    covered = b"".join(
        [
            message.magic.to_bytes(1, "big", signed=True),
            message.attributes.to_bytes(1, "big", signed=True),
            timestamp,
            _encode_bytes(message.key),
            _encode_bytes(message.value),
        ]
    )
    body = zlib.crc32(covered).to_bytes(4, "big") + covered
    return message.offset.to_bytes(8, "big", signed=True) + len(body).to_bytes(4, "big") + body


def _open_wrapper(wrapper: Message, position: int, max_bytes: int) -> Iterator[Message]:
    if wrapper.magic not in (byte_layout.MAGIC_V0, byte_layout.MAGIC_V1):
        raise InvalidRecordError(f"compressed message of magic {wrapper.magic}", position=position)
    if wrapper.codec is Codec.ZSTD:
        raise InvalidRecordError(f"magic {wrapper.magic} cannot be compressed with zstd", position=position)
    if wrapper.value is None:
        raise InvalidRecordError("compressed message without value", position=position)
    content = decompress(wrapper.codec, wrapper.value, magic=wrapper.magic, max_bytes=max_bytes)
    last: Message | None = None
    for message in _read_inner(content):
        last = message  # only the last is kept: a small wrapper may hold millions
    if last is None:
        raise InvalidRecordError("compressed message without messages in it", position=position)
    base = 0
    if (
        wrapper.magic == byte_layout.MAGIC_V1 and wrapper.offset != 0
    ):  # some librdkafka wrote wrappers of offset 0
        base = wrapper.offset - last.offset
        if base < 0:
            raise InvalidRecordError(
                f"offset {wrapper.offset} of a wrapper, {last.offset} of its last message",
                position=position,
            )
    for message in _read_inner(content):
        if message.attributes & byte_layout.COMPRESSION_CODEC_MASK:
            raise InvalidRecordError("compressed message inside a compressed message", position=position)
        is_stamped = message.magic == byte_layout.MAGIC_V1 and wrapper.is_log_append_time
        yield Message(
            offset=base + message.offset,
            magic=message.magic,
            attributes=message.attributes,
            timestamp_ms=wrapper.timestamp_ms if is_stamped else message.timestamp_ms,
            key=message.key,
            value=message.value,
        )


def _read_inner(content: bytes) -> Iterator[Message]:
    position = 0
    while position + byte_layout.LOG_OVERHEAD_BYTES <= len(content):
        size = _int(memoryview(content)[position:], byte_layout.LENGTH_POSITION, 4)
        end = position + byte_layout.LOG_OVERHEAD_BYTES + size
        if size >= byte_layout.MIN_MESSAGE_BYTES and end > len(content):
            return  # an incomplete message: Kafka drops it silently
        yield read_message(content, position)
        position = end


def _slice(data: Buffer, position: int) -> memoryview:
    octets = view_octets(data)[position:]
    if len(octets) < byte_layout.HEADER_UP_TO_MAGIC_BYTES:
        raise BufferUnderflowError(
            f"position {position}: {len(octets)} bytes are no message", position=position
        )
    size = _int(octets, byte_layout.LENGTH_POSITION, 4)
    if size < byte_layout.MIN_MESSAGE_BYTES:
        raise CorruptBatchError(
            f"position {position}: message size {size}, the least is {byte_layout.MIN_MESSAGE_BYTES}",
            position=position,
        )
    size_bytes = byte_layout.LOG_OVERHEAD_BYTES + size
    if size_bytes > len(octets):
        raise BufferUnderflowError(
            f"position {position}: {len(octets)} of {size_bytes} bytes are there", position=position
        )
    magic = _int(octets, byte_layout.MAGIC_POSITION, 1)
    if magic >= byte_layout.MAGIC_V2:
        raise UnsupportedMagicError(
            f"position {position}: magic {magic} is a record batch, not a message", position=position
        )
    return octets[:size_bytes]


def _int(message: memoryview, position: int, size: int) -> int:
    field = message[position : position + size]
    if len(field) < size:
        raise InvalidRecordError(f"a message of {len(message)} bytes has no field at {position}")
    return int.from_bytes(field, "big", signed=True)


def _read_bytes(message: memoryview, position: int) -> tuple[bytes | None, int]:
    size = _int(message, position, 4)
    position += 4
    if size < 0:
        return None, position
    if size > len(message) - position:
        raise InvalidRecordError(
            f"{size} bytes announced at {position - 4}, {len(message) - position} are left"
        )
    return bytes(message[position : position + size]), position + size


def _encode_bytes(value: bytes | None) -> bytes:
    if value is None:
        return (-1).to_bytes(4, "big", signed=True)
    return len(value).to_bytes(4, "big") + value
