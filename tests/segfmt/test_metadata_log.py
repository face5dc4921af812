import pytest
from hypothesis import given
from hypothesis import strategies as st

from segfmt import metadata_log
from segfmt.compression import Codec, compress
from segfmt.errors import CorruptBatchError, FormatError, MalformedMetadataError
from segfmt.metadata_log import (
    BytesOnDisk,
    MetadataLogReader,
    check_kraft_snapshot,
    is_snapshot_footer,
    read_metadata_log,
)
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
from segfmt.record import Record, RecordHeader, encode_records
from segfmt.record_batch import RecordBatchHeader, encode_record_batch, walk_batches
from tests.segfmt.golden_files import golden

TEXT = st.text(max_size=200)
KNOWN = (
    st.builds(TopicRecord, name=TEXT, topic_id=st.uuids())
    | st.builds(RemoveTopicRecord, topic_id=st.uuids())
    | st.builds(
        ConfigRecord,
        resource_type=st.integers(-128, 127),
        resource_name=TEXT,
        name=TEXT,
        value=st.none() | TEXT,
    )
    | st.builds(FeatureLevelRecord, name=TEXT, feature_level=st.integers(-(2**15), 2**15 - 1))
    | st.builds(
        TransactionRecord,
        api_key=st.sampled_from([ApiKey.BEGIN_TRANSACTION, ApiKey.END_TRANSACTION, ApiKey.ABORT_TRANSACTION]),
    )
)
SETTING = ConfigRecord(resource_type=2, resource_name="t", name="index.interval.bytes", value="1000")


def batch_of(values, *, base_offset=0, codec=Codec.NONE):
    records = [Record(offset=base_offset + n, timestamp_ms=5, value=value) for n, value in enumerate(values)]
    header = RecordBatchHeader(
        base_offset=base_offset,
        attributes=int(codec),
        last_offset_delta=len(records) - 1,
        base_timestamp_ms=5,
        max_timestamp_ms=5,
        partition_leader_epoch=3,
        record_count=len(records),
    )
    payload = encode_records(records, base_offset=base_offset, base_timestamp_ms=5)
    return encode_record_batch(header, compress(codec, payload))


@given(KNOWN)
def test_record_round_trip(record):
    assert read_metadata_record(encode_metadata_record(record)) == record


@given(KNOWN, st.binary(max_size=9))
def test_record_cut_anywhere_or_followed_by_something_is_refused(record, rest):
    value = encode_metadata_record(record)
    for end in range(len(value)):
        with pytest.raises(MalformedMetadataError):
            read_metadata_record(value[:end])
    if rest:
        with pytest.raises(MalformedMetadataError):
            read_metadata_record(value + rest)


def test_tagged_fields_are_passed_over():
    plain = encode_metadata_record(SETTING)
    tagged = plain[:-1] + b"\x02\x00\x03abc\x87\x01\x00"
    assert read_metadata_record(tagged) == SETTING


def test_other_records_are_passed_over():
    assert read_metadata_record(b"\x01\x03\x02garbage") == OtherRecord(api_key=3, version=2)
    with pytest.raises(MalformedMetadataError):
        encode_metadata_record(OtherRecord(api_key=3, version=2))


@pytest.mark.parametrize("value", [b"", b"\0\x02\0", b"\x02\x02\0", b"\x01\x02\x01", b"\xff" * 9])
def test_frame_that_is_not_known_is_refused(value):
    with pytest.raises(MalformedMetadataError):
        read_metadata_record(value)


@given(st.binary(max_size=60))
def test_any_value_is_read_or_refused(value):
    for candidate in (value, b"\x01\x04\0" + value, b"\x01\x02\0" + value):
        try:
            read_metadata_record(candidate)
        except MalformedMetadataError:
            continue


