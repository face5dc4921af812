"""The custom metadata that the Aiven plugin has Kafka keep of a segment, if it is configured to.

count uvarint | (tag uvarint | size uvarint | value)*
tag 0         size of the segment's objects together, zig-zag varlong
tag 1, 2      prefix and key of the objects, compact strings
"""

from __future__ import annotations

from dataclasses import dataclass

from segfmt.errors import FormatError
from segfmt.flexible_fields import FlexibleFields
from segfmt.varint import encode_unsigned_varint, encode_varint, read_varlong


@dataclass(frozen=True, slots=True, kw_only=True)
class AivenCustomMetadata:
    """The fields that are present; None for those that are not.

    Attributes:
        remote_size_bytes: of the three objects.
        object_prefix: the plugin's `key.prefix` when it stored them.
        object_key: their key after the prefix, without suffix.
    """

    remote_size_bytes: int | None = None
    object_prefix: str | None = None
    object_key: str | None = None


def read_aiven_custom_metadata(data: bytes) -> AivenCustomMetadata:
    """Return what *data* says; unknown tags are skipped.

    Raises:
        FormatError: bytes of another plugin, or damaged ones.
    """
    fields = FlexibleFields(data)
    found = fields.tagged()
    if fields.position != len(data):
        words = f"{len(data) - fields.position} bytes after the custom metadata"
        raise FormatError(words, position=fields.position)
    size = found.get(0)
    return AivenCustomMetadata(
        remote_size_bytes=None if size is None else read_varlong(size, 0)[0],
        object_prefix=_text(found.get(1)),
        object_key=_text(found.get(2)),
    )


def encode_aiven_custom_metadata(metadata: AivenCustomMetadata) -> bytes:
    """Return the bytes that hold *metadata*."""
    values: list[tuple[int, bytes]] = []
    if metadata.remote_size_bytes is not None:
        values.append((0, encode_varint(metadata.remote_size_bytes)))
    for tag, text in ((1, metadata.object_prefix), (2, metadata.object_key)):
        if text is not None:
            octets = text.encode("utf-8")
            values.append((tag, encode_unsigned_varint(len(octets) + 1) + octets))
    parts = [encode_unsigned_varint(len(values))]
    for tag, value in values:
        parts += [encode_unsigned_varint(tag), encode_unsigned_varint(len(value)), value]
    return b"".join(parts)


def read_remote_size(data: bytes | None) -> int | None:
    """Return the size of a segment's objects, None if *data* does not say it or is another plugin's."""
    if data is None:
        return None
    try:
        return read_aiven_custom_metadata(data).remote_size_bytes
    except FormatError:
        return None


def _text(octets: bytes | None) -> str | None:
    return None if octets is None else FlexibleFields(octets).string()
