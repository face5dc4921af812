"""The recovery of one segment: its scan gives indexes, epochs and producers, and a cut if bytes are bad.

Kafka: LogLoader.recoverSegment, LogSegment.recover.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from native.raw_scan import RawScan, Stop
from recovery.errors import PartitionRefusedError
from recovery.load.leader_epochs import LeaderEpochs
from recovery.load.log_reader import LogReader
from recovery.load.model import CutCause, IndexProblem, Original, PartitionTask, ScanRequest
from recovery.load.producer_rebuild import rebuild_producer_state
from recovery.load.producers import ProducerState
from recovery.load.segments import Segment, SegmentMap, first_offset_of, without_tables
from recovery.load.stops import CUTTING_STOPS, OUT_OF_ORDER_STOPS, cut_cause, refusal_of_stop
from recovery.load.transactions import InvalidTxnStateError
from recovery.load.tree import PartitionTree
from segfmt.byte_layout import OFFSET_INDEX_DTYPE
from segfmt.offset_index import encode_offset_index
from segfmt.time_index import encode_time_index
from segfmt.transaction_index import encode_transaction_index


class SegmentOverflowedError(Exception):
    """A segment holds an offset too far from its base: it has to be split. Kafka: LogSegmentOffsetOverflowException.

    Attributes:
        scan: up to the batch that does not fit.
        aborted: the transactions aborted before it, ABORTED_TXN_DTYPE.
    """

    def __init__(self, segment: Segment, scan: RawScan, aborted: npt.NDArray[np.void]) -> None:
        super().__init__(f"segment {segment.base_offset} overflows at byte {scan.stop_position}")
        self.segment = segment
        self.scan = scan
        self.aborted = aborted


class Departure(NamedTuple):
    """Bytes of a `.log` that leave the live log, and why.

    Attributes:
        part: where they are in the original file.
        base_offset: of the segment.
        first_offset: the first offset that leaves with them.
        may_repeat: whether offsets below *first_offset* may be in them, too.
    """

    part: Original
    base_offset: int
    cause: CutCause
    first_offset: int
    may_repeat: bool = False


class SegmentRecovery:
    """Recovers segments of one log, in the order of the calls.

    Attributes:
        departures: what was cut off or deleted so far.
        deleted: base offsets of the segments that were deleted.
        dropped_end_offset: where the log ended, if all of it was dropped because it ended before its start; else None.
        recovered: valid bytes of each recovered segment by base offset.
    """

    def __init__(
        self,
        task: PartitionTask,
        tree: PartitionTree,
        segments: SegmentMap,
        reader: LogReader,
        epochs: LeaderEpochs,
        new_state: Callable[[], ProducerState],
    ) -> None:
        self._task = task
        self._tree = tree
        self._segments = segments
        self._reader = reader
        self._epochs = epochs
        self._new_state = new_state
        self.departures: list[Departure] = []
        self.deleted: list[int] = []
        self.dropped_end_offset: int | None = None
        self.recovered: dict[int, int] = {}

    def recover(
        self, segment: Segment, *, ordinal: int = 0, count: int = 0, index_problem: IndexProblem | None = None
    ) -> int:
        """Recover *segment* and return the number of bytes cut from its `.log`.

        Args:
            ordinal: from 1, its place in the walk over the unflushed segments; 0 in the load pass, where exceptions
                that Kafka catches for unflushed segments stop the broker.
            count: how many are unflushed; 0 if this is none of them.
            index_problem: why it is recovered in the load pass.

        Raises:
            PartitionRefusedError: the broker would halt.
            SegmentOverflowedError: the segment must be split first.
        """
        state = self._new_state()
        rebuild_producer_state(
            state,
            self._segments,
            self._reader,
            log_start_offset=self._task.log_start_offset,
            last_offset=segment.base_offset,
            from_clean_shutdown=False,
        )
        segment.check_mappable(self._tree)
        part = self._reader.part(segment.log)
        scan = self._scan(
            segment,
            ScanRequest(
                part=part,
                base_offset=segment.base_offset,
                ordinal=ordinal,
                count=count,
                index_problem=index_problem,
            ),
        )
        self._observe_epochs(segment, scan)
        aborted = self._take_producers(segment, state, scan, part)
        if scan.stop is Stop.OFFSET_OVERFLOW:
            raise SegmentOverflowedError(segment, scan, aborted)
        self._write(segment, scan, aborted)
        state.take_snapshot()
        self.recovered[segment.base_offset] = scan.valid_bytes
        return part.size_bytes - scan.valid_bytes

    def note_deleted(self, segment: Segment, cause: CutCause) -> None:
        """Count a whole segment among what leaves the log."""
        self.deleted.append(segment.base_offset)
        part = self._reader.part(segment.log)
        if part.size_bytes:
            self.departures.append(Departure(part, segment.base_offset, cause, segment.base_offset))

    def _scan(self, segment: Segment, request: ScanRequest) -> RawScan:
        scan = self._reader.recovery_scan(request)
        cause = None
        if scan.stop is Stop.OFFSET_OVERFLOW:
            return scan
        while scan.stop in OUT_OF_ORDER_STOPS and request.ordinal and not segment.is_split:
            # Differs: Kafka empties the segment; here the batches before the one out of order stay. The rest may stop
            # the scan once more: then the greatest timestamp has an offset below the time index's last entry.
            cause = cut_cause(scan)
            sound_part = replace(request.part, size_bytes=scan.stop_position)
            scan = self._reader.recovery_scan(ScanRequest(part=sound_part, base_offset=request.base_offset))
        if scan.stop not in CUTTING_STOPS:
            raise refusal_of_stop(segment.log, segment.base_offset, scan, while_loading=not request.ordinal)
        if scan.valid_bytes < request.part.size_bytes:
            first_offset = scan.last_offset + 1 if scan.batch_count else request.base_offset
            lost = request.part.after(scan.valid_bytes)
            self.departures.append(
                Departure(
                    lost,
                    request.base_offset,
                    cause or cut_cause(scan),
                    first_offset,
                    may_repeat=cause is not None,
                )
            )
        return scan

    def _observe_epochs(self, segment: Segment, scan: RawScan) -> None:
        positions = scan.epoch_positions.tolist()
        for (epoch, base_offset), position in zip(scan.epochs.tolist(), positions, strict=True):
            latest = self._epochs.latest_epoch
            if base_offset < 0 and (latest is None or epoch > latest):
                raise PartitionRefusedError(
                    file=segment.log,
                    position=position,
                    rule="leader-epoch",
                    detail=f"leader epoch {epoch} begins at the negative offset {base_offset} "
                    "(IllegalArgumentException stops the broker)",
                    remedy="restore the partition from another replica",
                )
            self._epochs.observe(epoch, base_offset)

    def _take_producers(
        self, segment: Segment, state: ProducerState, scan: RawScan, part: Original
    ) -> npt.NDArray[np.void]:
        """Return the transactions that were aborted in *segment*, ABORTED_TXN_DTYPE, shape (n,)."""
        if state.depends_on_settled(scan, is_replayed=False):
            scan = self._reader.with_settled(ScanRequest(part=part, base_offset=segment.base_offset), scan)
        try:
            aborted = state.recover(scan)
        except InvalidTxnStateError as error:
            raise PartitionRefusedError(
                file=segment.log,
                position=error.position,
                rule="transaction-state",
                detail=str(error),
                remedy="cut the log before this batch, or restore the partition from another replica",
            ) from error
        if len(aborted) > 1 and np.any(np.diff(aborted["last_offset"]) <= 0):
            raise PartitionRefusedError(
                file=segment.log,
                position=None,
                rule="transaction-order",
                detail="aborted transactions do not end in ascending order "
                "(IllegalArgumentException stops the broker)",
                remedy="restore the partition from another replica",
            )
        return aborted

    def _write(self, segment: Segment, scan: RawScan, aborted: npt.NDArray[np.void]) -> None:
        self._tree.cut(segment.log, scan.valid_bytes)
        self._tree.put(segment.offset_index, encode_offset_index(index_entries(scan)))
        self._tree.put(segment.time_index, encode_time_index(scan.time_index))
        self._put_txn_index(segment, encode_transaction_index(aborted))
        segment.first_offset = first_offset_of(scan)
        segment.scan = without_tables(scan)
        segment.opened_indexes.update((segment.offset_index, segment.time_index))

    def _put_txn_index(self, segment: Segment, entries: bytes) -> None:
        """Kafka: TransactionIndex.reset empties an open file; a new segment's file opens with its first entry."""
        name = segment.txn_index
        if not entries and (segment.appends_txns or name not in self._tree):
            return
        kept = self._tree.read(name) if segment.appends_txns and name in self._tree else b""
        self._tree.put(name, kept + entries)
        segment.appends_txns = False


def index_entries(scan: RawScan) -> npt.NDArray[np.void]:
    """Return the offset index of a scan as the file holds it, OFFSET_INDEX_DTYPE, shape (n,)."""
    entries = np.empty(len(scan.offset_index), OFFSET_INDEX_DTYPE)
    entries["relative_offset"] = scan.offset_index[:, 0]
    entries["position"] = scan.offset_index[:, 1]
    return entries
