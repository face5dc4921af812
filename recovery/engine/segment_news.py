"""What observers hear of a log's segments: begun, damaged, recovered, each once, seen from what its load asks for."""

from __future__ import annotations

import os
from dataclasses import dataclass

from native.raw_scan import RawScan, Stop
from recovery.load.model import PartitionTask, ScanRequest
from recovery.load.stops import CUTTING_STOPS, OUT_OF_ORDER_STOPS, cut_cause
from recovery.watch.events import (
    CorruptionFound,
    IndexFileProblem,
    Observer,
    SegmentRecovered,
    SegmentRecoveryStarted,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSoFar:
    """What a load has read, and found in order, until it ended: all that can be said of a log that is refused or fails.

    Attributes:
        scanned_bytes: of the segments it asked for, to be recovered or to see what else would stop a broker.
        recovered_segments: those before the one at which it ended.
        recovered_bytes: of these, up to a cut.
    """

    scanned_bytes: int = 0
    recovered_segments: int = 0
    recovered_bytes: int = 0


@dataclass(slots=True, kw_only=True)
class _InHand:
    """The segment that the load asked for last."""

    request: ScanRequest
    valid_bytes: int = 0
    was_scanned_before: bool = False
    is_new: bool


class SegmentNews:
    """The segments of one log, in the order in which its load recovers them; for the thread that loads it.

    A segment without an offset index is recovered while the log is loaded, and has its turn among the unflushed ones
    then: each of these is told once, whichever pass comes first. It is recovered when the load asks for another one,
    or has ended (`finish`): until then it may be refused, split, or read again up to what is out of order.
    """

    def __init__(self, task: PartitionTask, notify: Observer) -> None:
        self._task = task
        self._notify = notify
        self._thread_num = 0
        self._count = 0
        self._unflushed: set[int] = set()
        self._valid_bytes: dict[int, int] = {}
        self._in_hand: _InHand | None = None
        self._scanned_bytes = 0
        self._corruptions: list[CorruptionFound] = []

    def start(self, thread_num: int, unflushed_count: int) -> None:
        """Hear which thread loads the log, and how many segments it will most likely recover."""
        self._thread_num = thread_num
        self._count = unflushed_count

    def begin(self, request: ScanRequest) -> None:
        """Hear that the load asks for the scan of a segment."""
        in_hand = self._in_hand
        # Read again up to what is out of order
        is_again = not request.ordinal and request.index_problem is None
        if in_hand is not None and is_again and in_hand.request.base_offset == request.base_offset:
            return
        self.finish()
        is_new = request.base_offset not in self._valid_bytes
        self._in_hand = _InHand(request=request, is_new=is_new)
        if request.index_problem is not None and request.index_problem.is_reported:
            self._notify_index_problem(request)
        if request.count and is_new:
            self._count = request.count
            self._notify(
                SegmentRecoveryStarted(
                    log_dir=self._task.log_dir,
                    partition=self._task.folder,
                    thread_num=self._thread_num,
                    base_offset=request.base_offset,
                    size_bytes=request.part.size_bytes,
                    ordinal=len(self._unflushed),
                    count=request.count,
                )
            )

    def end(self, request: ScanRequest, scan: RawScan, *, was_scanned_before: bool) -> None:
        """Hear what the scan has found."""
        self.count_scan(request)
        in_hand = self._in_hand
        assert in_hand is not None  # it was begun
        if scan.valid_bytes < request.part.size_bytes and scan.stop in CUTTING_STOPS | OUT_OF_ORDER_STOPS:
            self._corruptions.append(self._corruption(request, scan))
        in_hand.valid_bytes = scan.valid_bytes
        in_hand.was_scanned_before = was_scanned_before
        if scan.stop is Stop.OFFSET_OVERFLOW:  # it is split, and what it is split into has its turn
            self._in_hand = None

    def count_scan(self, request: ScanRequest) -> None:
        """Count the bytes of a scan that the load, or a look behind a refusal, has asked for."""
        self._scanned_bytes += request.part.size_bytes - request.start_position

    def finish(self) -> None:
        """Hear that the load has gone on: the segment in hand is recovered."""
        in_hand, self._in_hand = self._in_hand, None
        if in_hand is None:
            return
        request = in_hand.request
        self._valid_bytes[request.base_offset] = in_hand.valid_bytes
        if request.count:
            self._unflushed.add(request.base_offset)
        if not in_hand.is_new:
            return
        # While the log is loaded, a cut leaves later segments there
        is_last = bool(request.ordinal) and in_hand.valid_bytes < request.part.size_bytes
        self._notify(
            SegmentRecovered(
                log_dir=self._task.log_dir,
                partition=self._task.folder,
                thread_num=self._thread_num,
                base_offset=request.base_offset,
                size_bytes=request.part.size_bytes,
                valid_bytes=in_hand.valid_bytes,
                remaining_segments=0 if is_last else max(self._count - len(self._unflushed), 0),
                was_scanned_before=in_hand.was_scanned_before,
            )
        )

    def drop(self) -> None:
        """Hear that the log is refused: the segment in hand is not recovered."""
        self._in_hand = None

    def cut(self) -> None:
        """Hear that the log is cut where it is damaged. Until then it may be refused, and nothing is cut."""
        for corruption in self._corruptions:
            self._notify(corruption)

    def read_so_far(self) -> ReadSoFar:
        """Return what was read, and found in order, up to now."""
        return ReadSoFar(
            scanned_bytes=self._scanned_bytes,
            recovered_segments=len(self._valid_bytes),
            recovered_bytes=sum(self._valid_bytes.values()),
        )

    def _notify_index_problem(self, request: ScanRequest) -> None:
        assert request.index_problem is not None
        self._notify(
            IndexFileProblem(
                log_dir=self._task.log_dir,
                partition=self._task.folder,
                path=os.path.join(self._task.log_dir, self._task.folder, request.part.file),
                problem=request.index_problem.kind,
                error=request.index_problem.detail,
            )
        )

    def _corruption(self, request: ScanRequest, scan: RawScan) -> CorruptionFound:
        return CorruptionFound(
            log_dir=self._task.log_dir,
            partition=self._task.folder,
            base_offset=request.base_offset,
            truncate_position=scan.valid_bytes,
            truncate_offset=scan.last_offset + 1 if scan.batch_count else request.base_offset,
            reason=cut_cause(scan).reason,
            found_invalid_messages=scan.stop not in (Stop.END, Stop.TORN),
            found_invalid_offset=scan.stop in OUT_OF_ORDER_STOPS,
        )
