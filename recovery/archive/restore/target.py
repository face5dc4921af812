"""The stopped broker that partitions are restored to: its log dirs, what they get, and what is there already."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

from recovery.archive.remote.told_ends import ToldEnd
from recovery.archive.restore.placement import next_log_dirs
from recovery.broker.assignments import Assignment, Assignments, read_assignments
from recovery.broker.cluster_metadata import ClusterMetadata
from recovery.engine.run import BrokerFacts
from recovery.errors import AS_BROKERS_USER, LogDirOfflineError, error_text
from recovery.logdir.checkpoints import known_offsets
from recovery.logdir.dirs import BrokerDirs
from recovery.logdir.identity import identify
from recovery.logdir.metadata_files import find_metadata_folder, load_cluster_metadata, load_metadata
from recovery.logdir.quarantine_place import is_far, quarantine_root
from recovery.read.file_system import absolute, is_folder, is_read_only, is_there, read_small
from recovery.write.move_in import CHANGED_CHECKPOINTS, RECORD_SUFFIXES, has_intent, staged_log_dir
from segfmt.checkpoint import read_offset_checkpoint
from segfmt.errors import FileNameError, FormatError
from segfmt.filenames import (
    CLUSTER_METADATA_TOPIC,
    LOCK_FILE,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    FolderState,
    PartitionFolder,
    read_folder_name,
)
from segfmt.kafka_uuid import format_uuid
from segfmt.meta_properties import read_meta_properties
from segfmt.partition_metadata import read_partition_metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetDir:
    """One log dir.

    Attributes:
        directory_id: by its `meta.properties`, None without one.
        log_count: current and future logs in it.
        futures: folders of logs that are being moved into it, by topic and partition.
        usable_bytes: None if not known.
        error: why it is offline, None if it is not.
    """

    log_dir: str
    directory_id: UUID | None
    is_cordoned: bool
    log_count: int
    futures: Mapping[tuple[str, int], str]
    usable_bytes: int | None
    error: OSError | str | None

    @property
    def is_live(self) -> bool:
        """Whether it can be restored into."""
        return self.error is None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExistingLog:
    """A folder of the partition that is there.

    Attributes:
        path: of the folder; of one that is in the stage still, and moved in first, there.
        names: of all that is in it.
        logs: sizes in bytes by name of files with records.
    """

    log_dir: str
    path: str
    topic_id: UUID | None
    names: AbstractSet[str]
    logs: Mapping[str, int]

    @property
    def is_empty(self) -> bool:
        """Whether it has no batch."""
        return not any(self.logs.values())


class Target:
    """A stopped broker, whose log dirs are locked.

    Args:
        dirs: of the broker.
        facts: of the broker.
        offline: the errors of log dirs that cannot be locked.

    Raises:
        UsageError, FormatError, OSError: the metadata log cannot be read.
    """

    def __init__(
        self, dirs: BrokerDirs, facts: BrokerFacts, offline: Mapping[str, LogDirOfflineError]
    ) -> None:
        self.dirs = dirs
        self.facts = facts
        metadata_first = tuple(dict.fromkeys((absolute(dirs.broker.metadata_log_dir), *dirs.log_dirs)))
        folder = find_metadata_folder(path for path in metadata_first if is_folder(path))
        self.metadata: ClusterMetadata | None = None if folder is None else load_cluster_metadata(folder)
        self._assignments: Assignments | None = (
            None if folder is None else load_metadata(folder, read_assignments)
        )
        self.node_id = identify(metadata_first, node_id=dirs.broker.node_id).node_id
        self.log_dirs: Sequence[TargetDir] = [
            _target_dir(path, offline.get(path), is_cordoned=path in facts.cordoned_log_dirs)
            for path in dirs.log_dirs
        ]
        self._added = dict.fromkeys(dirs.log_dirs, 0)
        self._to_come: dict[str, str] = {}
        live = [target.log_dir for target in self.log_dirs if target.is_live]
        self._log_starts = [known_offsets(log_dir, LOG_START_OFFSET_CHECKPOINT) for log_dir in live]
        self._ends = {
            os.path.join(log_dir, name): known_offsets(log_dir, name)
            for log_dir in live
            for name in (RECOVERY_POINT_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT)
        }

    def topic_id(self, topic: str) -> UUID | None:
        """Return the id of a topic by the metadata log, None if it does not know it, or there is none."""
        return None if self.metadata is None else self.metadata.topic_ids.get(topic)

    def assignment(self, topic_id: UUID, partition: int) -> Assignment | None:
        """Return where the cluster wants a partition, None if it does not know it, or there is no metadata log."""
        return None if self._assignments is None else self._assignments.of(topic_id, partition)

    def log_start(self, topic: str, partition: int) -> int | None:
        """Return the highest offset at which a log begins by the checkpoints of the log dirs; None without a line."""
        starts = [offsets[topic, partition] for offsets in self._log_starts if (topic, partition) in offsets]
        return max(starts, default=None)

    def told_end(self, topic: str, partition: int) -> ToldEnd | None:
        """Return how far a log reached by the checkpoints of the log dirs; None without a line."""
        ends = [
            ToldEnd(offsets[topic, partition], path)
            for path, offsets in self._ends.items()
            if (topic, partition) in offsets
        ]
        return max(ends, default=None)

    def count_in(self, log_dir: str, folders: Iterable[str]) -> None:
        """Take *folders* in the stage of *log_dir* for there already, in a dry run: a restore moves them in first."""
        staged = staged_log_dir(log_dir)
        self._to_come |= {os.path.join(log_dir, one): os.path.join(staged, one) for one in folders}

    def usable_bytes(self, log_dir: str) -> int | None:
        """Return what is free in *log_dir* for the broker's user; None if not known."""
        return next(target.usable_bytes for target in self.log_dirs if target.log_dir == log_dir)

    def existing(self, folder: str) -> list[ExistingLog]:
        """Return what is there of a partition in any of the log dirs.

        Raises:
            OSError: its folder cannot be listed.
        """
        found = []
        for target in self.log_dirs:
            path = os.path.join(target.log_dir, folder)
            path = self._to_come.get(path, path)
            if target.is_live and is_folder(path):
                topic_id = None
                with suppress(OSError, FormatError):
                    topic_id = read_partition_metadata(
                        read_small(os.path.join(path, PARTITION_METADATA))
                    ).topic_id
                with os.scandir(path) as entries:
                    sizes = {entry.name: entry.stat(follow_symlinks=False).st_size for entry in entries}
                found.append(
                    ExistingLog(
                        log_dir=target.log_dir,
                        path=path,
                        topic_id=topic_id,
                        names=sizes.keys(),
                        logs={name: size for name, size in sizes.items() if name.endswith(RECORD_SUFFIXES)},
                    )
                )
        return found

    def offline_dir_of(self, folder: str) -> str | None:
        """Return the offline log dir that has a partition's folder, None if none is seen to have it."""
        for target in self.log_dirs:
            with suppress(OSError):
                if not target.is_live and is_there(os.path.join(target.log_dir, folder)):
                    return target.log_dir
        return None

    def in_the_way(self, folder: str) -> str | None:
        """Return the path of what has the name of a partition's folder and is none; None if there is nothing."""
        for target in self.log_dirs:
            path = os.path.join(target.log_dir, folder)
            if target.is_live and is_there(path) and not is_folder(path):
                return path
        return None

    def may_move(self, log_dir: str, folder: str) -> bool:
        """Return whether this user may move *folder* to another one: the entry of its parent in it changes, too."""
        return os.access(os.path.join(log_dir, folder), os.W_OK | os.X_OK)

    def is_kept_by_rename(self, log_dir: str, folder: str) -> bool:
        """Return whether *folder* can be moved to quarantine, which no folder can on another file system.

        Raises:
            OSError: the mount of one of them cannot be determined.
        """
        root = quarantine_root(log_dir, self.dirs.quarantine_dir)
        return not is_far(root, os.path.join(log_dir, folder))

    def being_moved(self, topic: str, partition: int) -> str | None:
        """Return the folder to which a broker was moving a partition from another log dir; None if there is none."""
        for target in self.log_dirs:
            if (topic, partition) in target.futures:
                return os.path.join(target.log_dir, target.futures[topic, partition])
        return None

    def place(
        self, existing: Sequence[ExistingLog], assignment: Assignment | None, *, ignore_cordon: bool
    ) -> str:
        """Return the log dir for a partition, by KIP-1066 and `LogManager.nextLogDirs`, and count it there.

        Raises:
            ValueError: all are cordoned, or the assigned one is not there; the text says so.
        """
        chosen = self._chosen(existing, assignment, ignore_cordon=ignore_cordon)
        if not existing:
            self._added[chosen] += 1
        return chosen

    def _chosen(
        self, existing: Sequence[ExistingLog], assignment: Assignment | None, *, ignore_cordon: bool
    ) -> str:
        if existing:
            return existing[0].log_dir
        assigned = (
            None if assignment is None or self.node_id is None else assignment.directory_of(self.node_id)
        )
        if assigned is not None:
            for target in self.log_dirs:
                if target.directory_id == assigned and target.is_live:
                    return target.log_dir
                if target.directory_id == assigned:
                    raise ValueError(
                        f"it is assigned to {target.log_dir}, which is offline. Remedy: bring that back"
                    )
            raise ValueError(
                f"it is assigned to the log dir with the id {format_uuid(assigned)}, which is not there. Remedy: "
                f"bring it back; if it is gone for good, put a {META_PROPERTIES} with that directory.id, and else like "
                "that of another log dir, into an empty one"
            )
        if any(not target.is_live for target in self.log_dirs):
            raise ValueError(
                "a log dir is offline, and may hold this log. Remedy: bring it back, or take it out"
            )
        live = [target.log_dir for target in self.log_dirs]
        cordoned = {target.log_dir for target in self.log_dirs if target.is_cordoned}
        if cordoned.issuperset(live) and not ignore_cordon:
            raise ValueError(
                f"all log directories of broker {self.node_id} are cordoned: {', '.join(live)} "
                "(INVALID_REPLICA_ASSIGNMENT). Remedy: uncordon one, or give --ignore-cordon"
            )
        counts = {target.log_dir: target.log_count + self._added[target.log_dir] for target in self.log_dirs}
        return next_log_dirs(live, counts, cordoned)[0]


