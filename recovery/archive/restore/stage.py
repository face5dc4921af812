"""The stage of a log dir: where partitions are made that are moved into it when they are whole.

It is a log dir itself, in a folder that brokers pass over, so the logs that are laid down in it are recovered by the
engine, as any log is after an unclean shutdown: batches are checked, indexes, snapshots and leader epochs made.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

import numpy as np

from recovery.archive.restore.fetch import fetch_segment, of_log_dir
from recovery.archive.restore.plan import PlannedRestore
from recovery.archive.restore.served import read_producers
from recovery.archive.restore.source import SourceSegment
from recovery.archive.stores.archived import PartKind, StoredObject
from recovery.archive.stores.store import Store
from recovery.check.folder_files import MOST_SMALL_FILE_BYTES
from recovery.errors import DamagedSegmentError
from recovery.plan.actions import TEMPORARY_SUFFIX
from recovery.read.file_system import is_file, is_folder, look_at, read_small
from recovery.read.rate_limit import RateLimit
from recovery.stop_request import StopRequest
from recovery.write.durable import make_folder_like, write_new
from recovery.write.move_in import STAGE_FOLDER, folders_to_move, has_intent, staged_log_dir
from segfmt.byte_layout import PRODUCER_ENTRY_DTYPE
from segfmt.checkpoint import encode_leader_epoch_checkpoint, encode_offset_checkpoint
from segfmt.errors import FormatError
from segfmt.filenames import (
    CLEAN_SHUTDOWN_FILE,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    log_name,
    offset_index_name,
    snapshot_name,
    time_index_name,
)
from segfmt.partition_metadata import PartitionMetadata, encode_partition_metadata
from segfmt.producer_snapshot import Entries, read_producer_snapshot

_ORIGIN_SUFFIX = ".origin"
"""Of the file beside the staged log dir that says what a folder in it is made of."""


class Stage:
    """The stage of one log dir.

    Args:
        log_dir: the log dir.
    """

    def __init__(self, log_dir: str) -> None:
        self._log_dir = log_dir
        self._stage = os.path.join(log_dir, STAGE_FOLDER)
        self.staged_log_dir = staged_log_dir(log_dir)

    def open(self, partitions: Iterable[PlannedRestore]) -> None:
        """Make the stage, or take over what an interrupted run has left of these *partitions*.

        Raises:
            OSError: it cannot be made.
        """
        for path in (self._stage, self.staged_log_dir):
            if not is_folder(path):
                make_folder_like(path, self._log_dir)
        for name in (CLEAN_SHUTDOWN_FILE, RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT):
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(self.staged_log_dir, name))
        for name in os.listdir(self._stage):
            if name != os.path.basename(self.staged_log_dir) and is_folder(os.path.join(self._stage, name)):
                shutil.rmtree(os.path.join(self._stage, name))  # quarantine of what was staged
        origins = {planned.source.name: _origin(planned) for planned in partitions}
        for folder in os.listdir(self.staged_log_dir):
            if is_folder(self._path(folder)) and self._origin_of(folder) != origins.get(folder, ""):
                self.drop(folder)
        for folder, origin in origins.items():
            if not is_folder(self._path(folder)):
                write_new(self._origin_path(folder), origin.encode())
                make_folder_like(self._path(folder), self._log_dir)
        # A log dir needs one of a broker's own files to be taken for one
        write_new(os.path.join(self.staged_log_dir, META_PROPERTIES), b"")

    def write_checkpoints(self, partitions: Iterable[PlannedRestore]) -> None:
        """Write where the logs begin: that of some is within a segment, and nothing of any is recovered yet."""
        starts = {
            (planned.source.where.topic, planned.source.where.partition): planned.log_start_offset
            for planned in partitions
        }
        for name, offsets in (
            (LOG_START_OFFSET_CHECKPOINT, starts),
            (RECOVERY_POINT_CHECKPOINT, dict.fromkeys(starts, 0)),
        ):
            data = encode_offset_checkpoint(dict(sorted(offsets.items())))
            write_new(os.path.join(self.staged_log_dir, name), data)

    def has_fetched(self, planned: PlannedRestore, source: SourceSegment) -> bool:
        """Return whether a segment's log is there, whole.

        Nothing was synced before it had its name: after a power failure it may be shorter. How long one is that was cut
        where the next segment begins is not known, so that is fetched again.
        """
        status = look_at(os.path.join(self._path(planned.source.name), log_name(source.segment.base_offset)))
        return status is not None and stat.S_ISREG(status.st_mode) and status.st_size == source.log_bytes

    def fetch(
        self,
        store: Store,
        planned: PlannedRestore,
        source: SourceSegment,
        *,
        limit: RateLimit,
        stop: StopRequest,
        on_bytes: Callable[[int], None],
    ) -> None:
        """Write one segment's log, and the producers at its end. The log has its name once all is there.

        Raises:
            As `fetch_segment`, whose arguments the last ones are.
        """
        path = os.path.join(self._path(planned.source.name), log_name(source.segment.base_offset))
        fetched = fetch_segment(
            planned.source.layout.files(store, source.segment),
            source,
            path + TEMPORARY_SUFFIX,
            log_dir=self._log_dir,
            is_renumbered=planned.is_renumbered,
            is_tiered=planned.source.layout.is_tiered,
            highest_epoch=planned.highest_epoch,
            limit=limit,
            stop=stop,
            on_bytes=on_bytes,
        )
        if source.end_offset is not None and not fetched.is_cut and fetched.end_offset != source.end_offset:
            name = log_name(source.segment.base_offset)
            found = "has no batch" if fetched.end_offset is None else f"ends at offset {fetched.end_offset}"
            raise DamagedSegmentError(f"{name}: it {found}, and should end at {source.end_offset}")
        if not planned.source.layout.is_tiered:
            self._write_snapshots(store, planned, source)
        elif fetched.end_offset is not None and not fetched.is_cut:
            self._write_snapshot_at_end(store, planned, source, fetched.end_offset + 1)
        with of_log_dir(self._log_dir):
            os.rename(path + TEMPORARY_SUFFIX, path)

    def write_small_files(self, planned: PlannedRestore, store: Store) -> None:
        """Write what else a partition's folder has before its recovery; with `--aux`, all that it has.

        Raises:
            FormatError, OSError: with `--aux`: the producers cannot be read.
            LogDirOfflineError: it cannot be written.
        """
        name, source = planned.source.name, planned.source
        has_epochs = source.epochs and source.segments
        if has_epochs and not planned.is_renumbered:  # else they are those of its batches
            self._write(name, LEADER_EPOCH_CHECKPOINT, encode_leader_epoch_checkpoint(source.epochs))
        if planned.remote_start_offset is not None:
            self._write_as_they_are(store, planned, source.snapshots_before)
        metadata = encode_partition_metadata(PartitionMetadata(topic_id=planned.topic_id))
        self._write(name, PARTITION_METADATA, metadata)
        if planned.next_offset is not None:
            producers = read_producers(store, source.layout, source.segments[-1].segment)
            self._write(name, snapshot_name(planned.next_offset), producers)
            for file_name in (log_name, offset_index_name, time_index_name):
                self._write(name, file_name(planned.next_offset), b"")

    def open_transactions(self, planned: PlannedRestore, log_end_offset: int) -> Sequence[tuple[int, int]]:
        """Return producer id and first offset of each transaction that is open at the end of a recovered log."""
        entries = self._snapshot_at(planned, log_end_offset)
        held = entries[entries["current_txn_first_offset"] >= 0]
        return sorted(
            zip(held["producer_id"].tolist(), held["current_txn_first_offset"].tolist(), strict=True)
        )

    def producers(self, planned: PlannedRestore, log_end_offset: int, since_ms: int) -> Sequence[int]:
        """Return the ids of producers at the end of a recovered log that have written since, or are in a transaction.

        Kafka: ProducerStateManager.isProducerExpired.
        """
        entries = self._snapshot_at(planned, log_end_offset)
        is_known = (entries["timestamp_ms"] > since_ms) | (entries["current_txn_first_offset"] >= 0)
        found: list[int] = entries["producer_id"][is_known].tolist()
        return found

    def _snapshot_at(self, planned: PlannedRestore, log_end_offset: int) -> Entries:
        path = os.path.join(self._path(planned.source.name), snapshot_name(log_end_offset))
        return (
            read_producer_snapshot(read_small(path)) if is_file(path) else np.empty(0, PRODUCER_ENTRY_DTYPE)
        )

    def drop(self, folder: str) -> None:
        """Remove a partition's folder."""
        shutil.rmtree(self._path(folder), ignore_errors=True)
        with suppress(FileNotFoundError):
            os.unlink(self._origin_path(folder))

    def _write_snapshots(self, store: Store, planned: PlannedRestore, source: SourceSegment) -> None:
        """Write the snapshots of a plain copy that belong to a segment, by their own names."""
        own = source.segment.parts.get(PartKind.SNAPSHOT)
        self._write_as_they_are(
            store, planned, (*source.segment.snapshots.values(), *([] if own is None else [own]))
        )

    def _write_as_they_are(
        self, store: Store, planned: PlannedRestore, snapshots: Iterable[StoredObject]
    ) -> None:
        for stored in snapshots:
            with suppress(FileNotFoundError):
                data = store.read(stored.key, most_bytes=MOST_SMALL_FILE_BYTES)
                self._write(planned.source.name, stored.name, data)

    def _write_snapshot_at_end(
        self, store: Store, planned: PlannedRestore, source: SourceSegment, offset: int
    ) -> None:
        """Write the producers at *offset* as the archive has them; those that cannot be read are made from the log."""
        try:
            data = planned.source.layout.files(store, source.segment).read_part(PartKind.SNAPSHOT)
        except (OSError, FormatError):
            return
        self._write(planned.source.name, snapshot_name(offset), data)

    def _write(self, folder: str, name: str, data: bytes) -> None:
        with of_log_dir(self._log_dir):
            write_new(os.path.join(self._path(folder), name), data)

    def _path(self, folder: str) -> str:
        return os.path.join(self.staged_log_dir, folder)

    def _origin_path(self, folder: str) -> str:
        """Return the file that says what *folder* is made of; the name of a folder may be as long as names can be."""
        return os.path.join(self._stage, hashlib.sha256(os.fsencode(folder)).hexdigest() + _ORIGIN_SUFFIX)

    def _origin_of(self, folder: str) -> str:
        try:
            return read_small(self._origin_path(folder)).decode("ascii", "replace")
        except FileNotFoundError:
            return ""


