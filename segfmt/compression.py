"""The codecs of record batches and message sets: none, gzip, snappy, lz4, zstd.

    gzip     RFC 1952, several members allowed
    snappy   xerial stream: magic, two versions, then (size i32, raw snappy block)*; or one raw block
    lz4      frame, see `lz4_frame`
    zstd     one or more frames

Everything is bounded: no input takes more than twice `max_bytes` of memory, and the time is proportional to the bytes
in and out. Bytes past the end of a stream are ignored where Kafka's stream ignores them.

Kafka: CompressionType, Compression and its implementations; org.xerial.snappy.SnappyInputStream.
"""

from __future__ import annotations

import enum
import gzip
import zlib

import cramjam
import numpy as np

from segfmt.errors import ContentTooLargeError, DecompressionError, UnsupportedCodecError
from segfmt.lz4_frame import encode_lz4_frame, read_lz4_frame

MAX_BYTES = 2**31 - 1

_SNAPPY_MAGIC = b"\x82SNAPPY\x00"
_SNAPPY_HEADER = _SNAPPY_MAGIC + (1).to_bytes(4, "big") * 2
_SNAPPY_BLOCK_BYTES = 32 * 1024
_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_SKIPPABLE = 0x184D2A50
_ZSTD_BLOCK_BYTES = 128 * 1024
_ZSTD_UNTOUCHED = b"\xa7no content\x00ends\x1flike this\xe5"
"""Written at the end of a buffer, to show whether it was filled."""
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_WINDOW_BITS = 31
_GZIP_PIECE_BYTES = 512
_GZIP_MOST_PIECE_BYTES = 1 << 20
_SNAPPY_MOST_GROWTH = 22
"""A block says how large its content is; the densest element turns 3 bytes into 64."""


