"""Targets: batches, records, messages, control records, codecs, the metadata log."""

from __future__ import annotations

import contextlib
import gzip as plain_gzip
import zlib
from collections.abc import Callable
from uuid import UUID

from xxhash import xxh32_intdigest

from segfmt import byte_layout
from segfmt.compression import Codec, compress, decompress
from segfmt.control_record import EndTransactionMarker, read_end_transaction_marker
from segfmt.errors import CorruptBatchError, FormatError, InvalidRecordError, MalformedMetadataError
from segfmt.lz4_frame import encode_lz4_frame, read_lz4_frame
from segfmt.message_set import (
    Message,
    base_offset,
    check_message,
    encode_message,
    read_message,
    read_messages,
)
from segfmt.metadata_log import check_kraft_snapshot, is_snapshot_footer, read_metadata_log
from segfmt.metadata_record import (
    ApiKey,
    ConfigRecord,
    FeatureLevelRecord,
    OtherRecord,
    RemoveTopicRecord,
    TopicRecord,
    TransactionRecord,
    encode_metadata_record,
    read_metadata_record,
)
from segfmt.record import encode_records, read_records
from segfmt.record_batch import (
    RecordBatchHeader,
    check_record_batch,
    encode_record_batch,
    read_record_batch_header,
    walk_batches,
)
from segfmt.varint import (
    encode_unsigned_varint,
    encode_varint,
    read_unsigned_varint,
    read_varint,
    read_varlong,
)
from tests.fuzz.choices import Choices
from tests.fuzz.seal import seal_batches
from tests.fuzz.targets import GOLDEN, Target, assert_within
from tests.logs import builders, reference

MOST_CONTENT_BYTES = 1 << 20
BATCHES = tuple(sorted(path.name for path in GOLDEN.glob("*.bin") if not path.name.startswith("message")))
MESSAGES = tuple(sorted(path.name for path in GOLDEN.glob("message-*.bin")))


def _varint(data: bytes) -> None:
    for read, encode in (
        (read_unsigned_varint, encode_unsigned_varint),
        (read_varint, encode_varint),
        (read_varlong, encode_varint),
    ):
        position = 0
        try:
            while True:
                value, end = read(data, position)
                assert position < end <= min(len(data), position + 10)
                encoded = encode(value)
                assert read(encoded, 0) == (value, len(encoded))
                position = end
        except FormatError:
            pass


def _record_batch(data: bytes) -> None:
    for candidate in (data, seal_batches(data)):
        try:
            for place in walk_batches(candidate):
                assert 26 <= place.size_bytes <= len(candidate) - place.position
                _one_batch(candidate, place.position, place.size_bytes)
        except FormatError as error:
            assert_within(error, candidate)


def _one_batch(data: bytes, position: int, size_bytes: int) -> None:
    try:
        header = check_record_batch(data, position, crc32c=reference.crc32c)
    except FormatError:
        return
    assert header == read_record_batch_header(data, position)
    assert -(2**63) <= header.last_offset < 2**63
    assert -(2**31) <= header.last_sequence < 2**31
    batch = data[position : position + size_bytes]
    assert encode_record_batch(header, batch[61:], crc32c=reference.crc32c) == batch


def _record(data: bytes) -> None:
    """The records of every batch; plain ones are encoded again."""
    for candidate in (data, seal_batches(data)):
        places = []
        with contextlib.suppress(FormatError):
            places.extend(walk_batches(candidate))
        for place in places:
            try:
                header = read_record_batch_header(candidate, place.position)
                found = list(
                    read_records(candidate, place.position, header=header, max_bytes=MOST_CONTENT_BYTES)
                )
            except FormatError:
                continue
            assert len(found) == header.record_count
            if not header.attributes & byte_layout.COMPRESSION_CODEC_MASK and not header.is_log_append_time:
                _encode_again(header, found)


def _encode_again(header: RecordBatchHeader, found: list) -> None:
    """A record's place and time are written as differences: those that fit come back."""
    base, base_ms = header.base_offset, header.base_timestamp_ms
    if any(abs(one.offset - base) >= 2**31 or abs(one.timestamp_ms - base_ms) >= 2**63 for one in found):
        return
    payload = encode_records(found, base_offset=base, base_timestamp_ms=base_ms)
    fields = {name: getattr(header, name) for name in header.__slots__}
    batch = encode_record_batch(RecordBatchHeader(**fields), payload, crc32c=reference.crc32c)
    assert list(read_records(batch)) == found


