"""The headers of the batches in a window as an array, for checks over many batches at once.

Only the length fields are verified; CRCs are left to the scan (`native.segment_scan`).

Kafka: FileLogInputStream.nextBatch.
"""

from __future__ import annotations

import ctypes
import enum
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from native import kernels
from native.address import address_of
from native.errors import ScanUsageError

HEADER_ROW_DTYPE: Final = np.dtype(
    [
        ("position", "<i8"),  # in the file
        ("size_bytes", "<i8"),
        (
            "base_offset",
            "<i8",
        ),  # of a message (magic below 2): the offset before it, the last one of a wrapper
        ("last_offset", "<i8"),
        ("max_timestamp_ms", "<i8"),  # -1 for magic 0
        ("last_offset_delta", "<i4"),  # 0 for a message
        ("leader_epoch", "<i4"),  # -1 for a message
        ("record_count", "<i4"),  # -1 for a message
        ("producer_id", "<i8"),  # -1 for a message, as for a batch of no producer
        ("base_sequence", "<i4"),  # -1 for a message
        ("producer_epoch", "<i2"),  # -1 for a message
        ("attributes", "<i2"),
        ("magic", "i1"),
        ("_unused", "u1"),
    ]
)
"""One batch or message."""

HeaderRows = npt.NDArray[np.void]
"""Structured, HEADER_ROW_DTYPE, shape (n,), in file order."""


class WalkEnd(enum.IntEnum):
    """Why a walk ended."""

    NEED_BYTES = 0
    """The next batch is in the file but not entirely in the window."""
    FULL = 1
    """The walk has as many rows as were asked for."""
    END = 2
    """17 bytes or fewer are left."""
    TORN = 3
    """The next batch reaches beyond the file."""
    BAD_LENGTH = 4
    """The next length field is impossible."""


class HeaderWalk(NamedTuple):
    """The result of a walk: the rows, the position after them, and why it ended."""

    rows: HeaderRows
    position: int
    end: WalkEnd


def walk_headers(
    window: npt.NDArray[np.uint8], *, position: int, end_position: int, most_rows: int = 1 << 16
) -> HeaderWalk:
    """Return the headers of the whole batches in *window*.

    Args:
        window: uint8, shape (n,), C-contiguous; its first byte is a batch's. Not written.
        position: of that byte in the file.
        end_position: where the file, or the part of it that counts, ends.
        most_rows: end after this many.

    Raises:
        ScanUsageError: *window* is of another shape or type.
    """
    if window.dtype != np.uint8 or window.ndim != 1 or not window.flags.c_contiguous:
        raise ScanUsageError(
            f"a window is contiguous uint8 of one dimension, not {window.dtype} {window.shape}"
        )
    rows = np.zeros(min(most_rows, window.size // 26 + 1), HEADER_ROW_DTYPE)
    address = address_of(window)
    rows_address = address_of(rows)
    result = (ctypes.c_int64 * 2)()
    walk = kernels.entry(kernels.WALK_HEADERS)
    status = walk(
        address, window.size, position, end_position, rows_address, rows.size, ctypes.addressof(result)
    )
    return HeaderWalk(rows[: result[0]], result[1], WalkEnd(status))
