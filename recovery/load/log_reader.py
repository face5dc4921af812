"""What the load asks of the `.log` files: scans, offsets to positions, the end of a segment.

Names are those of the tree; the reader knows which original file each one stands for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from native.raw_scan import RawScan, Stop
from recovery.errors import PartitionRefusedError
from recovery.load.model import BatchSpan, Original, PartitionSource, ScanMode, ScanRequest
from recovery.load.segments import Segment
from recovery.load.stops import CUTTING_STOPS, refusal_of_stop
from recovery.load.tree import PartitionTree
from segfmt.errors import FormatError
from segfmt.java_text import LONG_MAX, LONG_MIN
from segfmt.offset_index import last_offset, lookup

_MOST_KEPT_BYTES = 16 << 20


class LogReader:
    """Reads the segments of one log as they are in its tree."""

    def __init__(self, tree: PartitionTree, source: PartitionSource, remedy_of: Callable[[str], str]) -> None:
        """Begin with nothing read.

        Args:
            remedy_of: returns how to have a segment checked that cannot be loaded as it is, by its name.
        """
        self._remedy_of = remedy_of
        self._tree = tree
        self._source = source
        self._recovered_scans: dict[Original, RawScan] = {}
        self._kept_bytes = 0
        self._walked_bytes: dict[str, int] = {}
        self.scanned_bytes = 0

    def recovery_scan(self, request: ScanRequest) -> RawScan:
        """Return the scan of a segment to be recovered.

        One that was recovered before is not read again, as long as its scan fits a bounded memory.
        """
        earlier = self._recovered_scans.get(request.part)
        if earlier is not None:
            return earlier
        scan = self._source.scan(request)
        self.scanned_bytes += request.part.size_bytes
        if scan.stop in CUTTING_STOPS:  # others end before the last entry of the time index
            is_whole = scan.valid_bytes == request.part.size_bytes
            kept = request.part if is_whole else replace(request.part, size_bytes=scan.valid_bytes)
            self._remember(kept, scan if scan.stop is Stop.END else scan._replace(stop=Stop.END))
        return scan

    def _remember(self, part: Original, scan: RawScan) -> None:
        self._recovered_scans[part] = scan
        self._kept_bytes += _table_bytes(scan)
        while self._kept_bytes > _MOST_KEPT_BYTES:
            oldest = next(iter(self._recovered_scans))
            self._kept_bytes -= _table_bytes(self._recovered_scans.pop(oldest))

    def replay_request(
        self, segment: Segment, start_offset: int, end_offset: int | None
    ) -> ScanRequest | None:
        """Return what is to be read of *segment* from *start_offset* to *end_offset*, or to its end; None if nothing.

        Kafka: LogSegment.read in UnifiedLog.rebuildProducerState.
        """
        part = self.part(segment.log)
        if end_offset is not None:
            end_position = self._translate(segment, end_offset)
            part = part if end_position is None else replace(part, size_bytes=end_position)
        start_position = self._translate(segment, start_offset)
        if start_position is None or start_position >= part.size_bytes:
            return None
        return ScanRequest(
            part=part,
            base_offset=segment.base_offset,
            start_position=start_position,
            mode=ScanMode.REPLAY,
        )

    def replay_scan(self, segment: Segment, request: ScanRequest) -> RawScan:
        """Return what producers did in what is to be read of *segment*."""
        scan = self._source.scan(request)
        if scan.stop not in (Stop.END, Stop.TORN):
            raise self._refusal(segment.log, segment.base_offset, scan)
        return scan

    def with_settled(self, request: ScanRequest, scan: RawScan) -> RawScan:
        """Return *scan*, the result of *request*, with the events of all transactions; reads the log again."""
        part = replace(request.part, size_bytes=scan.valid_bytes)
        whole = self._source.scan(replace(request, part=part, mode=ScanMode.TRANSACTIONS, ordinal=0, count=0))
        return scan._replace(
            txn_events=whole.txn_events,
            settled_txn_count=0,
            first_settled_offset=-1,
            last_settled_offset=-1,
        )

    def is_last_producer_followed(self, request: ScanRequest, scan: RawScan) -> bool:
        """Return whether, in what *request* has read, a batch with a producer follows the last new producer's first.

        Reads the log again: *scan*, which has producers, does not say, and it matters very rarely.
        """
        spans = list(self._source.batches(request.part, request.start_position, opens_message_sets=False))
        last = next(span for span in reversed(spans) if self._has_producer(request, span))
        before = replace(request.part, size_bytes=last.position)
        return len(self._source.scan(replace(request, part=before)).producers) == len(scan.producers)

    def _has_producer(self, request: ScanRequest, span: BatchSpan) -> bool:
        batch = replace(request.part.after(span.position), size_bytes=span.size_bytes)
        return bool(len(self._source.scan(replace(request, part=batch, start_position=0)).producers))

    def next_offset(self, segment: Segment) -> int:
        """Return the offset after the last batch of *segment*. Kafka: LogSegment.readNextOffset."""
        entries = segment.index_entries(self._tree)
        if segment.scan is not None:
            return self._offset_after(segment.log, segment.base_offset, entries, segment.scan)
        return self.walk_to_end(segment.log, segment.base_offset, entries)

    def walk_to_end(self, log: str, base_offset: int, entries: npt.NDArray[np.void]) -> int:
        """Return the offset after the last batch of the file *log*, found by a walk from its last index entry on."""
        target_offset = last_offset(entries, base_offset)
        scan = self._source.scan(
            ScanRequest(
                part=self.part(log),
                base_offset=base_offset,
                start_position=_position(entries, base_offset, target_offset),
                mode=ScanMode.WALK,
            )
        )
        if scan.stop not in (Stop.END, Stop.TORN):
            raise self._refusal(log, base_offset, scan)
        self._walked_bytes[log] = scan.valid_bytes
        return self._offset_after(log, base_offset, entries, scan)

    def bytes_after(self, log: str) -> tuple[int, int]:
        """Return where the batches of the file *log* end, as a walk to its end saw it, and how many bytes follow."""
        size_bytes = self.part(log).size_bytes
        end = self._walked_bytes.get(log, size_bytes)
        return end, size_bytes - end

    def count_batches(self, part: Original, base_offset: int) -> tuple[int, int, int]:
        """Return how many batches *part* has, the last offset of the last one (-1), and where they end, by headers."""
        request = ScanRequest(part=part, base_offset=base_offset, mode=ScanMode.WALK)
        scan = self._source.scan(request)
        return scan.batch_count, scan.last_offset, scan.valid_bytes

    def index_scan(self, part: Original, base_offset: int) -> RawScan:
        """Return the indexes of the batches in *part*, unchecked."""
        return self._source.scan(ScanRequest(part=part, base_offset=base_offset, mode=ScanMode.INDEX))

    def base_offset_at(self, log: str, position: int) -> int:
        """Return the base offset of the batch at *position* in the file *log*.

        Raises:
            FormatError: it is a message set that cannot be opened.
        """
        return next(self._source.batches(self.part(log), position)).base_offset

    def batches(self, log: str) -> Iterator[BatchSpan]:
        """Yield the batches of the file *log* by their headers. Raises CorruptBatchError."""
        return self._source.batches(self.part(log), 0, opens_message_sets=False)

    def spans(self, part: Original) -> Iterator[BatchSpan]:
        """Yield the batches of *part* by their headers, up to the first that cannot be followed; sets stay unopened."""
        with suppress(FormatError):
            yield from self._source.batches(part, 0, opens_message_sets=False)

    def spans_of(self, log: str) -> Iterator[BatchSpan]:
        """Yield the same of the file *log*."""
        return self.spans(self.part(log))

    def opened_spans(self, part: Original) -> Iterator[BatchSpan]:
        """Yield the same batches, with the base offsets that are inside compressed message sets."""
        with suppress(FormatError):
            yield from self._source.batches(part, 0)

    def read_part(self, part: Original) -> bytes:
        """Return the bytes of *part*, for example a batch."""
        return self._source.read_part(part)

    def is_zero(self, part: Original) -> bool:
        """Return whether *part* holds nothing but zeros."""
        return self._source.is_zero(part)

    def part(self, log: str) -> Original:
        """Return where the bytes of the file *log* are; one that the load made is empty and has none."""
        original = self._tree.original(log)
        return Original(file=log, size_bytes=0) if original is None else original

    def find_offset(self, segments: list[Segment], target_offset: int) -> None:
        """Look up *target_offset* in *segments*, from the first one on, which opens their offset indexes.

        Raises:
            PartitionRefusedError: an index points into the middle of a batch; the broker halts.

        Kafka: LocalLog.read.
        """
        for segment in segments:
            scan = segment.scan
            if scan is not None and not scan.legacy_batch_count and scan.last_offset >= target_offset >= 0:
                return  # its index is new: it points to a batch, and from there the offset is found
            if self._translate(segment, target_offset) is not None:
                return

    def _refusal(self, log: str, base_offset: int, scan: RawScan) -> PartitionRefusedError:
        return refusal_of_stop(log, base_offset, scan, while_loading=True, remedy=self._remedy_of(log))

    def _offset_after(self, log: str, base_offset: int, entries: npt.NDArray[np.void], scan: RawScan) -> int:
        """Return the end that Kafka sees: if the last indexed offset is missing, it takes the segment for empty."""
        if not scan.batch_count:
            return base_offset
        target_offset = last_offset(entries, base_offset)
        if scan.last_offset >= target_offset and not scan.legacy_batch_count:
            # Message sets on the way are searched: to open one may stop the broker
            return _next(scan.last_offset)
        is_found = self._search(log, entries, base_offset, target_offset) is not None
        return _next(scan.last_offset) if is_found else base_offset

    def _translate(self, segment: Segment, target_offset: int) -> int | None:
        """Return the position of the batch that holds *target_offset*. Kafka: LogSegment.translateOffset."""
        entries = segment.index_entries(self._tree)
        return self._search(segment.log, entries, segment.base_offset, target_offset)

    def _search(
        self, log: str, entries: npt.NDArray[np.void], base_offset: int, target_offset: int
    ) -> int | None:
        """Return the position of the batch that holds *target_offset*, or of the next one; None if no batch is left.

        Kafka: FileRecords.searchForOffsetFromPosition.
        """
        before: BatchSpan | None = None
        after: BatchSpan | None = None
        try:
            for span in self._source.batches(self.part(log), _position(entries, base_offset, target_offset)):
                if span.base_offset == target_offset:
                    return span.position
                if span.base_offset > target_offset:
                    after = span
                    break
                before = span
        except FormatError as error:
            raise PartitionRefusedError(
                file=log,
                position=error.position,
                rule="batch-length",
                detail=f"{error}, met on the way to offset {target_offset} ({error.kafka} stops the broker)",
                remedy=self._remedy_of(log),
            ) from error
        if before is not None and before.last_offset >= target_offset:
            return before.position
        return None if after is None else after.position


def _table_bytes(scan: RawScan) -> int:
    tables = (scan.offset_index, scan.time_index, scan.epochs, scan.epoch_positions)
    return sum([table.nbytes for table in (*tables, scan.producers, scan.txn_events)])


def _next(offset: int) -> int:
    """Return the offset after *offset*; after the greatest comes the least, as in Java."""
    return offset + 1 if offset < LONG_MAX else LONG_MIN


def _position(entries: npt.NDArray[np.void], base_offset: int, target_offset: int) -> int:
    """Return where to start looking for *target_offset*; a negative position in an index counts as 0.

    Kafka: LogSegment.translateOffset(long, int).
    """
    return max(0, lookup(entries, base_offset, target_offset).position)
