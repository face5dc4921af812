import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segfmt.compression import Codec, compress
from segfmt.errors import (
    ChecksumMismatchError,
    CorruptBatchError,
    FormatError,
    InvalidRecordError,
    UnsupportedCodecError,
    UnsupportedMagicError,
)
from segfmt.message_set import (
    Message,
    base_offset,
    check_message,
    encode_message,
    read_message,
    read_messages,
)
from tests.segfmt.golden_files import MANIFEST, golden

GOLDEN = sorted(name for name in MANIFEST if name.startswith("message-"))
LONG = st.integers(-(2**63), 2**63 - 1)
BYTES = st.none() | st.binary(max_size=20)
MESSAGE = st.builds(
    Message,
    offset=LONG,
    magic=st.integers(-128, 1).filter(bool),
    attributes=st.integers(-128, 127),
    timestamp_ms=LONG,
    key=BYTES,
    value=BYTES,
) | st.builds(
    Message, offset=LONG, magic=st.just(0), attributes=st.integers(-128, 127), key=BYTES, value=BYTES
)


@given(MESSAGE)
def test_round_trip(message):
    data = encode_message(message)
    assert check_message(data) == len(data)
    assert read_message(data) == message


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_message(name):
    data = golden(name)
    assert check_message(data) == len(data)
    message = read_message(data)
    assert encode_message(message) == data
    inner = list(read_messages(data))
    assert [one.offset for one in inner] == list(range(inner[0].offset, message.offset + 1))
    assert base_offset(data) == inner[0].offset
    assert all(one.value for one in inner)
    if message.magic == 0:
        assert {one.timestamp_ms for one in inner} == {-1}
    if message.is_log_append_time:
        assert {one.timestamp_ms for one in inner} == {message.timestamp_ms}
    assert (message.codec is Codec.NONE) == (len(inner) == 1)


@pytest.mark.parametrize("name", GOLDEN)
def test_cut_anywhere_is_refused(name):
    data = golden(name)
    for end in range(len(data)):
        for read in (check_message, read_message, lambda part: list(read_messages(part))):
            with pytest.raises(FormatError):
                read(data[:end])


def test_every_flipped_bit_behind_the_crc_is_noticed():
    data = golden("message-v1.bin")
    for place in (12, 15, *range(17, len(data))):
        with pytest.raises(ChecksumMismatchError):
            check_message(data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :])


@pytest.mark.parametrize("size", [-1, 0, 13])
def test_size_below_the_least_is_corrupt(size):
    data = golden("message-v0.bin")
    with pytest.raises(CorruptBatchError):
        check_message(data[:8] + size.to_bytes(4, "big", signed=True) + data[12:])


def test_record_batch_is_no_message():
    with pytest.raises(UnsupportedMagicError):
        read_message(golden("batch-none.bin"))


def wrap(inner, *, magic=1, offset=None, codec=Codec.GZIP, timestamp_ms=99, attributes=0):
    content = b"".join(map(encode_message, inner))
    last = inner[-1].offset if inner else 0
    wrapper = Message(
        offset=last if offset is None else offset,
        magic=magic,
        attributes=int(codec) | attributes,
        timestamp_ms=timestamp_ms if magic else -1,
        value=compress(codec, content, magic=magic),
    )
    return encode_message(wrapper)


def numbered(count, *, magic=1, start=0):
    return [
        Message(offset=start + n, magic=magic, timestamp_ms=n if magic else -1, value=b"v")
        for n in range(count)
    ]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize("magic", [0, 1])
def test_wrapper_of_every_codec(codec, magic):
    start = 0 if magic else 40
    data = wrap(numbered(3, magic=magic, start=start), magic=magic, offset=42, codec=codec)
    assert [one.offset for one in read_messages(data)] == [40, 41, 42]


def test_wrapper_of_offset_0_leaves_the_inner_offsets():
    assert [one.offset for one in read_messages(wrap(numbered(3), offset=0))] == [0, 1, 2]


def test_wrapper_below_its_last_message_is_refused():
    with pytest.raises(InvalidRecordError):
        list(read_messages(wrap(numbered(3), offset=1)))


def test_log_append_time_of_the_wrapper_goes_inside():
    data = wrap(numbered(2), offset=11, attributes=8)
    assert [one.timestamp_ms for one in read_messages(data)] == [99, 99]
    assert [one.timestamp_ms for one in read_messages(wrap(numbered(2), offset=11))] == [0, 1]


def test_messages_of_magic_0_have_no_timestamp_in_any_wrapper():
    data = wrap(numbered(2, magic=0), offset=1, attributes=8)
    assert [one.timestamp_ms for one in read_messages(data)] == [-1, -1]


def test_wrappers_that_kafka_refuses():
    nested = dataclasses.replace(numbered(1)[0], attributes=1)
    null = Message(offset=0, magic=1, attributes=1, value=None)
    strange = dataclasses.replace(null, magic=-3, value=b"")
    zstd = dataclasses.replace(null, attributes=4, value=compress(Codec.ZSTD, b"x"))
    for data in (wrap([nested]), wrap([]), *map(encode_message, (null, strange, zstd))):
        with pytest.raises(InvalidRecordError):
            list(read_messages(data))
    with pytest.raises(UnsupportedCodecError):
        list(read_messages(encode_message(dataclasses.replace(null, attributes=5))))


def test_partial_message_at_the_end_of_a_wrapper_is_dropped():
    content = b"".join(map(encode_message, numbered(3)))
    for cut in range(1, 29):
        value = compress(Codec.GZIP, content[:-cut])
        wrapper = encode_message(Message(offset=1, magic=1, attributes=1, value=value))
        assert [one.offset for one in read_messages(wrapper)] == [0, 1]


@given(st.binary(max_size=60), st.sampled_from(Codec), st.sampled_from([0, 1]))
def test_any_content_is_read_or_refused(content, codec, magic):
    data = encode_message(
        Message(offset=5, magic=magic, attributes=int(codec), value=compress(codec, content, magic=magic))
    )
    for candidate in (data, data[:16] + content):
        try:
            list(read_messages(candidate))
        except FormatError:
            continue
