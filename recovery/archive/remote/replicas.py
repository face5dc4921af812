"""The replicas of partitions in the log dirs of brokers, or in copies of them, and which one counts.

A partition's folder counts if its `partition.metadata` has the id of the archived topic: another topic of that name may
have been created since. Names of plain copies have no id, so for these any folder of that name counts.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from recovery.archive.remote.log_ends import read_log_end
from recovery.archive.stores.archived import PartitionPrefix
from recovery.archive.stores.store import Store
from recovery.check.finding import Finding, unreadable
from recovery.check.folder_files import MOST_SMALL_FILE_BYTES
from recovery.errors import reason_text
from segfmt.checkpoint import LeaderEpochEntry, read_leader_epoch_checkpoint, read_offset_checkpoint
from segfmt.errors import FormatError
from segfmt.filenames import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    PARTITION_METADATA,
    read_offset,
)
from segfmt.kafka_uuid import read_uuid
from segfmt.partition_metadata import read_partition_metadata

_NO_EPOCH = -1
_LOG = re.compile(r"[0-9]{20}\.log")


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """A partition in a log dir.

    Attributes:
        store: the log dir.
        prefix: of the partition's folder.
        topic_id: by its `partition.metadata`.
        log_start_offset: by the log dir's checkpoint; None if that has no line for it.
        log_start_fault: why that checkpoint cannot be read, with its URL; None if it can, or is missing.
        epochs: of its checkpoint; none if that is missing or malformed.
    """

    store: Store
    prefix: str
    topic_id: UUID
    log_start_offset: int | None
    log_start_fault: Finding | None
    epochs: tuple[LeaderEpochEntry, ...]

    @property
    def url(self) -> str:
        """Of the partition's folder."""
        return f"{self.store.url}/{self.prefix.rstrip('/')}"


def topic_id_of(where: PartitionPrefix) -> UUID | None:
    """Return the topic's id, None if the layout's names have none or it is malformed."""
    try:
        return read_uuid(where.topic_id)
    except FormatError:
        return None


def has_folders(log_dir: Store) -> bool:
    """Return whether there is a folder with the name of a partition in a log dir."""
    return next(_folders(log_dir), None) is not None


class Replicas:
    """The replicas of partitions in log dirs.

    Args:
        log_dirs: of one broker or of several.
    """

    def __init__(self, log_dirs: Iterable[Store]) -> None:
        self._log_dirs = list(log_dirs)
        self._log_starts = {store.url: _log_starts(store) for store in self._log_dirs}
        self._folders: dict[str, list[tuple[Store, str]]] | None = None
        self._ids: dict[str, frozenset[UUID]] = {}

    def of(self, where: PartitionPrefix, in_sync: Collection[str] = ()) -> Replica | None:
        """Return the replica that counts, None if no log dir has one.

        It is the one with the latest last epoch; of several, one that may lead, and of which it can be read where the
        log begins; of several, the one that knows the most epochs, because a follower that began anew, as after an
        unclean election, has lost the earlier ones; of several of these, the one whose log reaches furthest, and then
        the one whose log begins last. It answers all questions.

        Args:
            where: the partition.
            in_sync: URLs of the log dirs of brokers that may lead it, as far as they are known.
        """
        topic_id = topic_id_of(where)
        if topic_id is None and where.topic_id:
            return None
        candidates = [self._replica(store, where, topic_id) for store in self._log_dirs]
        replicas = [replica for replica in candidates if replica is not None]
        if len(replicas) < 2:
            return replicas[0] if replicas else None
        ranks = [_rank(replica, in_sync) for replica in replicas]
        highest = max(ranks)
        equal = [replica for replica, rank in zip(replicas, ranks, strict=True) if rank == highest]
        return max(equal, key=_reach)

    def why_unread(self, where: PartitionPrefix) -> str:
        """Return why a folder with the name of a partition does not count in any log dir; empty if there is none."""
        prefix = f"{where.topic}-{where.partition}/"
        return next(filter(None, (_why_without_id(store, prefix) for store in self._log_dirs)), "")

    def local_start(self, where: PartitionPrefix) -> int | None:
        """Return where the first segment of a partition begins in any of the log dirs, None if none has one."""
        topic_id = topic_id_of(where)
        replicas = (self._replica(store, where, topic_id) for store in self._log_dirs)
        bases = [
            read_offset(stored.name)
            for replica in replicas
            if replica is not None
            for stored in replica.store.list_level(replica.prefix).objects
            if _LOG.fullmatch(stored.name)
        ]
        return min(bases, default=None)

    def folders(self) -> Iterator[tuple[str, int]]:
        """Yield topic and number of each partition with a folder in any of the log dirs, ascending."""
        found = {
            (name, int(prefix.rstrip("/").rpartition("-")[2]))
            for store in self._log_dirs
            for name, prefix in _folders(store)
        }
        yield from sorted(found)

    def topic_ids(self, topic: str) -> frozenset[UUID]:
        """Return the ids in the folders of a topic's partitions; none if no log dir has one."""
        if self._folders is None:
            self._folders = {}
            for store in self._log_dirs:
                for name, prefix in _folders(store):
                    self._folders.setdefault(name, []).append((store, prefix))
        found = {_topic_id_at(store, prefix) for store, prefix in self._folders.pop(topic, [])}
        return self._ids.setdefault(topic, frozenset(topic_id for topic_id in found if topic_id is not None))

    def _replica(self, store: Store, where: PartitionPrefix, topic_id: UUID | None) -> Replica | None:
        prefix = f"{where.topic}-{where.partition}/"
        found_id = _topic_id_at(store, prefix)
        if found_id is None or topic_id not in (None, found_id):
            return None
        starts, fault = self._log_starts[store.url]
        return Replica(
            store=store,
            prefix=prefix,
            topic_id=found_id,
            log_start_fault=fault,
            log_start_offset=starts.get((where.topic, where.partition)),
            epochs=read_leader_epochs(store, prefix),
        )


