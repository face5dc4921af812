"""What file systems tell: which are local, for only there may a segment be mapped, and the file of an error."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager

_NETWORK_MAGICS = frozenset(
    {
        0x6969,  # NFS
        0x517B,  # SMB
        0xFE534D42,  # SMB2
        0xFF534D42,  # CIFS
        0x65735546,  # FUSE, which may be anything
        0x00C36400,  # Ceph
        0x5346414F,  # AFS
        0x01021997,  # 9P
        0x0BD00BD0,  # Lustre
        0x47504653,  # GPFS
        0x19830326,  # BeeGFS
        0x7461636F,  # OCFS2
    }
)
"""Types by statfs(2). Another machine may change or take away a file of theirs under a mapping."""

_STATFS_BYTES = 120  # struct statfs of 64-bit Linux; the type is its first word


def is_there(path: str) -> bool:
    """Return whether something has the name *path*, a link that leads nowhere included.

    Unlike `os.path.exists`, which takes what cannot be looked at for missing.

    Raises:
        OSError: it cannot be told.
    """
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


@contextmanager
def naming(path: str) -> Iterator[None]:
    """Put *path* into errors of the block that name no file: those of calls on a descriptor."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = path
        raise


@functools.cache
def c_library() -> ctypes.CDLL:
    """Return the C library, for the calls that Python's `os` does not have; errno is kept."""
    return ctypes.CDLL(None, use_errno=True)


def is_local(path: str) -> bool:
    """Return whether *path* lies on a file system of this machine.

    Raises:
        OSError: the path cannot be asked.
    """
    libc = c_library()
    buffer = (ctypes.c_ulong * (_STATFS_BYTES // 8 + 1))()
    if libc.statfs(os.fsencode(path), ctypes.byref(buffer)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return (buffer[0] & 0xFFFFFFFF) not in _NETWORK_MAGICS
