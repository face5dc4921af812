"""Where logs end, by their tails, and what earlier segments have after the end of a later one.

After a change of leader segments of tiered storage may overlap: a later one may end before an earlier one does, and the
rest of that one follows. By names alone nothing shows it, so at the end of a segment that does not reach the next one,
and at the end of the archive, the ends of a few segments before it are looked up. What a run reads depends on this
alone, and not on which segments are in the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from recovery.archive.layouts.layout import ArchivedFiles, Layout
from recovery.archive.layouts.log_windows import MOST_BATCH_BYTES, BatchWindow, LogWindows
from recovery.archive.records.batch_heads import Fault
from recovery.archive.records.read_request import MOST_EARLIER, PlannedSegment, PlannedSegments, Told
from recovery.archive.records.run_files import described_files, index_positions
from recovery.archive.records.segment_bounds import end_by_indexes
from recovery.archive.stores.archived import PartKind
from recovery.archive.stores.store import Store
from recovery.check.rules.batches import are_wrappers
from segfmt.byte_layout import NO_PARTITION_LEADER_EPOCH
from segfmt.errors import FormatError
from segfmt.filenames import log_name

Identity = tuple[str, int, str]
"""Key, bytes and version of a log."""


class Tail(NamedTuple):
    """The end of a log.

    Attributes:
        end_offset: after its last sound batch that continues another.
        known_end: the same by what its files know of it; a log that was cut does not reach it.
        epoch: leader epoch of that batch, None if it is not known.
        fault: why nothing says how the log is to be read; None for a log that can be.
    """

    end_offset: int
    known_end: int
    epoch: int | None
    fault: Fault | None = None


class Rest(NamedTuple):
    """The offsets from *start* on and before *end* of a segment, which follow the end of a later one."""

    planned: PlannedSegment
    start: int
    end: int


class LogTails:
    """Looks up the ends of the logs of an archive, each once.

    Args:
        store: the archive.
        layout: its layout.
        kept: what was found before.
        most_batch_bytes: a larger batch counts as one that cannot be read.

    Attributes:
        found: what was looked up, or was kept.
    """

    def __init__(
        self,
        store: Store,
        layout: Layout,
        kept: Mapping[Identity, Tail] | None = None,
        *,
        most_batch_bytes: int = MOST_BATCH_BYTES,
    ) -> None:
        self._store = store
        self._layout = layout
        self._kept = kept or {}
        self._most_batch_bytes = most_batch_bytes
        self.found: dict[Identity, Tail] = {}

    def of(self, planned: PlannedSegment) -> Tail:
        """Return the end of a segment's log; its base offset without a log, or without a description to read it by."""
        base_offset, log = planned.segment.base_offset, planned.segment.parts.get(PartKind.LOG)
        if planned.told is not None:  # a task reports it if the log is missing, or another one
            return _told_tail(planned.told)
        if log is None:
            return Tail(base_offset, base_offset, None)
        identity = log.key, log.size_bytes, log.version
        tail = self.found.get(identity) or self._kept.get(identity)
        if tail is None:
            tail = self._read(planned)
        if tail.fault is None:  # what is wrong may be mended
            self.found[identity] = tail
        return tail

    def has_rests(self, planned: PlannedSegment) -> bool:
        """Return whether earlier segments may go on after a segment, for all that anybody has said of it."""
        return self._layout.is_tiered and planned.told is None

    def rests(
        self,
        earlier: Sequence[PlannedSegment],
        planned: PlannedSegment,
        start: int,
        *,
        is_sound: bool = False,
    ) -> Iterator[Rest]:
        """Yield what *earlier* segments have from *start* on, up to where the one after *planned* begins.

        An earlier leader's batches were cut off where a new one began, so they do not follow it.

        Args:
            earlier: the segments before it, ascending.
            planned: the segment.
            start: the offset after its last batch.
            is_sound: take logs as far as they are sound, not as far as they are known.
        """
        if not self.has_rests(planned):
            return
        epoch, limit = None, planned.end_offset
        if earlier and (limit is None or start < limit):
            epoch = self.of(planned).epoch
        while limit is None or start < limit:
            for other in reversed(earlier):
                tail = self.of(other)
                end = tail.end_offset if is_sound else tail.known_end
                if end > start and (epoch is None or tail.epoch is None or tail.epoch >= epoch):
                    break
            else:
                return
            end = end if limit is None else min(end, limit)
            yield Rest(other, start, end)
            start, epoch = end, tail.epoch

    def last_row(self, planned: PlannedSegments) -> int:
        """Return the row of the segment that the archive ends with: the last one, or one before it that goes on."""
        last = len(planned) - 1
        if not self.has_rests(planned[last]):
            return last
        first = max(0, last - MOST_EARLIER)
        earlier = [planned[row] for row in range(first, last)]
        end_offset = self.of(planned[last]).end_offset
        for rest in self.rests(earlier, planned[last], end_offset, is_sound=True):
            last = first + earlier.index(rest.planned)
        return last

    def _read(self, planned: PlannedSegment) -> Tail:
        segment = planned.segment
        base_offset = segment.base_offset
        files = described_files(self._store, self._layout, segment)
        if isinstance(files, Fault):
            return Tail(base_offset, base_offset, None, files)
        described = files.described()
        if described is not None:
            return _told_tail(Told.by(described))
        log = files.open(log_name(base_offset))
        try:
            # The last batch may be that of the last entry, and has one before it.
            for position in (*_positions(files, base_offset)[-2:-1], 0):
                windows = LogWindows(
                    log,
                    base_offset=base_offset,
                    is_last=planned.is_last,
                    most_batch_bytes=self._most_batch_bytes,
                    position=position,
                )
                end_offset, epoch, is_sound = _last_end(windows, base_offset, is_begin=not position)
                if is_sound:
                    break
        finally:
            log.close()
        known_end = end_by_indexes(planned, files, end_offset) if self._layout.is_tiered else end_offset
        return Tail(end_offset, known_end, epoch)


