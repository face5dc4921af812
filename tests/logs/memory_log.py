"""A log in memory, opened: what reads windows of a log can be given any bytes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


class MemoryLog:
    """An `OpenedLog` of *data*."""

    def __init__(self, data: bytes) -> None:
        self._data = np.frombuffer(data, np.uint8)

    @property
    def end_position(self) -> int:
        """Its size."""
        return self._data.size

    def read_at(self, target: npt.NDArray[np.uint8], position: int) -> int:
        """Fill *target* from *position* on; return how many bytes there were."""
        part = self._data[position : position + target.size]
        target[: part.size] = part
        return part.size

    def approach(self, position: int) -> None:
        """Nothing is to be done."""

    def leave(self, position: int) -> None:
        """Nothing is to be done."""

    def close(self) -> None:
        """Nothing is to be done."""
