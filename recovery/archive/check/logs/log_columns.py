"""The logs of one partition as columns, for the fold: the sound ones, part by part, then the others."""

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
        sound: those without faults.
        scanned: the others.

    Attributes:
        base_offsets: of the segments; int64, shape (n,), as the following ones.
        first_offsets: base offset of the first batch, UNKNOWN without one or if it is not in the header.
        end_offsets: after the last batch, UNKNOWN if that is not known.
        has_compacted: whether a batch holds fewer records than offsets; bool, shape (n,).
        was_read: whether anything is known of the log; bool, shape (n,).
    """

    def __init__(self, sound: Sequence[SoundLogs], scanned: Sequence[ScannedSegment]) -> None:
        self._sound = sound
        self._scanned = scanned
        self._starts: list[int] = np.cumsum([0, *map(len, sound)]).tolist()
        results = [scanned_log.result for scanned_log in scanned]
        self.base_offsets = _joined(
            [np.array(sound_logs.segments.base_offsets, np.int64) for sound_logs in sound],
            [scanned_log.segment.base_offset for scanned_log in scanned],
        )
        self.first_offsets = _joined(
            [sound_logs.first_offsets for sound_logs in sound],
            [None if result is None else result.first_offset for result in results],
        )
        self.end_offsets = _joined(
            [sound_logs.last_offsets for sound_logs in sound],
            [scanned_log.end_offset for scanned_log in scanned],
        )
        ends = self.end_offsets[: self._starts[-1]]
        ends[:] = np.where(ends < 0, self.base_offsets[: len(ends)], ends + 1)
        compacted = np.array([result is not None and result.has_compacted for result in results], np.bool_)
        self.has_compacted = np.concatenate([*(sound_logs.has_compacted for sound_logs in sound), compacted])
        read = np.array([result is not None for result in results], np.bool_)
        self.was_read = np.concatenate([np.ones(len(ends), np.bool_), read])

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.base_offsets)

    def in_order(self) -> npt.NDArray[np.int64]:
        """Return the numbers of all logs, sorted by base offset, then by id."""
        ids = [segment_id for sound_logs in self._sound for segment_id in sound_logs.segments.segment_ids]
        ids += [scanned_log.segment.segment_id for scanned_log in self._scanned]
        if not any(ids):
            return np.argsort(self.base_offsets, kind="stable")
        return np.lexsort((np.array(ids), self.base_offsets))

    def scanned_at(self, number: int) -> ScannedSegment | None:
        """Return what was found in a log; None for a sound one."""
        start = self._starts[-1]
        return None if number < start else self._scanned[number - start]

    def segment_at(self, number: int) -> ArchivedSegment:
        """Return a segment."""
        scanned = self.scanned_at(number)
        if scanned is not None:
            return scanned.segment
        part = bisect_right(self._starts, number) - 1
        return self._sound[part].segments[number - self._starts[part]]

    def result_at(self, number: int, task: SegmentTask) -> SegmentResult:
        """Return what the checks of neighbours need of a log that was read; *task* is used for a sound one."""
        scanned = self.scanned_at(number)
        if scanned is not None:
            assert scanned.result is not None
            return scanned.result
        first, end = int(self.first_offsets[number]), int(self.end_offsets[number])
        size_bytes = self.segment_at(number).parts[PartKind.LOG].size_bytes
        return SegmentResult(
            task=task,
            first_offset=None if first == UNKNOWN else first,
            last_offset=None if end == task.base_offset else end - 1,
            checked_bytes={task.log: size_bytes},
        )


def _joined(columns: Sequence[_Offsets], rest: Sequence[int | None]) -> _Offsets:
    last = np.array([UNKNOWN if offset is None else offset for offset in rest], np.int64)
    return np.concatenate([*columns, last])
