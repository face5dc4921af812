"""Whether a log has a remote part, if no setting says so: the signs in its folder and in the log dir's checkpoints.

A broker writes the log start of every tiered log into `log-start-offset-checkpoint`, and that of a plain one only
if it lies above the base of the first segment. So a line below that base belongs to a tiered log, or to a plain one
whose broker was killed after it had deleted segments and before it wrote the line again, a minute later. In that case
the leader epochs begin above it (they are cut when segments are deleted, and written by a thread of their own at
once), or the deleted segments are still there as `.deleted`.

A sound plain log must never be refused; a tiered one that cannot be told apart from it is noted, unless records of
`__remote_log_metadata` in one of the log dirs name its topic: then it is a tiered one.

Kafka: LogManager.checkpointLogStartOffsetsInDir, UnifiedLog.deleteSegments, UnifiedLog.maybeIncrementLogStartOffset,
LeaderEpochFileCache.truncateFromStartAsyncFlush.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from glob import escape, glob
from uuid import UUID

from recovery.broker.config import CLEANUP_POLICY
from recovery.load.model import LogSettings
from recovery.problem import Problem
from recovery.read.file_system import open_file, read_at, read_small
from segfmt.checkpoint import read_leader_epoch_checkpoint
from segfmt.errors import FileNameError, FormatError, MalformedCheckpointError
from segfmt.filenames import (
    DELETED_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    LOG_SUFFIX,
    PARTITION_METADATA,
    read_offset,
)
from segfmt.partition_metadata import read_partition_metadata

_WINDOW_BYTES = 4 << 20
_MOST_BYTES = 2**31 - 1  # no segment is longer
_NAMED = ", and records of __remote_log_metadata name its topic"


class RemoteMetadata:
    """The logs of `__remote_log_metadata` in *log_dirs*, searched on demand for a topic.

    Differs: their records are not read but searched for the topic's id, which is not found in compressed batches. A
    broker's own producer compresses nothing. Kafka: TopicBasedRemoteLogMetadataManager.
    """

    def __init__(self, log_dirs: Iterable[str]) -> None:
        self._log_dirs = tuple(log_dirs)

    def names(self, topic_id: UUID) -> bool:
        """Return whether a record names the topic; a file that cannot be read does not."""
        return any(_holds(path, topic_id.bytes) for path in self._logs())

    def _logs(self) -> Iterator[str]:
        for log_dir in self._log_dirs:
            pattern = os.path.join(escape(log_dir), "__remote_log_metadata-*", f"*{LOG_SUFFIX}")
            yield from sorted(glob(pattern))


def _holds(path: str, needle: bytes) -> bool:
    """Return whether the file at *path* has the bytes *needle* anywhere."""
    try:
        descriptor = open_file(path)
    except OSError:
        return False
    with open(descriptor, "rb", buffering=0) as file, suppress(OSError):
        position = 0
        while position < _MOST_BYTES and (window := read_at(file.fileno(), position, _WINDOW_BYTES)):
            if needle in window:
                return True
            position += max(len(window) - len(needle) + 1, 1)
    return False


class RemotePart:
    """The signs of a remote part of one log.

    Args:
        folder: path of the partition's folder.
        topic: its name.
        names: of the files in it.
        log_start_offset: the line of the log dir's checkpoint, None if there is none.
        has_checkpoint: whether the log dir's checkpoint is there and can be read.
        settings: of the topic.
        metadata: what the log dirs say of remote segments.
    """

    def __init__(
        self,
        folder: str,
        topic: str,
        names: Collection[str],
        log_start_offset: int | None,
        *,
        has_checkpoint: bool,
        settings: LogSettings,
        metadata: RemoteMetadata,
    ) -> None:
        self._folder = folder
        self._topic = topic
        self._names = names
        self._line = log_start_offset
        self._has_checkpoint = has_checkpoint
        self._settings = settings
        self._metadata = metadata
        self._first_base = min(_base_offsets(names, LOG_SUFFIX), default=None)

    def problem(self) -> Problem | None:
        """Return why this log must not be taken for a plain one, None if it may be one."""
        is_named = not self._looks_tiered() and self._is_odd() and self._is_named()
        if not (is_named or self._looks_tiered()):
            return None
        prevented_by = self._settings.remote_log_prevented_by
        said = (
            f"remote.storage.enable=true of topic {self._topic} says so, but {prevented_by} makes it a plain one"
            if prevented_by
            else "no setting says whether it is one"
        )
        contradiction = f"{self._contradiction}{_NAMED if is_named else ''}"
        return Problem(
            file=os.path.basename(self._folder),
            rule="tiered",
            detail=f"{contradiction}, so this looks like a tiered log, and {said}: as a plain one it would begin "
            f"at {self._first_base}, and its remote part would be forgotten",
            remedy=self._remedy,
        )

    def loss(self) -> Problem | None:
        """Return what a log loses that looks tiered, although its broker takes it for a plain one."""
        prevented_by = self._settings.remote_log_prevented_by
        if not prevented_by or not self._looks_tiered():
            return None
        return Problem(
            file=os.path.basename(self._folder),
            rule="tiered",
            detail=f"topic {self._topic} has remote.storage.enable=true, but with {prevented_by} its broker takes the "
            f"log for a plain one: the log start moves from {self._line or 0} to {self._first_base}, and the remote "
            "part is forgotten",
            remedy="if the broker is configured differently, recover (after an undo, if it is recovered already) with "
            f"{self._tiered_by}",
        )

    def note(self) -> Problem | None:
        """Return what is odd about a log that is taken for a plain one."""
        if not self._is_odd():
            return None
        return Problem(
            file=os.path.basename(self._folder),
            rule="tiered",
            detail=f"{self._contradiction}; taken for a plain log whose broker had just deleted segments",
            remedy=self._remedy,
        )

    def _is_odd(self) -> bool:
        """Whether there is any sign of offsets before the first segment."""
        if self._first_base is None:
            return False
        return self._has_earlier_epochs() if self._line is None else self._line < self._first_base

    def _is_named(self) -> bool:
        """Whether the remote log metadata names the topic."""
        if PARTITION_METADATA not in self._names:
            return False
        try:
            metadata = read_partition_metadata(read_small(os.path.join(self._folder, PARTITION_METADATA)))
        except (FormatError, OSError):
            return False  # the partition is refused for that
        return self._metadata.names(metadata.topic_id)

    @property
    def _contradiction(self) -> str:
        if self._line is None:
            missing = "no line for it" if self._has_checkpoint else "nothing that can be read"
            return (
                f"its leader epochs begin before its first segment, at {self._first_base}, and "
                f"{LOG_START_OFFSET_CHECKPOINT} has {missing}"
            )
        return (
            f"{LOG_START_OFFSET_CHECKPOINT} says that it begins at {self._line}, "
            f"but its first segment begins at {self._first_base}"
        )

    @property
    def _remedy(self) -> str:
        config = "" if self._settings.is_config_complete else "give the broker's configuration with -c, or "
        plain = self._option("remote.storage.enable", "false")
        return f"{config}say which it is: {self._tiered_by} for a tiered log, {plain} for a plain one"

    @property
    def _tiered_by(self) -> str:
        """The option that makes the log a tiered one."""
        key, _, _ = self._settings.remote_log_prevented_by.partition("=")
        if not key:
            return self._option("remote.storage.enable", "true")
        return self._option(key, '"delete"') if key == CLEANUP_POLICY.name else f"--property {key}=true"

    def _option(self, key: str, value: str) -> str:
        return f'--topic-config \'{{"{self._topic}": {{"{key}": {value}}}}}\''

    def _looks_tiered(self) -> bool:
        if self._first_base is None or (self._line is not None and self._line >= self._first_base):
            return False
        if self._line is None and self._has_checkpoint:  # a tiered log has a line
            return False
        is_certain = self._line == 0  # no plain log has such a line
        return is_certain or (self._has_earlier_epochs() and not self._has_just_deleted())

    def _has_earlier_epochs(self) -> bool:
        """Whether a leader epoch begins before the first segment."""
        if LEADER_EPOCH_CHECKPOINT not in self._names:
            return False
        try:
            entries = read_leader_epoch_checkpoint(
                read_small(os.path.join(self._folder, LEADER_EPOCH_CHECKPOINT))
            )
        except (MalformedCheckpointError, PermissionError):
            return False  # the partition is refused for that
        return any(start_offset < (self._first_base or 0) for _, start_offset in entries)

    def _has_just_deleted(self) -> bool:
        """Whether the segment with the offset of the checkpoint's line (without a line, any) is still `.deleted`."""
        deleted = _base_offsets(self._names, LOG_SUFFIX + DELETED_SUFFIX)
        return any(self._line is None or base_offset <= self._line for base_offset in deleted)


def has_deleted_segments(names: Collection[str]) -> bool:
    """Return whether the first segment of a log is not its original one."""
    return min(_base_offsets(names, LOG_SUFFIX), default=0) > 0


def _base_offsets(names: Collection[str], suffix: str) -> Iterator[int]:
    for name in names:
        if name.endswith(suffix):
            try:
                yield read_offset(name)
            except FileNameError:
                continue  # the partition is refused for that
