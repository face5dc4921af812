"""What no real file has and a damaged one may: branches that the other suites do not take."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from segfmt import byte_layout, offset_index
from segfmt.clean_shutdown import read_clean_shutdown
from segfmt.compression import Codec, compress, decompress
from segfmt.control_record import read_end_transaction_marker
from segfmt.errors import InvalidRecordError, MalformedMetadataError
from segfmt.java_hash_map import JavaLongMap, java_hash_map_order
from segfmt.message_set import read_message
from segfmt.meta_properties import MetaProperties, encode_meta_properties, read_meta_properties
from segfmt.metadata_log import read_metadata_log
from segfmt.metadata_record import OtherRecord, read_metadata_record
from segfmt.record import read_records
from segfmt.record_batch import read_record_batch_header
from tests.logs import builders, reference


@pytest.mark.parametrize(
    ("text", "epoch"), [(b"1.5e3", 1500), (b"-7.9", -7), (b"1e300", None), (b"true", None)]
)
def test_broker_epoch_with_a_fraction_is_cut_to_a_number(text: bytes, epoch: int | None) -> None:
    assert read_clean_shutdown(b'{"brokerEpoch":' + text + b"}") == epoch


def test_zstd_frame_that_is_to_be_skipped() -> None:
    skippable = (0x184D2A55).to_bytes(4, "little") + (3).to_bytes(4, "little") + b"abc"
    assert decompress(Codec.ZSTD, skippable + compress(Codec.ZSTD, b"content")) == b"content"


@pytest.mark.parametrize("size", [(1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3_500_000])
def test_gzip_content_of_several_pieces(size: int) -> None:
    for content in (bytes(size), bytes(range(256)) * (size // 256), np.random.default_rng(1).bytes(size)):
        assert decompress(Codec.GZIP, compress(Codec.GZIP, content), max_bytes=size) == content


def test_control_batch_without_records_says_nothing() -> None:
    batch = builders.record_batch(records=[], control=True, producer_id=1)
    assert read_end_transaction_marker(batch) is None
    assert read_end_transaction_marker(batch, header=read_record_batch_header(batch)) is None


def test_compressed_marker_is_read_to_its_end() -> None:
    two = [builders.control_record(1, coordinator_epoch=9), builders.control_record(0)]
    packed = builders.gzip(b"".join(two))
    fields = {"records": packed, "control": True, "codec": builders.GZIP, "producer_id": 1}
    marker = read_end_transaction_marker(builders.record_batch(record_count=2, **fields))
    assert marker is not None
    assert marker.coordinator_epoch == 9
    with pytest.raises(InvalidRecordError):
        read_end_transaction_marker(builders.record_batch(record_count=3, **fields))


def test_order_of_many_keys_with_and_without_a_crowd() -> None:
    for keys in (list(range(0, 3000, 7)), [n << 20 for n in range(200)]):
        tree: JavaLongMap[int] = JavaLongMap()
        for key in keys:
            tree[key] = key
        array = np.array(keys, np.int64)
        assert array[java_hash_map_order(array)].tolist() == tree.keys()


def test_message_too_short_for_the_sizes_in_it() -> None:
    with pytest.raises(InvalidRecordError, match="has no field at"):
        read_message(struct.pack(">qiIbb", 0, 14, 0, 1, 0) + bytes(8))


def test_message_of_a_value_that_is_not_there() -> None:
    body = struct.pack(">Ibbi", 0, 0, 0, -1) + struct.pack(">i", 5) + b"four"
    with pytest.raises(InvalidRecordError, match="5 bytes announced at"):
        read_message(struct.pack(">qi", 0, len(body)) + body)


def test_record_with_a_null_for_the_key_of_a_header() -> None:
    named = builders.record(headers=[(b"key", b"v")])
    null = named.replace(b"\x06key", b"\x01")
    record = bytes([named[0] - 2 * (len(named) - len(null))]) + null[1:]
    with pytest.raises(InvalidRecordError, match="the key of a record header is null"):
        list(read_records(builders.record_batch(records=record)))


def test_control_batch_of_the_metadata_log_that_does_not_parse() -> None:
    batch = builders.record_batch(records=b"\x02\x00", record_count=1, control=True)
    with pytest.raises(MalformedMetadataError, match="control batch at position 0"):
        read_metadata_log(batch, crc32c=reference.crc32c)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (b"\x02\x02\x00", "frame version 2"),
        (b"\x01\x02\x00\x00" + bytes(17), "null for a string"),
        (b"\x01\x02\x07", "record of version 7"),
    ],
)
def test_metadata_record_that_no_node_writes(value: bytes, words: str) -> None:
    with pytest.raises(MalformedMetadataError, match=words):
        read_metadata_record(value)


def test_metadata_record_of_a_kind_that_is_not_there_yet() -> None:
    assert read_metadata_record(b"\x01\x80\x01\x00") == OtherRecord(api_key=128, version=0)


def test_lookup_behind_the_greatest_offset_wraps_like_java() -> None:
    entries = np.zeros(2, byte_layout.OFFSET_INDEX_DTYPE)
    entries["relative_offset"], entries["position"] = (1, 20), (70, 90)
    base = 2**63 - 10
    assert offset_index.lookup(entries, base, base + 5) == (base + 20 - 2**64, 90)


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (b"\x10\x00\x00\x00\x01\x01\x00\x00\x00", "bytes were read"),
        (builders.record(headers=[(b"k", b"v")]).replace(b"\x02k", b"\x01"), "null|were read|record size"),
    ],
)
def test_record_that_disagrees_with_its_size_or_has_a_header_without_key(record: bytes, words: str) -> None:
    with pytest.raises(InvalidRecordError, match=words):
        list(read_records(builders.record_batch(records=record)))


def test_properties_of_a_node_that_says_nothing() -> None:
    empty = MetaProperties(version=0)
    assert read_meta_properties(encode_meta_properties(empty)) == empty
