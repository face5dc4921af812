"""Where logs begin by the checkpoints of log dirs, as far as these can be right: never after a log's end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from recovery.archive.inventory.own_span import read_own_span
from recovery.archive.layouts.layout import Layout
from recovery.archive.layouts.plain_layout import PlainLayout
from recovery.archive.remote.replicas import Replica, Replicas
from recovery.archive.stores.archived import ArchivedSegment, PartitionPrefix
from recovery.archive.stores.segment_table import ArchivedPartition
from recovery.archive.stores.store import Store
from recovery.check.finding import Finding
from segfmt.filenames import LOG_START_OFFSET_CHECKPOINT


class LogStarts:
    """Where the logs of replicas begin.

    Args:
        replicas: in the log dirs of brokers.
    """

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self._judged: dict[tuple[str, str], Finding | None] = {}

    def of(self, where: PartitionPrefix) -> tuple[int | None, Finding | None]:
        """Return where the log of a partition begins, None if that is not known; and what is wrong with the line."""
        replica = self._replicas.of(where)
        if replica is None:
            return None, None
        if replica.log_start_fault is not None or replica.log_start_offset is None:
            return None, replica.log_start_fault
        key = replica.store.url, replica.prefix
        if key not in self._judged:
            self._judged[key] = _judge(replica, where, replica.log_start_offset)
        fault = self._judged[key]
        return (replica.log_start_offset, None) if fault is None else (None, fault)


def judge_log_start(
    store: Store,
    layout: Layout,
    segments: Sequence[ArchivedSegment],
    where: PartitionPrefix,
    start_offset: int,
) -> Finding | None:
    """Return what is wrong with a log start offset, of the URL of its checkpoint; nothing if the log reaches it.

    Args:
        store: the log dir, or a copy of it.
        layout: of its folders.
        segments: of the partition, ascending.
        where: the partition, below the log dir.
        start_offset: by the checkpoint.
    """
    if not segments or 0 <= start_offset <= segments[-1].base_offset:
        return None
    span = read_own_span(store, layout, segments[-1])
    end_offset = segments[-1].base_offset if span is None else span.end_offset + 1
    if 0 <= start_offset <= end_offset:
        return None
    detail = f"{where.topic}-{where.partition}: log start offset {start_offset}, the log ends at {end_offset}"
    folder = where.prefix.rstrip("/").rpartition("/")[0]
    name = "/".join(filter(None, (store.url, folder, LOG_START_OFFSET_CHECKPOINT)))
    return Finding(file=name, position=None, rule="log-start", detail=detail)


def local_partition(replica: Replica, where: PartitionPrefix) -> ArchivedPartition:
    """Return what a replica of a partition has in its log dir."""
    local = replace(where, prefix=replica.prefix, topic_id="", folder=replica.prefix.rstrip("/"))
    return PlainLayout().partition(local, replica.store.list_level(replica.prefix).objects)


def _judge(replica: Replica, where: PartitionPrefix, start_offset: int) -> Finding | None:
    partition = local_partition(replica, where)
    return judge_log_start(replica.store, PlainLayout(), partition.segments, partition.where, start_offset)
