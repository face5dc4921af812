"""What a broker will recover, by its log dirs: read beside it, never locked and never written.

The rule is the broker's own: of a log dir without clean shutdown marker, the segments of each log from the one that
holds its recovery point on. The marker is not asked: a broker deletes it before it loads, and says in its log what it
found.

Kafka: LogManager.loadLogs, LogLoader.recoverLog, LogSegments.values(recoveryPoint, Long.MAX_VALUE).
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass

from recovery.load.segments import first_unflushed, log_base_offsets
from recovery.logdir.checkpoints import known_offsets
from recovery.logdir.lock import is_locked
from segfmt.errors import FileNameError
from segfmt.filenames import RECOVERY_POINT_CHECKPOINT, FolderState, log_name, read_log_folder_name
from segfmt.java_text import LONG_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class UnflushedLog:
    """A log of an unclean log dir.

    Attributes:
        partition: T-P.
        sizes_bytes: of its unflushed segments, by base offset, ascending.
    """

    folder: str
    partition: str
    sizes_bytes: dict[int, int]

    @property
    def size_bytes(self) -> int:
        """Bytes of all unflushed segments."""
        return sum(self.sizes_bytes.values())


def unflushed_logs(log_dir: str) -> tuple[UnflushedLog, ...]:
    """Return the logs of *log_dir* as after an unclean shutdown, in the order in which a broker takes them.

    A folder that vanishes meanwhile counts as a log without segments.

    Raises:
        OSError: the dir cannot be read.

    Kafka: LogManager.loadLogs, which submits the folders as File.listFiles names them.
    """
    with os.scandir(log_dir) as entries:
        names = [entry.name for entry in entries if entry.is_dir()]
    points = known_offsets(log_dir, RECOVERY_POINT_CHECKPOINT)
    logs = []
    for name in names:
        try:
            folder = read_log_folder_name(name)
        except FileNameError:
            continue  # the broker does not start while it is there
        if folder is not None:
            is_deleted = folder.state is FolderState.DELETE
            point = LONG_MAX if is_deleted else points.get((folder.topic, folder.partition), 0)
            sizes_bytes = _sizes_bytes(os.path.join(log_dir, name), point)
            partition = f"{folder.topic}-{folder.partition}"
            logs.append(UnflushedLog(folder=name, partition=partition, sizes_bytes=sizes_bytes))
    return tuple(logs)


def _sizes_bytes(path: str, recovery_point: int) -> dict[int, int]:
    if recovery_point == LONG_MAX:
        return {}
    try:
        bases = log_base_offsets(os.listdir(path))
    except OSError:
        return {}
    first = first_unflushed(bases.values(), recovery_point)
    sizes_bytes = {}
    for name, base in bases.items():
        if base >= first:
            try:
                sizes_bytes[base] = os.stat(os.path.join(path, name)).st_size
            except OSError:
                continue
    return dict(sorted(sizes_bytes.items()))


_DEFAULT_THREADS = 2


class WatchedDirs:
    """The log dirs of the broker that is watched, on this machine."""

    def __init__(self, log_dirs: Sequence[str]) -> None:
        self.log_dirs = tuple(log_dirs)

    def logs_of(self, log_dir: str) -> tuple[UnflushedLog, ...] | None:
        """Return the logs of the dir that the broker calls *log_dir*; None if it is none of these, or unreadable."""
        if (path := self._path_of(log_dir)) is None:
            return None
        try:
            return unflushed_logs(path)
        except OSError:
            return None

    def size_bytes(self, log_dir: str, folder: str, base_offset: int) -> int | None:
        """Return the present size of a segment; None if it is not there."""
        if (path := self._path_of(log_dir)) is None:
            return None
        try:
            return os.stat(os.path.join(path, folder, log_name(base_offset))).st_size
        except OSError:
            return None

    def share_pace(self, threads_per_dir: int) -> bool:
        """Whether the dirs slow each other down: on one file system, or with more threads than this machine has CPUs.

        Args:
            threads_per_dir: 0 if it is not known, for the 2 that a broker has by default.
        """
        devices = []
        for log_dir in self.log_dirs:
            with suppress(OSError):
                devices.append(os.stat(log_dir).st_dev)
        thread_count = len(self.log_dirs) * (threads_per_dir or _DEFAULT_THREADS)
        return len(set(devices)) < len(self.log_dirs) or thread_count > (os.cpu_count() or 1)

    def has_any_of(self, log_dirs: Collection[str]) -> bool:
        """Whether the broker calls one of these dirs by one of these names; also if it has told none."""
        return not log_dirs or any(self._path_of(name) is not None for name in log_dirs)

    def are_held(self) -> bool:
        """Whether a broker, or a recovery, holds one of the dirs; also if that cannot be found out."""
        return any(map(_is_held, self.log_dirs))

    def _path_of(self, log_dir: str) -> str | None:
        return next((path for path in self.log_dirs if _is_same(path, log_dir)), None)


def _is_held(log_dir: str) -> bool:
    try:
        return is_locked(log_dir)
    except OSError:
        return True


def _is_same(path: str, named: str) -> bool:
    return os.path.normpath(path) == os.path.normpath(named)
