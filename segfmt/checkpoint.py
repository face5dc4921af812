"""Text checkpoints: the offsets of a log dir's partitions, and the leader epochs of one partition.

    0                            version
    2                            number of entries
    orders 0 4711                topic partition offset      (offset checkpoints)
    orders 1 12                  epoch start_offset          (leader-epoch-checkpoint)

Every line ends with LF. These readers accept what Kafka accepts, and fail in its two ways:
`MalformedCheckpointError` with `takes_dir_offline` True (Kafka: IOException) or False (RuntimeException). An
empty file, or one without its second line, holds no entries and is not an error.

Kafka: CheckpointFile, CheckpointFileWithFailureHandler, OffsetCheckpointFile, LeaderEpochCheckpointFile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, TypeVar

from segfmt.errors import MalformedCheckpointError
from segfmt.java_text import parse_int, parse_long, read_lines, split_white_space

CURRENT_VERSION = 0

_Entry = TypeVar("_Entry")


class LeaderEpochEntry(NamedTuple):
    """One line of a leader-epoch-checkpoint.

    Attributes:
        epoch: leader epoch, int32. Negative numbers are read; the broker fails when it uses them.
        start_offset: offset of the first record of that epoch, int64; the same holds.
    """

    epoch: int
    start_offset: int


def read_offset_checkpoint(data: bytes) -> dict[tuple[str, int], int]:
    """Return the offsets in *data* by (topic, partition), int64, in the order of the lines.

    Of two lines for one partition the later one counts. Negative numbers are read as they are.

    Raises:
        MalformedCheckpointError: Kafka would throw; `takes_dir_offline` says which exception.

    Kafka: OffsetCheckpointFile.read. Differs: a wrong count of hundreds of millions can exhaust the broker's heap
    before it is compared; here it is just a wrong count.
    """
    offsets: dict[tuple[str, int], int] = {}
    for topic, partition, offset in _read_entries(data, _read_offset_line):
        offsets.pop((topic, partition), None)
        offsets[topic, partition] = offset
    return offsets


def encode_offset_checkpoint(offsets: Mapping[tuple[str, int], int]) -> bytes:
    """Return the checkpoint that holds *offsets*, in their order (Kafka's own order is a hash map's)."""
    return _encode([f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()])


def read_leader_epoch_checkpoint(data: bytes) -> tuple[LeaderEpochEntry, ...]:
    """Return the lines of a leader-epoch-checkpoint as they are, nothing dropped, nothing sorted.

    Raises:
        MalformedCheckpointError: Kafka would throw; `takes_dir_offline` says which exception.

    Kafka: LeaderEpochCheckpointFile.read. What LeaderEpochFileCache makes of the entries is left to the caller.
    """
    return tuple(_read_entries(data, _read_epoch_line))


def encode_leader_epoch_checkpoint(entries: Iterable[tuple[int, int]]) -> bytes:
    """Return the leader-epoch-checkpoint that holds *entries*, (epoch, start offset) each, in their order."""
    return _encode([f"{epoch} {start_offset}" for epoch, start_offset in entries])


def _encode(lines: list[str]) -> bytes:
    return "\n".join([str(CURRENT_VERSION), str(len(lines)), *lines, ""]).encode("utf-8")


def _read_entries(data: bytes, read_line: Callable[[str, int], _Entry]) -> list[_Entry]:
    lines = _numbered_lines(data)
    try:
        number, line = next(lines)
        version = _read_header_int(line, number)
        if version != CURRENT_VERSION:
            raise MalformedCheckpointError(f"line 1: version {version}, expected {CURRENT_VERSION}", line=1)
        number, line = next(lines)
    except StopIteration:
        return []
    count = _read_header_int(line, number)
    if count < 0:
        raise MalformedCheckpointError(
            f"line 2: negative number of entries {count}",
            line=2,
            takes_dir_offline=False,
            kafka="IllegalArgumentException",
        )
    entries = [read_line(line, number) for number, line in lines]
    if len(entries) != count:
        raise MalformedCheckpointError(f"line 2: {count} entries announced, {len(entries)} found", line=2)
    return entries


def _numbered_lines(data: bytes) -> Iterator[tuple[int, str]]:
    number = 0
    try:
        for number, line in enumerate(read_lines(data), 1):
            yield number, line
    except UnicodeDecodeError as error:
        raise MalformedCheckpointError(
            f"line {number + 1} or later: byte {error.start} is not UTF-8",
            line=number + 1,
            position=error.start,
            kafka="MalformedInputException",
        ) from error


def _read_header_int(line: str, number: int) -> int:
    value = parse_int(line)
    if value is None:
        raise MalformedCheckpointError(f"line {number}: {line[:80]!r} is not an int32", line=number)
    return value


def _read_offset_line(line: str, number: int) -> tuple[str, int, int]:
    tokens = split_white_space(line)
    if len(tokens) != 3:
        raise MalformedCheckpointError(
            f"line {number}: {line[:80]!r} is not 'topic partition offset'", line=number
        )
    return tokens[0], _number(tokens[1], number, parse_int), _number(tokens[2], number, parse_long)


def _read_epoch_line(line: str, number: int) -> LeaderEpochEntry:
    tokens = split_white_space(line)
    if len(tokens) != 2:
        raise MalformedCheckpointError(
            f"line {number}: {line[:80]!r} is not 'epoch startOffset'", line=number
        )
    return LeaderEpochEntry(_number(tokens[0], number, parse_int), _number(tokens[1], number, parse_long))


def _number(token: str, line: int, parse: Callable[[str], int | None]) -> int:
    value = parse(token)
    if value is None:
        raise MalformedCheckpointError(
            f"line {line}: {token[:80]!r} is not a number in range",
            line=line,
            takes_dir_offline=False,
            kafka="NumberFormatException",
        )
    return value
