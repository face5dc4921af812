"""Which brokers, and which of their log dirs, a KRaft cluster has given its partitions to, and their leader epochs.

`cluster_metadata` reads what a load of logs needs, and passes over these records: there are as many as partitions. What
an aborted transaction of the controller says does not count, and what an open one says does not count yet.

Kafka: TopicDelta, PartitionRegistration.merge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from uuid import UUID

from segfmt import crc32c as plain
from segfmt.entry_view import Buffer
from segfmt.metadata_log import BytesOnDisk, MetadataLogReader, check_kraft_snapshot
from segfmt.metadata_record import (
    ApiKey,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TransactionRecord,
    read_assignment_record,
)

_RESERVED_IDS = 100
"""Ids of log dirs below this number are none, but say: unassigned, lost, migrating. Kafka: DirectoryId.reserved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """Where the replicas of a partition are to be.

    Attributes:
        replicas: node ids.
        in_sync: those of them that may lead: they have all that was committed.
        directories: one for each of them, if the cluster assigns log dirs.
        leader_epoch: of the present leader; a later one has a higher one.
    """

    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    directories: tuple[UUID, ...]
    leader_epoch: int

    def directory_of(self, node_id: int) -> UUID | None:
        """Return the id of the log dir that is assigned on a broker; None: the broker chooses one."""
        if node_id not in self.replicas or len(self.directories) != len(self.replicas):
            return None
        directory = self.directories[self.replicas.index(node_id)]
        return None if directory.int < _RESERVED_IDS else directory


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignments:
    """The partitions of a cluster.

    Attributes:
        of_partitions: by the id of their topic and their number.
        numbers: of the partitions of each topic, by its id.
    """

    of_partitions: Mapping[tuple[UUID, int], Assignment] = field(default_factory=dict)
    numbers: Mapping[UUID, Set[int]] = field(default_factory=dict)

    def of(self, topic_id: UUID, partition: int) -> Assignment | None:
        """Return the assignment of a partition, None if the cluster has none of that number."""
        return self.of_partitions.get((topic_id, partition))


def read_assignments(
    checkpoint: Buffer | BytesOnDisk | None,
    segments: Iterable[Buffer | BytesOnDisk],
    *,
    checkpoint_end_offset: int = 0,
    crc32c: Callable[[bytes], int] = plain.crc32c,
) -> Assignments:
    """Return what a snapshot of the metadata log and the log after it say.

    Arguments and errors are those of `read_cluster_metadata`.
    """
    state = _State()
    if checkpoint is not None:
        snapshot = MetadataLogReader(checkpoint, crc32c=crc32c, read_record=read_assignment_record)
        for batch in snapshot.batches():
            state.replay(batch.records)
        check_kraft_snapshot(snapshot, end_offset=checkpoint_end_offset)
    for segment in segments:
        part = MetadataLogReader(
            segment, crc32c=crc32c, from_offset=checkpoint_end_offset, read_record=read_assignment_record
        )
        for batch in part.batches():
            state.replay(batch.records[max(0, checkpoint_end_offset - batch.base_offset) :])
        if part.damage is not None:
            break
    return Assignments(of_partitions=state.partitions, numbers=state.numbers)


class _State:
    def __init__(self) -> None:
        self.partitions: dict[tuple[UUID, int], Assignment] = {}
        self.numbers: dict[UUID, set[int]] = {}
        self._pending: list[MetadataRecord] | None = None  # of an open transaction

    def replay(self, records: Iterable[MetadataRecord]) -> None:
        for record in records:
            if isinstance(record, TransactionRecord):
                self._replay_transaction(record.api_key)
            elif self._pending is not None:
                self._pending.append(record)
            else:
                self._apply(record)

    def _replay_transaction(self, api_key: ApiKey) -> None:
        pending, self._pending = self._pending, [] if api_key is ApiKey.BEGIN_TRANSACTION else None
        if api_key is ApiKey.END_TRANSACTION:
            for record in pending or ():
                self._apply(record)

    def _apply(self, record: MetadataRecord) -> None:
        match record:
            case PartitionRecord():
                self.numbers.setdefault(record.topic_id, set()).add(record.partition)
                self.partitions[record.topic_id, record.partition] = Assignment(
                    replicas=record.replicas,
                    in_sync=record.in_sync,
                    directories=record.directories,
                    leader_epoch=record.leader_epoch,
                )
            case PartitionChangeRecord():
                self._change(record)
            case RemoveTopicRecord(topic_id=topic_id):
                for number in self.numbers.pop(topic_id, ()):
                    del self.partitions[topic_id, number]

    def _change(self, record: PartitionChangeRecord) -> None:
        before = self.partitions.get((record.topic_id, record.partition))
        if before is not None:
            self.partitions[record.topic_id, record.partition] = replace(
                before,
                replicas=before.replicas if record.replicas is None else record.replicas,
                in_sync=before.in_sync if record.in_sync is None else record.in_sync,
                directories=record.directories or before.directories,
                leader_epoch=before.leader_epoch + record.has_new_leader,
            )
