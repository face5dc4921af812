"""Simulated tiered logs: leaders change, logs are cut, copies are begun, finished, repeated and deleted.

What comes out is the records that brokers would write to `__remote_log_metadata`, and the log that they leave.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from uuid import UUID

from segfmt.checkpoint import LeaderEpochEntry
from segfmt.remote_log_metadata import (
    RemoteLogMetadata,
    RemotePartition,
    RemoteSegment,
    RemoteSegmentState,
    RemoteSegmentUpdate,
)

OWNER = RemotePartition(topic="orders", topic_id=UUID(int=77), partition=3)


@dataclass(kw_only=True)
class SimulatedLog:
    """A log and the records about its copies.

    Attributes:
        epochs: of the log as it is now.
        end: log end offset.
        records: in the order in which they were written.
    """

    rng: random.Random
    owner: RemotePartition = OWNER
    epochs: list[LeaderEpochEntry] = field(default_factory=lambda: [LeaderEpochEntry(0, 0)])
    end: int = 0
    start: int = 0
    records: list[RemoteLogMetadata] = field(default_factory=list)
    clock_ms: int = 1000

    def append(self, count: int) -> None:
        """Records of the leader."""
        self.end += count

    def change_leader(self, *, lost: int = 0) -> None:
        """A new epoch; the last *lost* records were on the old leader alone."""
        self.end = max(self.start, self.end - lost)
        self.epochs = [one for one in self.epochs if one.start_offset < self.end] or []
        last = self.epochs[-1].epoch if self.epochs else -1
        highest = max(
            [
                last,
                *(epoch for one in self.announced() for epoch, _ in one.leader_epochs),
                self.clock_ms // 10**9,
            ]
        )
        self.epochs.append(LeaderEpochEntry(highest + self.rng.choice([1, 1, 2]), self.end))

    def announced(self) -> list[RemoteSegment]:
        """All segments that were ever announced."""
        return [one for one in self.records if isinstance(one, RemoteSegment)]

    def copy(self, start_offset: int, end_offset: int, *, finish: bool = True) -> RemoteSegment:
        """Copy these offsets of the log as it is."""
        self.clock_ms += 1
        epochs = [one for one in self.epochs if one.start_offset <= end_offset] or self.epochs[:1]
        first = max(i for i, one in enumerate(epochs) if i == 0 or one.start_offset <= start_offset)
        cut = [LeaderEpochEntry(epochs[first].epoch, start_offset), *epochs[first + 1 :]]
        segment = RemoteSegment(
            owner=self.owner,
            segment_id=UUID(int=self.rng.getrandbits(128)),
            start_offset=start_offset,
            end_offset=end_offset,
            broker_id=self.rng.randrange(3),
            max_timestamp_ms=self.clock_ms,
            event_timestamp_ms=self.clock_ms,
            leader_epochs=tuple(cut),
            size_bytes=100 * (end_offset - start_offset + 1),
            has_no_transactions=True,
        )
        self.records.append(segment)
        if finish:
            self.update(segment, RemoteSegmentState.COPY_SEGMENT_FINISHED)
        return segment

    def update(self, segment: RemoteSegment, state: RemoteSegmentState) -> None:
        """A segment comes to another state."""
        self.clock_ms += 1
        self.records.append(
            RemoteSegmentUpdate(
                owner=self.owner,
                segment_id=segment.segment_id,
                broker_id=segment.broker_id,
                event_timestamp_ms=self.clock_ms,
                state=state,
            )
        )

    def live(self) -> list[int]:
        """Offsets of the log."""
        return list(range(self.start, self.end))


def orderly_log(rng: random.Random, *, steps: int = 12, is_clean: bool = False) -> SimulatedLog:
    """A log whose leaders copy all that they have, from where the leader before them had come to, or from before.

    Args:
        rng: decides.
        steps: changes of the log.
        is_clean: whether what was copied is never cut off.
    """
    log = SimulatedLog(rng=rng)
    copied_to = highest = 0
    for _ in range(steps):
        log.append(rng.randrange(1, 30))
        action = rng.random()
        if action < 0.3:
            lost = rng.choice([0, 0, 3, 20])
            log.change_leader(lost=min(lost, log.end - highest) if is_clean else lost)
            if rng.random() < 0.4:  # the new leader does not know of the last copies
                copied_to = rng.randrange(log.start, copied_to + 1)
            copied_to = min(copied_to, log.end)
            continue
        while copied_to < log.end:
            last = min(log.end - 1, copied_to + rng.randrange(1, 15))
            finish = rng.random() < 0.9
            log.copy(copied_to, last, finish=finish)
            if finish:
                copied_to = last + 1
            highest = max(highest, last + 1)
    return log


def wild_records(rng: random.Random, *, count: int = 40) -> list[RemoteLogMetadata]:
    """Records in any order, transitions that cannot be among them."""
    log = SimulatedLog(rng=rng, epochs=[LeaderEpochEntry(0, 0)], end=10**6)
    known: list[RemoteSegment] = []
    for _ in range(count):
        if not known or rng.random() < 0.4:
            log.epochs = _random_epochs(rng)
            start = rng.randrange(100)
            segment = log.copy(start, start + rng.randrange(60), finish=False)
            if rng.random() < 0.1:
                log.records[-1] = replace(segment, state=rng.choice(list(RemoteSegmentState)))
            known.append(segment)
        elif rng.random() < 0.05:
            log.records.append(rng.choice(known))
        else:
            weights = [1, 12, 6, 4]
            log.update(rng.choice(known), rng.choices(list(RemoteSegmentState), weights)[0])
    return log.records


def _random_epochs(rng: random.Random) -> list[LeaderEpochEntry]:
    epochs = sorted(rng.sample(range(6), rng.randrange(1, 4)))
    starts = sorted(rng.choices(range(120), k=len(epochs)))
    return [LeaderEpochEntry(*pair) for pair in zip(epochs, starts, strict=True)]
