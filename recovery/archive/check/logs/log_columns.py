"""The logs of one partition as columns, for the fold: the sound ones, part by part, and behind them the others."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from recovery.archive.check.logs.sound_logs import SoundLogs
from recovery.archive.check.scanned import ScannedSegment
from recovery.archive.stores.archived import ArchivedSegment, PartKind
from recovery.check.task import SegmentResult, SegmentTask

UNKNOWN = -1
_Offsets = npt.NDArray[np.int64]


class LogColumns:
    """The logs of one partition.

    Args:
        sound: those that nothing is wrong with.
        scanned: the others.

    Attributes:
        base_offsets: of the segments; int64, shape (n,), as the following ones.
        first_offsets: base offset of the first batch, UNKNOWN without one or where it is not in the header.
        end_offsets: behind the last batch, UNKNOWN where that is not known.
        has_compacted: whether a batch holds fewer records than offsets; bool, shape (n,).
        was_read: whether anything is known of the log; bool, shape (n,).
    """

    def __init__(self, sound: Sequence[SoundLogs], scanned: Sequence[ScannedSegment]) -> None:
        self._sound = sound
        self._scanned = scanned
        self._starts: list[int] = np.cumsum([0, *map(len, sound)]).tolist()
        results = [one.result for one in scanned]
        self.base_offsets = _joined(
            [np.array(one.segments.base_offsets, np.int64) for one in sound],
            [one.segment.base_offset for one in scanned],
        )
        self.first_offsets = _joined(
            [one.first_offsets for one in sound],
            [None if result is None else result.first_offset for result in results],
        )
        self.end_offsets = _joined([one.last_offsets for one in sound], [one.end_offset for one in scanned])
        ends = self.end_offsets[: self._starts[-1]]
        ends[:] = np.where(ends < 0, self.base_offsets[: len(ends)], ends + 1)
        compacted = np.array([result is not None and result.has_compacted for result in results], np.bool_)
        self.has_compacted = np.concatenate([*(one.has_compacted for one in sound), compacted])
        read = np.array([result is not None for result in results], np.bool_)
        self.was_read = np.concatenate([np.ones(len(ends), np.bool_), read])

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.base_offsets)

    def in_order(self) -> npt.NDArray[np.int64]:
        """Return the places of all logs by base offset, then by id."""
        ids = [segment_id for one in self._sound for segment_id in one.segments.segment_ids]
        ids += [one.segment.segment_id for one in self._scanned]
        if not any(ids):
            return np.argsort(self.base_offsets, kind="stable")
        return np.lexsort((np.array(ids), self.base_offsets))

    def scanned_at(self, place: int) -> ScannedSegment | None:
        """Return what was found in a log; None for a sound one."""
        start = self._starts[-1]
        return None if place < start else self._scanned[place - start]

    def segment_at(self, place: int) -> ArchivedSegment:
        """Return a segment."""
        scanned = self.scanned_at(place)
        if scanned is not None:
            return scanned.segment
        part = bisect_right(self._starts, place) - 1
        return self._sound[part].segments[place - self._starts[part]]

    def result_at(self, place: int, task: SegmentTask) -> SegmentResult:
        """Return of a log that was read what the checks of neighbours look at; *task* is that of a sound one."""
        scanned = self.scanned_at(place)
        if scanned is not None:
            assert scanned.result is not None
            return scanned.result
        first, end = int(self.first_offsets[place]), int(self.end_offsets[place])
        size_bytes = self.segment_at(place).parts[PartKind.LOG].size_bytes
        return SegmentResult(
            task=task,
            first_offset=None if first == UNKNOWN else first,
            last_offset=None if end == task.base_offset else end - 1,
            checked_bytes={task.log: size_bytes},
        )


def _joined(columns: Sequence[_Offsets], rest: Sequence[int | None]) -> _Offsets:
    last = np.array([UNKNOWN if one is None else one for one in rest], np.int64)
    return np.concatenate([*columns, last])
