"""Records of the topic `__remote_log_metadata`: which segments of which partitions are in remote storage.

    value       frame version uvarint = 1 | api key uvarint | version uvarint = 0 | fields of that record
    0 segment   segment id, start offset i64, end offset i64, broker i32, max timestamp i64, event time i64,
                epochs [(epoch i32, start offset i64)], size i32, custom metadata, state i8, {0: no aborted txn}
    1 update    segment id, broker i32, event time i64, custom metadata, state i8
    2 deletion  topic partition, broker i32, event time i64, state i8
    3 snapshot  uuid, then as 0 from the start offset on; not written to the topic
    segment id  topic partition (topic, topic id, partition i32), uuid

Fields are flexible ones, see `flexible_fields`; every struct ends with tagged fields, and unknown ones are
skipped. The end offset is the last one in the segment. An update names its segment by the uuid alone: the
offsets are in the record that announced the segment. Records have no key.

Kafka: RemoteLogMetadataSerde, its transforms, and the schemas RemoteLogSegmentMetadataRecord,
RemoteLogSegmentMetadataUpdateRecord, RemotePartitionDeleteMetadataRecord, RemoteLogSegmentMetadataSnapshotRecord.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from uuid import UUID

from segfmt.checkpoint import LeaderEpochEntry
from segfmt.errors import FormatError, MalformedRemoteMetadataError
from segfmt.flexible_fields import FlexibleFields, encode_array, encode_octets, encode_string, encode_tagged
from segfmt.varint import read_unsigned_varint

TOPIC = "__remote_log_metadata"
FRAME_VERSION = 1
_TRANSACTION_INDEX_EMPTY_TAG = 0
_FIGURES = Struct(">qqiqq")
"""Start offset, end offset, broker, largest timestamp, time of the event."""
_EPOCH = Struct(">iq")
_OWNER_ID_BYTES = 16 + 4
"""Topic id and partition."""


class RemoteApiKey(enum.IntEnum):
    """The kinds of records. Kafka: the `apiKey` of the schemas."""

    SEGMENT = 0
    UPDATE = 1
    PARTITION_DELETE = 2
    SNAPSHOT = 3


class RemoteSegmentState(enum.IntEnum):
    """The state of a segment. Kafka: RemoteLogSegmentState."""

    COPY_SEGMENT_STARTED = 0
    COPY_SEGMENT_FINISHED = 1
    DELETE_SEGMENT_STARTED = 2
    DELETE_SEGMENT_FINISHED = 3


class RemotePartitionDeleteState(enum.IntEnum):
    """The state of the deletion of a partition. Kafka: RemotePartitionDeleteState."""

    DELETE_PARTITION_MARKED = 0
    DELETE_PARTITION_STARTED = 1
    DELETE_PARTITION_FINISHED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class RemotePartition:
    """A partition, with the id of its topic. Kafka: TopicIdPartition."""

    topic: str
    topic_id: UUID
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSegment:
    """A segment in remote storage. Kafka: RemoteLogSegmentMetadata.

    Attributes:
        owner: whose segment it is; None in what was read from a snapshot record, which does not say.
        segment_id: a new one for each attempt to copy a segment.
        start_offset: int64, not negative.
        end_offset: int64, of the last record, at least `start_offset`.
        broker_id: who wrote this event, int32.
        max_timestamp_ms: int64, the largest in the segment; -1 if no batch has one.
        event_timestamp_ms: int64.
        leader_epochs: at least one, ascending by epoch, the first from the start offset on.
        size_bytes: of the `.log`, int32.
        custom_metadata: what the storage plugin asked Kafka to keep.
        state: see there.
        has_no_transactions: whether its transaction index is empty. False in records of brokers before 4.0.
    """

    owner: RemotePartition | None
    segment_id: UUID
    start_offset: int
    end_offset: int
    broker_id: int
    max_timestamp_ms: int
    event_timestamp_ms: int
    leader_epochs: tuple[LeaderEpochEntry, ...]
    size_bytes: int
    custom_metadata: bytes | None = None
    state: RemoteSegmentState = RemoteSegmentState.COPY_SEGMENT_STARTED
    has_no_transactions: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSegmentUpdate:
    """The state of a segment has changed. Kafka: RemoteLogSegmentMetadataUpdate."""

    owner: RemotePartition
    segment_id: UUID
    broker_id: int
    event_timestamp_ms: int
    state: RemoteSegmentState
    custom_metadata: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemotePartitionDelete:
    """A partition is to be deleted, or is. No broker up to 4.3 writes it. Kafka: RemotePartitionDeleteMetadata."""

    owner: RemotePartition
    broker_id: int
    event_timestamp_ms: int
    state: RemotePartitionDeleteState


RemoteLogMetadata = RemoteSegment | RemoteSegmentUpdate | RemotePartitionDelete


def read_remote_log_metadata(value: bytes) -> RemoteLogMetadata:
    """Return what the value of a record of `__remote_log_metadata` says.

    Raises:
        MalformedRemoteMetadataError: another frame version or api key, an unknown version of a record, bytes
            that do not fit the schema, or an impossible segment (offsets, epochs, state).

    Kafka: RemoteLogMetadataSerde.deserialize, RemoteLogSegmentMetadata. Differs: a tagged flag of another size
    than one byte is refused here; Kafka reads one byte and continues within the field. Snapshot records are
    checked by the rules for segments; Kafka does not check them.
    """
    try:
        fields, read = _open(value)
        record = read(fields)
    except MalformedRemoteMetadataError:
        raise
    except FormatError as error:
        raise MalformedRemoteMetadataError(str(error), position=error.position) from error
    if fields.position != len(value):
        raise MalformedRemoteMetadataError(
            f"{len(value) - fields.position} bytes after the record", position=fields.position
        )
    return record


def encode_remote_log_metadata(record: RemoteLogMetadata) -> bytes:
    """Return the value that holds *record*; a segment without owner becomes a snapshot record.

    Kafka: RemoteLogMetadataSerde.serialize.
    """
    if isinstance(record, RemoteSegmentUpdate):
        key = RemoteApiKey.UPDATE
        body = _encode_segment_id(record.owner, record.segment_id) + _encode_event(record)
        body += encode_octets(record.custom_metadata) + _encode_int(record.state, 1) + encode_tagged({})
    elif isinstance(record, RemotePartitionDelete):
        key = RemoteApiKey.PARTITION_DELETE
        body = _encode_owner(record.owner) + _encode_event(record)
        body += _encode_int(record.state, 1) + encode_tagged({})
    elif record.owner is None:
        key, body = RemoteApiKey.SNAPSHOT, record.segment_id.bytes + _encode_segment(record)
    else:
        key = RemoteApiKey.SEGMENT
        body = _encode_segment_id(record.owner, record.segment_id) + _encode_segment(record)
    return bytes([FRAME_VERSION, key, 0]) + body


def _read_owner(fields: FlexibleFields) -> RemotePartition:
    owner = _owner(fields.text(), fields.take(_OWNER_ID_BYTES))
    fields.skip_tagged()
    return owner


@functools.lru_cache(maxsize=1024)
def _owner(topic: str, octets: bytes) -> RemotePartition:
    """Return the partition that a record names; records of one partition often follow each other."""
    return RemotePartition(
        topic=topic,
        topic_id=UUID(bytes=octets[:16]),
        partition=int.from_bytes(octets[16:], "big", signed=True),
    )


def _read_segment_id(fields: FlexibleFields) -> tuple[RemotePartition, UUID]:
    owner = _read_owner(fields)
    segment_id = fields.uuid()
    fields.skip_tagged()
    return owner, segment_id


def _read_epoch(fields: FlexibleFields) -> LeaderEpochEntry:
    entry = LeaderEpochEntry(*fields.numbers(_EPOCH))
    fields.skip_tagged()
    return entry


def _read_state(fields: FlexibleFields) -> RemoteSegmentState:
    position, number = fields.position, fields.signed(1)
    try:
        return RemoteSegmentState(number)
    except ValueError:
        raise MalformedRemoteMetadataError(
            f"position {position}: segment state {number} is none of 0 to 3", position=position
        ) from None


def _read_announced(fields: FlexibleFields) -> RemoteSegment:
    return _read_segment(fields, *_read_segment_id(fields))


def _read_snapshot(fields: FlexibleFields) -> RemoteSegment:
    return _read_segment(fields, None, fields.uuid())


def _read_segment(fields: FlexibleFields, owner: RemotePartition | None, segment_id: UUID) -> RemoteSegment:
    position = fields.position
    start_offset, end_offset, broker_id, max_timestamp_ms, event_timestamp_ms = fields.numbers(_FIGURES)
    epochs = {entry.epoch: entry for entry in fields.array(lambda: _read_epoch(fields))}  # Java: a TreeMap
    if start_offset < 0 or end_offset < start_offset:
        raise MalformedRemoteMetadataError(
            f"position {position}: offsets {start_offset} to {end_offset} cannot be",
            position=position,
            kafka="IllegalArgumentException",
        )
    if not epochs:
        raise MalformedRemoteMetadataError(
            f"position {fields.position}: a segment without a leader epoch",
            position=fields.position,
            kafka="IllegalArgumentException",
        )
    size_bytes, custom_metadata, state = fields.signed(4), fields.octets(), _read_state(fields)
    tags_position = fields.position
    flag = fields.tagged().get(_TRANSACTION_INDEX_EMPTY_TAG, b"\x00")
    if len(flag) != 1:
        raise MalformedRemoteMetadataError(
            f"position {tags_position}: {len(flag)} bytes for the flag of an empty transaction index",
            position=tags_position,
        )
    return RemoteSegment(
        owner=owner,
        segment_id=segment_id,
        start_offset=start_offset,
        end_offset=end_offset,
        broker_id=broker_id,
        max_timestamp_ms=max_timestamp_ms,
        event_timestamp_ms=event_timestamp_ms,
        leader_epochs=tuple(epochs[epoch] for epoch in sorted(epochs)),
        size_bytes=size_bytes,
        custom_metadata=custom_metadata,
        state=state,
        has_no_transactions=flag != b"\x00",
    )


def _read_update(fields: FlexibleFields) -> RemoteSegmentUpdate:
    owner, segment_id = _read_segment_id(fields)
    update = RemoteSegmentUpdate(
        owner=owner,
        segment_id=segment_id,
        broker_id=fields.signed(4),
        event_timestamp_ms=fields.signed(8),
        custom_metadata=fields.octets(),
        state=_read_state(fields),
    )
    fields.skip_tagged()
    return update


def _read_partition_delete(fields: FlexibleFields) -> RemotePartitionDelete:
    owner, broker_id, event_timestamp_ms = _read_owner(fields), fields.signed(4), fields.signed(8)
    position, number = fields.position, fields.signed(1)
    fields.skip_tagged()
    try:
        state = RemotePartitionDeleteState(number)
    except ValueError:
        raise MalformedRemoteMetadataError(
            f"position {position}: state {number} of a partition's deletion is none of 0 to 2",
            position=position,
        ) from None
    return RemotePartitionDelete(
        owner=owner, broker_id=broker_id, event_timestamp_ms=event_timestamp_ms, state=state
    )


def _open(value: bytes) -> tuple[FlexibleFields, Callable[[FlexibleFields], RemoteLogMetadata]]:
    """Return the fields of the record in *value*, and the function that reads them."""
    frame_version, position = read_unsigned_varint(value, 0)
    api_key, position = read_unsigned_varint(value, position)
    version, position = read_unsigned_varint(value, position)
    if frame_version != FRAME_VERSION:
        raise MalformedRemoteMetadataError(f"frame version {frame_version}, expected {FRAME_VERSION}")
    read = _READERS.get(api_key)
    if read is None:
        raise MalformedRemoteMetadataError(f"api key {api_key} is none of 0 to 3", position=1)
    if version != 0:
        raise MalformedRemoteMetadataError(f"version {version} of a record, expected 0", position=2)
    return FlexibleFields(value, position), read


_READERS: dict[int, Callable[[FlexibleFields], RemoteLogMetadata]] = {
    RemoteApiKey.SEGMENT: _read_announced,
    RemoteApiKey.UPDATE: _read_update,
    RemoteApiKey.PARTITION_DELETE: _read_partition_delete,
    RemoteApiKey.SNAPSHOT: _read_snapshot,
}


def _encode_int(value: int, size: int) -> bytes:
    return value.to_bytes(size, "big", signed=True)


def _encode_owner(owner: RemotePartition) -> bytes:
    return (
        encode_string(owner.topic)
        + owner.topic_id.bytes
        + _encode_int(owner.partition, 4)
        + encode_tagged({})
    )


def _encode_segment_id(owner: RemotePartition, segment_id: UUID) -> bytes:
    return _encode_owner(owner) + segment_id.bytes + encode_tagged({})


def _encode_event(record: RemoteSegmentUpdate | RemotePartitionDelete) -> bytes:
    return _encode_int(record.broker_id, 4) + _encode_int(record.event_timestamp_ms, 8)


def _encode_segment(segment: RemoteSegment) -> bytes:
    epochs = [
        _encode_int(epoch, 4) + _encode_int(start, 8) + encode_tagged({})
        for epoch, start in segment.leader_epochs
    ]
    return b"".join(
        [
            _encode_int(segment.start_offset, 8),
            _encode_int(segment.end_offset, 8),
            _encode_int(segment.broker_id, 4),
            _encode_int(segment.max_timestamp_ms, 8),
            _encode_int(segment.event_timestamp_ms, 8),
            encode_array(epochs),
            _encode_int(segment.size_bytes, 4),
            encode_octets(segment.custom_metadata),
            _encode_int(segment.state, 1),
            encode_tagged({_TRANSACTION_INDEX_EMPTY_TAG: b"\x01"} if segment.has_no_transactions else {}),
        ]
    )


def metadata_partition(owner: RemotePartition, partition_count: int) -> int:
    """Return which of the *partition_count* partitions of `__remote_log_metadata` has the records of *owner*.

    Kafka: RemoteLogMetadataTopicPartitioner.metadataPartition.
    """
    digest = 1
    low, high = owner.topic_id.int & (1 << 64) - 1, owner.topic_id.int >> 64
    for number in (low ^ low >> 32, high ^ high >> 32, owner.partition):
        digest = digest * 31 + number & 0xFFFFFFFF
    return (_murmur2_of_int(digest) & 0x7FFFFFFF) % partition_count


def _murmur2_of_int(number: int) -> int:
    """Return Kafka's murmur2 of the four big-endian bytes of *number*, uint32. Kafka: Utils.murmur2."""
    multiplier = 0x5BD1E995
    word = int.from_bytes(number.to_bytes(4, "big"), "little")
    word = word * multiplier & 0xFFFFFFFF
    word = (word ^ word >> 24) * multiplier & 0xFFFFFFFF
    digest = (0x9747B28C ^ 4) * multiplier & 0xFFFFFFFF ^ word
    digest = (digest ^ digest >> 13) * multiplier & 0xFFFFFFFF
    return digest ^ digest >> 15
