"""The objects of a run's partition, and what is read of them besides the records."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from native.crc32c import crc32c_of_bytes
from recovery.archive.layouts.holed_log import ChunkError
from recovery.archive.layouts.layout import ArchivedFiles, Layout
from recovery.archive.layouts.log_windows import BatchWindow, LogWindows
from recovery.archive.records.batch_heads import Fault
from recovery.archive.records.read_request import PlannedSegment, SegmentRun, Told
from recovery.archive.records.segment_choice import choose_segments
from recovery.archive.stores.archived import ArchivedSegment, PartKind
from recovery.archive.stores.segment_table import ArchivedPartition
from recovery.archive.stores.store import Store
from recovery.check.finding import REMEDIES
from recovery.check.folder_files import MOST_SMALL_FILE_BYTES
from recovery.check.rules.batches import has_compacted
from recovery.check.rules.epochs import check_epochs
from recovery.errors import DamagedSegmentError
from recovery.read.opened_log import OpenedLog
from segfmt.checkpoint import LeaderEpochEntry, read_leader_epoch_checkpoint
from segfmt.errors import FormatError
from segfmt.filenames import log_name, offset_index_name
from segfmt.offset_index import view_offset_index
from segfmt.producer_snapshot import read_producer_snapshot


class RunFiles:
    """Finds and reads the objects of the segments of a run, and of those after it.

    Args:
        store: the archive.
        layout: of its partitions.
        run: the segments.
    """

    def __init__(self, store: Store, layout: Layout, run: SegmentRun) -> None:
        self._store = store
        self._layout = layout
        self._run = run
        self._has_compacted: bool | None = True if run.is_compacted else None
        self._epochs: tuple[str, tuple[LeaderEpochEntry, ...] | None] = ("", None)

    def url_of(self, key: str) -> str:
        """Return the URL of an object."""
        return f"{self._store.url}/{key}"

    def name_of(self, segment: ArchivedSegment) -> str:
        """Return the URL of a segment's log; for a segment with indexes only, of its last object."""
        if not segment.parts:
            return self.part_name_of(segment, PartKind.LOG)
        log = segment.parts.get(PartKind.LOG) or [*segment.parts.values()][-1]
        return self.url_of(log.key)

    def part_name_of(self, segment: ArchivedSegment, kind: PartKind) -> str:
        """Return the URL of a part of a segment, whether it exists or not."""
        return self.url_of(self._run.where.prefix + self._layout.name_of(segment, kind))

    def of(self, segment: ArchivedSegment) -> ArchivedFiles:
        """Return the files of a segment.

        Raises:
            DamagedSegmentError: it has no manifest, or a malformed one.
            OSError: the manifest cannot be read, or no longer exists.
        """
        files = self.described(segment)
        if isinstance(files, Fault):
            name = self.description_name(segment)
            raise DamagedSegmentError(f"{name}: {files}. Remedy: {REMEDIES[files.rule]}")
        return files

    def described(self, segment: ArchivedSegment) -> ArchivedFiles | Fault:
        """Return the files of a segment, or why nothing says how its objects are to be read."""
        return described_files(self._store, self._layout, segment)

    def description_name(self, segment: ArchivedSegment) -> str:
        """Return the URL of the object that says how a segment is stored: its log, if that is stored as it is."""
        return self.part_name_of(segment, self._layout.last_part or PartKind.LOG)

    def wrong_sizes(self, planned: PlannedSegment, files: ArchivedFiles) -> Iterator[str]:
        """Yield how the size of a log contradicts what was told of it."""
        told = planned.told
        if told is not None and self._layout.has_plain_logs and told.size_bytes != planned.segment.log_bytes:
            yield f"{planned.segment.log_bytes} bytes, {told.size_bytes} according to the metadata topic"
        for kind, detail in files.contradictions():
            if kind is PartKind.LOG:
                yield detail

    def open_log(self, segment: ArchivedSegment) -> OpenedLog:
        """Open the log of a segment.

        Raises:
            FileNotFoundError: it has none.
        """
        return self.of(segment).open(log_name(segment.base_offset))

    def txn_index(self, segment: ArchivedSegment) -> bytes:
        """Return the transaction index of a segment, empty without one, or if nothing says how it is stored."""
        if not segment.parts.keys() >= self._layout.objects_of(PartKind.TXN_INDEX):
            return b""
        files = self.described(segment)
        if isinstance(files, Fault):
            return b""
        try:
            return files.read_part(PartKind.TXN_INDEX)
        except FileNotFoundError:
            return b""

    def leader_epochs(
        self, segment: ArchivedSegment, files: ArchivedFiles
    ) -> tuple[LeaderEpochEntry, ...] | None:
        """Return the lines of the checkpoint that goes with a segment; None if it is missing or malformed.

        The last one is kept: in a broker's folder it is that of all segments.
        """
        key = self._run.where.prefix + self._layout.name_of(segment, PartKind.LEADER_EPOCHS)
        if self._epochs[0] != key:
            self._epochs = key, self._leader_epochs(key, files)
        return self._epochs[1]

    def _leader_epochs(self, key: str, files: ArchivedFiles) -> tuple[LeaderEpochEntry, ...] | None:
        try:
            if self._layout.has_plain_logs:
                data = self._store.read(key, most_bytes=MOST_SMALL_FILE_BYTES)
            else:
                data = files.read_part(PartKind.LEADER_EPOCHS)
            entries = read_leader_epoch_checkpoint(data)
        except (FileNotFoundError, FormatError):
            return None
        return entries if not check_epochs((), entries, log_end_offset=None, is_clean=False) else None

    # -- further segments ------------------------------------------------------------------------------------

    def indexed(self) -> Iterator[ArchivedSegment]:
        """Yield the segments that may have a transaction index, from the first of the run on."""
        for planned in self._run.segments:
            yield planned.segment
        yield from self._run.following
        if not self._run.follows_more:
            return
        for planned in self._further(self._run.following[-1].base_offset):
            yield planned.segment

    def following(self) -> Iterator[PlannedSegment]:
        """Yield the segments after the run, as they would be read."""
        yield from self._run.after
        known = self._run.after or self._run.segments
        if known[-1].end_offset is not None:
            yield from self._further(known[-1].segment.base_offset)

    def _further(self, base_offset: int) -> Iterator[PlannedSegment]:
        """Yield the segments after the one at an offset, as they are listed now."""
        partition = self._partition()
        ids = partition.segments.segment_ids
        rows = [row for row, segment_id in enumerate(ids) if segment_id not in self._run.outside]
        kept = replace(partition, segments=partition.segments.take(rows))
        for planned in choose_segments(kept, self._layout):
            if planned.segment.base_offset > base_offset:
                yield planned

    def open_after(self, segment: ArchivedSegment) -> dict[int, int] | None:
        """Return the first offsets of the transactions that are open after a segment, by producer; None if not known.

        The snapshot tells that goes with it.
        """
        if not self._layout.is_tiered and segment.next_base_offset is None:
            return None  # it is active, its end is after its snapshots
        return snapshot_begins(self._store, self._layout, segment)

    def is_compacted(self) -> bool:
        """Return whether the log was ever compacted: a batch has fewer records than offsets. Looked for once."""
        if self._has_compacted is None:
            self._has_compacted = any(map(self._has_compacted_batch, self._partition().segments))
        return self._has_compacted

    def _has_compacted_batch(self, segment: ArchivedSegment) -> bool:
        if not segment.log_bytes:
            return False
        try:
            with opened_windows(self.of(segment), segment.base_offset, is_last=True) as windows:
                batches = (window for window in windows if isinstance(window, BatchWindow))
                return any(has_compacted(window.rows[window.is_valid]) for window in batches)
        except (FileNotFoundError, DamagedSegmentError):
            return False

    def _partition(self) -> ArchivedPartition:
        objects = self._store.list_level(self._run.where.prefix).objects
        return self._layout.partition(self._run.where, objects)


