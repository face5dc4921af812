"""What is said of the partitions of a log dir that were not recovered."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from recovery.inventory import LogDirInventory
from recovery.report import PartitionReport


def log_count(inventory: LogDirInventory) -> int:
    """Return how many logs a dir holds, refused ones included."""
    return len(inventory.tasks) + len(inventory.refused)


def refused_reports(inventory: LogDirInventory) -> list[PartitionReport]:
    """Return the reports of the folders that were refused before anything was read."""
    return [
        PartitionReport(
            log_dir=inventory.log_dir,
            folder=refused.folder,
            status="refused",
            reasons=tuple(map(str, refused.refusal.problems)),
            problems=refused.refusal.problems,
        )
        for refused in inventory.refused
    ]


def failed_reports(
    inventory: LogDirInventory, done: Collection[str], error: OSError
) -> Iterator[PartitionReport]:
    """Yield the reports of the partitions that are not in *done* when a log dir goes offline for *error*."""
    for task in inventory.tasks:
        if task.folder not in done:
            yield PartitionReport(
                log_dir=task.log_dir,
                folder=task.folder,
                topic=task.topic_partition.topic,
                partition=task.topic_partition.partition,
                status="failed",
                reasons=(f"the log dir went offline: {error}",),
            )