def _told_tail(told: Told) -> Tail:
    epoch = told.leader_epochs[-1].epoch if told.leader_epochs else None
    return Tail(told.end_offset + 1, told.end_offset + 1, epoch)


def _last_end(windows: LogWindows, base_offset: int, *, is_begin: bool) -> tuple[int, int | None, bool]:
    """Return the offset after the last sound batch that continues another, its epoch, and whether all batches are such.

    Args:
        windows: of the log.
        base_offset: of the segment.
        is_begin: whether they begin with the log, so that the first batch has the base offset of the segment.
    """
    end_offset, epoch, is_sound = base_offset, None, True
    before: int | None = base_offset if is_begin else None
    for window in windows:
        if not isinstance(window, BatchWindow):
            is_sound &= not window.is_damage
            before = None
            continue
        rows = window.rows[window.is_valid]
        is_sound &= len(rows) == len(window.rows)
        if not len(rows):
            continue
        ends = rows["last_offset"] + np.int64(1)
        follows = are_wrappers(rows)  # nothing but the offset of their last record is known of these
        follows[1:] |= rows["base_offset"][1:] == ends[:-1]
        follows[0] |= before == int(rows["base_offset"][0])
        is_sound &= bool(follows[0 if before is not None else 1 :].all())
        if follows.any():
            last = int(np.argmax(np.where(follows, ends, -1)))
            if int(ends[last]) > end_offset:
                end_offset, epoch = int(ends[last]), _known_epoch(rows[last])
        before = int(ends[-1])
    return end_offset, epoch, is_sound and end_offset > base_offset


def _known_epoch(row: np.void) -> int | None:
    """Return the leader epoch of a batch, None for one without: of magic 0 or 1, or by an old client."""
    epoch = int(row["leader_epoch"])
    return None if epoch == NO_PARTITION_LEADER_EPOCH else epoch


def _positions(files: ArchivedFiles, base_offset: int) -> list[int]:
    """Return the positions in the offset index that lie in the log, none without a sound index."""
    try:
        size_bytes = files.log_bytes()
        return [position for position in index_positions(files, base_offset) if 0 <= position < size_bytes]
    except FormatError:
        return []
