"""CPU of the scan of logs alone, stage by stage, and what the same bytes cost in a plain loop."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from native.log_checks import LOG_ROW_DTYPE, check_logs
from recovery.archive.check.options import CheckOptions
from recovery.watch.events import Event, LogDirStarted, SegmentsLeft

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BUFFER_BYTES, _SLACK_BYTES = 4 << 20, 256


def on_spark(
    spark: SparkSession, options: CheckOptions, cpu_seconds: Callable[[], float]
) -> dict[str, float]:
    """Verify the logs of an archive; return the CPU of the survey, the scan and the fold, and what was counted.

    Args:
        cpu_seconds: tells the CPU that all processes have used so far.
    """
    from recovery.spark import archive

    marks = {"start": cpu_seconds()}

    def mark(event: Event) -> None:
        if isinstance(event, LogDirStarted):
            marks["surveyed"] = cpu_seconds()
        elif isinstance(event, SegmentsLeft):  # the last of them comes with the last task
            marks["scanned"] = cpu_seconds()

    started_s = time.monotonic()
    summary = archive.check(options, spark=spark, observers=[mark]).summary
    end = cpu_seconds()
    return {
        "survey_cpu_s": marks["surveyed"] - marks["start"],
        "scan_cpu_s": marks["scanned"] - marks["surveyed"],
        "fold_cpu_s": end - marks["scanned"],
        "wall_s": time.monotonic() - started_s,
        "segments": summary.segments,
        "damaged": summary.damaged,
    }


def in_a_loop(root: Path) -> dict[str, float]:
    """Read all logs below *root* into a buffer, one after the other, and check them by the same kernel."""
    paths = [
        (f"{folder}/{name}", int(name[:20]))
        for folder, _, names in os.walk(root)
        for name in sorted(names)
        if name.endswith(".log")
    ]
    buffer = np.zeros(_SLACK_BYTES + _BUFFER_BYTES, np.uint8)
    view = memoryview(buffer.data)
    started_s, cpu_s = time.monotonic(), time.process_time()
    rows: list[tuple[int, int, int]] = []
    position = _SLACK_BYTES
    sound = 0
    for path, base_offset in paths:
        if len(view) - position < _BUFFER_BYTES // 4:
            sound += _checked(buffer, rows)
            rows, position = [], _SLACK_BYTES
        descriptor = os.open(path, os.O_RDONLY)
        size_bytes = os.preadv(descriptor, [view[position:]], 0)
        os.close(descriptor)
        rows.append((position, size_bytes, base_offset))
        position += size_bytes
    sound += _checked(buffer, rows)
    return {
        "cpu_s": time.process_time() - cpu_s,
        "wall_s": time.monotonic() - started_s,
        "segments": len(paths),
        "damaged": len(paths) - sound,
    }


def _checked(buffer: np.ndarray, rows: list[tuple[int, int, int]]) -> int:
    logs = np.zeros(len(rows), LOG_ROW_DTYPE)
    logs["start"], logs["size_bytes"], logs["base_offset"] = np.array(rows, np.int64).reshape(-1, 3).T
    logs["next_base_offset"] = -1
    return check_logs(buffer, logs)
