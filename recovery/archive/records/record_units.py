"""Batches opened, so that a kernel can list their records: compressed ones are decompressed, some MiB at a time.

Kafka: DefaultRecordBatch.iterator, AbstractLegacyRecordBatch.DeepRecordsIterator.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from native.address import address_of
from native.record_rows import UNIT_DTYPE, Rows, UnitKind, list_records
from native.record_walk import RecordFault
from recovery.archive.records.batch_heads import BatchHeads
from recovery.check.finding import Rule
from segfmt import byte_layout
from segfmt.compression import Codec, codec_of, decompress
from segfmt.errors import (
    ContentTooLargeError,
    DecompressionError,
    FormatError,
    InvalidRecordError,
    UnsupportedCodecError,
)
from segfmt.message_set import read_message

MOST_ROWS = 1 << 16
"""Records listed at a time."""
MOST_HEADERS = 1 << 20
"""Of one record."""
_OPENED_BYTES = 8 << 20
"""Batches are opened until they have this many bytes, then their records are listed."""

_FAULT_WORDS = {
    RecordFault.CUT_OFF: "a record ends within a field",
    RecordFault.LONG_VARINT: "a record has a varint that does not end",
    RecordFault.BAD_SIZE: "the size of a record is not that of its fields",
    RecordFault.BAD_HEADER_COUNT: "a record announces an impossible number of headers",
    RecordFault.NULL_HEADER_KEY: "a record has a header without key",
    RecordFault.BYTES_LEFT: "bytes are left after the last record",
    RecordFault.BAD_COUNT: "a negative record count",
    RecordFault.BAD_MESSAGE: "a message with impossible fields",
    RecordFault.NESTED_WRAPPER: "a compressed message inside a compressed message",
    RecordFault.EMPTY_WRAPPER: "a compressed message without messages in it",
    RecordFault.WRAPPER_OFFSET: "the offset of a compressed message is below that of its last message",
}


@dataclass(frozen=True, slots=True)
class BadBatch:
    """A batch whose records cannot be read.

    Attributes:
        heads: of it alone.
    """

    heads: BatchHeads
    rule: Rule
    detail: str


@dataclass(frozen=True, slots=True)
class ListedRecords:
    """Records of some batches.

    Attributes:
        rows: RECORD_ROW_DTYPE, shape (n,); their addresses are valid until the next rows are asked for.
        heads: of the batches; `rows["unit"]` is the number of the batch.
    """

    rows: Rows
    heads: BatchHeads


def open_batches(
    octets: npt.NDArray[np.uint8],
    origin: int,
    heads: BatchHeads,
    *,
    most_batch_bytes: int,
    most_headers: int | None,
) -> Iterator[ListedRecords | BadBatch]:
    """Yield the records of batches in their order.

    Args:
        octets: uint8, shape (n,): a part of a log that holds all of them. Not written.
        origin: position of its first byte in the log.
        heads: of the batches.
        most_batch_bytes: a batch that opens to more is a bad one.
        most_headers: a record with more makes its batch a bad one; None where headers do not matter.
    """
    units = _plain_units(octets, origin, heads)
    starts = heads.rows["position"] - origin
    begin, opened_bytes = 0, 0
    opened: list[npt.NDArray[np.uint8]] = []
    for number in np.flatnonzero(heads.is_compressed & (heads.rows["record_count"] != 0)).tolist():
        if opened_bytes >= _OPENED_BYTES:
            yield from _list(units[begin:number], heads.at(slice(begin, number)), most_headers)
            opened, opened_bytes, begin = [], 0, number
        start = int(starts[number])
        batch = octets[start : start + int(heads.rows["size_bytes"][number])]
        try:
            content = _open(units[number : number + 1], batch, heads.rows[number], most_batch_bytes)
        except FormatError as error:
            yield from _list(units[begin:number], heads.at(slice(begin, number)), most_headers)
            yield BadBatch(heads.at(slice(number, number + 1)), _rule_of(error), str(error))
            opened, opened_bytes, begin = [], 0, number + 1
            continue
        opened.append(content)  # kept as long as there are rows with addresses in it
        opened_bytes += content.size
    yield from _list(units[begin:], heads.at(slice(begin, None)), most_headers)


def _plain_units(octets: npt.NDArray[np.uint8], origin: int, heads: BatchHeads) -> Rows:
    """Return the units of all batches as if none were compressed."""
    rows, is_v2 = heads.rows, heads.is_v2
    units = np.zeros(len(rows), UNIT_DTYPE)
    starts = rows["position"] - origin
    skipped = np.where(is_v2, byte_layout.RECORDS_POSITION, 0)
    units["address"] = address_of(octets) + starts + skipped
    units["size_bytes"] = rows["size_bytes"] - skipped
    units["base_offset"] = rows["base_offset"]
    units["stamp_ms"] = rows["max_timestamp_ms"]
    units["record_count"] = rows["record_count"]
    units["base_sequence"] = rows["base_sequence"]
    units["kind"] = np.where(is_v2, int(UnitKind.RECORDS), int(UnitKind.MESSAGES))
    units["is_stamped"] = heads.is_stamped & is_v2
    if is_v2.any():
        fields = (starts[is_v2] + byte_layout.BASE_TIMESTAMP_POSITION)[:, None] + np.arange(8)
        units["base_timestamp_ms"][is_v2] = octets[fields].view(">i8").ravel()
    return units


def _open(unit: Rows, batch: npt.NDArray[np.uint8], row: np.void, most_bytes: int) -> npt.NDArray[np.uint8]:
    """Decompress *batch* and point *unit* (one row) to the content."""
    if int(row["magic"]) >= byte_layout.MAGIC_V2:
        codec = codec_of(int(row["attributes"]))
        packed = batch[byte_layout.RECORDS_POSITION :].tobytes()
        content = np.frombuffer(
            decompress(codec, packed, magic=int(row["magic"]), max_bytes=most_bytes), np.uint8
        )
    else:
        content = _open_wrapper(unit, batch, most_bytes)
    unit["address"] = address_of(content)
    unit["size_bytes"] = content.size
    return content


def _open_wrapper(unit: Rows, batch: npt.NDArray[np.uint8], most_bytes: int) -> npt.NDArray[np.uint8]:
    """Decompress a message set. Kafka: AbstractLegacyRecordBatch.DeepRecordsIterator."""
    wrapper = read_message(batch)
    if wrapper.magic not in (byte_layout.MAGIC_V0, byte_layout.MAGIC_V1):
        raise InvalidRecordError(f"compressed message of magic {wrapper.magic}")
    if wrapper.codec is Codec.ZSTD:
        raise InvalidRecordError(f"magic {wrapper.magic} cannot be compressed with zstd")
    if wrapper.value is None:
        raise InvalidRecordError("compressed message without value")
    # Some librdkafka wrote wrappers of offset 0
    if wrapper.magic == byte_layout.MAGIC_V1 and wrapper.offset != 0:
        unit["kind"] = int(UnitKind.RELATIVE_MESSAGES)
    unit["is_stamped"] = wrapper.is_log_append_time
    content = decompress(wrapper.codec, wrapper.value, magic=wrapper.magic, max_bytes=most_bytes)
    return np.frombuffer(content, np.uint8)


def _list(units: Rows, heads: BatchHeads, most_headers: int | None) -> Iterator[ListedRecords | BadBatch]:
    for part in list_records(units, most_rows=MOST_ROWS):
        rows, swollen = part.rows, np.empty(0, np.int32)
        if most_headers is not None:
            swollen = np.unique(rows["unit"][rows["header_count"] > most_headers])
        if len(swollen):
            rows = rows[~np.isin(rows["unit"], swollen)]
        if len(rows):
            yield ListedRecords(rows, heads)
        for number in swollen.tolist():
            detail = f"a record with more than {most_headers} headers"
            yield BadBatch(heads.at(slice(number, number + 1)), "too-large", detail)
        if part.bad_unit >= 0:
            bad = heads.at(slice(part.bad_unit, part.bad_unit + 1))
            yield BadBatch(bad, "record", _FAULT_WORDS[part.fault])


def _rule_of(error: FormatError) -> Rule:
    if isinstance(error, ContentTooLargeError):
        return "too-large"
    if isinstance(error, UnsupportedCodecError):
        return "codec"
    return "compression" if isinstance(error, DecompressionError) else "record"
