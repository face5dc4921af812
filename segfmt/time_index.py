"""`.timeindex`: the offset up to which a timestamp is the highest.

    12 bytes an entry: timestamp i64, ms | relative offset i32

Timestamps and offsets rise from entry to entry. The active segment's file is padded with zeros like
`.index`.

Kafka: TimeIndex, AbstractIndex.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from segfmt import byte_layout
from segfmt.entry_view import Buffer, largest_lower_bound, round_down, view_entries
from segfmt.errors import CorruptIndexError

ENTRY_BYTES = byte_layout.TIME_INDEX_DTYPE.itemsize
WARM_ENTRIES = 8192 // ENTRY_BYTES

Entries = npt.NDArray[np.void]
"""Structured, dtype `byte_layout.TIME_INDEX_DTYPE`, shape (entry_count,)."""


class TimestampOffset(NamedTuple):
    """A timestamp, ms since the epoch, and the absolute offset that goes with it."""

    timestamp_ms: int
    offset: int


def view_time_index(data: Buffer) -> Entries:
    """Return the entries of a `.timeindex` file, a view of *data* without a remainder below 12 bytes."""
    return view_entries(data, byte_layout.TIME_INDEX_DTYPE)


def encode_time_index(entries: Entries) -> bytes:
    """Return the file that holds exactly *entries*."""
    return entries.astype(byte_layout.TIME_INDEX_DTYPE, copy=False).tobytes()


def max_entries(segment_index_bytes: int) -> int:
    """Return how many entries an index of `segment.index.bytes` can take."""
    return segment_index_bytes // ENTRY_BYTES


def preallocated_bytes(segment_index_bytes: int) -> int:
    """Return the size of the active segment's `.timeindex`. Kafka: AbstractIndex.resize."""
    return round_down(segment_index_bytes, byte_layout.TIME_INDEX_DTYPE)


def last_entry(entries: Entries, base_offset: int) -> TimestampOffset:
    """Return the last entry, (-1, *base_offset*) without one. Kafka: TimeIndex.lastEntry."""
    if len(entries) == 0:
        return TimestampOffset(byte_layout.NO_TIMESTAMP_MS, base_offset)
    return TimestampOffset(
        int(entries["timestamp_ms"][-1]), base_offset + int(entries["relative_offset"][-1])
    )


def lookup(entries: Entries, base_offset: int, target_timestamp_ms: int) -> TimestampOffset:
    """Return the last entry whose timestamp is not above the target, or (-1, *base_offset*).

    Kafka: TimeIndex.lookup.
    """
    slot = largest_lower_bound(entries["timestamp_ms"], target_timestamp_ms, WARM_ENTRIES)
    return last_entry(entries[: slot + 1], base_offset)


def check_time_index(data: Buffer, base_offset: int) -> None:
    """Raise what Kafka's own check raises; only Kafka's tools call it, not a broker that loads a log.

    Raises:
        CorruptIndexError: last timestamp below the first, last offset below *base_offset*, or a length that
            is not a multiple of 12.

    Kafka: TimeIndex.sanityCheck.
    """
    entries = view_time_index(data)
    last = last_entry(entries, base_offset)
    last_position = max(0, (len(entries) - 1) * ENTRY_BYTES)
    if len(entries) and last.timestamp_ms < int(entries["timestamp_ms"][0]):
        raise CorruptIndexError(
            f"last timestamp {last.timestamp_ms} is below the first, {int(entries['timestamp_ms'][0])}",
            position=last_position,
        )
    if last.offset < base_offset:
        raise CorruptIndexError(
            f"last offset {last.offset} is below the base offset {base_offset}", position=last_position
        )
    if len(data) % ENTRY_BYTES:
        raise CorruptIndexError(f"{len(data)} bytes are no multiple of {ENTRY_BYTES}", position=len(data))
