"""The fold: from what lies in a partition's folder to what a broker would leave there.

`fold` plays Kafka's load of one log, pass by pass, on a `PartitionTree`, and then the clean shutdown. It opens nothing: bytes and
scans come from a `PartitionSource`, the clock from the task. The order of the passes, and what each forgets, is Kafka's, because
the outcome of a damaged folder depends on both. Where the broker would halt or take the log dir offline, it raises
`PartitionRefusedError`, and nothing has happened.

Kafka: LogLoader.load, UnifiedLog.create, UnifiedLog.rebuildProducerState, LogManager.shutdown.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from native.raw_scan import RawScan, Stop
from recovery.errors import PartitionRefusedError
from recovery.leader_epochs import LeaderEpochs
from recovery.model import (
    Cut,
    PartitionOutcome,
    PartitionSource,
    PartitionTask,
    RemovalKind,
    ScanMode,
    ScanRequest,
)
from recovery.producer_state import InvalidTxnStateError, ProducerState
from recovery.segment import Segment, SegmentMap
from recovery.stops import CUTTING_STOPS, OUT_OF_ORDER_STOPS, cut_reason, refusal_of_stop
from recovery.tree import PartitionTree
from segfmt.checkpoint import encode_leader_epoch_checkpoint, read_leader_epoch_checkpoint
from segfmt.errors import CorruptIndexError, FileNameError, FormatError, MalformedCheckpointError
from segfmt.filenames import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    PARTITION_METADATA,
    SWAP_SUFFIX,
    FileKind,
    file_kind,
    log_name,
    offset_index_name,
    read_offset,
)
from segfmt.kafka_uuid import format_uuid
from segfmt.layout import OFFSET_INDEX_DTYPE, TIME_INDEX_DTYPE
from segfmt.offset_index import (
    encode_offset_index,
    last_offset,
    lookup,
    preallocated_bytes,
    view_offset_index,
)
from segfmt.partition_metadata import read_partition_metadata
from segfmt.time_index import encode_time_index
from segfmt.transaction_index import check_transaction_index, encode_transaction_index

MAX_LONG = 2**63 - 1


def fold(task: PartitionTask, source: PartitionSource) -> PartitionOutcome:
    """Return what a 4.3.1 broker leaves of *task*'s folder after loading it and shutting down cleanly.

    Raises:
        PartitionRefusedError: the broker would halt or fail the log dir, or this version cannot recover the state.
    """
    try:
        loader = _Loader(task, source)
        loader.load()
    except FileNameError as error:
        raise PartitionRefusedError(
            file=task.folder,
            position=None,
            rule=f"{error} ({error.kafka} stops the broker)",
            remedy="move the file out of the partition's folder",
        ) from error
    return loader.close()


def unflushed_segments(task: PartitionTask) -> list[tuple[str, int, int]]:
    """Return (file, base offset, bytes) of the segments that a recovery will most likely read, ascending.

    A forecast for progress and for reading ahead; the fold itself decides. Empty for clean log dirs.

    Kafka: LogLoader.recoverLog, LogSegments.values(recoveryPoint, Long.MAX_VALUE).
    """
    if task.had_clean_shutdown or task.is_delete_folder or task.recovery_point == MAX_LONG:
        return []
    logs = sorted(
        (read_offset(name), name)
        for name in task.files
        if name.endswith(LOG_SUFFIX) and name[:-4].isascii() and name[:-4].isdigit()
    )
    floor = max((base for base, _ in logs if base <= task.recovery_point), default=-1)
    return [(name, base, task.files[name].size_bytes) for base, name in logs if base >= floor]


class _Loader:
    def __init__(self, task: PartitionTask, source: PartitionSource) -> None:
        self._task = task
        self._source = source
        self._tree = PartitionTree(task.files, source)
        self._segments = SegmentMap()
        self._epochs = self._read_epochs()
        self._main_state = self._new_state()
        self._cuts: list[Cut] = []
        self._warnings: list[str] = []
        self._scans: dict[tuple[str, int], RawScan] = {}
        self._recovered: dict[int, int] = {}  # base offset -> valid bytes
        self._scanned_bytes = 0
        self._log_end_offset = 0
        self._log_start_offset = 0
        self._recovery_point = 0
        self._topic_id: str | None = None

    # -- passes --------------------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Run the passes of LogLoader.load and what UnifiedLog.create does around them."""
        self._finish_swaps(self._remove_temporary_files())
        self._load_segment_files()
        if self._task.is_delete_folder:
            if not len(self._segments):
                self._create_segment(0)
            self._recovery_point = self._log_end_offset = 0
        else:
            self._recover_log()
            self._check_active_index_sizes()
        self._epochs.truncate_from_end(self._log_end_offset)
        checkpointed_start = self._task.log_start_offset
        first_base = self._segments.first.base_offset
        remote = self._task.settings.remote_log_enabled
        self._log_start_offset = checkpointed_start if remote else max(checkpointed_start, first_base)
        self._epochs.truncate_from_start(checkpointed_start)
        self._main_state.remove_stray_snapshots(self._segments.base_offsets)
        self._rebuild_producer_state(
            self._main_state,
            self._log_start_offset,
            self._log_end_offset,
            from_clean_shutdown=self._task.had_clean_shutdown,
        )
        self._check_partition_metadata()

    def _remove_temporary_files(self) -> list[str]:
        """Drop `.deleted` and `.cleaned`, and the `.swap` files of a split that did not get far; return the other `.swap` files.

        Kafka: LogLoader.removeTempFilesAndCollectSwapFiles.
        """
        kinds = {name: file_kind(name) for name in self._tree.names()}
        cleaned = [name for name, kind in kinds.items() if kind is FileKind.CLEANED]
        swaps = [name for name, kind in kinds.items() if kind is FileKind.SWAP]
        for name, kind in kinds.items():
            if kind is FileKind.DELETED:
                self._tree.remove(name, RemovalKind.PENDING_DELETION)
        first_cleaned = min(map(read_offset, cleaned), default=MAX_LONG)
        unfinished = [name for name in swaps if read_offset(name) >= first_cleaned]
        for name in [*unfinished, *cleaned]:
            self._tree.remove(name, RemovalKind.LEFTOVER)
        return [name for name in swaps if name not in unfinished]

    def _finish_swaps(self, swaps: list[str]) -> None:
        """Let the `.swap` files take the place of the segments between the first and the last of them.

        Kafka: LogLoader.load, between the first and the fourth pass.
        """
        logs = [name for name in swaps if name.removesuffix(SWAP_SUFFIX).endswith(LOG_SUFFIX)]
        if logs:
            first = min(map(read_offset, logs))
            end = max(self._swap_end_offset(read_offset(name)) for name in logs)
            for name in self._tree.names():
                if not name.endswith(SWAP_SUFFIX) and _is_numbered_between(name, first, end):
                    derived = file_kind(name) not in (FileKind.LOG, FileKind.OTHER)
                    self._tree.remove(name, RemovalKind.DERIVED if derived else RemovalKind.COMPACTED)
        for name in self._tree.names():
            if name.endswith(SWAP_SUFFIX):
                self._tree.rename(name, name.removesuffix(SWAP_SUFFIX))

    def _swap_end_offset(self, base_offset: int) -> int:
        log, index = log_name(base_offset, SWAP_SUFFIX), offset_index_name(base_offset, SWAP_SUFFIX)
        if log not in self._tree:
            self._tree.put(log, b"")
        if index not in self._tree:  # Kafka maps a new one, full size and all zeros, and does not trim it
            self._tree.put(index, b"", size_bytes=preallocated_bytes(self._task.settings.segment_index_bytes))
            entries = view_offset_index(b"")
        else:
            entries = view_offset_index(self._tree.read(index))
        return self._walk_to_end(log, base_offset, entries)

    def _load_segment_files(self) -> None:
        """Open all segments in order; recover those whose offset index is missing or whose transaction index is wrong.

        Kafka: LogLoader.loadSegmentFiles.
        """
        for name in self._tree.names():
            kind = file_kind(name)
            if kind in (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX):
                if log_name(read_offset(name)) not in self._tree:
                    self._tree.remove(name, RemovalKind.DERIVED)
            elif kind is FileKind.LOG:
                self._open_segment(read_offset(name))

    def _open_segment(self, base_offset: int) -> None:
        segment = Segment(base_offset=base_offset, opened_indexes=set())
        if segment.log not in self._tree:
            self._tree.put(segment.log, b"")
        if self._tree.size_bytes(segment.log) > 2**31 - 1:
            raise PartitionRefusedError(
                file=segment.log,
                position=2**31 - 1,
                rule="a segment larger than 2147483647 bytes stops the broker (KafkaException in FileRecords)",
                remedy="move the segment away, or split it with a tool that rewrites batches",
            )
        if segment.offset_index not in self._tree:
            self._recover_while_loading(segment)
        else:
            if segment.time_index not in self._tree:  # made empty and never rebuilt
                self._tree.put(segment.time_index, b"")
                segment.opened_indexes.add(segment.time_index)
            if self._has_corrupt_txn_index(segment):
                self._recover_while_loading(segment)
        self._segments.add(segment)

    def _has_corrupt_txn_index(self, segment: Segment) -> bool:
        if segment.txn_index not in self._tree or self._tree.size_bytes(segment.txn_index) == 0:
            return False
        try:
            check_transaction_index(self._tree.read(segment.txn_index), segment.base_offset)
        except CorruptIndexError:
            return True
        except FormatError as error:
            raise PartitionRefusedError(
                file=segment.txn_index,
                position=error.position,
                rule=f"{error} ({error.kafka} stops the broker)",
                remedy="move the transaction index and the segment's .index away: both are rebuilt from the log",
            ) from error
        return False

    def _recover_while_loading(self, segment: Segment) -> None:
        """Recover a segment in the load pass. What is cut here does not delete later segments: the broker leaves a hole."""
        truncated_bytes = self._recover_segment(
            segment,
            ScanRequest(
                file=segment.log,
                base_offset=segment.base_offset,
                end_position=self._tree.size_bytes(segment.log),
            ),
            may_empty=False,
        )
        if truncated_bytes:
            self._warnings.append(
                f"{segment.log}: cut while its index was rebuilt; segments behind it stay, as with the broker, so offsets may be missing"
            )

    # -- recoverLog ------------------------------------------------------------------------------------------------------

    def _recover_log(self) -> None:
        """Recover the unflushed segments and settle where the log ends.

        Kafka: LogLoader.recoverLog.
        """
        task = self._task
        if not task.had_clean_shutdown:
            unflushed = self._segments.values(task.recovery_point, MAX_LONG)
            for ordinal, segment in enumerate(unflushed, 1):
                truncated_bytes = self._recover_segment(
                    segment,
                    ScanRequest(
                        file=segment.log,
                        base_offset=segment.base_offset,
                        end_position=self._tree.size_bytes(segment.log),
                        ordinal=ordinal,
                        count=len(unflushed),
                    ),
                    may_empty=True,
                )
                if truncated_bytes > 0:
                    self._delete_segments(unflushed[ordinal:], f"behind the cut in {segment.log}")
                    self._delete_snapshots_of(unflushed[ordinal:])
                    break
        log_end_offset = self._log_end_unless_before_start()
        if not len(self._segments):
            self._create_segment(task.log_start_offset)
        if log_end_offset is None:
            log_end_offset = self._next_offset(self._segments.last)
        self._log_end_offset = log_end_offset
        self._recovery_point = (
            log_end_offset if task.had_clean_shutdown else min(task.recovery_point, log_end_offset)
        )

    def _log_end_unless_before_start(self) -> int | None:
        """Return the log end, or drop the whole log where it ends before its checkpointed start.

        Kafka: LogLoader.deleteSegmentsIfLogStartGreaterThanLogEnd.
        """
        if not len(self._segments):
            return None
        log_end_offset = self._next_offset(self._segments.last)
        start = self._task.log_start_offset
        if log_end_offset >= start:
            return log_end_offset
        self._warnings.append(
            f"the log ends at {log_end_offset}, before its checkpointed start {start}: all segments are deleted"
        )
        self._delete_segments(
            self._segments.values(), f"the log ends at {log_end_offset}, before its log start offset {start}"
        )
        self._epochs.clear()
        self._main_state.truncate_fully_and_start_at(start)
        return None

    def _create_segment(self, base_offset: int) -> None:
        segment = Segment(base_offset=base_offset, opened_indexes=set())
        self._tree.put(segment.log, b"")  # a preallocated one shrinks to nothing when the log is closed
        if not self._task.is_delete_folder:
            for index, _ in _index_files(segment):
                if index not in self._tree:
                    self._tree.put(index, b"")
        self._segments.add(segment)

    def _delete_segments(self, segments: Iterable[Segment], reason: str) -> None:
        """Rename the files of *segments* to `.deleted`; a broker would unlink them after file.delete.delay.ms.

        Kafka: LogLoader.removeAndDeleteSegmentsAsync.
        """
        for segment in list(segments):
            original = self._tree.original(segment.log)
            if original is not None and original.size_bytes:
                self._cuts.append(
                    Cut(
                        file=original.file,
                        base_offset=segment.base_offset,
                        position=0,
                        size_bytes=original.size_bytes,
                        batch_count=self._count_batches(
                            original.file, segment.base_offset, 0, original.size_bytes
                        ),
                        reason=reason,
                    )
                )
            self._segments.remove(segment)
            for name in (segment.log, segment.offset_index, segment.time_index, segment.txn_index):
                if name in self._tree:
                    self._tree.rename(name, name + DELETED_SUFFIX)

    def _delete_snapshots_of(self, segments: Iterable[Segment]) -> None:
        """Rename the snapshots at the bases of deleted segments. Kafka: UnifiedLog.deleteProducerSnapshots."""
        for segment in segments:
            snapshot = self._main_state.forget_snapshot(segment.base_offset)
            if snapshot is not None and snapshot in self._tree:
                self._tree.rename(snapshot, snapshot + DELETED_SUFFIX)

    # -- one segment -------------------------------------------------------------------------------------------------------

    def _recover_segment(self, segment: Segment, request: ScanRequest, *, may_empty: bool) -> int:
        """Recover one segment and return the bytes cut from its `.log`.

        Kafka: LogLoader.recoverSegment, LogSegment.recover.
        """
        state = self._new_state()
        self._rebuild_producer_state(
            state, self._task.log_start_offset, segment.base_offset, from_clean_shutdown=False
        )
        scan = self._recovery_scan(segment, request, may_empty=may_empty)
        self._observe_epochs(segment, scan)
        try:
            aborted = state.recover(scan)
        except InvalidTxnStateError as error:
            raise PartitionRefusedError(
                file=segment.log,
                position=error.position,
                rule=f"{error} (InvalidTxnStateException stops the broker)",
                remedy="cut the log before this batch, or restore the partition from another replica",
            ) from error
        self._write_recovered(segment, scan, aborted)
        state.take_snapshot()
        truncated_bytes = request.end_position - scan.valid_bytes
        self._recovered[segment.base_offset] = scan.valid_bytes
        return truncated_bytes

    def _observe_epochs(self, segment: Segment, scan: RawScan) -> None:
        for (epoch, base_offset), position in zip(
            scan.epochs.tolist(), scan.epoch_positions.tolist(), strict=True
        ):
            latest = self._epochs.latest_epoch
            if base_offset < 0 and (latest is None or epoch > latest):
                raise PartitionRefusedError(
                    file=segment.log,
                    position=position,
                    rule=f"leader epoch {epoch} begins at the negative offset {base_offset} (IllegalArgumentException stops the broker)",
                    remedy="restore the partition from another replica",
                )
            self._epochs.observe(epoch, base_offset)

    def _recovery_scan(self, segment: Segment, request: ScanRequest, *, may_empty: bool) -> RawScan:
        scan = self._scan(segment.log, request)
        if scan.stop in OUT_OF_ORDER_STOPS and may_empty:
            # Differs: Kafka empties the whole segment; here the batches before the one out of order stay (docs/differences.md).
            cut = self._scan(
                segment.log,
                ScanRequest(
                    file=request.file, base_offset=request.base_offset, end_position=scan.stop_position
                ),
            )
            self._note_cut(segment, scan, cut.valid_bytes)
            return cut
        if scan.stop not in CUTTING_STOPS:
            raise refusal_of_stop(segment.log, segment.base_offset, scan, while_loading=not may_empty)
        self._note_cut(segment, scan, scan.valid_bytes)
        return scan

    def _note_cut(self, segment: Segment, scan: RawScan, valid_bytes: int) -> None:
        size_bytes = self._tree.size_bytes(segment.log)
        original = self._tree.original(segment.log)
        if valid_bytes >= size_bytes or original is None:
            return
        is_preallocated = self._task.settings.preallocate and self._source.is_zero(
            original.file, valid_bytes, size_bytes
        )
        self._cuts.append(
            Cut(
                file=original.file,
                base_offset=segment.base_offset,
                position=valid_bytes,
                size_bytes=size_bytes - valid_bytes,
                batch_count=self._count_batches(original.file, segment.base_offset, valid_bytes, size_bytes),
                reason="preallocated and never written" if is_preallocated else cut_reason(scan),
                is_preallocated=is_preallocated,
            )
        )

    def _count_batches(self, file: str, base_offset: int, start_position: int, end_position: int) -> int:
        request = ScanRequest(
            file=file,
            base_offset=base_offset,
            start_position=start_position,
            end_position=end_position,
            mode=ScanMode.WALK,
        )
        return self._source.scan(request).batch_count

    def _write_recovered(self, segment: Segment, scan: RawScan, aborted: npt.NDArray[np.void]) -> None:
        if np.any(np.diff(aborted["last_offset"]) <= 0):
            raise PartitionRefusedError(
                file=segment.log,
                position=None,
                rule="aborted transactions do not end in ascending order (IllegalArgumentException stops the broker)",
                remedy="restore the partition from another replica",
            )
        self._tree.cut(segment.log, scan.valid_bytes)
        self._tree.put(segment.offset_index, encode_offset_index(_index_entries(scan)))
        self._tree.put(segment.time_index, encode_time_index(scan.time_index))
        if len(aborted) or segment.txn_index in self._tree:
            self._tree.put(segment.txn_index, encode_transaction_index(aborted))
        segment.scan = scan
        segment.opened_indexes.update((segment.offset_index, segment.time_index))

    def _next_offset(self, segment: Segment) -> int:
        """Return the offset behind the last batch of *segment*. Kafka: LogSegment.readNextOffset."""
        entries = segment.index_entries(self._tree)
        if segment.scan is not None:
            return self._offset_behind(segment.log, segment.base_offset, entries, segment.scan)
        return self._walk_to_end(segment.log, segment.base_offset, entries)

    def _walk_to_end(self, log: str, base_offset: int, entries: npt.NDArray[np.void]) -> int:
        target_offset = last_offset(entries, base_offset)
        position = _checked_position(log, lookup(entries, base_offset, target_offset).position)
        scan = self._scan(
            log,
            ScanRequest(
                file=log,
                base_offset=base_offset,
                start_position=position,
                end_position=self._tree.size_bytes(log),
                mode=ScanMode.WALK,
            ),
        )
        if scan.stop not in (Stop.END, Stop.TORN):
            raise refusal_of_stop(log, base_offset, scan, while_loading=True)
        return self._offset_behind(log, base_offset, entries, scan)

    def _offset_behind(self, log: str, base_offset: int, entries: npt.NDArray[np.void], scan: RawScan) -> int:
        """Return the end that Kafka sees: it looks for the last indexed offset first, and without it sees an empty segment."""
        if not scan.batch_count:
            return base_offset
        target_offset = last_offset(entries, base_offset)
        is_found = (
            scan.last_offset >= target_offset
            or self._search(log, entries, base_offset, target_offset) is not None
        )
        return scan.last_offset + 1 if is_found else base_offset

    def _scan(self, log: str, request: ScanRequest) -> RawScan:
        """Return the scan of the file that *log* stands for now; a recovered one is not read twice."""
        original = self._tree.original(log)
        file = log if original is None else original.file
        key = (file, request.end_position)
        if request.mode is ScanMode.RECOVER and key in self._scans:
            return self._scans[key]
        scan = self._source.scan(
            ScanRequest(
                file=file,
                base_offset=request.base_offset,
                start_position=request.start_position,
                end_position=request.end_position,
                mode=request.mode,
                ordinal=request.ordinal,
                count=request.count,
            )
        )
        if request.mode is ScanMode.RECOVER:
            self._scanned_bytes += request.end_position
            self._scans[file, scan.valid_bytes] = scan._replace(stop=Stop.END)
        return scan

    # -- producers -----------------------------------------------------------------------------------------------------------

    def _new_state(self) -> ProducerState:
        return ProducerState(
            self._tree, now_ms=self._task.now_ms, expiration_ms=self._task.producer_id_expiration_ms
        )

    def _rebuild_producer_state(
        self, state: ProducerState, log_start_offset: int, last_offset: int, *, from_clean_shutdown: bool
    ) -> None:
        """Bring *state* to *last_offset*: from the newest snapshot, and the log behind it.

        Kafka: UnifiedLog.rebuildProducerState.
        """
        offsets_to_snapshot = [*self._segments.base_offsets[-2:], last_offset]
        if from_clean_shutdown and not state.has_snapshots:
            for offset in offsets_to_snapshot:
                state.map_end_offset = offset
                state.take_snapshot()
            return
        was_empty = state.is_empty and state.map_end_offset >= last_offset
        state.truncate_and_reload(log_start_offset, last_offset)
        if last_offset > state.map_end_offset and not was_empty:
            segment_of_last = self._segments.floor(last_offset)
            for segment in self._segments.values(state.map_end_offset, last_offset):
                start_offset = max(segment.base_offset, state.map_end_offset, log_start_offset)
                state.map_end_offset = start_offset
                if segment.base_offset in offsets_to_snapshot:
                    state.take_snapshot()
                self._replay(
                    state, segment, start_offset, last_offset if segment is segment_of_last else None
                )
        state.map_end_offset = last_offset
        state.take_snapshot()

    def _replay(
        self, state: ProducerState, segment: Segment, start_offset: int, end_offset: int | None
    ) -> None:
        size_bytes = self._tree.size_bytes(segment.log)
        end_position = size_bytes
        if end_offset is not None:
            found = self._translate(segment, end_offset)
            end_position = size_bytes if found is None else found
        start_position = self._translate(segment, start_offset)
        if start_position is None or start_position >= end_position:
            return
        scan = self._scan(
            segment.log,
            ScanRequest(
                file=segment.log,
                base_offset=segment.base_offset,
                start_position=start_position,
                end_position=end_position,
                mode=ScanMode.REPLAY,
            ),
        )
        if scan.stop not in (Stop.END, Stop.TORN):
            raise refusal_of_stop(segment.log, segment.base_offset, scan, while_loading=True)
        try:
            state.replay(scan)
        except InvalidTxnStateError as error:
            raise PartitionRefusedError(
                file=segment.log,
                position=error.position,
                rule=f"{error} (InvalidTxnStateException stops the broker)",
                remedy="restore the partition from another replica",
            ) from error

    def _translate(self, segment: Segment, target_offset: int) -> int | None:
        """Return the position of the batch that holds *target_offset*. Kafka: LogSegment.translateOffset."""
        entries = segment.index_entries(self._tree)
        return self._search(segment.log, entries, segment.base_offset, target_offset)

    def _search(
        self, log: str, entries: npt.NDArray[np.void], base_offset: int, target_offset: int
    ) -> int | None:
        position = _checked_position(log, lookup(entries, base_offset, target_offset).position)
        original = self._tree.original(log)
        if original is None or not original.size_bytes:
            return None
        try:
            return self._source.search(original.file, original.size_bytes, position, target_offset)
        except FormatError as error:
            raise PartitionRefusedError(
                file=log,
                position=error.position,
                rule=f"{error}, met on the way to offset {target_offset} ({error.kafka} stops the broker)",
                remedy="remove .kafka_cleanshutdown from the log dir and run recover again: the log is then checked",
            ) from error

    # -- small files -----------------------------------------------------------------------------------------------------------

    def _read_epochs(self) -> LeaderEpochs:
        """Read `leader-epoch-checkpoint`; Kafka makes an empty one where there is none.

        Kafka: UnifiedLog.createLeaderEpochCache, CheckpointFile constructor.
        """
        if LEADER_EPOCH_CHECKPOINT not in self._tree:
            self._tree.put(LEADER_EPOCH_CHECKPOINT, b"")
            return LeaderEpochs()
        try:
            entries = read_leader_epoch_checkpoint(self._tree.read(LEADER_EPOCH_CHECKPOINT))
        except MalformedCheckpointError as error:
            raise _refused_small_file(
                LEADER_EPOCH_CHECKPOINT, error, "move the file away: it is rebuilt from the log"
            ) from error
        if any(epoch < 0 or start_offset < 0 for epoch, start_offset in entries):
            error = MalformedCheckpointError(
                "a negative epoch or offset", takes_dir_offline=False, kafka="IllegalArgumentException"
            )
            raise _refused_small_file(
                LEADER_EPOCH_CHECKPOINT, error, "move the file away: it is rebuilt from the log"
            )
        return LeaderEpochs(entries)

    def _check_partition_metadata(self) -> None:
        """Kafka: UnifiedLog.initializeTopicId."""
        if PARTITION_METADATA not in self._tree:
            self._warnings.append(
                "no partition.metadata: a broker renames this folder to -stray once it has loaded it"
            )
            return
        try:
            self._topic_id = format_uuid(
                read_partition_metadata(self._tree.read(PARTITION_METADATA)).topic_id
            )
        except MalformedCheckpointError as error:
            raise _refused_small_file(
                PARTITION_METADATA,
                error,
                "write the topic's id (kafka-topics --describe) into the file, or copy it from another replica",
            ) from error

    def _check_active_index_sizes(self) -> None:
        """An active index longer than segment.index.bytes cannot be mapped. Kafka: AbstractIndex.resize."""
        active = self._segments.last
        if active.scan is not None:
            return
        for name, entry_bytes in _index_files(active):
            active.opened_indexes.add(name)
            limit = self._task.settings.segment_index_bytes // entry_bytes * entry_bytes
            size = self._tree.size_bytes(name) // entry_bytes * entry_bytes
            if size > limit:
                raise PartitionRefusedError(
                    file=name,
                    position=limit,
                    rule=f"the active index has {size} bytes, segment.index.bytes allows {limit} (IllegalArgumentException stops the broker)",
                    remedy="raise segment.index.bytes of the topic, or move the index away: it is rebuilt",
                )

    # -- close -------------------------------------------------------------------------------------------------------------------

    def close(self) -> PartitionOutcome:
        """Shut the log down cleanly and return what is left. Kafka: UnifiedLog.flush, UnifiedLog.close."""
        task, remote = self._task, self._task.settings.remote_log_enabled
        first_base = self._segments.first.base_offset
        local_start = max(self._log_start_offset, first_base)
        log_start_offset = self._log_start_offset if remote else local_start
        if task.is_stray_folder:
            self._preallocate_active_indexes()
        elif not task.is_delete_folder:
            self._main_state.take_snapshot()
            recovery_point = max(self._recovery_point, log_start_offset, local_start)
            if recovery_point <= self._log_end_offset:
                for segment in self._segments.values(recovery_point, self._log_end_offset + 1):
                    segment.opened_indexes.update((segment.offset_index, segment.time_index))
            self._trim_opened_indexes()
        if self._epochs.is_changed:
            self._tree.put(LEADER_EPOCH_CHECKPOINT, encode_leader_epoch_checkpoint(self._epochs.entries))
        return PartitionOutcome(
            log_start_offset=log_start_offset,
            log_end_offset=self._log_end_offset,
            local_log_start_offset=local_start,
            segment_count=len(self._segments),
            recovered_segments=len(self._recovered),
            scanned_bytes=self._scanned_bytes,
            recovered_bytes=sum(self._recovered.values()),
            tree=self._tree.nodes,
            removed=self._tree.removed,
            cuts=tuple(self._cuts),
            warnings=tuple(self._warnings),
            checkpoints_log_start=remote or log_start_offset > first_base,
            is_loaded=not (task.is_delete_folder or task.is_stray_folder),
            producer_count=self._main_state.producer_count,
            topic_id=self._topic_id,
        )

    def _preallocate_active_indexes(self) -> None:
        """Leave the active indexes as large as they were opened: a broker never closes a stray log.

        Kafka: LogSegment.resizeIndexes; LogManager.shutdown closes current and future logs only.
        """
        for name, entry_bytes in _index_files(self._segments.last):
            size_bytes = self._task.settings.segment_index_bytes // entry_bytes * entry_bytes
            self._tree.put(name, self._tree.read(name), size_bytes=size_bytes)

    def _trim_opened_indexes(self) -> None:
        """Cut mapped indexes to whole entries. Kafka: AbstractIndex.close."""
        for segment in self._segments.values():
            for name, entry_bytes in _index_files(segment):
                size = self._tree.size_bytes(name)
                if name in segment.opened_indexes and size % entry_bytes:
                    self._tree.cut(name, size // entry_bytes * entry_bytes)


def _index_files(segment: Segment) -> tuple[tuple[str, int], tuple[str, int]]:
    """Return name and entry size in bytes of the two index files that Kafka maps."""
    return (segment.offset_index, OFFSET_INDEX_DTYPE.itemsize), (
        segment.time_index,
        TIME_INDEX_DTYPE.itemsize,
    )


def _index_entries(scan: RawScan) -> npt.NDArray[np.void]:
    entries = np.empty(len(scan.offset_index), OFFSET_INDEX_DTYPE)
    entries["relative_offset"] = scan.offset_index[:, 0]
    entries["position"] = scan.offset_index[:, 1]
    return entries


def _checked_position(log: str, position: int) -> int:
    """Return *position*, from an index; the broker dies on a negative one. Java: FileChannel.read(ByteBuffer, long)."""
    if position < 0:
        raise PartitionRefusedError(
            file=log.removesuffix(LOG_SUFFIX) + INDEX_SUFFIX,
            position=None,
            rule=f"an index entry points at byte {position} (IllegalArgumentException stops the broker)",
            remedy="move the index away: it is rebuilt from the log",
        )
    return position


def _is_numbered_between(name: str, first: int, end: int) -> bool:
    try:
        return first <= read_offset(name) < end
    except FileNameError:
        return False


def _refused_small_file(file: str, error: MalformedCheckpointError, remedy: str) -> PartitionRefusedError:
    outcome = "takes the log dir offline" if error.takes_dir_offline else "stops the broker"
    return PartitionRefusedError(
        file=file, position=error.position, rule=f"{error} ({error.kafka} {outcome})", remedy=remedy
    )
