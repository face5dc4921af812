"""Where the bytes of one partition come from.

Closed segments on local file systems are mapped: the page cache is scanned in place. The active segment, and
everything on a network file system, is read with `pread` into windows that each thread owns. A mapping that
faults is abandoned for `pread`, which can say what is wrong; nothing that somebody else does to a file ends
the process. Memory grows with the number of threads, not with the size of a segment.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from types import TracebackType

import numpy as np
import numpy.typing as npt

from native.raw_scan import RawScan, Stop
from native.segment_scan import SegmentScanner
from recovery.load.model import BatchSpan, Blob, LogSettings, Original, ScanMode, ScanRequest
from recovery.read.file_system import is_local, naming, open_file, read_at, read_whole
from recovery.read.mapping import MappedFile
from recovery.read.opened_log import FilePart
from recovery.read.rate_limit import RateLimit
from recovery.read.spool import Spool
from recovery.read.windows import (
    SLACK_BYTES,
    WINDOW_BYTES,
    Window,
    Windows,
    batch_bytes,
    scan_windows,
    thread_buffer,
)
from segfmt import byte_layout
from segfmt.errors import CorruptBatchError
from segfmt.message_set import base_offset
from segfmt.offset_index import max_entries as max_offset_index_entries
from segfmt.record_batch import read_record_batch_header
from segfmt.time_index import max_entries as max_time_index_entries

MAPPED_WINDOW_BYTES = 32 << 20
"""How much of a mapping is scanned in one call of the kernel."""
REPORTED_BYTES = 16 << 20
"""How much is scanned at least between two reports; signals are checked at the same moments."""
MOST_READ_BATCH_BYTES = 32 << 20
"""A batch that claims to be larger is not read into a window but mapped, if possible."""
LEAST_MAPPED_BYTES = 256 << 10
"""A smaller segment is read: a copy of it costs less than a mapping."""

_ATTRIBUTES_POSITION, _CODEC_MASK = (
    byte_layout.MESSAGE_ATTRIBUTES_POSITION,
    byte_layout.COMPRESSION_CODEC_MASK,
)
_HEADERS_BUFFER_BYTES = 16 << 10
_PRODUCER_STOPS = frozenset({Stop.INVALID_CONTROL, Stop.INVALID_TXN, Stop.CONTROL_FATAL})


class PartitionFiles:
    """The files of one partition's folder as a `PartitionSource`.

    Args:
        folder: path of the folder.
        settings: of the log.
        mappable: names of the closed segments that may be mapped.
        on_bytes: called now and then with the number of bytes scanned for a recovery since the last call, in the
            thread that scans; may raise to end the work.
        limit: on bytes a second, for all partitions together.
        drops_cache: whether what was not in the page cache before leaves it again. Then nothing is mapped:
            pages that are in use cannot be dropped.
        spool_dir: where files that the fold makes may wait on disk; None for the system's temporary files.
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
        """Return some bytes of a file that may be large, fewer if it has become shorter."""
        path = f"{self._folder}/{part.file}"
        with naming(path), open(path, "rb", 0, opener=open_file) as opened:
            return read_at(opened.fileno(), part.origin_position, part.size_bytes)

    def scan(self, request: ScanRequest) -> RawScan:
        """Scan a segment, or a part of it.

        Raises:
            OSError: a read failed, or the file is shorter than it was.
        """
        scan = self._scan_once(request)
        if request.mode is not ScanMode.WALK:
            return scan
        batch_count = scan.batch_count
        while scan.stop in _PRODUCER_STOPS:  # a walk does not care what producers did
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
                for least_mapped_bytes in self._mappings(part, path):
                    with suppress(_MappingLostError):
                        return self._scan_windows(descriptor, request, least_mapped_bytes)
                return self._scan_windows(descriptor, request)
        finally:
            os.close(descriptor)

    def _mappings(self, part: Original, path: str) -> Iterator[int]:
        """Yield the sizes from which on windows are mapped instead of read, to be tried until no mapping is lost."""
        if (
            part.size_bytes >= LEAST_MAPPED_BYTES
            and part.file in self._mappable
            and part.origin_position == 0
        ):
            yield 0
        # For a header that claims an unusually large batch: one flipped bit is enough for that.
        if part.size_bytes > MOST_READ_BATCH_BYTES and is_local(path):
            yield MOST_READ_BATCH_BYTES + 1

    def _scan_windows(
        self, descriptor: int, request: ScanRequest, least_mapped_bytes: int | None = None
    ) -> RawScan:
        part, limit = request.part, self._limit
        log = FilePart(
            descriptor,
            size_bytes=part.size_bytes,
            origin_position=part.origin_position,
            start_position=request.start_position,
            gives_back=self._drops_cache,
        )
        scanner = self._scanner(request)
        progress = _Progress(request, min(REPORTED_BYTES, limit.window_bytes), self._on_bytes)
        if least_mapped_bytes is None:
            scan_windows(scanner, Windows(log, limit=limit, buffer=thread_buffer()), progress.reach)
        else:
            with _MappedWindows(log, descriptor, part, limit, least_mapped_bytes) as windows:
                scan_windows(scanner, windows, progress.reach)
                windows.check()
        progress.report(part.size_bytes)
        log.leave(part.size_bytes)
        return scanner.result()

    def batches(
        self, part: Original, start_position: int, *, opens_message_sets: bool = True
    ) -> Iterator[BatchSpan]:
        """Yield the batches of *part* by their headers; see `PartitionSource`.

        Kafka: FileLogInputStream.nextBatch, and the offsets of its batches.
        """
        if start_position >= part.size_bytes - byte_layout.HEADER_UP_TO_MAGIC_BYTES:
            return  # an empty segment that the load has made has no file yet
        path = f"{self._folder}/{part.file}"
        with naming(path), open(path, "rb", _HEADERS_BUFFER_BYTES, opener=open_file) as opened:
            position = start_position
            while position < part.size_bytes - byte_layout.HEADER_UP_TO_MAGIC_BYTES:
                opened.seek(part.origin_position + position)
                header = opened.read(byte_layout.RECORD_BATCH_OVERHEAD_BYTES)
                size_bytes = _size_bytes(header, position)
                if position > part.size_bytes - size_bytes:
                    return
                if _magic(header) >= byte_layout.MAGIC_V2:
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
        """Return *data*, or a stand-in for it on disk, valid until `close`."""
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


