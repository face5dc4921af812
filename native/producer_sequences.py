"""The sequences of producers in a run of batches: how they begin, how they end, and where they break.

Summaries of neighbouring runs are merged into one of both. Merging is associative, and the summary of no batch is its
identity: a log may be cut anywhere, and its parts read in any order. A batch is a run, too, so one rule serves
batches, windows, segments and partitions (`native._sequence_rules.join`).

What Kafka checks when a leader takes a batch: in an epoch each batch begins where the one before ended, and 0 follows
2**31 - 1; a higher epoch begins with 0, also after a marker that brought it; a lower one does not come again. A broker
forgets a producer that is silent for `producer.id.expiration.ms`, and then takes anything.

Kafka: ProducerAppendInfo.checkProducerEpoch, checkSequence, inSequence; ProducerStateEntry;
ProducerStateManager.isProducerExpired. Differs: at the start of a log nothing counts as known of a producer, although
Kafka may know that it has none; an open transaction does not keep a producer from being forgotten.
"""

from __future__ import annotations

import ctypes
import enum
from typing import Annotated, Final, NamedTuple

import numpy as np

from native import kernels
from native.address import address_of
from native.batch_headers import HeaderRows

UNKNOWN: Final = -2
"""In `last_sequence`: any sequence may follow."""
INHERITED: Final = -3
"""In `last_sequence`: as before the run, if that had the same epoch; the run has only markers, of one epoch."""

MOST_BREAKS: Final = 20
"""How many are kept of a run, the first ones."""

SEQUENCE_DTYPE: Final = np.dtype(
    [
        ("producer_id", "<i8"),
        # The first event, a data batch or a marker; -1 if `has_first` is false.
        ("first_offset", "<i8"),
        ("first_position", "<i8"),
        ("first_timestamp_ms", "<i8"),
        # The first data batch, as long as it depends on what came before the run; else -1.
        ("head_offset", "<i8"),
        ("head_position", "<i8"),
        ("last_timestamp_ms", "<i8"),  # of the last event; -1 if `has_last` is false
        ("head_sequence", "<i4"),
        ("last_sequence", "<i4"),  # -1: a marker has brought the epoch; UNKNOWN; INHERITED
        ("first_epoch", "<i2"),
        ("last_epoch", "<i2"),
        ("has_first", "?"),  # whether nothing lies between the start of the run and the first event
        ("has_last", "?"),  # whether nothing lies between the last event and the end of the run
        ("_unused", "<i2"),
    ]
)
"""One producer, in order of first appearance. What lies between is a gap in the offsets, or a broken batch of it."""

BREAK_DTYPE: Final = np.dtype(
    [
        ("offset", "<i8"),  # the batch's base offset
        ("position", "<i8"),  # of the batch in its segment
        ("producer_id", "<i8"),
        ("sequence", "<i4"),  # the batch's base sequence; -1 for SequenceBreak.EPOCH
        ("last_sequence", "<i4"),  # the one before; -1: the epoch begins with this batch
        ("epoch", "<i2"),
        ("last_epoch", "<i2"),  # the one before, for SequenceBreak.EPOCH
        ("kind", "u1"),  # SequenceBreak
        ("_unused", "u1"),
        ("_unused_too", "<i2"),
    ]
)
"""One batch that no leader would have taken after those before it."""

STATE_NAMES: Final = (
    "expiration_ms",
    "log_start_offset",
    "tables_address",
    "most_rows",
    "row_count",
    "kept_break_count",
    "break_count",
    "batch_count",
    "start_offset",
    "end_offset",
    "is_cut",
    "generation",
)
STATE_DTYPE: Final = np.dtype([(name, "<i8") for name in STATE_NAMES])
"""The memory of a fold between two calls; the breaks follow it. A row's `has_last` is valid if its mark equals the
state's generation. The tables: the rows and one more for the kernel, marks (int64), slots (int32: the row, counted
from 1; 0 for a free slot)."""
SLOTS_PER_ROW: Final = 4

_PLACES: Final = {name: place for place, name in enumerate(STATE_NAMES)}
_STATE_WORDS: Final = STATE_DTYPE.itemsize // 8
_BREAK_WORDS: Final = BREAK_DTYPE.itemsize // 8
_FIRST_ROWS: Final = 16


class SequenceBreak(enum.IntEnum):
    """What is wrong with a batch."""

    SEQUENCE = 1
    """It does not begin where its producer ended."""
    EPOCH = 2
    """Its producer had a higher epoch before."""


