"""What the headers of a log's batches must hold, many batches at once.

The CRC of a record batch does not cover base offset, length, leader epoch and magic; these rules are all that can
check them. Pure: rows in, findings out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from native.batch_headers import HeaderRows
from native.producer_sequences import SequenceFold
from recovery.check.finding import Finding, Rule
from segfmt import byte_layout
from segfmt.java_text import LONG_MIN

_MAX_INT32 = 2**31 - 1
_MOST_GAPS = 20


class HeaderFault(NamedTuple):
    """What some batches break.

    Attributes:
        is_bad: bool, shape (n,): which ones.
        describe: says what is wrong with one of them.
    """

    rule: Rule
    is_bad: npt.NDArray[np.bool_]
    describe: Callable[[np.void], str]


def field_faults(rows: HeaderRows, *, is_metadata_log: bool = False) -> Iterator[HeaderFault]:
    """Yield the rules about fields of a batch by themselves.

    Args:
        rows: some batches.
        is_metadata_log: whether they are of `__cluster_metadata`, whose control batches have no producer.
    """
    is_v2 = rows["magic"] >= byte_layout.MAGIC_V2
    codec = rows["attributes"] & byte_layout.COMPRESSION_CODEC_MASK
    delta, count = rows["last_offset_delta"], rows["record_count"]
    yield HeaderFault("magic", rows["magic"] > byte_layout.MAGIC_V2, lambda row: f"magic {row['magic']}")
    yield HeaderFault("codec", codec > 4, lambda row: f"compression id {int(row['attributes']) & 7}")
    yield HeaderFault(
        "record-count",
        is_v2 & ((delta < 0) | (count < 0) | (count > delta.astype(np.int64) + 1)),
        lambda row: f"{row['record_count']} records, last offset delta {row['last_offset_delta']}",
    )
    yield _producer_faults(rows, is_metadata_log=is_metadata_log)


def _producer_faults(rows: HeaderRows, *, is_metadata_log: bool) -> HeaderFault:
    """Kafka: MemoryRecordsBuilder.validateProducerState, appendEndTxnMarker, LogValidator.validateBatch."""
    has_producer = rows["producer_id"] >= 0
    is_control = rows["attributes"] & byte_layout.CONTROL_MASK != 0
    is_transactional = rows["attributes"] & byte_layout.TRANSACTIONAL_MASK != 0
    no_numbers = (rows["producer_epoch"] < 0) | ((rows["base_sequence"] < 0) & ~is_control)
    is_bad = (rows["magic"] >= byte_layout.MAGIC_V2) & (
        (rows["producer_id"] < byte_layout.NO_PRODUCER_ID)
        | (has_producer & no_numbers)
        | (has_producer & is_control & ~is_transactional)
        | (~has_producer & is_transactional)
        | (~has_producer & is_control & (not is_metadata_log))
    )
    return HeaderFault(
        "producer-fields",
        is_bad,
        lambda row: (
            f"producer {row['producer_id']}, epoch {row['producer_epoch']}, sequence {row['base_sequence']}, "
            f"attributes {int(row['attributes']) & 0xFFFF:#06x}"
        ),
    )


def range_faults(
    rows: HeaderRows, *, base_offset: int, next_base_offset: int | None
) -> Iterator[HeaderFault]:
    """Yield the rules about the offsets that a segment may have.

    Args:
        rows: some of its batches.
        base_offset: of the segment.
        next_base_offset: that of the next segment in a broker's folder; None for the last one, and in tiered storage,
            where two leaders may have archived the same offsets.
    """
    first, last = rows["base_offset"], rows["last_offset"]
    is_outside = (first < base_offset) | (last - base_offset > _MAX_INT32) | (last < first)
    yield HeaderFault(
        "offset-range",
        is_outside,
        lambda row: f"offsets {row['base_offset']} to {row['last_offset']} in the segment {base_offset}",
    )
    if next_base_offset is not None:
        yield HeaderFault(
            "segment-overlap",
            (last >= next_base_offset) & ~is_outside,
            lambda row: (
                f"last offset {row['last_offset']}, the next segment begins at {next_base_offset}: a broker looks for "
                "the offsets from there on in that one"
            ),
        )


def are_wrappers(rows: HeaderRows) -> npt.NDArray[np.bool_]:
    """Return which of *rows* are compressed messages: their base offset is inside, the header has the last one."""
    is_compressed = rows["attributes"] & byte_layout.COMPRESSION_CODEC_MASK != 0
    flags: npt.NDArray[np.bool_] = (rows["magic"] < byte_layout.MAGIC_V2) & is_compressed
    return flags


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochRun:
    """Neighbouring batches of one leader epoch.

    Attributes:
        first_offset, last_offset: base offsets of the first and the last of them.
        position: byte position of the first of them.
    """

    epoch: int
    first_offset: int
    last_offset: int
    position: int

    def joined(self, after: EpochRun) -> EpochRun:
        """Return this run and the one *after* it as one."""
        return replace(self, last_offset=after.last_offset)


def epoch_runs(rows: HeaderRows) -> Iterator[EpochRun]:
    """Yield the runs of one leader epoch in *rows*; messages of magic 0 and 1 have none."""
    is_v2 = rows["magic"] >= byte_layout.MAGIC_V2
    if not is_v2.all():  # copying rows takes numpy longer than all the rest
        rows = rows[is_v2]
    if not len(rows):
        return
    epochs = rows["leader_epoch"]
    starts = np.concatenate(([0], np.flatnonzero(np.diff(epochs)) + 1))
    ends = np.append(starts[1:], len(rows)) - 1
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        yield EpochRun(
            epoch=int(epochs[start]),
            first_offset=int(rows["base_offset"][start]),
            last_offset=int(rows["base_offset"][end]),
            position=int(rows["position"][start]),
        )


def has_compacted(rows: HeaderRows) -> bool:
    """Return whether a batch holds fewer records than offsets, as only a cleaner leaves it."""
    is_v2 = rows["magic"] >= byte_layout.MAGIC_V2
    return bool((is_v2 & (rows["record_count"] <= rows["last_offset_delta"])).any())


def out_of_order(row: np.void) -> str:
    """Return what is wrong with a batch that goes back in the log."""
    return f"base offset {row['base_offset']} is not above the last offset of the batch before"


@dataclass(slots=True, kw_only=True)
class BatchChecks:
    """The walk over the batches of one segment, chunk by chunk.

    Attributes:
        file: the log's name.
        next_base_offset: that of the next segment, None for the last one.
        is_metadata_log: whether it is of `__cluster_metadata`.
        sequences: takes in what producers wrote; None if they are not followed.
        epoch_runs: what was seen of leader epochs.
        gaps: offsets that no batch has; damage only if nothing is ever compacted.
        has_compacted: whether a batch holds fewer records than offsets.
        legacy_count: batches of magic 0 and 1, which have no leader epoch.
        first_offset: base offset of the first batch, None without a batch, or if the header does not have it.
        last_offset: that of the last batch, None without one.
    """

    file: str
    base_offset: int
    next_base_offset: int | None
    is_metadata_log: bool = False
    sequences: SequenceFold | None = None
    findings: list[Finding] = field(default_factory=list)
    epoch_runs: list[EpochRun] = field(default_factory=list)
    gaps: list[Finding] = field(default_factory=list)
    has_compacted: bool = False
    batch_count: int = 0
    legacy_count: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    max_timestamp_ms: int = byte_layout.NO_TIMESTAMP_MS
    largest_batch_bytes: int = 0
    _is_behind_damage: bool = False

    def skip(self) -> None:
        """Note that bytes are skipped here, so that the next batch need not follow the last one."""
        self._is_behind_damage = True

    def take(self, rows: HeaderRows) -> None:
        """Check the next *rows*, whose CRCs hold."""
        if not len(rows):
            return
        self._check_fields(rows)
        self._check_offsets(rows)
        self._note_epochs(rows)
        if self.sequences is not None:
            self.sequences.take_batches(rows)
        self.batch_count += len(rows)
        self.legacy_count += int((rows["magic"] < byte_layout.MAGIC_V2).sum())
        self.max_timestamp_ms = max(self.max_timestamp_ms, int(rows["max_timestamp_ms"].max()))
        self.largest_batch_bytes = max(self.largest_batch_bytes, int(rows["size_bytes"].max()))
        self.last_offset = int(rows["last_offset"][-1])
        self._is_behind_damage = False

    def _check_fields(self, rows: HeaderRows) -> None:
        for fault in field_faults(rows, is_metadata_log=self.is_metadata_log):
            self._first(rows, fault)
        self.has_compacted |= has_compacted(rows)

    def _check_offsets(self, rows: HeaderRows) -> None:
        first, last = rows["base_offset"], rows["last_offset"]
        is_wrapper = are_wrappers(rows)
        for fault in range_faults(rows, base_offset=self.base_offset, next_base_offset=self.next_base_offset):
            self._first(rows, fault)
        if self.batch_count == 0 and not self._is_behind_damage:
            self.first_offset = None if is_wrapper[0] else int(first[0])
        before = np.empty(len(rows), np.int64)
        before[1:] = last[:-1]
        before[0] = max(int(first[0]) - 1, LONG_MIN)
        if self.last_offset is not None and not self._is_behind_damage:
            before[0] = self.last_offset
        self._first(rows, HeaderFault("offset-order", first <= before, out_of_order))
        is_gap = (first > before) & (first - 1 > before) & ~is_wrapper
        for number in np.flatnonzero(is_gap)[: _MOST_GAPS - len(self.gaps)]:
            start, end = int(before[number]) + 1, int(first[number]) - 1
            self.gaps.append(
                Finding(
                    file=self.file,
                    position=int(rows["position"][number]),
                    rule="offset-gap",
                    detail=f"offsets {start} to {end} are missing before this batch",
                )
            )

    def _note_epochs(self, rows: HeaderRows) -> None:
        for run in epoch_runs(rows):
            if self.epoch_runs and self.epoch_runs[-1].epoch == run.epoch:
                run = self.epoch_runs.pop().joined(run)
            self.epoch_runs.append(run)

    def _first(self, rows: HeaderRows, fault: HeaderFault) -> None:
        """Note the first row with a fault, once per rule and segment."""
        if not fault.is_bad.any() or any(finding.rule == fault.rule for finding in self.findings):
            return
        row_number = int(np.argmax(fault.is_bad))
        self.findings.append(
            Finding(
                file=self.file,
                position=int(rows["position"][row_number]),
                rule=fault.rule,
                detail=fault.describe(rows[row_number]),
            )
        )
