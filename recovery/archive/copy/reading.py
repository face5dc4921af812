"""A file of a log dir as it is read for a copy: hashed on the way, and ended by the first byte that cannot be read."""

from __future__ import annotations

import errno
import hashlib
import os

from recovery.read.rate_limit import RateLimit
from recovery.stop_request import StopRequest

_BLOCK_BYTES = 4 << 10
"""What a disk reads at once: where a larger read fails, the first bad block is looked for."""


class ReadFile:
    """The bytes of an open file, once, from its beginning to a position.

    Args:
        descriptor: open for reading.
        end_position: where it ends.

    Attributes:
        position: of the next byte; after an error, of the first one that could not be read.
        error: why reading ended early, None if it did not.
    """

    def __init__(self, descriptor: int, end_position: int, limit: RateLimit, stop: StopRequest) -> None:
        self._descriptor = descriptor
        self._end_position = end_position
        self._limit = limit
        self._stop = stop
        self._digest = hashlib.sha256()
        self.position = 0
        self.error: OSError | None = None

    def read(self, size_bytes: int = -1, /) -> bytes:
        """Return the next bytes, at most so many; none at the end.

        Raises:
            OSError: they cannot be read, or the file is shorter than it was.
            InterruptedRecoveryError: the run is to end.
        """
        self._stop.check()
        left = self._end_position - self.position
        wanted = left if size_bytes < 0 else min(size_bytes, left)
        if not wanted:
            return b""
        self._limit.take(wanted)
        try:
            data = self._pread(wanted)
        except OSError as error:
            self.error = error
            raise
        self._digest.update(data)
        self.position += len(data)
        return data

    def sha256(self) -> str:
        """Return the digest of what was read."""
        return self._digest.hexdigest()

    def _pread(self, wanted: int) -> bytes:
        try:
            data = os.pread(self._descriptor, wanted, self.position)
        except OSError as error:
            if error.errno != errno.EIO or wanted <= _BLOCK_BYTES:
                raise
            data = os.pread(self._descriptor, _BLOCK_BYTES - self.position % _BLOCK_BYTES, self.position)
        if not data:
            raise OSError(errno.EIO, "the file became shorter while it was read")
        return data
