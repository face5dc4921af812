"""A file with a bad sector, for reads of this process."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock


@contextmanager
def bad_sector(path: Path, position: int, *, error: int = errno.EIO) -> Iterator[list[tuple[int, int]]]:
    """Let reads of *path* fail that touch the byte at *position*; gives position and size of all reads of it."""
    inode, real = path.stat().st_ino, os.pread
    reads: list[tuple[int, int]] = []

    def pread(descriptor: int, size: int, offset: int) -> bytes:
        if os.fstat(descriptor).st_ino == inode:
            reads.append((offset, size))
            first = position // 4096 * 4096
            if offset < first + 4096 and offset + size > first:
                raise OSError(error, os.strerror(error))
        return real(descriptor, size, offset)

    with mock.patch.object(os, "pread", pread):
        yield reads
