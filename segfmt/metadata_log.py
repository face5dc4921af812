"""The metadata log of a KRaft node, and its snapshots: record batches whose values are metadata records.

Both are plain record batches. Data batches carry metadata records, without keys; control batches carry
KRaft's own records (leader change, snapshot header and footer, voters) and are passed over. A snapshot,
`*.checkpoint`, was written as a whole and renamed, so all of it has to be sound; a log may end in a torn or
damaged batch, where the node's own recovery would cut it.

Kafka: RecordsIterator, RecordsSnapshotReader, KafkaRaftLog.
"""

from __future__ import annotations

from collections.abc import Callable

from segfmt import crc32c as plain
from segfmt import layout
from segfmt.control_record import MAX_CONTENT_BYTES, ControlType, read_control_type
from segfmt.entry_view import Buffer, view_octets
from segfmt.errors import CorruptBatchError, FormatError, MalformedMetadataError
from segfmt.metadata_record import MetadataRecord, read_metadata_record
from segfmt.record import read_records
from segfmt.record_batch import RecordBatchHeader, check_record_batch, walk_batches
from segfmt.value_class import dataclass
from segfmt.varint import read_varint

_MAX_CONTENT_BYTES = 64 << 20
"""What the records of a batch may decompress to: a controller's batches have 8 MiB at most."""
_NULL = 1
"""Size -1 as a varint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataBatch:
    """One data batch of the metadata log.

    Attributes:
        base_offset: int64, of the first record; they count on without gaps.
        last_offset: int64.
        epoch: int32, of the controller that wrote it.
        size_bytes: of the batch in the log.
        records: in order.
    """

    base_offset: int
    last_offset: int
    epoch: int
    size_bytes: int
    records: tuple[MetadataRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataLogPart:
    """What a segment of the metadata log or a snapshot holds.

    Attributes:
        batches: the data batches up to the end or the first bad batch.
        valid_bytes: position behind the last good batch, control batches included.
        first_offset: int64, of the first batch of any kind; None without one.
        next_offset: int64, behind the last good batch of any kind; None without one.
        damage: why the bytes from `valid_bytes` on are no batch; None where all bytes are good.
        has_snapshot_footer: a snapshot footer was seen: the file is a finished snapshot.
    """

    batches: tuple[MetadataBatch, ...]
    valid_bytes: int
    first_offset: int | None
    next_offset: int | None
    damage: str | None
    has_snapshot_footer: bool


def read_metadata_log(
    data: Buffer, *, crc32c: Callable[[bytes], int] = plain.crc32c, from_offset: int = 0
) -> MetadataLogPart:
    """Return the metadata records in *data* up to the first batch that is cut off or damaged.

    Args:
        data: one segment of the log, or a snapshot.
        crc32c: CRC-32C of bytes; give a fast one, a segment has up to 1 GiB.
        from_offset: batches that end below this offset are verified but not opened.

    Raises:
        MalformedMetadataError: a batch whose CRC is right holds what no metadata record can be.

    Kafka: LogSegment.recover says which batches count, RecordsIterator how they are read.
    """
    octets = view_octets(data)
    batches: list[MetadataBatch] = []
    valid_bytes, has_footer = 0, False
    first_offset = next_offset = damage = None
    try:
        for place in walk_batches(octets):
            header = check_record_batch(
                octets[place.position : place.position + place.size_bytes], crc32c=crc32c
            )
            first_offset = header.base_offset if first_offset is None else first_offset
            valid_bytes, next_offset = place.position + place.size_bytes, header.last_offset + 1
            if header.is_control:
                has_footer |= _is_snapshot_footer(octets, place.position, header)
            elif next_offset > from_offset:
                batches.append(_read_batch(octets, place.position, header))
    except MalformedMetadataError:
        raise
    except FormatError as error:
        damage = str(error)
    if damage is None and valid_bytes < len(octets):
        damage = f"position {valid_bytes}: {len(octets) - valid_bytes} bytes of a batch that is cut off"
    return MetadataLogPart(
        batches=tuple(batches),
        valid_bytes=valid_bytes,
        first_offset=first_offset,
        next_offset=next_offset,
        damage=damage,
        has_snapshot_footer=has_footer,
    )


def read_kraft_snapshot(data: Buffer, *, crc32c: Callable[[bytes], int] = plain.crc32c) -> MetadataLogPart:
    """Return the metadata records of a `*.checkpoint`.

    Raises:
        CorruptBatchError: a batch that is damaged or cut off; the node does not start on such a snapshot.
        MalformedMetadataError: as `read_metadata_log`.

    Kafka: RecordsSnapshotReader.
    """
    snapshot = read_metadata_log(data, crc32c=crc32c)
    if snapshot.damage is not None:
        raise CorruptBatchError(f"damaged snapshot, {snapshot.damage}", position=snapshot.valid_bytes)
    return snapshot


def _read_batch(octets: memoryview, position: int, header: RecordBatchHeader) -> MetadataBatch:
    records = _read_plainly(octets, position, header)
    if records is None:
        records = _read_thoroughly(octets, position, header)
    return MetadataBatch(
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        epoch=header.partition_leader_epoch,
        size_bytes=header.size_bytes,
        records=tuple(records),
    )


def _read_plainly(
    octets: memoryview, position: int, header: RecordBatchHeader
) -> list[MetadataRecord] | None:
    """Return the records of a batch as controllers write it, without a `Record` each; None for any other.

    A large cluster's log holds hundreds of thousands of records, nearly all of them of no interest here.
    """
    if header.attributes & layout.COMPRESSION_CODEC_MASK or header.record_count < 0:
        return None
    payload = bytes(octets[position + layout.RECORDS_POSITION : position + header.size_bytes])
    records: list[MetadataRecord] = []
    at = 0
    try:
        for _ in range(header.record_count):
            size, start = read_varint(payload, at)
            at = start + size
            # attributes, timestamp delta 0; then offset delta, key size -1, value size
            if payload[start + 1] != 0 or at > len(payload):
                return None
            _, key_at = read_varint(payload, start + 2)
            value_size, value_at = read_varint(payload, key_at + 1)
            value_end = value_at + value_size
            # behind the value there is nothing but the header count 0
            if payload[key_at] != _NULL or value_size <= 0 or value_end != at - 1 or payload[value_end] != 0:
                return None
            records.append(read_metadata_record(payload[value_at:value_end]))
    except (FormatError, IndexError):
        return None
    return records if at == len(payload) else None


def _read_thoroughly(octets: memoryview, position: int, header: RecordBatchHeader) -> list[MetadataRecord]:
    records: list[MetadataRecord] = []
    try:
        for record in read_records(octets, position, header=header, max_bytes=_MAX_CONTENT_BYTES):
            if record.key is not None or not record.value:
                raise MalformedMetadataError("a metadata record has a value and no key")
            records.append(read_metadata_record(record.value))
    except FormatError as error:
        raise MalformedMetadataError(
            f"batch at position {position}, record {len(records)}: {error}", position=position
        ) from error
    return records


def _is_snapshot_footer(octets: memoryview, position: int, header: RecordBatchHeader) -> bool:
    try:
        records = read_records(octets, position, header=header, max_bytes=MAX_CONTENT_BYTES)
        types = {read_control_type(record.key or b"") for record in records}
    except FormatError as error:
        raise MalformedMetadataError(
            f"control batch at position {position}: {error}", position=position + layout.RECORDS_POSITION
        ) from error
    return ControlType.SNAPSHOT_FOOTER in types
