"""What the bytes of a file in quarantine are identified by: a SHA-256.

An index of an active segment is megabytes of zeros after some entries, and each partition has one. So the zeros at the
end of files that a log can rebuild are not hashed but counted: all bytes of a file are covered either way.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
from typing import Final

import numpy as np

from recovery.plan.manifest import Digest
from recovery.read.file_system import naming, open_file, read_at

_BLOCK_BYTES: Final = 1 << 20
_LEAST_SPARSE_BYTES: Final = 64 << 10
"""A smaller file is hashed as a whole, in one call."""
_ZEROS: Final = bytes(16 << 10)


def digest_of(descriptor: int, *, may_skip_zeros: bool) -> Digest:
    """Return the digest of an open file.

    Args:
        may_skip_zeros: whether zeros at its end are only counted.
    """
    size_bytes = os.fstat(descriptor).st_size
    if may_skip_zeros and size_bytes > _LEAST_SPARSE_BYTES:
        size_bytes = _used_bytes(descriptor, size_bytes)
    return Digest(sha256_of(descriptor, size_bytes), size_bytes)


def look_into(path: str, *, may_skip_zeros: bool) -> tuple[int, Digest | None]:
    """Return size and digest of the file *path*; 0 and None if it is not a regular file, or not there.

    Raises:
        OSError: it cannot be read.
    """
    with contextlib.ExitStack() as stack:
        try:
            descriptor = open_file(path, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EINVAL, errno.ELOOP):
                return 0, None
            raise
        stack.callback(os.close, descriptor)
        stack.enter_context(naming(path))
        return os.fstat(descriptor).st_size, digest_of(descriptor, may_skip_zeros=may_skip_zeros)


def is_begun_copy(copy: str, original: str) -> bool:
    """Return whether the file *copy* is a beginning of the file *original*, as in `has_part`; neither may be a link."""
    with contextlib.suppress(OSError):
        return has_part(copy, 0, os.stat(original).st_size, original)
    return False


def has_part(path: str, position: int, size_bytes: int, part: str | None) -> bool:
    """Return whether *path* has, from *position* to its end, a beginning of the file *part*.

    What a power failure has kept from the disk is zeros, anywhere in it.

    Args:
        size_bytes: how many bytes of it there may be.
        part: None for zeros.

    Raises:
        OSError: one of them cannot be read.
    """
    with contextlib.ExitStack() as files:
        whole = files.enter_context(open(open_file(path, os.O_NOFOLLOW), "rb"))
        saved = None if part is None else files.enter_context(open(open_file(part, os.O_NOFOLLOW), "rb"))
        left_bytes = os.fstat(whole.fileno()).st_size - position
        if not 0 <= left_bytes <= size_bytes:
            return False
        whole.seek(position)
        while block := whole.read(_BLOCK_BYTES):
            expected = b"" if saved is None else saved.read(len(block))
            if block.strip(b"\0") and block != expected and not _is_torn(block, expected):
                return False
    return True


def _is_torn(block: bytes, whole: bytes) -> bool:
    """Whether *block* is *whole*, of the same size, with zeros in the place of some bytes."""
    found = np.frombuffer(block, np.uint8)
    return len(whole) == len(block) and not np.any((found != np.frombuffer(whole, np.uint8)) & (found != 0))


def content_problem(descriptor: int, size_bytes: int, digest: Digest | None) -> str | None:
    """Return what is wrong with an open file that was *size_bytes* long and had *digest*, as text; None if nothing."""
    actual_bytes = os.fstat(descriptor).st_size
    if actual_bytes != size_bytes:
        return f"{actual_bytes} bytes instead of {size_bytes}"
    if digest is None:
        return None
    is_same = (
        0 <= digest.hashed_bytes <= size_bytes
        and (digest.hashed_bytes == size_bytes or _used_bytes(descriptor, size_bytes) <= digest.hashed_bytes)
        and sha256_of(descriptor, digest.hashed_bytes) == digest.sha256
    )
    return None if is_same else "its SHA-256 is not the one in the manifest"


def sha256_of(descriptor: int, size_bytes: int) -> str:
    """Return the SHA-256, hex, of the first bytes of an open file."""
    hashed = hashlib.sha256()
    position = 0
    while position < size_bytes and (
        chunk := os.pread(descriptor, min(size_bytes - position, _BLOCK_BYTES), position)
    ):
        hashed.update(chunk)
        position += len(chunk)
    return hashed.hexdigest()


def _used_bytes(descriptor: int, size_bytes: int) -> int:
    """Return the position after the last byte of a file that is not zero."""
    end = _data_end(descriptor, size_bytes)
    while end > 0:
        begin = (end - 1) // _BLOCK_BYTES * _BLOCK_BYTES
        used = _trimmed_bytes(read_at(descriptor, begin, end - begin))
        if used:
            return begin + used
        end = begin
    return 0


def _trimmed_bytes(block: bytes) -> int:
    """Return the length of *block* without the zeros at its end: `rstrip` looks at one byte at a time."""
    for begin in range((len(block) - 1) // len(_ZEROS) * len(_ZEROS), -1, -len(_ZEROS)):
        part = block[begin : begin + len(_ZEROS)]
        if not _ZEROS.startswith(part):
            return begin + len(part.rstrip(b"\0"))
    return 0


def _data_end(descriptor: int, size_bytes: int) -> int:
    """Return where the last data before a hole at the end of a file ends; its size if the file system does not say."""
    end = 0
    try:
        while end < size_bytes:
            end = os.lseek(descriptor, os.lseek(descriptor, end, os.SEEK_DATA), os.SEEK_HOLE)
    except OSError as error:
        return end if error.errno == errno.ENXIO else size_bytes
    return min(end, size_bytes)
