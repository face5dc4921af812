"""The small files of a partition's folder, read from its tree.

What Kafka throws for them stops the broker or takes the log dir offline: the refusals here say which, with a remedy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from recovery.errors import PartitionRefusedError
from recovery.load.leader_epochs import LeaderEpochs
from recovery.load.model import PartitionTask
from recovery.load.segments import Segment
from recovery.load.tree import PartitionTree
from segfmt.checkpoint import LeaderEpochEntry, read_leader_epoch_checkpoint
from segfmt.errors import CorruptIndexError, FormatError, MalformedCheckpointError
from segfmt.filenames import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA
from segfmt.kafka_uuid import format_uuid
from segfmt.partition_metadata import read_partition_metadata
from segfmt.transaction_index import ENTRY_BYTES, check_transaction_index

_TXN_INDEX_PIECE_BYTES = ENTRY_BYTES << 15  # a broker goes through it entry by entry, however long it is
_KNOWN_FILES, _MOST_KNOWN_BYTES = 64, 4 << 10
# Those of a folder are read twice, and the partitions of a topic often have identical ones.
_epoch_entries = lru_cache(_KNOWN_FILES)(read_leader_epoch_checkpoint)
_partition_metadata = lru_cache(_KNOWN_FILES)(read_partition_metadata)


def txn_index_problem(tree: PartitionTree, segment: Segment, *, is_low_byte_read: bool) -> str | None:
    """Return why the transaction index requires a recovery of *segment*, None if it does not.

    Args:
        is_low_byte_read: as in `check_transaction_index`.

    Raises:
        PartitionRefusedError: it stops the broker.

    Kafka: TransactionIndex.sanityCheck, the only index check of a load.
    """
    try:
        _check_txn_index(tree, segment, is_low_byte_read=is_low_byte_read)
    except CorruptIndexError as error:
        return str(error)
    except FormatError as error:
        original = tree.original(segment.txn_index)
        raise PartitionRefusedError(
            file=segment.txn_index if original is None else original.file,
            position=error.position,
            rule="transaction-index",
            detail=f"{error} ({error.kafka} stops the broker)",
            remedy="move the transaction index and the segment's .index away: both are rebuilt from the log",
        ) from error
    return None


def stops_later_releases(tree: PartitionTree, segment: Segment) -> str | None:
    """Return why a transaction index that a broker of 4.3 passes stops one of 4.4, None if it does not."""
    try:
        _check_txn_index(tree, segment, is_low_byte_read=True)
    except CorruptIndexError:
        return None
    except FormatError as error:
        return (
            f"{segment.txn_index}: {error}: it stops a broker of 4.4 or later. Remedy: before an upgrade, "
            "recover with --release 4.4 --repair"
        )
    return None


def _check_txn_index(tree: PartitionTree, segment: Segment, *, is_low_byte_read: bool) -> None:
    if segment.txn_index not in tree or not tree.size_bytes(segment.txn_index):
        return
    position = 0
    for piece in tree.pieces(segment.txn_index, _TXN_INDEX_PIECE_BYTES):
        check_transaction_index(
            piece, segment.base_offset, start_position=position, is_low_byte_read=is_low_byte_read
        )
        position += len(piece)


def read_epochs(tree: PartitionTree) -> LeaderEpochs:
    """Return the epochs in `leader-epoch-checkpoint`; if there is no such file, Kafka makes an empty one.

    Raises:
        PartitionRefusedError: it is malformed.

    Kafka: UnifiedLog.createLeaderEpochCache, CheckpointFile constructor.
    """
    if LEADER_EPOCH_CHECKPOINT not in tree:
        tree.put(LEADER_EPOCH_CHECKPOINT, b"")
        return LeaderEpochs()
    remedy = "move the file away: a new one is made from the segments that are recovered"
    try:
        return LeaderEpochs(epoch_entries(tree.read(LEADER_EPOCH_CHECKPOINT)))
    except MalformedCheckpointError as error:
        raise _refused_small_file(LEADER_EPOCH_CHECKPOINT, error, remedy) from error


def epoch_entries(data: bytes) -> Sequence[LeaderEpochEntry]:
    """Return the lines of `leader-epoch-checkpoint`.

    Raises:
        MalformedCheckpointError: a broker does not load a log with it.

    Kafka: LeaderEpochCheckpointFile.Formatter.fromString, EpochEntry, LeaderEpochFileCache.assign.
    """
    is_small = len(data) <= _MOST_KNOWN_BYTES
    entries = _epoch_entries(data) if is_small else read_leader_epoch_checkpoint(data)
    if any(epoch < 0 or start_offset < 0 for epoch, start_offset in entries):
        raise MalformedCheckpointError(
            "a negative epoch or offset", takes_dir_offline=False, kafka="IllegalArgumentException"
        )
    return entries


def read_topic_id(tree: PartitionTree, known: str | None = None) -> str | None:
    """Return the topic's id in `partition.metadata`, 22 characters; None without that file.

    Args:
        known: the topic's id in the cluster, for the remedy; empty or None if there is none.

    Raises:
        PartitionRefusedError: it is malformed.

    Kafka: UnifiedLog.initializeTopicId.
    """
    if PARTITION_METADATA not in tree:
        return None
    try:
        data = tree.read(PARTITION_METADATA)
        is_small = len(data) <= _MOST_KNOWN_BYTES
        return format_uuid((_partition_metadata if is_small else read_partition_metadata)(data).topic_id)
    except MalformedCheckpointError as error:
        remedy = f"{partition_metadata_text(known)} into it, or copy it from another replica"
        raise _refused_small_file(PARTITION_METADATA, error, remedy) from error


def partition_metadata_text(known: str | None) -> str:
    """Return what to write into `partition.metadata`, as the beginning of a remedy; *known*: as of `read_topic_id`."""
    found = "" if known else ", its TopicId in kafka-topics --describe,"
    return f"write the two lines 'version: 0' and 'topic_id: {known or 'ID'}'{found}"


def stray_reasons(task: PartitionTask, topic_id: str | None) -> Iterator[str]:
    """Yield why a broker will set a log aside whose `partition.metadata` has *topic_id*.

    Differs: which brokers the partition is assigned to is not looked at.

    Kafka: BrokerMetadataPublisher.initializeManagers, LogManager.isStrayReplica.
    """
    known = task.settings.topic_id
    if task.is_delete_folder or task.is_stray_folder:
        return
    if topic_id is None:
        reason = f"no {PARTITION_METADATA}"
    elif known in (None, topic_id):
        return
    elif known:
        reason = f"it is of a topic with the id {topic_id}, and the metadata log has one with the id {known}"
    else:
        reason = "the metadata log has no topic of this name"
    yield f"{reason}: a broker renames this folder to -stray once it has loaded it"


def _refused_small_file(file: str, error: MalformedCheckpointError, remedy: str) -> PartitionRefusedError:
    outcome = "takes the log dir offline" if error.takes_dir_offline else "stops the broker"
    return PartitionRefusedError(
        file=file,
        position=error.position or None,
        rule="epoch-checkpoint" if file == LEADER_EPOCH_CHECKPOINT else "topic-id",
        detail=f"{error} ({error.kafka} {outcome})",
        remedy=remedy,
    )
