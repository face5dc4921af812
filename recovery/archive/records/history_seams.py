"""Whether the segments that are read one after another are of one history, where nothing but their names chose them.

After an unclean election two leaders have archived the same offsets with different records. The leader epochs of a
segment tell in which epoch the offset before it was written: a log that has that offset in another one is of a history
that was cut off. What is found does not depend on which segments a task has.
"""

from __future__ import annotations

from collections.abc import Sequence

from recovery.archive.layouts.layout import ArchivedFiles, Layout
from recovery.archive.records.batch_heads import Fault
from recovery.archive.records.log_tails import LogTails, Tail
from recovery.archive.records.read_request import PlannedSegment
from recovery.archive.records.run_files import RunFiles, told_of
from recovery.archive.stores.archived import PartKind, SegmentKey
from recovery.check.rules.epochs import epochs_between
from segfmt.checkpoint import LeaderEpochEntry

_Epochs = Sequence[LeaderEpochEntry]


class HistorySeams:
    """Judges the seams between the segments of a run.

    Args:
        layout: of the archive.
        files: of the segments.
        tails: of the logs.
    """

    def __init__(self, layout: Layout, files: RunFiles, tails: LogTails) -> None:
        self._layout = layout
        self._files = files
        self._tails = tails
        self._told: tuple[SegmentKey | None, _Epochs] = None, ()  # of the last one, and whose it is

    def judge(
        self, planned: PlannedSegment, files: ArchivedFiles, earlier: Sequence[PlannedSegment]
    ) -> Fault | None:
        """Return what is wrong with the offset before a segment, as it is read; None if nothing is, or is known.

        Args:
            planned: the segment.
            files: its own.
            earlier: the segments before it, ascending.
        """
        offset = planned.segment.base_offset - 1
        if planned.told is not None or not self._layout.is_tiered:
            return None
        key_before, told_before = self._told
        told = _told_epochs(planned, files)
        self._told = planned.segment.key, told
        if not earlier:
            return None
        if key_before != earlier[-1].segment.key:
            files_before = self._files.described(earlier[-1].segment)
            if isinstance(files_before, Fault):
                return None
            told_before = _told_epochs(earlier[-1], files_before)
        if told and told_before and told[0].epoch == _epoch_at(told_before, offset):
            return None  # batches of one epoch come from one leader
        before, own = told_before or self._checkpoint(earlier[-1]), self._checkpoint(planned)
        epochs = _epoch_at(before, offset), _epoch_at(own, offset)
        if None in epochs or epochs[0] == epochs[1]:
            return None
        tail = self._tails.of(earlier[-1])
        if tail.known_end <= offset:
            return None  # it has not that offset: it is missing, or comes from another segment
        if _contradicts(before, tail) or _contradicts(own, self._tails.of(planned)):
            return None  # the batches of one have that fault
        detail = (
            f"offset {offset} is of leader epoch {epochs[1]} by the checkpoint of this segment, and of {epochs[0]} in "
            "the segment before: after an unclean election that is another history. `metadata` tells the right one"
        )
        return Fault("leader-epoch", detail)

    def _checkpoint(self, planned: PlannedSegment) -> _Epochs:
        """Return the leader epochs that go with a segment, none if they or its log are not there."""
        files = self._files.described(planned.segment)
        if isinstance(files, Fault) or PartKind.LOG not in planned.segment.parts:
            return ()
        return self._files.leader_epochs(planned.segment, files) or ()


def _told_epochs(planned: PlannedSegment, files: ArchivedFiles) -> _Epochs:
    """Return what the manifest of a segment says of its leader epochs, none without one."""
    told = told_of(planned, files)
    return () if told is None else told.leader_epochs


def _contradicts(entries: _Epochs, tail: Tail) -> bool:
    """Return whether the last batch of a log is not of the epoch that *entries* give it."""
    last = _epoch_at(entries, tail.end_offset - 1)
    return None not in (tail.epoch, last) and tail.epoch != last


def _epoch_at(entries: _Epochs, offset: int) -> int | None:
    """Return the leader epoch of an offset, None if *entries* begin after it."""
    known = epochs_between(entries, offset, offset + 1)
    return known[0].epoch if known else None
