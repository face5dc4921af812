"""What the worker processes of one run have promised to write, in memory that they share.

Each has a block of its own, which only it writes while it lives, and reads those of the others; whoever reserves
something locks the memory first. When a process is gone its block is cleared by the one that started it: what it had
reserved is written now, or never will be.
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
"""File systems that one log dir is written to, at most: its own and its quarantine's are two."""
_ROW_DTYPE = np.dtype(
    [("device", "<u8"), ("reserved_bytes", "<i8"), ("spent_bytes", "<i8"), ("is_used", "<i8")]
)


class Promised(NamedTuple):
    """What is promised on a file system; see `space.SpaceLedger`."""

    reserved_bytes: int
    spent_bytes: int


NOTHING_PROMISED = Promised(0, 0)


class SpaceShare:
    """One process's view of the memory.

    Args:
        descriptor: of the memory, from `create`; this object closes it.
        number: of the block that is this process's own.
    """

    def __init__(self, descriptor: int, number: int) -> None:
        self.descriptor = descriptor
        self._number = number
        self._memory = mmap.mmap(descriptor, 0)
        self._rows = np.frombuffer(self._memory, _ROW_DTYPE).reshape(-1, _DEVICES)

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
        """Keep other processes out of the block; threads see to that themselves. A dead process holds nothing."""
        fcntl.lockf(self.descriptor, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self.descriptor, fcntl.LOCK_UN)

    def others(self, device: int) -> Promised:
        """Return what all other processes have promised on the file system *device*."""
        is_counted = (self._rows["device"] == device) & (self._rows["is_used"] != 0)
        is_counted[self._number] = False
        rows = self._rows[is_counted]
        return Promised(int(rows["reserved_bytes"].sum()), int(rows["spent_bytes"].sum()))

    def publish(self, device: int, promised: Promised) -> None:
        """Tell the others what this process has promised on the file system *device*, all in all."""
        rows = self._rows[self._number]
        places = np.flatnonzero((rows["device"] == device) | (rows["is_used"] == 0))
        rows[places[0]] = (device, *promised, 1)

    def clear(self, number: int) -> None:
        """Take back what the process *number*, which is gone, has reserved. What it has spent stays so."""
        self._rows[number]["reserved_bytes"] = 0

    def close(self) -> None:
        """Let go of the memory."""
        del self._rows
        self._memory.close()
        os.close(self.descriptor)
