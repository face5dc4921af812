"""A segment's bytes as Arrow record batches: a row for each batch, or for each record.

Window by window: memory is bounded by a window, by the allowed size of one decompressed batch, and by one Arrow batch.
Only requested columns are made; nothing is decompressed if the header of a batch says all.

Damage is never silently skipped: see `Corrupt`.

Kafka: FileRecords.batches, DefaultRecordBatch.iterator, AbstractLegacyRecordBatch.iterator.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from native.record_rows import MIN_RECORD_BYTES
from recovery.archive.layouts.log_windows import MOST_BATCH_BYTES, BadStretch, BatchWindow, LogWindows
from recovery.archive.records import aborted_txns
from recovery.archive.records.aborted_txns import AbortedTxns
from recovery.archive.records.arrow_rows import CHECKSUM_FAULT, ArrowRows
from recovery.archive.records.batch_heads import BatchHeads, Flags
from recovery.archive.records.record_schema import Include, column_called
from recovery.archive.records.record_units import MOST_HEADERS, BadBatch, ListedRecords, open_batches
from recovery.check.finding import REMEDIES, Rule
from recovery.errors import DamagedSegmentError
from recovery.read.opened_log import OpenedLog
from segfmt import byte_layout

_COUNTED = frozenset({"offset", "sequence"})
"""Columns of records that follow from the header of a batch whose offsets have no gaps."""


class Corrupt(enum.Enum):
    """How to treat records that cannot be read, or whose batch has a wrong checksum; the value is the option's."""

    FAIL = "fail"
    """An error that names the object, the position, the rule and the remedy."""
    SKIP = "skip"
    """They are left out; each batch is reported to `on_left_out`."""
    INCLUDE = "include"
    """They are rows with `crc_valid` false and `fault` set; what cannot be read is one row with null key and value."""


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
        aborted: transactions that reach into it.
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
    aborted: AbortedTxns = aborted_txns.NONE
    last_stable_offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What to read of segments.

    Attributes:
        corrupt: for records; batches are always listed, with their faults.
        is_committed: leave out what a consumer with isolation.level=read_committed does not see.
        has_control_records: include the records of control batches, which no consumer sees.
        lowest_offset, highest_offset: records with other offsets are left out, as are batches with none of these.
        lowest_timestamp_ms, highest_timestamp_ms: the same for the timestamps of records, and the greatest timestamps
            of batches. With either, records and batches without a timestamp are left out.
        most_batch_bytes: a larger batch, stored or decompressed, counts as one that cannot be read.
    """

    include: Include = Include.RECORDS
    corrupt: Corrupt = Corrupt.FAIL
    is_committed: bool = False
    has_control_records: bool = False
    lowest_offset: int | None = None
    highest_offset: int | None = None
    lowest_timestamp_ms: int | None = None
    highest_timestamp_ms: int | None = None
    most_batch_bytes: int = MOST_BATCH_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """What was left out of the rows.

    Attributes:
        name: of the object.
        size_bytes: from *position* on.
        is_damage: False for what a killed broker leaves after its last whole batch.
    """

    name: str
    position: int
    size_bytes: int
    rule: Rule
    detail: str
    is_damage: bool = True

    def __str__(self) -> str:
        return f"{self.name}: byte {self.position}: {self.rule}: {self.detail}"


def read_segment(
    log: OpenedLog,
    view: SegmentView,
    schema: pa.Schema,
    options: ReadOptions,
    *,
    index_positions: Callable[[], Sequence[int]] = tuple,
    on_left_out: Callable[[LeftOut], None],
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one segment, in the order of its batches.

    Args:
        log: the segment's, opened; the caller closes it.
        view: what is known of the segment.
        schema: the requested columns, of those in `record_schema`; timestamps in ms or us.
        options: what to read.
        index_positions: returns the positions in the segment's offset index; called only after damage.
        on_left_out: called with what is left out because of damage.

    Raises:
        DamagedSegmentError: damage, with `Corrupt.FAIL`.
        UsageError: an unknown column.
        OSError: the log cannot be read.
    """
    try:
        yield from _SegmentRows(view, schema, options, on_left_out).read(log, index_positions)
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
        on_left_out: Callable[[LeftOut], None],
    ) -> None:
        self._view = view
        self._options = options
        self._on_left_out = on_left_out
        self._rows = ArrowRows(schema, view.topic, view.partition, view.topic_id)
        columns = [column_called(name, options.include) for name in schema.names]
        self._opened = {column.name for column in columns if not column.is_of_batch}
        ends = (options.highest_offset, None if view.end_offset is None else view.end_offset - 1)
        self._lowest_offsets = [
            offset for offset in (options.lowest_offset, view.start_offset) if offset is not None
        ]
        self._highest_offsets = [offset for offset in ends if offset is not None]
        self._needs_aborted = options.is_committed or "aborted" in schema.names

    def read(self, log: OpenedLog, index_positions: Callable[[], Sequence[int]]) -> Iterator[pa.RecordBatch]:
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
            if self._options.include is Include.BATCHES:
                chosen = heads.at(self._is_listed(heads) | ~heads.is_valid)
                if len(chosen):
                    yield self._rows.batches(chosen)
            else:
                yield from self._take(window, heads)
            if self._is_beyond(heads):
                return

    def _heads(self, window: BatchWindow) -> BatchHeads:
        is_aborted = np.zeros(len(window.rows), np.bool_)
        if self._needs_aborted:
            is_aborted = self._view.aborted.are_in(window.rows)
        return BatchHeads(window.rows, window.is_valid, is_aborted)

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
        """Return whether no batch after these can be in the requested range."""
        highest = self._options.highest_offset
        if highest is None:
            return False
        sound = heads.is_valid & heads.is_v2
        return bool((heads.rows["base_offset"][sound] > highest).any())

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
        corrupt = self._options.corrupt
        if not heads.is_valid.all() and corrupt is not Corrupt.INCLUDE:
            for row in np.flatnonzero(~heads.is_valid).tolist():
                self._leave_out_batch(heads.at(slice(row, row + 1)), "checksum", CHECKSUM_FAULT)
        visible = self._visible(heads)
        if corrupt is Corrupt.INCLUDE:
            is_empty = heads.is_v2 & (heads.rows["record_count"] == 0) & ~heads.is_valid
            for row in np.flatnonzero(is_empty).tolist():
                yield self._placeholder(heads.at(slice(row, row + 1)), CHECKSUM_FAULT)
            visible |= ~heads.is_valid
        else:
            visible &= heads.is_valid
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
        """Return the records that belong to the segment and are requested."""
        offsets = listed.rows["offset"]
        is_own = self._is_in_time(listed.rows["timestamp_ms"])
        for lowest in self._lowest_offsets:
            is_own &= offsets >= lowest
        for highest in self._highest_offsets:
            is_own &= offsets <= highest
        return listed if is_own.all() else ListedRecords(listed.rows[is_own], listed.heads)

    def _can_count(self, heads: BatchHeads) -> bool:
        """Return whether the headers of the batches hold all that is requested of their records."""
        rows, options, wanted = heads.rows, self._options, self._opened - _COUNTED
        if wanted - {"timestamp"} or not (heads.is_v2 & heads.is_valid).all():
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
        size_bytes = stretch.end_position - stretch.position
        left_out = self._left_out(
            stretch.position, size_bytes, stretch.rule, stretch.detail, stretch.is_damage
        )
        if not stretch.is_damage:
            self._on_left_out(left_out)
            return
        if self._options.include is Include.RECORDS and self._options.corrupt is not Corrupt.INCLUDE:
            self._leave_out(left_out)
            return
        fault = f"{stretch.rule}: {stretch.detail}"
        yield self._rows.placeholder(None, stretch.position, size_bytes, fault)

    def _take_bad(self, bad: BadBatch) -> Iterator[pa.RecordBatch]:
        fault = f"{bad.rule}: {bad.detail}"
        if not bad.heads.is_valid[0]:
            fault = f"{CHECKSUM_FAULT}; {fault}"
        if self._options.corrupt is not Corrupt.INCLUDE:
            self._leave_out_batch(bad.heads, bad.rule if bad.heads.is_valid[0] else "checksum", fault)
            return
        yield self._placeholder(bad.heads, fault)

    def _placeholder(self, head: BatchHeads, fault: str) -> pa.RecordBatch:
        row = head.rows[0]
        return self._rows.placeholder(head, int(row["position"]), int(row["size_bytes"]), fault)

    def _leave_out_batch(self, head: BatchHeads, rule: Rule, fault: str) -> None:
        row = head.rows[0]
        message = f"batch at offset {row['base_offset']}: {fault.removeprefix(f'{rule}: ')}"
        self._leave_out(self._left_out(int(row["position"]), int(row["size_bytes"]), rule, message))

    def _left_out(
        self, position: int, size_bytes: int, rule: Rule, detail: str, is_damage: bool = True
    ) -> LeftOut:
        return LeftOut(
            name=self._view.name,
            position=position,
            size_bytes=size_bytes,
            rule=rule,
            detail=detail,
            is_damage=is_damage,
        )

    def _leave_out(self, left_out: LeftOut) -> None:
        if self._options.corrupt is Corrupt.FAIL:
            remedy = REMEDIES[left_out.rule]
            if left_out.rule == "too-large":
                remedy = "allow larger batches (maxBatchBytes), if there is memory for them"
            raise DamagedSegmentError(
                f"{left_out}. Remedy: {remedy}. To read on: corrupt=skip leaves such batches out and counts them, "
                "corrupt=include makes rows of them, with the reason in `fault`"
            )
        self._on_left_out(left_out)