def _target_dir(log_dir: str, offline: LogDirOfflineError | None, *, is_cordoned: bool) -> TargetDir:
    directory_id = usable = None
    logs: Sequence[PartitionFolder] = ()
    with suppress(OSError, FormatError):  # of an offline one, too: then it is known what is assigned to it
        directory_id = read_meta_properties(read_small(os.path.join(log_dir, META_PROPERTIES))).directory_id
    if offline is None:
        with suppress(OSError):
            status = os.statvfs(log_dir)
            usable = status.f_frsize * status.f_bavail
        with suppress(OSError):
            logs = list(_logs(os.listdir(log_dir)))
    error: OSError | str | None = None if offline is None else with_remedy(offline.error)
    return TargetDir(
        log_dir=log_dir,
        directory_id=directory_id,
        is_cordoned=is_cordoned,
        log_count=len(logs),
        futures={(log.topic, log.partition): log.name for log in logs if log.state is FolderState.FUTURE},
        usable_bytes=usable,
        error=error or _without_lines(log_dir),
    )


def unwritable(log_dirs: Iterable[str]) -> dict[str, LogDirOfflineError]:
    """Return the log dirs that a run as this user would find offline, which a dry run does not write to, by path.

    Those that are mounted read-only are not among them: that is the operator's, for as long as nothing is written.
    """
    found = {}
    for log_dir in log_dirs:
        with suppress(OSError):
            lock = os.path.join(log_dir, LOCK_FILE)
            may_lock = not is_there(lock) or os.access(lock, os.R_OK | os.W_OK)
            if not is_read_only(log_dir) and not (may_lock and os.access(log_dir, os.W_OK | os.X_OK)):
                error = PermissionError(errno.EACCES, os.strerror(errno.EACCES), lock)
                found[log_dir] = LogDirOfflineError(log_dir, error)
    return found


