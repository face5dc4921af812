"""A log walked in windows: loading, verifying and reading archives all go through a `.log` by the iterator here.

A window begins with a batch and holds the whole of it. Its reader says where the next window begins: at the first
batch that is not whole in this one, or elsewhere after damage. Memory is bounded by the window, or by one batch if
that is longer.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from native.raw_scan import ControlKind
from native.segment_scan import SegmentScanner
from recovery.read.opened_log import OpenedLog
from recovery.read.rate_limit import RateLimit
from segfmt import byte_layout
from segfmt.control_record import read_end_transaction_marker
from segfmt.errors import FormatError, InvalidRecordError

WINDOW_BYTES = 4 << 20
SLACK_BYTES = 256
"""Mapped bytes before a window: the kernels' masked loads address them, and are slow if no page is there."""

_LONGEST_BATCH_BYTES = byte_layout.LOG_OVERHEAD_BYTES + 2**31 - 1
_NO_BYTES = np.empty(0, np.uint8)
_threads = threading.local()


class Window(NamedTuple):
    """Some bytes of a log, beginning with a batch.

    Attributes:
        position: of the first byte in the log.
        memory: uint8, shape (slack + n,), C-contiguous: the slack, then the bytes. Valid until the next window is
            requested.
        slack: number of bytes in front of them.
        large_bytes: size of a batch that is too long to be read, in which case `memory` is empty; otherwise 0.
    """

    position: int
    memory: npt.NDArray[np.uint8]
    slack: int
    large_bytes: int = 0

    @property
    def octets(self) -> npt.NDArray[np.uint8]:
        """The bytes without the slack."""
        return self.memory[self.slack :]

    def between(self, start: int, end: int) -> npt.NDArray[np.uint8]:
        """Return the bytes from one position in the log to another."""
        origin = self.position - self.slack
        return self.memory[start - origin : end - origin]

    def batch_bytes_at(self, position: int) -> int:
        """Return the size of the batch at *position*, as far as the window shows it; at least that of a header."""
        head = self.between(position, position + byte_layout.LOG_OVERHEAD_BYTES).tobytes()
        if len(head) < byte_layout.LOG_OVERHEAD_BYTES:
            return byte_layout.RECORD_BATCH_OVERHEAD_BYTES
        return max(batch_bytes(head), byte_layout.RECORD_BATCH_OVERHEAD_BYTES)


class WindowBuffer:
    """Memory that windows are read into, one after the other.

    Args:
        usual_bytes: size of a usual window; much larger memory is released again when such a window is read.
    """

    def __init__(self, usual_bytes: int) -> None:
        self._usual_bytes = SLACK_BYTES + usual_bytes
        self._memory = _NO_BYTES

    def memory(self, size_bytes: int) -> npt.NDArray[np.uint8]:
        """Return the slack and *size_bytes* after it; what was returned before is overwritten."""
        needed_bytes = SLACK_BYTES + size_bytes
        room_bytes = max(needed_bytes, self._usual_bytes)
        if not room_bytes <= self._memory.size <= 4 * room_bytes:
            self._memory = _NO_BYTES  # the old memory is released before the new one is allocated
            self._memory = np.zeros(room_bytes, np.uint8)
        return self._memory[:needed_bytes]


def thread_buffer() -> WindowBuffer:
    """Return this thread's buffer, for a walk that ends before its thread begins another."""
    buffer: WindowBuffer | None = getattr(_threads, "buffer", None)
    if buffer is None:
        buffer = _threads.buffer = WindowBuffer(WINDOW_BYTES)
    return buffer


