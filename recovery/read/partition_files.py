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
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from native.raw_scan import ControlKind, RawScan, Stop
from native.segment_scan import SegmentScanner
from recovery.load.model import BatchSpan, Blob, LogSettings, Original, ScanMode, ScanRequest
from recovery.read.file_system import fill, is_local, naming, open_file, read_whole
from recovery.read.mapping import MappedFile
from recovery.read.page_cache import STEP_BYTES, CachedFile
from recovery.read.rate_limit import RateLimit
from recovery.read.spool import Spool
from segfmt import layout
from segfmt.control_record import read_end_transaction_marker
from segfmt.errors import CorruptBatchError, FormatError, InvalidRecordError
from segfmt.message_set import base_offset
from segfmt.offset_index import max_entries as max_offset_index_entries
from segfmt.record_batch import read_record_batch_header
from segfmt.time_index import max_entries as max_time_index_entries

WINDOW_BYTES = 2 << 20
MAPPED_WINDOW_BYTES = 32 << 20
"""How much of a mapping is scanned in one call of the kernel."""
REPORTED_BYTES = 16 << 20
"""How much is scanned at least between two reports, which are also the looks at the signals."""
MOST_READ_BATCH_BYTES = 32 << 20
"""A batch that is said to be larger is not read into a window but mapped, where that can be done."""
LEAST_MAPPED_BYTES = 256 << 10
"""A smaller segment is read: a copy of it costs less than a mapping."""
SLACK_BYTES = 256
"""Bytes before a window that have a page: the kernels' masked loads name them, and are slow where there is none."""

_ATTRIBUTES_POSITION, _CODEC_MASK = layout.MESSAGE_ATTRIBUTES_POSITION, layout.COMPRESSION_CODEC_MASK
_HEADERS_BUFFER_BYTES = 16 << 10
_PRODUCER_STOPS = frozenset({Stop.INVALID_CONTROL, Stop.INVALID_TXN, Stop.CONTROL_FATAL})

_buffers = threading.local()


