"""Logs that have vanished: the checkpoints of a log dir know how far they reached, and there is no folder of them.

A broker says nothing of it: it makes an empty log in the place, and as the only replica it has lost every record.
Brokers remove the lines of logs that they delete or move to another log dir.

Kafka: LogManager.getOrCreateLog, LogManager.asyncDelete.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from recovery.broker.assignments import Assignments, read_assignments
from recovery.broker.cluster_metadata import ClusterMetadata
from recovery.logdir.checkpoints import Offsets, known_offsets
from recovery.logdir.metadata_files import find_metadata_folder, load_cluster_metadata, load_metadata
from recovery.problem import FIND_FOLDER_REMEDY
from recovery.quantity import listed_text
from recovery.read.file_system import read_small
from segfmt.errors import FileNameError, FormatError
from segfmt.filenames import (
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    read_folder_name,
)
from segfmt.meta_properties import MetaProperties, read_meta_properties

_TELLING = (RECOVERY_POINT_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT)
_MOST_NAMED = 5


class MissingLog(NamedTuple):
    """A log with records that has no folder.

    Attributes:
        end: the highest offset that a checkpoint has for it, above 0.
        checkpoint: the name of that one.
    """

    log_dir: str
    topic: str
    partition: int
    end: int
    checkpoint: str

    @property
    def folder(self) -> str:
        """The name that its folder had."""
        return f"{self.topic}-{self.partition}"


def logs_without_folder(
    names: Iterable[str], offsets: Mapping[str, Offsets]
) -> dict[tuple[str, int], tuple[int, str]]:
    """Return the logs with records that checkpoints name and that are not among the folders *names*, in any state.

    Args:
        offsets: the lines of each checkpoint, by its name.

    Returns:
        By topic and partition the highest offset, and the name of the checkpoint that has it.
    """
    there = frozenset(names)
    told: dict[tuple[str, int], tuple[int, str]] = {}
    for checkpoint in _TELLING:
        for log, offset in offsets.get(checkpoint, {}).items():
            if f"{log[0]}-{log[1]}" not in there and offset > told.get(log, (0, ""))[0]:
                told[log] = offset, checkpoint
    for name in there if told else ():  # the names of future, stray and deleted logs have more in them
        with suppress(FileNameError):
            folder = read_folder_name(name)
            told.pop((folder.topic, folder.partition), None)
    return dict(sorted(told.items()))


def find_missing_logs(log_dirs: Sequence[str], *, metadata_dirs: Iterable[str]) -> Iterator[MissingLog]:
    """Yield the logs that have vanished from *log_dirs*, as far as the metadata log knows these replicas.

    What cannot be read tells nothing: without a metadata log, log dirs may be copies in part.

    Args:
        log_dirs: absolute paths of all that are looked at; no broker is at work there.
        metadata_dirs: where the metadata log may be.
    """
    names: dict[str, list[str]] = {}
    for log_dir in log_dirs:
        with suppress(OSError):
            names[log_dir] = os.listdir(log_dir)
    everywhere = [name for dir_names in names.values() for name in dir_names]
    lost = {
        log_dir: logs_without_folder(everywhere, {name: known_offsets(log_dir, name) for name in _TELLING})
        for log_dir in names
    }
    if not any(lost.values()):
        return
    metadata, assignments = _metadata(metadata_dirs)
    for log_dir, logs in lost.items():
        meta = _meta(log_dir) if logs else MetaProperties(version=0)
        for (topic, partition), (end, checkpoint) in logs.items():
            if _is_here(meta, metadata, assignments, topic, partition):
                yield MissingLog(log_dir, topic, partition, end, checkpoint)


def missing_logs_text(logs: Sequence[MissingLog]) -> str:
    """Return what is to be said of *logs* that have vanished from one log dir, in one line."""
    names = listed_text([log.folder for log in logs], _MOST_NAMED)
    return (
        f"{logs[0].log_dir}: there is no folder of {names}, which had records by the checkpoints: a broker begins "
        f"with an empty log there, and says nothing of it. Remedy: {FIND_FOLDER_REMEDY}"
    )


def _metadata(dirs: Iterable[str]) -> tuple[ClusterMetadata, Assignments]:
    with suppress(OSError, FormatError):
        if (folder := find_metadata_folder(dirs)) is not None:
            return load_cluster_metadata(folder), load_metadata(folder, read_assignments)
    return ClusterMetadata(), Assignments()


def _meta(log_dir: str) -> MetaProperties:
    with suppress(OSError, FormatError):
        return read_meta_properties(read_small(os.path.join(log_dir, META_PROPERTIES)))
    return MetaProperties(version=0)


def _is_here(
    meta: MetaProperties, metadata: ClusterMetadata, assignments: Assignments, topic: str, partition: int
) -> bool:
    """Return whether the cluster has a replica of a partition in the log dir of *meta*."""
    topic_id = metadata.topic_ids.get(topic)
    assignment = None if topic_id is None else assignments.of(topic_id, partition)
    if assignment is None or meta.node_id not in assignment.replicas:
        return False
    return assignment.directory_of(meta.node_id) in (None, meta.directory_id)
