"""Where the bytes of one partition come from.

Closed segments on local file systems are mapped: the page cache is scanned in place. The active segment, and
everything on a network file system, is read with `pread` into windows that each thread owns. A mapping that
faults is given up for `pread`, which can say what is wrong; nothing that somebody else does to a file ends
the process. Memory follows the number of threads, not the size of a segment.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Collection

import numpy as np
import numpy.typing as npt

from native.raw_scan import ControlKind, RawScan
from native.segment_scan import SegmentScanner
from recovery.mapping import MappedFile
from recovery.model import LogSettings, ScanMode, ScanRequest
from segfmt import layout
from segfmt.control_record import read_end_transaction_marker
from segfmt.errors import CorruptBatchError, FormatError, InvalidRecordError
from segfmt.offset_index import max_entries as max_offset_index_entries
from segfmt.record_batch import read_record_batch_header
from segfmt.time_index import max_entries as max_time_index_entries

WINDOW_BYTES = 2 << 20
MAPPED_WINDOW_BYTES = 16 << 20
"""How much of a mapping is scanned between two looks at the clock and at the signals."""
SLACK_BYTES = 256
"""Readable bytes before a window: the kernels' masked loads may look behind a batch's start."""

_SEARCH_BUFFER_BYTES = 16 << 10

_buffers = threading.local()


class PartitionFiles:
    """The files of one partition's folder as a `PartitionSource`.

    Args:
        folder: path of the folder.
        settings: of the log.
        mappable: names of the closed segments that may be mapped.
        on_bytes: told after each window how many bytes of a recovery were scanned, from the thread that did
            it; may raise to end the work.
    """

    def __init__(
        self,
        folder: str,
        settings: LogSettings,
        *,
        mappable: Collection[str] = (),
        on_bytes: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._folder = folder
        self._settings = settings
        self._mappable = mappable
        self._on_bytes = on_bytes

    def read(self, file: str) -> bytes:
        """Return all bytes of a small file."""
        with open(os.path.join(self._folder, file), "rb") as opened:
            return opened.read()

    def scan(self, request: ScanRequest) -> RawScan:
        """Scan a segment, or a part of it.

        Raises:
            OSError: a read failed, or the file is shorter than it was.
        """
        if request.start_position >= request.end_position:
            return self._scanner(request).result()
        path = os.path.join(self._folder, request.file)
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if request.file in self._mappable and request.end_position <= os.fstat(descriptor).st_size:
                scan = self._scan_mapped(descriptor, request)
                if scan is not None:
                    return scan
            return self._scan_windows(descriptor, request, path)
        finally:
            os.close(descriptor)

    def search(self, file: str, end_position: int, start_position: int, target_offset: int) -> int | None:
        """Return the position of the batch that holds *target_offset*, None where no batch reaches so far.

        Raises:
            CorruptBatchError: a batch length that cannot be.

        Kafka: FileRecords.searchForOffsetFromPosition. Differs: the base offset of a compressed message set
            is inside it; here the
        last offset decides, which names the same batch while offsets ascend.
        """
        with open(os.path.join(self._folder, file), "rb", buffering=_SEARCH_BUFFER_BYTES) as opened:
            position, before = start_position, None
            while position < end_position - layout.HEADER_UP_TO_MAGIC_BYTES:
                opened.seek(position)
                header = opened.read(layout.RECORD_BATCH_OVERHEAD_BYTES)
                size_bytes = _size_bytes(header, position)
                if position > end_position - size_bytes:
                    break
                base_offset, last_offset = _offsets(header)
                if base_offset == target_offset:
                    return position
                if base_offset > target_offset:
                    return before[0] if before is not None and before[1] >= target_offset else position
                before = position, last_offset
                position += size_bytes
            return before[0] if before is not None and before[1] >= target_offset else None

    def is_zero(self, file: str, start_position: int, end_position: int) -> bool:
        """Return whether the bytes [start_position, end_position) of a file are all zero."""
        with open(os.path.join(self._folder, file), "rb", buffering=0) as opened:
            opened.seek(start_position)
            left = end_position - start_position
            while left > 0:
                chunk = opened.read(min(left, WINDOW_BYTES))
                if not chunk or np.frombuffer(chunk, np.uint8).any():
                    return False
                left -= len(chunk)
        return True

    def _scanner(self, request: ScanRequest) -> SegmentScanner:
        recover = request.mode is ScanMode.RECOVER
        return SegmentScanner(
            base_offset=request.base_offset,
            size_bytes=request.end_position,
            start_position=request.start_position,
            index_interval_bytes=self._settings.index_interval_bytes,
            max_index_entries=max_offset_index_entries(self._settings.segment_index_bytes),
            max_time_index_entries=max_time_index_entries(self._settings.segment_index_bytes),
            check_crc=recover,
            build_index=recover,
        )

    def _scan_mapped(self, descriptor: int, request: ScanRequest) -> RawScan | None:
        """Scan the page cache in place; None where a page could not be read."""
        scanner = self._scanner(request)
        with MappedFile(descriptor, request.end_position) as mapped:
            while not scanner.finished and not mapped.has_faulted:
                position = scanner.position
                slack = min(position, SLACK_BYTES)
                end = min(position + max(MAPPED_WINDOW_BYTES, scanner.needed_bytes), request.end_position)
                self._feed(scanner, mapped.view[position - slack : end], slack, request)
            return None if mapped.has_faulted else scanner.result()

    def _scan_windows(self, descriptor: int, request: ScanRequest, path: str) -> RawScan:
        scanner = self._scanner(request)
        while not scanner.finished:
            position = scanner.position
            window = _window(max(WINDOW_BYTES, scanner.needed_bytes))
            wanted = min(window.size - SLACK_BYTES, request.end_position - position)
            _read_fully(descriptor, window[SLACK_BYTES : SLACK_BYTES + wanted], position, path)
            self._feed(scanner, window[: SLACK_BYTES + wanted], SLACK_BYTES, request)
        return scanner.result()

    def _feed(
        self, scanner: SegmentScanner, window: npt.NDArray[np.uint8], slack: int, request: ScanRequest
    ) -> None:
        position = scanner.position
        scanner.feed(window, slack)
        while scanner.paused_control:
            _decide_control(scanner, window[slack + scanner.control_position - position :])
        reached = request.end_position if scanner.finished else scanner.position
        self._on_bytes(reached - position if request.mode is ScanMode.RECOVER else 0)


def _window(size_bytes: int) -> npt.NDArray[np.uint8]:
    """Return this thread's buffer: *size_bytes* behind the slack."""
    buffer: npt.NDArray[np.uint8] | None = getattr(_buffers, "window", None)
    if (
        buffer is None
        or buffer.size < SLACK_BYTES + size_bytes
        or buffer.size > 4 * (SLACK_BYTES + size_bytes)
    ):
        buffer = _buffers.window = np.zeros(SLACK_BYTES + size_bytes, np.uint8)
    return buffer[: SLACK_BYTES + size_bytes]


