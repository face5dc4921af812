"""What lies in a log dir: the partitions' folders, the checkpoints, the marker.

Reads names, sizes and checkpoints, no segment.

Kafka: LogManager.loadLogs, up to the point where the jobs are submitted.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from recovery.errors import LogDirOfflineError, PartitionRefusedError
from recovery.model import FileStat, LogSettings, PartitionTask, TopicPartition
from recovery.partition import unflushed_segments
from segfmt.checkpoint import read_offset_checkpoint
from segfmt.errors import FileNameError, MalformedCheckpointError
from segfmt.filenames import (
    CLEAN_SHUTDOWN_FILE,
    CLUSTER_METADATA_TOPIC,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REMOTE_INDEX_CACHE_FOLDER,
    FolderState,
    read_folder_name,
)

_WHITE_SPACE = re.compile(r"[ \t\n\x0b\f\r]")

Offsets = Mapping[tuple[str, int], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedFolder:
    """A folder that is left as it is, and why."""

    folder: str
    refusal: PartitionRefusedError


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirInventory:
    """One log dir, as found.

    Attributes:
        tasks: one for each log that a broker would load, the largest amount of work first.
        refused: folders with which a broker would not start.
        passed_over: folders that a broker does not load (`__cluster_metadata-0`, the cache of remote
            indexes).
        recovery_points, log_start_offsets: the checkpoints' lines.
    """

    log_dir: str
    had_clean_shutdown: bool
    tasks: tuple[PartitionTask, ...]
    refused: tuple[RefusedFolder, ...]
    passed_over: tuple[str, ...]
    recovery_points: Offsets = field(default_factory=dict)
    log_start_offsets: Offsets = field(default_factory=dict)

    @property
    def unflushed_segment_count(self) -> int:
        """How many segments a recovery will most likely read."""
        return sum(len(unflushed_segments(task)) for task in self.tasks)

    @property
    def unflushed_bytes(self) -> int:
        """How many bytes these segments have."""
        return sum(size for task in self.tasks for _, _, size in unflushed_segments(task))


def list_log_dir(
    log_dir: str,
    *,
    settings_of: Callable[[str], LogSettings],
    now_ms: int,
    producer_id_expiration_ms: int = 86_400_000,
    ignores_marker: bool = False,
) -> LogDirInventory:
    """Return what lies in *log_dir*.

    Args:
        log_dir: absolute path.
        settings_of: the settings of a topic's logs.
        now_ms: the clock of the recovery.
        ignores_marker: recover as after an unclean shutdown, whatever the marker says.

    Raises:
        LogDirOfflineError: the dir cannot be read, or a broker would take it offline for its checkpoints.
    """
    try:
        folders = sorted(entry.name for entry in os.scandir(log_dir) if entry.is_dir())
        had_clean_shutdown = os.path.exists(os.path.join(log_dir, CLEAN_SHUTDOWN_FILE)) and not ignores_marker
        recovery_points = _read_checkpoint(log_dir, RECOVERY_POINT_CHECKPOINT)
        log_start_offsets = _read_checkpoint(log_dir, LOG_START_OFFSET_CHECKPOINT)
        tasks: list[PartitionTask] = []
        refused: list[RefusedFolder] = []
        passed_over: list[str] = []
        for name in folders:
            try:
                folder = read_folder_name(name)
            except FileNameError as error:
                if name == REMOTE_INDEX_CACHE_FOLDER:
                    passed_over.append(name)
                else:
                    refused.append(RefusedFolder(folder=name, refusal=_foreign_folder(name, error)))
                continue
            if folder.topic == CLUSTER_METADATA_TOPIC:
                passed_over.append(name)
                continue
            if not _fits_checkpoint(folder.topic):
                refused.append(RefusedFolder(folder=name, refusal=_unwritable(name)))
                continue
            key = (folder.topic, folder.partition)
            try:
                files = list_files(os.path.join(log_dir, name))
            except PermissionError as error:
                refused.append(RefusedFolder(folder=name, refusal=_unreadable(name, error)))
                continue
            tasks.append(
                PartitionTask(
                    log_dir=log_dir,
                    folder=name,
                    topic_partition=TopicPartition(topic=folder.topic, partition=folder.partition),
                    files=files,
                    had_clean_shutdown=had_clean_shutdown,
                    recovery_point=recovery_points.get(key, 0),
                    log_start_offset=log_start_offsets.get(key, 0),
                    settings=settings_of(folder.topic),
                    now_ms=now_ms,
                    producer_id_expiration_ms=producer_id_expiration_ms,
                )
            )
    except OSError as error:
        raise LogDirOfflineError(log_dir, error) from error
    tasks.sort(key=lambda task: -sum(size for _, _, size in unflushed_segments(task)))
    return LogDirInventory(
        log_dir=log_dir,
        had_clean_shutdown=had_clean_shutdown,
        tasks=tuple(tasks),
        refused=tuple(refused),
        passed_over=tuple(passed_over),
        recovery_points=recovery_points,
        log_start_offsets=log_start_offsets,
    )


def list_files(folder: str) -> dict[str, FileStat]:
    """Return the regular files of a partition's folder, links to such included.

    Raises:
        PermissionError: a file cannot be read; a broker takes the log dir offline.

    Kafka: LogLoader.removeTempFilesAndCollectSwapFiles.
    """
    files: dict[str, FileStat] = {}
    may_read_all = os.geteuid() == 0
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.is_file():
                continue
            if not may_read_all and not os.access(entry.path, os.R_OK):
                raise PermissionError(13, "may not be read", entry.path)
            found = entry.stat()
            files[entry.name] = FileStat(
                size_bytes=found.st_size, mtime_ns=found.st_mtime_ns, inode=found.st_ino
            )
    return files


def refuse_duplicates(inventories: Iterable[LogDirInventory]) -> list[LogDirInventory]:
    """Return the inventories without the partitions that lie in more than one folder: a broker halts on them.

    Kafka: LogManager.loadLog, IllegalStateException. A future log may lie beside its current one.
    """
    inventories = list(inventories)
    places: dict[tuple[str, int, FolderState], list[str]] = {}
    for inventory in inventories:
        for task in inventory.tasks:
            places.setdefault(_place(task), []).append(os.path.join(inventory.log_dir, task.folder))
    return [_without_duplicates(inventory, places) for inventory in inventories]


def _without_duplicates(
    inventory: LogDirInventory, places: Mapping[tuple[str, int, FolderState], list[str]]
) -> LogDirInventory:
    tasks, refused = [], list(inventory.refused)
    for task in inventory.tasks:
        found = places[_place(task)]
        state = _place(task)[2]
        if len(found) == 1 or state in (FolderState.DELETE, FolderState.STRAY):
            tasks.append(task)
            continue
        refusal = PartitionRefusedError(
            file=task.folder,
            position=None,
            rule=f"{task.topic_partition} lies in {len(found)} folders: {', '.join(found)} "
            "(IllegalStateException stops the broker)",
            remedy="decide which one is right, and move the other out of the log dirs",
        )
        refused.append(RefusedFolder(folder=task.folder, refusal=refusal))
    return LogDirInventory(
        log_dir=inventory.log_dir,
        had_clean_shutdown=inventory.had_clean_shutdown,
        tasks=tuple(tasks),
        refused=tuple(refused),
        passed_over=inventory.passed_over,
        recovery_points=inventory.recovery_points,
        log_start_offsets=inventory.log_start_offsets,
    )


def _place(task: PartitionTask) -> tuple[str, int, FolderState]:
    return task.topic_partition.topic, task.topic_partition.partition, read_folder_name(task.folder).state


def _read_checkpoint(log_dir: str, name: str) -> dict[tuple[str, int], int]:
    try:
        with open(os.path.join(log_dir, name), "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return {}
    try:
        return read_offset_checkpoint(data)
    except MalformedCheckpointError as error:
        if error.takes_dir_offline:
            raise LogDirOfflineError(
                log_dir,
                f"{name}: {error} ({error.kafka} takes the log dir offline). Remedy: move the file away; "
                "recovery then begins at the first segment of each log",
            ) from error
        return {}  # Kafka warns and goes on with no lines at all


def _foreign_folder(name: str, error: FileNameError) -> PartitionRefusedError:
    remedy = "move it out of the log dir"
    if name == "lost+found":
        remedy = "the log dir is the root of a file system: use a folder below it as log dir"
    return PartitionRefusedError(
        file=name, position=None, rule=f"{error} ({error.kafka} stops the broker)", remedy=remedy
    )


def _fits_checkpoint(topic: str) -> bool:
    """Whether a checkpoint's line can hold *topic*: fields lie between white space, text is UTF-8."""
    try:
        topic.encode()
    except UnicodeEncodeError:
        return False
    return _WHITE_SPACE.search(topic) is None


def _unwritable(name: str) -> PartitionRefusedError:
    return PartitionRefusedError(
        file=name,
        position=None,
        rule="no topic can have this name (a broker writes a checkpoint with it that takes the log dir "
        "offline at its next start)",
        remedy="move it out of the log dir",
    )


def _unreadable(name: str, error: OSError) -> PartitionRefusedError:
    return PartitionRefusedError(
        file=f"{name}/{os.path.basename(error.filename or '')}",
        position=None,
        rule="the file may not be read (IOException takes the log dir offline)",
        remedy="give it the owner and mode of its neighbours",
    )