def _control_record(data: bytes) -> None:
    """One control batch against the slow twin, which knows gzip alone of the codecs."""
    batch = _as_one_batch(data)
    if batch is None or batch[22] & 7 not in (0, 1):
        return
    expected = reference.decode_control(batch)
    try:
        marker = read_end_transaction_marker(batch)
    except InvalidRecordError:
        found = (reference.ControlKind.INVALID, 0, 0, 0)
    except FormatError:
        found = (reference.ControlKind.FATAL, 0, 0, 0)
    else:
        found = _marker_words(marker)
    if batch[22] & 7 == 0 or found[0] == expected[0]:
        assert found == expected


def _marker_words(marker: EndTransactionMarker | None) -> tuple[reference.ControlKind, int, int, int]:
    if marker is None:
        return reference.ControlKind.NOTHING, 0, 0, 0
    kind = byte_layout.CONTROL_TYPE_ABORT if marker.is_abort else byte_layout.CONTROL_TYPE_COMMIT
    return reference.ControlKind.MARKER, kind, marker.coordinator_epoch, marker.timestamp_ms


def _as_one_batch(data: bytes) -> bytes | None:
    if len(data) < byte_layout.RECORD_BATCH_OVERHEAD_BYTES:
        return None
    length = (len(data) - 12).to_bytes(4, "big")
    return data[:8] + length + data[12:16] + b"\x02" + data[17:]


