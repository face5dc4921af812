"""What brokers know of an archive, by their log dirs: where logs begin, and which remote segments are read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

import numpy as np

from recovery.archive.layouts.layout import Layout
from recovery.archive.layouts.plain_layout import PlainLayout
from recovery.archive.records.log_starts import judge_log_start
from recovery.archive.records.planned_faults import PlannedFault
from recovery.archive.records.stable_offset import last_stable_offset
from recovery.archive.remote.lineage import derive_epochs, merge_ranges, trace_lineage
from recovery.archive.remote.remote_metadata import RemoteMetadata, read_remote_metadata
from recovery.archive.remote.replicas import Replicas
from recovery.archive.stores.archived import ArchivedSegment, PartitionPrefix, PartKind
from recovery.archive.stores.store import Store
from recovery.check.finding import Finding
from recovery.errors import UsageError
from segfmt.byte_layout import ABORTED_TXN_DTYPE
from segfmt.kafka_uuid import format_uuid, read_uuid
from segfmt.remote_log_metadata import TOPIC, RemoteSegment, RemoteSegmentState
from segfmt.transaction_index import Entries, check_transaction_index, view_transaction_index

_DELETING = RemoteSegmentState.DELETE_SEGMENT_STARTED


class LocalLog:
    """The segments of a partition on the broker itself: transactions of archived segments may end there.

    Args:
        store: the log dir.
        layout: of its folders.
        segments: of the partition, at least one.
    """

    def __init__(self, store: Store, layout: Layout, segments: Sequence[ArchivedSegment]) -> None:
        self._store = store
        self._layout = layout
        self._segments = segments

    def last_stable_offset(self, name: str) -> int | None:
        """Return the last stable offset of the log, None if no transaction is open."""
        return last_stable_offset(self._store, self._layout, self._segments, name)

    def aborted(self) -> Entries:
        """Return the aborted transactions whose markers are in these segments."""
        entries = [np.empty(0, ABORTED_TXN_DTYPE)]
        for segment in self._segments:
            if PartKind.TXN_INDEX in segment.parts:
                data = self._layout.files(self._store, segment).read_part(PartKind.TXN_INDEX)
                check_transaction_index(data, segment.base_offset)
                entries.append(view_transaction_index(data))
        return np.concatenate(entries)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteLog:
    """What the metadata topic says of a partition.

    Attributes:
        segments: those that a broker reads, by id and in order.
        unfinished: the states of those whose copy or deletion was begun and not finished, or that are deleted, by id.
        unread: ids of the finished ones that no broker reads: below the log start, or outside the lineage.
        gone: first and last offsets, ascending, of what is deleted.
        known_end: the last offset of any segment that it knows.
    """

    segments: Mapping[str, RemoteSegment]
    unfinished: Mapping[str, RemoteSegmentState]
    unread: frozenset[str]
    gone: tuple[tuple[int, int], ...]
    known_end: int

    def knows(self, segment_id: str) -> bool:
        """Return whether the metadata topic has a record of a segment."""
        return segment_id in self.segments or segment_id in self.unfinished or segment_id in self.unread


class BrokerView:
    """What the log dirs of brokers, or copies of them, show. A context manager.

    Args:
        stores: one per log dir; `__remote_log_metadata` is read from them, if it is there.
    """

    def __init__(self, stores: Iterable[Store]) -> None:
        self._log_dirs = tuple(stores)
        self._replicas = Replicas(self._log_dirs)
        self._log_starts: dict[tuple[str, str], tuple[int | None, PlannedFault | None]] = {}
        self._metadata: RemoteMetadata = read_remote_metadata(self._log_dirs)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._metadata.close()

    def require_metadata_topic(self) -> None:
        """Refuse log dirs that say nothing of archived segments.

        Raises:
            UsageError: none of them has a partition of the metadata topic.
        """
        if not self._metadata.partition_count:
            urls = ",".join(store.url for store in self._log_dirs)
            raise UsageError(
                f"metadata={urls}: no partition of {TOPIC} is in it, so nothing could be compared. Give the log dirs "
                "of all brokers that have some, or copies of them"
            )

    @property
    def hiding(self) -> Finding | None:
        """What is wrong with the metadata topic so that what became of segments is not known; None for a sound one."""
        return next((found for found in self._metadata.findings if found.severity == "damage"), None)

    def log_start(self, where: PartitionPrefix) -> tuple[int | None, PlannedFault | None]:
        """Return where the log of a partition begins, None if that is not known; and what is wrong with the line."""
        replica = self._replicas.of(where)
        if replica is None or replica.log_start_offset is None:
            return None, None
        key = replica.store.url, replica.prefix
        if key not in self._log_starts:
            start_offset, layout = replica.log_start_offset, PlainLayout()
            local = replace(where, prefix=replica.prefix, topic_id="", folder=replica.prefix.rstrip("/"))
            segments = layout.partition(local, replica.store.list_level(replica.prefix).objects).segments
            fault = judge_log_start(replica.store, layout, segments, local, start_offset)
            self._log_starts[key] = (start_offset, None) if fault is None else (None, fault)
        return self._log_starts[key]

    def topic_ids(self, topic: str) -> frozenset[str]:
        """Return the ids that a topic has in the log dirs, none if it is not there."""
        return frozenset(map(format_uuid, self._replicas.topic_ids(topic)))

    def remote_log(self, where: PartitionPrefix) -> RemoteLog | None:
        """Return the remote segments of a partition; None if the metadata topic knows of none at all."""
        if not where.topic_id:
            return None
        cache = self._metadata.cache(read_uuid(where.topic_id), where.partition)
        if not cache.segments and not cache.deleted:
            return None
        replica = self._replicas.of(where)
        epochs = () if replica is None else replica.epochs
        start_offset, _ = self.log_start(where)
        lineage = trace_lineage(
            cache, epochs or derive_epochs(cache.segments.values()), log_start_offset=start_offset
        )
        known = [*cache.segments.values(), *cache.deleted.values()]
        gone = merge_ranges(segment for segment in known if segment.state >= _DELETING)
        return RemoteLog(
            segments={format_uuid(segment.segment_id): segment for segment in lineage.segments},
            unfinished={
                format_uuid(segment.segment_id): segment.state
                for segment in known
                if segment.state is not RemoteSegmentState.COPY_SEGMENT_FINISHED
            },
            unread=frozenset(
                format_uuid(segment.segment_id)
                for segment in (*lineage.below, *lineage.outside, *lineage.superseded)
            ),
            gone=tuple((offsets.start_offset, offsets.end_offset) for offsets in gone),
            known_end=max(segment.end_offset for segment in known),
        )

    def local_log(self, where: PartitionPrefix) -> LocalLog | None:
        """Return what is left of a partition in the log dirs, None if nothing is."""
        replica = self._replicas.of(where)
        if replica is None:
            return None
        layout = PlainLayout()
        local = replace(where, prefix=replica.prefix, topic_id="", folder=replica.prefix.rstrip("/"))
        partition = layout.partition(local, replica.store.list_level(replica.prefix).objects)
        return LocalLog(replica.store, layout, partition.segments) if partition.segments else None
