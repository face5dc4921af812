"""The memory of a scan between two kernel calls: one row of integers and the rows of the output tables."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from native.raw_scan import PRODUCER_DTYPE
from segfmt import layout

# What the kernel returns besides a Stop.
RUNNING: Final = -4
"""Inside of the kernel only: nothing stops the scan."""
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
STATE_DTYPE: Final = np.dtype([(name, "<i8") for name in STATE_NAMES])
"""int64 throughout. The index interval is 2**62 where no index is built."""

# What is usual for a producer: the attribute bits (transactional, control) of a batch that needs no event.
USUAL_UNKNOWN: Final = 0xFF
"""no event of this producer yet: nothing is usual"""
USUAL_OPEN: Final = layout.TRANSACTIONAL_MASK
"""a transaction is open by a BEGIN of this segment"""
USUAL_OUTSIDE: Final = 0
"""none is open: NON_TRANSACTIONAL was reported, or there was a marker"""

# The bits of a producer's `flags`.
HAS_DATA: Final = 1
CLEARED: Final = 2
MARKER_WAS_LAST: Final = 4

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
        ("_unused", "u1", (13,)),
    ]
)
"""What PRODUCER_DTYPE tells, in the form that costs a data batch the fewest stores; one cache line a
producer.

Row 0 of a table is not used, so that a hash slot of 0 is free."""


NOBODY: Final = np.zeros((), PRODUCER_ROW_DTYPE)
"""Row 0: it has no id that a batch can have, and nothing is usual for it."""
NOBODY["producer_id"] = layout.NO_PRODUCER_ID
NOBODY["usual"] = USUAL_UNKNOWN


def public_producers(rows: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
    """Return PRODUCER_ROW_DTYPE rows as PRODUCER_DTYPE rows."""
    public = np.empty(rows.size, PRODUCER_DTYPE)
    for name in set(PRODUCER_DTYPE.names or ()) & set(PRODUCER_ROW_DTYPE.names or ()):
        public[name] = rows[name]
    marker_was_last = rows["flags"] & MARKER_WAS_LAST != 0
    public["timestamp_ms"] = np.where(marker_was_last, rows["marker_timestamp_ms"], rows["data_timestamp_ms"])
    public["has_data"] = rows["flags"] & HAS_DATA != 0
    public["cleared"] = rows["flags"] & CLEARED != 0
    return public
