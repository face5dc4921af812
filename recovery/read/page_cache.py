"""The page cache of an open file: filled ahead of the reader if the kernel reads ahead little, dropped after it.

The kernel reads ahead of a sequential reader by itself, in large folios, and nothing here is faster than that as
long as its window is large. The usual window of 128 KiB leaves a device with a high latency idle between
requests; then the next bytes are requested in pieces of 8 MiB.

Other processes on the machine may need its page cache. Pages that were not there before can be dropped once they
are read; pages that were there stay.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
from collections import deque

import numpy as np

from native.address import address_of
from recovery.read.file_system import c_library

STEP_BYTES = 8 << 20
"""How much is requested, or dropped, at a time."""
_STEPS_AHEAD = 2
_SUFFICIENT_READ_AHEAD_BYTES = 1 << 20


class CachedFile:
    """The pages of one file that is read once, forwards.

    Args:
        descriptor: open for reading.
        gives_back: whether what was not in the page cache leaves it again.
        position, end_position: the part that will be read; None: up to the end of the file.

    Attributes:
        end_position: where the part ends.
    """

    def __init__(
        self, descriptor: int, *, gives_back: bool, position: int = 0, end_position: int | None = None
    ) -> None:
        status = os.fstat(descriptor)
        self.end_position = end_position = status.st_size if end_position is None else end_position
        self._descriptor = descriptor
        self._position = position
        self._borrowed: deque[tuple[int, int]] = deque()
        self._asks_ahead = kernel_read_ahead_bytes(status.st_dev) < _SUFFICIENT_READ_AHEAD_BYTES
        self._absent: frozenset[int] | None = (
            None  # where the steps begin that were not in the page cache; None: not known
        )
        if gives_back:  # checked now for the whole part, before the kernel reads ahead
            steps = range(position, end_position, STEP_BYTES)
            ranges = ((start, min(start + STEP_BYTES, end_position)) for start in steps)
            self._borrowed.extend(
                (start, end) for start, end in ranges if not is_cached(descriptor, start, end)
            )
            self._absent = frozenset(start for start, _ in self._borrowed)

    def approach(self, position: int) -> None:
        """Have the bytes after *position* read from disk if the kernel would request them late."""
        if not self._asks_ahead:
            return
        while self._position < min(position + _STEPS_AHEAD * STEP_BYTES, self.end_position):
            start, end = self._position, min(self._position + STEP_BYTES, self.end_position)
            if self._is_absent(start, end):
                os.posix_fadvise(self._descriptor, start, end - start, os.POSIX_FADV_WILLNEED)
            self._position = end

    def _is_absent(self, start: int, end: int) -> bool:
        return not is_cached(self._descriptor, start, end) if self._absent is None else start in self._absent

    def leave(self, position: int) -> None:
        """Drop the bytes before *position* that were not in the page cache at the start."""
        while self._borrowed and self._borrowed[0][1] <= position:
            start, end = self._borrowed.popleft()
            os.posix_fadvise(self._descriptor, start, end - start, os.POSIX_FADV_DONTNEED)


def is_cached(descriptor: int, start: int, end: int) -> bool:
    """Return whether all bytes from *start* to *end* are in the page cache; True if that is not known."""
    return not absent_bytes(descriptor, start, end)


def absent_bytes(descriptor: int, start: int, end: int) -> int:
    """Return how many bytes from *start* to *end* are not in the page cache, by whole pages; 0 if that is not known.

    By mincore(2), which reads nothing; a non-blocking read (RWF_NOWAIT) would have the kernel read ahead.
    """
    first = start // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
    try:
        pages = mmap.mmap(descriptor, end - first, mmap.MAP_SHARED, mmap.PROT_READ, offset=first)
    except (OSError, ValueError):  # it cannot be mapped, or is shorter
        return 0
    with pages:
        view = np.frombuffer(pages, np.uint8)
        are_there = np.zeros(-(-view.size // mmap.PAGESIZE), np.uint8)
        result = _mincore(address_of(view), view.size, address_of(are_there))
        del view  # or the mapping cannot be closed
    if result != 0:
        return 0
    return min(end - start, int(np.count_nonzero(are_there & 1 == 0)) * mmap.PAGESIZE)


def _mincore(address: int, size_bytes: int, vector: int) -> int:
    mincore = c_library().mincore
    mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
    result: int = mincore(address, size_bytes, vector)
    return result


@functools.cache
def kernel_read_ahead_bytes(device: int) -> int:
    """Return how far the kernel reads ahead on a device, `st_dev`, in bytes; 0 if it does not say."""
    number = f"{os.major(device)}:{os.minor(device)}"
    for name in (
        f"/sys/dev/block/{number}/queue/read_ahead_kb",
        f"/sys/dev/block/{number}/../queue/read_ahead_kb",  # of a partition: its disk's
        f"/sys/class/bdi/{number}/read_ahead_kb",
    ):
        try:
            with open(name, encoding="ascii") as opened:
                return int(opened.read()) << 10
        except (OSError, ValueError):
            continue
    return 0
