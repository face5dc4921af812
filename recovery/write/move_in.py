"""Finished folders of partitions are moved into a log dir, with their lines in its checkpoints.

They were made in a folder of that log dir that brokers pass over (`STAGE_FOLDER`), so each appears whole, by one
rename. Before the first step the intent is written there; whoever finds it carries it out:

1. An empty folder that a partition replaces goes into quarantine.
2. The lines of all that is still to be moved enter the checkpoints, whose present files are saved.
3. The folders are renamed, one by one.
4. The account is entered in the manifest, for `undo`, and the stage is removed.

A kill leaves a log dir that a broker can start on: lines of folders that are not there yet mean nothing to it.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from recovery.errors import UnsafeError
from recovery.load.model import FileStat
from recovery.logdir.listing import file_stat, list_files
from recovery.plan.actions import LOG_DIR_ITSELF, PartitionPlan, SaveFile, WriteFile
from recovery.plan.commit import Commit, plain_name
from recovery.read.file_system import is_file, is_folder, is_there, look_at, read_small
from recovery.write.apply import apply_partition
from recovery.write.durable import sync, sync_below, write_new
from recovery.write.quarantine import Quarantine
from segfmt.checkpoint import encode_offset_checkpoint, read_offset_checkpoint
from segfmt.filenames import (
    CLEAN_SHUTDOWN_FILE,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    read_folder_name,
)

STAGE_FOLDER = "__cluster_metadata-0.restore-stray"
"""A broker ignores it: LogManager.loadLogs skips every folder whose topic parses as __cluster_metadata."""
_INTENT = "intent.json"
_INTENT_VERSION = 1
_CHECKPOINTS = (RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT)


OpenQuarantine = Callable[[str | None, Callable[[str], None]], Quarantine]


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedIn:
    """A partition that is moved in, with its lines in the checkpoints.

    Attributes:
        folder: its name, in the stage and in the log dir.
        log_start_offset: None if it has no line: its log begins with its first segment.
        log_end_offset: its recovery point, and its high watermark.
    """

    folder: str
    log_start_offset: int | None
    log_end_offset: int


def staged_log_dir(log_dir: str) -> str:
    """Return the folder in which partitions are made before they are moved into *log_dir*."""
    return os.path.join(log_dir, STAGE_FOLDER, "log-dir")


def has_intent(log_dir: str) -> bool:
    """Return whether partitions were being moved into *log_dir* when a run was killed."""
    return is_there(os.path.join(log_dir, STAGE_FOLDER, _INTENT))


def refuse_unfinished_restore(log_dir: str) -> None:
    """Raise UnsafeError if partitions were being moved into *log_dir* when a run was killed."""
    if has_intent(log_dir):
        raise UnsafeError(
            f"{log_dir}: a restore was interrupted while it moved partitions into it. Nothing was changed. Remedy: "
            "start archive restore again, which finishes it"
        )


def move_in(
    log_dir: str,
    partitions: Sequence[MovedIn],
    open_quarantine: OpenQuarantine,
) -> str | None:
    """Move *partitions* from the stage into *log_dir*; all in the stage must be on disk.

    Args:
        open_quarantine: opens that of the log dir, by the name of an interrupted run, and what is told a new name.

    Returns:
        The run's folder in quarantine.

    Raises:
        OSError: the next run finishes it.
    """
    _write_intent(log_dir, partitions, None)
    return finish_move_in(log_dir, open_quarantine)


def finish_move_in(log_dir: str, open_quarantine: OpenQuarantine) -> str | None:
    """Do what is left of the intent in the stage of *log_dir*; return the run's folder in quarantine."""
    partitions, run = _read_intent(log_dir)
    quarantine = open_quarantine(run, lambda name: _write_intent(log_dir, partitions, name))
    staged = staged_log_dir(log_dir)
    left = [one for one in partitions if is_folder(os.path.join(staged, one.folder))]
    for one in left:
        if is_there(os.path.join(log_dir, one.folder)):
            quarantine.move_away(
                os.path.join(log_dir, one.folder),
                folder=LOG_DIR_ITSELF,
                reason="empty, and replaced by restore",
            )
    if left:
        apply_partition(log_dir, _checkpoint_plan(log_dir, left), _files_of(log_dir), quarantine)
    for one in left:
        os.rename(os.path.join(staged, one.folder), os.path.join(log_dir, one.folder))
    sync(staged)
    sync(log_dir)
    for one in partitions:
        _note(log_dir, one.folder, quarantine)
    quarantine.sync()
    remove_stage(log_dir)
    return quarantine.run_folder