class PartitionFiles:
    """The files of one partition's folder as a `PartitionSource`.

    Args:
        folder: path of the folder.
        settings: of the log.
        mappable: names of the closed segments that may be mapped.
        on_bytes: told now and then how many bytes of a recovery were scanned since, from the thread that did
            it; may raise to end the work.
        limit: on bytes a second, over all partitions together.
        drops_cache: whether what was not in the page cache before leaves it again. Then nothing is mapped:
            pages that are in use cannot be given back.
        spool_dir: where what the fold makes may wait on disk; None: among the system's temporary files.
    """

    def __init__(
        self,
        folder: str,
        settings: LogSettings,
        *,
        mappable: Collection[str] = (),
        on_bytes: Callable[[int], None] = lambda _: None,
        limit: RateLimit | None = None,
        drops_cache: bool = False,
        spool_dir: str | None = None,
    ) -> None:
        self._folder = folder
        self._spool = Spool(spool_dir)
        self._settings = settings
        self._mappable = () if drops_cache else mappable
        self._on_bytes = on_bytes
        self._limit = RateLimit(None) if limit is None else limit
        self._drops_cache = drops_cache

    def read(self, file: str) -> bytes:
        """Return all bytes of a small file."""
        return read_whole(f"{self._folder}/{file}")

    def read_part(self, part: Original) -> bytes:
        """Return some bytes of a file that may be large, fewer where it has become shorter."""
        path = f"{self._folder}/{part.file}"
        with naming(path), open(path, "rb", 0, opener=open_file) as opened:
            return os.pread(opened.fileno(), part.size_bytes, part.origin_position)

    def scan(self, request: ScanRequest) -> RawScan:
        """Scan a segment, or a part of it.

        Raises:
            OSError: a read failed, or the file is shorter than it was.
        """
        scan = self._scan_once(request)
        if request.mode is not ScanMode.WALK:
            return scan
        batch_count = scan.batch_count
        while scan.stop in _PRODUCER_STOPS:  # what producers did in the batches is no concern of a walk
            last_offset = scan.last_offset
            scan = self._scan_once(replace(request, start_position=scan.valid_bytes))
            if not scan.batch_count:
                scan = scan._replace(last_offset=last_offset)
            batch_count += scan.batch_count
        return scan._replace(batch_count=batch_count)

    def _scan_once(self, request: ScanRequest) -> RawScan:
        part = request.part
        if request.start_position >= part.size_bytes:
            return self._scanner(request).result()
        path = f"{self._folder}/{part.file}"
        descriptor = open_file(path)
        try:
            with naming(path):
                is_worth_it = part.size_bytes >= LEAST_MAPPED_BYTES
                if is_worth_it and part.file in self._mappable and part.origin_position == 0:
                    scan = self._scan_mapped(descriptor, request)
                    if scan is not None:
                        return scan
                return self._scan_read(descriptor, request, path)
        finally:
            os.close(descriptor)

    def batches(
        self, part: Original, start_position: int, *, opens_message_sets: bool = True
    ) -> Iterator[BatchSpan]:
        """Yield the batches of *part* by their headers; see `PartitionSource`.

        Kafka: FileLogInputStream.nextBatch, and the offsets of its batches.
        """
        if start_position >= part.size_bytes - layout.HEADER_UP_TO_MAGIC_BYTES:
            return  # an empty segment that the load has made is no file yet
        path = f"{self._folder}/{part.file}"
        with naming(path), open(path, "rb", _HEADERS_BUFFER_BYTES, opener=open_file) as opened:
            position = start_position
            while position < part.size_bytes - layout.HEADER_UP_TO_MAGIC_BYTES:
                opened.seek(part.origin_position + position)
                header = opened.read(layout.RECORD_BATCH_OVERHEAD_BYTES)
                size_bytes = _size_bytes(header, position)
                if position > part.size_bytes - size_bytes:
                    return
                if _magic(header) >= layout.MAGIC_V2:
                    v2 = read_record_batch_header(header)
                    offsets = (v2.base_offset, v2.last_offset)
                    yield BatchSpan(position, size_bytes, *offsets, v2.magic, v2.crc, v2.has_compacted)
                    position += size_bytes
                    continue
                first = last_offset = _offset(header)
                if opens_message_sets and header[_ATTRIBUTES_POSITION] & _CODEC_MASK:
                    message = header + opened.read(max(0, size_bytes - len(header)))
                    first = base_offset(message[:size_bytes])
                yield BatchSpan(
                    position, size_bytes, first, last_offset, _magic(header), _message_crc(header)
                )
                position += size_bytes

    def is_zero(self, part: Original) -> bool:
        """Return whether *part* is all zeros."""
        path = f"{self._folder}/{part.file}"
        with naming(path), open(path, "rb", 0, opener=open_file) as opened:
            opened.seek(part.origin_position)
            left = part.size_bytes
            while left > 0:
                chunk = opened.read(min(left, WINDOW_BYTES))
                if not chunk or np.frombuffer(chunk, np.uint8).any():
                    return False
                left -= len(chunk)
        return True

    def keep(self, data: bytes) -> Blob:
        """Return *data*, or what stands for it on disk; until `close`."""
        return self._spool.keep(data)

    def close(self) -> None:
        """Forget what was kept."""
        self._spool.close()

    def _scanner(self, request: ScanRequest) -> SegmentScanner:
        return SegmentScanner(
            base_offset=request.base_offset,
            size_bytes=request.part.size_bytes,
            start_position=request.start_position,
            index_interval_bytes=self._settings.index_interval_bytes,
            max_index_entries=max_offset_index_entries(self._settings.segment_index_bytes),
            max_time_index_entries=max_time_index_entries(self._settings.segment_index_bytes),
            check_crc=request.mode is ScanMode.RECOVER,
            build_index=request.mode in (ScanMode.RECOVER, ScanMode.INDEX),
            settles_txns=request.mode is not ScanMode.TRANSACTIONS,
        )

    def _scan_mapped(self, descriptor: int, request: ScanRequest) -> RawScan | None:
        """Scan the page cache in place; None where the file is too short or a page could not be read."""
        size_bytes = request.part.size_bytes
        if size_bytes > os.fstat(descriptor).st_size:
            return None
        try:
            opened = MappedFile(descriptor, size_bytes)
        except (
            OSError,
            ValueError,
        ):  # a file system that maps nothing; a file that was cut since it was looked at
            return None
        walk = _Walk(self._scanner(request), descriptor, request, self._limit, self._on_bytes)
        with opened as mapped:
            while not walk.scanner.finished and not mapped.has_faulted:
                position = walk.scanner.position
                slack = min(position, SLACK_BYTES)
                end = position + walk.next_bytes(MAPPED_WINDOW_BYTES)
                walk.feed(mapped.view[position - slack : end], slack)
            # A file that is cut within its last page reads as zeros there, without a fault.
            is_whole = not mapped.has_faulted and size_bytes <= os.fstat(descriptor).st_size
            return walk.result() if is_whole else None

    def _scan_read(self, descriptor: int, request: ScanRequest, path: str) -> RawScan:
        may_map = request.part.size_bytes > MOST_READ_BATCH_BYTES and is_local(path)
        scan = self._scan_windows(descriptor, request, path, may_map=may_map)
        while scan is None:
            scan = self._scan_windows(descriptor, request, path, may_map=False)
        return scan

    def _scan_windows(
        self, descriptor: int, request: ScanRequest, path: str, *, may_map: bool
    ) -> RawScan | None:
        """Scan by reading. What says that it is a batch larger than any usual one is mapped: one flipped bit makes it.

        Returns:
            None where a mapped page could not be read.
        """
        origin = request.part.origin_position
        walk = _Walk(
            self._scanner(request), descriptor, request, self._limit, self._on_bytes, self._drops_cache
        )
        while not walk.scanner.finished:
            position = walk.scanner.position
            wanted = walk.next_bytes(WINDOW_BYTES)
            if wanted > MOST_READ_BATCH_BYTES and may_map:
                if not _feed_mapped(walk, descriptor, origin + position, wanted):
                    return None
                continue
            window = _window(max(WINDOW_BYTES, wanted))[: SLACK_BYTES + wanted]
            _read_fully(descriptor, window[SLACK_BYTES:], origin + position, path)
            walk.feed(window, SLACK_BYTES)
        return walk.result()