def test_golden_metadata_log():
    data = golden("cluster-metadata.log")
    part = read_metadata_log(data)
    assert (part.damage, part.valid_bytes, part.has_snapshot_footer) == (None, len(data), False)
    records = [record for batch in part.batches for record in batch.records]
    topics = {record.name for record in records if isinstance(record, TopicRecord)}
    assert {"__remote_log_metadata", "codec-none", "transactions", "compacted"} <= topics
    settings = {
        (record.resource_name, record.name): record.value
        for record in records
        if isinstance(record, ConfigRecord)
    }
    assert settings["compacted", "cleanup.policy"] == "compact"
    assert settings["", "min.insync.replicas"] == "1"
    assert {"BEGIN_TRANSACTION", "END_TRANSACTION"} == {
        record.api_key.name for record in records if isinstance(record, TransactionRecord)
    }
    assert all(len(batch.records) == batch.last_offset - batch.base_offset + 1 for batch in part.batches)


def test_golden_snapshots():
    features = read_metadata_log(golden("bootstrap.checkpoint"))
    assert features.has_snapshot_footer
    levels = {
        one.name: one.feature_level for one in features.batches[0].records if hasattr(one, "feature_level")
    }
    assert levels["metadata.version"] == 30
    voters = read_metadata_log(golden("voters.checkpoint"))
    assert voters.has_snapshot_footer
    assert voters.batches == ()


def test_log_cut_anywhere_gives_the_batches_before():
    data = golden("cluster-metadata.log")
    ends = [0, *(place.position + place.size_bytes for place in walk_batches(data))]
    whole = read_metadata_log(data)
    for end in range(0, len(data), 7):
        part = read_metadata_log(data[:end])
        good = max(position for position in ends if position <= end)
        assert part.valid_bytes == good
        assert (part.damage is None) == (good == end)
        assert part.batches == whole.batches[: len(part.batches)]


@pytest.mark.parametrize("window_bytes", [1, 17, 100, 1000, 5000])
def test_windows_do_not_matter(window_bytes, monkeypatch):
    data = golden("cluster-metadata.log") + bytes(30)
    whole = read_metadata_log(data)
    monkeypatch.setattr(metadata_log, "WINDOW_BYTES", window_bytes)
    read = []
    file = BytesOnDisk(
        read=lambda position, size: read.append(size) or data[position : position + size],
        size_bytes=len(data),
    )
    reader = MetadataLogReader(file)
    assert tuple(reader.batches()) == whole.batches
    assert (reader.valid_bytes, reader.next_offset, reader.damage) == (
        whole.valid_bytes,
        whole.next_offset,
        whole.damage,
    )
    assert max(read) <= max(window_bytes, *(place.size_bytes for place in walk_batches(data[:-30])))


@pytest.mark.parametrize("window_bytes", [1, 1000, 1 << 20])
def test_a_file_that_becomes_shorter_is_cut_off(window_bytes, monkeypatch):
    data = golden("cluster-metadata.log")
    monkeypatch.setattr(metadata_log, "WINDOW_BYTES", window_bytes)
    file = BytesOnDisk(
        read=lambda position, size: data[: len(data) - 5][position : position + size], size_bytes=len(data)
    )
    reader = MetadataLogReader(file)
    assert tuple(reader.batches()) == read_metadata_log(data[:-5]).batches
    assert "became shorter" in reader.damage


def test_damage_ends_a_log_and_refuses_a_snapshot():
    data = bytearray(golden("bootstrap.checkpoint"))
    data[-30] ^= 1
    part = read_metadata_log(bytes(data))
    assert "CRC" in part.damage
    assert len(part.batches) == 1
    with pytest.raises(CorruptBatchError):
        check_kraft_snapshot(part, end_offset=0)
    with pytest.raises(CorruptBatchError):
        check_kraft_snapshot(read_metadata_log(golden("bootstrap.checkpoint")[:-1]), end_offset=0)


