"""Names of the files in a partition folder, and of the folders in a log dir.

    <offset>.log .index .timeindex .txnindex   one segment; 20 digits when Kafka writes it
    <offset>.snapshot                          producer snapshot
    <any of them>.deleted .cleaned .swap       leftovers of deletion, compaction, splitting
    <offset>-<epoch>.checkpoint[.part|.deleted]   KRaft snapshot, in __cluster_metadata-0 only
    <topic>-<partition>[.<unique id>-delete|-future|-stray]   folders

Only the text is examined; whether it is a regular file is for the caller to check. Names are read as Kafka
reads them: the number is the text before the first dot, whatever its width, and may be signed.

Kafka: LogFileUtils, LocalLog.parseTopicPartitionName, LogManager.loadLogs,
org.apache.kafka.snapshot.Snapshots.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from functools import lru_cache

from segfmt.errors import FileNameError
from segfmt.java_text import parse_int, parse_long

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
KRAFT_SNAPSHOT_SUFFIX = ".checkpoint"
KRAFT_SNAPSHOT_PART_SUFFIX = ".checkpoint.part"
KRAFT_SNAPSHOT_DELETED_SUFFIX = ".checkpoint.deleted"

LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
REPLICATION_OFFSET_CHECKPOINT = "replication-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT = "cleaner-offset-checkpoint"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
LOCK_FILE = ".lock"
META_PROPERTIES = "meta.properties"
BOOTSTRAP_CHECKPOINT = "bootstrap.checkpoint"
QUORUM_STATE = "quorum-state"
REMOTE_INDEX_CACHE_FOLDER = "remote-log-index-cache"
CLUSTER_METADATA_TOPIC = "__cluster_metadata"
CLUSTER_METADATA_FOLDER = "__cluster_metadata-0"

_WHITE_SPACE = re.compile(r"[ \t\n\x0b\f\r]")
_OFFSET_DIGITS = 20
_EPOCH_DIGITS = 10
_MAX_FOLDER_CHARS = 255
_KNOWN_NAMES = 1 << 10  # a load reads the same names again and again


class FileKind(enum.Enum):
    """What a file name means to the load of a partition, in the order of its checks."""

    DELETED = "deleted"
    CLEANED = "cleaned"
    SWAP = "swap"
    LOG = "log"
    OFFSET_INDEX = "index"
    TIME_INDEX = "timeindex"
    TXN_INDEX = "txnindex"
    SNAPSHOT = "snapshot"
    OTHER = "other"


_KIND_BY_SUFFIX = {
    CLEANED_SUFFIX: FileKind.CLEANED,
    SWAP_SUFFIX: FileKind.SWAP,
    TIME_INDEX_SUFFIX: FileKind.TIME_INDEX,
    TXN_INDEX_SUFFIX: FileKind.TXN_INDEX,
    INDEX_SUFFIX: FileKind.OFFSET_INDEX,
    LOG_SUFFIX: FileKind.LOG,
    SNAPSHOT_SUFFIX: FileKind.SNAPSHOT,
    DELETED_SUFFIX: FileKind.DELETED,
}


@lru_cache(_KNOWN_NAMES)
def file_kind(name: str) -> FileKind:
    """Return what *name* means to the load of a partition; OTHER is never touched by it.

    `.checkpoint.deleted` is not DELETED: the KRaft layer removes those. `partition.metadata`, checkpoints and
    folders are OTHER.

    Kafka: LogLoader.removeTempFilesAndCollectSwapFiles, loadSegmentFiles,
    ProducerStateManager.isSnapshotFile.
    """
    if name.endswith(KRAFT_SNAPSHOT_DELETED_SUFFIX):
        return FileKind.OTHER
    return _KIND_BY_SUFFIX.get(name[name.rfind(".") :], FileKind.OTHER)


def is_written_to(name: str) -> bool:
    """Return whether the load of a partition may write into the file *name*, or give it another name."""
    kind = file_kind(name)
    if kind is FileKind.OTHER:
        return name in (LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA)
    return kind is not FileKind.DELETED


@lru_cache(_KNOWN_NAMES)
def format_offset(offset: int) -> str:
    """Return *offset* as Kafka starts a file name with it: at least 20 digits, the sign in front.

    Kafka: LogFileUtils.filenamePrefixFromOffset. Differs: Kafka asks the JVM's default locale for its digits,
    which are ASCII in nearly all of them.
    """
    return f"{'-' if offset < 0 else ''}{abs(offset):0{_OFFSET_DIGITS}d}"


@lru_cache(_KNOWN_NAMES)
def read_offset(name: str) -> int:
    """Return the offset before the first dot of *name*, int64 (negative is accepted).

    Raises:
        FileNameError: no dot, or no number before it; a broker that reads the name does not start.

    Kafka: LogFileUtils.offsetFromFileName.
    """
    prefix, dot, _ = name.partition(".")
    if not dot:
        raise FileNameError("no dot in the file name", name=name, kafka="StringIndexOutOfBoundsException")
    offset = parse_long(prefix)
    if offset is None:
        raise FileNameError(f"{prefix!r} before the first dot is not an offset (int64)", name=name)
    return offset


def log_name(base_offset: int, suffix: str = "") -> str:
    """Return `<20 digits>.log` plus *suffix* (`.swap`, ...). Kafka: LogFileUtils.logFile."""
    return format_offset(base_offset) + LOG_SUFFIX + suffix


def offset_index_name(base_offset: int, suffix: str = "") -> str:
    """Return `<20 digits>.index` plus *suffix*. Kafka: LogFileUtils.offsetIndexFile."""
    return format_offset(base_offset) + INDEX_SUFFIX + suffix


def time_index_name(base_offset: int, suffix: str = "") -> str:
    """Return `<20 digits>.timeindex` plus *suffix*. Kafka: LogFileUtils.timeIndexFile."""
    return format_offset(base_offset) + TIME_INDEX_SUFFIX + suffix


def txn_index_name(base_offset: int, suffix: str = "") -> str:
    """Return `<20 digits>.txnindex` plus *suffix*. Kafka: LogFileUtils.transactionIndexFile."""
    return format_offset(base_offset) + TXN_INDEX_SUFFIX + suffix


def snapshot_name(offset: int) -> str:
    """Return `<20 digits>.snapshot` for the map end *offset*. Kafka: LogFileUtils.producerSnapshotFile."""
    return format_offset(offset) + SNAPSHOT_SUFFIX


class FolderState(enum.Enum):
    """The state that the end of a partition folder's name stands for."""

    CURRENT = ""
    DELETE = "-delete"
    FUTURE = "-future"
    STRAY = "-stray"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFolder:
    """A folder of a log dir that the broker loads as a log.

    Attributes:
        name: the folder's name on disk.
        topic: as Kafka cuts it out of the name; not checked against the rules for topic names.
        partition: int32; `t-00` and `t-+0` are partition 0, negative numbers are accepted.
        state: what the suffix says.
    """

    name: str
    topic: str
    partition: int
    state: FolderState