def _message_set(data: bytes) -> None:
    for candidate in (data, seal_batches(data)):
        for position in (0, len(candidate) // 2):
            try:
                size_bytes = check_message(candidate, position)
            except FormatError:
                size_bytes = 0
            _one_message(candidate, position, size_bytes)


def _one_message(data: bytes, position: int, size_bytes: int) -> None:
    try:
        message = read_message(data, position)
        encoded = encode_message(message)
        assert read_message(encoded) == message
        if message.key is not None and message.value is not None:  # null has many spellings
            assert encoded[16:] == data[position + 16 : position + len(encoded)]
        inner = list(read_messages(data, position, max_bytes=MOST_CONTENT_BYTES))
    except FormatError:
        return
    assert inner
    assert base_offset(data, position) == inner[0].offset
    assert size_bytes == 0 or check_message(data[position : position + size_bytes]) == size_bytes


def _wrapper(data: bytes) -> None:
    """A message set inside of a wrapper: what a fuzzer cannot compress by itself."""
    choices = Choices(data)
    magic, codec = choices.below(2), choices.pick([Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
    offset = choices.below(100)
    content = seal_batches(choices.rest())
    value = compress(codec, content, magic=magic)
    wrapper = encode_message(Message(offset=offset, magic=magic, attributes=int(codec), value=value))
    assert read_message(wrapper).value == value
    try:
        inner = list(read_messages(wrapper, max_bytes=MOST_CONTENT_BYTES))
    except FormatError:
        return
    assert base_offset(wrapper) == inner[0].offset
    assert magic == 0 or offset == 0 or inner[-1].offset == offset


def _compression(data: bytes) -> None:
    choices = Choices(data)
    codec, magic = choices.pick(list(Codec)), choices.below(3)
    octets = choices.rest()
    for content in (octets, b"", octets * 20):
        assert decompress(codec, compress(codec, content, magic=magic), magic=magic) == content
    try:
        content = decompress(codec, octets, magic=magic, max_bytes=MOST_CONTENT_BYTES)
    except FormatError as error:
        assert_within(error, octets)
        return
    assert len(content) <= max(MOST_CONTENT_BYTES, len(octets))
    if codec is Codec.GZIP:
        assert content.startswith(zlib.decompressobj(31).decompress(octets))


def _gzip_members(data: bytes) -> None:
    choices = Choices(data)
    parts = []
    while not choices.is_exhausted:
        parts.append(choices.take(choices.below(64)))
    stream = b"".join(plain_gzip.compress(part, mtime=0) for part in parts)
    trailer = choices.pick([b"", b"\0", b"\x1f", b"junk"])
    if stream:
        assert decompress(Codec.GZIP, stream + trailer) == b"".join(parts)


def _lz4_frame(data: bytes) -> None:
    """A frame as it is, and with the checksum of its header right."""
    sealed = bytearray(data)
    if len(sealed) > 6:
        sealed[:4] = (0x184D2204).to_bytes(4, "little")
        end = 6 + (8 if sealed[4] & 0x08 else 0)
        if len(sealed) > end:
            sealed[end] = xxh32_intdigest(bytes(sealed[4:end])) >> 8 & 0xFF
    for candidate in (data, bytes(sealed)):
        for is_broken in (False, True):
            try:
                content = read_lz4_frame(
                    candidate, is_header_checksum_broken=is_broken, max_bytes=MOST_CONTENT_BYTES
                )
            except FormatError as error:
                assert_within(error, candidate)
                continue
            frame = encode_lz4_frame(content, is_header_checksum_broken=is_broken)
            again = read_lz4_frame(frame, is_header_checksum_broken=is_broken, max_bytes=MOST_CONTENT_BYTES)
            assert again == content


def _metadata_record(data: bytes) -> None:
    try:
        record = read_metadata_record(data)
    except MalformedMetadataError:
        return
    if not isinstance(record, OtherRecord):
        assert read_metadata_record(encode_metadata_record(record)) == record


def _metadata_log(data: bytes) -> None:
    for candidate in (data, seal_batches(data)):
        _survive(is_snapshot_footer, candidate)
        try:
            part = read_metadata_log(candidate, crc32c=reference.crc32c)
        except MalformedMetadataError:
            continue
        with contextlib.suppress(CorruptBatchError):
            check_kraft_snapshot(part, end_offset=1)
            assert part.has_snapshot_footer
        assert (part.damage is None) == (part.valid_bytes == len(candidate))
        assert sum(batch.size_bytes for batch in part.batches) <= part.valid_bytes


def _survive(read: Callable[..., object], data: bytes) -> None:
    with contextlib.suppress(FormatError):
        read(data, crc32c=reference.crc32c)


def _codec_seeds() -> list[bytes]:
    content = b"some content " * 9
    made = [compress(codec, content) for codec in Codec]
    return [bytes([number, 2]) + body for number, body in enumerate(made)]


def _wrapper_seeds() -> list[bytes]:
    inner = b"".join(builders.message(offset, magic=1) for offset in range(3))
    return [bytes([magic, codec, 2]) + inner for magic in (0, 1) for codec in range(3)]


def _marker_seeds() -> list[bytes]:
    record = builders.control_record(1)
    zipped = builders.record_batch(
        records=builders.gzip(record), control=True, codec=builders.GZIP, producer_id=1
    )
    return [builders.marker_batch(0, producer_id=1), zipped]


def _metadata_seeds() -> list[bytes]:
    topic_id = UUID(int=7)
    made = (
        TopicRecord(name="orders", topic_id=topic_id),
        RemoveTopicRecord(topic_id=topic_id),
        ConfigRecord(resource_type=2, resource_name="orders", name="index.interval.bytes", value="10"),
        ConfigRecord(resource_type=4, resource_name="", name="log.preallocate", value=None),
        FeatureLevelRecord(name="metadata.version", feature_level=20),
        TransactionRecord(api_key=ApiKey.BEGIN_TRANSACTION),
    )
    return [encode_metadata_record(record) for record in made] + [b"\x01\x03\x00abc"]


TARGETS = [
    Target(name="varint", run=_varint, more_seeds=lambda: [b"\x80\x01", b"\xff" * 10]),
    Target(name="record_batch", run=_record_batch, seeds=BATCHES),
    Target(name="record", run=_record, seeds=BATCHES),
    Target(
        name="control_record",
        run=_control_record,
        instruments=("segfmt", "tests.logs.reference"),
        seeds=BATCHES,
        more_seeds=_marker_seeds,
        longest_bytes=512,
    ),
    Target(name="message_set", run=_message_set, seeds=MESSAGES),
    Target(name="wrapper", run=_wrapper, more_seeds=_wrapper_seeds),
    Target(name="compression", run=_compression, more_seeds=_codec_seeds),
    Target(name="gzip_members", run=_gzip_members, more_seeds=lambda: [bytes(range(40))], longest_bytes=512),
    Target(
        name="lz4_frame",
        run=_lz4_frame,
        more_seeds=lambda: [encode_lz4_frame(b"content " * 9, is_header_checksum_broken=False)],
        longest_bytes=1024,
    ),
    Target(
        name="metadata_record",
        run=_metadata_record,
        more_seeds=_metadata_seeds,
        longest_bytes=256,
    ),
    Target(
        name="metadata_log",
        run=_metadata_log,
        seeds=("bootstrap.checkpoint", "voters.checkpoint", "cluster-metadata.log"),
        longest_bytes=6000,
    ),
]
