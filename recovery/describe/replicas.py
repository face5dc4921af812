"""The replicas in a log dir by the files of their folders: how large they are, and where their logs end.

Nothing is locked or written. A broker may go on beside: what vanishes while it is looked at no longer counts.

Kafka: UnifiedLog.size, LogSegment.readNextOffset, FileRecords.sizeInBytes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import NamedTuple

from recovery.load.model import BatchSpan, LogSettings, Original
from recovery.logdir.listing import is_log_name, is_of_type
from recovery.read.file_system import OddFileError, naming, open_file, read_at
from recovery.read.partition_files import PartitionFiles
from recovery.watch.tally import Tally
from segfmt.byte_layout import RECORD_BATCH_OVERHEAD_BYTES
from segfmt.errors import FileNameError, FormatError
from segfmt.filenames import (
    CLEAN_SHUTDOWN_FILE,
    FileKind,
    FolderState,
    PartitionFolder,
    file_kind,
    offset_index_name,
    read_log_folder_name,
    read_offset,
)
from segfmt.offset_index import ENTRY_BYTES, view_offset_index

MOST_INDEX_BYTES = 2**31 - 1
"""An index is an int32 of bytes long. Kafka: segment.index.bytes."""

_LEAST_REST_BYTES = 8
"""Fewer zeros at the end of a segment are no sign of preallocation: the last field of most records is a zero."""

_LISTED_STATES = (FolderState.CURRENT, FolderState.FUTURE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One replica, as found.

    Attributes:
        path: its folder.
        folder: what the folder's name says.
        closed_bytes: of all `.log` files but the active segment's.
        active: name of the active segment's file; empty if the folder has no segment.
        active_bytes: its size.
    """

    path: str
    folder: PartitionFolder
    closed_bytes: int
    active: str
    active_bytes: int

    @property
    def is_future(self) -> bool:
        """Whether it is a future replica."""
        return self.folder.state is FolderState.FUTURE


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundReplicas:
    """What lies in a log dir.

    Attributes:
        foreign: names of folders with which no broker starts.
        without_folder: names of logs that no folder has, but a link that leads to none, or a file.
    """

    replicas: tuple[Replica, ...]
    foreign: tuple[str, ...]
    without_folder: tuple[str, ...]


class LogEnd(NamedTuple):
    """Where a log ends.

    Attributes:
        offset: after its last batch; the base offset of the active segment if that is empty.
        position: where that batch ends in the active segment; bytes.
    """

    offset: int
    position: int


def list_replicas(log_dir: str, tally: Tally | None = None) -> FoundReplicas:
    """Return the current and future replicas in *log_dir*, and none that is deleted, stray or of the metadata log.

    Args:
        tally: counts the folders.

    Raises:
        OSError: the log dir, or the folder of a replica, cannot be read.

    Kafka: LogManager.loadLogs, LogManager.allLogs.
    """
    with os.scandir(log_dir) as entries:
        is_folder = {entry.name: is_of_type(entry, os.DirEntry.is_dir) for entry in entries}
    tally = tally or Tally()
    tally.expect(sum(is_folder.values()))
    replicas: list[Replica] = []
    foreign: list[str] = []
    without_folder: list[str] = []
    for name in sorted(is_folder):
        if not is_folder[name]:
            without_folder += [name] if is_log_name(name) else []
            continue
        tally.add()
        if name == CLEAN_SHUTDOWN_FILE:
            continue  # a broker takes even a folder for its marker
        try:
            folder = read_log_folder_name(name)
        except FileNameError:
            foreign.append(name)
            continue
        if folder is not None and folder.state in _LISTED_STATES:
            with suppress(FileNotFoundError):  # renamed or deleted since
                replicas.append(_look_at(os.path.join(log_dir, name), folder))
    return FoundReplicas(
        replicas=tuple(replicas), foreign=tuple(foreign), without_folder=tuple(without_folder)
    )


def _look_at(path: str, folder: PartitionFolder) -> Replica:
    sizes = dict(_log_sizes(path))
    active = max(sizes, key=read_offset, default="")
    active_bytes = sizes.pop(active, 0)
    return Replica(
        path=path,
        folder=folder,
        closed_bytes=sum(sizes.values()),
        active=active,
        active_bytes=active_bytes,
    )


