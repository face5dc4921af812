"""Records of the KRaft metadata log that give the settings of topics and brokers, and the versions of nodes.

    value  frame version uvarint = 1 | api key uvarint | version uvarint | fields of that record

Fields are Kafka's flexible encoding: strings with a uvarint length plus one (0 is null), and after them
tagged fields, (tag, size, bytes) each. Records of other kinds are `OtherRecord`; their fields are not read.

Kafka: MetadataRecordSerde, AbstractApiMessageSerde; the schemas TopicRecord, RemoveTopicRecord, ConfigRecord,
FeatureLevelRecord, RegisterBrokerRecord, RegisterControllerRecord, BeginTransactionRecord, EndTransactionRecord,
AbortTransactionRecord.
"""

from __future__ import annotations

import enum
import functools
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from segfmt.errors import FormatError, MalformedMetadataError
from segfmt.flexible_fields import FlexibleFields, encode_array, encode_string
from segfmt.varint import read_unsigned_varint

FRAME_VERSION = 1
_MOST_REGISTRATION_VERSIONS = {0: 4, 27: 0}
"""Of the registrations of a broker and of a controller, by api key."""


_PARTITION, _PARTITION_CHANGE = 3, 5
_MOST_PARTITION_VERSION = 2
_IN_SYNC_TAG, _LEADER_TAG, _REPLICAS_TAG, _DIRECTORIES_TAG = 0, 1, 2, 8


class ApiKey(enum.IntEnum):
    """The kinds of records that are read here."""

    REGISTER_BROKER = 0
    TOPIC = 2
    CONFIG = 4
    REMOVE_TOPIC = 9
    FEATURE_LEVEL = 12
    BEGIN_TRANSACTION = 23
    END_TRANSACTION = 24
    ABORT_TRANSACTION = 25
    REGISTER_CONTROLLER = 27


class ResourceType(enum.IntEnum):
    """Whose setting a ConfigRecord changes. Kafka: ConfigResource.Type; other numbers occur."""

    TOPIC = 2
    BROKER = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRecord:
    """A topic exists from now on."""

    name: str
    topic_id: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveTopicRecord:
    """A topic and all that belongs to it is gone."""

    topic_id: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRecord:
    """A setting of a resource is changed.

    Attributes:
        resource_type: int8, see `ResourceType`.
        resource_name: topic name; node id, or empty for the default of all brokers.
        name: the key.
        value: None removes the setting.
    """

    resource_type: int
    resource_name: str
    name: str
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureLevelRecord:
    """A feature of the cluster, such as `metadata.version`, has this level (int16) from now on."""

    name: str
    feature_level: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationRecord:
    """A node has started: its broker, which registers once its logs are loaded, or its controller, long before.

    Attributes:
        node_id: int32.
        features: the highest level (int16) of each feature that it knows; what follows is not read.
    """

    node_id: int
    features: Mapping[str, int]
    is_controller: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRecord:
    """A partition exists from now on.

    Attributes:
        partition: int32.
        replicas: int32, node ids of the brokers.
        in_sync: those of them that are in sync.
        directories: ids of the log dirs, one for each replica; none before version 1.
        leader_epoch: int32.
    """

    topic_id: UUID
    partition: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    directories: tuple[UUID, ...]
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionChangeRecord:
    """Something of a partition has changed; None where it has not.

    Attributes:
        has_new_leader: whether a leader was named, or that there is none: the leader epoch is one higher then.
    """

    topic_id: UUID
    partition: int
    replicas: tuple[int, ...] | None
    in_sync: tuple[int, ...] | None
    directories: tuple[UUID, ...] | None
    has_new_leader: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionRecord:
    """Begin, end or abort of a transaction of metadata records; nothing of an aborted one counts."""

    api_key: ApiKey


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherRecord:
    """A record that has nothing to do with settings."""

    api_key: int
    version: int


MetadataRecord = (
    TopicRecord
    | RemoveTopicRecord
    | ConfigRecord
    | FeatureLevelRecord
    | RegistrationRecord
    | PartitionRecord
    | PartitionChangeRecord
    | TransactionRecord
    | OtherRecord
)