def _rank(replica: Replica, in_sync: Collection[str]) -> tuple[object, ...]:
    """Return a value by which `Replicas.of` chooses; where it is equal, the ends of the logs decide."""
    last = replica.epochs[-1:]
    may_lead, is_readable = replica.store.url in in_sync, replica.log_start_fault is None
    return tuple(entry.epoch for entry in last), may_lead, is_readable, last, len(replica.epochs)


def _reach(replica: Replica) -> tuple[int, int]:
    """Return where the log ends, and where it begins."""
    objects = replica.store.list_level(replica.prefix).objects
    return read_log_end(replica.store, objects), replica.log_start_offset or 0


def _folders(store: Store) -> Iterator[tuple[str, str]]:
    """Yield topic and prefix of the folders in a log dir that have the name of a partition."""
    for prefix in store.list_level("").prefixes:
        name, dash, number = prefix.rstrip("/").rpartition("-")
        if dash and number.isascii() and number.isdigit():
            yield name, prefix


def _log_starts(store: Store) -> tuple[dict[tuple[str, int], int], Finding | None]:
    """Return the lines of a log dir's checkpoint, and why they cannot be read."""
    name = f"{store.url}/{LOG_START_OFFSET_CHECKPOINT}"
    try:
        return read_offset_checkpoint(_read(store, LOG_START_OFFSET_CHECKPOINT)), None
    except FileNotFoundError:
        return {}, None
    except FormatError as error:
        return {}, Finding(file=name, position=error.position or None, rule="checkpoint", detail=str(error))
    except OSError as error:
        return {}, unreadable(name, error)


def _topic_id_at(store: Store, prefix: str) -> UUID | None:
    try:
        return read_partition_metadata(_read(store, prefix + PARTITION_METADATA)).topic_id
    except (OSError, FormatError):
        return None


def _why_without_id(store: Store, prefix: str) -> str:
    """Return why the topic's id of a folder is not known; empty if it is, or there is no such folder."""
    place = f"{store.url}/{prefix}{PARTITION_METADATA}"
    try:
        read_partition_metadata(_read(store, prefix + PARTITION_METADATA))
    except (FormatError, FileNotFoundError, NotADirectoryError):
        if _has_files(store, prefix):
            return (
                f"{place}: it is missing or malformed, so of which topic the log is is not known. Remedy: copy the "
                "folder whole"
            )
    except OSError as error:
        return f"{place}: {reason_text(error)}. Remedy: see that this user can read it, and start again"
    return ""


def _has_files(store: Store, prefix: str) -> bool:
    try:
        return bool(store.list_level(prefix).objects)
    except OSError:
        return False


def last_epoch(epochs: Sequence[LeaderEpochEntry]) -> int:
    """Return the last of a log's leader epochs; -1, which is before all others, if none is known."""
    return epochs[-1].epoch if epochs else _NO_EPOCH


def read_leader_epochs(store: Store, prefix: str) -> tuple[LeaderEpochEntry, ...]:
    """Return the leader epochs in the partition's folder at *prefix*; none if they are missing or malformed."""
    try:
        return tuple(read_leader_epoch_checkpoint(_read(store, prefix + LEADER_EPOCH_CHECKPOINT)))
    except (OSError, FormatError):
        return ()


def _read(store: Store, key: str) -> bytes:
    return store.read(key, most_bytes=MOST_SMALL_FILE_BYTES)
