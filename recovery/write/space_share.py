"""The space that the worker processes of one run have reserved for writing, in memory that they share.

Each has a block of its own, which only it writes while it lives, and reads those of the others; whoever reserves
something locks the memory first. When a process is gone, its block is cleared by the one that started it: what it had
reserved is written by then, or never will be.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

_DEVICES = 4
"""How many file systems one log dir has rows for; its own and that of its quarantine are two. More share the last."""
_ANY_DEVICE = 2**64 - 1
"""In a row of several file systems: it counts for each of them, so that none gets too full."""
_ROW_DTYPE = np.dtype(
    [("device", "<u8"), ("reserved_bytes", "<i8"), ("spent_bytes", "<i8"), ("is_used", "<i8")]
)


class Promised(NamedTuple):
    """What is reserved and spent on a file system; see `space.SpaceLedger`."""

    reserved_bytes: int
    spent_bytes: int


NOTHING_PROMISED = Promised(0, 0)


class SpaceShare:
    """One process's view of the memory.

    Args:
        descriptor: of the memory, from `create`; this object closes it.
        number: of this process's own block.
    """

    def __init__(self, descriptor: int, number: int) -> None:
        self.descriptor = descriptor
        self._number = number
        self._memory = mmap.mmap(descriptor, 0)
        self._rows = np.frombuffer(self._memory, _ROW_DTYPE).reshape(-1, _DEVICES)
        self._in_last_row: dict[int, Promised] = {}

    @classmethod
    def create(cls, count: int) -> SpaceShare:
        """Return memory for *count* processes, besides the one that makes it: its number is *count*."""
        descriptor = os.memfd_create("kafka-log-recovery-space", os.MFD_CLOEXEC)
        os.write(descriptor, bytes((count + 1) * _DEVICES * _ROW_DTYPE.itemsize))
        return cls(descriptor, count)

    @property
    def count(self) -> int:
        """How many processes there are, besides the one that made the memory."""
        return len(self._rows) - 1

    @contextmanager
    def exclusively(self) -> Iterator[None]:
        """Keep other processes out of the `with` block; threads need their own lock. A dead process holds nothing."""
        fcntl.lockf(self.descriptor, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self.descriptor, fcntl.LOCK_UN)

    def others(self, device: int) -> Promised:
        """Return what all other processes have reserved and spent on the file system *device*."""
        is_of_it = (self._rows["device"] == device) | (self._rows["device"] == _ANY_DEVICE)
        is_counted = is_of_it & (self._rows["is_used"] != 0)
        is_counted[self._number] = False
        rows = self._rows[is_counted]
        return Promised(int(rows["reserved_bytes"].sum()), int(rows["spent_bytes"].sum()))

    def publish(self, device: int, promised: Promised) -> None:
        """Show the others the totals that this process has reserved and spent on the file system *device*."""
        rows = self._rows[self._number]
        candidates = np.flatnonzero((rows["device"] == device) | (rows["is_used"] == 0))
        if candidates.size and candidates[0] < _DEVICES - 1:
            rows[candidates[0]] = (device, *promised, 1)
            return
        self._in_last_row[device] = promised
        reserved_bytes, spent_bytes = map(sum, zip(*self._in_last_row.values(), strict=True))
        rows[-1] = (_ANY_DEVICE, reserved_bytes, spent_bytes, 1)

    def clear(self, number: int) -> None:
        """Cancel what the process *number*, which is gone, has reserved. What it has spent stays spent."""
        self._rows[number]["reserved_bytes"] = 0

    def close(self) -> None:
        """Release the memory."""
        del self._rows
        self._memory.close()
        os.close(self.descriptor)
