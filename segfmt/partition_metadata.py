"""`partition.metadata`: the topic id of a log.

    version: 0
    topic_id: Ql39DSphRbO0LGsT-wh4cQ

Two lines, the last without a line end when Kafka writes them. The names before the colons are not read.

Kafka: PartitionMetadata, PartitionMetadataReadBuffer, PartitionMetadataFile.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from uuid import UUID

from segfmt.errors import FormatError, MalformedCheckpointError
from segfmt.java_text import drop_trailing_empty, parse_int, read_lines
from segfmt.kafka_uuid import ZERO_UUID, format_uuid, read_uuid

CURRENT_VERSION = 0

_COLON = re.compile(r":[ \t\n\x0b\f\r]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMetadata:
    """What the file says.

    Attributes:
        version: int32, 0 or higher (the broker accepts newer ones).
        topic_id: never the zero UUID.
    """

    topic_id: UUID
    version: int = CURRENT_VERSION


def read_partition_metadata(data: bytes) -> PartitionMetadata:
    """Return what *data* says.

    Raises:
        MalformedCheckpointError: with `takes_dir_offline` True for a wrong shape, number, version or zero id
            (Kafka: IOException); False if the broker fails: no first or second line (NullPointerException),
            an id that is not a UUID (IllegalArgumentException).

    Kafka: PartitionMetadataReadBuffer.read.
    """
    lines = _lines(data)
    version = parse_int(_value(lines, 1))
    if version is None:
        raise MalformedCheckpointError(f"line 1: {lines[0][:80]!r} has no int32 version")
    if version < CURRENT_VERSION:
        raise MalformedCheckpointError(f"line 1: unrecognized version {version}")
    text = _value(lines, 2)
    try:
        topic_id = read_uuid(text)
    except FormatError as error:
        raise MalformedCheckpointError(
            f"line 2: {error}", line=2, takes_dir_offline=False, kafka=error.kafka
        ) from error
    if topic_id == ZERO_UUID:
        raise MalformedCheckpointError("line 2: the zero UUID is no topic id", line=2)
    return PartitionMetadata(version=version, topic_id=topic_id)


def encode_partition_metadata(metadata: PartitionMetadata) -> bytes:
    """Return the two lines for *metadata*. Kafka: PartitionMetadata.encode."""
    return f"version: {metadata.version}\ntopic_id: {format_uuid(metadata.topic_id)}".encode()


def _lines(data: bytes) -> list[str]:
    lines: list[str] = []
    try:
        for line in read_lines(data):
            lines.append(line)
            if len(lines) == 2:
                break
    except UnicodeDecodeError as error:
        raise MalformedCheckpointError(
            f"byte {error.start} is not UTF-8",
            line=len(lines) + 1,
            position=error.start,
            kafka="MalformedInputException",
        ) from error
    return lines


def _value(lines: list[str], number: int) -> str:
    if len(lines) < number:
        raise MalformedCheckpointError(
            f"line {number} is missing", line=number, takes_dir_offline=False, kafka="NullPointerException"
        )
    tokens = drop_trailing_empty(_COLON.split(lines[number - 1]))
    if len(tokens) != 2:
        raise MalformedCheckpointError(
            f"line {number}: {lines[number - 1][:80]!r} is not 'name: value'", line=number
        )
    return tokens[1]
