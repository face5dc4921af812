"""The memory of a scan between two kernel calls: one row of integers and the rows of the output tables."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from native.raw_scan import PRODUCER_DTYPE
from segfmt import byte_layout

# What the kernel returns other than a Stop.
RUNNING: Final = -4
"""Inside the kernel only: nothing stops the scan."""
NEED_BYTES: Final = -1
"""The window ends before the next batch does."""
FULL: Final = -2
"""An output table has no free row: the caller lets it grow and calls again."""
PAUSED: Final = -3
"""A control batch was met that the caller must decode."""

STATE_NAMES: Final = (
    # fixed
    "base_offset",
    "size_bytes",
    "index_interval_bytes",
    "max_index_entries",
    "max_time_index_entries",
    "check_crc",
    "check_range",
    # the walk
    "position",
    "needed_bytes",
    "stop_position",
    "detail_0",
    "detail_1",
    "batch_count",
    "legacy_batch_count",
    "last_offset",
    "gap_count",
    "max_timestamp_ms",
    "max_timestamp_offset",
    "max_timestamp_position",
    "max_timestamp_address",
    "last_indexed_position",
    "index_beyond_address",
    "last_index_offset",
    "last_time_index_ms",
    "last_time_index_offset",
    "highest_epoch",
    "producer_end_offset",
    # where the tables are, and how many rows each has
    "offset_index_address",
    "offset_index_rows",
    "time_index_address",
    "time_index_rows",
    "epochs_address",
    "epochs_rows",
    "producers_address",
    "producers_rows",
    "slots_address",
    "slots_rows",
    "events_address",
    "events_rows",
    # rows in use
    "index_count",
    "time_index_count",
    "epoch_count",
    "producer_count",
    "event_count",
    # linked lists through the rows of producers and events; -1 at the end
    "first_unsettled_row",
    "oldest_open_row",
    "newest_open_row",
    "first_free_event",
    # transactions that are left out of the events
    "greatest_begin_offset",
    "txns_in_order",
    "settled_txn_count",
    "first_settled_offset",
    "last_settled_offset",
    # the control batch at which the scan paused, and what its caller says it is
    "control_position",
    "control_producer_id",
    "control_epoch",
    "control_base_offset",
    "control_last_offset",
    "control_kind",
    "control_marker_type",
    "control_coordinator_epoch",
    "control_timestamp_ms",
)
FIRST_VALUES: Final = {
    "last_offset": -1,
    "max_timestamp_ms": byte_layout.NO_TIMESTAMP_MS,
    "last_time_index_ms": byte_layout.NO_TIMESTAMP_MS,
    "needed_bytes": byte_layout.RECORD_BATCH_OVERHEAD_BYTES,
    "highest_epoch": -1,
    "producer_end_offset": -1,
    "first_unsettled_row": -1,
    "oldest_open_row": -1,
    "newest_open_row": -1,
    "first_free_event": -1,
    "greatest_begin_offset": -1,
    "first_settled_offset": -1,
    "last_settled_offset": -1,
}
"""The fields that are not 0 at first, whatever is scanned."""
STATE_DTYPE: Final = np.dtype([(name, "<i8") for name in STATE_NAMES])
"""int64 throughout. The index interval is 2**62 where no index is built."""

# What is usual for a producer: the attribute bits (transactional, control) of a batch that needs no event.
USUAL_UNKNOWN: Final = 0xFF
"""no event of this producer yet: nothing is usual. In a slot: the row knows"""
USUAL_OPEN: Final = byte_layout.TRANSACTIONAL_MASK
"""a transaction is open by a BEGIN of this segment"""
USUAL_OUTSIDE: Final = 0
"""none is open: NON_TRANSACTIONAL was reported, or there was a marker"""

_SLOTS_PER_ROW: Final = 4
"""Size of the producers' hash table: few ids meet."""

# The bits of a producer's `flags`.
HAS_DATA: Final = 1
CLEARED: Final = 2
MARKER_WAS_LAST: Final = 4

SLOT_DTYPE: Final = np.dtype(
    [
        ("producer_id", "<i8"),  # -1: free
        ("last_batch", "<i8"),  # address of the last data batch of this window, 0 without one
        ("row", "<i4"),
        ("usual", "u1"),
        ("_unused", "u1", (11,)),
    ]
)
"""A slot of the hash table of producers, half a cache line: all that most batches touch of their producer.

What a data batch changes in its producer's row is in the batch's header, so the slot only keeps where that
is; the row is brought up to date when it is needed, and at the end of the window. Until a producer has a
batch in a window nothing is usual in its slot: the first one enters its row in the list of those to be
brought up to date."""

PRODUCER_ROW_DTYPE: Final = np.dtype(
    [
        ("producer_id", "<i8"),
        ("last_offset", "<i8"),
        ("data_timestamp_ms", "<i8"),
        ("marker_timestamp_ms", "<i8"),
        ("last_sequence", "<i4"),
        ("offset_delta", "<i4"),
        ("coordinator_epoch", "<i4"),
        ("first_epoch", "<i2"),
        ("epoch", "<i2"),
        ("usual", "u1"),
        ("flags", "u1"),
        ("has_marker", "?"),
        ("is_unsettled", "?"),
        ("next_unsettled_row", "<i4"),
        ("slot", "<i4"),
        ("begin_event", "<i4"),  # of a transaction that is known to be open; -1 without one
        # rows with such transactions that began before and after this one's
        ("older_open_row", "<i4"),
        ("newer_open_row", "<i4"),
    ]
)
"""What PRODUCER_DTYPE holds, and what else the kernel has to know."""
_SHARED_FIELDS: Final = tuple(
    name for name in PRODUCER_DTYPE.names or () if name in (PRODUCER_ROW_DTYPE.names or ())
)


def new_slots(row_count: int) -> npt.NDArray[np.void]:
    """Return free slots for *row_count* producers, SLOT_DTYPE; their number is a power of two if *row_count* is."""
    return np.full(_SLOTS_PER_ROW * row_count * SLOT_DTYPE.itemsize, 0xFF, np.uint8).view(SLOT_DTYPE)


def public_producers(rows: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
    """Return PRODUCER_ROW_DTYPE rows as PRODUCER_DTYPE rows."""
    public = np.empty(rows.size, PRODUCER_DTYPE)
    for name in _SHARED_FIELDS:
        public[name] = rows[name]
    flags = rows["flags"]
    marker_was_last = flags & MARKER_WAS_LAST != 0
    public["timestamp_ms"] = np.where(marker_was_last, rows["marker_timestamp_ms"], rows["data_timestamp_ms"])
    public["has_data"] = flags & HAS_DATA != 0
    public["cleared"] = flags & CLEARED != 0
    return public


def in_log_order(events: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
    """Return the events in order, without the rows that were taken back."""
    kept: npt.NDArray[np.void] = events.take(events["kind"].nonzero()[0])
    return kept.take(kept["position"].argsort())


def copy_of(rows: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
    """Return a copy of *rows*, copied as plain bytes: numpy copies structures field by field."""
    return rows.view(np.dtype((np.void, rows.itemsize))).copy().view(rows.dtype)


def with_room(table: npt.NDArray[Any], used: int) -> npt.NDArray[Any]:
    """Return *table*, or one twice as long with its first *used* rows if more than half is used."""
    if 2 * used <= len(table):
        return table
    longer = np.empty((2 * len(table), *table.shape[1:]), table.dtype)
    longer[:used] = table[:used]
    return longer
