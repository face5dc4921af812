"""Which batches of a segment are not to be trusted although their checksums are right, window by window.

A checksum does not cover a batch's base offset, leader epoch and magic, and nothing in a batch says whether the one
before it is there. The rules are those of `archive verify` (`recovery.check.rules`); here each batch is judged before
its records are rows, so the bad one is the batch that goes back in the log, or that jumps ahead and is not continued.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from native.batch_headers import HeaderRows
from recovery.archive.records.batch_heads import CHECKSUM_FAULT, Fault
from recovery.archive.records.damage import MissingOffsets
from recovery.archive.records.foreign_logs import begins_elsewhere
from recovery.check.finding import Rule
from recovery.check.rules.batches import (
    EpochRun,
    HeaderFault,
    are_wrappers,
    epoch_runs,
    field_faults,
    out_of_order,
    range_faults,
)
from recovery.check.rules.epochs import find_contradictions
from segfmt import byte_layout
from segfmt.checkpoint import LeaderEpochEntry

Codes = npt.NDArray[np.int32]
"""Int32, shape (n,): 0 without a fault, else the number of its reason, from 1 on."""

_OTHER_LOG = (
    "the log of another segment, or one without its beginning: the offset index has no entry of its batches"
)
_TOLD = "which contradicts the metadata topic, or the manifest"


@dataclass(slots=True, kw_only=True)
class BatchFaults:
    """Judges the batches of one segment.

    Attributes:
        log: its name, for the rules.
        base_offset: from the segment's name.
        next_base_offset: that of the next one in the same folder; None in tiered storage.
        told_end_offset: its last offset, by the metadata topic or the manifest; None if that is not known.
        told_epochs: leader epochs of the segment by the same; None if they are not known.
        read_epochs: returns the lines of its leader-epoch checkpoint, None without one; called in each window, if its
            epochs were not told.
        expected_end_offset: where the next segment begins, or what was told of this one's end; None if not known.
        is_metadata_log: whether it is of `__cluster_metadata`.
        is_doubtful: whether something has been said against the log as a whole.
        is_foreign: returns whether it is the log of another segment (`foreign_logs`); called only if it is doubtful, or
            does not begin at the base offset.
        is_compacted: returns whether the log was ever compacted, so that gaps are no damage; called only at gaps.
        end_offset: after the last batch in order; base_offset before the first.
        is_after_damage: whether bytes, or a batch, were passed over since then.
        missing: offsets that no batch of the last window has; damage only in a log that was never compacted.
    """

    log: str
    base_offset: int
    next_base_offset: int | None = None
    told_end_offset: int | None = None
    told_epochs: Sequence[LeaderEpochEntry] | None = None
    read_epochs: Callable[[], Sequence[LeaderEpochEntry] | None] = lambda: None
    expected_end_offset: int | None = None
    is_metadata_log: bool = False
    is_doubtful: bool = False
    is_foreign: Callable[[], bool] = lambda: False
    is_compacted: Callable[[], bool] = lambda: False
    end_offset: int = field(init=False)
    is_after_damage: bool = False
    missing: list[MissingOffsets] = field(default_factory=list)
    _is_other_log: bool | None = None
    _runs: list[EpochRun] = field(default_factory=list)
    _reasons: list[Fault] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.end_offset = self.base_offset

    def skip(self) -> None:
        """Note that bytes are passed over: the next batch need not follow the last one."""
        self.is_after_damage = True

    def judge(self, rows: HeaderRows, is_valid: npt.NDArray[np.bool_]) -> tuple[Codes, list[Fault]]:
        """Return a code for each batch of the next window, and the reasons that the codes stand for.

        Args:
            rows: HEADER_ROW_DTYPE, shape (n,).
            is_valid: bool, shape (n,): whether their checksums are right.
        """
        codes = np.zeros(len(rows), np.int32)
        self._reasons, self.missing = [CHECKSUM_FAULT], []
        if self._is_other_log is None:
            is_doubtful = self.is_doubtful or (bool(is_valid[0]) and begins_elsewhere(self.base_offset, rows))
            self._is_other_log = is_doubtful and self.is_foreign()
        if self._is_other_log:
            self.skip()
            codes[:] = 1 + is_valid
            return codes, [CHECKSUM_FAULT, Fault("offset-range", _OTHER_LOG)]
        if is_valid.all():
            self._judge(rows, codes)
            return codes, self._reasons
        codes[~is_valid] = 1
        edges = np.flatnonzero(np.diff(is_valid, prepend=False, append=False)).reshape(-1, 2)
        for start, end in edges.tolist():  # stretches of sound batches
            if start:
                self.skip()
            self._judge(rows[start:end], codes[start:end])
        if not is_valid[-1]:
            self.skip()
        return codes, self._reasons

    def _judge(self, rows: HeaderRows, codes: Codes) -> None:
        for fault in range_faults(rows, base_offset=self.base_offset, next_base_offset=self.next_base_offset):
            self._mark(rows, codes, fault)
        told = self.told_end_offset
        if told is not None:
            is_beyond = rows["last_offset"] > told
            fault = HeaderFault(
                "metadata", is_beyond, lambda row: f"{_ends_at(row)}, it was archived up to {told}"
            )
            self._mark(rows, codes, fault)
        self._judge_order(rows, codes)
        for fault in field_faults(rows, is_metadata_log=self.is_metadata_log):
            self._mark(rows, codes, fault)
        self._judge_epochs(rows, codes)

    def _mark(self, rows: HeaderRows, codes: Codes, fault: HeaderFault) -> None:
        """Mark the batches with a fault, but for those that have one; neighbours share a text."""
        if not fault.is_bad.any():
            return
        is_bad = fault.is_bad & (codes == 0)
        edges = np.flatnonzero(np.diff(is_bad, prepend=False, append=False)).reshape(-1, 2)
        for start, end in edges.tolist():
            self._reasons.append(Fault(fault.rule, fault.describe(rows[start])))
            codes[start:end] = len(self._reasons)

    # -- order -----------------------------------------------------------------------------------------------

    def _judge_order(self, rows: HeaderRows, codes: Codes) -> None:
        """Mark what goes back, and what jumps ahead alone; note what is missing between the others."""
        own = np.flatnonzero(codes == 0) if codes.any() else np.arange(len(rows))
        if not len(own):
            self.skip()
            return
        first, last = rows["base_offset"][own], rows["last_offset"][own]
        before = self._ends_before(last)
        if bool((first == before).all()):  # as in every log that was never compacted
            self.end_offset, self.is_after_damage = int(last[-1]) + 1, False
            return
        is_wrapper = are_wrappers(rows)[own]
        own = own[self._in_order(first, last, is_wrapper)]
        is_back = np.zeros(len(rows), np.bool_)
        is_back[codes == 0] = True
        is_back[own] = False
        self._mark(rows, codes, HeaderFault("offset-order", is_back, out_of_order))
        own = own[~self._jumps_ahead(rows, codes, own)]
        if not len(own):
            self.skip()
            return
        last, is_gap, before = rows["last_offset"][own], *self._gaps(rows, own)
        is_gap &= np.diff(own, prepend=-1) == 1  # else a bad batch is there, which may have these offsets
        if is_gap.any() and not self.is_compacted():
            self.missing += [
                MissingOffsets(
                    int(before[number]),
                    int(rows["base_offset"][own[number]]),
                    int(rows["position"][own[number]]),
                    "offset-gap",
                    _gap_text(int(before[number]), rows[own[number]]),
                )
                for number in np.flatnonzero(is_gap).tolist()
            ]
        self.end_offset, self.is_after_damage = int(last[-1]) + 1, bool(own[-1] < len(rows) - 1)

    def _jumps_ahead(
        self, rows: HeaderRows, codes: Codes, own: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_]:
        """Mark the batches after a gap that no batch, nor the end of the segment, continues; return which these are.

        Its base offset is all that a batch says of its place, and no checksum covers it.
        """
        is_gap, before = self._gaps(rows, own)
        if not is_gap.any() or self.is_compacted():
            return np.zeros(len(own), np.bool_)
        first, last = rows["base_offset"][own], rows["last_offset"][own]
        is_continued = np.zeros(len(own), np.bool_)
        is_continued[:-1] = first[1:] == last[:-1] + 1
        is_continued[-1] = self.expected_end_offset == last[-1] + 1
        jumps = is_gap & ~is_continued
        is_bad = np.zeros(len(rows), np.bool_)
        is_bad[own] = jumps
        starts = (
            dict(zip(rows["position"][own].tolist(), before.tolist(), strict=True)) if jumps.any() else {}
        )
        self._mark(
            rows,
            codes,
            HeaderFault(
                "offset-gap",
                is_bad,
                lambda row: f"{_gap_text(starts[int(row['position'])], row)}, and none continues it",
            ),
        )
        return jumps

    def _gaps(
        self, rows: HeaderRows, own: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
        """Return which batches have a gap before them, and the offset after the batch before each."""
        before = self._ends_before(rows["last_offset"][own])
        is_gap = (rows["base_offset"][own] > before) & ~are_wrappers(rows)[own]
        if self.is_after_damage:
            is_gap[:1] = False
        return is_gap, before

    def _ends_before(self, last: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the offset after the batch before each."""
        before = np.empty(len(last), np.int64)
        before[:1] = self.end_offset
        before[1:] = last[:-1] + 1
        return before

    def _in_order(
        self, first: npt.NDArray[np.int64], last: npt.NDArray[np.int64], is_wrapper: npt.NDArray[np.bool_]
    ) -> npt.NDArray[np.int64]:
        """Return the numbers of the batches that remain in order, ascending, once the bad ones are taken out.

        Where a batch begins below the end of the one before, it has gone back; but if that one had left a gap, and this
        one fits before it, that one has jumped ahead.
        """
        kept = np.arange(len(first))
        while True:
            before = self._ends_before(last[kept])
            back = np.flatnonzero((first[kept] < before) | (last[kept] < before))
            if not len(back):
                return kept
            number = int(back[0])
            jumped = number - 1
            if (
                number
                and first[kept[jumped]] > before[jumped]
                and first[kept[number]] >= before[jumped]
                and not is_wrapper[kept[jumped]]
            ):
                kept = np.delete(kept, jumped)
                continue
            stays = np.flatnonzero(first[kept[number:]] >= before[number])
            end = int(stays[0]) if len(stays) else len(kept) - number
            kept = np.delete(kept, slice(number, number + end))

    # -- leader epochs ---------------------------------------------------------------------------------------

    def _judge_epochs(self, rows: HeaderRows, codes: Codes) -> None:
        """Mark the batches whose leader epochs contradict what was told of them, or the checkpoint."""
        runs = list(epoch_runs(rows))
        if not runs:
            return
        if self._runs and self._runs[-1].epoch == runs[0].epoch:
            runs[0] = self._runs.pop().joined(runs[0])
        self._runs += runs
        entries = self.read_epochs() if self.told_epochs is None else self.told_epochs
        if entries is None:
            return
        starts = np.array([entry.start_offset for entry in entries], np.int64)
        epochs = np.array([-1, *(entry.epoch for entry in entries)], np.int64)
        is_v2 = rows["magic"] >= byte_layout.MAGIC_V2
        line = np.searchsorted(starts, rows["base_offset"], side="right")
        differs = is_v2 & (epochs[line] != rows["leader_epoch"])
        if differs.any():
            self._mark_contradictions(rows, codes, entries, differs)
        last_line = np.searchsorted(starts, rows["last_offset"], side="right")
        is_within = is_v2 & (rows["leader_epoch"] >= 0) & (line > 0) & (last_line > line)
        rule: Rule = "epoch-content" if self.told_epochs is None else "metadata"
        self._mark(rows, codes, HeaderFault(rule, is_within, functools.partial(self._within_text, entries)))

    def _mark_contradictions(
        self,
        rows: HeaderRows,
        codes: Codes,
        entries: Sequence[LeaderEpochEntry],
        differs: npt.NDArray[np.bool_],
    ) -> None:
        """Mark the batches that differ from the lines, and are in a run of batches that contradicts them."""
        for run, finding in find_contradictions([(self.log, run) for run in self._runs], entries):
            is_own = (
                differs
                & (rows["leader_epoch"] == run.epoch)
                & (rows["base_offset"] >= run.first_offset)
                & (rows["base_offset"] <= run.last_offset)
            )
            rule, detail = finding.rule, finding.detail
            if self.told_epochs is not None:
                rule, detail = "metadata", _told_text(run.first_offset, run.epoch)
            self._mark(rows, codes, HeaderFault(rule, is_own, functools.partial(_text, detail)))

    def _within_text(self, entries: Sequence[LeaderEpochEntry], row: np.void) -> str:
        epoch, start = next(entry for entry in entries if entry.start_offset > row["base_offset"])
        if self.told_epochs is not None:
            return _told_text(start, int(row["leader_epoch"]))
        return f"epoch {epoch} starts at {start} in the checkpoint, within this batch of epoch {row['leader_epoch']}"


def _told_text(offset: int, epoch: int) -> str:
    return f"offset {offset} is of leader epoch {epoch}, {_TOLD}"


def _ends_at(row: np.void) -> str:
    return f"last offset {row['last_offset']} in the segment"


def _text(detail: str, _row: np.void) -> str:
    return detail


def _gap_text(start: int, row: np.void) -> str:
    return f"offsets {start} to {int(row['base_offset']) - 1} are missing before this batch"
