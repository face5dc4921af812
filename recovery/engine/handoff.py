"""Handing a log dir back: the checkpoints and the marker that let a broker skip what is done.

Kafka: LogManager.shutdown: checkpointRecoveryOffsetsInDir, checkpointLogStartOffsetsInDir,
CleanShutdownFileHandler.write.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from recovery.load.model import LogBounds, PartitionTask, RemovalKind
from recovery.logdir.inventory import LogDirInventory
from recovery.plan.actions import LOG_DIR_ITSELF, PartitionPlan, RemoveFile, SaveFile, WriteFile
from recovery.read.file_system import is_file, is_link, is_there, look_at, read_small
from recovery.watch.events import Handoff
from segfmt.checkpoint import encode_offset_checkpoint
from segfmt.clean_shutdown import encode_clean_shutdown
from segfmt.filenames import CLEAN_SHUTDOWN_FILE, LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT

TEMPORARY_CHECKPOINTS = (f"{RECOVERY_POINT_CHECKPOINT}.tmp", f"{LOG_START_OFFSET_CHECKPOINT}.tmp")
HANDED_OVER_FILES = (RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, CLEAN_SHUTDOWN_FILE)
_NOTHING = PartitionPlan(folder=LOG_DIR_ITSELF, saves=(), actions=())


def plan_handoff(
    inventory: LogDirInventory,
    logs: Mapping[str, tuple[PartitionTask, LogBounds]],
    *,
    handoff: Handoff,
    may_mark: bool,
    keeps_marker: bool,
    is_changed: bool,
) -> PartitionPlan:
    """Return what to write into the log dir once its partitions are done: the marker is last.

    Nothing if all of them were refused or failed: the dir then stays as it is, its checkpoints byte for byte.

    Args:
        logs: by folder, of the partitions that were neither refused nor failed.
        may_mark: whether the marker may be written: these are all partitions.
        keeps_marker: whether it is written whatever *handoff* says: the others were clean before, and are not to be
            recovered by a broker.
        is_changed: whether anything in the dir was changed, so that a marker that was there has been removed.
    """
    is_left_alone = not logs and bool(inventory.tasks or inventory.refused or inventory.left_out)
    # A marker that was ignored and turned out to be true stays as it is.
    needs_marker = is_changed or not has_marker(inventory.log_dir)
    marker = {CLEAN_SHUTDOWN_FILE: encode_clean_shutdown()} if needs_marker else {}
    if handoff == "none" or is_left_alone:
        return _plan(inventory.log_dir, marker) if keeps_marker and marker else _NOTHING
    refused = _refused_keys(inventory, logs)
    recovery_points = {key: offset for key, offset in inventory.recovery_points.items() if key in refused}
    log_start_offsets = {key: offset for key, offset in inventory.log_start_offsets.items() if key in refused}
    # A future log has the key of its current log and comes after it: of two in one dir, a broker writes its line.
    for task, bounds in sorted(logs.values(), key=lambda log: (log[0].is_future_folder, log[0].folder)):
        key = (task.topic_partition.topic, task.topic_partition.partition)
        if bounds.is_loaded and key not in refused:
            point = bounds.recovery_point
            recovery_points[key] = bounds.log_end_offset if point is None else point
            if bounds.checkpoints_log_start:
                log_start_offsets[key] = bounds.log_start_offset
    writes = {
        name: data
        for name, offsets in (
            (RECOVERY_POINT_CHECKPOINT, recovery_points),
            (LOG_START_OFFSET_CHECKPOINT, log_start_offsets),
        )
        if (data := _changed_checkpoint(inventory.log_dir, name, offsets)) is not None
    }
    if keeps_marker or (handoff == "clean-shutdown" and may_mark):
        writes |= marker
    return _plan(inventory.log_dir, writes)


def has_marker(log_dir: str) -> bool:
    """Return whether the clean-shutdown marker is there. Kafka: CleanShutdownFileHandler.exists.

    Raises:
        OSError: it cannot be determined.
    """
    return look_at(os.path.join(log_dir, CLEAN_SHUTDOWN_FILE)) is not None


def reported_marker(log_dir: str) -> bool | None:
    """Return whether the marker is there, for the report on an offline log dir; None if it cannot be determined."""
    try:
        return has_marker(log_dir)
    except OSError:
        return None


def plan_unmarking(log_dir: str) -> PartitionPlan:
    """Return how to remove the marker of a clean log dir, which makes it unclean. Kafka: LogManager.loadLogs."""
    path = os.path.join(log_dir, CLEAN_SHUTDOWN_FILE)
    if not has_marker(log_dir):
        return _NOTHING
    size_bytes = os.path.getsize(path)
    return PartitionPlan(
        folder=LOG_DIR_ITSELF,
        saves=(
            SaveFile(
                name=CLEAN_SHUTDOWN_FILE,
                size_bytes=size_bytes,
                reason="the dir is unclean while it is changed",
            ),
        ),
        actions=(RemoveFile(name=CLEAN_SHUTDOWN_FILE, size_bytes=size_bytes, kind=RemovalKind.DERIVED),),
    )


def _plan(log_dir: str, writes: Mapping[str, bytes]) -> PartitionPlan:
    replaced = {name for name in writes if is_there(os.path.join(log_dir, name))}
    return PartitionPlan(
        folder=LOG_DIR_ITSELF,
        saves=tuple(
            SaveFile(
                name=name,
                size_bytes=os.lstat(os.path.join(log_dir, name)).st_size,
                reason="overwritten by the hand-off",
            )
            for name in writes
            if name in replaced
        ),
        actions=(
            *(WriteFile(name=name, data=data, size_bytes=len(data)) for name, data in writes.items()),
            *_removed_temporary_files(log_dir),
        ),
    )


def _removed_temporary_files(log_dir: str) -> Iterator[RemoveFile]:
    """Yield what a broker that was killed while writing a checkpoint has left: the next one overwrites it."""
    for name in TEMPORARY_CHECKPOINTS:
        path = os.path.join(log_dir, name)
        if is_file(path) and not is_link(path):
            yield RemoveFile(name=name, size_bytes=os.path.getsize(path), kind=RemovalKind.LEFTOVER)


def _refused_keys(
    inventory: LogDirInventory, logs: Mapping[str, tuple[PartitionTask, LogBounds]]
) -> set[tuple[str, int]]:
    """Return topic and number of the partitions that were left alone: their lines in the checkpoints stay."""
    left_alone = (*(refusal.folder for refusal in inventory.refused), *inventory.left_out)
    return {_key_of_folder(folder) for folder in left_alone} | {
        (task.topic_partition.topic, task.topic_partition.partition)
        for task in inventory.tasks
        if task.folder not in logs
    }


def _key_of_folder(folder: str) -> tuple[str, int]:
    topic, _, number = folder.rpartition("-")
    return topic, int(number) if number.isdecimal() else -1


def _changed_checkpoint(log_dir: str, name: str, offsets: Mapping[tuple[str, int], int]) -> bytes | None:
    """Return the checkpoint to write, None if it is there with the same lines in any order."""
    data = encode_offset_checkpoint(dict(sorted(offsets.items())))
    path = os.path.join(log_dir, name)
    if not is_file(path):  # a dry run may find there what a repair would have moved away
        return data
    current = read_small(path)
    return None if sorted(current.splitlines()) == sorted(data.splitlines()) else data