class Codec(enum.IntEnum):
    """Compression id, the low three bits of a batch's attributes. Kafka: CompressionType."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def codec_of(attributes: int) -> Codec:
    """Return the codec that *attributes* name.

    Raises:
        UnsupportedCodecError: ids 5 to 7. Kafka: CompressionType.forId.
    """
    number = attributes & 0x07
    try:
        return Codec(number)
    except ValueError:
        raise UnsupportedCodecError(f"compression id {number} is none of 0 to 4") from None


def decompress(codec: Codec, data: bytes, *, magic: int = 2, max_bytes: int = MAX_BYTES) -> bytes:
    """Return what *data* holds.

    Args:
        codec: how it was compressed.
        data: the compressed records or message set.
        magic: of the batch or message around it; 0 means that an LZ4 header checksum is not compared.
        max_bytes: give up beyond this many bytes.

    Raises:
        ContentTooLargeError: beyond *max_bytes*.
        DecompressionError: damaged or cut off.
    """
    if codec is Codec.NONE:
        return data
    if codec is Codec.GZIP:
        return _gunzip(data, max_bytes)
    if codec is Codec.SNAPPY:
        return _unsnap(data, max_bytes)
    if codec is Codec.LZ4:
        return read_lz4_frame(data, is_header_checksum_broken=magic == 0, max_bytes=max_bytes)
    return _unzstd(data, max_bytes)


def compress(codec: Codec, content: bytes, *, magic: int = 2) -> bytes:
    """Return *content* compressed so that a broker can read it; a broker might make other bytes of it."""
    if codec is Codec.NONE:
        return content
    if codec is Codec.GZIP:
        return gzip.compress(content, mtime=0)
    if codec is Codec.SNAPPY:
        blocks = [
            bytes(cramjam.snappy.compress_raw(content[start : start + _SNAPPY_BLOCK_BYTES]))
            for start in range(0, len(content), _SNAPPY_BLOCK_BYTES)
        ]
        return _SNAPPY_HEADER + b"".join(len(block).to_bytes(4, "big") + block for block in blocks)
    if codec is Codec.LZ4:
        return encode_lz4_frame(content, is_header_checksum_broken=magic == 0)
    return bytes(cramjam.zstd.compress(content))


def _gunzip(data: bytes, max_bytes: int) -> bytes:
    content = bytearray()
    view = memoryview(data)
    position = 0
    while True:
        member = zlib.decompressobj(_GZIP_WINDOW_BITS)
        piece_bytes = _GZIP_PIECE_BYTES
        while not member.eof:
            # Piece by piece: zlib copies what follows a member, and there may be many small members.
            piece = member.unconsumed_tail or view[position : position + piece_bytes]
            if not piece:
                raise DecompressionError("gzip: stream is cut off", position=len(data))
            if not member.unconsumed_tail:
                position += len(piece)
                piece_bytes = min(2 * piece_bytes, _GZIP_MOST_PIECE_BYTES)
            try:
                content += member.decompress(piece, min(_GZIP_MOST_PIECE_BYTES, max_bytes - len(content) + 1))
            except zlib.error as error:
                raise DecompressionError(f"gzip: {error}") from error
            if len(content) > max_bytes:
                raise ContentTooLargeError(f"gzip: content exceeds {max_bytes} bytes")
        position -= len(member.unused_data)
        if view[position : position + 2] != _GZIP_MAGIC:
            return bytes(content)


def _unsnap(data: bytes, max_bytes: int) -> bytes:
    if not data.startswith(_SNAPPY_MAGIC):
        return _unsnap_block(data, 0, max_bytes)
    if len(data) < len(_SNAPPY_HEADER):
        raise DecompressionError("snappy: header is cut off", position=len(data))
    content = bytearray()
    position = len(_SNAPPY_HEADER)
    while position < len(data):
        if data.startswith(_SNAPPY_MAGIC, position):  # a second stream right after the first
            position += len(_SNAPPY_HEADER)
            continue
        start = position + 4
        size = int.from_bytes(data[position:start], "big", signed=True)
        if len(data) < start or not 0 <= size <= len(data) - start:
            raise DecompressionError(f"snappy: block of {size} bytes is cut off", position=position)
        content += _unsnap_block(data[start : start + size], start, max_bytes - len(content))
        position = start + size
    return bytes(content)


def _unsnap_block(block: bytes, position: int, max_bytes: int) -> bytes:
    try:
        size = cramjam.snappy.decompress_raw_len(block)
        # Memory for all of it is allocated before the first byte is read, and a failure could not be handled.
        if size > _SNAPPY_MOST_GROWTH * len(block):
            words = f"snappy: content of {size} bytes is too much for {len(block)}"
            raise DecompressionError(words, position=position)
        if size > max_bytes:
            raise ContentTooLargeError(f"snappy: content of {size} bytes is too much", position=position)
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise DecompressionError(f"snappy: {error}", position=position) from error


def _unzstd(data: bytes, max_bytes: int) -> bytes:
    bound = _zstd_bound(data)
    try:
        # The buffer is as large as the blocks could fill at most; unused pages are never allocated.
        content = np.empty(min(bound, max_bytes), np.uint8)
        end = content[-len(_ZSTD_UNTOUCHED) :]
        end[:] = np.frombuffer(_ZSTD_UNTOUCHED, np.uint8)[: len(end)]
        size = cramjam.zstd.decompress_into(data, content.data)
    except (cramjam.DecompressionError, OSError, MemoryError) as error:
        # cramjam has one error for a full buffer and for damage; only in the first case is the buffer full.
        if bound > max_bytes and (not max_bytes or not _ZSTD_UNTOUCHED.startswith(end.tobytes())):
            raise ContentTooLargeError(f"zstd: content exceeds {max_bytes} bytes") from error
        raise DecompressionError(f"zstd: {error}") from error
    return content[:size].tobytes()


def _zstd_bound(data: bytes) -> int:
    """Return how many bytes the frames in *data* hold at most, from their block headers alone."""
    bound = position = 0
    while position < len(data):
        magic = int.from_bytes(data[position : position + 4], "little")
        if magic & ~0xF == _ZSTD_SKIPPABLE:
            position += 8 + int.from_bytes(data[position + 4 : position + 8], "little")
            continue
        if magic != _ZSTD_MAGIC or position + 5 > len(data):
            raise DecompressionError("zstd: no frame magic", position=position)
        descriptor = data[position + 4]
        position += _zstd_header_bytes(descriptor)
        is_last = False
        while not is_last:
            header = data[position : position + 3]
            if len(header) < 3:
                raise DecompressionError("zstd: frame is cut off", position=min(position, len(data)))
            word = int.from_bytes(header, "little")
            is_last, kind, size = bool(word & 1), word >> 1 & 3, word >> 3
            bound += _ZSTD_BLOCK_BYTES if kind == 2 else size
            position += 3 + (1 if kind == 1 else size)
        position += 4 if descriptor & 0x04 else 0
    return bound


def _zstd_header_bytes(descriptor: int) -> int:
    is_single_segment = bool(descriptor & 0x20)
    content_size_bytes = (int(is_single_segment), 2, 4, 8)[descriptor >> 6]
    dictionary_id_bytes = (0, 1, 2, 4)[descriptor & 3]
    return 5 + (0 if is_single_segment else 1) + dictionary_id_bytes + content_size_bytes
