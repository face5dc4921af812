"""Index files as arrays: fixed-size big-endian entries, seen in place without a copy."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
import numpy.typing as npt

Buffer = bytes | bytearray | memoryview | mmap.mmap | npt.NDArray[np.uint8]
"""C-contiguous bytes; never written to by this package."""


def view_octets(data: Buffer) -> memoryview:
    """Return *data* as a memoryview of single bytes over the same memory."""
    return (data.data if isinstance(data, np.ndarray) else memoryview(data)).cast("B")


def view_entries(data: Buffer, dtype: np.dtype[np.void]) -> npt.NDArray[np.void]:
    """Return the whole entries in *data* as a structured array over the same memory.

    Args:
        data: any C-contiguous buffer (bytes, memoryview, mmap, uint8 array); read-only stays read-only.
        dtype: a packed structure, one entry.

    Returns:
        Shape (n_bytes // dtype.itemsize,). Bytes that do not fill an entry are left out.

    Kafka: AbstractIndex rounds the length down in the same way.
    """
    octets = np.frombuffer(data, np.uint8) if len(data) else np.empty(0, np.uint8)
    return octets[: len(octets) // dtype.itemsize * dtype.itemsize].view(dtype)


def round_down(size_bytes: int, dtype: np.dtype[np.void]) -> int:
    """Return the greatest multiple of the entry size that is not above *size_bytes*."""
    return size_bytes // dtype.itemsize * dtype.itemsize


def largest_lower_bound(keys: npt.NDArray[np.integer[Any]], target: int, warm_entries: int) -> int:
    """Return the index of the largest of *keys* that is not above *target*, -1 without one.

    The keys should be sorted; if they are not, the answer is where Kafka's search ends, so that garbage in an
    index leads here to where it leads Kafka.

    Args:
        keys: integers, shape (n,).
        target: the key to look for, on the scale of *keys*.
        warm_entries: entries at the end that are searched first, 8192 bytes' worth.

    Kafka: AbstractIndex.largestLowerBoundSlotFor, indexSlotRangeFor, binarySearch.
    """
    if len(keys) == 0:
        return -1
    low, high = 0, len(keys) - 1
    first_warm = max(0, high - warm_entries)
    if int(keys[first_warm]) < target:
        low = first_warm
    elif int(keys[0]) > target:
        return -1
    else:
        high = first_warm
    while low < high:
        middle = (low + high + 1) >> 1
        key = int(keys[middle])
        if key == target:
            return middle
        if key > target:
            high = middle - 1
        else:
            low = middle
    return low
