"""Which offsets the logs of a partition have in which leader epoch, while its segments come in by base offset.

After an unclean election a segment that is missing in one history is hidden by the other one, which has its offsets.
The leader epochs of the next segment tell in which epoch the offset before it was written.
"""

from __future__ import annotations

from collections.abc import Sequence

from recovery.archive.check.scanned import ScannedSegment
from segfmt.checkpoint import LeaderEpochEntry
from segfmt.java_text import LONG_MAX

_UNKNOWN = -1
"""The epoch of offsets whose batches have none, or were not read."""


class EpochCover:
    """The offsets of all logs so far, by leader epoch."""

    def __init__(self) -> None:
        self._ranges: dict[
            int, list[tuple[int, int]]
        ] = {}  # first offset and the one after the last, by epoch

    def take(self, scanned: ScannedSegment) -> None:
        """Take in the next segment."""
        base_offset, result = scanned.segment.base_offset, scanned.result
        end_offset = LONG_MAX if scanned.end_offset is None else scanned.end_offset
        if result is None or not result.epoch_runs or not result.has_all_batches:
            self._add(_UNKNOWN, base_offset, end_offset)
            return
        starts = [base_offset, *(run.first_offset for run in result.epoch_runs[1:])]
        for run, start, end in zip(result.epoch_runs, starts, [*starts[1:], end_offset], strict=True):
            self._add(run.epoch, start, end)

    def end_of(self, epochs: Sequence[LeaderEpochEntry], base_offset: int) -> int | None:
        """Return where the logs of a history end before a segment that should continue them.

        Args:
            epochs: of the history, by the segment.
            base_offset: of the segment; it is returned where the logs reach it, or may do so.

        Returns None if no log of the history is there.
        """
        end_offset = None
        next_starts = [*(entry.start_offset for entry in epochs[1:]), base_offset]
        for (epoch, start), next_start in zip(epochs, next_starts, strict=False):
            last = min(next_start, base_offset)
            ends = [
                min(end, last)
                for number in (epoch, _UNKNOWN)
                for first, end in self._ranges.get(number, ())
                if first < last and end > start
            ]
            end_offset = max(ends, default=end_offset)
        return end_offset

    def _add(self, epoch: int, start: int, end: int) -> None:
        ranges = self._ranges.setdefault(epoch, [])
        if ranges and start <= ranges[-1][1]:  # segments come in by base offset
            ranges[-1] = ranges[-1][0], max(ranges[-1][1], end)
        else:
            ranges.append((start, end))
