import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segfmt import byte_layout
from segfmt.compression import Codec, compress
from segfmt.errors import (
    BufferUnderflowError,
    ChecksumMismatchError,
    CorruptBatchError,
    FormatError,
    InvalidRecordError,
    UnsupportedCodecError,
    UnsupportedMagicError,
)
from segfmt.record import Record, RecordHeader, encode_records, read_records
from segfmt.record_batch import (
    RecordBatchHeader,
    check_record_batch,
    encode_record_batch,
    increment_sequence,
    read_record_batch_header,
    walk_batches,
)
from tests.segfmt.golden_files import MANIFEST, golden

BATCHES = sorted(name for name in MANIFEST if name.startswith(("batch-", "marker-")))
LONG = st.integers(-(2**63), 2**63 - 1)
INT = st.integers(-(2**31), 2**31 - 1)
SHORT = st.integers(-(2**15), 2**15 - 1)
BYTES = st.none() | st.binary(max_size=20)
RECORD = st.builds(
    Record,
    offset=st.integers(0, 2**31 - 1),
    timestamp_ms=st.integers(0, 2**45),
    key=BYTES,
    value=BYTES,
    headers=st.lists(st.builds(RecordHeader, key=st.binary(max_size=5), value=BYTES), max_size=3).map(tuple),
    attributes=st.integers(-128, 127),
)


@pytest.mark.parametrize("name", BATCHES)
def test_golden_batch(name):
    data = golden(name)
    header = check_record_batch(data)
    assert header.size_bytes == len(data)
    assert encode_record_batch(header, data[61:]) == data
    records = list(read_records(data))
    assert len(records) == header.record_count
    if records:
        assert records[-1].offset == header.last_offset
        assert max(record.timestamp_ms for record in records) == header.max_timestamp_ms
    if header.codec is Codec.NONE:
        base = {"base_offset": header.base_offset, "base_timestamp_ms": header.base_timestamp_ms}
        assert encode_records(records, **base) == data[61:]


def test_golden_flags():
    empty = read_record_batch_header(golden("batch-empty.bin"))
    assert (empty.record_count, empty.size_bytes) == (0, 61)
    commit = read_record_batch_header(golden("marker-commit.bin"))
    assert commit.is_control
    assert commit.is_transactional
    assert read_record_batch_header(golden("marker-delete-horizon.bin")).has_delete_horizon
    stamped = read_record_batch_header(golden("batch-append-time-lz4.bin"))
    assert stamped.is_log_append_time
    assert {record.timestamp_ms for record in read_records(golden("batch-append-time-lz4.bin"))} == {
        stamped.max_timestamp_ms
    }
    plain = read_record_batch_header(golden("batch-none.bin"))
    assert (plain.is_control, plain.is_transactional, plain.is_log_append_time) == (False, False, False)
    sequences = [record.sequence for record in read_records(golden("batch-none.bin"))]
    assert sequences == [plain.base_sequence, plain.last_sequence]


HEADER = st.builds(
    RecordBatchHeader,
    base_offset=LONG,
    partition_leader_epoch=INT,
    magic=st.integers(2, 127),
    attributes=SHORT,
    last_offset_delta=INT,
    base_timestamp_ms=LONG,
    max_timestamp_ms=LONG,
    producer_id=LONG,
    producer_epoch=SHORT,
    base_sequence=INT,
    record_count=INT,
)


@given(HEADER, st.binary(max_size=30))
def test_header_round_trip(header, records):
    data = encode_record_batch(header, records)
    read = check_record_batch(data)
    assert dataclasses.replace(read, crc=0, length=header.length) == header
    assert read.size_bytes == len(data) == 61 + len(records)


@given(st.lists(RECORD, min_size=1, max_size=6), st.sampled_from(Codec))
def test_records_round_trip(records, codec):
    header = RecordBatchHeader(
        base_offset=records[0].offset,
        attributes=int(codec),
        base_timestamp_ms=records[0].timestamp_ms,
        record_count=len(records),
    )
    base = {"base_offset": header.base_offset, "base_timestamp_ms": header.base_timestamp_ms}
    data = encode_record_batch(header, compress(codec, encode_records(records, **base)))
    assert list(read_records(data)) == records


@pytest.mark.parametrize("name", BATCHES)
def test_cut_anywhere_is_refused(name):
    data = golden(name)
    for end in range(len(data)):
        with pytest.raises(FormatError):
            check_record_batch(data[:end])
        with pytest.raises(FormatError):
            list(read_records(data[:end]))


def test_position_is_respected():
    data = b"junk!" + golden("batch-none.bin")
    assert check_record_batch(data, 5) == check_record_batch(data[5:])
    assert list(read_records(data, 5)) == list(read_records(data[5:]))
    with pytest.raises(FormatError):
        check_record_batch(data, 6)


