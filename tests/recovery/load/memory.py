"""Partitions in memory: a `PartitionSource` over bytes, and tasks for the fold."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping

import numpy as np

from native.raw_scan import ControlKind, RawScan
from native.segment_scan import SegmentScanner
from recovery.load.fold import fold
from recovery.load.model import (
    BatchSpan,
    FileStat,
    Generated,
    LogSettings,
    Original,
    PartitionOutcome,
    PartitionTask,
    ScanMode,
    ScanRequest,
    TopicPartition,
)
from tests.logs.reference import decode_control

NOW_MS = 1_700_000_000_000
METADATA = b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n"


class MemorySource:
    """Bytes by file name; remembers what it was asked."""

    def __init__(self, files: Mapping[str, bytes], settings: LogSettings) -> None:
        self.files = dict(files)
        self.requests: list[ScanRequest] = []
        self._settings = settings

    def read(self, file: str) -> bytes:
        return self.files[file]

    def scan(self, request: ScanRequest) -> RawScan:
        self.requests.append(request)
        data = np.frombuffer(self._bytes(request.part), np.uint8)
        scanner = SegmentScanner(
            base_offset=request.base_offset,
            size_bytes=data.size,
            start_position=request.start_position,
            index_interval_bytes=self._settings.index_interval_bytes,
            max_index_entries=self._settings.segment_index_bytes // 8,
            max_time_index_entries=self._settings.segment_index_bytes // 12,
            check_crc=request.mode is ScanMode.RECOVER,
            build_index=request.mode in (ScanMode.RECOVER, ScanMode.INDEX),
        )
        while not scanner.finished:
            scanner.feed(data[scanner.position :])
            while scanner.paused_control:
                position = scanner.control_position
                length = int.from_bytes(data[position + 8 : position + 12].tobytes(), "big")
                kind, *marker = decode_control(data[position : position + 12 + length].tobytes())
                scanner.resume_control(kind, *(marker if kind is ControlKind.MARKER else ()))
        return scanner.result()

    def batches(
        self, part: Original, start_position: int, *, opens_message_sets: bool = True
    ) -> Iterator[BatchSpan]:
        data, position = self._bytes(part), start_position
        while position + 17 < len(data):
            base_offset, length = struct.unpack_from(">qi", data, position)
            (crc,) = struct.unpack_from(">I", data, position + 17)
            (delta,) = struct.unpack_from(">i", data, position + 23)
            if position + 12 + length > len(data):
                return
            count = int.from_bytes(data[position + 57 : position + 61], "big", signed=True)
            yield BatchSpan(
                position,
                12 + length,
                base_offset,
                base_offset + delta,
                crc=crc,
                has_compacted=count <= delta,
            )
            position += 12 + length

    def read_part(self, part: Original) -> bytes:
        return self._bytes(part)

    def is_zero(self, part: Original) -> bool:
        return not any(self._bytes(part))

    def keep(self, data: bytes) -> bytes:
        return data

    def _bytes(self, part: Original) -> bytes:
        if not part.size_bytes:  # perhaps of a segment that the load made
            return b""
        return self.files[part.file][part.origin_position : part.origin_position + part.size_bytes]


def name(base_offset: int, suffix: str = ".log") -> str:
    return f"{base_offset:020d}{suffix}"


def partition(segments: Mapping[int, bytes], **others: bytes) -> dict[str, bytes]:
    """The files of a log whose segments have empty indexes, as a crash may leave them.

    *others*: by name, with `_` for `.` and `-`, or None where a file is not to be there.
    """
    files = {"partition.metadata": METADATA, "leader-epoch-checkpoint": b"0\n0\n"}
    for base_offset, data in segments.items():
        files |= {
            name(base_offset): data,
            name(base_offset, ".index"): b"",
            name(base_offset, ".timeindex"): b"",
        }
    return files | others


def task_of(contents: Mapping[str, bytes], **fields: object) -> PartitionTask:
    defaults = {
        "log_dir": "/logs",
        "folder": "t-0",
        "topic_partition": TopicPartition(topic="t", partition=0),
        "files": {file: FileStat(size_bytes=len(data)) for file, data in contents.items()},
        "had_clean_shutdown": False,
        "recovery_point": 0,
        "log_start_offset": 0,
        "settings": LogSettings(index_interval_bytes=100, segment_index_bytes=4096),
        "now_ms": NOW_MS,
    }
    return PartitionTask(**(defaults | fields))


class Folded:
    """The outcome of a fold, with the bytes behind its tree."""

    def __init__(self, files: Mapping[str, bytes], **fields: object) -> None:
        self.task = task_of(files, **fields)
        self.source = MemorySource(files, self.task.settings)
        self.outcome: PartitionOutcome = fold(self.task, self.source)
        self.tree = {file: self._bytes(content) for file, content in self.outcome.tree.items()}

    def _bytes(self, content: Original | Generated) -> bytes:
        if isinstance(content, Generated):
            return content.data + bytes(content.size_bytes - len(content.data))
        return self.source._bytes(content)

    def index(self, base_offset: int) -> list[tuple[int, int]]:
        """The entries of an offset index: relative offset, position."""
        return list(struct.iter_unpack(">ii", self.tree[name(base_offset, ".index")]))

    def time_index(self, base_offset: int) -> list[tuple[int, int]]:
        """The entries of a time index: timestamp, relative offset."""
        return list(struct.iter_unpack(">qi", self.tree[name(base_offset, ".timeindex")]))

    def snapshots(self) -> list[int]:
        """The offsets of the producer snapshots."""
        return sorted(int(file.split(".")[0]) for file in self.tree if file.endswith(".snapshot"))

    def epochs(self) -> list[tuple[int, int]]:
        """The entries of leader-epoch-checkpoint."""
        lines = self.tree["leader-epoch-checkpoint"].decode().splitlines()[2:]
        return [(int(epoch), int(start)) for epoch, start in (line.split() for line in lines)]
