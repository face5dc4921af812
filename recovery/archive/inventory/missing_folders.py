"""Partitions that the checkpoints of a copied log dir name, and whose folders are not in the copy.

A copy that was broken off between two folders is sound folder by folder; its checkpoints, which lie beside them, know
of the others. Brokers remove the lines of partitions that they delete or move to another log dir.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from recovery.archive.copy.account import CopiedFolder
from recovery.archive.layouts.walk import Walked
from recovery.archive.remote.log_dir_copy import LogDirCopy
from recovery.archive.stores.archived import PartitionPrefix
from recovery.check.finding import Finding, Severity
from recovery.logdir.missing_logs import logs_without_folder


def find_missing_folders(
    copy: LogDirCopy,
    walked: Walked,
    is_chosen: Callable[[PartitionPrefix], bool],
    copied_at: Callable[[str], CopiedFolder | None],
) -> Iterator[Finding]:
    """Yield a finding for each partition with records that a checkpoint names, and of which there is no folder.

    Those that the manifest of a copy names are left to that. Those that `archive copy` was told to leave out are not
    missing: a note counts them.

    Args:
        copy: the files of the log dir.
        walked: any partition of it.
        is_chosen: whether a partition is to be read.
        copied_at: returns what the manifest of a copy says of the folder at a prefix, None without one.
    """
    names = (prefix.rstrip("/").rpartition("/")[2] for prefix in walked.folders)
    left_out = []
    for (topic, partition), (offset, name) in logs_without_folder(names, copy.offsets).items():
        folder_name = f"{topic}-{partition}"
        where = PartitionPrefix(
            prefix=f"{walked.parent}{folder_name}/",
            topic=topic,
            partition=partition,
            topic_id="",
            folder=folder_name,
        )
        if not is_chosen(where):
            continue
        copied = copied_at(where.prefix)
        if copied is not None and copied.is_expected:
            continue
        if copied is not None and copied.is_of_chosen:
            left_out.append((folder_name, name))
            continue
        detail = (
            f"{folder_name} has had offset {offset - 1}, and there is no folder of it: it was not checked"
        )
        yield _finding(name, detail, "unchecked")
    if left_out:
        folder_name, name = left_out[0]
        others = f", and {len(left_out) - 1:,} more" if len(left_out) > 1 else ""
        yield _finding(
            name,
            f"{folder_name}{others}: with records, and not chosen when `archive copy` made this copy",
            "note",
        )


def _finding(file: str, detail: str, severity: Severity) -> Finding:
    return Finding(file=file, position=None, rule="missing-folder", detail=detail, severity=severity)
