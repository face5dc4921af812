"""An open log: a local file, or its counterpart in an archive.

A file is read with `pread`: nothing that a live broker does to it can end the process.
"""

from __future__ import annotations

import os
from typing import Protocol

import numpy as np
import numpy.typing as npt

from recovery.read.file_system import fill, naming, open_file
from recovery.read.page_cache import STEP_BYTES, CachedFile


class OpenedLog(Protocol):
    """A file that is read forwards, window by window."""

    @property
    def end_position(self) -> int:
        """Its size in bytes when it was opened."""
        ...

    def read_at(self, target: npt.NDArray[np.uint8], position: int) -> int:
        """Fill *target* from *position* on; return how many bytes there were.

        Raises:
            OSError: it cannot be read.
        """
        ...

    def approach(self, position: int) -> None:
        """Have the bytes after *position* read ahead."""
        ...

    def leave(self, position: int) -> None:
        """Forget the bytes before *position*."""
        ...

    def close(self) -> None:
        """Release it."""
        ...


class FilePart:
    """A part of an open file, as if it were a log of its own; whoever opened the file closes it.

    Args:
        descriptor: open for reading.
        origin_position: where the part begins in the file.
        size_bytes: of the part.
        start_position: in the part; the bytes before it will not be read.
        gives_back: whether what is read from disk leaves the page cache again.
    """

    def __init__(
        self,
        descriptor: int,
        *,
        size_bytes: int,
        origin_position: int = 0,
        start_position: int = 0,
        gives_back: bool = False,
    ) -> None:
        self._descriptor = descriptor
        self._origin = origin_position
        self._size_bytes = size_bytes
        self._cached: CachedFile | None = None
        if gives_back or size_bytes > STEP_BYTES:  # a smaller part is read at once
            self._cached = CachedFile(
                descriptor,
                gives_back=gives_back,
                position=origin_position + start_position,
                end_position=origin_position + size_bytes,
            )

    @property
    def end_position(self) -> int:
        """Size of the part."""
        return self._size_bytes

    def read_at(self, target: npt.NDArray[np.uint8], position: int) -> int:
        """Fill *target* from *position* on; return how many bytes there were."""
        return fill(memoryview(target.data), self._descriptor, self._origin + position)

    def approach(self, position: int) -> None:
        """Have the bytes after *position* read from disk."""
        if self._cached is not None:
            self._cached.approach(self._origin + position)

    def leave(self, position: int) -> None:
        """Drop the bytes before *position* that were not in the page cache at the start."""
        if self._cached is not None:
            self._cached.leave(self._origin + position)

    def close(self) -> None:
        """Do nothing: whoever opened the file closes it."""


class OpenedFile(FilePart):
    """A file of a file system.

    Args:
        path: of the file.
        gives_back: whether what is read from disk leaves the page cache again.
    """

    def __init__(self, path: str, *, gives_back: bool = False) -> None:
        descriptor = open_file(path)
        self._path = path
        try:
            super().__init__(descriptor, size_bytes=os.fstat(descriptor).st_size, gives_back=gives_back)
        except BaseException:
            os.close(descriptor)
            raise

    def read_at(self, target: npt.NDArray[np.uint8], position: int) -> int:
        """Fill *target* from *position* on; return how many bytes there were. An error names the file."""
        with naming(self._path):
            return super().read_at(target, position)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)