def _read_fully(descriptor: int, target: npt.NDArray[np.uint8], position: int, path: str) -> None:
    view = memoryview(target.data)
    while view:
        count = os.preadv(descriptor, [view], position)
        if count == 0:
            raise OSError(errno.EIO, "the file became shorter while it was read", path)
        view, position = view[count:], position + count


def _size_bytes(header: bytes, position: int) -> int:
    """Return the total bytes of the batch that begins with *header*."""
    length = int.from_bytes(header[layout.LENGTH_POSITION : layout.LOG_OVERHEAD_BYTES], "big", signed=True)
    if length < layout.MIN_MESSAGE_BYTES:
        raise CorruptBatchError(f"position {position}: batch length {length}", position=position)
    return layout.LOG_OVERHEAD_BYTES + length


def _offsets(header: bytes) -> tuple[int, int]:
    """Return base offset and last offset of the batch that begins with *header*."""
    offset = int.from_bytes(header[: layout.LENGTH_POSITION], "big", signed=True)
    magic = int.from_bytes(header[layout.MAGIC_POSITION : layout.MAGIC_POSITION + 1], "big", signed=True)
    return (
        (offset, offset)
        if magic < layout.MAGIC_V2
        else (offset, read_record_batch_header(header).last_offset)
    )


def _decide_control(scanner: SegmentScanner, batch: npt.NDArray[np.uint8]) -> None:
    """Decode a control batch that the kernel left to us, and let the scan go on.

    Kafka: ProducerAppendInfo.append, EndTransactionMarker.deserialize.
    """
    length = int.from_bytes(
        batch[layout.LENGTH_POSITION : layout.LOG_OVERHEAD_BYTES].tobytes(), "big", signed=True
    )
    try:
        marker = read_end_transaction_marker(batch[: layout.LOG_OVERHEAD_BYTES + length].tobytes())
    except InvalidRecordError:
        scanner.resume_control(ControlKind.INVALID)
    except FormatError:
        scanner.resume_control(ControlKind.FATAL)
    else:
        if marker is None:
            scanner.resume_control(ControlKind.NOTHING)
        else:
            marker_type = layout.CONTROL_TYPE_ABORT if marker.is_abort else layout.CONTROL_TYPE_COMMIT
            scanner.resume_control(
                ControlKind.MARKER, marker_type, marker.coordinator_epoch, marker.timestamp_ms
            )