def described_files(store: Store, layout: Layout, segment: ArchivedSegment) -> ArchivedFiles | Fault:
    """Return the files of a segment, or why nothing says how its objects are to be read.

    Raises:
        OSError: the manifest cannot be read, or no longer exists.
    """
    last = layout.last_part
    if last is not None and last not in segment.parts:
        return Fault("missing-object", f"the segment has no {last.noun}, and cannot be read without it")
    try:
        return layout.files(store, segment)
    except FormatError as error:
        return Fault("manifest", str(error))


def snapshot_begins(store: Store, layout: Layout, segment: ArchivedSegment) -> dict[int, int] | None:
    """Return where the open transaction of each producer begins, by a segment's snapshot; None without a sound one."""
    if not segment.parts.keys() >= layout.objects_of(PartKind.SNAPSHOT):
        return None
    try:
        data = layout.files(store, segment).read_part(PartKind.SNAPSHOT)
        entries = read_producer_snapshot(data, crc32c=crc32c_of_bytes)
    except (FileNotFoundError, FormatError):
        return None
    is_open = entries["current_txn_first_offset"] >= 0
    producer_ids, offsets = entries["producer_id"][is_open], entries["current_txn_first_offset"][is_open]
    return dict(zip(producer_ids.tolist(), offsets.tolist(), strict=True))


def told_of(planned: PlannedSegment, files: ArchivedFiles) -> Told | None:
    """Return what is said of a segment: by the metadata topic, or else by the archive itself; None if nothing is."""
    described = files.described()
    return planned.told or (None if described is None else Told.by(described))


@contextmanager
def opened_windows(files: ArchivedFiles, base_offset: int, *, is_last: bool) -> Iterator[LogWindows]:
    """Open the log of a segment for a walk over its batches, which finds on past damage by the offset index.

    Args:
        files: of the segment.
        base_offset: its own.
        is_last: whether what a killed broker leaves at the end is no damage.

    Raises:
        FileNotFoundError: it has no log.
    """
    log = files.open(log_name(base_offset))
    try:
        yield LogWindows(
            log,
            base_offset=base_offset,
            index_positions=lambda: index_positions(files, base_offset),
            is_last=is_last,
        )
    finally:
        log.close()


def index_positions(files: ArchivedFiles, base_offset: int) -> list[int]:
    """Return the positions in the offset index, as hints that must be checked; none without a readable index."""
    try:
        data, _ = files.read_index(offset_index_name(base_offset), lambda _: None)
    except (FileNotFoundError, ChunkError):
        return []
    positions: list[int] = view_offset_index(data)["position"].astype(np.int64).tolist()
    return positions