def _log_sizes(path: str) -> Iterator[tuple[str, int]]:
    """Yield the `.log` files of a folder and their bytes."""
    with os.scandir(path) as entries:
        for entry in entries:
            if file_kind(entry.name) is FileKind.LOG and is_of_type(entry, os.DirEntry.is_file):
                with suppress(FileNotFoundError, FileNameError):
                    read_offset(entry.name)
                    yield entry.name, entry.stat().st_size


def replica_bytes(replica: Replica) -> int:
    """Return the bytes of a replica as a broker counts them: without what is preallocated in the active segment.

    Raises:
        OSError: that segment cannot be read.
    """
    with _opened(replica.path, replica.active) as read:
        active_bytes = replica.active_bytes
        if read is not None and _is_zero(read(active_bytes - _LEAST_REST_BYTES, _LEAST_REST_BYTES)):
            end = log_end(replica).position
            if _is_zero(read(end, RECORD_BATCH_OVERHEAD_BYTES)):
                active_bytes = end
    return replica.closed_bytes + active_bytes


def log_end(replica: Replica) -> LogEnd:
    """Return where the log of *replica* ends, by the headers of the batches after the last index entry.

    The entry is used only if it fits the batch that it points to; without one, all headers of the active segment are
    followed. CRCs are not checked: a log that needs recovery may end before.

    Raises:
        OSError: the active segment cannot be read.
    """
    base_offset = read_offset(replica.active) if replica.active else 0
    end = LogEnd(base_offset, 0)
    for span in _last_batches(replica, base_offset):
        end = LogEnd(span.last_offset + 1, span.position + span.size_bytes)
    return end


def _last_batches(replica: Replica, base_offset: int) -> Iterator[BatchSpan]:
    """Yield the batches from the last index entry on, up to the first that cannot be followed."""
    files = PartitionFiles(replica.path, LogSettings())
    part = Original(file=replica.active, size_bytes=replica.active_bytes)

    def batches(position: int) -> Iterator[BatchSpan]:
        with suppress(FormatError):
            yield from files.batches(part, position, opens_message_sets=False)

    offset, position = _last_index_entry(replica, base_offset)
    first = next(batches(position), None)
    is_fit = first is not None and base_offset <= first.base_offset <= offset
    return batches(position if is_fit else 0)


def _last_index_entry(replica: Replica, base_offset: int) -> tuple[int, int]:
    """Return offset and position of the last entry in the index of the active segment; without one (-1, 0).

    A broker keeps that file at its full size, with zeros after the entries: those are looked for by halves.
    """
    with _opened(replica.path, offset_index_name(base_offset)) as read:
        if read is None:
            return -1, 0
        low, high = 0, MOST_INDEX_BYTES // ENTRY_BYTES
        while low < high:
            middle = (low + high) // 2
            if _is_zero(read(middle * ENTRY_BYTES, ENTRY_BYTES)):
                high = middle
            else:
                low = middle + 1
        entries = view_offset_index(read(max(low - 1, 0) * ENTRY_BYTES, ENTRY_BYTES))
        if not len(entries):
            return -1, 0
        return base_offset + int(entries["relative_offset"][0]), max(int(entries["position"][0]), 0)


@contextmanager
def _opened(folder: str, name: str) -> Iterator[Callable[[int, int], bytes] | None]:
    """Give a function that reads bytes of a file from a position on, fewer at its end; None if there is no such file.

    Raises:
        OSError: it cannot be read.
    """
    path = os.path.join(folder, name)
    try:
        descriptor = open_file(path)
    except (FileNotFoundError, OddFileError):
        yield None
        return
    try:
        with naming(path):
            yield lambda position, size_bytes: read_at(descriptor, max(position, 0), size_bytes)
    finally:
        os.close(descriptor)


def _is_zero(data: bytes) -> bool:
    """Return whether *data* is zeros alone; none at all, after the end of a file, count as zeros."""
    return not any(data)
