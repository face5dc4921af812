"""What brokers know of the partitions of an archive: the metadata topic, log start offsets, leader epochs.

All of it comes from log dirs, or copies of them; any part may be missing.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from uuid import UUID

from recovery.archive.inventory.entry import Expectation, PartitionInventory
from recovery.archive.inventory.inventory import take_inventory
from recovery.archive.inventory.log_starts import LogStarts
from recovery.archive.inventory.own_span import read_own_span
from recovery.archive.layouts.layout import Layout
from recovery.archive.remote.remote_cache import RemoteLogCache
from recovery.archive.remote.remote_metadata import RemoteMetadata, read_remote_metadata
from recovery.archive.remote.replicas import Replicas, topic_id_of
from recovery.archive.stores.archived import PartitionPrefix
from recovery.archive.stores.segment_table import ArchivedPartition
from recovery.archive.stores.store import Store
from recovery.archive.stores.stores import open_store
from recovery.check.finding import Finding
from recovery.errors import UsageError
from segfmt.kafka_uuid import format_uuid
from segfmt.remote_log_metadata import TOPIC, RemoteSegment


class Expectations:
    """What is known of an archive's partitions besides their objects. May be used by several threads.

    Args:
        metadata: what the metadata topic says; its owner closes it.
        log_dirs: where `log-start-offset-checkpoint` and the folders of the partitions may be.
    """

    def __init__(self, metadata: RemoteMetadata | None = None, log_dirs: Sequence[Store] = ()) -> None:
        self._metadata = metadata
        self._replicas = Replicas(log_dirs)
        self._log_starts = LogStarts(self._replicas)
        self._of_log_starts: dict[str, Finding] = {}
        self._seen: set[tuple[UUID, int]] = set()
        self._last: tuple[tuple[UUID, int], RemoteLogCache] | None = None
        self._lock = threading.Lock()

    def of(self, where: PartitionPrefix) -> Expectation:
        """Return what is known of one partition."""
        topic_id = topic_id_of(where)
        replica = None if topic_id is None else self._replicas.of(where)
        start_offset, fault = (None, None) if replica is None else self._log_starts.of(where)
        if fault is not None and fault.rule == "log-start":
            self._of_log_starts[fault.detail] = fault
        cache, is_unknown, hides_records = None, False, False
        if self._metadata is not None and topic_id is not None:
            is_unknown = not self._metadata.knows(topic_id, where.partition)
            cache = None if is_unknown else self._cache(topic_id, where.partition)
            hides_records = self._metadata.hides_records(topic_id, where.partition)
        return Expectation(
            cache=cache,
            is_unknown=is_unknown,
            epochs=None if replica is None else replica.epochs or None,
            log_start_offset=start_offset,
            local_start_offset=None
            if cache is None or start_offset is None
            else self._replicas.local_start(where),
            hides_records=hides_records,
        )

    def remote_segments(self, where: PartitionPrefix) -> Mapping[str, RemoteSegment]:
        """Return what the metadata topic says of a partition's segments, by their ids as text."""
        topic_id = topic_id_of(where)
        if self._metadata is None or topic_id is None:
            return {}
        cache = self._cache(topic_id, where.partition)
        return {format_uuid(segment_id): segment for segment_id, segment in cache.segments.items()}

    def judge(
        self, archived: ArchivedPartition, layout: Layout, store: Store | None = None
    ) -> PartitionInventory:
        """Return the inventory of a partition that was listed.

        Args:
            archived: the partition.
            layout: of the archive.
            store: the archive, to look into what seem to be orphans; None: they are judged by their names.
        """
        topic_id = topic_id_of(archived.where)
        if topic_id is not None:
            with self._lock:
                self._seen.add((topic_id, archived.where.partition))
        own_span = None if store is None else functools.partial(read_own_span, store, layout)
        return take_inventory(archived, layout, self.of(archived.where), own_span=own_span)

    def unlisted(
        self, layout: Layout, *, is_chosen: Callable[[PartitionPrefix], bool] = lambda _: True
    ) -> Iterator[tuple[PartitionPrefix, PartitionInventory]]:
        """Yield the partitions that are in the metadata topic but were never passed to `judge`.

        Partitions whose segments are all deleted are left out. The prefix is where the layout would have put them,
        below the folder of the others. Plain copies do not hold remote segments, so none are expected there.
        """
        if self._metadata is None or not layout.is_tiered:
            return
        for owner in self._metadata.partitions():
            where = PartitionPrefix(
                prefix=layout.prefix_of(owner.topic, owner.topic_id, owner.partition),
                topic=owner.topic,
                partition=owner.partition,
                topic_id=format_uuid(owner.topic_id),
                folder=f"{owner.topic}-{owner.partition}",
            )
            if (owner.topic_id, owner.partition) in self._seen or not is_chosen(where):
                continue
            inventory = self.judge(ArchivedPartition(where=where), layout)
            if inventory.entries:
                yield where, inventory

    def findings(self) -> tuple[Finding, ...]:
        """Return what is wrong with the log dirs: with checkpoints, and the metadata topic as far as it was read."""
        own = () if self._metadata is None else self._metadata.findings
        return (*own, *self._of_log_starts.values())

    def _cache(self, topic_id: UUID, partition: int) -> RemoteLogCache:
        """Return what a broker knows of a partition; cached, because it is needed twice in a row."""
        assert self._metadata is not None
        last = self._last
        if last is None or last[0] != (topic_id, partition):
            last = self._last = (topic_id, partition), self._metadata.cache(topic_id, partition)
        return last[1]


def open_expectations(metadata: Sequence[str], stack: ExitStack) -> Expectations:
    """Return what the log dirs at the URLs *metadata* know of an archive; *stack* removes its temporary files.

    Raises:
        OSError: a log dir cannot be listed.
        UsageError: none of them has a partition of the metadata topic.
    """
    stores = [open_store(url) for url in metadata]
    if not stores:
        return Expectations()
    remote_metadata = stack.enter_context(read_remote_metadata(stores))
    if not remote_metadata.sources:
        raise UsageError(
            f"--metadata {','.join(metadata)}: no partition of {TOPIC} is in it, so nothing could be compared. Give "
            "the log dirs of all brokers that have some, or copies of them"
        )
    return Expectations(remote_metadata, stores)
