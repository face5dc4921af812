# mypy: ignore-errors
# ^ kernels: numba infers their types, mypy cannot follow it
"""CRC-32C by 128-bit carry-less multiplication and crc32q: SSE4.2 with PCLMULQDQ, any x86-64 since 2010.

A message is `size % 64` bytes by crc32q, then blocks of 64 bytes, four registers each, the state so far
xored into the first four bytes of the first block.
"""

from __future__ import annotations

import numpy as np

from native._crc32c_folding import fold, fold_constants
from native._jit import inlined
from native._memory import load_le64, load_u8
from native._vector import crc32b, crc32q, high_half, load_v128, low_half, v128_of, xor

_BLOCK_BYTES = 64

_TO_NEXT_BLOCK = fold_constants([8 * _BLOCK_BYTES])
_TO_LAST_LANE = np.stack([fold_constants([128 * (3 - j)]) for j in range(4)])
_ALL_ONES = np.uint64(0xFFFFFFFF)


@inlined
def _by_words(state, address, size):
    """Return the state after *size* bytes, by one chain of crc32q."""
    while size >= 8:
        state = crc32q(state, load_le64(address))
        address += 8
        size -= 8
    while size > 0:
        state = crc32b(state, load_u8(address))
        address += 1
        size -= 1
    return state


@inlined
def checksum(address, size):
    """Return the CRC-32C of *size* bytes at *address*, int64, 0 <= checksum < 2**32; size >= 1."""
    if size < 2 * _BLOCK_BYTES:
        return np.int64(_by_words(_ALL_ONES, address, size) ^ _ALL_ONES)
    head_bytes = size & (_BLOCK_BYTES - 1)
    state = _by_words(_ALL_ONES, address, head_bytes)
    block = address + head_bytes
    end = address + size
    a = xor(load_v128(block), v128_of(state))
    b = load_v128(block + 16)
    c = load_v128(block + 32)
    d = load_v128(block + 48)
    to_next = load_v128(np.int64(_TO_NEXT_BLOCK.ctypes.data))
    block += _BLOCK_BYTES
    while block != end:
        a = xor(fold(a, to_next), load_v128(block))
        b = xor(fold(b, to_next), load_v128(block + 16))
        c = xor(fold(c, to_next), load_v128(block + 32))
        d = xor(fold(d, to_next), load_v128(block + 48))
        block += _BLOCK_BYTES
    to_last = np.int64(_TO_LAST_LANE.ctypes.data)
    a = fold(a, load_v128(to_last))
    b = fold(b, load_v128(to_last + 16))
    c = fold(c, load_v128(to_last + 32))
    d = fold(d, load_v128(to_last + 48))
    last = xor(xor(a, b), xor(c, d))
    return np.int64(crc32q(crc32q(np.uint64(0), low_half(last)), high_half(last)) ^ _ALL_ONES)
