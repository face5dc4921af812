"""Records as rows: where the key, the value and the headers of each are, without a Python object per record.

A *unit* holds the records of one batch, decompressed: records of magic 2 back to back, or messages. Rows hold
addresses: the memory that the units name must live as long as the rows do.

Kafka: DefaultRecordBatch.iterator, AbstractLegacyRecordBatch.iterator.
"""

from __future__ import annotations

import ctypes
import enum
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from native import kernels
from native.address import address_of
from native.record_walk import RecordFault


class UnitKind(enum.IntEnum):
    """What a unit holds."""

    RECORDS = 0
    """Of magic 2."""
    MESSAGES = 1
    """A message, or several with absolute offsets."""
    RELATIVE_MESSAGES = 2
    """The content of a wrapper of magic 1: offsets count from 0, and the last message has the wrapper's offset."""


UNIT_DTYPE: Final = np.dtype(
    [
        ("address", "<i8"),
        ("size_bytes", "<i8"),
        ("base_offset", "<i8"),  # of the batch; of a wrapper: its own offset
        ("base_timestamp_ms", "<i8"),
        ("stamp_ms", "<i8"),  # the timestamp of all records, if they are stamped
        ("record_count", "<i4"),  # of the batch's header; not used for messages
        ("base_sequence", "<i4"),
        ("kind", "i1"),  # UnitKind
        ("is_stamped", "?"),  # LogAppendTime
        ("_unused", "<i2"),
        ("_unused_too", "<i4"),
    ]
)
"""One unit."""

RECORD_ROW_DTYPE: Final = np.dtype(
    [
        ("offset", "<i8"),
        ("timestamp_ms", "<i8"),
        ("key_address", "<i8"),
        ("value_address", "<i8"),
        ("headers_address", "<i8"),  # after their count
        ("key_bytes", "<i4"),  # -1 for null
        ("value_bytes", "<i4"),  # -1 for null
        ("header_count", "<i4"),
        ("sequence", "<i4"),
        ("unit", "<i4"),  # its place in the units
        ("_unused", "<i4"),
    ]
)
"""One record."""

HEADER_ENTRY_DTYPE: Final = np.dtype(
    [("key_address", "<i8"), ("value_address", "<i8"), ("key_bytes", "<i4"), ("value_bytes", "<i4")]
)
"""One header of a record; -1 bytes for null."""

Rows = npt.NDArray[np.void]
"""Structured, one of the dtypes above, shape (n,)."""

MIN_RECORD_BYTES: Final = 7
"""Size, attributes, timestamp, offset, key, value, header count: a byte each."""


_FULL: Final = 30
"""How a listing ends if there are more rows than were asked for; else a `RecordFault`."""


class RowsPart(NamedTuple):
    """Some of the rows of some units.

    Attributes:
        rows: RECORD_ROW_DTYPE, shape (n,).
        fault: of the unit number *bad_unit*, which has no rows; SOUND without one.
    """

    rows: Rows
    fault: RecordFault
    bad_unit: int


def list_records(units: Rows, *, most_rows: int) -> Iterator[RowsPart]:
    """Yield the records of *units* in order, *most_rows* at a time at most; units with a fault are passed over.

    A unit is in one part, unless it alone has more than *most_rows*. A unit with a fault has no rows.

    Args:
        units: UNIT_DTYPE, shape (n,), C-contiguous.
        most_rows: at least one.
    """
    if not len(units):
        return
    state = (ctypes.c_int64 * 6)()
    listing = kernels.entry(kernels.LIST_RECORDS)
    while state[0] < len(units):
        left = units[state[0] :]
        room = max(1, min(most_rows, int((left["size_bytes"] // MIN_RECORD_BYTES + 1).sum())))
        rows = np.empty(room, RECORD_ROW_DTYPE)
        end = listing(address_of(units), len(units), address_of(rows), room, ctypes.addressof(state))
        fault = RecordFault.SOUND if end == _FULL else RecordFault(end)
        place = int(state[0])
        is_bad = fault is not RecordFault.SOUND
        yield RowsPart(rows[: state[5]], fault, place if is_bad else -1)
        if is_bad:
            state[0], state[1] = place + 1, 0


def list_headers(rows: Rows) -> Rows:
    """Return the headers of *rows* (RECORD_ROW_DTYPE), in order: HEADER_ENTRY_DTYPE, shape (their number,)."""
    rows = np.ascontiguousarray(rows)
    entries = np.empty(int(rows["header_count"].sum()), HEADER_ENTRY_DTYPE)
    if len(entries):
        kernels.entry(kernels.LIST_HEADERS)(address_of(rows), len(rows), address_of(entries))
    return entries


def join_bytes(rows: Rows, field: str, offsets: npt.NDArray[np.int32]) -> npt.NDArray[np.uint8]:
    """Return the bytes that *rows* name, one after another.

    Args:
        rows: with fields ``{field}_address`` and ``{field}_bytes``, shape (n,), C-contiguous.
        field: key or value.
        offsets: int32, shape (n + 1,): where each begins and ends.
    """
    joined = np.empty(int(offsets[-1]), np.uint8)
    if joined.size:
        place = rows.dtype.fields[f"{field}_address"][1]  # type: ignore[index]  # it has fields
        join = kernels.entry(kernels.JOIN_BYTES)
        join(address_of(rows) + place, rows.strides[0], len(rows), address_of(offsets), address_of(joined))
    return joined
