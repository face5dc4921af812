"""The fold: from what lies in a partition's folder to what a broker would leave there.

`fold` plays Kafka's load of one log, pass by pass, on a `PartitionTree`, and then the clean shutdown. It opens
nothing: bytes and scans come from a `PartitionSource`, the clock from the task. The order of the passes, and what
each forgets, is Kafka's, because the outcome of a damaged folder depends on both. Where the broker would halt or
take the log dir offline, it raises `PartitionRefusedError`, and nothing has happened.

Kafka: LogLoader.load, UnifiedLog.create, LogManager.shutdown.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import partial

from recovery.errors import PartitionRefusedError
from recovery.load.account import take_stock
from recovery.load.forecast import unflushed_bases
from recovery.load.holes import bases_of_missing, missing_end, warn_of_lost_segments
from recovery.load.limits import refuse_large_index, refuse_large_log
from recovery.load.log_reader import LogReader
from recovery.load.model import (
    CutCause,
    IndexProblem,
    PartitionOutcome,
    PartitionSource,
    PartitionTask,
    RemovalKind,
)
from recovery.load.producer_rebuild import rebuild_producer_state
from recovery.load.producers import ProducerState
from recovery.load.segment_recovery import SegmentOverflowedError, SegmentRecovery
from recovery.load.segments import Segment, SegmentMap, first_unflushed, log_base_offsets
from recovery.load.small_files import (
    read_epochs,
    read_topic_id,
    stops_later_releases,
    stray_reasons,
    txn_index_problem,
)
from recovery.load.split import split_segment
from recovery.load.stops import remedy_by_checking, words_of_a_wrong_marker, words_of_kept_deletions
from recovery.load.swaps import settle_leftovers
from recovery.load.tree import PartitionTree
from segfmt.checkpoint import encode_leader_epoch_checkpoint
from segfmt.errors import FileNameError
from segfmt.filenames import (
    DELETED_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    FileKind,
    file_kind,
    log_name,
    read_offset,
)
from segfmt.java_text import LONG_MAX
from segfmt.producer_snapshot import MOST_ENTRIES

_EPOCHS_BEFORE_RENAME = f"{LEADER_EPOCH_CHECKPOINT}.tmp"


def fold(task: PartitionTask, source: PartitionSource) -> PartitionOutcome:
    """Return what a broker of the task's release leaves of its folder after loading it and shutting down cleanly.

    Raises:
        PartitionRefusedError: the broker would halt or fail the log dir, or this version cannot recover the state.
    """
    try:
        loader = _Loader(task, source)
        loader.load()
    except FileNameError as error:
        raise PartitionRefusedError(
            file=error.name,
            position=None,
            rule="foreign-file",
            detail=f"{error} ({error.kafka} stops the broker)",
            remedy="move the file out of the partition's folder",
        ) from error
    return loader.close()


class _Loader:
    def __init__(self, task: PartitionTask, source: PartitionSource) -> None:
        self._task = task
        self._tree = PartitionTree(task.files, source, task.others)
        self._reader = LogReader(self._tree, source, partial(remedy_by_checking, task))
        self._segments = SegmentMap()
        self._epochs = read_epochs(self._tree)
        self._main_state = self._new_state()
        self._recovery = SegmentRecovery(
            task, self._tree, self._segments, self._reader, self._epochs, self._new_state
        )
        self._warnings: list[str] = []
        self._tail: tuple[int, int] | None = None  # known of a log that is not recovered
        self._orphaned_indexes: list[str] = []
        self._log_end_offset = 0
        self._log_start_offset = 0
        self._recovery_point = 0
        self._topic_id: str | None = None
        self._first_unflushed_base = -1
        self._unflushed: frozenset[int] = frozenset()

    def _new_state(self) -> ProducerState:
        task = self._task
        return ProducerState(
            self._tree,
            now_ms=task.now_ms,
            expiration_ms=task.producer_id_expiration_ms,
            most_snapshot_entries=task.release.most_snapshot_entries,
        )

    # -- load -----------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Run the passes of LogLoader.load and what UnifiedLog.create does around them."""
        task = self._task
        settle_leftovers(self._tree, self._reader, segment_index_bytes=task.settings.segment_index_bytes)
        self._load_segments()
        if task.is_delete_folder:
            if not len(self._segments):
                self._create_segment(0)
        else:
            self._recover_log()
            self._check_active_index_sizes()
        self._epochs.truncate_from_end(self._log_end_offset)
        first_base = self._segments.first.base_offset
        self._log_start_offset = task.log_start_offset
        if not task.settings.remote_log_enabled:
            self._log_start_offset = max(task.log_start_offset, first_base)
        self._epochs.truncate_from_start(task.log_start_offset)
        self._main_state.remove_stray_snapshots(self._segments.base_offsets)
        rebuild_producer_state(
            self._main_state,
            self._segments,
            self._reader,
            log_start_offset=self._log_start_offset,
            last_offset=self._log_end_offset,
            from_clean_shutdown=task.had_clean_shutdown,
        )
        self._find_first_unstable_offset()
        self._topic_id = read_topic_id(self._tree, task.settings.topic_id)
        self._warnings += stray_reasons(task, self._topic_id)

    def _find_first_unstable_offset(self) -> None:
        """Look up where the first open transaction begins. Kafka: UnifiedLog.maybeIncrementFirstUnstableOffset."""
        first_unstable = self._main_state.first_unstable_offset
        if first_unstable is None:
            return
        offset = max(first_unstable, self._log_start_offset)
        if offset < self._log_end_offset and self._segments.floor(offset) is not None:
            self._reader.find_offset(self._segments.values(offset, LONG_MAX), offset)

    def _load_segments(self) -> None:
        """Open the segments; after each split, start again at the first one, with the files that are then there.

        Kafka: LogLoader.retryOnOffsetOverflow around loadSegmentFiles. The segment that is split is not among the
        loaded ones yet, so those of its files stay whose names the new segments do not take.
        """
        while True:
            try:
                return self._load_segment_files()
            except SegmentOverflowedError as overflow:
                self._split(overflow)
                if self._task.release.trims_all_opened_indexes:
                    self._trim_indexes(self._segments.values())
                self._segments.clear()

    def _load_segment_files(self) -> None:
        """Open all segments in order; recover those without an offset index or with a wrong transaction index.

        Kafka: LogLoader.loadSegmentFiles.
        """
        bases = log_base_offsets(self._tree.names()).values()
        self._first_unflushed_base = first_unflushed(bases, self._task.recovery_point)
        self._unflushed = frozenset(unflushed_bases(self._task, self._tree.names()))
        for name in self._tree.names():
            kind = file_kind(name)
            if kind in (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX):
                if not self._tree.exists(log_name(read_offset(name))):
                    self._tree.remove(name, RemovalKind.DERIVED)
                    self._orphaned_indexes.append(name)
            elif kind is FileKind.LOG:
                self._open_segment(read_offset(name))

    def _open_segment(self, base_offset: int) -> None:
        segment = Segment(base_offset=base_offset, opened_indexes=set())
        if segment.log not in self._tree:
            self._tree.put(segment.log, b"")
        refuse_large_log(segment.log, self._tree.size_bytes(segment.log))
        if not self._tree.exists(segment.offset_index):
            is_reported = self._task.had_clean_shutdown or base_offset < self._task.recovery_point
            self._recover_while_loading(segment, IndexProblem(kind="missing", is_reported=is_reported))
        else:
            if not self._tree.exists(segment.time_index):  # made empty and never rebuilt
                self._tree.put(segment.time_index, b"")
                segment.opened_indexes.add(segment.time_index)
            self._check_txn_index(segment)
        self._segments.add(segment)

    def _check_txn_index(self, segment: Segment) -> None:
        """Recover a segment whose transaction index is wrong, or refuse the partition.

        Differs: where a segment will be recovered its index is written anew, and every release starts on that; so a
        version on which only later releases halt is no obstacle there.
        """
        halts_on_any = self._task.release.halts_on_any_txn_version
        is_rewritten = self._task.recovers(segment.base_offset, self._first_unflushed_base)
        problem = txn_index_problem(self._tree, segment, is_low_byte_read=halts_on_any and not is_rewritten)
        if problem is not None:
            self._recover_while_loading(segment, IndexProblem(kind="corrupt", detail=problem))
        elif not halts_on_any and not is_rewritten:
            warning = stops_later_releases(self._tree, segment)
            self._warnings += [] if warning is None else [warning]

    def _recover_while_loading(self, segment: Segment, problem: IndexProblem) -> None:
        """Recover a segment before its turn. A cut here does not delete later segments: the broker leaves a hole."""
        count = len(self._unflushed) if segment.base_offset in self._unflushed else 0
        if self._recovery.recover(segment, count=count, index_problem=problem):
            self._warnings.append(
                f"{segment.log}: cut while its index was rebuilt; later segments stay, as with the broker, "
                "so offsets may be missing"
            )

    # -- recover --------------------------------------------------------------------------------------------

    def _recover_log(self) -> None:
        """Recover the unflushed segments and settle where the log ends. Kafka: LogLoader.recoverLog."""
        task = self._task
        if not task.had_clean_shutdown:
            self._recover_unflushed()
        log_end_offset = self._log_end_unless_before_start()
        if not len(self._segments):
            self._create_segment(task.log_start_offset)
        if log_end_offset is None:
            log_end_offset = self._reader.next_offset(self._segments.last)
        self._log_end_offset = log_end_offset
        self._recovery_point = min(task.recovery_point, log_end_offset)
        if task.had_clean_shutdown:
            self._recovery_point = log_end_offset
            self._warn_of_a_wrong_marker()

    def _warn_of_a_wrong_marker(self) -> None:
        """Warn of signs, seen without a scan, that this log was not shut down cleanly; a broker loads it all the same.

        Kafka: LogSegment.readNextOffset ends at a torn batch without an error, and new batches are appended after it.
        """
        active, log_end_offset = self._segments.last, self._log_end_offset
        end, count = self._reader.bytes_after(active.log)
        if log_end_offset == active.base_offset and end:
            end, count = 0, end + count  # its index points past its last batch: it passes for empty
        self._tail = end, count
        point = self._task.recovery_point
        if count or log_end_offset < point < LONG_MAX:
            self._warnings.append(words_of_a_wrong_marker(active.log, end, count, log_end_offset, point))

    def _recover_unflushed(self) -> None:
        """Recover all unflushed segments up to a cut; after each split, start again at the first one."""
        while True:
            try:
                return self._recover_in_order(self._segments.values(self._task.recovery_point, LONG_MAX))
            except SegmentOverflowedError as overflow:
                self._split(overflow)

    def _split(self, overflow: SegmentOverflowedError) -> None:
        keeps_snapshot = split_segment(
            overflow,
            self._tree,
            self._segments,
            self._reader,
            segment_index_bytes=self._task.settings.segment_index_bytes,
        )
        if not keeps_snapshot:
            self._delete_snapshots_of([overflow.segment])
        self._warnings.append(f"{overflow.segment.log}: split, its offsets do not fit one segment")

    def _recover_in_order(self, unflushed: list[Segment]) -> None:
        for ordinal, segment in enumerate(unflushed, 1):
            if self._recovery.recover(segment, ordinal=ordinal, count=len(unflushed)):
                later = unflushed[ordinal:]
                self._delete_segments(later, CutCause("after-cut", f"after the cut in {segment.log}"))
                self._delete_snapshots_of(later)
                return

    def _log_end_unless_before_start(self) -> int | None:
        """Return the log end, or drop the whole log if it ends before its checkpointed start.

        Kafka: LogLoader.deleteSegmentsIfLogStartGreaterThanLogEnd.
        """
        if not len(self._segments):
            return None
        log_end_offset = self._reader.next_offset(self._segments.last)
        start = self._task.log_start_offset
        if log_end_offset >= start:
            return log_end_offset
        reason = f"the log ends at {log_end_offset}, before its log start offset {start}"
        self._warnings.append(f"{reason}: all segments are deleted")
        self._recovery.dropped_end_offset = log_end_offset
        self._delete_segments(self._segments.values(), CutCause("log-start", reason))
        self._epochs.clear()
        self._main_state.truncate_fully_and_start_at(start)
        return None

    def _create_segment(self, base_offset: int) -> None:
        segment = Segment(base_offset=base_offset, opened_indexes=set())
        if self._tree.exists(segment.txn_index):  # an existing one is opened at once
            self._tree.require_file(segment.txn_index)
        self._tree.put(segment.log, b"", size_bytes=self._task.created_log_bytes)
        if not self._task.is_delete_folder:
            for index, _ in segment.mapped_indexes:
                self._tree.put(index, b"")
        self._segments.add(segment)

    def _delete_segments(self, segments: list[Segment], cause: CutCause) -> None:
        """Rename the files of *segments* to `.deleted`; a broker unlinks them after file.delete.delay.ms.

        Kafka: LogLoader.removeAndDeleteSegmentsAsync.
        """
        for segment in segments:
            self._recovery.note_deleted(segment, cause)
            self._segments.remove(segment)
            for name in (segment.log, segment.offset_index, segment.time_index, segment.txn_index):
                if self._tree.is_taken(name):
                    self._tree.rename(name, name + DELETED_SUFFIX)

    def _delete_snapshots_of(self, segments: list[Segment]) -> None:
        """Rename the snapshots at the bases of deleted segments. Kafka: UnifiedLog.deleteProducerSnapshots."""
        for segment in segments:
            snapshot = self._main_state.forget_snapshot(segment.base_offset)
            if snapshot is not None and snapshot in self._tree:
                self._tree.rename(snapshot, snapshot + DELETED_SUFFIX)

    def _check_active_index_sizes(self) -> None:
        """An active index longer than segment.index.bytes cannot be mapped. Kafka: AbstractIndex.resize."""
        active = self._segments.last
        if active.scan is not None:
            return
        limit = self._task.settings.segment_index_bytes
        for name, entry_bytes in active.mapped_indexes:
            active.opened_indexes.add(name)
            refuse_large_index(name, self._tree.size_bytes(name), entry_bytes, segment_index_bytes=limit)

    # -- close ----------------------------------------------------------------------------------------------

    def close(self) -> PartitionOutcome:
        """Shut the log down cleanly and return what is left. Kafka: UnifiedLog.flush, UnifiedLog.close."""
        task, is_remote = self._task, self._task.settings.remote_log_enabled
        first_base = self._segments.first.base_offset
        local_start = max(self._log_start_offset, first_base)
        log_start_offset = self._log_start_offset if is_remote else local_start
        recovery_point = None
        if task.is_stray_folder:
            self._preallocate_active_indexes()
        elif not task.is_delete_folder:
            self._main_state.take_snapshot()
            self._warn_of_a_long_snapshot()
            recovery_point = max(self._recovery_point, log_start_offset, local_start)
            if self._log_end_offset < LONG_MAX:  # the flush is up to the next offset, which overflows
                self._open_flushed_indexes(recovery_point)
                recovery_point = self._log_end_offset
            is_all = task.release.trims_all_opened_indexes
            self._trim_indexes(self._segments.values() if is_all else [self._segments.last])
        if self._epochs.is_changed:
            data = encode_leader_epoch_checkpoint(self._epochs.entries)
            self._tree.put(LEADER_EPOCH_CHECKPOINT, data)
            self._tree.put(_EPOCHS_BEFORE_RENAME, b"")  # written, and renamed
            self._tree.remove(_EPOCHS_BEFORE_RENAME, RemovalKind.LEFTOVER)
        open_txns = self._main_state.open_transactions()
        stock = take_stock(
            task, self._tree, self._segments, self._reader, self._recovery, open_txns, self._orphaned_indexes
        )
        last_log = self._segments.last.log
        tail = self._tail or (self._tree.size_bytes(last_log), 0)
        missing, why = missing_end(task, self._log_end_offset, last_log, tail, stock.cuts)
        holes = (*stock.holes, *missing)
        segments = tuple(self._segments.values())
        kept = bases_of_missing(task, segments, holes, self._log_end_offset, self._reader.spans_of)
        told = (words_of_kept_deletions(kept),) if kept else ()
        why = why or tuple(warn_of_lost_segments(task, self._log_end_offset, self._orphaned_indexes))
        return PartitionOutcome(
            log_start_offset=log_start_offset,
            log_end_offset=self._log_end_offset,
            local_log_start_offset=local_start,
            recovery_point=recovery_point,
            segment_count=len(self._segments),
            recovered_segments=len(self._recovery.recovered),
            scanned_bytes=self._reader.scanned_bytes,
            recovered_bytes=sum(self._recovery.recovered.values()),
            tree=self._tree.nodes,
            removed=self._removed(kept),
            cuts=stock.cuts,
            holes=holes,
            deleted_base_offsets=tuple(self._recovery.deleted),
            dropped_end_offset=self._recovery.dropped_end_offset,
            orphaned_indexes=tuple(self._orphaned_indexes),
            warnings=(*self._warnings, *stock.warnings, *why, *told),
            checkpoints_log_start=is_remote or log_start_offset > first_base,
            is_loaded=not (task.is_delete_folder or task.is_stray_folder),
            producer_count=self._main_state.producer_count,
            topic_id=self._topic_id,
        )

    def _removed(self, kept_bases: Collection[int]) -> dict[str, RemovalKind]:
        """Return what has been removed; of files that were pending deletion, whether they may hold what is missing."""
        stems = {log_name(base).removesuffix(LOG_SUFFIX) for base in kept_bases}
        removed = self._tree.removed
        for name, kind in removed.items():
            if kind is RemovalKind.PENDING_DELETION and name.partition(".")[0] in stems:
                removed[name] = RemovalKind.CUT_OFF
        return removed

    def _warn_of_a_long_snapshot(self) -> None:
        count = self._main_state.producer_count
        if count > MOST_ENTRIES:
            self._warnings.append(
                f"{count} producers: a broker of 4.4 or later discards a snapshot of more than {MOST_ENTRIES} at each "
                "start, clean or not, and reads the log instead"
            )

    def _preallocate_active_indexes(self) -> None:
        """Leave the active indexes as large as they were opened: a broker never closes a stray log.

        Kafka: LogSegment.resizeIndexes; LogManager.shutdown closes current and future logs only.
        """
        for name, entry_bytes in self._segments.last.mapped_indexes:
            size_bytes = self._task.settings.segment_index_bytes // entry_bytes * entry_bytes
            self._tree.put(name, self._tree.read(name)[:size_bytes], size_bytes=size_bytes)

    def _open_flushed_indexes(self, recovery_point: int) -> None:
        """Note that flushing maps the indexes of all segments beyond the recovery point.

        Recovered segments and the active one are mapped before, so this shows only in a log that was shut down cleanly
        and ends before the base offset of its active segment.

        Kafka: LocalLog.flush.
        """
        if recovery_point <= self._log_end_offset:
            for segment in self._segments.values(recovery_point, self._log_end_offset + 1):
                segment.opened_indexes.update(name for name, _ in segment.mapped_indexes)

    def _trim_indexes(self, segments: Iterable[Segment]) -> None:
        """Cut what was opened of the segments' indexes to whole entries. Kafka: AbstractIndex.trimToValidSize."""
        for segment in segments:
            for name, entry_bytes in segment.mapped_indexes:
                size_bytes = self._tree.size_bytes(name) if name in segment.opened_indexes else 0
                if size_bytes % entry_bytes:
                    self._tree.cut(name, size_bytes // entry_bytes * entry_bytes)
