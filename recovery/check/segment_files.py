"""How the check of a segment reads its files: here from a folder, elsewhere from an archive.

Everything in a folder is read with `pread`: nothing that a live broker does to a file can end the process.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Protocol

import numpy as np

from recovery.read.file_system import fill, open_file
from recovery.read.opened_log import OpenedFile, OpenedLog

MOST_INDEX_BYTES = 32 << 20


class SegmentFiles(Protocol):
    """The files of a segment, by the names that Kafka gives them."""

    def open(self, name: str) -> OpenedLog:
        """Open a log.

        Raises:
            OSError: it cannot be opened.
        """
        ...

    def read_index(self, name: str, take: Callable[[int], None]) -> tuple[bytes, int]:
        """Return the first bytes of an index, as many as are checked, and its size.

        *take* is called with their number before they are read.

        Raises:
            FileNotFoundError: there is no such index.
            OSError: it cannot be read.
        """
        ...


class FolderSegmentFiles:
    """The files of a segment in a partition's folder.

    Args:
        folder: its path.
        drops_cache: whether what is read from disk is dropped from the page cache again.
    """

    def __init__(self, folder: str, *, drops_cache: bool = False) -> None:
        self._folder = folder
        self._drops_cache = drops_cache

    def open(self, name: str) -> OpenedFile:
        """Open a log."""
        return OpenedFile(os.path.join(self._folder, name), gives_back=self._drops_cache)

    def read_index(self, name: str, take: Callable[[int], None]) -> tuple[bytes, int]:
        """Return the first bytes of an index, and its size; what is not a regular file is not an index."""
        path = os.path.join(self._folder, name)
        try:
            descriptor = open_file(path)
        except OSError as error:
            if error.errno == errno.EINVAL:
                raise FileNotFoundError(errno.ENOENT, "not a regular file", path) from error
            raise
        try:
            found_bytes = os.fstat(descriptor).st_size
            size = min(found_bytes, MOST_INDEX_BYTES)
            take(size)
            data = np.zeros(size, np.uint8)
            return data[: fill(memoryview(data.data), descriptor, 0)].tobytes(), found_bytes
        finally:
            os.close(descriptor)
