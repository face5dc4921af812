"""A file of a log dir as it is read for a copy: hashed on the way, and ended by the first byte that cannot be read.

A disk that fails is asked as little as possible: a window that cannot be read is gone through in blocks up to the bad
one, without reading ahead, and neither that block nor what comes after it is asked for again.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable, Iterable
from contextlib import suppress

from recovery.read.rate_limit import RateLimit
from recovery.stop_request import StopRequest

_BLOCK_ERRNOS = frozenset({errno.EIO, errno.EUCLEAN, errno.EBADMSG, errno.ENODATA})
"""Of a bad block, or of a file system's own records of where some blocks are: those before can be read."""
BLOCK_BYTES = 4 << 10
"""What a disk reads at once: where a larger read fails, the first bad block is looked for."""


class ReadFile:
    """The bytes of an open file, once, from its beginning to a position. Holes are not read: they are zeros.

    Args:
        descriptor: open for reading.
        end_position: where it ends.
        on_bytes: told how many bytes were read, each time.
        marks: positions up to which the digest is wanted, too.

    Attributes:
        sha256_at: the digest up to each of the marks that were passed.
        is_blank: whether all that was read are zeros, or nothing was.
        position: of the next byte; after an error, of the first one that could not be read.
        error: why reading ended early, None if it did not.
    """

    def __init__(
        self,
        descriptor: int,
        end_position: int,
        limit: RateLimit,
        stop: StopRequest,
        *,
        on_bytes: Callable[[int], None] | None = None,
        marks: Iterable[int] = (),
    ) -> None:
        self._descriptor = descriptor
        self._end_position = end_position
        self._limit = limit
        self._stop = stop
        self._on_bytes = on_bytes
        self._digest = hashlib.sha256()
        self._marks = sorted(set(marks))
        self.sha256_at: dict[int, str] = {}
        self._extent_end = 0
        self._is_hole = False
        self.is_blank = True
        self.position = 0
        self.error: OSError | None = None

    def read(self, size_bytes: int, /) -> bytes:
        """Return the next bytes, at most so many; none at the end, and where they cannot be read.

        Raises:
            InterruptedRecoveryError: the run is to end.
        """
        self._stop.check()
        if self.error is not None or self.position >= self._end_position:
            return b""
        if self.position >= self._extent_end:
            self._find_extent()
        wanted = min(size_bytes, self._extent_end - self.position)
        if self._is_hole:
            data = bytes(wanted)
        else:
            self._limit.take(wanted)
            data = self._read_window(wanted)
        self.is_blank = self.is_blank and not data.strip(b"\0")
        self._hash(memoryview(data))
        if self._on_bytes is not None and data:
            self._on_bytes(len(data))
        return data

    def sha256(self) -> str:
        """Return the digest of what was read."""
        return self._digest.hexdigest()

    def _hash(self, data: memoryview) -> None:
        while self._marks and self._marks[0] <= self.position + len(data):
            mark = self._marks.pop(0)
            self._digest.update(data[: mark - self.position])
            self.sha256_at[mark] = self._digest.hexdigest()
            data, self.position = data[mark - self.position :], mark
        self._digest.update(data)
        self.position += len(data)

    def _find_extent(self) -> None:
        """Find out whether a hole or data begin at the position, and where they end."""
        self._is_hole, self._extent_end = False, self._end_position
        with suppress(OSError):  # not every file system knows its holes
            try:
                start = os.lseek(self._descriptor, self.position, os.SEEK_DATA)
            except OSError as error:
                # No data from here to the end, if that is still where it was
                self._is_hole = error.errno == errno.ENXIO and self._has_size()
                return
            self._is_hole = start > self.position
            end = start if self._is_hole else os.lseek(self._descriptor, self.position, os.SEEK_HOLE)
            self._extent_end = min(end, self._end_position)

    def _has_size(self) -> bool:
        return os.fstat(self._descriptor).st_size >= self._end_position

    def _read_window(self, wanted: int) -> bytes:
        """Return the bytes of a window; those before the first bad block if it has one, and note the error."""
        try:
            data = os.pread(self._descriptor, wanted, self.position)
        except OSError as error:
            if error.errno not in _BLOCK_ERRNOS or wanted <= BLOCK_BYTES:
                self.error = error
                return b""
            return self._read_blocks(wanted)
        if not data:
            self.error = OSError(errno.EIO, "the file became shorter while it was read")
        return data

    def _read_blocks(self, wanted: int) -> bytes:
        """Return the bytes of a window that cannot be read at once, block by block up to the bad one."""
        with suppress(OSError):
            os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_RANDOM)
            # Else the kernel would ask for all blocks of a large page again, for each of them
            os.posix_fadvise(self._descriptor, self.position, wanted, os.POSIX_FADV_DONTNEED)
        position, end = self.position, self.position + wanted
        blocks = []
        while position < end:
            self._stop.check()
            size_bytes = min(BLOCK_BYTES - position % BLOCK_BYTES, end - position)
            try:
                block = os.pread(self._descriptor, size_bytes, position)
            except OSError as error:
                self.error = error
                break
            if not block:
                break  # the next read finds out that the file is shorter
            blocks.append(block)
            position += len(block)
        with suppress(OSError):  # the window can be read, after all
            os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_NORMAL)
        return b"".join(blocks)


def block_error(descriptor: int, position: int) -> OSError | None:
    """Return why the block at *position* cannot be read, None if it can."""
    try:
        os.pread(descriptor, BLOCK_BYTES - position % BLOCK_BYTES, position)
    except OSError as error:
        return error
    return None
