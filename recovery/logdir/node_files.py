"""What a KRaft node reads before its logs, in the log dir with the metadata log: damaged, it stops the node.

Kafka: KafkaRaftServer.initializeLogDirs, BootstrapDirectory, FileQuorumStateStore, PartitionMetadataFile,
UnifiedLog.createLeaderEpochCache.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Literal, NamedTuple

from native.crc32c import crc32c_of_bytes
from recovery.broker.cluster_metadata import METADATA_VERSION
from recovery.errors import reason_text
from recovery.load.small_files import epoch_entries, partition_metadata_text
from recovery.logdir.user import access_remedy
from recovery.problem import Problem
from recovery.read.file_system import is_there, read_small
from segfmt.errors import FormatError
from segfmt.filenames import (
    BOOTSTRAP_CHECKPOINT,
    CLUSTER_METADATA_FOLDER,
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    QUORUM_STATE,
)
from segfmt.meta_properties import MetaProperties
from segfmt.metadata_log import MetadataLogReader
from segfmt.metadata_record import FeatureLevelRecord
from segfmt.partition_metadata import read_partition_metadata

_METADATA_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
_MOST_BYTES = 16 << 20
_STATE_VERSIONS = (0, 1)

NodeRule = Literal["bootstrap-checkpoint", "quorum-state", "topic-id", "epoch-checkpoint"]


class NodeFault(NamedTuple):
    """What is wrong with one of the files; `file` is its path in the log dir."""

    file: str
    rule: NodeRule
    detail: str
    remedy: str

    def problem(self) -> Problem:
        """Return it as a problem of the log dir."""
        return Problem(file=self.file, rule=self.rule, detail=self.detail, remedy=self.remedy)


def node_faults(log_dir: str) -> Iterator[NodeFault]:
    """Yield what in *log_dir*, which has the metadata log, keeps its node from starting, though logs can be recovered.

    Differs: of `quorum-state` the fields that all versions have are looked at.
    """
    quorum_state = os.path.join(CLUSTER_METADATA_FOLDER, QUORUM_STATE)
    epochs = os.path.join(CLUSTER_METADATA_FOLDER, LEADER_EPOCH_CHECKPOINT)
    partition_metadata = os.path.join(CLUSTER_METADATA_FOLDER, PARTITION_METADATA)
    judged: tuple[tuple[str, NodeRule, Callable[[bytes], str | None], str], ...] = (
        (
            BOOTSTRAP_CHECKPOINT,
            "bootstrap-checkpoint",
            _bootstrap_fault,
            "copy it from another node, or remove it: only a new cluster needs it",
        ),
        (
            quorum_state,
            "quorum-state",
            _quorum_fault,
            "restore it from a backup, or remove it: a controller forgets its vote with it",
        ),
        (
            partition_metadata,
            "topic-id",
            _topic_id_fault,
            f"remove it, or {partition_metadata_text(_METADATA_TOPIC_ID)} into it",
        ),
        (
            epochs,
            "epoch-checkpoint",
            _epochs_fault,
            "restore it from a backup, or move it away: the node makes a new one",
        ),
    )
    for name, rule, fault_of, remedy in judged:
        path = os.path.join(log_dir, name)
        try:
            fault = fault_of(read_small(path, _MOST_BYTES)) if is_there(path) else None
        except OSError as error:
            fault = f"{reason_text(error)} (IOException stops the node)"
            remedy = access_remedy(path) if isinstance(error, PermissionError) else remedy
        if fault is not None:
            yield NodeFault(name, rule, fault, remedy)


def is_nameless_voter(log_dir: str, meta: MetaProperties) -> bool:
    """Return whether the node is known to vote by the directory.id of *log_dir*, and its `meta.properties` has none.

    Differs: of a voter that neither led nor voted last, it is not known.

    Kafka: ReplicaKey, QuorumState.
    """
    if meta.directory_id is not None or meta.node_id is None:
        return False
    with suppress(OSError, ValueError, RecursionError):
        state = json.loads(
            read_small(os.path.join(log_dir, CLUSTER_METADATA_FOLDER, QUORUM_STATE), _MOST_BYTES)
        )
        if isinstance(state, dict) and state.get("data_version") == 1:  # of a dynamic quorum
            return meta.node_id in (state.get("leaderId"), state.get("votedId"))
    return False


def _bootstrap_fault(data: bytes) -> str | None:
    reader = MetadataLogReader(data, crc32c=crc32c_of_bytes)
    try:
        records = [record for batch in reader.batches() for record in batch.records]
    except FormatError as error:
        return f"{error} ({error.kafka} stops the node)"
    if any(isinstance(record, FeatureLevelRecord) and record.name == METADATA_VERSION for record in records):
        return None
    why = "" if reader.damage is None else f": {reader.damage}"
    return f"no {METADATA_VERSION} in it{why} (RuntimeException stops the node)"


def _quorum_fault(data: bytes) -> str | None:
    line = data.partition(b"\n")[0]
    if not line.strip():
        return "empty (EOFException stops the node)"
    try:
        state = json.loads(line)
    except (ValueError, RecursionError):
        return "no JSON (JsonParseException stops the node)"
    if not isinstance(state, dict):
        return "no JSON object (IOException stops the node)"
    if state.get("data_version") not in _STATE_VERSIONS:
        return f"data_version is {state.get('data_version')!r}, and not 0 or 1 (IllegalStateException stops the node)"
    missing = [
        name for name in ("leaderId", "leaderEpoch", "votedId") if not isinstance(state.get(name), int)
    ]
    return f"no {missing[0]} (RuntimeException stops the node)" if missing else None


def _epochs_fault(data: bytes) -> str | None:
    try:
        epoch_entries(data)
    except FormatError as error:
        return f"{error} ({error.kafka} stops the node)"
    return None


def _topic_id_fault(data: bytes) -> str | None:
    try:
        read_partition_metadata(data)
    except FormatError as error:
        return f"{error} ({error.kafka} stops the node)"
    return None
