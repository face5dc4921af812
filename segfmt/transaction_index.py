"""`.txnindex`: the aborted transactions whose markers lie in a segment.

    34 bytes an entry: version i16 = 0 | producer id i64 | first offset i64 | last offset i64 (the marker's)
                       | last stable offset i64

Kafka: AbortedTxn, TransactionIndex.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from segfmt import byte_layout
from segfmt.entry_view import Buffer, view_entries
from segfmt.errors import CorruptIndexError, UnsupportedVersionError

ENTRY_BYTES = byte_layout.ABORTED_TXN_DTYPE.itemsize
CURRENT_VERSION = 0

Entries = npt.NDArray[np.void]
"""Structured, dtype `byte_layout.ABORTED_TXN_DTYPE`, shape (entry_count,)."""


def view_transaction_index(data: Buffer) -> Entries:
    """Return the entries of a `.txnindex` file, a view of *data* without a remainder below 34 bytes."""
    return view_entries(data, byte_layout.ABORTED_TXN_DTYPE)


def encode_transaction_index(entries: Entries) -> bytes:
    """Return the file that holds exactly *entries*."""
    return entries.astype(byte_layout.ABORTED_TXN_DTYPE, copy=False).tobytes()


def check_transaction_index(
    data: Buffer, base_offset: int, *, start_position: int = 0, is_low_byte_read: bool = False
) -> None:
    """Check what the broker checks in every `.txnindex` that it loads; the first bad entry counts.

    A remainder of less than 34 bytes is ignored.

    Args:
        start_position: of *data* in its file, a multiple of 34.
        is_low_byte_read: whether the broker reads the whole version, as from 4.4 on; before, only its high byte, so
            that 1 to 255 and what is negative pass.

    Raises:
        CorruptIndexError: a last offset below *base_offset*; the broker recovers the segment, after a clean
            shutdown too.
        UnsupportedVersionError: a version that the broker does not know; it fails.

    Kafka: TransactionIndex.sanityCheck, AbortedTxn.version.
    """
    entries = view_transaction_index(data)
    if is_low_byte_read:
        is_unknown = entries["version"] != CURRENT_VERSION
    else:
        is_unknown = entries["version"] >> 8 > CURRENT_VERSION
    is_bad = is_unknown | (entries["last_offset"] < base_offset)
    if not is_bad.any():
        return
    place = int(np.argmax(is_bad))
    entry, position = entries[place], start_position + place * ENTRY_BYTES
    if is_unknown[place]:
        raise UnsupportedVersionError(
            f"position {position}: version {int(entry['version'])} of an aborted transaction, expected 0",
            position=position,
        )
    raise CorruptIndexError(
        f"position {position}: last offset {entry['last_offset']} is below the base offset {base_offset}",
        position=position,
    )


def truncation_position(entries: Entries, offset: int) -> int | None:
    """Return the position at which the file is cut when its log is cut to *offset*; None if nothing is cut.

    Kafka: TransactionIndex.truncateTo (the first entry whose last offset is not below *offset*).
    """
    reaches = entries["last_offset"] >= offset
    return int(np.argmax(reaches)) * ENTRY_BYTES if reaches.any() else None
