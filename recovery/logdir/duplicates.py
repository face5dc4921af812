"""What lies twice in the log dirs of a broker: a partition in two folders, a folder or a segment under two names.

A broker halts on the first. On the second it loads both names, and so recovers one log in two threads at a time; a link
to the metadata log, or to a log dir itself, has it write into files that are in use. Of the third, two hard links, each
loses what is cut from the other.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace

from recovery.load.model import PartitionTask
from recovery.logdir.inventory import LogDirInventory
from recovery.problem import Problem
from segfmt.filenames import LOG_SUFFIX, FolderState, read_folder_name

_FolderId = tuple[int, int]


def refuse_duplicates(inventories: Iterable[LogDirInventory]) -> list[LogDirInventory]:
    """Return the inventories, with a problem for each partition, folder, or segment, that is there more than once.

    Differs: a broker follows a link to the folder of another log, and works on it as two; hard links it does not see.

    Kafka: LogManager.loadLog, IllegalStateException. A future log may lie beside its current one.
    """
    inventories = list(inventories)
    places: dict[tuple[str, int, FolderState], list[str]] = {}
    names: dict[_FolderId | None, list[str]] = {}
    for inventory in inventories:
        for path in (inventory.log_dir, *(_path(inventory, name) for name in inventory.passed_over)):
            names.setdefault(_folder_id(path), []).append(path)
        for task in inventory.tasks:
            path = _path(inventory, task.folder)
            places.setdefault(_place(task), []).append(path)
            names.setdefault(_folder_id(path), []).append(path)
    names.pop(None, None)
    segments = _shared_segments(inventories)
    several = {path: found for found in names.values() if len(found) > 1 for path in found}
    return [
        replace(
            inventory,
            tasks=tuple(
                _with_shared(
                    _with_names(
                        _with_copies(task, places[_place(task)]), several.get(_path(inventory, task.folder))
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
    for found in by_inode.values():
        for names in _hard_links(found) if len(found) > 1 else ():
            for (folder, file), other in zip(names, [*names[1:], names[0]], strict=True):
                shared.setdefault(folder, []).append((file, os.path.join(*other)))
    return shared


def _hard_links(found: Iterable[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    """Yield those of *found*, folder and file of equal inode, that are one file by several names; no link's target."""
    by_file: dict[tuple[int, int], dict[tuple[_FolderId | None, str], tuple[str, str]]] = {}
    for folder, file in found:
        with suppress(OSError):
            stat = os.lstat(os.path.join(folder, file))
            names = by_file.setdefault((stat.st_dev, stat.st_ino), {})
            names.setdefault((_folder_id(folder), file), (folder, file))
    yield from (list(names.values()) for names in by_file.values() if len(names) > 1)


def _path(inventory: LogDirInventory, name: str) -> str:
    return os.path.join(inventory.log_dir, name)


def _folder_id(path: str) -> _FolderId | None:
    """Return what tells a folder from all others, None where it cannot be looked at: then nothing is done in it."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _with_names(task: PartitionTask, found: list[str] | None) -> PartitionTask:
    """Return *task* with a problem where its folder has all the names *found*."""
    if found is None:
        return task
    problem = Problem(
        file=task.folder,
        rule=f"one folder has {len(found)} names: {', '.join(found)} (a broker works on it under each of them)",
        remedy="decide whose log it is, and move the links out of the log dirs",
    )
    return task if problem in task.problems else replace(task, problems=(problem, *task.problems))


def _with_shared(task: PartitionTask, shared: Iterable[tuple[str, str]]) -> PartitionTask:
    """Return *task* with a problem for each segment that has another name."""
    problems = tuple(
        Problem(
            file=file,
            rule=f"it is the same file as {other} (hard links): what is cut in one of them is cut in the other",
            remedy="put a copy (cp) in the place of one of them",
        )
        for file, other in shared
    )
    new = tuple(problem for problem in problems if problem not in task.problems)
    return replace(task, problems=(*new, *task.problems)) if new else task


def _with_copies(task: PartitionTask, found: list[str]) -> PartitionTask:
    """Return *task* with a problem where it lies in all of *found*."""
    if len(found) == 1 or _place(task)[2] in (FolderState.DELETE, FolderState.STRAY):
        return task
    problem = Problem(
        file=task.folder,
        rule=f"{task.topic_partition} lies in {len(found)} folders: {', '.join(found)} "
        "(IllegalStateException stops the broker)",
        remedy="decide which one is right, and move the other out of the log dirs",
    )
    return task if problem in task.problems else replace(task, problems=(problem, *task.problems))


def _place(task: PartitionTask) -> tuple[str, int, FolderState]:
    return task.topic_partition.topic, task.topic_partition.partition, read_folder_name(task.folder).state
