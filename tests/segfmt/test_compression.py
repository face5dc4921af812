import gzip

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh32_intdigest

from segfmt.compression import Codec, codec_of, compress, decompress
from segfmt.errors import ContentTooLargeError, DecompressionError, FormatError, UnsupportedCodecError
from segfmt.lz4_frame import encode_lz4_frame, read_lz4_frame
from segfmt.varint import (
    encode_unsigned_varint,
    encode_varint,
    read_unsigned_varint,
    read_varint,
    read_varlong,
)
from tests.segfmt.golden_files import golden

COMPRESSED = [codec for codec in Codec if codec is not Codec.NONE]
LONG_TEXT = b"".join(b"line %d of a text that compresses\n" % number for number in range(9000))


@given(st.binary(max_size=300), st.sampled_from(Codec), st.sampled_from([0, 1, 2]))
def test_round_trip(content, codec, magic):
    assert decompress(codec, compress(codec, content, magic=magic), magic=magic) == content


@pytest.mark.parametrize("codec", Codec)
def test_round_trip_of_several_blocks(codec):
    packed = compress(codec, LONG_TEXT)
    assert decompress(codec, packed) == LONG_TEXT
    assert codec is Codec.NONE or len(packed) < len(LONG_TEXT)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_cut_anywhere_is_refused_or_ends_at_a_block(codec):
    content = LONG_TEXT[:2000]
    packed = compress(codec, content)
    for end in range(len(packed)):
        try:
            read = decompress(codec, packed[:end])
        except DecompressionError:
            continue
        assert codec is Codec.SNAPPY or (codec is Codec.ZSTD and end == 0)
        assert read == b""


@pytest.mark.parametrize("codec", COMPRESSED)
def test_content_is_bounded(codec):
    bomb = compress(codec, bytes(1_000_000))
    assert len(decompress(codec, bomb, max_bytes=1_000_000)) == 1_000_000
    with pytest.raises(ContentTooLargeError):
        decompress(codec, bomb, max_bytes=999_999)


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("most_bytes", [0, 1, 300_000])
def test_too_much_content_is_not_damage_and_damage_is_not_too_much(codec, most_bytes):
    packed = compress(codec, LONG_TEXT)
    assert len(LONG_TEXT) > 300_000
    with pytest.raises(ContentTooLargeError):
        decompress(codec, packed, max_bytes=most_bytes)
    cut = packed[: len(packed) // 4]
    if most_bytes:
        with pytest.raises(DecompressionError) as caught:
            decompress(codec, cut, max_bytes=300_000)
        assert not isinstance(caught.value, ContentTooLargeError)


def test_damage_behind_a_full_buffer_is_damage():
    """A zstd frame of one raw block, so that its bound is its size, and a wrong checksum behind it."""
    frame = bytes.fromhex("28b52ffd") + bytes([0x24, 50]) + (50 << 3 | 1).to_bytes(3, "little") + b"x" * 50
    with pytest.raises(DecompressionError) as caught:
        decompress(Codec.ZSTD, frame + b"sum?")
    assert not isinstance(caught.value, ContentTooLargeError)


@given(st.sampled_from(COMPRESSED), st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(codec, data):
    for candidate in (data, compress(codec, b"some content")[:9] + data):
        try:
            decompress(codec, candidate, max_bytes=1 << 20)
        except FormatError:
            continue


@given(st.sampled_from(COMPRESSED), st.integers(0, 10_000), st.integers(1, 255))
def test_damage_is_read_or_refused(codec, place, flip):
    packed = bytearray(compress(codec, LONG_TEXT[:3000]))
    packed[place % len(packed)] ^= flip
    try:
        decompress(codec, bytes(packed), max_bytes=1 << 20)
    except FormatError:
        return


def test_codec_of_attributes():
    assert codec_of(0x7FFB) is Codec.LZ4
    for number in (5, 6, 7):
        with pytest.raises(UnsupportedCodecError):
            codec_of(number)


def test_several_gzip_members_and_what_follows():
    packed = gzip.compress(b"one") + gzip.compress(b"two")
    assert decompress(Codec.GZIP, packed) == b"onetwo"
    assert decompress(Codec.GZIP, packed + b"rest") == b"onetwo"


def test_snappy_without_xerial_header_is_one_block():
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(b"abc" * 9))) == b"abc" * 9


def test_two_snappy_streams_in_a_row():
    assert decompress(Codec.SNAPPY, compress(Codec.SNAPPY, b"a") + compress(Codec.SNAPPY, b"b")) == b"ab"


def test_zstd_frames_in_a_row():
    packed = compress(Codec.ZSTD, b"a" * 500) + compress(Codec.ZSTD, b"b" * 700)
    assert decompress(Codec.ZSTD, packed) == b"a" * 500 + b"b" * 700


