"""The checkpoints of offsets in a log dir: their lines, and what a broker does if it cannot read one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from recovery.load.model import FileStat
from recovery.logdir.listing import access_problem, other_kind
from recovery.logdir.user import BrokerUser
from recovery.problem import Problem, Repair
from recovery.read.file_system import is_there, read_small
from segfmt.checkpoint import read_offset_checkpoint
from segfmt.errors import MalformedCheckpointError
from segfmt.filenames import (
    BOOTSTRAP_CHECKPOINT,
    CLEAN_SHUTDOWN_FILE,
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
)

WITHOUT_CHECKPOINT = {
    RECOVERY_POINT_CHECKPOINT: "recovery then begins at the first segment of each log",
    LOG_START_OFFSET_CHECKPOINT: "each log then begins at its first segment, and records deleted from it come back",
    REPLICATION_OFFSET_CHECKPOINT: "high watermarks then begin at the log start, and rise with the replicas",
    CLEANER_OFFSET_CHECKPOINT: "the cleaner then begins at the start of each log",
}
"""The checkpoints of a log dir, each with what a broker does without it."""

OFFSET_CHECKPOINTS = tuple(WITHOUT_CHECKPOINT)
"""Their names."""

LOG_DIR_FILES = frozenset({*OFFSET_CHECKPOINTS, CLEAN_SHUTDOWN_FILE, META_PROPERTIES, BOOTSTRAP_CHECKPOINT})
"""The names of what a broker keeps in a log dir itself; no file of a partition has one."""

CHECKPOINT_FROM_BACKUP = "put a copy from a backup in its place first, if there is one"
"""The remedy where a broker starts without the lines of a checkpoint."""

Offsets = Mapping[tuple[str, int], int]
"""A checkpoint's lines: an offset for each topic and partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """One checkpoint, as found.

    Attributes:
        state: `unusable` if none of its lines counts.
        problems: why a broker takes the log dir offline.
        denial: why this process could not read it, though the broker's user may.
        notes: why none of its lines counts, though the log dir stays online.
    """

    state: Literal["read", "empty", "absent", "unusable"]
    offsets: Offsets = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    denial: PermissionError | None = None
    notes: tuple[Problem, ...] = ()


def known_offsets(log_dir: str, name: str) -> Offsets:
    """Return the lines of the checkpoint *name* in *log_dir*; none if it is missing or cannot be read."""
    with suppress(OSError, MalformedCheckpointError):
        return read_offset_checkpoint(read_small(os.path.join(log_dir, name)))
    return {}


def read_checkpoint(log_dir: str, name: str, user: BrokerUser) -> Checkpoint:
    """Return the checkpoint *name* in *log_dir*, of the broker that runs as *user*.

    Raises:
        OSError: it cannot be looked at, or read.

    Kafka: CheckpointFileWithFailureHandler.read.
    """
    path = os.path.join(log_dir, name)
    if not is_there(path):
        return Checkpoint(state="absent")
    if (kind := other_kind(path)) is not None:
        detail = f"a {kind} where a checkpoint must be (IOException takes the log dir offline)"
        return Checkpoint(state="unusable", problems=(_to_be_moved(name, "file-type", detail),))
    status = os.stat(path)
    lacking = user.lacks(status, "r")
    problems = (access_problem(name, path, status, lacking, user),) if lacking else ()
    try:
        data = read_small(path)
    except PermissionError as error:
        return Checkpoint(state="unusable", problems=problems, denial=None if lacking else error)
    try:
        offsets = read_offset_checkpoint(data)
    except MalformedCheckpointError as error:
        if error.takes_dir_offline or name == REPLICATION_OFFSET_CHECKPOINT:
            effect = (
                "takes the log dir offline" if error.takes_dir_offline else "keeps the broker from coming up"
            )
            detail = f"{error} ({error.kafka} {effect})"
            malformed = _to_be_moved(name, "checkpoint", detail, error.position or None)
            return Checkpoint(state="unusable", problems=(*problems, malformed))
        return Checkpoint(state="unusable", problems=problems, notes=(_ignored(name, error),))
    return Checkpoint(state="read" if data else "empty", offsets=offsets, problems=problems)


def _to_be_moved(
    name: str, rule: Literal["file-type", "checkpoint"], detail: str, position: int | None = None
) -> Problem:
    return Problem(
        file=name,
        position=position,
        rule=rule,
        detail=detail,
        remedy=f"move the file away: {WITHOUT_CHECKPOINT[name]}",
        repair=Repair(names=(name,)),
    )


def _ignored(name: str, error: MalformedCheckpointError) -> Problem:
    return Problem(
        file=name,
        position=error.position or None,
        rule="checkpoint",
        detail=f"{error}: none of its lines counts (a broker logs {error.kafka} as a warning); "
        f"{WITHOUT_CHECKPOINT[name]}",
        remedy=CHECKPOINT_FROM_BACKUP,
    )


def is_line_of_log(files: Mapping[str, FileStat], written_ns: int) -> bool:
    """Return whether a log with *files* was there when a checkpoint was written, so that its line is this log's.

    A broker that makes a topic anew writes `partition.metadata` with the first records; the line of the deleted one
    stays in `replication-offset-checkpoint` for some seconds.

    Kafka: ReplicaManager.checkpointHighWatermarks, PartitionMetadataFile.maybeFlush.
    """
    metadata = files.get(PARTITION_METADATA)
    return metadata is None or metadata.mtime_ns <= written_ns
