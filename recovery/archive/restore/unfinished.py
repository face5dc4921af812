"""What an interrupted restore was about to move in, held against what brokers have done since."""

from __future__ import annotations

import os
from collections.abc import Mapping

from recovery.archive.restore.target import Target
from recovery.read.file_system import read_small
from recovery.write.move_in import altered_folders, folders_to_move, staged_log_dir
from segfmt.filenames import PARTITION_METADATA, read_folder_name
from segfmt.partition_metadata import read_partition_metadata


def outdated(target: Target, log_dir: str) -> Mapping[str, str]:
    """Return why folders must not be moved into *log_dir* any more, by folder; those that may be are not in it.

    Raises:
        UnsafeError: the intent is not of this tool.
        FormatError, OSError: a staged folder cannot be read.
    """
    altered = altered_folders(log_dir)
    reasons = {
        folder: "it was altered since" if folder in altered else _reason(target, log_dir, folder)
        for folder in folders_to_move(log_dir)
    }
    return {folder: reason for folder, reason in reasons.items() if reason is not None}


def _reason(target: Target, log_dir: str, folder: str) -> str | None:
    for existing in target.existing(folder):
        if not existing.is_empty:
            return f"{existing.log_dir}/{folder} has records by now"
        if existing.log_dir != log_dir:
            return f"its folder is in {existing.log_dir} by now"
    if target.metadata is None:
        return None
    name = read_folder_name(folder)
    path = os.path.join(staged_log_dir(log_dir), folder, PARTITION_METADATA)
    topic_id = read_partition_metadata(read_small(path)).topic_id
    if topic_id != target.topic_id(name.topic):
        return "the topic was deleted since"
    assignment = target.assignment(topic_id, name.partition)
    if assignment is None or target.node_id not in assignment.replicas:
        return f"it is no longer assigned to broker {target.node_id}"
    return None