def test_lz4_header_checksum_is_wrong_in_magic_0_and_checked_elsewhere():
    old, new = compress(Codec.LZ4, b"abc", magic=0), compress(Codec.LZ4, b"abc", magic=1)
    assert old[:6] == new[:6]
    assert old[6] != new[6]
    assert decompress(Codec.LZ4, old, magic=0) == decompress(Codec.LZ4, new, magic=0) == b"abc"
    with pytest.raises(DecompressionError):
        decompress(Codec.LZ4, old, magic=1)


def test_lz4_block_that_begins_like_a_length_is_read_as_a_block():
    """Four bytes in front of a block that could be its size: message sets begin with zeros (found by fuzzing)."""
    for content in (bytes.fromhex("000000d60000") * 20, bytes(8) + b"message set" * 9, b"ba\0\0" * 9):
        frame = encode_lz4_frame(content, is_header_checksum_broken=False)
        assert read_lz4_frame(frame, is_header_checksum_broken=False, max_bytes=999) == content


def test_zstd_block_beyond_the_data_is_told_at_its_end():
    packed = compress(Codec.ZSTD, b"some content")[:-1]
    with pytest.raises(DecompressionError) as raised:
        decompress(Codec.ZSTD, packed[:6] + b"\xfc\xff\x0f" + packed[9:])
    assert raised.value.position == len(packed)


def test_lz4_block_checksum_is_checked():
    frame = bytearray(encode_lz4_frame(b"abc", is_header_checksum_broken=False))
    frame[4] |= 0x10
    frame[6] = xxh32_intdigest(bytes(frame[4:6])) >> 8 & 0xFF
    block_end = len(frame) - 4
    good = frame[:block_end] + xxh32_intdigest(bytes(frame[11:block_end])).to_bytes(4, "little") + bytes(4)
    assert read_lz4_frame(bytes(good), is_header_checksum_broken=False, max_bytes=9) == b"abc"
    good[block_end] ^= 1
    with pytest.raises(DecompressionError):
        read_lz4_frame(bytes(good), is_header_checksum_broken=False, max_bytes=9)


@pytest.mark.parametrize(("place", "value"), [(0, 5), (4, 0x40), (4, 0xA0), (4, 0x61), (5, 0x30), (5, 0x41)])
def test_lz4_header_that_kafka_refuses(place, value):
    frame = bytearray(encode_lz4_frame(b"abc", is_header_checksum_broken=False))
    frame[place] = value
    with pytest.raises(DecompressionError):
        read_lz4_frame(bytes(frame), is_header_checksum_broken=True, max_bytes=9)


def test_lz4_block_beyond_the_announced_maximum_is_refused():
    frame = bytearray(encode_lz4_frame(b"x" * 10, is_header_checksum_broken=False))
    frame[7:11] = (65537).to_bytes(4, "little")
    with pytest.raises(DecompressionError):
        read_lz4_frame(bytes(frame) + bytes(70000), is_header_checksum_broken=False, max_bytes=1 << 20)


@pytest.mark.parametrize("name", ["gzip", "snappy", "lz4", "zstd"])
def test_brokers_bytes_are_read(name):
    batch = golden(f"batch-{name}.bin")
    content = decompress(codec_of(batch[22]), batch[61:])
    assert len(content) > len(batch) - 61 or name == "snappy"


@given(st.integers(-(2**63), 2**63 - 1))
def test_varlong_round_trip(value):
    data = encode_varint(value)
    assert read_varlong(data, 0) == (value, len(data))


@given(st.integers(-(2**31), 2**31 - 1))
def test_varint_round_trip(value):
    data = b"x" + encode_varint(value)
    assert read_varint(data, 1) == (value, len(data))
    assert len(data) <= 6


@given(st.integers(0, 2**32 - 1))
def test_unsigned_varint_round_trip(value):
    data = encode_unsigned_varint(value)
    assert read_unsigned_varint(data, 0) == (value, len(data))


def test_known_varints():
    known = {
        0: "00",
        -1: "01",
        1: "02",
        -64: "7f",
        64: "8001",
        2**31 - 1: "feffffff0f",
        -(2**31): "ffffffff0f",
    }
    assert {value: encode_varint(value).hex() for value in known} == known


def test_endless_and_cut_off_varints_are_refused():
    for read, size in ((read_varint, 5), (read_varlong, 10)):
        with pytest.raises(FormatError):
            read(b"\x80" * size + b"\0", 0)
        for end in range(size):
            with pytest.raises(FormatError):
                read(b"\x80" * end, 0)