def read_metadata_record(value: bytes) -> MetadataRecord:
    """Return what the value of a data record of the metadata log says.

    Raises:
        MalformedMetadataError: another frame version, an unknown version of a record, or bytes
            that do not fit the schema. The node does not start on such a log.

    Kafka: AbstractApiMessageSerde.read.
    """
    is_short = len(value) > 2 and value[0] == FRAME_VERSION and value[1] < 0x80 and value[2] < 0x80
    if is_short and value[1] not in _KNOWN_KEYS:  # nearly every record of a large cluster
        return _other_record(value[1], value[2])
    return _read_framed(value)


def _read_framed(value: bytes) -> MetadataRecord:
    try:
        frame_version, position = read_unsigned_varint(value, 0)
        api_key, position = read_unsigned_varint(value, position)
        version, position = read_unsigned_varint(value, position)
    except FormatError as error:
        raise MalformedMetadataError(f"frame: {error}", position=error.position) from error
    if frame_version != FRAME_VERSION:
        raise MalformedMetadataError(f"frame version {frame_version}, expected {FRAME_VERSION}")
    if api_key not in _KNOWN_KEYS:
        return _other_record(api_key, version)
    if api_key in _MOST_REGISTRATION_VERSIONS:
        return _read_registration(value, position, api_key, version)
    if version != 0:
        raise MalformedMetadataError(f"{ApiKey(api_key).name} record of version {version}, expected 0")
    fields = FlexibleFields(value, position)
    try:
        record = _read_fields(ApiKey(api_key), fields)
        fields.skip_tagged()
    except FormatError as error:
        raise MalformedMetadataError(
            f"{ApiKey(api_key).name} record: {error}", position=error.position
        ) from error
    if fields.position != len(value):
        raise MalformedMetadataError(
            f"{len(value) - fields.position} bytes after a {ApiKey(api_key).name} record",
            position=fields.position,
        )
    return record


def read_assignment_record(value: bytes) -> MetadataRecord:
    """Return what a record says, those of partitions included, which `read_metadata_record` passes over.

    Raises:
        MalformedMetadataError: as `read_metadata_record`.

    Kafka: PartitionRecord, PartitionChangeRecord.
    """
    if len(value) < 3 or value[0] != FRAME_VERSION or value[1] not in (_PARTITION, _PARTITION_CHANGE):
        return read_metadata_record(value)
    if value[2] > _MOST_PARTITION_VERSION:
        raise MalformedMetadataError(f"a record of a partition of version {value[2]}, expected 0 to 2")
    fields = FlexibleFields(value, 3)
    try:
        if value[1] == _PARTITION:
            return _read_partition(fields, has_directories=value[2] > 0)
        return _read_partition_change(fields)
    except FormatError as error:
        raise MalformedMetadataError(f"record of a partition: {error}", position=error.position) from error


def _read_partition(fields: FlexibleFields, *, has_directories: bool) -> PartitionRecord:
    def number() -> int:
        return fields.signed(4)

    partition, topic_id = number(), fields.uuid()
    replicas, in_sync = fields.array(number), fields.array(number)
    for _ in range(2):  # being removed, being added
        fields.array(number)
    _, leader_epoch, _ = number(), number(), number()
    return PartitionRecord(
        topic_id=topic_id,
        partition=partition,
        replicas=tuple(replicas),
        in_sync=tuple(in_sync),
        directories=tuple(fields.array(fields.uuid)) if has_directories else (),
        leader_epoch=leader_epoch,
    )


def _read_partition_change(fields: FlexibleFields) -> PartitionChangeRecord:
    partition, topic_id, tagged = fields.signed(4), fields.uuid(), fields.tagged()

    def node_ids(tag: int) -> tuple[int, ...] | None:
        if tag not in tagged:
            return None
        nodes = FlexibleFields(tagged[tag])
        return tuple(nodes.array(lambda: nodes.signed(4)))

    directories = FlexibleFields(tagged[_DIRECTORIES_TAG]) if _DIRECTORIES_TAG in tagged else None
    return PartitionChangeRecord(
        topic_id=topic_id,
        partition=partition,
        replicas=node_ids(_REPLICAS_TAG),
        in_sync=node_ids(_IN_SYNC_TAG),
        directories=None if directories is None else tuple(directories.array(directories.uuid)),
        has_new_leader=_LEADER_TAG in tagged,
    )


