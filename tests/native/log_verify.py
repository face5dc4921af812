"""A log in memory before the ordinary check: what the kernel that calls logs sound is held against."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np

from recovery.check.segment import check_segment
from recovery.check.task import Reading, SegmentResult, SegmentTask
from recovery.read.rate_limit import RateLimit
from segfmt.filenames import log_name
from tests.logs.memory_log import MemoryLog

Log = tuple[bytes, int, int | None]
"""Bytes, base offset, base offset of the next one."""

_READING = Reading(limit=RateLimit(None), on_bytes=lambda _: None, one_at_a_time=threading.Lock())


class BytesLog(MemoryLog):
    """A log in memory; there is nothing beside it."""

    def open(self, _name: str) -> BytesLog:
        return self

    def read_index(self, name: str, _take: Callable[[int], None]) -> tuple[bytes, int]:
        raise FileNotFoundError(name)


def checked_alone(log: Log) -> SegmentResult:
    """What the ordinary check says of the log alone."""
    data, base, following = log
    task = SegmentTask(
        folder="", base_offset=base, log=log_name(base), next_base_offset=following, has_indexes=False
    )
    return check_segment(task, _READING, BytesLog(data))


def assert_as_verified(row: np.void, log: Log) -> None:
    """Hold a LOG_ROW_DTYPE, which is said to be sound, against the ordinary check."""
    result = checked_alone(log)
    assert result.findings == [], log
    assert result.is_whole
    assert row["has_compacted"] or not result.gaps, log
    assert row["has_compacted"] == result.has_compacted
    assert row["batch_count"] == result.batch_count
    assert row["max_timestamp_ms"] == result.max_timestamp_ms
    first, last = int(row["first_offset"]), int(row["last_offset"])
    assert (first, last) == (
        (-1, -1) if result.last_offset is None else (result.first_offset, result.last_offset)
    )
