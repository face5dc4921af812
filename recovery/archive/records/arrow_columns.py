"""Rows as Arrow arrays, made from buffers: no Python object per row.

Integers and flags are copied from structured arrays, bytes by a kernel.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from native.record_rows import Rows, join_bytes, list_headers
from segfmt import byte_layout

_US_PER_MS = 1000
_MOST_MS = np.iinfo(np.int64).max // _US_PER_MS
_CONTINUATION_MASK, _CONTINUATION = 0xC0, 0x80


def integers(
    values: npt.NDArray[Any], kind: pa.DataType, *, nulls: npt.NDArray[np.bool_] | None = None
) -> pa.Array:
    """Return *values* as integers of *kind*, null where *nulls* is true."""
    data = np.ascontiguousarray(values, kind.to_pandas_dtype())
    return pa.Array.from_buffers(kind, len(data), [_validity(nulls), pa.py_buffer(data)])


def flags(values: npt.NDArray[np.bool_]) -> pa.Array:
    """Return *values* as booleans."""
    packed = np.packbits(values, bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(packed)])


def timestamps(values_ms: npt.NDArray[np.int64], kind: pa.TimestampType) -> pa.Array:
    """Return milliseconds since the epoch as timestamps of *kind*, ms or us.

    Null stands for -1, Kafka's value for no timestamp, and for what a timestamp in us cannot hold.
    """
    nulls = values_ms == byte_layout.NO_TIMESTAMP_MS
    values = np.ascontiguousarray(values_ms, np.int64)
    if kind.unit == "us":
        nulls |= (values > _MOST_MS) | (values < -_MOST_MS)
        values = np.where(nulls, 0, values) * _US_PER_MS
    return pa.Array.from_buffers(kind, len(values), [_validity(nulls), pa.py_buffer(values)])


def constants(value: object, count: int, kind: pa.DataType) -> pa.Array:
    """Return *value*, *count* times."""
    return pa.repeat(pa.scalar(value, kind), count)


def binaries(rows: Rows, field: str) -> pa.Array:
    """Return the bytes that *rows* name by ``{field}_address`` and ``{field}_bytes``; -1 is null."""
    sizes = rows[f"{field}_bytes"]
    offsets = _offsets(np.maximum(sizes, 0))
    data = join_bytes(rows, field, offsets)
    buffers = [_validity(sizes < 0), pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(rows), buffers)


def texts(rows: Rows, field: str) -> pa.Array:
    """Return UTF-8 text like `binaries`; malformed bytes are replaced as Java's decoder does."""
    binary = binaries(rows, field)
    _, offsets, data = binary.buffers()
    octets = np.frombuffer(data, np.uint8)
    if not _is_utf8(octets, np.frombuffer(offsets, np.int32)[: len(rows) + 1]):
        strings = [
            None if octets is None else octets.decode("utf-8", "replace") for octets in binary.to_pylist()
        ]
        return pa.array(strings, pa.string())
    return binary.view(pa.string())


def headers(rows: Rows, kind: pa.ListType) -> pa.Array:
    """Return the headers of the records in *rows* (RECORD_ROW_DTYPE) as lists of structs of key and value."""
    entries = list_headers(rows)
    fields = [texts(entries, "key"), binaries(entries, "value")]
    structs = pa.StructArray.from_arrays(fields, fields=list(kind.value_type))
    offsets = _offsets(rows["header_count"])
    return pa.Array.from_buffers(kind, len(rows), [None, pa.py_buffer(offsets)], children=[structs])


def _offsets(sizes: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    offsets = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    return offsets


def _validity(nulls: npt.NDArray[np.bool_] | None) -> pa.Buffer | None:
    if nulls is None or not nulls.any():
        return None
    return pa.py_buffer(np.packbits(~nulls, bitorder="little"))


def _is_utf8(octets: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int32]) -> bool:
    """Return whether each string is valid: all bytes together are, and no string begins within a character."""
    if not octets.size or octets.max() < _CONTINUATION:
        return True
    starts = octets[offsets[:-1][offsets[:-1] < octets.size]]
    if (starts & _CONTINUATION_MASK == _CONTINUATION).any():
        return False
    try:
        octets.tobytes().decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
