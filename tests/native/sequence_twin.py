"""Producers' sequences batch by batch, in the plainest words: the slow twin of native.producer_sequences.

Kafka: ProducerAppendInfo.checkProducerEpoch, checkSequence; ProducerStateManager.isProducerExpired.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from native.batch_headers import HEADER_ROW_DTYPE, HeaderRows
from tests.logs.reference import increment_sequence

MAX_INT32 = 2**31 - 1
EXPIRATION_MS = 1000


@dataclass(frozen=True, kw_only=True)
class SequencedBatch:
    """A batch of a producer, or of none."""

    base_offset: int
    producer_id: int = -1
    epoch: int = 0
    base_sequence: int = 0
    record_count: int = 1
    timestamp_ms: int = 0
    is_marker: bool = False

    @property
    def last_offset(self) -> int:
        return self.base_offset + max(0, self.record_count - 1)

    @property
    def last_sequence(self) -> int:
        return increment_sequence(self.base_sequence, self.last_offset - self.base_offset)


@dataclass(frozen=True, kw_only=True)
class Break:
    offset: int
    producer_id: int
    kind: Literal["sequence", "epoch"]
    sequences: tuple[int, int] = (-1, -1)  # before, now
    epochs: tuple[int, int] = (-1, -1)  # before, now


@dataclass(frozen=True, kw_only=True)
class Known:
    """What is known of a producer: any sequence may follow None, and 0 alone -1."""

    epoch: int
    sequence: int | None
    timestamp_ms: int


class SequenceTwin:
    """One pass over a log."""

    def __init__(self, expiration_ms: int = EXPIRATION_MS, log_start_offset: int = 0) -> None:
        self.expiration_ms = expiration_ms
        self.log_start_offset = log_start_offset
        self.known: dict[int, Known] = {}
        self.end_offset: int | None = None
        self.breaks: list[Break] = []

    def take(self, batch: SequencedBatch) -> None:
        if self.end_offset is not None and (
            batch.base_offset != self.end_offset or batch.base_offset <= self.log_start_offset
        ):
            self.known.clear()
        self.end_offset = batch.last_offset + 1
        if batch.producer_id < 0 or (batch.is_marker and batch.record_count == 0):
            return
        before = self.known.pop(batch.producer_id, None)
        if batch.epoch < 0 or (not batch.is_marker and batch.base_sequence < 0):
            return
        if before is not None and (
            before.timestamp_ms < 0 or batch.timestamp_ms - before.timestamp_ms >= self.expiration_ms
        ):
            before = None
        self.known[batch.producer_id] = Known(
            epoch=batch.epoch,
            sequence=self.follow(before, batch),
            timestamp_ms=batch.timestamp_ms,
        )

    def follow(self, before: Known | None, batch: SequencedBatch) -> int | None:
        """Judge *batch*; return the sequence behind it."""
        if before is not None and batch.epoch < before.epoch:
            self.breaks.append(
                Break(
                    offset=batch.base_offset,
                    producer_id=batch.producer_id,
                    kind="epoch",
                    epochs=(before.epoch, batch.epoch),
                )
            )
        if batch.is_marker:
            if before is None:
                return None
            return before.sequence if batch.epoch == before.epoch else -1
        if before is not None and batch.epoch >= before.epoch:
            last = before.sequence if batch.epoch == before.epoch else -1
            if last is not None and batch.base_sequence != (0 if last == MAX_INT32 else last + 1):
                self.breaks.append(
                    Break(
                        offset=batch.base_offset,
                        producer_id=batch.producer_id,
                        kind="sequence",
                        sequences=(last, batch.base_sequence),
                        epochs=(batch.epoch, batch.epoch),
                    )
                )
        return batch.last_sequence


def header_rows(batches: Sequence[SequencedBatch]) -> HeaderRows:
    """Return the headers of *batches*, as a walk would."""
    rows = np.zeros(len(batches), HEADER_ROW_DTYPE)
    for row, batch in zip(rows, batches, strict=True):
        row["position"], row["size_bytes"] = batch.base_offset * 100, 100
        row["base_offset"], row["last_offset"] = batch.base_offset, batch.last_offset
        row["last_offset_delta"] = batch.last_offset - batch.base_offset
        row["record_count"], row["max_timestamp_ms"] = batch.record_count, batch.timestamp_ms
        row["producer_id"], row["producer_epoch"] = batch.producer_id, batch.epoch
        row["base_sequence"] = -1 if batch.is_marker else batch.base_sequence
        row["attributes"], row["magic"] = 0x30 if batch.is_marker else 0, 2
    return rows


def history(rng: random.Random, length: int, *, has_damage: bool = True) -> Iterator[SequencedBatch]:
    """Yield a log of a few producers that mostly do what they should.

    Without damage nothing is missing, time does not go back, and a producer begins with data, again after a silence:
    then Kafka's own state knows what a summary knows.
    """
    offset, now_ms = rng.choice([0, 70]), 5000
    last: dict[int, SequencedBatch] = {}
    heard_ms: dict[int, int] = {}
    producers = [7 * number for number in range(rng.choice([1, 2, 5, 40]))]
    unruliness = rng.choice([1, 1, 3])
    for _ in range(length):
        now_ms += rng.choice(
            [0, 1, 20, 300] if rng.random() < 0.97 else [EXPIRATION_MS - 1, EXPIRATION_MS, 5000]
        )
        if has_damage and rng.random() < 0.02:
            offset += rng.randrange(1, 5)
        batch = SequencedBatch(base_offset=offset, timestamp_ms=now_ms, record_count=rng.choice([1, 1, 2, 9]))
        if rng.random() < 0.9:
            producer_id = rng.choice(producers)
            silence_ms = now_ms - heard_ms.get(producer_id, -EXPIRATION_MS)
            known = last.get(producer_id)
            may_mark = has_damage or (known is not None and silence_ms < EXPIRATION_MS)
            batch = replace(batch, producer_id=producer_id)
            batch = _written(rng, batch, known, may_mark=may_mark, kind=rng.random() / unruliness)
            last[producer_id] = batch
            if batch.record_count:
                heard_ms[producer_id] = now_ms
            if has_damage and rng.random() < 0.03:
                fault = rng.choice([{"epoch": -1}, {"base_sequence": -1}, {"timestamp_ms": -1}])
                batch = replace(batch, **fault)
        yield batch
        offset = batch.last_offset + 1


def _written(
    rng: random.Random, batch: SequencedBatch, before: SequencedBatch | None, *, may_mark: bool, kind: float
) -> SequencedBatch:
    """Return *batch* as its producer goes on from what it wrote *before*."""
    if before is None:
        first = rng.choice([0, 0, 1, 5, MAX_INT32 - 12, MAX_INT32])
        before = replace(batch, epoch=rng.choice([0, 3]), base_sequence=first, record_count=1)
        if not may_mark or rng.random() < 0.7:
            return replace(batch, epoch=before.epoch, base_sequence=first)
    end = before.base_sequence - 1 if before.is_marker else before.last_sequence
    following = 0 if end == MAX_INT32 else end + 1
    if may_mark and kind < 0.15:
        epoch = before.epoch + rng.choice([0, 0, 0, 1, 1, -1 if before.epoch else 0])
        kept = following if epoch == before.epoch else 0
        return replace(
            batch, is_marker=True, epoch=epoch, base_sequence=kept, record_count=rng.choice([1, 1, 1, 0])
        )
    if kind < 0.2:
        return replace(batch, epoch=before.epoch + 1, base_sequence=rng.choice([0, 0, 4]))
    if kind < 0.24 and before.epoch:
        return replace(batch, epoch=before.epoch - 1, base_sequence=rng.choice([0, following]))
    if kind < 0.33:
        return replace(batch, epoch=before.epoch, base_sequence=rng.choice([following + 2 & MAX_INT32, 0]))
    return replace(batch, epoch=before.epoch, base_sequence=following)
