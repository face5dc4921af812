"""Leader epochs over the seams of a chain: each checkpoint against the logs and the checkpoints of its neighbours.

With each segment a broker copies all leader epochs that it knows up to the segment's end. So the checkpoints of one
history agree about every offset that both know, and with the batches of the logs before. How far back they reach may
differ: retention lets a broker forget the earliest epochs, and a follower that began anew has never known them.

One checkpoint that contradicts the others is wrong. Where two in a row contradict the logs before in the same way, a
segment of their history is missing. Leader epochs also confirm that a segment continues the log before: batches of one
epoch come from one leader, and replicas with the same record of the same epoch have the same records before it.

Kafka: RemoteLogManager.copyLogSegment, LeaderEpochFileCache.epochEntriesInRange.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recovery.archive.check.scanned import ScannedSegment
from recovery.archive.stores.archived import SegmentKey
from recovery.check.finding import Finding, Rule, Severity
from recovery.check.rules.epochs import EpochDifference, check_epochs, epochs_between, first_difference
from segfmt.checkpoint import LeaderEpochEntry
from segfmt.filenames import LEADER_EPOCH_CHECKPOINT, log_name

Epochs = Sequence[LeaderEpochEntry]

_ENOUGH = 2
"""So many checkpoints outvote one that contradicts them about offsets before the first log."""


@dataclass(frozen=True, slots=True)
class _Checkpoint:
    """The leader epochs that a segment came with; at least one."""

    scanned: ScannedSegment
    epochs: Epochs

    @property
    def base_offset(self) -> int:
        return self.scanned.segment.base_offset

    @property
    def start_offset(self) -> int:
        """The first offset of which it knows the epoch."""
        return self.epochs[0].start_offset

    def contradicts(self, epochs: Epochs) -> EpochDifference | None:
        """Return where it and *epochs* first differ about an offset before its segment that both know."""
        return first_difference(self.epochs, epochs, self.base_offset)

    def find(self, rule: Rule, detail: str, severity: Severity = "damage") -> None:
        self.scanned.findings.append(
            Finding(file=LEADER_EPOCH_CHECKPOINT, position=None, rule=rule, detail=detail, severity=severity)
        )


class EpochSeams:
    """The seams of one chain, while its segments come in.

    Args:
        base_offset: of the first segment.

    Attributes:
        unconfirmed: segments of which nothing confirms that they continue the log before; complete after `finish`.
    """

    def __init__(self, base_offset: int) -> None:
        self._log_start = base_offset  # from here on the batches are known
        self._agreed: list[LeaderEpochEntry] = []  # what is known of the offsets before the next segment
        self._last_epoch: int | None = None  # of the last batch before the next segment
        self._support = 0  # checkpoints that agree about the offsets before the first log
        self._last: _Checkpoint | None = None  # that agreed
        self._suspect: _Checkpoint | None = None
        self._longer: tuple[_Checkpoint, _Checkpoint] | None = None  # the second one knows of earlier offsets
        self._without: list[ScannedSegment] = []  # since the last checkpoint
        self._open: list[ScannedSegment] = []  # those that nothing confirms yet
        self._is_first = True
        self.unconfirmed: set[SegmentKey] = set()

    def take(self, scanned: ScannedSegment, epochs: Epochs | None) -> bool:
        """Take in the next segment, with the leader *epochs* that it came with; None: missing or wrong by themselves.

        Return whether it has some that nothing before contradicts.
        """
        runs = [run for run in scanned.result.epoch_runs if run.epoch >= 0] if scanned.result else []
        if not self._is_first and self._last_epoch is None:
            self.unconfirmed.add(scanned.segment.key)
        elif not self._is_first and not (runs and runs[0].epoch == self._last_epoch):
            self._open.append(scanned)
        self._is_first = False
        checkpoint = _Checkpoint(scanned, epochs) if epochs else None
        if checkpoint is not None:
            self._compare(checkpoint)
        else:
            self._without.append(scanned)
            self._find_descending(scanned)
        self._extend(scanned, checkpoint)
        return checkpoint is not None and checkpoint is self._last

    def finish(self) -> None:
        """Give the findings that depend on a later segment to those that they concern."""
        if self._suspect is not None:
            self._blame(self._suspect)
        if self._longer is not None:
            self._judge_fronts(*self._longer)
        self.unconfirmed.update(scanned.segment.key for scanned in self._open)

    # -- contradictions ----------------------------------------------------------------------------------------

    def _compare(self, checkpoint: _Checkpoint) -> None:
        """Compare a checkpoint with what is known of the offsets before its segment."""
        suspect = self._suspect
        if checkpoint.contradicts(self._agreed) is None:
            if suspect is not None:
                self._blame(suspect)
            self._suspect = None
            self._agree(checkpoint)
        elif suspect is not None and suspect.contradicts(checkpoint.epochs) is None:
            self._turn(suspect, checkpoint)
            self._suspect = None
            self._agree(checkpoint)
        else:
            if suspect is not None:
                self._blame(suspect)
            self._suspect = checkpoint

    def _agree(self, checkpoint: _Checkpoint) -> None:
        """Take the word of a checkpoint that nothing before it contradicts."""
        for scanned in self._without:
            self._find_other_epochs(scanned, checkpoint)
        self._without = []
        self._open = [one for one in self._open if one.segment.base_offset <= checkpoint.start_offset]
        if self._longer is not None:
            self._judge_fronts(*self._longer, checkpoint)
            self._longer = None
        elif self._last is not None and checkpoint.start_offset < self._last.start_offset:
            self._longer = self._last, checkpoint
        known_from = self._agreed[0].start_offset if self._agreed else checkpoint.base_offset
        earlier = epochs_between(checkpoint.epochs, checkpoint.start_offset, known_from)
        if earlier and self._agreed and earlier[-1].epoch == self._agreed[0].epoch:
            del self._agreed[0]
        self._agreed[:0] = earlier
        self._last = checkpoint
        self._support += 1

    def _blame(self, checkpoint: _Checkpoint) -> None:
        """Report that a checkpoint contradicts what is known of the offsets before its segment."""
        difference = checkpoint.contradicts(self._agreed)
        if difference is None:
            return
        detail = (
            f"offset {difference.offset} is of {_named(difference.other)} by the logs and checkpoints next to it, "
            f"of {_named(difference.own)} by this file"
        )
        checkpoint.find("epoch-content", detail)

    def _turn(self, first: _Checkpoint, second: _Checkpoint) -> None:
        """Continue from two checkpoints in a row that contradict all before in the same way."""
        difference = first.contradicts(self._agreed)
        assert difference is not None
        base = first.base_offset
        if difference.offset >= self._log_start:
            base = self._break_off(first, difference)
        elif self._last is not None and self._support < _ENOUGH:
            own, other = _named(difference.other), _named(difference.own)
            self._last.find(
                "epoch-content",
                f"offset {difference.offset} is of {other} by the checkpoints after it, of {own} by this file",
            )
        else:
            self._blame(first)
        end = second.base_offset
        after = epochs_between(self._agreed, base, end)
        self._agreed = epochs_between(second.epochs, second.start_offset, end) or after
        self._support = 1

    def _break_off(self, checkpoint: _Checkpoint, difference: EpochDifference) -> int:
        """Report that the log before is of another history; return where the one of the checkpoint begins.

        That is a segment whose first batch is of another epoch than the last one before: others continue their log.
        """
        begins = (one for one in self._open if one.segment.base_offset > difference.offset)
        first = next(begins, checkpoint.scanned)
        base = first.segment.base_offset
        detail = (
            f"offsets {difference.offset} to {base - 1} of its history are missing: the log before has them of "
            f"{_named(difference.other)}, the checkpoint of this segment or of a later one of {_named(difference.own)}"
        )
        first.findings.append(Finding(file=log_name(base), position=None, rule="offset-gap", detail=detail))
        self.unconfirmed.add(first.segment.key)
        self._without = [scanned for scanned in self._without if scanned.segment.base_offset >= base]
        self._log_start = base
        return base

    # -- what is missing at the start ----------------------------------------------------------------------------

    def _judge_fronts(
        self, shorter: _Checkpoint, longer: _Checkpoint, following: _Checkpoint | None = None
    ) -> None:
        """Judge that a segment's epochs reach further back than those of the segment before.

        A broker only ever forgets. Another one may know more; if the brokers are not known, it is a note.
        """
        brokers = shorter.scanned.broker_id, longer.scanned.broker_id
        if None not in brokers and brokers[0] != brokers[1]:
            return
        severity: Severity = "note" if None in brokers else "damage"
        start, known_from = shorter.start_offset, longer.start_offset
        if following is not None and following.start_offset >= start:
            detail = f"it knows of offsets from {known_from} on, the segments next to it from {start} on"
            longer.find("epoch-content", detail, severity)
        else:
            detail = f"it knows of offsets from {start} on, the segment after it from {known_from} on"
            shorter.find("missing-epochs", detail, severity)

    # -- what the logs say -----------------------------------------------------------------------------------------

    def _extend(self, scanned: ScannedSegment, checkpoint: _Checkpoint | None) -> None:
        """Add what a segment says of its own offsets: its sound checkpoint, or else its batches."""
        result, base = scanned.result, scanned.segment.base_offset
        runs = [run for run in result.epoch_runs if run.epoch >= 0] if result is not None else []
        is_right = checkpoint is not None and checkpoint is not self._suspect
        if checkpoint is not None and is_right and checkpoint.start_offset <= base:
            is_known = scanned.end_offset is not None
            own = epochs_between(checkpoint.epochs, base, scanned.end_offset or base)
        else:
            is_known = result is not None and result.has_all_batches
            own = [LeaderEpochEntry(run.epoch, run.first_offset) for run in runs]
        known = self._agreed[-1].epoch if self._agreed else None
        if not is_known or not _ascends(known, own):
            # nothing is known from here on: what is compared begins with the next segment
            self._agreed, self._last_epoch, self._support = [], None, 0
            self._log_start = base if scanned.end_offset is None else scanned.end_offset
            return
        for entry in own:
            if not self._agreed or entry.epoch > self._agreed[-1].epoch:
                self._agreed.append(entry)
        if runs:
            self._last_epoch = runs[-1].epoch

    def _find_descending(self, scanned: ScannedSegment) -> None:
        """Find batches of a lower leader epoch than one before, in a segment without a checkpoint that would tell."""
        last = self._last_epoch
        for run in scanned.result.epoch_runs if scanned.result is not None else ():
            if run.epoch >= 0 and last is not None and run.epoch < last:
                detail = (
                    f"leader epoch {run.epoch} at offset {run.first_offset}, a batch before it has {last}"
                )
                _find_in_log(scanned, run.position, detail)
                return
            last = max(run.epoch, -1 if last is None else last)

    def _find_other_epochs(self, scanned: ScannedSegment, following: _Checkpoint) -> None:
        """Find batches of another leader epoch than a later checkpoint says, in a segment without one."""
        if scanned.result is None:
            return
        log = scanned.result.task.log
        placed = [(log, run) for run in scanned.result.epoch_runs]
        for finding in check_epochs(placed, following.epochs, log_end_offset=None, is_clean=False):
            if finding.file == log and not any(
                finding.identity == other.identity for other in scanned.findings
            ):
                scanned.findings.append(finding)


def _ascends(epoch: int | None, entries: Epochs) -> bool:
    """Return whether the epochs of *entries* ascend, from *epoch* on."""
    epochs = [*(() if epoch is None else (epoch,)), *(entry.epoch for entry in entries)]
    return epochs == sorted(epochs)


def _named(epoch: int | None) -> str:
    return "no leader epoch" if epoch is None else f"leader epoch {epoch}"


def _find_in_log(scanned: ScannedSegment, position: int, detail: str) -> None:
    log = log_name(scanned.segment.base_offset)
    scanned.findings.append(Finding(file=log, position=position, rule="leader-epoch", detail=detail))