def test_a_snapshot_has_to_end_with_its_footer():
    whole = golden("voters.checkpoint")
    footer = whole[-75:]
    check_kraft_snapshot(read_metadata_log(whole), end_offset=1)
    for end in (0, len(whole) - len(footer)):
        part = read_metadata_log(whole[:end])
        assert part.damage is None
        check_kraft_snapshot(part, end_offset=0)  # as formatting writes it, without a topic
        with pytest.raises(CorruptBatchError, match=f"position {end}: it ends without a footer"):
            check_kraft_snapshot(part, end_offset=1)
    assert is_snapshot_footer(footer)
    assert not is_snapshot_footer(whole[: -len(footer)])


def test_zeros_behind_a_log_are_damage():
    data = golden("cluster-metadata.log")
    part = read_metadata_log(data + bytes(100))
    assert part.valid_bytes == len(data)
    assert "length 0" in part.damage


def test_compressed_batch_and_offsets():
    value = encode_metadata_record(SETTING)
    part = read_metadata_log(batch_of([value] * 3, base_offset=7, codec=Codec.LZ4))
    (batch,) = part.batches
    assert (batch.base_offset, batch.last_offset, batch.epoch, part.next_offset) == (7, 9, 3, 10)
    assert batch.records == (SETTING,) * 3


def test_batches_below_an_offset_are_not_opened():
    value = encode_metadata_record(SETTING)
    data = batch_of([b"no record", b"at all"]) + batch_of([value] * 2, base_offset=2)
    assert [batch.base_offset for batch in read_metadata_log(data, from_offset=2).batches] == [2]
    assert len(read_metadata_log(data, from_offset=3).batches) == 1
    with pytest.raises(MalformedMetadataError):
        read_metadata_log(data, from_offset=1)


def test_record_with_key_or_without_value_is_refused():
    for record in (Record(offset=0, timestamp_ms=5, key=b"k", value=b"v"), Record(offset=0, timestamp_ms=5)):
        header = RecordBatchHeader(base_offset=0, base_timestamp_ms=5, record_count=1)
        payload = encode_records([record], base_offset=0, base_timestamp_ms=5)
        with pytest.raises(MalformedMetadataError):
            read_metadata_log(encode_record_batch(header, payload))


def test_other_crc_function_is_used():
    assert read_metadata_log(golden("cluster-metadata.log"), crc32c=lambda data: 0).valid_bytes == 0


@given(st.binary(max_size=80))
def test_any_bytes_are_read_or_refused(data):
    try:
        read_metadata_log(data)
    except FormatError:
        return


@given(st.lists(KNOWN | st.just(OtherRecord(api_key=5, version=2)), min_size=1, max_size=5))
def test_short_way_and_long_way_through_a_batch_agree(records):
    values = [
        b"\x01\x05\x02whatever" if isinstance(record, OtherRecord) else encode_metadata_record(record)
        for record in records
    ]
    short, long = (read_metadata_log(batch_of(values, codec=codec)) for codec in (Codec.NONE, Codec.GZIP))
    assert short.batches[0].records == long.batches[0].records == tuple(records)


@given(st.binary(max_size=40), st.integers(0, 3))
def test_any_payload_with_a_right_crc_is_read_or_refused(payload, count):
    header = RecordBatchHeader(base_offset=0, record_count=count)
    try:
        part = read_metadata_log(encode_record_batch(header, payload))
    except MalformedMetadataError:
        return
    assert sum(len(batch.records) for batch in part.batches) == count


def test_record_with_a_header_is_read_the_long_way():
    record = Record(
        offset=0,
        timestamp_ms=5,
        value=encode_metadata_record(SETTING),
        headers=(RecordHeader(key=b"k", value=None),),
    )
    header = RecordBatchHeader(base_offset=0, base_timestamp_ms=5, record_count=1)
    payload = encode_records([record], base_offset=0, base_timestamp_ms=5)
    (batch,) = read_metadata_log(encode_record_batch(header, payload)).batches
    assert batch.records == (SETTING,)
