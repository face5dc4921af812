"""LZ4 frames as Kafka writes and reads them.

    magic 0x184D2204 | FLG | BD | [content size, 8 bytes] | HC | blocks | 0 | [content checksum]
    block: size u32 (highest bit: stored) | bytes | [checksum]

Little-endian. Blocks are independent. In messages of magic 0 the header checksum HC was computed over the
magic too, which is wrong; Kafka does not check it there. Neither the content checksum nor anything after the end
mark is ever looked at; blocks that depend on one another are refused. Libraries that read frames differ in all
four, so only blocks are left to cramjam here.

Kafka: Lz4BlockInputStream, Lz4BlockOutputStream.
"""

from __future__ import annotations

import cramjam
import numpy as np
from xxhash import xxh32_intdigest

from segfmt.errors import ContentTooLargeError, DecompressionError

MAGIC = 0x184D2204

_VERSION_BITS = 0xC0
_VERSION = 0x40
_BLOCK_INDEPENDENCE = 0x20
_BLOCK_CHECKSUM = 0x10
_CONTENT_SIZE = 0x08
_RESERVED_FLG = 0x03
_RESERVED_BD = 0x8F
_STORED = 0x80000000
_BLOCK_BYTES = {4: 1 << 16, 5: 1 << 18, 6: 1 << 20, 7: 1 << 22}
_WRITTEN_BD = 4 << 4


def read_lz4_frame(data: bytes, *, is_header_checksum_broken: bool, max_bytes: int) -> bytes:
    """Return the content of the LZ4 frame at the start of *data*; bytes past its end mark are ignored.

    Args:
        data: the frame.
        is_header_checksum_broken: True for magic 0, where the header checksum is not compared.
        max_bytes: give up beyond this many bytes of content.

    Raises:
        ContentTooLargeError: the content exceeds *max_bytes*.
        DecompressionError: Kafka's stream would throw an IOException.
    """
    flags, block_bytes, position = _read_header(data, is_header_checksum_broken)
    content = bytearray()
    block = np.empty(block_bytes, np.uint8)
    while True:
        size = _u32(data, position)
        position += 4
        stored, size = bool(size & _STORED), size & ~_STORED
        if size == 0:
            return bytes(content)
        body = data[position : position + size]
        if size > block_bytes or len(body) < size:
            raise DecompressionError(f"LZ4 block of {size} bytes is too big or cut off", position=position)
        position += size
        content += body if stored else _decompress_block(body, block, position - size)
        if len(content) > max_bytes:
            raise ContentTooLargeError(f"LZ4 content exceeds {max_bytes} bytes", position=position)
        if flags & _BLOCK_CHECKSUM:
            if xxh32_intdigest(body) != _u32(data, position):
                raise DecompressionError("LZ4 block checksum mismatch", position=position)
            position += 4


def encode_lz4_frame(content: bytes, *, is_header_checksum_broken: bool) -> bytes:
    """Return an LZ4 frame with 64 KiB blocks, with the old wrong header checksum if asked for."""
    magic = MAGIC.to_bytes(4, "little")
    descriptor = bytes([_VERSION | _BLOCK_INDEPENDENCE, _WRITTEN_BD])
    checksum = xxh32_intdigest(magic + descriptor if is_header_checksum_broken else descriptor) >> 8 & 0xFF
    parts = [magic, descriptor, bytes([checksum])]
    for start in range(0, len(content), 1 << 16):
        block = content[start : start + (1 << 16)]
        packed = bytes(cramjam.lz4.compress_block(block, store_size=False))
        stored = len(packed) >= len(block)
        body = block if stored else packed
        parts += [(len(body) | (_STORED if stored else 0)).to_bytes(4, "little"), body]
    return b"".join([*parts, bytes(4)])


def _read_header(data: bytes, is_header_checksum_broken: bool) -> tuple[int, int, int]:
    if len(data) < 6 or _u32(data, 0) != MAGIC:
        raise DecompressionError("no LZ4 frame: too short or wrong magic")
    flags, descriptor = data[4], data[5]
    if flags & _VERSION_BITS != _VERSION or not flags & _BLOCK_INDEPENDENCE or flags & _RESERVED_FLG:
        raise DecompressionError(f"LZ4 frame with unsupported flags {flags:#04x}", position=4)
    block_bytes = _BLOCK_BYTES.get(descriptor >> 4)
    if block_bytes is None or descriptor & _RESERVED_BD:
        raise DecompressionError(f"LZ4 frame with unsupported block descriptor {descriptor:#04x}", position=5)
    end = 6 + (8 if flags & _CONTENT_SIZE else 0)
    if len(data) <= end:
        raise DecompressionError("LZ4 frame header is cut off", position=len(data))
    if not is_header_checksum_broken and data[end] != xxh32_intdigest(data[4:end]) >> 8 & 0xFF:
        raise DecompressionError("LZ4 frame header checksum mismatch", position=end)
    return flags, block_bytes, end + 1


def _decompress_block(body: bytes, block: np.ndarray[tuple[int], np.dtype[np.uint8]], position: int) -> bytes:
    try:
        # Without a length cramjam takes the first bytes of some blocks for a length.
        size = cramjam.lz4.decompress_block_into(body, block.data, output_len=len(block))
    except cramjam.DecompressionError as error:
        raise DecompressionError(f"LZ4 block: {error}", position=position) from error
    return block[:size].tobytes()


def _u32(data: bytes, position: int) -> int:
    word = data[position : position + 4]
    if len(word) < 4:
        raise DecompressionError("LZ4 frame is cut off", position=position)
    return int.from_bytes(word, "little")