def staged_bytes(log_dir: str) -> int:
    """Return the bytes of all files in the stage of *log_dir* but those that are to be moved in, as far as seen.

    Raises:
        UnsafeError: the intent is not of this tool.
        OSError: it cannot be read.
    """
    size_bytes = 0
    to_move = folders_to_move(log_dir) if has_intent(log_dir) else ()
    kept = {os.path.join(staged_log_dir(log_dir), one) for one in to_move}
    for folder, _, names in os.walk(os.path.join(log_dir, STAGE_FOLDER)):
        if folder in kept:
            continue
        for name in names:
            with suppress(OSError):
                size_bytes += os.lstat(os.path.join(folder, name)).st_size
    return size_bytes


def _origin(planned: PlannedRestore) -> str:
    """Return a digest of all that decides what is staged of a partition."""
    parts = [
        f"{planned.topic_id} {planned.mode} {planned.is_renumbered} {planned.highest_epoch} {planned.next_offset}"
    ]
    for source in planned.source.segments:
        stored = source.segment.parts[PartKind.LOG]
        parts.append(
            f"{stored.key} {stored.size_bytes} {stored.version} {source.until_offset} {source.sha256}"
        )
    return hashlib.sha256("\n".join(parts).encode("utf-8", "surrogateescape")).hexdigest()
