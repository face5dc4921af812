"""The page cache of files: let go of it, and see what is in it."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np

_PAGE_BYTES = mmap.PAGESIZE
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long),
)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_MAP_FAILED = ctypes.c_void_p(-1).value


class WarmCacheError(Exception):
    """The kernel keeps pages of files that should be read from disk."""


def evict(paths: Iterable[Path]) -> None:
    """Let go of the cached pages of files that nobody has mapped, and see that they are gone.

    Raises:
        WarmCacheError: more than one page in a thousand is still there.
    """
    paths = list(paths)
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)  # a dirty page stays
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
    left_bytes = sum(map(cached_bytes, paths))
    if left_bytes > sum(path.stat().st_size for path in paths) // 1000:
        raise WarmCacheError(
            f"{left_bytes} bytes of {paths[0]} and {len(paths) - 1} more files are still in the page cache "
            "after POSIX_FADV_DONTNEED: is somebody reading them, or is this a file system in memory?"
        )


def cached_bytes(path: Path) -> int:
    """Return how many bytes of a file are in the page cache, in whole pages. System call: mincore(2)."""
    size_bytes = path.stat().st_size
    if size_bytes == 0:
        return 0
    residency = np.zeros(-(-size_bytes // _PAGE_BYTES), np.uint8)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        address = _libc.mmap(None, size_bytes, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
    finally:
        os.close(descriptor)
    if address == _MAP_FAILED:
        raise OSError(ctypes.get_errno(), f"{path}: mmap failed")
    try:
        if _libc.mincore(address, size_bytes, residency.ctypes.data) != 0:
            raise OSError(ctypes.get_errno(), f"{path}: mincore failed")
    finally:
        _libc.munmap(address, size_bytes)
    return int((residency & 1).sum()) * _PAGE_BYTES
