"""What of an open file is in the page cache: asked for ahead where the kernel asks for little, given back behind.

The kernel reads ahead of a sequential reader by itself, in large folios, and nothing here is faster than that as
long as its window is large. The usual window of 128 KiB leaves a device with a high latency idle between
requests; there what comes next is asked for in pieces of 8 MiB.

Whoever shares the machine may need its page cache. What was not there before can be given back behind the reader;
what was there stays.
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
"""How much is asked for, or given back, at a time."""
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
            None  # where the steps begin that were not there; None: not known
        )
        if gives_back:  # all of it is looked at now: soon the kernel will have read ahead
            steps = range(position, end_position, STEP_BYTES)
            ranges = ((start, min(start + STEP_BYTES, end_position)) for start in steps)
            self._borrowed.extend(
                (start, end) for start, end in ranges if not is_cached(descriptor, start, end)
            )
            self._absent = frozenset(start for start, _ in self._borrowed)

    def approach(self, position: int) -> None:
        """Have what stands behind *position* read from disk, where the kernel would ask for it late."""
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
        """Give back what stands before *position* and was not in the page cache before."""
        while self._borrowed and self._borrowed[0][1] <= position:
            start, end = self._borrowed.popleft()
            os.posix_fadvise(self._descriptor, start, end - start, os.POSIX_FADV_DONTNEED)


def is_cached(descriptor: int, start: int, end: int) -> bool:
    """Return whether all bytes from *start* to *end* are in the page cache; where it cannot be told: yes.

    By mincore(2), which reads nothing; a read that must not wait (RWF_NOWAIT) would have the kernel read ahead.
    """
    first = start // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
    try:
        pages = mmap.mmap(descriptor, end - first, mmap.MAP_SHARED, mmap.PROT_READ, offset=first)
    except (OSError, ValueError):  # nothing that can be mapped, or shorter than that
        return True
    with pages:
        view = np.frombuffer(pages, np.uint8)
        are_there = np.zeros(-(-view.size // mmap.PAGESIZE), np.uint8)
        found = _mincore(address_of(view), view.size, address_of(are_there))
        del view  # or the mapping cannot be closed
    return found != 0 or bool(np.all(are_there & 1))


def _mincore(address: int, size_bytes: int, vector: int) -> int:
    mincore = c_library().mincore
    mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
    result: int = mincore(address, size_bytes, vector)
    return result


@functools.cache
def kernel_read_ahead_bytes(device: int) -> int:
    """Return how far the kernel reads ahead on a device, `st_dev`; 0 where it does not say."""
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
