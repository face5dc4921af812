"""Kafka's flexible encoding of fields, as used in its metadata records.

    strings, bytes, arrays  uvarint of length plus one (0 is null), then the content
    integers                big-endian, signed
    uuid                    16 bytes
    tagged fields           uvarint count, then (uvarint tag, uvarint size, bytes) each; after every struct

Kafka: ByteBufferAccessor, and what its generator makes of the schemas with `flexibleVersions`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from struct import Struct
from typing import TypeVar
from uuid import UUID

from segfmt.errors import BufferUnderflowError, FormatError
from segfmt.varint import encode_unsigned_varint, read_unsigned_varint

_Item = TypeVar("_Item")


class FlexibleFields:
    """A cursor over flexible fields; raises FormatError, with the position, if they end too early.

    Attributes:
        position: of the next byte.
    """

    __slots__ = ("_value", "position")

    def __init__(self, value: bytes, position: int = 0) -> None:
        self._value = value
        self.position = position

    def take(self, size: int) -> bytes:
        """Return the next *size* bytes."""
        end = self.position + size
        if end > len(self._value):
            raise BufferUnderflowError(f"position {self.position}: cut off", position=self.position)
        taken = self._value[self.position : end]
        self.position = end
        return taken

    def unsigned(self) -> int:
        """Return an unsigned varint."""
        number, self.position = read_unsigned_varint(self._value, self.position)
        return number

    def signed(self, size: int) -> int:
        """Return a signed integer of *size* bytes."""
        return int.from_bytes(self.take(size), "big", signed=True)

    def numbers(self, structure: Struct) -> tuple[int, ...]:
        """Return several integers in a row."""
        return structure.unpack(self.take(structure.size))

    def uuid(self) -> UUID:
        """Return a UUID."""
        return UUID(bytes=self.take(16))

    def octets(self) -> bytes | None:
        """Return bytes, None for null."""
        size = _as_int(self.unsigned() - 1)
        return None if size < 0 else self.take(size)

    def string(self) -> str | None:
        """Return a string, None for null; what is not UTF-8 becomes U+FFFD, as in Java."""
        octets = self.octets()
        return None if octets is None else octets.decode("utf-8", "replace")

    def text(self) -> str:
        """Return a string that must not be null."""
        text = self.string()
        if text is None:
            raise FormatError(f"position {self.position}: null for a string", position=self.position)
        return text

    def array(self, read_item: Callable[[], _Item]) -> list[_Item]:
        """Return the items of an array that must not be null; each takes a byte at least."""
        count, left = self.unsigned() - 1, len(self._value) - self.position
        if not 0 <= count <= left:
            raise FormatError(
                f"position {self.position}: an array of {count} items in {left} bytes", position=self.position
            )
        return [read_item() for _ in range(count)]

    def tagged(self) -> dict[int, bytes]:
        """Return the tagged fields; if a tag repeats, the later one."""
        return {self.unsigned(): self.take(self.unsigned()) for _ in range(_as_int(self.unsigned()))}

    def skip_tagged(self) -> None:
        """Pass over the tagged fields."""
        for _ in range(_as_int(self.unsigned())):
            self.unsigned()
            self.take(self.unsigned())


def _as_int(number: int) -> int:
    """Return a length or count as a Java int: one of 2^31 or more is negative, so null or none."""
    return (number + (1 << 31)) % (1 << 32) - (1 << 31)


def encode_octets(octets: bytes | None) -> bytes:
    """Return *octets* after their length, None as null."""
    return b"\x00" if octets is None else encode_unsigned_varint(len(octets) + 1) + octets


def encode_string(text: str | None) -> bytes:
    """Return *text* after its length, None as null."""
    return encode_octets(None if text is None else text.encode("utf-8"))


def encode_array(items: Iterable[bytes]) -> bytes:
    """Return the encoded *items* after their number."""
    encoded = list(items)
    return encode_unsigned_varint(len(encoded) + 1) + b"".join(encoded)


def encode_tagged(fields: dict[int, bytes]) -> bytes:
    """Return the tagged *fields* in order of their tags."""
    parts = [encode_unsigned_varint(len(fields))]
    for tag, octets in sorted(fields.items()):
        parts += [encode_unsigned_varint(tag), encode_unsigned_varint(len(octets)), octets]
    return b"".join(parts)
