"""Handing a log dir back: the checkpoints and the marker that let a broker skip what is done.

Kafka: LogManager.shutdown: checkpointRecoveryOffsetsInDir, checkpointLogStartOffsetsInDir,
CleanShutdownFileHandler.write.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from recovery.inventory import LogDirInventory
from recovery.model import PartitionOutcome, PartitionTask
from segfmt.checkpoint import encode_offset_checkpoint
from segfmt.clean_shutdown import encode_clean_shutdown
from segfmt.filenames import CLEAN_SHUTDOWN_FILE, LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT

Handoff = Literal["clean-shutdown", "recovery-point", "none"]
HANDOFF_CHOICES: tuple[Handoff, ...] = get_args(Handoff)


@dataclass(frozen=True, slots=True, kw_only=True)
class DirWrite:
    """One file of the log dir itself to be written.

    Attributes:
        replaces: whether a file of that name is there, which then goes to quarantine first.
    """

    name: str
    data: bytes
    replaces: bool


def plan_handoff(
    inventory: LogDirInventory,
    outcomes: Mapping[str, tuple[PartitionTask, PartitionOutcome]],
    *,
    handoff: Handoff,
    is_complete: bool,
    is_changed: bool,
) -> tuple[DirWrite, ...]:
    """Return what to write into the log dir once its partitions are done, in order: the marker is last.

    Args:
        outcomes: by folder, of the partitions that were neither refused nor failed.
        is_complete: whether that is all of them; without it there is no marker.
        is_changed: whether anything in the dir was changed, so that a marker of its own was taken away.
    """
    if handoff == "none":
        return ()
    recovery_points = dict(_kept_lines(inventory, outcomes, inventory.recovery_points))
    log_start_offsets = dict(_kept_lines(inventory, outcomes, inventory.log_start_offsets))
    for task, outcome in outcomes.values():
        key = (task.topic_partition.topic, task.topic_partition.partition)
        if outcome.is_loaded:
            recovery_points[key] = outcome.log_end_offset
            if outcome.checkpoints_log_start:
                log_start_offsets[key] = outcome.log_start_offset
    writes = [
        *_checkpoint_write(inventory.log_dir, RECOVERY_POINT_CHECKPOINT, recovery_points),
        *_checkpoint_write(inventory.log_dir, LOG_START_OFFSET_CHECKPOINT, log_start_offsets),
    ]
    has_marker = os.path.exists(os.path.join(inventory.log_dir, CLEAN_SHUTDOWN_FILE))
    needs_marker = (
        is_changed or not has_marker
    )  # one that was ignored and turned out to be true stays as it is
    if handoff == "clean-shutdown" and is_complete and needs_marker:
        writes.append(DirWrite(name=CLEAN_SHUTDOWN_FILE, data=encode_clean_shutdown(), replaces=has_marker))
    return tuple(writes)


def _kept_lines(
    inventory: LogDirInventory,
    outcomes: Mapping[str, tuple[PartitionTask, PartitionOutcome]],
    lines: Mapping[tuple[str, int], int],
) -> Mapping[tuple[str, int], int]:
    """Return the lines of partitions that were left alone: refused or failed ones keep what the broker knew of them."""
    refused = {_key_of_folder(refusal.folder) for refusal in inventory.refused}
    refused |= {
        (task.topic_partition.topic, task.topic_partition.partition)
        for task in inventory.tasks
        if task.folder not in outcomes
    }
    return {key: offset for key, offset in lines.items() if key in refused}


def _key_of_folder(folder: str) -> tuple[str, int]:
    topic, _, number = folder.rpartition("-")
    return topic, int(number) if number.isdecimal() else -1


def _checkpoint_write(log_dir: str, name: str, offsets: Mapping[tuple[str, int], int]) -> list[DirWrite]:
    data = encode_offset_checkpoint(dict(sorted(offsets.items())))
    path = os.path.join(log_dir, name)
    if not os.path.isfile(path):  # a dry run may find there what a repair would have moved away
        return [DirWrite(name=name, data=data, replaces=False)]
    with open(path, "rb") as file:
        found = file.read()
    if sorted(found.splitlines()) == sorted(data.splitlines()):
        return []
    return [DirWrite(name=name, data=data, replaces=True)]
