"""The files of a node's metadata log, read for the settings in them and left alone otherwise.

Kafka: KafkaRaftLog, Snapshots. A combined node opens its metadata log before it locks its log dirs, so the
files may change while they are read: then they are read again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from itertools import zip_longest
from typing import Protocol, TypeVar

from native.crc32c import crc32c_of_bytes
from recovery.broker.cluster_metadata import ClusterMetadata, read_cluster_metadata
from recovery.errors import error_text
from recovery.logdir.listing import is_of_type, other_kind
from recovery.read.file_system import check_size, is_folder, naming, open_unseen, read_at
from segfmt.entry_view import Buffer
from segfmt.errors import FileNameError, FormatError, MalformedMetadataError
from segfmt.filenames import CLUSTER_METADATA_FOLDER, LOG_SUFFIX, KraftSnapshotName, read_kraft_snapshot_name
from segfmt.metadata_log import BytesOnDisk

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)
_READ_ATTEMPTS = 5
_FORMATTED = f"{0:020}-"  # a checkpoint up to offset 0
_MOST_BYTES = 2**31 - 1  # of a segment, and of a snapshot that a broker reads


class ReadMetadata(Protocol[_T_co]):
    """Makes a value of a snapshot and the log after it, as `read_cluster_metadata` does."""

    def __call__(
        self,
        checkpoint: Buffer | BytesOnDisk | None,
        segments: Iterable[Buffer | BytesOnDisk],
        *,
        checkpoint_end_offset: int,
        crc32c: Callable[[bytes], int],
    ) -> _T_co:
        """Arguments and errors are those of `read_cluster_metadata`."""
        ...


def find_metadata_folder(dirs: Iterable[str]) -> str | None:
    """Return the first `__cluster_metadata-0` in *dirs* that may hold topics, None if there is none.

    Raises:
        OSError: a folder cannot be looked at.
    """
    for log_dir in dirs:
        folder = os.path.join(log_dir, CLUSTER_METADATA_FOLDER)
        if is_folder(folder) and any(map(_may_hold_topics, os.listdir(folder))):
            return folder
    return None


def load_cluster_metadata(folder: str) -> ClusterMetadata:
    """Return what the metadata log in *folder* says of topics and settings. Errors are those of `load_metadata`."""
    return load_metadata(folder, read_cluster_metadata)


def load_metadata(folder: str, read: ReadMetadata[_T]) -> _T:
    """Return what *read* makes of the metadata log in *folder*.

    Raises:
        FormatError: the node would not start with it.
        OSError: a file cannot be read, or the log changes faster than it is read.
    """
    for _ in range(_READ_ATTEMPTS):
        before = _stamps(folder)
        metadata = read_metadata_files(sorted(before), lambda name: _opened(folder, name), read)
        if _stamps(folder) == before:
            return metadata
    raise OSError(f"{folder}: changes while it is read: is the broker running?")


def look_for_metadata(dirs: Iterable[str]) -> tuple[ClusterMetadata | None, str]:
    """Return what the metadata log in one of *dirs* says, None if there is none or it cannot be read.

    For commands that change nothing, and can say what they do not know then.

    Returns:
        It, and its folder, or why it is None.
    """
    try:
        folder = find_metadata_folder(dirs)
    except OSError as error:
        return None, error_text(error)
    if folder is None:
        return None, f"no {CLUSTER_METADATA_FOLDER} in the log dirs"
    try:
        return load_cluster_metadata(folder), folder
    except (FormatError, OSError) as error:
        return None, error_text(error) if isinstance(error, OSError) else f"{folder}: {error}"


def read_metadata_files(
    names: Sequence[str], opened: Callable[[str], AbstractContextManager[BytesOnDisk]], read: ReadMetadata[_T]
) -> _T:
    """Return what *read* makes of a folder with the files *names*, in order; *opened* opens one of them.

    Raises:
        FormatError: the node would not start with it.
        OSError: a file cannot be read.
    """
    newest = _newest_checkpoint(names)
    end_offset = newest[1].end_offset if newest is not None else 0
    logs = [(int(log.removesuffix(LOG_SUFFIX)), log) for log in names if _is_segment(log)]
    needed = [
        log
        for (_, log), following in zip_longest(logs, logs[1:])
        if following is None or following[0] > end_offset
    ]
    with ExitStack() as stack:
        checkpoint = None if newest is None else stack.enter_context(opened(newest[0]))
        segments = stack.enter_context(closing(_opened_in_turn(needed, opened)))
        return read(checkpoint, segments, checkpoint_end_offset=end_offset, crc32c=crc32c_of_bytes)


def _newest_checkpoint(names: Iterable[str]) -> tuple[str, KraftSnapshotName] | None:
    finished: list[tuple[int, int, str, KraftSnapshotName]] = []
    for file in names:
        try:
            name = read_kraft_snapshot_name(file)
        except FileNameError:
            continue  # it stops a node; the others are enough for the settings
        if name is not None and not (name.is_partial or name.is_deleted):
            finished.append((name.epoch, name.end_offset, file, name))  # Kafka: OffsetAndEpoch.compareTo
    if not finished:
        return None
    _, _, file, name = max(finished, key=lambda checkpoint: checkpoint[:2])
    return file, name


def _may_hold_topics(name: str) -> bool:
    """Return whether *name* is that of a segment, or of a checkpoint later than the one that formatting writes."""
    return _is_of_log(name) and (_is_segment(name) or not name.startswith(_FORMATTED))


def _is_of_log(name: str) -> bool:
    """Return whether *name* is that of a segment or a checkpoint."""
    try:
        return _is_segment(name) or read_kraft_snapshot_name(name) is not None
    except FileNameError:
        return False


def _is_segment(name: str) -> bool:
    return name.endswith(LOG_SUFFIX) and name.removesuffix(LOG_SUFFIX).isdecimal()


def _opened_in_turn(
    names: Iterable[str], opened: Callable[[str], AbstractContextManager[BytesOnDisk]]
) -> Generator[BytesOnDisk, None, None]:
    """Yield the files *names*, each open until the next one is requested."""
    for name in names:
        with opened(name) as file:
            yield file


@contextmanager
def _opened(folder: str, name: str) -> Iterator[BytesOnDisk]:
    path = os.path.join(folder, name)
    descriptor = open_unseen(path)

    def read(position: int, size_bytes: int) -> bytes:
        with naming(path):
            return read_at(descriptor, position, size_bytes)

    try:
        with naming(path):
            size_bytes = check_size(descriptor, _MOST_BYTES, path)
        yield BytesOnDisk(read=read, size_bytes=size_bytes)
    finally:
        os.close(descriptor)


def _stamps(folder: str) -> dict[str, tuple[int, int, int]]:
    files = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if is_of_type(entry, os.DirEntry.is_file):
                files.append((entry.name, entry.stat()))
            elif _is_of_log(entry.name):
                kind = other_kind(entry.path)
                raise MalformedMetadataError(
                    f"{entry.name}: a {kind} where a file must be", kafka="FileNotFoundException"
                )
    return {name: (stat.st_ino, stat.st_size, stat.st_mtime_ns) for name, stat in files}
