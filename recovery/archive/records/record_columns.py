"""A segment's bytes as Arrow record batches: a row for each batch, or for each record.

Window by window: memory is bounded by a window, by the allowed size of one decompressed batch, and by one Arrow batch.
Only requested columns are made; nothing is decompressed if the header of a batch says all.

Damage is never silently skipped: see `Corrupt`.

Kafka: FileRecords.batches, DefaultRecordBatch.iterator, AbstractLegacyRecordBatch.iterator.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from native.record_rows import MIN_RECORD_BYTES
from recovery.archive.layouts.log_windows import BadStretch, BatchWindow, LogWindows
from recovery.archive.records.aborted_txns import are_transactional
from recovery.archive.records.arrow_rows import ArrowRows
from recovery.archive.records.batch_faults import BatchFaults
from recovery.archive.records.batch_heads import CHECKSUM_FAULT, BatchHeads, Fault, Flags
from recovery.archive.records.damage import DamageReport, LeftOut, MissingOffsets
from recovery.archive.records.read_options import Corrupt, ReadOptions
from recovery.archive.records.record_schema import Include, column_called
from recovery.archive.records.record_units import MOST_HEADERS, BadBatch, ListedRecords, open_batches
from recovery.read.opened_log import OpenedLog
from segfmt import byte_layout

if TYPE_CHECKING:
    from recovery.archive.records.run_transactions import SegmentTransactions

_COUNTED = frozenset({"offset", "sequence"})
"""Columns of records that follow from the header of a batch whose offsets have no gaps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentView:
    """One segment, and what follows from its neighbours.

    Attributes:
        name: of the object, for messages.
        topic_id: empty if it is not known.
        base_offset: from the segment's name.
        start_offset: records below no longer belong to the log, or belong to another segment.
        end_offset: records from here on are read from another segment; None: all of its own.
        is_last: of its partition, and never rolled: what a killed broker leaves at its end is not damage.
        transactions: says which of its batches were aborted; None if that does not matter.
        last_stable_offset: where the first transaction that is open at the archive's end begins, None without one.
    """

    name: str
    topic: str
    partition: int
    topic_id: str = ""
    base_offset: int
    start_offset: int | None = None
    end_offset: int | None = None
    is_last: bool = False
    transactions: SegmentTransactions | None = None
    last_stable_offset: int | None = None


def damage_report(
    name: str, rows: ArrowRows, options: ReadOptions, on_left_out: Callable[[LeftOut], None]
) -> DamageReport:
    """Return what takes in the damage of the segment called *name*; batches are always listed, with their faults."""
    if options.include is Include.BATCHES:
        corrupt = lost = Corrupt.INCLUDE
    else:
        corrupt, lost = options.corrupt, options.lost or options.corrupt
    return DamageReport(name, rows, corrupt=corrupt, lost=lost, on_left_out=on_left_out)


def read_segment(
    log: OpenedLog,
    view: SegmentView,
    schema: pa.Schema,
    options: ReadOptions,
    *,
    faults: BatchFaults | None = None,
    index_positions: Callable[[], Sequence[int]] = tuple,
    on_left_out: Callable[[LeftOut], None],
) -> Generator[pa.RecordBatch, None, bool]:
    """Yield the rows of one segment, in the order of its batches; return whether it was read to its end.

    Args:
        log: the segment's, opened; the caller closes it.
        view: what is known of the segment.
        schema: the requested columns, of those in `record_schema`; timestamps in ms or us.
        options: what to read.
        faults: judges the batches by what is known of the segment; None: only their checksums are compared.
        index_positions: returns the positions in the segment's offset index; called only after damage.
        on_left_out: called with what is left out because of damage.

    Raises:
        DamagedSegmentError: damage, with `Corrupt.FAIL`.
        UsageError: an unknown column.
        OSError: the log cannot be read.
    """
    try:
        return (
            yield from _SegmentRows(view, schema, options, faults, on_left_out).read(log, index_positions)
        )
    except OSError as error:
        if error.filename is None:
            raise OSError(error.errno, error.strerror, view.name) from error
        raise


