"""Kafka's producer state, batch by batch, in the plainest words: the slow twin of recovery.load.producers.

Kafka: ProducerStateManager, ProducerStateEntry, ProducerAppendInfo.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tests.logs.reference import increment_sequence


class InvalidTxnError(Exception):
    """The broker halts."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """One batch of a producer: data, or the marker that ends a transaction."""

    base_offset: int
    last_offset: int
    producer_id: int
    epoch: int = 0
    base_sequence: int = 0
    timestamp_ms: int = 0
    is_transactional: bool = False
    marker: int | None = None  # 0 abort, 1 commit
    coordinator_epoch: int = 0


@dataclass(kw_only=True)
class Entry:
    epoch: int = -1
    coordinator_epoch: int = -1
    timestamp_ms: int = -1
    txn_first_offset: int | None = None
    batches: list[Batch] = field(default_factory=list)

    def take_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.batches.clear()
            self.epoch = epoch

    def row(self, producer_id: int) -> tuple[int, ...]:
        last = self.batches[-1] if self.batches else None
        first = -1 if self.txn_first_offset is None else self.txn_first_offset
        if last is None:
            return producer_id, self.epoch, -1, -1, 0, self.timestamp_ms, self.coordinator_epoch, first
        delta = last.last_offset - last.base_offset
        sequence = -1 if last.base_sequence == -1 else increment_sequence(last.base_sequence, delta)
        return (
            producer_id, self.epoch, sequence, last.last_offset, delta,
            self.timestamp_ms, self.coordinator_epoch, first,
        )  # fmt: skip


class ProducerTwin:
    """Producers, open transactions, aborted ones."""

    def __init__(self) -> None:
        self.entries: dict[int, Entry] = {}
        self.ongoing: dict[int, int] = {}
        self.aborted: list[tuple[int, int, int, int]] = []
        self.map_end_offset = 0

    def rows(self) -> list[tuple[int, ...]]:
        return sorted(entry.row(producer_id) for producer_id, entry in self.entries.items())

    def recover(self, batches: list[Batch]) -> None:
        """Kafka: LogSegment.updateProducerState."""
        for batch in batches:
            if batch.producer_id >= 0:
                update = self._prepare(batch.producer_id)
                completed = self._append(update, batch)
                self._update(batch.producer_id, update)
                if completed is not None:
                    self._complete(batch, completed)
            self.map_end_offset = batch.last_offset + 1

    def replay(self, batches: list[Batch]) -> None:
        """Kafka: UnifiedLog.loadProducersFromRecords."""
        updates: dict[int, Entry] = {}
        completed = []
        for batch in batches:
            if batch.producer_id >= 0:
                if batch.producer_id not in updates:
                    updates[batch.producer_id] = self._prepare(batch.producer_id)
                first = self._append(updates[batch.producer_id], batch)
                if first is not None:
                    completed.append((batch, first))
        for producer_id, update in updates.items():
            self._update(producer_id, update)
        for batch, first in completed:
            self._complete(batch, first)
        self.aborted.clear()  # a replay writes no transaction index

    def _prepare(self, producer_id: int) -> Entry:
        return replace(self.entries.get(producer_id, Entry()), batches=[])

    def _append(self, update: Entry, batch: Batch) -> int | None:
        if batch.marker is not None:
            first = update.txn_first_offset
            update.take_epoch(batch.epoch)
            update.coordinator_epoch = batch.coordinator_epoch
            update.timestamp_ms = batch.timestamp_ms
            update.txn_first_offset = None
            return first
        if update.txn_first_offset is not None and not batch.is_transactional:
            raise InvalidTxnError
        update.take_epoch(batch.epoch)
        update.batches.append(batch)
        update.timestamp_ms = batch.timestamp_ms
        if update.txn_first_offset is None and batch.is_transactional:
            update.txn_first_offset = batch.base_offset
            self.ongoing[batch.base_offset] = batch.producer_id
        return None

    def _update(self, producer_id: int, update: Entry) -> None:
        entry = self.entries.get(producer_id)
        if entry is None:
            self.entries[producer_id] = update
            return
        entry.take_epoch(update.epoch)
        entry.batches = [*entry.batches, *update.batches][-5:]
        entry.coordinator_epoch = update.coordinator_epoch
        entry.timestamp_ms = update.timestamp_ms
        entry.txn_first_offset = update.txn_first_offset

    def _complete(self, batch: Batch, first: int) -> None:
        if batch.marker == 0:
            others = [offset for offset, other in self.ongoing.items() if other != batch.producer_id]
            stable = min(others, default=batch.last_offset + 1)
            self.aborted.append((batch.producer_id, first, batch.last_offset, stable))
        if self.ongoing.pop(first, None) is None:
            raise InvalidTxnError