class Windows:
    """The windows of one log, from its beginning to its end.

    ::

        windows = Windows(log)
        for window in windows:
            take the whole batches of window.octets
            windows.position = where the next window begins

    Args:
        log: opened; the caller closes it.
        name: of the log, for errors.
        window_bytes: how much to read at once; None for WINDOW_BYTES.
        most_batch_bytes: a longer batch is not read; its window only has its size.
        limit: on bytes a second. It may make windows smaller, but never smaller than a batch.
        buffer: what to read into; a new one by default.
        may_shrink: whether a log that became shorter just ends where its bytes end.

    Attributes:
        position: where the last yielded window begins; its reader sets it to where the next one is to begin.
        end_position: where the log ends.
    """

    def __init__(
        self,
        log: OpenedLog,
        *,
        name: str | None = None,
        window_bytes: int | None = None,
        most_batch_bytes: int = _LONGEST_BATCH_BYTES,
        limit: RateLimit | None = None,
        buffer: WindowBuffer | None = None,
        may_shrink: bool = False,
    ) -> None:
        self._log = log
        self._name = name
        self._window_bytes = WINDOW_BYTES if window_bytes is None else window_bytes
        self._most_batch_bytes = most_batch_bytes
        self._limit = RateLimit(None) if limit is None else limit
        self._may_shrink = may_shrink
        self.position = 0
        self.end_position = log.end_position
        self._buffer = WindowBuffer(min(self._window_bytes, self.end_position)) if buffer is None else buffer

    def __iter__(self) -> Iterator[Window]:
        """Yield windows until one would begin at the end of the log.

        Raises:
            OSError: the log cannot be read, or became shorter.
        """
        needed_bytes = 0
        while (left_bytes := self.end_position - self.position) > 0:
            if needed_bytes > self._most_batch_bytes:
                window = Window(self.position, _NO_BYTES, 0, needed_bytes)
            else:
                usual_bytes = min(self._window_bytes, self._limit.window_bytes)
                window = self._read(min(max(usual_bytes, needed_bytes), left_bytes))
            yield window
            needed_bytes = self._needed_bytes(window)
            is_progress = self.position > window.position or needed_bytes > window.octets.size
            assert is_progress, "the reader has consumed nothing of a window that has all that it needs"

    def _needed_bytes(self, window: Window) -> int:
        """Return the least size of the window after *window*: a batch, or a header if its length is not known."""
        left_bytes = self.end_position - self.position
        needed_bytes = window.batch_bytes_at(self.position)
        if needed_bytes <= left_bytes:
            return needed_bytes
        return min(byte_layout.RECORD_BATCH_OVERHEAD_BYTES, left_bytes)  # by its header, it is not a batch

    def _read(self, size_bytes: int) -> Window:
        self._limit.take(size_bytes)
        self._log.leave(self.position)
        self._log.approach(self.position)
        return self.fetch(self.position, size_bytes)

    def fetch(self, position: int, size_bytes: int) -> Window:
        """Return the window of *size_bytes* at *position*, which the log has left; a subclass may get it otherwise."""
        memory = self._buffer.memory(size_bytes)
        count = self._log.read_at(memory[SLACK_BYTES:], position)
        if count < size_bytes:
            if not self._may_shrink:
                raise OSError(errno.EIO, "the file became shorter while it was read", self._name)
            self.end_position = position + count
        return Window(position, memory[: SLACK_BYTES + count], SLACK_BYTES)


def batch_bytes(head: bytes) -> int:
    """Return the size of the batch that begins with *head*, by its length field, which may hold anything.

    *head* has at least 12 bytes.
    """
    length = int.from_bytes(
        head[byte_layout.LENGTH_POSITION : byte_layout.LOG_OVERHEAD_BYTES], "big", signed=True
    )
    return byte_layout.LOG_OVERHEAD_BYTES + length


def scan_windows(
    scanner: SegmentScanner, windows: Windows, on_position: Callable[[int], None] = lambda _: None
) -> None:
    """Feed *scanner*, from its position on, until it has ended; *on_position* is called with each position reached.

    Raises:
        OSError: as of `Windows`.
    """
    if not scanner.needed_bytes:
        return
    windows.position = scanner.position
    for window in windows:
        feed(scanner, window)
        on_position(scanner.position)
        if scanner.finished:
            return
        windows.position = scanner.position


def feed(scanner: SegmentScanner, window: Window, end_position: int | None = None) -> None:
    """Scan *window* from the scanner's position up to *end_position*, or to its end.

    The scan may return at a control batch that the kernel leaves to us; its position is then after that batch, and what
    follows must be fed again.
    """
    start = scanner.position - window.position
    end = None if end_position is None else window.slack + end_position - window.position
    scanner.feed(window.memory[start:end], window.slack)
    if scanner.paused_control:
        decide_control(scanner, window.between(scanner.control_position, scanner.position).tobytes())


def decide_control(scanner: SegmentScanner, batch: bytes) -> None:
    """Decode a control batch that the kernel leaves to us, and let the scan continue.

    Kafka: ProducerAppendInfo.append, EndTransactionMarker.deserialize.
    """
    try:
        marker = read_end_transaction_marker(batch)
    except InvalidRecordError:
        scanner.resume_control(ControlKind.INVALID)
    except FormatError:
        scanner.resume_control(ControlKind.FATAL)
    else:
        if marker is None:
            scanner.resume_control(ControlKind.NOTHING)
        else:
            marker_type = (
                byte_layout.CONTROL_TYPE_ABORT if marker.is_abort else byte_layout.CONTROL_TYPE_COMMIT
            )
            scanner.resume_control(
                ControlKind.MARKER, marker_type, marker.coordinator_epoch, marker.timestamp_ms
            )