def read_folder_name(name: str) -> PartitionFolder:
    """Return topic, partition and state of the folder *name*.

    Raises:
        FileNameError: the name has no such form; the broker does not start while the folder is there.

    Kafka: LocalLog.parseTopicPartitionName.
    """
    state = _folder_state(name)
    stem = name
    if state is not FolderState.CURRENT:
        if not _is_marked(name, state):
            raise _folder_error(name)
        stem = name[: name.rindex(".")]
    topic, dash, number = stem.rpartition("-")
    partition = parse_int(number)
    if not dash or not topic or partition is None:
        raise _folder_error(name)
    return PartitionFolder(name=name, topic=topic, partition=partition, state=state)


def read_log_folder_name(name: str) -> PartitionFolder | None:
    """Return what the broker loads from the folder *name*, None for a folder that it skips.

    Skipped: the cache of remote indexes, and any partition of `__cluster_metadata` in any state.

    Raises:
        FileNameError: as `read_folder_name`.

    Kafka: LogManager.loadLogs.
    """
    if name == REMOTE_INDEX_CACHE_FOLDER:
        return None
    folder = read_folder_name(name)
    return None if folder.topic == CLUSTER_METADATA_TOPIC else folder


def folder_name(
    topic: str, partition: int, *, unique_id: str = "", state: FolderState = FolderState.CURRENT
) -> str:
    """Return the name Kafka gives a log in *state*; *unique_id* is 32 hex digits, unused for CURRENT.

    Kafka: LocalLog.logDirName, logDeleteDirName, logStrayDirName (topic cut to fit 255), logFutureDirName
    (not cut).
    """
    if state is FolderState.CURRENT:
        return f"{topic}-{partition}"
    ending = f"-{partition}.{unique_id}{state.value}"
    if state is FolderState.FUTURE:
        return topic + ending
    return topic[: _MAX_FOLDER_CHARS - len(ending)] + ending