def _read_registration(value: bytes, position: int, api_key: int, version: int) -> MetadataRecord:
    """Return the registration of a broker or a controller; one of an unknown version says nothing."""
    if version > _MOST_REGISTRATION_VERSIONS[api_key]:
        return _other_record(api_key, version)
    is_controller = api_key == ApiKey.REGISTER_CONTROLLER
    fields = FlexibleFields(value, position)

    def endpoint() -> None:
        fields.text(), fields.text(), fields.take(2 + 2)  # name, host, port, protocol
        fields.skip_tagged()

    def feature() -> tuple[str, int]:
        name, _, most = fields.text(), fields.signed(2), fields.signed(2)
        fields.skip_tagged()
        return name, most

    try:
        node_id = fields.signed(4)
        # Its incarnation, whether it comes from ZooKeeper, a broker's epoch
        fields.take(16 + 1 if is_controller else (version >= 2) + 16 + 8)
        fields.array(endpoint)
        features = dict(fields.array(feature))
    except FormatError as error:
        raise MalformedMetadataError(
            f"{ApiKey(api_key).name} record: {error}", position=error.position
        ) from error
    return RegistrationRecord(node_id=node_id, features=features, is_controller=is_controller)


def encode_metadata_record(record: MetadataRecord) -> bytes:
    """Return the value that holds *record*; `OtherRecord` does not keep its fields and is refused."""
    if isinstance(record, TopicRecord):
        return _frame(ApiKey.TOPIC, encode_string(record.name) + record.topic_id.bytes)
    if isinstance(record, RemoveTopicRecord):
        return _frame(ApiKey.REMOVE_TOPIC, record.topic_id.bytes)
    if isinstance(record, ConfigRecord):
        strings = (record.resource_name, record.name, record.value)
        body = record.resource_type.to_bytes(1, "big", signed=True) + b"".join(map(encode_string, strings))
        return _frame(ApiKey.CONFIG, body)
    if isinstance(record, FeatureLevelRecord):
        level = record.feature_level.to_bytes(2, "big", signed=True)
        return _frame(ApiKey.FEATURE_LEVEL, encode_string(record.name) + level)
    if isinstance(record, TransactionRecord):
        return _frame(record.api_key, b"")
    if isinstance(record, RegistrationRecord):
        features = (
            encode_string(name) + struct.pack(">hh", 1, most) + b"\x00"
            for name, most in record.features.items()
        )
        body = encode_array(()) + encode_array(features)
        if record.is_controller:
            return _frame(ApiKey.REGISTER_CONTROLLER, struct.pack(">i17x", record.node_id) + body)
        broker = struct.pack(">i24x", record.node_id) + body + encode_string(None) + b"\x00"
        return _frame(ApiKey.REGISTER_BROKER, broker)
    if isinstance(record, PartitionRecord | PartitionChangeRecord):
        raise MalformedMetadataError("records of partitions are only read")
    raise MalformedMetadataError(f"the fields of a record with api key {record.api_key} are not known")


_KNOWN_KEYS = frozenset(int(key) for key in ApiKey)


@functools.lru_cache(maxsize=256)
def _other_record(api_key: int, version: int) -> OtherRecord:
    return OtherRecord(api_key=api_key, version=version)


def _read_fields(api_key: ApiKey, fields: FlexibleFields) -> MetadataRecord:
    if api_key is ApiKey.TOPIC:
        return TopicRecord(name=fields.text(), topic_id=fields.uuid())
    if api_key is ApiKey.REMOVE_TOPIC:
        return RemoveTopicRecord(topic_id=fields.uuid())
    if api_key is ApiKey.CONFIG:
        return ConfigRecord(
            resource_type=fields.signed(1),
            resource_name=fields.text(),
            name=fields.text(),
            value=fields.string(),
        )
    if api_key is ApiKey.FEATURE_LEVEL:
        return FeatureLevelRecord(name=fields.text(), feature_level=fields.signed(2))
    return TransactionRecord(api_key=api_key)


def _frame(api_key: ApiKey, body: bytes) -> bytes:
    return bytes([FRAME_VERSION, api_key, 0]) + body + b"\x00"