def with_remedy(error: OSError | str) -> OSError | str:
    """Return *error*, with what helps if that can be told by its number."""
    remedies = {
        errno.EACCES: AS_BROKERS_USER,
        errno.EPERM: AS_BROKERS_USER,
        errno.EROFS: "mount it writable",
    }
    remedy = remedies.get(error.errno or 0) if isinstance(error, OSError) else None
    return error if remedy is None else f"{error_text(error)}. Remedy: {remedy}"


def _without_lines(log_dir: str) -> OSError | str | None:
    """Return why no line can be entered in one of the checkpoints, None if it can."""
    for name in CHANGED_CHECKPOINTS:
        path = os.path.join(log_dir, name)
        try:
            read_offset_checkpoint(read_small(path))
        except FileNotFoundError:
            continue
        except FormatError as error:
            # recover waits until an interrupted restore is finished, and that for this file
            by_hand = "move it out of the log dir, and start again"
            remedy = by_hand if has_intent(log_dir) else "kafka-log-recovery recover --repair moves it away"
            return f"{path}: {error}. Remedy: {remedy}"
        except OSError as error:
            return with_remedy(error)
    return None


def _logs(names: Iterable[str]) -> Iterator[PartitionFolder]:
    """Yield the folders that a broker counts as logs: current and future ones."""
    for name in names:
        with suppress(FileNameError):
            folder = read_folder_name(name)
            if folder.topic != CLUSTER_METADATA_TOPIC and folder.state in (
                FolderState.CURRENT,
                FolderState.FUTURE,
            ):
                yield folder