class _Progress:
    """Reports of the scan of a segment: the bytes of a recovery, and 0 for others, to show that they proceed."""

    def __init__(self, request: ScanRequest, report_bytes: int, on_bytes: Callable[[int], None]) -> None:
        self._reported_position = request.start_position
        self._report_bytes = report_bytes
        self._on_bytes = on_bytes
        self._is_counted = request.mode is ScanMode.RECOVER

    def reach(self, position: int) -> None:
        """Note that the scan is at *position*."""
        if position - self._reported_position >= self._report_bytes:
            self.report(position)

    def report(self, position: int) -> None:
        """Report what was scanned up to *position*."""
        scanned_bytes = position - self._reported_position
        self._reported_position = position
        self._on_bytes(scanned_bytes if self._is_counted else 0)


class _MappingLostError(Exception):
    """The file cannot be mapped, or not all of the mapping could be read: the result is worthless."""


class _MappedWindows(Windows):
    """Windows in place in the page cache if they have at least *least_bytes*; smaller ones are read.

    Raises:
        _MappingLostError: while windows are fetched, and from `check`.
    """

    def __init__(
        self, log: FilePart, descriptor: int, part: Original, limit: RateLimit, least_bytes: int
    ) -> None:
        window_bytes = None if least_bytes else MAPPED_WINDOW_BYTES
        super().__init__(log, window_bytes=window_bytes, limit=limit, buffer=thread_buffer())
        self._descriptor = descriptor
        self._origin = part.origin_position
        self._least_bytes = least_bytes
        self._stack = ExitStack()
        self._mapped: MappedFile | None = None

    def __enter__(self) -> _MappedWindows:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def fetch(self, position: int, size_bytes: int) -> Window:
        """Return the window in place, or read it."""
        if self._mapped is not None and self._mapped.has_faulted:
            raise _MappingLostError
        if size_bytes < self._least_bytes:
            return super().fetch(position, size_bytes)
        start = self._origin + position
        slack = min(start, SLACK_BYTES)
        return Window(position, self._view()[start - slack : start + size_bytes], slack)

    def _view(self) -> npt.NDArray[np.uint8]:
        if self._mapped is None:
            try:
                opened = MappedFile(self._descriptor, self._origin + self.end_position)
            except (OSError, ValueError) as error:  # it cannot be mapped, or is shorter
                raise _MappingLostError from error
            self._mapped = self._stack.enter_context(opened)
        return self._mapped.view

    def check(self) -> None:
        """Check at the end whether all pages could be read; a file cut within its last page has zeros there."""
        if self._mapped is None:
            return
        file_bytes = os.fstat(self._descriptor).st_size
        if self._mapped.has_faulted or self._origin + self.end_position > file_bytes:
            raise _MappingLostError


def _size_bytes(header: bytes, position: int) -> int:
    """Return the total bytes of the batch that begins with *header*."""
    size_bytes = batch_bytes(header)
    length = size_bytes - byte_layout.LOG_OVERHEAD_BYTES
    if length < byte_layout.MIN_MESSAGE_BYTES:
        raise CorruptBatchError(f"position {position}: batch length {length}", position=position)
    return size_bytes


def _offset(header: bytes) -> int:
    return int.from_bytes(header[: byte_layout.LENGTH_POSITION], "big", signed=True)


def _magic(header: bytes) -> int:
    return int.from_bytes(
        header[byte_layout.MAGIC_POSITION : byte_layout.MAGIC_POSITION + 1], "big", signed=True
    )


def _message_crc(header: bytes) -> int:
    return int.from_bytes(
        header[byte_layout.MESSAGE_CRC_POSITION : byte_layout.MESSAGE_CRC_START_POSITION], "big"
    )
