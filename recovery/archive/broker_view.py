"""What a broker knows of an archive, by its log dirs: where the logs begin, and which remote segments it reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Self

import numpy as np

from recovery.archive.archived import ArchivedSegment, PartitionPrefix, PartKind
from recovery.archive.layout import ArchivedFiles, Layout
from recovery.archive.lineage import derive_epochs, trace_lineage
from recovery.archive.log_dir_copy import read_log_dir_copy
from recovery.archive.plain_layout import PlainLayout
from recovery.archive.remote_metadata import RemoteMetadata, read_remote_metadata
from recovery.archive.stable_offset import last_stable_offset
from recovery.archive.store import Store
from recovery.folder_files import MOST_SMALL_FILE_BYTES
from segfmt.checkpoint import LeaderEpochEntry, read_leader_epoch_checkpoint
from segfmt.filenames import LEADER_EPOCH_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT
from segfmt.kafka_uuid import format_uuid, read_uuid
from segfmt.layout import ABORTED_TXN_DTYPE
from segfmt.transaction_index import Entries, check_transaction_index, view_transaction_index


class LocalLog:
    """The segments of a partition that a broker has itself: transactions of archived segments may end there.

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
        """Return the last stable offset of the log, None where no transaction is open."""
        return last_stable_offset(self._segments, self._files, name)

    def aborted(self) -> Entries:
        """Return the aborted transactions whose markers are there."""
        found = [np.empty(0, ABORTED_TXN_DTYPE)]
        for segment in self._segments:
            if PartKind.TXN_INDEX in segment.parts:
                data = self._files(segment).read_part(PartKind.TXN_INDEX)
                check_transaction_index(data, segment.base_offset)
                found.append(view_transaction_index(data))
        return np.concatenate(found)

    def _files(self, segment: ArchivedSegment) -> ArchivedFiles:
        return self._layout.files(self._store, segment)


class BrokerView:
    """What the log dirs of a broker, or copies of them, say. A context manager.

    Args:
        stores: one a log dir; `__remote_log_metadata` is read there, if it is there.
    """

    def __init__(self, stores: Iterable[Store]) -> None:
        self._stores = tuple(stores)
        self._log_starts: dict[tuple[str, int], int] = {}
        self._folders: dict[str, Store] = {}
        for store in self._stores:
            level = store.list_level("")
            copy = read_log_dir_copy(store, level.objects)
            self._log_starts |= copy.offsets.get(LOG_START_OFFSET_CHECKPOINT, {})
            self._folders |= dict.fromkeys((prefix.rstrip("/") for prefix in level.prefixes), store)
        self._metadata: RemoteMetadata = read_remote_metadata(self._stores)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._metadata.close()

    def log_start_offset(self, where: PartitionPrefix) -> int | None:
        """Return where the log of a partition begins, None where that is not known."""
        return self._log_starts.get((where.topic, where.partition))

    def lineage(self, where: PartitionPrefix) -> list[str] | None:
        """Return the ids of the segments that a broker reads, in order; None where it knows of none at all."""
        if not where.topic_id:
            return None
        cache = self._metadata.cache(read_uuid(where.topic_id), where.partition)
        if not cache.segments and not cache.deleted:
            return None
        epochs = self._epochs(where) or derive_epochs(cache.segments.values())
        lineage = trace_lineage(cache, epochs, log_start_offset=self.log_start_offset(where))
        return [format_uuid(segment.segment_id) for segment in lineage.segments]

    def local_log(self, where: PartitionPrefix) -> LocalLog | None:
        """Return what is left of a partition in the log dirs, None where there is no such folder, or nothing in it."""
        folder = f"{where.topic}-{where.partition}"
        store = self._folders.get(folder)
        if store is None:
            return None
        layout = PlainLayout()
        local = PartitionPrefix(
            prefix=f"{folder}/", topic=where.topic, partition=where.partition, folder=folder
        )
        partition = layout.partition(local, store.list_level(local.prefix).objects)
        return LocalLog(store, layout, partition.segments) if partition.segments else None

    def _epochs(self, where: PartitionPrefix) -> list[LeaderEpochEntry]:
        """Return the leader epochs of the broker's own log."""
        folder = f"{where.topic}-{where.partition}"
        store = self._folders.get(folder)
        if store is None:
            return []
        try:
            data = store.read(f"{folder}/{LEADER_EPOCH_CHECKPOINT}", most_bytes=MOST_SMALL_FILE_BYTES)
        except FileNotFoundError:
            return []
        return list(read_leader_epoch_checkpoint(data))