class Sequences(NamedTuple):
    """The summary of a run of batches: one row a producer that is in it.

    Attributes:
        rows: SEQUENCE_DTYPE, as bytes: an array would carry the names of its fields wherever it is sent.
        breaks: BREAK_DTYPE, as bytes; the first MOST_BREAKS by offset.
        break_count: how many there are.
        batch_count: of all batches, with or without a producer.
        start_offset: base offset of the first batch; 0 without one.
        end_offset: after the last batch; 0 without one.
        is_cut: whether there is a gap in the run, over which nothing is known of any producer.
    """

    rows: Annotated[bytes, SEQUENCE_DTYPE] = b""
    breaks: Annotated[bytes, BREAK_DTYPE] = b""
    break_count: int = 0
    batch_count: int = 0
    start_offset: int = 0
    end_offset: int = 0
    is_cut: bool = False


class SequenceFold:
    """A summary in the making: batches and summaries are taken in, in their order.

    Args:
        expiration_ms: a producer that was silent this long may have been forgotten.
        log_start_offset: nothing is known of any producer before it.
    """

    def __init__(self, expiration_ms: int, log_start_offset: int = 0) -> None:
        # There are many small segments, and ctypes arrays are made in a tenth of the time of numpy's.
        self._state = (ctypes.c_int64 * (_STATE_WORDS + MOST_BREAKS * _BREAK_WORDS))()
        self._state_address = ctypes.addressof(self._state)
        self._state[_PLACES["expiration_ms"]] = expiration_ms
        self._state[_PLACES["log_start_offset"]] = log_start_offset
        self._allocate(_FIRST_ROWS)

    def take_batches(self, batches: HeaderRows) -> None:
        """Take in batches.

        Args:
            batches: HEADER_ROW_DTYPE, shape (n,), in file order, C-contiguous.
        """
        follow = kernels.entry(kernels.FOLLOW_SEQUENCES)
        address, left = address_of(batches), len(batches)
        while (taken := follow(self._state_address, address, left)) < left:
            self._reserve(self._read("row_count") + 1)
            address += taken * batches.itemsize
            left -= taken

    def take(self, sequences: Sequences) -> None:
        """Take in the summary of the run that follows."""
        rows = np.frombuffer(sequences.rows, SEQUENCE_DTYPE)
        breaks = np.frombuffer(sequences.breaks, BREAK_DTYPE)
        self._reserve(self._read("row_count") + len(rows))
        kernels.entry(kernels.JOIN_SEQUENCES)(
            self._state_address,
            address_of(rows),
            len(rows),
            address_of(breaks),
            len(breaks),
            sequences.break_count,
            sequences.batch_count,
            sequences.start_offset,
            sequences.end_offset,
            sequences.is_cut,
        )

    def result(self) -> Sequences:
        """Return the summary of all that was taken in."""
        kernels.entry(kernels.END_SEQUENCES)(self._state_address)
        count, kept_count = self._read("row_count"), self._read("kept_break_count")
        return Sequences(
            rows=ctypes.string_at(ctypes.addressof(self._tables), count * SEQUENCE_DTYPE.itemsize),
            breaks=ctypes.string_at(
                self._state_address + STATE_DTYPE.itemsize, kept_count * BREAK_DTYPE.itemsize
            ),
            break_count=self._read("break_count"),
            batch_count=self._read("batch_count"),
            start_offset=self._read("start_offset"),
            end_offset=self._read("end_offset"),
            is_cut=bool(self._read("is_cut")),
        )

    def _read(self, name: str) -> int:
        return self._state[_PLACES[name]]

    def _reserve(self, row_count: int) -> None:
        """Make room for *row_count* producers in all."""
        size = most_rows = self._read("most_rows")
        while size < row_count:
            size *= 2
        if size == most_rows:
            return
        old = self._tables
        self._allocate(size)
        address, old_address = ctypes.addressof(self._tables), ctypes.addressof(old)
        ctypes.memmove(address, old_address, most_rows * SEQUENCE_DTYPE.itemsize)
        ctypes.memmove(address + _marks_at(size), old_address + _marks_at(most_rows), 8 * most_rows)
        kernels.entry(kernels.PLACE_SEQUENCES)(self._state_address)

    def _allocate(self, row_count: int) -> None:
        """Allocate empty tables."""
        size_bytes = _marks_at(row_count) + (8 + 4 * SLOTS_PER_ROW) * row_count
        self._tables = (ctypes.c_int64 * (size_bytes // 8))()
        self._state[_PLACES["tables_address"]] = ctypes.addressof(self._tables)
        self._state[_PLACES["most_rows"]] = row_count


def _marks_at(row_count: int) -> int:
    """Return where the marks begin in tables for *row_count* rows."""
    return (row_count + 1) * SEQUENCE_DTYPE.itemsize