def remove_stage(log_dir: str) -> None:
    """Remove the stage, and all that is in it; the intent first."""
    stage = os.path.join(log_dir, STAGE_FOLDER)
    if not is_folder(stage):
        return
    if has_intent(log_dir):
        os.unlink(os.path.join(stage, _INTENT))
        sync(stage)
    shutil.rmtree(stage)
    sync(log_dir)


def sync_stage(log_dir: str) -> None:
    """Bring all that is in the stage to disk."""
    sync_below(os.path.join(log_dir, STAGE_FOLDER))
    sync(log_dir)


def _write_intent(log_dir: str, partitions: Iterable[MovedIn], run: str | None) -> None:
    stage = os.path.join(log_dir, STAGE_FOLDER)
    path = os.path.join(stage, _INTENT)
    document = {
        "version": _INTENT_VERSION,
        "run": run,
        "partitions": [[one.folder, one.log_start_offset, one.log_end_offset] for one in partitions],
    }
    write_new(path + ".tmp", json.dumps(document).encode())
    sync(path + ".tmp")
    os.rename(path + ".tmp", path)
    sync(stage)


def _read_intent(log_dir: str) -> tuple[list[MovedIn], str | None]:
    path = os.path.join(log_dir, STAGE_FOLDER, _INTENT)
    try:
        document = json.loads(read_small(path))
        assert document["version"] == _INTENT_VERSION, f"version {document['version']}"
        run = document["run"]
        partitions = [
            MovedIn(
                folder=plain_name(folder),
                log_start_offset=None if start is None else int(start),
                log_end_offset=int(end),
            )
            for folder, start, end in document["partitions"]
        ]
        return partitions, None if run is None else plain_name(run)
    except (AssertionError, ValueError, KeyError, TypeError) as error:
        raise UnsafeError(
            f"{path}: not what this tool writes there ({error}). Nothing was changed. Remedy: remove that folder; "
            "what is in it was made from the archive"
        ) from error


def _checkpoint_plan(log_dir: str, partitions: Iterable[MovedIn]) -> PartitionPlan:
    lines: dict[str, dict[tuple[str, int], int]] = {name: {} for name in _CHECKPOINTS}
    keys = set()
    for one in partitions:
        folder = read_folder_name(one.folder)
        key = folder.topic, folder.partition
        keys.add(key)
        lines[RECOVERY_POINT_CHECKPOINT][key] = one.log_end_offset
        lines[REPLICATION_OFFSET_CHECKPOINT][key] = one.log_end_offset
        if one.log_start_offset is not None:
            lines[LOG_START_OFFSET_CHECKPOINT][key] = one.log_start_offset
    saves, writes = [], []
    for name, added in lines.items():
        path = os.path.join(log_dir, name)
        before = read_offset_checkpoint(read_small(path)) if is_file(path) else {}
        after = {key: offset for key, offset in before.items() if key not in keys} | added
        if after == before:
            continue
        data = encode_offset_checkpoint(dict(sorted(after.items())))
        if is_file(path):
            size_bytes = os.path.getsize(path)
            saves.append(
                SaveFile(name=name, size_bytes=size_bytes, reason="lines of restored logs were added")
            )
        writes.append(WriteFile(name=name, data=data, size_bytes=len(data)))
    return PartitionPlan(folder=LOG_DIR_ITSELF, saves=tuple(saves), actions=tuple(writes))


def _files_of(log_dir: str) -> dict[str, FileStat]:
    names = (*_CHECKPOINTS, CLEAN_SHUTDOWN_FILE)  # the marker stays, as the account must say
    found = ((name, look_at(os.path.join(log_dir, name))) for name in names)
    return {name: file_stat(status) for name, status in found if status is not None}


def _note(log_dir: str, folder: str, quarantine: Quarantine) -> None:
    """Enter a folder that was moved in: `undo` removes what is in it, and then the folder."""
    files = list_files(os.path.join(log_dir, folder))
    actions = tuple(
        WriteFile(name=name, data=b"", size_bytes=stat.size_bytes) for name, stat in sorted(files.items())
    )
    commit = Commit(folder=folder, before={}, staged=files, actions=actions)
    quarantine.note_change(commit, files, is_new_folder=True)
