"""What is twice in the log dirs of a broker: a partition in two folders, a folder or a segment under two names.

A broker halts on a partition in two folders. A folder under two names it loads twice, and so recovers one log in two
threads at a time; through a link to the metadata log, or to a log dir itself, it writes into files that are in use. A
segment under two names is two hard links: each loses what is cut from the other.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace

from recovery.load.model import PartitionTask
from recovery.logdir.inventory import LogDirInventory
from recovery.problem import Problem
from recovery.read.file_system import is_link
from segfmt.filenames import LOG_SUFFIX, FolderState, read_folder_name

_FolderId = tuple[int, int]


def refuse_duplicates(inventories: Iterable[LogDirInventory]) -> list[LogDirInventory]:
    """Return the inventories, with a problem for each partition, folder or segment that is there more than once.

    Differs: a broker follows a link to the folder of another log, and works on both names; it does not see hard links.

    Kafka: LogManager.loadLog, IllegalStateException. A future log may lie beside its current one.
    """
    inventories = list(inventories)
    copies: dict[tuple[str, int, FolderState], list[str]] = {}
    names: dict[_FolderId | None, list[str]] = {}
    for inventory in inventories:
        for path in (inventory.log_dir, *(_path(inventory, name) for name in inventory.passed_over)):
            names.setdefault(folder_id(path), []).append(path)
        for task in inventory.tasks:
            path = _path(inventory, task.folder)
            copies.setdefault(_identity(task), []).append(path)
            names.setdefault(folder_id(path), []).append(path)
    names.pop(None, None)
    segments = _shared_segments(inventories)
    names_by_path = {path: paths for paths in names.values() if len(paths) > 1 for path in paths}
    return [
        replace(
            inventory,
            tasks=tuple(
                _with_shared(
                    _with_names(
                        _with_copies(task, copies[_identity(task)]),
                        names_by_path.get(_path(inventory, task.folder)),
                    ),
                    segments.get(_path(inventory, task.folder), ()),
                )
                for task in inventory.tasks
            ),
        )
        for inventory in inventories
    ]


def _shared_segments(inventories: Iterable[LogDirInventory]) -> dict[str, list[tuple[str, str]]]:
    """Return, by folder, the `.log` files that have another name in these log dirs: file, and path of the other."""
    by_inode: dict[int, list[tuple[str, str]]] = {}
    for inventory in inventories:
        for task in inventory.tasks:
            for file, stat in task.files.items():
                if file.endswith(LOG_SUFFIX):
                    by_inode.setdefault(stat.inode, []).append((_path(inventory, task.folder), file))
    shared: dict[str, list[tuple[str, str]]] = {}
    for files in by_inode.values():
        for names in _hard_links(files) if len(files) > 1 else ():
            for (folder, file), other in zip(names, [*names[1:], names[0]], strict=True):
                shared.setdefault(folder, []).append((file, os.path.join(*other)))
    return shared


def _hard_links(files: Iterable[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    """Yield those of *files*, (folder, file) with equal inode, that are hard links to one file."""
    by_file: dict[tuple[int, int], dict[tuple[_FolderId | None, str], tuple[str, str]]] = {}
    for folder, file in files:
        with suppress(OSError):
            stat = os.lstat(os.path.join(folder, file))
            names = by_file.setdefault((stat.st_dev, stat.st_ino), {})
            names.setdefault((folder_id(folder), file), (folder, file))
    yield from (list(names.values()) for names in by_file.values() if len(names) > 1)


def _path(inventory: LogDirInventory, name: str) -> str:
    return os.path.join(inventory.log_dir, name)


def folder_id(path: str) -> _FolderId | None:
    """Return what identifies a folder, None if it cannot be looked at: then nothing is done in it."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _with_names(task: PartitionTask, paths: list[str] | None) -> PartitionTask:
    """Return *task* with a problem if its folder has several names, *paths*."""
    if paths is None:
        return task
    problem = Problem(
        file=task.folder,
        rule="duplicate-folder",
        detail=f"one folder has {len(paths)} names: {', '.join(paths)} (a broker works on it under each of them)",
        remedy=f"decide whose log it is, and move links out of the log dirs: {', '.join(filter(is_link, paths))}",
    )
    return task if problem in task.problems else replace(task, problems=(problem, *task.problems))


def _with_shared(task: PartitionTask, shared: Iterable[tuple[str, str]]) -> PartitionTask:
    """Return *task* with a problem for each segment that has another name."""
    problems = tuple(
        Problem(
            file=file,
            rule="shared-file",
            detail=f"it is the same file as {other} (hard links): what is cut in one of them is cut in the other",
            remedy="replace one of them by a copy (cp)",
        )
        for file, other in shared
    )
    new = tuple(problem for problem in problems if problem not in task.problems)
    return replace(task, problems=(*new, *task.problems)) if new else task


def _with_copies(task: PartitionTask, folders: list[str]) -> PartitionTask:
    """Return *task* with a problem if it is in several *folders*."""
    if len(folders) == 1 or _identity(task)[2] in (FolderState.DELETE, FolderState.STRAY):
        return task
    problem = Problem(
        file=task.folder,
        rule="duplicate-partition",
        detail=f"{task.topic_partition} lies in {len(folders)} folders: {', '.join(folders)} "
        "(IllegalStateException stops the broker)",
        remedy="decide which one is right, and move the other out of the log dirs",
    )
    return task if problem in task.problems else replace(task, problems=(problem, *task.problems))


def _identity(task: PartitionTask) -> tuple[str, int, FolderState]:
    return task.topic_partition.topic, task.topic_partition.partition, read_folder_name(task.folder).state
