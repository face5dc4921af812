"""A log of which pieces cannot be restored: the error that says so, and the log with holes in their place."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from recovery.read.opened_log import OpenedLog
from segfmt.errors import FormatError


class ChunkError(FormatError):
    """A piece of a log, or an index, that cannot be restored from its object.

    Attributes:
        start_position, end_position: of the piece in the log; `position` is where it begins in the object.
    """

    def __init__(
        self, message: str, *, position: int = 0, start_position: int = 0, end_position: int = 0
    ) -> None:
        super().__init__(message, position=position)
        self.start_position = start_position
        self.end_position = end_position


class HoledLog:
    """A log with zeros in place of what cannot be restored.

    Args:
        log: opened; the caller closes it.
    """

    def __init__(self, log: OpenedLog) -> None:
        self._log = log
        self._holes: dict[int, ChunkError] = {}

    @property
    def end_position(self) -> int:
        """Its size in bytes."""
        return self._log.end_position

    def read_at(self, target: npt.NDArray[np.uint8], position: int) -> int:
        """Fill *target* from *position* on; return how many bytes there were.

        Raises:
            OSError: it cannot be read.
        """
        done = 0
        while done < len(target):
            try:
                return done + self._log.read_at(target[done:], position + done)
            except ChunkError as hole:
                self._holes[hole.start_position] = hole
                start = max(done, hole.start_position - position)  # up to there it was read
                done = min(len(target), hole.end_position - position)
                target[start:done] = 0
        return done

    def approach(self, position: int) -> None:
        """Have the bytes after *position* read ahead."""
        self._log.approach(position)

    def leave(self, position: int) -> None:
        """Forget the bytes before *position*."""
        self._log.leave(position)

    def close(self) -> None:
        """Do nothing: whoever opened the log closes it."""

    def hole_in(self, start: int, end: int) -> ChunkError | None:
        """Return the first hole that was met between two positions, None without one."""
        met = [
            hole for hole in self._holes.values() if hole.start_position < end and hole.end_position > start
        ]
        return min(met, key=lambda hole: hole.start_position, default=None)

    def end_of_holes(self, position: int) -> int:
        """Return where the first hole after *position* that was met ends, with those that follow it at once.

        Without one that is *position* itself.
        """
        hole = self.hole_in(position, self.end_position)
        end = position
        while hole is not None:
            end = hole.end_position
            hole = self._holes.get(end)
        return end