def test_every_flipped_bit_behind_the_crc_is_noticed():
    data = golden("batch-none.bin")
    for place in range(byte_layout.BATCH_CRC_POSITION, len(data)):
        with pytest.raises(ChecksumMismatchError) as caught:
            check_record_batch(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        assert caught.value.expected != caught.value.actual


def test_leader_epoch_and_base_offset_are_not_protected():
    data = bytearray(golden("batch-none.bin"))
    data[0:8] = (77).to_bytes(8, "big")
    data[12:17] = (9).to_bytes(4, "big") + b"\x7f"
    header = check_record_batch(bytes(data))
    assert (header.base_offset, header.partition_leader_epoch, header.magic) == (77, 9, 127)


@pytest.mark.parametrize("magic", [0, 1, 255, 128])
def test_message_is_no_record_batch(magic):
    data = bytearray(golden("batch-none.bin"))
    data[16] = magic
    with pytest.raises(UnsupportedMagicError):
        check_record_batch(bytes(data))


@pytest.mark.parametrize("length", [-1, 0, 14, 48])
def test_batch_shorter_than_its_header_is_corrupt(length):
    data = golden("batch-none.bin")
    with pytest.raises(CorruptBatchError):
        check_record_batch(data[:8] + length.to_bytes(4, "big", signed=True) + data[12:])


def test_walk_finds_each_batch():
    names = ["batch-none.bin", "marker-abort.bin", "message-v1.bin", "batch-empty.bin", "message-v0.bin"]
    parts = [golden(name) for name in names]
    places = list(walk_batches(b"".join(parts)))
    assert [place.size_bytes for place in places] == [len(part) for part in parts]
    assert [place.position for place in places] == [sum(map(len, parts[:n])) for n in range(len(parts))]
    assert [place.magic for place in places] == [2, 2, 1, 2, 0]
    assert [place.offset for place in places] == [int.from_bytes(part[:8], "big") for part in parts]


def test_walk_ends_silently_at_a_torn_batch():
    first, second = golden("batch-none.bin"), golden("batch-gzip.bin")
    for end in range(len(second)):
        assert len(list(walk_batches(first + second[:end]))) == 1
    assert len(list(walk_batches(first + second))) == 2


@pytest.mark.parametrize("tail", [bytes(18), b"\xff" * 18, (5).to_bytes(8) + (13).to_bytes(4) + bytes(9)])
def test_walk_raises_where_the_length_cannot_be(tail):
    places = walk_batches(golden("batch-none.bin") + tail)
    assert next(places).position == 0
    with pytest.raises(CorruptBatchError) as caught:
        next(places)
    assert caught.value.position == 152


@pytest.mark.parametrize("tail", [b"", bytes(17)])
def test_walk_ignores_up_to_17_bytes(tail):
    assert len(list(walk_batches(golden("batch-none.bin") + tail))) == 1


def test_walk_reads_a_negative_magic():
    data = bytearray(golden("message-v1.bin"))
    data[16] = 0x80
    assert next(walk_batches(bytes(data))).magic == -128


def recount(data, count):
    header = dataclasses.replace(read_record_batch_header(data), record_count=count)
    return encode_record_batch(header, data[61:])


@pytest.mark.parametrize("name", ["batch-none.bin", "batch-gzip.bin"])
@pytest.mark.parametrize("change", [-1, 1])
def test_record_count_that_does_not_fit_is_refused(name, change):
    data = golden(name)
    with pytest.raises(InvalidRecordError):
        list(read_records(recount(data, read_record_batch_header(data).record_count + change)))


def test_negative_record_count_is_refused_and_zero_reads_nothing():
    with pytest.raises(InvalidRecordError):
        list(read_records(recount(golden("batch-none.bin"), -1)))
    assert list(read_records(recount(golden("batch-none.bin"), 0))) == []


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codec(codec):
    header = RecordBatchHeader(base_offset=0, attributes=codec, record_count=1)
    assert header.attributes == codec
    with pytest.raises(UnsupportedCodecError):
        list(read_records(encode_record_batch(header, b"x")))


@given(st.binary(max_size=40), st.integers(1, 3), st.sampled_from(Codec))
def test_any_payload_is_read_or_refused(payload, count, codec):
    header = RecordBatchHeader(base_offset=0, attributes=int(codec), record_count=count)
    try:
        list(read_records(encode_record_batch(header, payload)))
    except FormatError:
        return


@given(st.binary(max_size=100))
def test_any_bytes_are_walked_or_refused(data):
    try:
        for place in walk_batches(data):
            assert place.size_bytes >= 26
    except CorruptBatchError:
        return


def test_last_offset_and_sequence_wrap_like_java():
    header = RecordBatchHeader(base_offset=2**63 - 1, last_offset_delta=1, base_sequence=2**31 - 1)
    assert header.last_offset == -(2**63)
    assert header.last_sequence == 0
    assert RecordBatchHeader(base_offset=0, last_offset_delta=5).last_sequence == -1
    assert increment_sequence(2**31 - 2, 3) == 1


def test_reading_short_buffers_is_an_underflow():
    with pytest.raises(BufferUnderflowError):
        read_record_batch_header(bytes(60))
