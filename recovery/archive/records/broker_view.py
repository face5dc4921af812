"""What brokers know of an archive, by their log dirs: where logs begin, and which remote segments are read."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np

from recovery.archive.inventory.log_starts import LogStarts, local_partition
from recovery.archive.inventory.orphans import Known
from recovery.archive.layouts.layout import Layout
from recovery.archive.layouts.plain_layout import PlainLayout
from recovery.archive.records.log_markers import TransactionWalk
from recovery.archive.records.planned_faults import PlannedFault, planned_fault
from recovery.archive.records.stable_offset import OpenTransactions, sound_batches
from recovery.archive.remote.lineage import (
    OffsetRange,
    consecutive,
    cut_by,
    derive_epochs,
    merge_ranges,
    trace_lineage,
    with_earlier_epochs,
)
from recovery.archive.remote.remote_metadata import RemoteMetadata, find_sources, read_remote_metadata
from recovery.archive.remote.replicas import Replicas, has_folders, topic_id_of
from recovery.archive.stores.archived import ArchivedSegment, PartitionPrefix, PartKind
from recovery.archive.stores.store import Store
from recovery.check.finding import Finding
from recovery.errors import UsageError
from segfmt.byte_layout import ABORTED_TXN_DTYPE
from segfmt.checkpoint import LeaderEpochEntry
from segfmt.kafka_uuid import format_uuid, read_uuid
from segfmt.remote_log_metadata import TOPIC, RemoteSegment, RemoteSegmentState
from segfmt.transaction_index import Entries

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

    def settle(self, transactions: OpenTransactions, end_offset: int) -> Entries:
        """Find how transactions that are open at the archive's end ended here; return those that were aborted.

        The markers in the logs tell: the broker's own transaction indexes may be lost or short.

        Args:
            transactions: open at the end of the archive; those that ended here are taken out of it.
            end_offset: of the archive.

        Raises:
            DamagedSegmentError: damage hides how one ended.
            FormatError, OSError: a segment cannot be read.
        """
        archived = dict(transactions.begins)
        transactions.end_offset = end_offset
        aborted = np.concatenate([np.empty(0, ABORTED_TXN_DTYPE), *self._ended(transactions, end_offset)])
        transactions.check(archived)
        are_archived = [archived.get(int(one["producer_id"])) == int(one["first_offset"]) for one in aborted]
        return aborted[np.array(are_archived, np.bool_)]

    def _ended(self, transactions: OpenTransactions, end_offset: int) -> Iterator[Entries]:
        """Yield what was aborted from *end_offset* on, until all of *transactions* have ended."""
        walk = TransactionWalk()
        walk.begins = dict(transactions.begins)
        bases = [segment.base_offset for segment in self._segments]
        for segment in self._segments[max(bisect_right(bases, end_offset) - 1, 0) :]:
            is_last = segment is self._segments[-1]
            for octets, rows in sound_batches(
                self._store, self._layout, segment, transactions, is_last=is_last
            ):
                own = rows[rows["base_offset"] >= end_offset]
                if not len(own):
                    continue
                yield walk.take(octets, int(rows["position"][0]), own)
                transactions.take(own, f"{self._store.url}/{segment.parts[PartKind.LOG].key}")
                if min(transactions.begins.values(), default=end_offset) >= end_offset:
                    return


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteLog:
    """What the metadata topic says of a partition.

    Attributes:
        segments: those that are read, by id: each offset as a broker has it, up to where the next segment begins.
        unfinished: the states of those whose copy or deletion was begun and not finished, or that are deleted, by id.
        unread: ids of the other finished ones: below the log start, outside the lineage, or not needed for it.
        gone: first and last offsets, ascending, of what is deleted.
        cut_off: the last one of those that brokers read, and why it is none of `segments`: its end was cut off, and no
            other one has these offsets; None if nothing was.
        known: what decides whether a segment that it does not know is an orphan.
    """

    segments: Mapping[str, RemoteSegment]
    unfinished: Mapping[str, RemoteSegmentState]
    unread: frozenset[str]
    gone: tuple[tuple[int, int], ...]
    cut_off: tuple[RemoteSegment, str] | None
    known: Known

    def knows(self, segment_id: str) -> bool:
        """Return whether the metadata topic has a record of a segment."""
        return segment_id in self.segments or segment_id in self.unfinished or segment_id in self.unread


class BrokerView:
    """What the log dirs of brokers, or copies of them, show. A context manager.

    Args:
        stores: one per log dir; `__remote_log_metadata` is read from them, if it is there.

    Raises:
        UsageError: one is not there.
    """

    def __init__(self, stores: Iterable[Store]) -> None:
        self._log_dirs = tuple(stores)
        try:
            self._read()
        except FileNotFoundError as error:
            raise UsageError(
                f"metadata={error.filename}: no such folder: give log dirs of brokers, or copies of them"
            ) from None

    def _read(self) -> None:
        self._replicas = Replicas(self._log_dirs)
        self._log_starts = LogStarts(self._replicas)
        self._metadata: RemoteMetadata = read_remote_metadata(self._log_dirs)

    def has_changed(self) -> bool:
        """Return whether the metadata topic is not as it was read any more."""
        return find_sources(self._log_dirs) != self._metadata.sources

    def read_again(self) -> None:
        """Read the log dirs again, once nobody asks for anything else meanwhile."""
        self._metadata.close()
        self._read()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._metadata.close()

    def require_log_dirs(self, *, is_tiered: bool) -> None:
        """Refuse log dirs that say nothing.

        Raises:
            UsageError: one has no folder of a partition; or none has one of the metadata topic, and the archive is of
                tiered storage.
        """
        sources = [source.store for replicas in self._metadata.sources.values() for source in replicas]
        for store in self._log_dirs:
            if store not in sources and not has_folders(store):
                raise UsageError(
                    f"metadata={store.url}: no folder of a partition is in it: give log dirs of brokers, or copies of "
                    "them"
                )
        if is_tiered and not self._metadata.sources:
            urls = ",".join(store.url for store in self._log_dirs)
            raise UsageError(
                f"metadata={urls}: no partition of {TOPIC} is in it, so nothing could be compared. Give the log dirs "
                "of all brokers that have some, or copies of them"
            )

    def hiding(self, where: PartitionPrefix) -> Finding | None:
        """Return what is wrong with the metadata topic so that what became of segments is not known; None for nothing.

        What is wrong with a record of the partition is known after `remote_log`.
        """
        return self._metadata.hiding(topic_id_of(where), where.partition)

    def log_start(self, where: PartitionPrefix) -> tuple[int | None, PlannedFault | None]:
        """Return where the log of a partition begins, None if that is not known; and what is wrong with the line."""
        start_offset, fault = self._log_starts.of(where)
        return start_offset, None if fault is None else planned_fault(fault)

    def topic_ids(self, topic: str) -> frozenset[str]:
        """Return the ids that a topic has in the log dirs, none if it is not there."""
        return frozenset(map(format_uuid, self._replicas.topic_ids(topic)))

    def remote_log(self, where: PartitionPrefix) -> RemoteLog | None:
        """Return the remote segments of a partition; None if the metadata topic knows of none at all."""
        if not where.topic_id:
            return None
        topic_id = read_uuid(where.topic_id)
        cache = self._metadata.cache(topic_id, where.partition)
        if not cache.segments and not cache.deleted:
            return None
        replica = self._replicas.of(where)
        finished = cache.segments.values()
        epochs = () if replica is None else with_earlier_epochs(replica.epochs, finished)
        start_offset, _ = self.log_start(where)
        epochs = epochs or derive_epochs(finished)
        lineage = trace_lineage(cache, epochs, log_start_offset=start_offset)
        ordered = [*consecutive(lineage.segments, epochs)]
        cut_off = _cut_off(ordered, epochs)
        if cut_off is not None:
            ordered.remove(cut_off[0])
        read = {format_uuid(segment.segment_id): segment for segment in ordered}
        unread = (*lineage.below, *lineage.outside, *lineage.superseded, *lineage.segments)
        known = [*cache.segments.values(), *cache.deleted.values()]
        gone = merge_ranges(segment for segment in known if segment.state >= _DELETING)
        below = [OffsetRange(start_offset=0, end_offset=start_offset - 1)] if start_offset else []
        return RemoteLog(
            segments=read,
            unfinished={
                format_uuid(segment.segment_id): segment.state
                for segment in known
                if segment.state is not RemoteSegmentState.COPY_SEGMENT_FINISHED
            },
            unread=frozenset(format_uuid(segment.segment_id) for segment in unread) - read.keys(),
            cut_off=cut_off,
            gone=tuple((offsets.start_offset, offsets.end_offset) for offsets in gone),
            known=Known(
                end_offset=max(segment.end_offset for segment in known),
                epoch=max([*cache.leader_epochs, *(entry.epoch for entry in epochs)], default=-1),
                covered=merge_ranges([*lineage.segments, *lineage.below, *lineage.superseded, *gone, *below]),
                hides_records=self._metadata.hides_records(topic_id, where.partition),
            ),
        )

    def local_log(self, where: PartitionPrefix) -> LocalLog | None:
        """Return what is left of a partition in the log dirs, None if nothing is."""
        replica = self._replicas.of(where)
        if replica is None:
            return None
        segments = local_partition(replica, where).segments
        return LocalLog(replica.store, PlainLayout(), segments) if segments else None


def _cut_off(
    segments: Sequence[RemoteSegment], epochs: Sequence[LeaderEpochEntry]
) -> tuple[RemoteSegment, str] | None:
    """Return the last of *segments* if its end was cut off, and why; None if the log still has it.

    Of the others a later one begins where the end was cut off.
    """
    if not segments:
        return None
    last = max(segments, key=lambda segment: segment.end_offset)
    entry = cut_by(last, epochs)
    if entry is None:
        return None
    return last, (
        f"its offsets {entry.start_offset} to {last.end_offset} were cut off when leader epoch {entry.epoch} began, "
        "and no segment of that leader is archived yet"
    )
