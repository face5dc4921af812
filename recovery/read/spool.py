"""Bytes that a fold has made and that are yet to be written: large ones wait on disk.

The indexes of a log are half a percent of it, which is gigabytes for a log of a terabyte. Here they are kept in a file
without a name, in the log dir if that is written to: nothing is left of it, however the process ends.
"""

from __future__ import annotations

import os
import tempfile
import threading
from typing import BinaryIO

from recovery.load.model import Blob
from recovery.read.file_system import read_at

LEAST_BYTES = 64 << 10
"""Smaller data stays in memory."""
_FREE_BYTES_PER_BYTE = 4
"""Free space required for each byte that waits: the files that are written in the end need the disk more."""


class Spool:
    """Keeps the bytes of one partition.

    Args:
        folder: a log dir; None for the system's folder of temporary files.
    """

    def __init__(self, folder: str | None) -> None:
        self._folder = folder
        self._file: BinaryIO | None = None
        self._size_bytes = 0
        self._lock = threading.Lock()

    def keep(self, data: bytes) -> Blob:
        """Return *data*, or a stand-in for it on disk; it stays in memory if there is no room or no such file."""
        if len(data) < LEAST_BYTES:
            return data
        try:
            with self._lock:
                if self._file is None:
                    self._file = self._open()
                position, self._size_bytes = self._size_bytes, self._size_bytes + len(data)
            status = os.fstatvfs(self._file.fileno())
            if status.f_bavail * status.f_frsize < _FREE_BYTES_PER_BYTE * (self._size_bytes + len(data)):
                return data
            view = memoryview(data)
            while view:
                view = view[os.pwrite(self._file.fileno(), view, position + len(data) - len(view)) :]
        except OSError:
            return data
        return SpooledBytes(self._file, position, len(data))

    def close(self) -> None:
        """Forget all that was kept."""
        if self._file is not None:
            self._file.close()

    def _open(self) -> BinaryIO:
        if self._folder is None:
            return tempfile.TemporaryFile(buffering=0)
        # Never with a name, not even for a moment: a kill would leave it in the log dir.
        descriptor = os.open(self._folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
        return open(descriptor, "r+b", buffering=0)


class SpooledBytes:
    """Bytes in a spool; read from disk each time they are needed."""

    __slots__ = ("_file", "_position", "_size_bytes")

    def __init__(self, file: BinaryIO, position: int, size_bytes: int) -> None:
        self._file = file
        self._position = position
        self._size_bytes = size_bytes

    def __len__(self) -> int:
        return self._size_bytes

    def __bytes__(self) -> bytes:
        data = read_at(self._file.fileno(), self._position, self._size_bytes)
        if len(data) < self._size_bytes:
            raise OSError(f"{len(data)} bytes of a temporary file, expected {self._size_bytes}")
        return data