class _Walk:
    """One forward pass of a scanner over a file: how much comes next, and what is told of it."""

    def __init__(
        self,
        scanner: SegmentScanner,
        descriptor: int,
        request: ScanRequest,
        limit: RateLimit,
        on_bytes: Callable[[int], None],
        drops_cache: bool = False,
    ) -> None:
        self.scanner = scanner
        part = request.part
        self._size_bytes = part.size_bytes
        self._origin = part.origin_position
        self._limit = limit
        self._on_bytes = on_bytes
        self._is_counted = request.mode is ScanMode.RECOVER
        self._report_bytes = min(REPORTED_BYTES, limit.window_bytes)
        self._reported_position = scanner.position
        self._cached: CachedFile | None = None
        if part.size_bytes > STEP_BYTES or drops_cache:  # what is smaller comes at once
            self._cached = CachedFile(
                descriptor,
                position=self._origin + scanner.position,
                end_position=self._origin + part.size_bytes,
                gives_back=drops_cache,
            )

    def next_bytes(self, most_bytes: int) -> int:
        """Return how many bytes to read next, once they may be read."""
        position = self.scanner.position
        wanted = max(min(most_bytes, self._limit.window_bytes), self.scanner.needed_bytes)
        wanted = min(wanted, self._size_bytes - position)
        self._limit.take(wanted)
        if self._cached is not None:
            self._cached.approach(self._origin + position)
        return wanted

    def feed(self, window: npt.NDArray[np.uint8], slack: int) -> None:
        """Scan *window*, whose bytes from *slack* on are the next ones."""
        scanner = self.scanner
        position = scanner.position
        scanner.feed(window, slack)
        while scanner.paused_control:
            decide_control(scanner, window[slack + scanner.control_position - position :])
        if self._cached is not None:
            self._cached.leave(self._origin + scanner.position)
        if scanner.position - self._reported_position >= self._report_bytes:
            self._report(scanner.position)

    def result(self) -> RawScan:
        """Return the scan; what was not reported yet is."""
        self._report(self._size_bytes)
        if self._cached is not None:
            self._cached.leave(self._origin + self._size_bytes)
        return self.scanner.result()

    def _report(self, position: int) -> None:
        scanned_bytes = position - self._reported_position
        self._reported_position = position
        self._on_bytes(scanned_bytes if self._is_counted else 0)


def _feed_mapped(walk: _Walk, descriptor: int, position: int, size_bytes: int) -> bool:
    """Scan so many bytes of a file from *position* on in place; return whether all of them could be read."""
    try:
        opened = MappedFile(descriptor, position + size_bytes)
    except (OSError, ValueError):
        return False
    slack = min(position, SLACK_BYTES)
    with opened as mapped:
        walk.feed(mapped.view[position - slack :], slack)
        return not mapped.has_faulted and position + size_bytes <= os.fstat(descriptor).st_size


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
    if fill(memoryview(target.data), descriptor, position) < len(target):
        raise OSError(errno.EIO, "the file became shorter while it was read", path)


def _size_bytes(header: bytes, position: int) -> int:
    """Return the total bytes of the batch that begins with *header*."""
    length = int.from_bytes(header[layout.LENGTH_POSITION : layout.LOG_OVERHEAD_BYTES], "big", signed=True)
    if length < layout.MIN_MESSAGE_BYTES:
        raise CorruptBatchError(f"position {position}: batch length {length}", position=position)
    return layout.LOG_OVERHEAD_BYTES + length


def _offset(header: bytes) -> int:
    return int.from_bytes(header[: layout.LENGTH_POSITION], "big", signed=True)


def _magic(header: bytes) -> int:
    return int.from_bytes(header[layout.MAGIC_POSITION : layout.MAGIC_POSITION + 1], "big", signed=True)


def _message_crc(header: bytes) -> int:
    return int.from_bytes(header[layout.MESSAGE_CRC_POSITION : layout.MESSAGE_CRC_START_POSITION], "big")


def decide_control(scanner: SegmentScanner, batch: npt.NDArray[np.uint8]) -> None:
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