def _is_marked(name: str, state: FolderState) -> bool:
    r"""Return whether *name* is `\S+-\S+\.\S+` and its suffix: as Kafka's pattern, without its backtracking."""
    last_dot = name.rfind(".", 0, len(name) - len(state.value) - 1)
    dash = name.find("-", 1)
    return 0 < dash < last_dot - 1 and _WHITE_SPACE.search(name) is None


def _folder_state(name: str) -> FolderState:
    for state in (FolderState.DELETE, FolderState.FUTURE, FolderState.STRAY):
        if name.endswith(state.value):
            return state
    return FolderState.CURRENT


def _folder_error(name: str) -> FileNameError:
    return FileNameError(
        "its name is neither topic-partition nor topic-partition.uniqueId-delete|-future|-stray; "
        "a broker refuses to start while it lies in a log dir",
        name=name,
        kafka="KafkaException",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KraftSnapshotName:
    """Name of a snapshot of the metadata log.

    Attributes:
        end_offset: first offset that is not in the snapshot, int64.
        epoch: leader epoch of the last offset that is, int32.
        is_partial: still being written when the node stopped (`.part`).
        is_deleted: about to be unlinked (`.deleted`).
    """

    end_offset: int
    epoch: int
    is_partial: bool = False
    is_deleted: bool = False


def read_kraft_snapshot_name(name: str) -> KraftSnapshotName | None:
    """Return what *name* says, None if it is not that of a snapshot of the metadata log at all.

    Raises:
        FileNameError: it ends like one but holds no offset and epoch at the fixed places; the node does not
            start.

    Kafka: Snapshots.parse (fixed columns: 20 characters offset, any separator, 10 characters epoch).
    """
    is_partial = name.endswith(KRAFT_SNAPSHOT_PART_SUFFIX)
    is_deleted = name.endswith(KRAFT_SNAPSHOT_DELETED_SUFFIX)
    if not (is_partial or is_deleted or name.endswith(KRAFT_SNAPSHOT_SUFFIX)):
        return None
    epoch_start, epoch_end = _OFFSET_DIGITS + 1, _OFFSET_DIGITS + 1 + _EPOCH_DIGITS
    end_offset = parse_long(name[:_OFFSET_DIGITS])
    epoch = parse_int(name[epoch_start:epoch_end])
    if len(name) < epoch_end or end_offset is None or epoch is None:
        raise FileNameError("not <20-digit offset>-<10-digit epoch>.checkpoint", name=name)
    return KraftSnapshotName(end_offset=end_offset, epoch=epoch, is_partial=is_partial, is_deleted=is_deleted)


def kraft_snapshot_name(end_offset: int, epoch: int) -> str:
    """Return `<20 digits>-<10 digits>.checkpoint`. Kafka: Snapshots.filenameFromSnapshotId."""
    return f"{end_offset:0{_OFFSET_DIGITS}d}-{epoch:0{_EPOCH_DIGITS}d}{KRAFT_SNAPSHOT_SUFFIX}"
