"""Variable-length integers: seven bits per byte, the lowest first; signed ones zig-zag.

Kafka: org.apache.kafka.common.utils.ByteUtils.
"""

from __future__ import annotations

from segfmt.errors import BufferUnderflowError, InvalidRecordError

VARINT_MAX_BYTES = 5
VARLONG_MAX_BYTES = 10


def read_unsigned_varint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """Return (value, position after it); the value is 0 <= value < 2**32.

    Raises:
        BufferUnderflowError: the buffer ends within the number.
        InvalidRecordError: the fifth byte has its continuation bit set (Kafka: IllegalArgumentException).

    Kafka: ByteUtils.readUnsignedVarint.
    """
    if position < len(data) and data[position] < 0x80:  # nearly all
        return data[position], position + 1
    value, position = _read(data, position, VARINT_MAX_BYTES)
    return value & 0xFFFFFFFF, position


def read_varint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """Return (int32, position after it). Raises like `read_unsigned_varint`. Kafka: ByteUtils.readVarint."""
    raw, position = read_unsigned_varint(data, position)
    return raw >> 1 ^ -(raw & 1), position


def read_varlong(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """Return (int64, position after it); raises like `read_varint`. Kafka: ByteUtils.readVarlong."""
    raw, position = _read(data, position, VARLONG_MAX_BYTES)
    raw &= 0xFFFFFFFFFFFFFFFF
    return raw >> 1 ^ -(raw & 1), position


def encode_unsigned_varint(value: int) -> bytes:
    """Return the shortest form of *value*, 0 <= value < 2**64."""
    octets = bytearray()
    while value > 0x7F:
        octets.append(value & 0x7F | 0x80)
        value >>= 7
    octets.append(value)
    return bytes(octets)


def encode_varint(value: int) -> bytes:
    """Return the zig-zag form of *value*, an int32 or int64 (both have the same bytes)."""
    return encode_unsigned_varint((value << 1 ^ value >> 63) & 0xFFFFFFFFFFFFFFFF)


def _read(data: bytes | memoryview, position: int, max_bytes: int) -> tuple[int, int]:
    value = 0
    for count in range(max_bytes):
        if position + count >= len(data):
            raise BufferUnderflowError(f"position {len(data)}: a varint is cut off", position=len(data))
        octet = data[position + count]
        value |= (octet & 0x7F) << (7 * count)
        if octet < 0x80:
            return value, position + count + 1
    raise InvalidRecordError(
        f"position {position}: a varint of more than {max_bytes} bytes",
        position=position,
        kafka="IllegalArgumentException",
    )
