"""What several leaders in turn have archived of one partition, after clean and unclean elections.

Each leader has the log up to where the one before ends, or, elected uncleanly, up to some offset before; it rolls where
it likes, and archives from the segment on that has the first offset which its history has not archived yet.

Kafka: RemoteLogManager.RLMCopyTask.findHighestRemoteOffset, candidateLogSegments.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from segfmt.checkpoint import LeaderEpochEntry, encode_leader_epoch_checkpoint, read_leader_epoch_checkpoint
from segfmt.remote_log_metadata import RemotePartition
from tests.logs.archives import EPOCHS, MadeLog, SegmentCopy, new_uuid

_Batch = tuple[int, str]
"""Leader epoch of a batch, and the seed of its content."""


@dataclass(frozen=True, slots=True)
class Reign:
    """What one leader has archived.

    Attributes:
        fork_offset: where its own epoch begins.
        copies: its segments.
        log: the segments of its whole log, as far as it is archived.
    """

    fork_offset: int
    copies: list[SegmentCopy]
    log: list[SegmentCopy]


class _ReplayedLog(MadeLog):
    """A replica's log: the same batches are the same bytes, wherever it rolls."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self.id_rng = rng

    def append(self, base: int, batch: _Batch) -> int:
        """Append a batch to the segment that begins at *base*; return the offset after it."""
        epoch, seed = batch
        if epoch != self._epochs[-1].epoch:
            self.lead(epoch)
        self._rng = random.Random(seed)
        self._append_data(base, self.idempotent)
        return self._offset

    def close(self, owner: RemotePartition, base: int, *, broker_id: int = 1) -> SegmentCopy:
        """Close the segment, with an id of this replica's own."""
        self._rng = self.id_rng
        return super().close(owner, base, broker_id=broker_id)


def reigns(seed: int, *, most_leaders: int = 4, unclean: float = 0.6) -> list[Reign]:
    """What up to *most_leaders* leaders in turn have archived, each elected uncleanly with that probability."""
    rng = random.Random(f"reigns {seed}")
    owner = RemotePartition(topic="reigns", topic_id=new_uuid(random.Random("reigns")), partition=0)
    history: list[_Batch] = []
    archived: list[
        tuple[list[_Batch], int]
    ] = []  # a leader's history, and how many of its batches are archived
    made = []
    for leader in range(rng.randrange(2, most_leaders + 1)):
        fork = len(history)
        if leader and rng.random() < unclean:
            fork = rng.randrange(fork // 4, fork)
        epoch = 2 * leader + (rng.randrange(2) if leader else 0)
        history = history[:fork] + [(epoch, f"{seed} {leader} {n}") for n in range(rng.randrange(8, 30))]
        done = max((min(count, _common(history, other)) for other, count in archived), default=0)
        reign, count = _reign(owner, history, done, fork, leader + 1, rng)
        archived.append((history, count))
        made.append(reign)
    return made


def _common(history: Sequence[_Batch], other: Sequence[_Batch]) -> int:
    return next(
        (n for n, (one, two) in enumerate(zip(history, other, strict=False)) if one != two),
        min(len(history), len(other)),
    )


def _reign(
    owner: RemotePartition,
    history: Sequence[_Batch],
    done: int,
    fork: int,
    broker_id: int,
    rng: random.Random,
) -> tuple[Reign, int]:
    """What a leader archives if *done* batches are archived, and how many batches are then."""
    log = _ReplayedLog(random.Random(rng.random()))
    reign = Reign(0, [], [])
    base, count = 0, 0
    left = rng.randrange(3, 10)
    for number, batch in enumerate(history, 1):
        end = log.append(base, batch)
        if number == fork:
            reign = replace(reign, fork_offset=end)
        left -= 1
        if not left:
            copy = log.close(owner, base, broker_id=broker_id)
            base, count, left = end, number, rng.randrange(3, 10)
            reign.log.append(copy)
            if number > done:
                reign.copies.append(copy)
    return reign, count


def without_epochs_before(copy: SegmentCopy, log_start_offset: int) -> SegmentCopy:
    """The segment as a broker archives it that has forgotten the epochs before its log start offset.

    Kafka: LeaderEpochFileCache.truncateFromStartAsyncFlush.
    """
    known = _from_offset(read_leader_epoch_checkpoint(copy.files[EPOCHS]), log_start_offset)
    own = _from_offset(copy.remote.leader_epochs, log_start_offset)
    return replace(
        copy,
        files={**copy.files, EPOCHS: encode_leader_epoch_checkpoint(known)},
        remote=replace(copy.remote, leader_epochs=tuple(own)),
    )


def _from_offset(entries: Sequence[LeaderEpochEntry], start_offset: int) -> list[LeaderEpochEntry]:
    before = [entry for entry in entries if entry.start_offset <= start_offset]
    after = [entry for entry in entries if entry.start_offset > start_offset]
    return [LeaderEpochEntry(before[-1].epoch, start_offset), *after] if before else after


def after_retention(
    made: Sequence[Reign], log_start_offset: int, *, known_from: int = 0
) -> list[SegmentCopy]:
    """What brokers keep once the last leader's log starts at *log_start_offset*.

    Args:
        made: the leaders' segments.
        log_start_offset: of the log; segments of other histories stay while it has one of their epochs.
        known_from: the log start offset when the last leader's segments were copied.

    Kafka: RemoteLogManager.RLMExpirationTask.cleanupExpiredRemoteLogSegments.
    """
    entries = read_leader_epoch_checkpoint(made[-1].copies[-1].files[EPOCHS])
    first_epoch = next(one.epoch for one in reversed(entries) if one.start_offset <= log_start_offset)
    own = [
        without_epochs_before(copy, known_from) if copy.remote.end_offset >= known_from else copy
        for copy in made[-1].copies
    ]
    kept = []
    for copy in [*(copy for reign in made[:-1] for copy in reign.copies), *own]:
        last_epoch = copy.remote.leader_epochs[-1].epoch
        if last_epoch >= first_epoch and copy.remote.end_offset >= log_start_offset:
            kept.append(copy)
    return kept
