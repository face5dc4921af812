"""Many small logs checked in one call: which of them are sound from their first byte to their last.

The answer is "sound" or "look closer", never what is wrong: that is left to `recovery.check.segment`, which finds
nothing in a log that is sound here. Logs with messages of magic 0 and 1, with odd control batches, or with producers
that write both inside and outside transactions are looked at more closely, although they may be sound.

Kafka: FileLogInputStream.nextBatch, DefaultRecordBatch.isValid.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from native import cpu, kernels
from native.address import address_of
from native.batch_headers import HEADER_ROW_DTYPE
from native.cpu_path import CpuPath
from native.errors import ScanUsageError

LOG_ROW_DTYPE: Final = np.dtype(
    [
        ("start", "<i8"),  # in the buffer
        ("size_bytes", "<i8"),
        ("base_offset", "<i8"),  # by its name
        ("next_base_offset", "<i8"),  # of the segment after it, -1 for none
        ("batch_count", "<i8"),  # from here on: what was found, for sound logs only
        ("first_offset", "<i8"),  # base offset of the first batch, -1 without one
        ("last_offset", "<i8"),  # of the last batch, -1 without one
        ("max_timestamp_ms", "<i8"),  # -1 without one
        ("has_compacted", "?"),  # a batch holds fewer records than offsets
        ("is_sound", "?"),
        ("_unused", "<i2"),
        ("_unused_too", "<i4"),
    ]
)
"""One log."""

LogRows = npt.NDArray[np.void]
"""Structured, LOG_ROW_DTYPE, shape (n,)."""

_ROWS_AT_A_TIME: Final = 32


def check_logs(
    buffer: npt.NDArray[np.uint8], logs: LogRows, *, slack: int = 0, cpu_path: CpuPath | None = None
) -> int:
    """Mark which of *logs* are sound, and fill in what those hold; return how many are. The GIL is released.

    Args:
        buffer: uint8, shape (n,), C-contiguous; not written. 256 mapped bytes before a log make it faster.
        logs: LOG_ROW_DTYPE, shape (m,), C-contiguous; `start` counts from *slack* on. Written.
        slack: bytes of the buffer before all logs.
        cpu_path: how to compute CRC-32C; the fastest way by default.

    Raises:
        ScanUsageError: *buffer* is of another shape or type, or a log is not entirely in it.
    """
    if buffer.dtype != np.uint8 or buffer.ndim != 1 or not buffer.flags.c_contiguous:
        raise ScanUsageError(
            f"a buffer is contiguous uint8 of one dimension, not {buffer.dtype} {buffer.shape}"
        )
    if logs.dtype != LOG_ROW_DTYPE or logs.ndim != 1 or not logs.flags.c_contiguous:
        raise ScanUsageError(f"logs are contiguous rows of one dimension, not {logs.dtype} {logs.shape}")
    if not len(logs):
        return 0
    ends = logs["start"] + logs["size_bytes"]
    is_within = (logs["start"] >= 0) & (logs["size_bytes"] >= 0) & (ends <= buffer.size - slack)
    if not is_within.all():
        raise ScanUsageError(f"log {int(np.argmin(is_within))} is not all in the buffer")
    rows = np.empty(_ROWS_AT_A_TIME, HEADER_ROW_DTYPE)
    check = kernels.entry(kernels.CHECK_LOGS, cpu.choose(cpu_path))
    address = address_of(buffer) + slack
    return check(address, address_of(logs), len(logs), address_of(rows), len(rows))
