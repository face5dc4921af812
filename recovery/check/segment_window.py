"""The window that a thread reads a segment through, and the words for why a scan stopped in it."""

from __future__ import annotations

import threading

import numpy as np
import numpy.typing as npt

from native.raw_scan import RawScan, Stop
from recovery.read.partition_files import SLACK_BYTES
from segfmt import layout

WINDOW_BYTES = 4 << 20

_buffers = threading.local()


def first_batch_bytes(window: npt.NDArray[np.uint8]) -> int:
    """Return the size of the batch behind the window's slack, or what its header needs."""
    octets = window[SLACK_BYTES:]
    if octets.size < layout.RECORD_BATCH_OVERHEAD_BYTES:
        return layout.RECORD_BATCH_OVERHEAD_BYTES
    length = octets[layout.LENGTH_POSITION : layout.LOG_OVERHEAD_BYTES].tobytes()
    return layout.LOG_OVERHEAD_BYTES + int.from_bytes(length, "big", signed=True)


def stop_words(scan: RawScan) -> str:
    """Return why a scan stopped, in words."""
    first, second = scan.stop_detail
    if scan.stop is Stop.CRC_MISMATCH:
        return f"checksum {first:#010x} stored, {second:#010x} computed"
    return f"{scan.stop.name.lower().replace('_', ' ')} ({first}, {second})"


def window_buffer(size_bytes: int) -> npt.NDArray[np.uint8]:
    """Return this thread's buffer of *size_bytes*; a large one is not kept."""
    if size_bytes > SLACK_BYTES + WINDOW_BYTES:
        return np.zeros(size_bytes, np.uint8)
    buffer: npt.NDArray[np.uint8] | None = getattr(_buffers, "window", None)
    if buffer is None:
        buffer = _buffers.window = np.zeros(SLACK_BYTES + WINDOW_BYTES, np.uint8)
    return buffer[:size_bytes]


def skipped_words(scan: RawScan) -> tuple[str, str]:
    """Return rule and words for a batch that is read and passed over, INVALID_TXN, INVALID_CONTROL or CONTROL_FATAL."""
    rule = "transaction-state" if scan.stop is Stop.INVALID_TXN else "control-record"
    words = {
        Stop.INVALID_TXN: "a batch outside a transaction while its producer has one open",
        Stop.INVALID_CONTROL: "a control batch that cannot be read: a recovery cuts the log behind it",
        Stop.CONTROL_FATAL: "a control batch that a broker dies of",
    }[scan.stop]
    return rule, f"{words} (producer {scan.stop_detail[0]}, base offset {scan.stop_detail[1]})"