class _SegmentRows:
    def __init__(
        self,
        view: SegmentView,
        schema: pa.Schema,
        options: ReadOptions,
        faults: BatchFaults | None,
        on_left_out: Callable[[LeftOut], None],
    ) -> None:
        self._view = view
        self._options = options
        self._faults = faults
        self._rows = ArrowRows(schema, view.topic, view.partition, view.topic_id)
        self._damage = damage_report(view.name, self._rows, options, on_left_out)
        columns = [column_called(name, options.include) for name in schema.names]
        self._opened = {column.name for column in columns if not column.is_of_batch}
        ends = (options.highest_offset, None if view.end_offset is None else view.end_offset - 1)
        self._lowest_offsets = [
            offset for offset in (options.lowest_offset, view.start_offset) if offset is not None
        ]
        self._highest_offsets = [offset for offset in ends if offset is not None]
        self._beyond_count = 0

    def read(
        self, log: OpenedLog, index_positions: Callable[[], Sequence[int]]
    ) -> Generator[pa.RecordBatch, None, bool]:
        windows = LogWindows(
            log,
            base_offset=self._view.base_offset,
            index_positions=index_positions,
            is_last=self._view.is_last,
            most_batch_bytes=self._options.most_batch_bytes,
        )
        for window in windows:
            if isinstance(window, BadStretch):
                yield from self._take_stretch(window)
                continue
            heads = self._heads(window)
            if self._faults is not None:
                for missing in filter(self._is_wanted, self._faults.missing):
                    yield from self._damage.take_missing(missing)
            if self._options.include is Include.BATCHES:
                chosen = heads.at(self._is_listed(heads) | heads.is_faulty)
                if len(chosen):
                    yield self._rows.batches(chosen)
            else:
                yield from self._take(window, heads)
            if self._is_beyond(heads):
                return False
        return True

    def _heads(self, window: BatchWindow) -> BatchHeads:
        if self._faults is None:
            codes, reasons = (~window.is_valid).astype(np.int32), [CHECKSUM_FAULT]
        else:
            codes, reasons = self._faults.judge(window.rows, window.is_valid)
        is_aborted, transactions = np.zeros(len(window.rows), np.bool_), self._view.transactions
        if transactions is not None and are_transactional(window.rows).any():
            # Where a batch is that is not to be trusted, and so which transaction it is of, is not known.
            is_aborted = transactions.aborted().are_in(window.rows) & (codes == 0)
            self._check_transactions(transactions, window, codes == 0)
        return BatchHeads(window.rows, window.is_valid, is_aborted, codes, reasons)

    def _check_transactions(
        self, transactions: SegmentTransactions, window: BatchWindow, is_sound: Flags
    ) -> None:
        """Compare the markers of sound batches with the index, but for batches that are read from another segment."""
        view, offsets = self._view, window.rows["base_offset"]
        is_own = np.ones(len(offsets), np.bool_)
        if view.start_offset is not None:
            is_own &= offsets >= view.start_offset
        if view.end_offset is not None:
            is_own &= offsets < view.end_offset
        edges = np.flatnonzero(np.diff(is_sound, prepend=False, append=False)).reshape(-1, 2)
        for first, end in edges.tolist():
            if first:
                transactions.skip()
            rows = window.rows[first:end][is_own[first:end]]
            if len(rows):
                start = int(rows["position"][0]) - int(window.rows["position"][0])
                transactions.check(window.octets[start:], rows)
        if not is_sound[-1]:
            transactions.skip()

    def _is_wanted(self, missing: MissingOffsets) -> bool:
        """Return whether some of the offsets that are missing are requested."""
        return all(missing.end_offset > lowest for lowest in self._lowest_offsets) and all(
            missing.start_offset <= highest for highest in self._highest_offsets
        )

    # -- which batches ---------------------------------------------------------------------------------------

    def _within(self, heads: BatchHeads) -> Flags:
        """Return which batches may have requested rows."""
        options, rows = self._options, heads.rows
        chosen = np.ones(len(rows), np.bool_)
        if options.lowest_offset is not None:
            chosen &= rows["last_offset"] >= options.lowest_offset
        if options.highest_offset is not None:
            chosen &= (rows["base_offset"] <= options.highest_offset) | heads.is_wrapper
        if options.lowest_timestamp_ms is not None:
            chosen &= (rows["max_timestamp_ms"] >= options.lowest_timestamp_ms) | ~heads.is_v2
        return chosen

    def _is_listed(self, heads: BatchHeads) -> Flags:
        """Return which batches are rows themselves."""
        return self._within(heads) & self._is_in_time(heads.rows["max_timestamp_ms"])

    def _is_in_time(self, timestamps_ms: npt.NDArray[np.int64]) -> Flags:
        lowest, highest = self._options.lowest_timestamp_ms, self._options.highest_timestamp_ms
        is_in = np.ones(len(timestamps_ms), np.bool_)
        if lowest is not None or highest is not None:
            is_in &= timestamps_ms != byte_layout.NO_TIMESTAMP_MS
        if lowest is not None:
            is_in &= timestamps_ms >= lowest
        if highest is not None:
            is_in &= timestamps_ms <= highest
        return is_in

    def _is_beyond(self, heads: BatchHeads) -> bool:
        """Return whether no batch after these can be in the requested range: one alone may have a wrong offset."""
        highest = self._options.highest_offset
        if highest is None:
            return False
        is_sound = ~heads.is_faulty & heads.is_v2
        self._beyond_count += int((heads.rows["base_offset"][is_sound] > highest).sum())
        return self._beyond_count > 1

    def _visible(self, heads: BatchHeads) -> Flags:
        """Return the batches whose records are rows, damaged or not."""
        visible = self._within(heads)
        if not self._options.has_control_records:
            visible &= ~heads.is_control
        if self._options.is_committed:
            visible &= ~heads.is_aborted
            if self._view.last_stable_offset is not None:
                visible &= heads.rows["base_offset"] < self._view.last_stable_offset
        if self._view.start_offset is not None:
            visible &= heads.rows["last_offset"] >= self._view.start_offset
        if self._view.end_offset is not None:
            visible &= (heads.rows["base_offset"] < self._view.end_offset) | heads.is_wrapper
        return visible

    # -- their records ---------------------------------------------------------------------------------------

    def _take(self, window: BatchWindow, heads: BatchHeads) -> Iterator[pa.RecordBatch]:
        visible, is_faulty = self._visible(heads), heads.is_faulty
        if is_faulty.any():
            if self._damage.corrupt is Corrupt.INCLUDE:
                is_empty = heads.is_v2 & (heads.rows["record_count"] == 0) & is_faulty
                for number in np.flatnonzero(is_empty).tolist():
                    yield from self._damage.take_batch(heads.one(number), heads.fault(number))
                visible |= is_faulty
            else:
                for number in np.flatnonzero(is_faulty).tolist():
                    self._damage.leave_out_batch(heads.one(number), heads.fault(number))
                visible &= ~is_faulty
        chosen = heads.at(visible)
        if not len(chosen):
            return
        if self._can_count(chosen):
            yield from self._rows.counted(chosen)
            return
        opened = open_batches(
            window.octets,
            int(heads.rows["position"][0]),
            chosen,
            most_batch_bytes=self._options.most_batch_bytes,
            most_headers=MOST_HEADERS if "headers" in self._opened else None,
        )
        for records in opened:
            if isinstance(records, BadBatch):
                yield from self._take_bad(records)
                continue
            listed = self._own(records)
            if len(listed.rows):
                yield from self._rows.records(listed)

    def _own(self, listed: ListedRecords) -> ListedRecords:
        """Return the records that belong to the segment and are requested, and all of batches not to be trusted."""
        offsets = listed.rows["offset"]
        is_own = self._is_in_time(listed.rows["timestamp_ms"])
        for lowest in self._lowest_offsets:
            is_own &= offsets >= lowest
        for highest in self._highest_offsets:
            is_own &= offsets <= highest
        if not is_own.all():
            is_own |= listed.heads.is_faulty[listed.rows["unit"]]
        return listed if is_own.all() else ListedRecords(listed.rows[is_own], listed.heads)

    def _can_count(self, heads: BatchHeads) -> bool:
        """Return whether the headers of the batches hold all that is requested of their records."""
        rows, options, wanted = heads.rows, self._options, self._opened - _COUNTED
        if wanted - {"timestamp"} or not (heads.is_v2 & ~heads.is_faulty).all():
            return False
        if wanted and not heads.is_stamped.all():
            return False
        count = rows["record_count"]
        if any((rows["base_offset"] < lowest).any() for lowest in self._lowest_offsets):
            return False
        if any((rows["last_offset"] > highest).any() for highest in self._highest_offsets):
            return False
        if options.lowest_timestamp_ms is not None or options.highest_timestamp_ms is not None:
            return False
        if self._opened and (count != rows["last_offset_delta"] + np.int64(1)).any():
            return False
        content_bytes = np.where(
            heads.is_compressed, options.most_batch_bytes, rows["size_bytes"] - byte_layout.RECORDS_POSITION
        )
        return bool(((count >= 0) & (count <= content_bytes // MIN_RECORD_BYTES)).all())

    # -- damage ----------------------------------------------------------------------------------------------

    def _take_stretch(self, stretch: BadStretch) -> Iterator[pa.RecordBatch]:
        if stretch.is_damage and self._faults is not None:
            self._faults.skip()
        if stretch.is_damage and self._view.transactions is not None:
            self._view.transactions.skip()
        size_bytes = stretch.end_position - stretch.position
        fault = Fault(stretch.rule, stretch.detail)
        yield from self._damage.take_stretch(stretch.position, size_bytes, fault, is_damage=stretch.is_damage)

    def _take_bad(self, bad: BadBatch) -> Iterator[pa.RecordBatch]:
        fault = Fault(bad.rule, bad.detail)
        if bad.heads.is_faulty[0]:
            known = bad.heads.fault(0)
            fault = Fault(known.rule, f"{known.detail}; {fault}")
        yield from self._damage.take_batch(bad.heads, fault)
