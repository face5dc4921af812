"""Right checksums for wrong bytes: without them a fuzzer never gets past the first check."""

from __future__ import annotations

import struct
import zlib

from tests.logs.reference import crc32c

_LEAST_BYTES = 26


def seal_batches(data: bytes) -> bytes:
    """Return *data* with the checksum of each batch right, along the lengths that it has.

    A length that cannot be is made to reach the end; bytes too few for a batch stay as they are.
    """
    octets = bytearray(data)
    position = 0
    while len(octets) - position >= _LEAST_BYTES:
        (length,) = struct.unpack_from(">i", octets, position + 8)
        left = len(octets) - position - 12
        if not 14 <= length <= left:
            length = left
            struct.pack_into(">i", octets, position + 8, length)
        end = position + 12 + length
        if octets[position + 16] >= 128 or octets[position + 16] < 2:
            struct.pack_into(">I", octets, position + 12, zlib.crc32(octets[position + 16 : end]))
        elif length >= 49:
            struct.pack_into(">I", octets, position + 17, crc32c(bytes(octets[position + 21 : end])))
        position = end
    return bytes(octets)
