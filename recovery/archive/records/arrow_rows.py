"""Batches and records as Arrow record batches of one schema."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from native.record_rows import Rows
from recovery.archive.records import arrow_columns
from recovery.archive.records.batch_heads import BatchHeads
from recovery.archive.records.record_units import MOST_ROWS, ListedRecords
from segfmt import byte_layout
from segfmt.compression import Codec

_MOST_HEADERS = 1 << 20
"""In one Arrow batch, unless one record has more."""
_CODECS = pa.array([codec.name.lower() for codec in Codec] + ["unknown"] * (8 - len(Codec)), pa.string())
_NO_TIMESTAMP_TYPE = -1

_Values = npt.NDArray[Any]
_Place = slice | npt.NDArray[np.int64]


class ArrowRows:
    """Makes the columns of a schema for one partition.

    Args:
        schema: of columns in `record_schema`, in any order; whether they are nullable is up to the caller.
        topic, partition, topic_id: of the segment; an empty id is null.
    """

    def __init__(self, schema: pa.Schema, topic: str, partition: int, topic_id: str = "") -> None:
        self._schema = schema
        self._constants = {"topic": topic, "partition": partition, "topic_id": topic_id or None}

    def batches(self, heads: BatchHeads) -> pa.RecordBatch:
        """Return a row for each batch."""
        columns = {**_OF_BATCHES, **_OF_BOTH}
        return self._make(len(heads), lambda name, kind: columns[name](heads, slice(None), kind))

    def records(self, listed: ListedRecords) -> Iterator[pa.RecordBatch]:
        """Yield a row for each record."""
        rows = listed.rows
        if "headers" not in self._schema.names:
            yield self._records(rows, listed.heads)
            return
        totals = np.cumsum(rows["header_count"], dtype=np.int64)
        start = 0
        while start < len(rows):
            before = int(totals[start - 1]) if start else 0
            end = max(start + 1, int(np.searchsorted(totals, before + _MOST_HEADERS, side="right")))
            yield self._records(rows[start:end], listed.heads)
            start = end

    def counted(self, heads: BatchHeads) -> Iterator[pa.RecordBatch]:
        """Yield a row for each record of unopened batches whose offsets have no gaps."""
        counts = heads.rows["record_count"].astype(np.int64)
        ends = np.cumsum(counts)
        for start in range(0, int(ends[-1]) if len(ends) else 0, MOST_ROWS):
            numbers = np.arange(start, min(start + MOST_ROWS, int(ends[-1])))
            batch_rows = np.searchsorted(ends, numbers, side="right")
            yield self._counted(heads, batch_rows, numbers - (ends - counts)[batch_rows])

    def placeholder(
        self, heads: BatchHeads | None, position: int, size_bytes: int, fault: str
    ) -> pa.RecordBatch:
        """Return the row that stands for a batch that cannot be read, or for bytes that are not a batch."""
        values: dict[str, Any] = {
            "position": position,
            "size_bytes": size_bytes,
            "crc_valid": False,
            "fault": fault,
        }
        if heads is not None:
            values["crc_valid"] = bool(heads.is_valid[0])
            values["offset"] = int(heads.rows["base_offset"][0])
        return self._one(values)

    def missing(self, first_offset: int, last_offset: int, position: int, fault: str) -> pa.RecordBatch:
        """Return the row that stands for offsets that are not there."""
        return self._one(
            {
                "offset": first_offset,
                "base_offset": first_offset,
                "last_offset": last_offset,
                "position": position,
                "size_bytes": 0,
                "fault": fault,
            }
        )

    def _one(self, values: dict[str, Any]) -> pa.RecordBatch:
        return self._make(1, lambda name, kind: pa.array([values.get(name)], kind))

    def _records(self, rows: Rows, heads: BatchHeads) -> pa.RecordBatch:
        batch_rows = rows["unit"]

        def column(name: str, kind: pa.DataType) -> pa.Array:
            if name in _OF_RECORDS:
                return _OF_RECORDS[name](rows, kind)
            return _OF_BOTH[name](heads, batch_rows, kind)

        return self._make(len(rows), column)

    def _counted(
        self, heads: BatchHeads, batch_rows: npt.NDArray[np.int64], deltas: npt.NDArray[np.int64]
    ) -> pa.RecordBatch:
        def column(name: str, kind: pa.DataType) -> pa.Array:
            if name == "offset":
                return arrow_columns.integers(heads.rows["base_offset"][batch_rows] + deltas, kind)
            if name == "timestamp":
                return arrow_columns.timestamps(heads.rows["max_timestamp_ms"][batch_rows], kind)
            if name == "sequence":
                base = heads.rows["base_sequence"][batch_rows].astype(np.int64)
                return arrow_columns.integers(np.where(base < 0, -1, (base + deltas) & 0x7FFFFFFF), kind)
            return _OF_BOTH[name](heads, batch_rows, kind)

        return self._make(len(batch_rows), column)

    def _make(self, count: int, column: Callable[[str, pa.DataType], pa.Array]) -> pa.RecordBatch:
        arrays = []
        for wanted in self._schema:
            if wanted.name in self._constants:
                arrays.append(arrow_columns.constants(self._constants[wanted.name], count, wanted.type))
            else:
                arrays.append(column(wanted.name, wanted.type))
        if not arrays:  # only the number of rows was asked for
            return pa.RecordBatch.from_struct_array(pa.nulls(count, pa.struct([])))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _field(name: str) -> Callable[[BatchHeads, _Place, pa.DataType], pa.Array]:
    return lambda heads, batch_rows, kind: arrow_columns.integers(heads.rows[name][batch_rows], kind)


def _timestamp_type(heads: BatchHeads, batch_rows: _Place, kind: pa.DataType) -> pa.Array:
    types = np.where(heads.rows["magic"] == byte_layout.MAGIC_V0, _NO_TIMESTAMP_TYPE, heads.is_stamped)
    return arrow_columns.integers(types[batch_rows], kind)


def _fault(heads: BatchHeads, batch_rows: _Place, kind: pa.DataType) -> pa.Array:
    codes = heads.codes[batch_rows]
    if not codes.any():
        return pa.nulls(len(codes), kind)
    reasons = pa.array([str(reason) for reason in heads.reasons], kind)
    return reasons.take(pa.array(codes - 1, mask=codes == 0))


def _codec(heads: BatchHeads, batch_rows: _Place, _kind: pa.DataType) -> pa.Array:
    codes = heads.rows["attributes"][batch_rows] & byte_layout.COMPRESSION_CODEC_MASK
    return _CODECS.take(pa.array(codes.astype(np.int32)))


def _base_offset(heads: BatchHeads, batch_rows: _Place, kind: pa.DataType) -> pa.Array:
    return arrow_columns.integers(
        heads.rows["base_offset"][batch_rows], kind, nulls=heads.is_wrapper[batch_rows]
    )


def _record_count(heads: BatchHeads, batch_rows: _Place, kind: pa.DataType) -> pa.Array:
    counts: _Values = np.where(heads.is_v2, heads.rows["record_count"], 1)[batch_rows]
    return arrow_columns.integers(counts, kind, nulls=heads.is_wrapper[batch_rows])


_OF_BOTH: Final[dict[str, Callable[[BatchHeads, _Place, pa.DataType], pa.Array]]] = {
    "position": _field("position"),
    "crc_valid": lambda heads, place, _: arrow_columns.flags(heads.is_valid[place]),
    "timestamp_type": _timestamp_type,
    "leader_epoch": _field("leader_epoch"),
    "producer_id": _field("producer_id"),
    "producer_epoch": _field("producer_epoch"),
    "is_transactional": lambda heads, place, _: arrow_columns.flags(
        (heads.has(byte_layout.TRANSACTIONAL_MASK) & heads.is_v2)[place]
    ),
    "is_control": lambda heads, place, _: arrow_columns.flags(heads.is_control[place]),
    "aborted": lambda heads, place, _: arrow_columns.flags(heads.is_aborted[place]),
    "fault": _fault,
}
_OF_BATCHES: Final[dict[str, Callable[[BatchHeads, _Place, pa.DataType], pa.Array]]] = {
    "base_offset": _base_offset,
    "last_offset": _field("last_offset"),
    "size_bytes": _field("size_bytes"),
    "magic": _field("magic"),
    "codec": _codec,
    "max_timestamp": lambda heads, place, kind: arrow_columns.timestamps(
        heads.rows["max_timestamp_ms"][place], kind
    ),
    "base_sequence": _field("base_sequence"),
    "record_count": _record_count,
}
_OF_RECORDS: Final[dict[str, Callable[[Rows, pa.DataType], pa.Array]]] = {
    "offset": lambda rows, kind: arrow_columns.integers(rows["offset"], kind),
    "timestamp": lambda rows, kind: arrow_columns.timestamps(rows["timestamp_ms"], kind),
    "key": lambda rows, _: arrow_columns.binaries(rows, "key"),
    "value": lambda rows, _: arrow_columns.binaries(rows, "value"),
    "headers": arrow_columns.headers,
    "sequence": lambda rows, kind: arrow_columns.integers(rows["sequence"], kind),
}
