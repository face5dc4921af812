"""What lies twice in the log dirs of a broker: a partition in two folders, a folder under two names.

A broker halts on the first. On the second it loads both names, and so recovers one log in two threads at a time; a link
to the metadata log, or to a log dir itself, has it write into files that are in use.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace

from recovery.inventory import LogDirInventory
from recovery.model import PartitionTask
from recovery.problem import Problem
from segfmt.filenames import FolderState, read_folder_name

_FolderId = tuple[int, int]


def refuse_duplicates(inventories: Iterable[LogDirInventory]) -> list[LogDirInventory]:
    """Return the inventories, with a problem for each partition, or folder, that is there more than once.

    Differs: a broker follows a link to the folder of another log, and works on it as two.

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
    several = {path: found for found in names.values() if len(found) > 1 for path in found}
    return [
        replace(
            inventory,
            tasks=tuple(
                _with_names(
                    _with_copies(task, places[_place(task)]), several.get(_path(inventory, task.folder))
                )
                for task in inventory.tasks
            ),
        )
        for inventory in inventories
    ]


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
