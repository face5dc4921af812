"""What a run keeps on disk while it works: nobody else can open it, and nothing of it stays behind."""

from __future__ import annotations

import os
import tempfile
import threading
from types import TracebackType
from typing import Self

from recovery.read.file_system import read_at


class UnnamedFile:
    """A temporary file without a name, to which any thread may append.

    Args:
        waiting: what waits there, for the error if there is no room for it.
    """

    def __init__(self, waiting: str) -> None:
        self._waiting = waiting
        self._file = tempfile.TemporaryFile(prefix="kafka-log-recovery-")  # noqa: SIM115 - closed on exit
        self._lock = threading.Lock()
        self._size_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    @property
    def size_bytes(self) -> int:
        """The bytes appended so far."""
        return self._size_bytes

    def append(self, data: bytes) -> int:
        """Write *data* at the end, and return its position.

        Raises:
            OSError: there is no room for it; names the folder and the remedy.
        """
        with self._lock:
            position = self._size_bytes
            self._size_bytes += len(data)
        try:
            view = memoryview(data)
            while view:
                view = view[os.pwrite(self._file.fileno(), view, position + len(data) - len(view)) :]
        except OSError as error:
            remedy = f"{self._waiting} there; set TMPDIR to a folder with more room"
            raise OSError(error.errno, f"{error.strerror}: {remedy}", tempfile.gettempdir()) from error
        return position

    def read(self, position: int, size_bytes: int) -> bytes:
        """Return bytes that were appended."""
        return read_at(self._file.fileno(), position, size_bytes)
