"""The memory of a scan between two kernel calls: one row of integers and the rows of the output tables."""

from __future__ import annotations

from typing import Final

import numpy as np

from native.raw_scan import PRODUCER_DTYPE

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
    "last_indexed_position",
    "last_index_offset",
    "last_time_index_ms",
    "last_time_index_offset",
    "highest_epoch",
    "producer_end_offset",
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

# Where a producer stands with its transactions, as far as this segment tells.
TXN_UNKNOWN: Final = 0
TXN_OPEN: Final = 1
"""by a BEGIN of this segment"""
TXN_NONE_BEFORE_MARKER: Final = 2
"""NON_TRANSACTIONAL was reported; no BEGIN or MARKER since"""
TXN_NONE: Final = 3
"""closed by a marker of this segment"""

PRODUCER_ROW_DTYPE: Final = np.dtype([*PRODUCER_DTYPE.descr, ("txn", "u1"), ("_unused", "u1", (12,))])
"""PRODUCER_DTYPE and TXN_*; 64 bytes, one cache line a producer: most batches touch one row."""
