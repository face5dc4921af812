"""What the KRaft metadata log says of topics and settings to a broker that loads its logs.

Topics and their settings: the newest snapshot and every sound batch after it. The broker waits for the
committed end of the log before it loads; this node's own copy up to the first torn or damaged batch is what
can be known offline. In a quorum of several controllers the last batches may not be committed, and others may
be missing; what could differ is a setting that was changed in the moments before the crash.

Settings of brokers: from the snapshot ALONE. A 4.3.1 broker takes them from there before it makes its
LogManager, and applies what comes after the snapshot only once it has loaded its logs. (This matters for its
bytes; later segments follow the newer settings.)

Kafka: MetadataLoader, MetadataBatchLoader, ConfigurationsDelta,
DynamicBrokerConfig.readDynamicBrokerConfigsFromSnapshot, BrokerMetadataPublisher.onMetadataUpdate
(initializeManagers comes before dynamicConfigPublisher).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from segfmt import crc32c as plain
from segfmt.byte_layout import NO_TIMESTAMP_MS
from segfmt.entry_view import Buffer
from segfmt.errors import MalformedMetadataError
from segfmt.metadata_log import BytesOnDisk, MetadataBatch, MetadataLogReader, check_kraft_snapshot
from segfmt.metadata_record import (
    ApiKey,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    RegistrationRecord,
    RemoveTopicRecord,
    ResourceType,
    TopicRecord,
    TransactionRecord,
)

MAX_READ_BYTES = 8 * 1024 * 1024
"""How much of the metadata log a node reads at once. Kafka: KafkaRaftClient.MAX_FETCH_SIZE_BYTES."""

METADATA_VERSION = "metadata.version"
Configs = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterMetadata:
    """Topics and settings of a cluster.

    Attributes:
        topic_ids: by topic name.
        topic_configs: own settings by topic name; topics without any are left out.
        cluster_default: dynamic settings of all brokers that are in force while logs are loaded.
        brokers: dynamic settings of one broker, by node id, in force while logs are loaded.
        cluster_default_after_load: the same as they are once the broker runs.
        brokers_after_load: the same as they are once the broker runs.
        metadata_version: the level of the feature metadata.version; None if it is not set.
        node_versions: the highest one that each node knew when it last registered, as broker or controller, by node id.
        end_offset: int64, the offset after the last batch that was read; 0 if there is none.
        max_timestamp_ms: int64, when the last batch was written; -1 if there is none.
        damage: why the log's last bytes were not read, None if all were.
    """

    topic_ids: Mapping[str, UUID] = field(default_factory=dict)
    topic_configs: Mapping[str, Configs] = field(default_factory=dict)
    cluster_default: Configs = field(default_factory=dict)
    brokers: Mapping[str, Configs] = field(default_factory=dict)
    cluster_default_after_load: Configs = field(default_factory=dict)
    brokers_after_load: Mapping[str, Configs] = field(default_factory=dict)
    metadata_version: int | None = None
    node_versions: Mapping[int, int] = field(default_factory=dict)
    end_offset: int = 0
    max_timestamp_ms: int = NO_TIMESTAMP_MS
    damage: str | None = None

    def broker(self, node_id: int | None) -> Configs:
        """Return the dynamic settings of broker *node_id* that are in force while logs are loaded."""
        return self.brokers.get(str(node_id), {})


def read_cluster_metadata(
    checkpoint: Buffer | BytesOnDisk | None,
    segments: Iterable[Buffer | BytesOnDisk],
    *,
    checkpoint_end_offset: int = 0,
    crc32c: Callable[[bytes], int] = plain.crc32c,
) -> ClusterMetadata:
    """Return what a snapshot of the metadata log and the log after it say.

    Args:
        checkpoint: the newest finished `*.checkpoint`, None if there is none.
        segments: the log's segments by base offset. They end at the first torn or damaged batch, like the log
            when the node has recovered it.
        checkpoint_end_offset: the offset in the snapshot's name; records below it are not applied again.
        crc32c: CRC-32C of bytes; pass a fast one.

    Raises:
        CorruptBatchError: the snapshot is damaged; the node does not start.
        MalformedMetadataError: a sound batch holds no metadata records, or the log does not begin where the
            snapshot ends.
    """
    state = _State()
    max_timestamp_ms = NO_TIMESTAMP_MS
    if checkpoint is not None:
        snapshot = MetadataLogReader(checkpoint, crc32c=crc32c)
        for batch in snapshot.batches():
            state.replay(batch, 0)
        check_kraft_snapshot(snapshot, end_offset=checkpoint_end_offset)
        state.flush()
        max_timestamp_ms = snapshot.max_timestamp_ms
    at_load = state.broker_configs()
    end_offset, damage = checkpoint_end_offset, None
    is_begun = False
    for segment in segments:
        part = MetadataLogReader(segment, crc32c=crc32c, from_offset=checkpoint_end_offset)
        state.replay_segment(part.batches(), checkpoint_end_offset)
        if not is_begun and part.first_offset is not None:
            _check_beginning(part.first_offset, checkpoint_end_offset)
            is_begun = True
        end_offset = max(end_offset, part.next_offset or 0)
        max_timestamp_ms = max(max_timestamp_ms, part.max_timestamp_ms)
        damage = part.damage
        if damage is not None:
            break
    after_load = state.broker_configs()
    return ClusterMetadata(
        topic_ids=dict(state.topic_ids),
        topic_configs=state.topic_configs(),
        cluster_default=at_load.pop("", {}),
        brokers=at_load,
        cluster_default_after_load=after_load.pop("", {}),
        brokers_after_load=after_load,
        metadata_version=state.metadata_version,
        node_versions=state.node_versions,
        end_offset=end_offset,
        max_timestamp_ms=max_timestamp_ms,
        damage=damage,
    )


def _check_beginning(first_offset: int, checkpoint_end_offset: int) -> None:
    if first_offset > checkpoint_end_offset:
        raise MalformedMetadataError(
            f"the metadata log begins at offset {first_offset}, and its newest snapshot ends at "
            f"{checkpoint_end_offset}; the node does not start",
            kafka="IllegalStateException",
        )


_Resource = tuple[int, str]


class _State:
    """The image of topics and settings, and the changes that are not yet part of it.

    Changes are collected over one read and applied together, and Kafka misses something in that: the settings of a
    topic that is created, configured and removed within one read stay, and apply to a new topic of that name. This is
    copied here, because the broker builds that topic's indexes with them.

    Kafka: ConfigurationsDelta.replay(RemoveTopicRecord).
    """

    def __init__(self) -> None:
        self.topic_ids: dict[str, UUID] = {}
        self._names: dict[UUID, str] = {}
        self._configs: dict[_Resource, dict[str, str]] = {}
        self._changes: dict[_Resource, dict[str, str | None]] = {}
        self._topic_changes: list[TopicRecord | RemoveTopicRecord] = []
        self._is_in_transaction = False
        self.metadata_version: int | None = None
        self.node_versions: dict[int, int] = {}

    def replay_segment(self, batches: Iterable[MetadataBatch], from_offset: int) -> None:
        """Apply what a segment changes as a node that reads it does: at most 8 MiB at once, or one batch."""
        read_bytes = 0
        for batch in batches:
            if read_bytes and read_bytes + batch.size_bytes > MAX_READ_BYTES:
                self.flush()
                read_bytes = 0
            self.replay(batch, from_offset)
            read_bytes += batch.size_bytes
        self.flush()

    def replay(self, batch: MetadataBatch, from_offset: int) -> None:
        """Note what the records from *from_offset* on change."""
        for number, record in enumerate(batch.records):
            if batch.base_offset + number >= from_offset:
                self._replay(record)

    def flush(self) -> None:
        """Apply what has been noted, unless a transaction is open. Kafka: MetadataBatchLoader."""
        if not self._is_in_transaction:
            self._apply()

    def topic_configs(self) -> dict[str, Configs]:
        return {
            name: dict(configs)
            for (resource_type, name), configs in self._configs.items()
            if resource_type == ResourceType.TOPIC and name in self.topic_ids
        }

    def broker_configs(self) -> dict[str, Configs]:
        return {
            name: dict(configs)
            for (resource_type, name), configs in self._configs.items()
            if resource_type == ResourceType.BROKER
        }

    def _replay(self, record: MetadataRecord) -> None:
        if isinstance(record, TransactionRecord):
            self._replay_transaction(record.api_key)
        elif isinstance(record, ConfigRecord):
            resource = (record.resource_type, record.resource_name)
            self._changes.setdefault(resource, {})[record.name] = record.value
        elif isinstance(record, FeatureLevelRecord) and record.name == METADATA_VERSION:
            self.metadata_version = record.feature_level
        elif isinstance(record, RegistrationRecord) and METADATA_VERSION in record.features:
            self.node_versions[record.node_id] = record.features[METADATA_VERSION]
        elif isinstance(record, TopicRecord):
            self._names[record.topic_id] = record.name
            self._topic_changes.append(record)
        elif isinstance(record, RemoveTopicRecord):
            self._topic_changes.append(record)
            resource = (int(ResourceType.TOPIC), self._names.get(record.topic_id, ""))
            if resource in self._configs:
                self._changes[resource] = dict.fromkeys(self._configs[resource])

    def _replay_transaction(self, api_key: ApiKey) -> None:
        if api_key is ApiKey.BEGIN_TRANSACTION:
            self._apply()
        elif api_key is ApiKey.ABORT_TRANSACTION:
            self._changes.clear()
            self._topic_changes.clear()
        self._is_in_transaction = api_key is ApiKey.BEGIN_TRANSACTION

    def _apply(self) -> None:
        for change in self._topic_changes:
            if isinstance(change, TopicRecord):
                self.topic_ids[change.name] = change.topic_id
            elif self.topic_ids.get(name := self._names.pop(change.topic_id, "")) == change.topic_id:
                del self.topic_ids[name]
        for resource, changed in self._changes.items():
            configs = self._configs.setdefault(resource, {})
            for name, value in changed.items():
                if value is None:
                    configs.pop(name, None)
                else:
                    configs[name] = value
            if not configs:
                del self._configs[resource]
        self._topic_changes.clear()
        self._changes.clear()
