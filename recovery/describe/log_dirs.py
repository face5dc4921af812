"""The log dirs of a broker on this machine, described from their files: the broker may be down, or run beside.

Each is described as a broker would that starts now, with a few words of why it would take one offline.

Kafka: ReplicaManager.describeLogDirs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from recovery.broker.cluster_metadata import ClusterMetadata
from recovery.broker.cordons import java_path
from recovery.describe.replicas import FoundReplicas, Replica, list_replicas, log_end, replica_bytes
from recovery.describe.report import (
    STORAGE_ERROR,
    UNKNOWN_LAG,
    BrokerDescription,
    LogDirDescription,
    LogDirsReport,
    ReplicaDescription,
)
from recovery.errors import error_text, scarcity_remedy
from recovery.logdir.checkpoints import OFFSET_CHECKPOINTS, read_checkpoint
from recovery.logdir.dirs import CHECK_MOUNT, NOT_A_LOG_DIR, BrokerDirs, cordons_in, is_foreign
from recovery.logdir.identity import identify
from recovery.logdir.listing import mount_problems, no_folder
from recovery.logdir.lock import is_locked_by_broker
from recovery.logdir.metadata_files import look_for_metadata
from recovery.logdir.user import access_remedy, broker_user
from recovery.read.file_system import absolute, is_folder, is_there
from recovery.watch.tally import Tally
from segfmt.java_text import LONG_MAX

_UNKNOWN_BROKER = -1
_MOST_LISTINGS = 5
_LET_GO = (
    "the running broker has taken it offline: it holds the locks of other log dirs, and not this one's. Remedy: look "
    "into its log for the I/O error, mend what was the cause, and start it again"
)


def describe_dirs(dirs: BrokerDirs, *, topics: Sequence[str] | None, tally: Tally) -> LogDirsReport:
    """Return what lies in the log dirs of *dirs*, which are only read.

    Args:
        topics: leave out replicas of all others; None for all.
        tally: counts the folders, and then the active segments.
    """
    identity = identify(dirs.log_dirs, node_id=dirs.broker.node_id)
    looks = {path: _look_at(path) for path in dirs.log_dirs}
    offline = {path: look.offline_cause for path, look in looks.items() if look.offline_cause is not None}
    offline |= {path: _LET_GO for path in _let_go(dirs) if path not in offline}
    warnings = [*dirs.notes]
    warnings += [
        f"{path}: {problem}"
        for path, problems in identity.all_problems.items()
        for problem in problems
        if path not in offline
    ]
    warnings += [told for path, look in looks.items() if path not in offline for told in look.unread]
    found = _list(dirs.log_dirs, offline, tally)
    warnings += _misplaced(found, has_offline=bool(offline))
    cordons = cordons_in(dirs, _metadata(dirs, warnings), identity.node_id)
    warnings += cordons.warnings
    volumes = _Volumes(found, topics, tally)
    log_dirs = []
    for entry, path in zip(dirs.broker.log_dirs, dirs.log_dirs, strict=True):
        spelled = java_path(os.fspath(entry)) or path
        if path in found:
            log_dirs.append(volumes.describe(spelled, path, is_cordoned=path in cordons.log_dirs))
        else:
            log_dirs.append(LogDirDescription(log_dir=spelled, error=STORAGE_ERROR, cause=offline[path]))
    node_id = _UNKNOWN_BROKER if identity.node_id is None else identity.node_id
    return LogDirsReport(
        brokers=(BrokerDescription(broker=node_id, log_dirs=tuple(log_dirs)),),
        warnings=tuple(warnings),
        lists_replicas=topics is not None,
    )


class _Volumes:
    """Describes log dirs that can be read.

    Args:
        found: what lies in each of them.
        topics: leave out replicas of all others; None for all.
        tally: counts the active segments.
    """

    def __init__(
        self, found: Mapping[str, FoundReplicas], topics: Sequence[str] | None, tally: Tally
    ) -> None:
        self._found = found
        self._tally = tally
        tally.expect(sum(len(in_dir.replicas) for in_dir in found.values()))
        self._topics = None if topics is None else frozenset(topics)
        self._current = {
            (replica.folder.topic, replica.folder.partition): replica
            for in_dir in found.values()
            for replica in in_dir.replicas
            if not replica.is_future
        }

    def describe(self, log_dir: str, path: str, *, is_cordoned: bool) -> LogDirDescription:
        """Return the description of the log dir at *path*; *log_dir*: how its broker spells it."""
        try:
            volume = os.statvfs(path)
            replicas = tuple(self._chosen(self._found[path].replicas))
        except OSError as error:
            return LogDirDescription(log_dir=log_dir, error=STORAGE_ERROR, cause=_words(error, path))
        return LogDirDescription(
            log_dir=log_dir,
            total_bytes=min(volume.f_frsize * volume.f_blocks, LONG_MAX),
            usable_bytes=min(volume.f_frsize * volume.f_bavail, LONG_MAX),
            is_cordoned=is_cordoned,
            replicas=tuple(sorted(replicas, key=lambda one: (one.topic, one.partition, one.is_future))),
        )

    def _chosen(self, replicas: Iterable[Replica]) -> Iterator[ReplicaDescription]:
        for replica in replicas:
            if self._topics is None or replica.folder.topic in self._topics:
                yield self._replica(replica)
            self._tally.add()

    def _replica(self, replica: Replica) -> ReplicaDescription:
        return ReplicaDescription(
            topic=replica.folder.topic,
            partition=replica.folder.partition,
            size_bytes=replica_bytes(replica),
            offset_lag=self._lag(replica) if replica.is_future else 0,
            is_future=replica.is_future,
        )

    def _lag(self, future: Replica) -> int:
        """Return how many offsets *future* is behind. Kafka: ReplicaManager.getLogEndOffsetLag."""
        current = self._current.get((future.folder.topic, future.folder.partition))
        if current is None:
            return UNKNOWN_LAG
        end_offset = log_end(future).offset  # first, as both may grow
        return log_end(current).offset - end_offset


class _Look(NamedTuple):
    """What a look at a log dir by itself has found.

    Attributes:
        offline_cause: why a broker that starts has it offline, None if it does not.
        unread: which checkpoints this user may not read, though the broker may.
    """

    offline_cause: str | None
    unread: tuple[str, ...] = ()


def _look_at(path: str) -> _Look:
    try:
        if not is_folder(path):
            return _Look(f"{'not a folder' if is_there(path) else 'no such folder'}. {CHECK_MOUNT}")
        if is_foreign(path):
            return _Look(f"{NOT_A_LOG_DIR}. {CHECK_MOUNT}")
        problems = [*mount_problems(path), *identify([path]).problems.get(path, ())]
        user = broker_user(path)
        checkpoints = [read_checkpoint(path, name, user) for name in OFFSET_CHECKPOINTS]
    except OSError as error:
        return _Look(_words(error, path))
    problems += [problem for found in checkpoints for problem in found.problems]
    unread = (
        f"{error_text(found.denial)}: whether the log dir goes offline for it is not known. Remedy: "
        f"{access_remedy(found.denial.filename or path)}"
        for found in checkpoints
        if found.denial is not None
    )
    return _Look(str(problems[0]).removeprefix(f"{path}: ") if problems else None, tuple(unread))


def _let_go(dirs: BrokerDirs) -> list[str]:
    """Return the log dirs that a running broker has taken offline: it holds the locks of others and not theirs.

    Kafka: LogManager.handleLogDirFailure.
    """
    others = [path for path in map(absolute, dirs.broker.own_log_dirs) if path not in dirs.log_dirs]
    locked = {}
    for path in (*dirs.log_dirs, *others):
        with suppress(OSError):
            locked[path] = is_locked_by_broker(path)
    return [path for path in dirs.log_dirs if any(locked.values()) and locked.get(path) is False]


def _words(error: OSError, path: str) -> str:
    """Return what the *error* of the log dir at *path* says, which is named before it."""
    remedy = scarcity_remedy(error) or "look for I/O errors of its disk (dmesg)"
    if isinstance(error, PermissionError):
        remedy = access_remedy(error.filename or path)
    return f"{error_text(error).removeprefix(f'{path}: ')}. Remedy: {remedy}"


def _list(paths: Iterable[str], offline: dict[str, str], tally: Tally) -> dict[str, FoundReplicas]:
    """Return what lies in the log dirs at *paths* that are not *offline*; one that cannot be listed is added to those.

    A broker that puts a future replica in the place of the current one renames both folders. Then all are listed again.
    """
    for _ in range(_MOST_LISTINGS):
        found = {}
        for path in paths:
            try:
                if path not in offline:
                    found[path] = list_replicas(path, tally)
            except OSError as error:
                offline[path] = _words(error, path)
        if offline or not any(_misplaced(found, has_offline=False)):
            break
    return found


def _misplaced(found: Mapping[str, FoundReplicas], *, has_offline: bool) -> Iterator[str]:
    """Yield what is wrong with the folders in log dirs: foreign ones, links to none, copies, future replicas alone."""
    current: dict[tuple[str, int], list[str]] = {}
    for path, in_dir in found.items():
        for name in in_dir.foreign:
            yield f"{os.path.join(path, name)}: not the folder of a log: brokers do not start. Remedy: move it away"
        for name in in_dir.without_folder:
            place = os.path.join(path, name)
            yield str(replace(no_folder(name, place), file=place))
        for replica in in_dir.replicas:
            places = current.setdefault((replica.folder.topic, replica.folder.partition), [])
            if not replica.is_future:
                places.append(path)
    for (topic, partition), places in current.items():
        if len(places) > 1:
            yield (
                f"{topic}-{partition}: in {' and '.join(places)}: brokers do not start (IllegalStateException). "
                "Remedy: find out which copy is the right one, and move the other away"
            )
        elif not places and not has_offline:
            yield f"{topic}-{partition}: a future replica alone: its offset lag is not known"


def _metadata(dirs: BrokerDirs, warnings: list[str]) -> ClusterMetadata | None:
    """Return what the metadata log of the broker says; None, with a warning, if it cannot be read."""
    broker = dirs.broker
    places = dict.fromkeys([broker.metadata_log_dir, *broker.log_dirs, *broker.own_log_dirs])
    metadata, place = look_for_metadata(map(absolute, places))
    if metadata is None:
        warnings.append(f"{place}: whether dynamic settings cordon a log dir is not known")
    return metadata
