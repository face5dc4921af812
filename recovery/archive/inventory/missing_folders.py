"""Partitions that the checkpoints of a copied log dir name, and whose folders are not in the copy.

A copy that was broken off between two folders is sound folder by folder; its checkpoints, which lie beside them, know
of the others. Brokers remove the lines of partitions that they delete or move to another log dir.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

from recovery.archive.layouts.walk import Walked
from recovery.archive.remote.log_dir_copy import LogDirCopy
from recovery.archive.stores.archived import PartitionPrefix
from recovery.check.finding import Finding
from segfmt.errors import FileNameError
from segfmt.filenames import (
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    read_folder_name,
)

_CHECKPOINTS = (RECOVERY_POINT_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT)


def find_missing_folders(
    copy: LogDirCopy, walked: Walked, is_chosen: Callable[[PartitionPrefix], bool]
) -> Iterator[Finding]:
    """Yield a finding for each partition with records that a checkpoint names, and of which there is no folder.

    Args:
        copy: the files of the log dir.
        walked: any partition of it.
        is_chosen: whether a partition is to be read.
    """
    there = set()
    for prefix in walked.folders:
        with suppress(FileNameError):
            folder = read_folder_name(prefix.rstrip("/").rpartition("/")[2])
            there.add((folder.topic, folder.partition))
    told: dict[tuple[str, int], tuple[int, str]] = {}
    for name in _CHECKPOINTS:
        for key, offset in copy.offsets.get(name, {}).items():
            if offset > told.get(key, (0, ""))[0]:
                told[key] = offset, name
    for (topic, partition), (offset, name) in sorted(told.items()):
        folder_name = f"{topic}-{partition}"
        where = PartitionPrefix(
            prefix=f"{walked.parent}{folder_name}/",
            topic=topic,
            partition=partition,
            topic_id="",
            folder=folder_name,
        )
        if (topic, partition) not in there and is_chosen(where):
            detail = (
                f"{folder_name} has had offset {offset - 1}, and there is no folder of it: it was not checked"
            )
            yield Finding(
                file=name, position=None, rule="missing-folder", detail=detail, severity="unchecked"
            )
