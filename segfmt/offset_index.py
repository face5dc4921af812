"""`.index`: the position in the `.log` from which to look for an offset.

    8 bytes an entry: relative offset i32 (last offset of a batch - base offset) | position i32 of that batch

The file of the active segment is as long as `segment.index.bytes` allows and padded with zeros; Kafka takes the
number of entries from its length when it opens it, so it has to be trimmed before.

Kafka: OffsetIndex, AbstractIndex.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from segfmt import byte_layout
from segfmt.entry_view import Buffer, largest_lower_bound, round_down, view_entries
from segfmt.errors import CorruptIndexError
from segfmt.java_text import LONG_MAX

ENTRY_BYTES = byte_layout.OFFSET_INDEX_DTYPE.itemsize
WARM_ENTRIES = 8192 // ENTRY_BYTES

Entries = npt.NDArray[np.void]
"""Structured, dtype `byte_layout.OFFSET_INDEX_DTYPE`, shape (entry_count,)."""


class OffsetPosition(NamedTuple):
    """The absolute *offset* of an index entry and its *position* in the `.log`, bytes."""

    offset: int
    position: int


def view_offset_index(data: Buffer) -> Entries:
    """Return the entries of an `.index` file, a view of *data* without a remainder below 8 bytes."""
    return view_entries(data, byte_layout.OFFSET_INDEX_DTYPE)


def encode_offset_index(entries: Entries) -> bytes:
    """Return the file that holds exactly *entries*."""
    return entries.astype(byte_layout.OFFSET_INDEX_DTYPE, copy=False).tobytes()


def max_entries(segment_index_bytes: int) -> int:
    """Return how many entries an index of `segment.index.bytes` can take."""
    return segment_index_bytes // ENTRY_BYTES


def preallocated_bytes(segment_index_bytes: int) -> int:
    """Return the size of the active segment's `.index`. Kafka: AbstractIndex.resize."""
    return round_down(segment_index_bytes, byte_layout.OFFSET_INDEX_DTYPE)


def lookup(entries: Entries, base_offset: int, target_offset: int) -> OffsetPosition:
    """Return the largest entry that is not above *target_offset*, or (*base_offset*, 0).

    Unsorted entries give the same result as in the broker: see `entry_view.largest_lower_bound`.

    Kafka: OffsetIndex.lookup.
    """
    keys: npt.NDArray[np.integer[Any]] = entries["relative_offset"]
    if base_offset > LONG_MAX - 2**31:  # Java compares the sums, which may overflow
        slot = largest_lower_bound(keys.astype(np.int64) + np.int64(base_offset), target_offset, WARM_ENTRIES)
    else:
        slot = largest_lower_bound(keys, target_offset - base_offset, WARM_ENTRIES)
    if slot < 0:
        return OffsetPosition(base_offset, 0)
    offset = _wrapped(base_offset + int(entries["relative_offset"][slot]))
    return OffsetPosition(offset, int(entries["position"][slot]))


def last_offset(entries: Entries, base_offset: int) -> int:
    """Return the offset of the last entry, *base_offset* without one. Kafka: OffsetIndex.lastOffset."""
    return _wrapped(base_offset + int(entries["relative_offset"][-1])) if len(entries) else base_offset


def _wrapped(offset: int) -> int:
    """Return *offset* as a Java long, which wraps around."""
    return (offset + LONG_MAX + 1 & 2 * LONG_MAX + 1) - LONG_MAX - 1


def check_offset_index(data: Buffer, base_offset: int) -> None:
    """Raise what Kafka's own check raises; only Kafka's tools call it, not a broker that loads a log.

    Raises:
        CorruptIndexError: last offset below *base_offset*, or a length that is not a multiple of 8.

    Kafka: OffsetIndex.sanityCheck.
    """
    entries = view_offset_index(data)
    if last_offset(entries, base_offset) < base_offset:
        raise CorruptIndexError(
            f"last offset {last_offset(entries, base_offset)} is below the base offset {base_offset}",
            position=(len(entries) - 1) * ENTRY_BYTES,
        )
    if len(data) % ENTRY_BYTES:
        raise CorruptIndexError(f"{len(data)} bytes are no multiple of {ENTRY_BYTES}", position=len(data))
