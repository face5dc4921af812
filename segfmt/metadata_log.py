"""The metadata log of a KRaft node, and its snapshots: record batches whose values are metadata records.

Both are plain record batches. Data batches carry metadata records, without keys; control batches carry
KRaft's own records (leader change, snapshot header and footer, voters) and are skipped. A snapshot,
`*.checkpoint`, was written as a whole and renamed, so all of it has to be sound; a log may end in a torn or
damaged batch, where the node's own recovery would cut it.

Kafka: RecordsIterator, RecordsSnapshotReader, KafkaRaftLog.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from segfmt import byte_layout
from segfmt import crc32c as plain
from segfmt.control_record import MAX_CONTENT_BYTES, ControlType, read_control_type
from segfmt.entry_view import Buffer, view_octets
from segfmt.errors import BufferUnderflowError, CorruptBatchError, FormatError, MalformedMetadataError
from segfmt.metadata_record import MetadataRecord, read_metadata_record
from segfmt.record import read_records
from segfmt.record_batch import RecordBatchHeader, check_record_batch, read_batch_size
from segfmt.varint import read_varint

WINDOW_BYTES = 16 << 20
"""How much of a file is read at once, unless a batch has more."""
MAX_BATCH_BYTES = 32 << 20
"""A batch with a greater length is damaged: a controller's batches have 8 MiB at most."""
_MAX_CONTENT_BYTES = 64 << 20
"""What the records of a batch may decompress to."""
_NULL = 1
"""Size -1 as a varint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataBatch:
    """One data batch of the metadata log.

    Attributes:
        base_offset: int64, of the first record; the others follow without gaps.
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
        valid_bytes: position after the last good batch, control batches included.
        first_offset: int64, of the first batch of any kind; None without one.
        next_offset: int64, after the last good batch of any kind; None without one.
        damage: why the bytes from `valid_bytes` on are not a batch; None if all bytes are good.
        has_snapshot_footer: whether there is a snapshot footer: the file is a finished snapshot.
    """

    batches: tuple[MetadataBatch, ...]
    valid_bytes: int
    first_offset: int | None
    next_offset: int | None
    damage: str | None
    has_snapshot_footer: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BytesOnDisk:
    """The bytes of a file, read where they are needed.

    Attributes:
        read: returns a number of bytes from a position on, fewer if the file has become shorter.
        size_bytes: of the file.
    """

    read: Callable[[int, int], Buffer]
    size_bytes: int

    @classmethod
    def of(cls, data: Buffer) -> BytesOnDisk:
        """Return *data*, which is in memory, as if it were on disk."""
        octets = view_octets(data)
        return cls(
            read=lambda position, size_bytes: octets[position : position + size_bytes],
            size_bytes=len(octets),
        )


class MetadataLogReader:
    """Reads a segment of the metadata log, or a snapshot, batch by batch: one window of it is in memory.

    Args:
        data: the segment or snapshot.
        crc32c: CRC-32C of bytes; give a fast one, a segment has up to 1 GiB.
        from_offset: batches that end below this offset are verified but not opened.
        read_record: what a record's value says.

    Attributes:
        valid_bytes, first_offset, next_offset, damage, has_snapshot_footer: as in `MetadataLogPart`, of what was
            read so far.
        max_timestamp_ms: int64, the largest in good batches of any kind; -1 without one.
    """

    def __init__(
        self,
        data: Buffer | BytesOnDisk,
        *,
        crc32c: Callable[[bytes], int] = plain.crc32c,
        from_offset: int = 0,
        read_record: Callable[[bytes], MetadataRecord] = read_metadata_record,
    ) -> None:
        self._read_record = read_record
        self._data = data if isinstance(data, BytesOnDisk) else BytesOnDisk.of(data)
        self._crc32c = crc32c
        self._from_offset = from_offset
        self._window = memoryview(b"")
        self._window_position = 0
        self.valid_bytes = 0
        self.first_offset: int | None = None
        self.next_offset: int | None = None
        self.max_timestamp_ms = byte_layout.NO_TIMESTAMP_MS
        self.damage: str | None = None
        self.has_snapshot_footer = False

    def batches(self) -> Iterator[MetadataBatch]:
        """Yield the data batches up to the end or the first bad batch.

        Raises:
            MalformedMetadataError: a batch whose CRC is right holds an impossible metadata record.
        """
        try:
            while (size_bytes := self._next_size()) is not None:
                batch = self._read_next(size_bytes)
                if batch is not None:
                    yield batch
        except MalformedMetadataError:
            raise
        except FormatError as error:
            self.damage = str(error)
            return
        left_bytes = self._data.size_bytes - self.valid_bytes
        if left_bytes:
            self.damage = f"position {self.valid_bytes}: {left_bytes} bytes of a batch that is cut off"

    def _next_size(self) -> int | None:
        """Return the size of the next batch, None if the log ends or the batch is cut off."""
        position, left_bytes = self.valid_bytes, self._data.size_bytes - self.valid_bytes
        if left_bytes <= byte_layout.HEADER_UP_TO_MAGIC_BYTES:
            return None
        size_bytes = read_batch_size(self._octets(byte_layout.LOG_OVERHEAD_BYTES), position)
        if size_bytes > left_bytes:
            return None
        if size_bytes > MAX_BATCH_BYTES:
            raise CorruptBatchError(
                f"position {position}: {size_bytes} bytes, the most is {MAX_BATCH_BYTES}", position=position
            )
        return size_bytes

    def _read_next(self, size_bytes: int) -> MetadataBatch | None:
        """Verify the next batch and step past it; return it if it holds metadata records that are asked for."""
        position = self.valid_bytes
        octets = self._octets(size_bytes)
        header = check_record_batch(octets, crc32c=self._crc32c)
        if self.first_offset is None:
            self.first_offset = header.base_offset
        self.valid_bytes, self.next_offset = position + size_bytes, header.last_offset + 1
        self.max_timestamp_ms = max(self.max_timestamp_ms, header.max_timestamp_ms)
        if header.is_control:
            self.has_snapshot_footer |= _is_snapshot_footer(octets, position, header)
            return None
        return (
            _read_batch(octets, position, header, self._read_record)
            if self.next_offset > self._from_offset
            else None
        )

    def _octets(self, size_bytes: int) -> memoryview:
        """Return *size_bytes* bytes from the next batch on."""
        start = self.valid_bytes - self._window_position
        if start + size_bytes > len(self._window):
            self._window = memoryview(b"")  # there are never two windows at once
            wanted = min(max(size_bytes, WINDOW_BYTES), self._data.size_bytes - self.valid_bytes)
            self._window = view_octets(self._data.read(self.valid_bytes, wanted))
            self._window_position, start = self.valid_bytes, 0
        if start + size_bytes > len(self._window):
            raise BufferUnderflowError(
                f"position {self.valid_bytes}: the file became shorter while it was read",
                position=self.valid_bytes,
            )
        return self._window[start : start + size_bytes]


def read_metadata_log(
    data: Buffer, *, crc32c: Callable[[bytes], int] = plain.crc32c, from_offset: int = 0
) -> MetadataLogPart:
    """Return the metadata records in *data* up to the first batch that is cut off or damaged.

    Args:
        data, crc32c, from_offset: as in `MetadataLogReader`.

    Raises:
        MalformedMetadataError: a batch whose CRC is right holds an impossible metadata record.

    Kafka: LogSegment.recover says which batches count, RecordsIterator how they are read.
    """
    reader = MetadataLogReader(data, crc32c=crc32c, from_offset=from_offset)
    batches = tuple(reader.batches())
    return MetadataLogPart(
        batches=batches,
        valid_bytes=reader.valid_bytes,
        first_offset=reader.first_offset,
        next_offset=reader.next_offset,
        damage=reader.damage,
        has_snapshot_footer=reader.has_snapshot_footer,
    )


def check_kraft_snapshot(read: MetadataLogPart | MetadataLogReader, *, end_offset: int) -> None:
    """Refuse a `*.checkpoint` that was not read to its end, or has none.

    Differs: Kafka reads one without a footer as if it were whole; a node then waits for ever, or has none of the topics
    in the rest (`kafka` of the error is empty then).

    Args:
        end_offset: the one in its name; up to 0 it has no topics, and a node does without the rest of it.

    Raises:
        CorruptBatchError: a batch is damaged or cut off, or batches are missing at the end.
    """
    if read.damage is not None:
        raise CorruptBatchError(f"damaged snapshot, {read.damage}", position=read.valid_bytes)
    if end_offset and not read.has_snapshot_footer:
        raise CorruptBatchError(
            f"damaged snapshot, position {read.valid_bytes}: it ends without a footer: its end is lost",
            position=read.valid_bytes,
            kafka="",
        )


def is_snapshot_footer(batch: Buffer, *, crc32c: Callable[[bytes], int] = plain.crc32c) -> bool:
    """Return whether *batch*, all bytes of one, is the last one of a `*.checkpoint`.

    Raises:
        FormatError: it is damaged.
    """
    octets = view_octets(batch)
    header = check_record_batch(octets, crc32c=crc32c)
    return header.is_control and _is_snapshot_footer(octets, 0, header)


def _read_batch(
    octets: memoryview,
    position: int,
    header: RecordBatchHeader,
    read_record: Callable[[bytes], MetadataRecord],
) -> MetadataBatch:
    """Return what the batch *octets* at *position* holds."""
    records = _read_plainly(octets, header, read_record)
    if records is None:
        records = _read_thoroughly(octets, position, header, read_record)
    return MetadataBatch(
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        epoch=header.partition_leader_epoch,
        size_bytes=header.size_bytes,
        records=tuple(records),
    )


def _read_plainly(
    octets: memoryview, header: RecordBatchHeader, read_record: Callable[[bytes], MetadataRecord]
) -> list[MetadataRecord] | None:
    """Return the records of a batch as controllers write it, without a `Record` each; None for any other.

    A large cluster's log holds hundreds of thousands of records, nearly all of them of no interest here.
    """
    if header.attributes & byte_layout.COMPRESSION_CODEC_MASK or header.record_count < 0:
        return None
    payload = bytes(octets[byte_layout.RECORDS_POSITION :])
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
            # after the value there is only the header count 0
            if payload[key_at] != _NULL or value_size <= 0 or value_end != at - 1 or payload[value_end] != 0:
                return None
            records.append(read_record(payload[value_at:value_end]))
    except (FormatError, IndexError):
        return None
    return records if at == len(payload) else None


def _read_thoroughly(
    octets: memoryview,
    position: int,
    header: RecordBatchHeader,
    read_record: Callable[[bytes], MetadataRecord],
) -> list[MetadataRecord]:
    records: list[MetadataRecord] = []
    try:
        for record in read_records(octets, header=header, max_bytes=_MAX_CONTENT_BYTES):
            if record.key is not None or not record.value:
                raise MalformedMetadataError("a metadata record has a value and no key")
            records.append(read_record(record.value))
    except FormatError as error:
        raise MalformedMetadataError(
            f"batch at position {position}, record {len(records)}: {error}", position=position
        ) from error
    return records


def _is_snapshot_footer(octets: memoryview, position: int, header: RecordBatchHeader) -> bool:
    try:
        records = read_records(octets, header=header, max_bytes=MAX_CONTENT_BYTES)
        types = {read_control_type(record.key or b"") for record in records}
    except FormatError as error:
        raise MalformedMetadataError(
            f"control batch at position {position}: {error}", position=position + byte_layout.RECORDS_POSITION
        ) from error
    return ControlType.SNAPSHOT_FOOTER in types
