"""The record batches of one opened log, in order, a window at a time: for topics whose records are read.

Damage is reported, and reading resumes after it as far as lengths can be followed: a batch whose CRC is wrong is left
out; an impossible length, or a batch that is cut off, ends the log.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from native.crc32c import crc32c_of_bytes
from recovery.check.finding import Finding, Rule
from recovery.read.batch_probe import is_zero_range
from recovery.read.opened_log import OpenedLog
from recovery.read.windows import Windows
from segfmt import byte_layout
from segfmt.errors import FormatError
from segfmt.java_text import LONG_MAX
from segfmt.record import read_records
from segfmt.record_batch import check_record_batch, walk_batches
from segfmt.varint import read_varint, read_varlong

MOST_BATCH_BYTES = 128 << 20
"""A larger batch is not read; a broker's `message.max.bytes` is 1 MiB."""


_HEADER = struct.Struct(">qiibIhi")
"""The header up to the last offset delta."""
_RECORD_COUNT_POSITION = byte_layout.RECORDS_POSITION - 4
_PLAIN_NULL = 1
"""Size -1 as a varint."""


class LoggedBatch(NamedTuple):
    """One sound batch.

    Attributes:
        position: in the log.
        data: the whole batch.
        base_offset, last_offset: of its records.
        attributes: int16.
    """

    position: int
    data: bytes
    base_offset: int
    last_offset: int
    attributes: int

    @property
    def is_control(self) -> bool:
        """Whether it holds a control record."""
        return bool(self.attributes & byte_layout.CONTROL_MASK)

    def values(self, *, most_bytes: int) -> list[tuple[int, bytes | None]]:
        """Return offset and value of each record.

        Args:
            most_bytes: give up if the records decompress to more.

        Raises:
            FormatError: the records cannot be opened.
        """
        plain = self._plain_values()
        if plain is not None:
            return plain
        return [(record.offset, record.value) for record in read_records(self.data, max_bytes=most_bytes)]

    def _plain_values(self) -> list[tuple[int, bytes | None]] | None:
        """Return the same for a batch without keys, headers or compression, in half the time; None for any other."""
        data, position = self.data, byte_layout.RECORDS_POSITION
        count = int.from_bytes(data[_RECORD_COUNT_POSITION:position], "big", signed=True)
        if self.attributes & byte_layout.COMPRESSION_CODEC_MASK or count < 0:
            return None
        values: list[tuple[int, bytes | None]] = []
        try:
            for _ in range(count):
                size, start = read_varint(data, position)
                _, at = read_varlong(data, start + 1)
                offset_delta, at = read_varint(data, at)
                value_size, value_at = read_varint(data, at + 1)
                position = value_at + value_size + 1
                # after the value there is only the header count 0
                is_plain = data[at] == _PLAIN_NULL and value_size >= 0 and data[position - 1] == 0
                is_plain &= 0 <= offset_delta <= self.last_offset - self.base_offset
                if not is_plain or position != start + size:
                    return None
                values.append((self.base_offset + offset_delta, data[value_at : position - 1]))
        except (FormatError, IndexError):
            return None
        return values if position == len(data) else None


def read_batches(
    log: OpenedLog, report: Callable[[Finding], None], *, name: str = "", position: int = 0
) -> Iterator[LoggedBatch]:
    """Yield the sound batches of *log*; report damage to *report*.

    A crash, or copying a live log, leaves a log that ends within its last batch (rule torn-batch). Zeros to its end are
    what a broker has preallocated.

    Args:
        log: opened; the caller closes it.
        report: called for each damage, in order of position.
        name: of the log, for findings.
        position: of a batch to begin with.

    Raises:
        OSError: it cannot be read.
    """

    def tell(position: int, rule: Rule, detail: str) -> None:
        report(Finding(file=name, position=position, rule=rule, detail=detail))

    windows = Windows(log, most_batch_bytes=MOST_BATCH_BYTES, may_shrink=True)
    windows.position = position
    for window in windows:
        if window.large_bytes:
            tell(window.position, "too-large", f"a batch of {window.large_bytes} bytes is not read")
            return
        data, consumed = window.octets.tobytes(), 0
        try:
            for batch_slice in walk_batches(data):
                consumed = batch_slice.position + batch_slice.size_bytes
                batch = _checked(
                    data[batch_slice.position : consumed], window.position + batch_slice.position, tell
                )
                if batch is not None:
                    yield batch
        except FormatError as error:
            # What was read is looked at first: a broker at work may be writing there by now
            is_preallocated = not any(data[consumed:]) and is_zero_range(
                log, window.position + len(data), log.end_position
            )
            if not is_preallocated:
                tell(window.position + consumed, "batch-length", f"not a batch: {error}")
            return
        windows.position = position = window.position + consumed
        if position + window.batch_bytes_at(position) > windows.end_position:
            if position < log.end_position:
                tell(
                    position, "torn-batch", f"{log.end_position - position} bytes of a batch that is cut off"
                )
            return


def _checked(data: bytes, position: int, tell: Callable[[int, Rule, str], None]) -> LoggedBatch | None:
    if len(data) >= byte_layout.RECORD_BATCH_OVERHEAD_BYTES:
        base_offset, _, _, magic, crc, attributes, delta = _HEADER.unpack_from(data)
        is_sound = (
            magic >= byte_layout.MAGIC_V2 and crc32c_of_bytes(data[byte_layout.ATTRIBUTES_POSITION :]) == crc
        )
        if is_sound and delta >= 0 and 0 <= base_offset <= LONG_MAX - delta:
            return LoggedBatch(position, data, base_offset, base_offset + delta, attributes)
    try:
        check_record_batch(data, crc32c=crc32c_of_bytes)
        problem = "its offsets are impossible"
    except FormatError as error:
        problem = str(error).removeprefix("position 0: ")  # of the batch, not of the log
    tell(position, "checksum", f"left out: {problem}")
    return None
