# mypy: ignore-errors
# ^ kernels: numba infers their types, mypy cannot follow it
"""CRC-32C by crc32q and 128-bit carry-less multiplication: SSE4.2 with PCLMULQDQ, any x86-64 since 2010.

crc32q takes 8 bytes a cycle but waits three cycles for its own result, and the multiplier takes half of
that; they are different parts of the CPU. So a long message goes in chunks, and each chunk to four at once:
three chains of crc32q on a part each, and one fold on the rest. One chain alone makes 10 GB/s, folding alone
14, all together 30.

A memory prefetcher does not follow four streams at once. Each chunk prefetches the lines of the next one, in
order; without that, reading from memory, the four are slower than one.

What is left over, and small messages: `size % 64` bytes by one chain, then blocks of 64 bytes by folding.

Gopal et al., "Fast CRC Computation for iSCSI Polynomial Using CRC32 Instruction" (Intel, 2011).
"""

from __future__ import annotations

import numpy as np

from native import _gf2
from native._crc32c_folding import fold, fold_constants
from native._jit import inlined
from native._memory import load_le64, load_u8
from native._vector import clmul_low, crc32b, crc32q, high_half, load_v128, low_half, prefetch, v128_of, xor

_BLOCK_BYTES = 64
_STREAM_BYTES = 40
"""Words that each of the three chains takes while one block is folded: 5 crc32q against 8 multiplications."""
_LONG_ROUNDS = 31
_SHORT_ROUNDS = 4

_TO_NEXT_BLOCK = fold_constants([8 * _BLOCK_BYTES])
_TO_LAST_LANE = np.stack([fold_constants([128 * (3 - j)]) for j in range(4)])
_ALL_ONES = np.uint64(0xFFFFFFFF)


def _chunk_bytes(rounds):
    """Return the size of a chunk: three streams, then one block more than there are rounds."""
    return 3 * _STREAM_BYTES * rounds + _BLOCK_BYTES * (rounds + 1)


def _stream_constants(rounds):
    """Return what moves the state after each stream to the chunk's end, uint64, shape (3,).

    The product of a state and its constant is reduced by one crc32q, which multiplies by x^32 and, because
    reflected products come out one bit too low, by one x more.
    """
    ends = [_STREAM_BYTES * rounds * (i + 1) for i in range(3)]
    exponents = [8 * (_chunk_bytes(rounds) - end) - 33 for end in ends]
    return np.array([_gf2.reflect(_gf2.power_of_x(e, _gf2.CASTAGNOLI)) for e in exponents], np.uint64)


_LONG_BYTES = _chunk_bytes(_LONG_ROUNDS)
_SHORT_BYTES = _chunk_bytes(_SHORT_ROUNDS)
_LONG_CONSTANTS = _stream_constants(_LONG_ROUNDS)
_SHORT_CONSTANTS = _stream_constants(_SHORT_ROUNDS)


@inlined
def _by_words(state, address, size):
    """Return the state after *size* bytes, by one chain of crc32q."""
    end = address + size
    while end - address >= 8:
        state = crc32q(state, load_le64(address))
        address += 8
    while address < end:
        state = crc32b(state, load_u8(address))
        address += 1
    return state


@inlined
def _to_last_lane(a, b, c, d):
    """Return the state that the four registers of a block reduce to, as the two words for crc32q."""
    to_last = np.int64(_TO_LAST_LANE.ctypes.data)
    a = fold(a, load_v128(to_last))
    b = fold(b, load_v128(to_last + 16))
    c = fold(c, load_v128(to_last + 32))
    d = fold(d, load_v128(to_last + 48))
    return xor(xor(a, b), xor(c, d))


@inlined
def _five_words(state, address):
    for i in range(5):
        state = crc32q(state, load_le64(address + 8 * i))
    return state


@inlined
def _by_streams(state, address, rounds, constants):
    """Return the state after the chunk at *address*."""
    stream_bytes = _STREAM_BYTES * rounds
    second = np.uint64(0)
    third = np.uint64(0)
    block = address + 3 * stream_bytes
    a = load_v128(block)
    b = load_v128(block + 16)
    c = load_v128(block + 32)
    d = load_v128(block + 48)
    to_next = load_v128(np.int64(_TO_NEXT_BLOCK.ctypes.data))
    ahead = address + _LONG_BYTES
    for _ in range(rounds):
        prefetch(ahead)
        prefetch(ahead + 64)
        prefetch(ahead + 128)
        ahead += 192
        block += _BLOCK_BYTES
        a = xor(fold(a, to_next), load_v128(block))
        b = xor(fold(b, to_next), load_v128(block + 16))
        c = xor(fold(c, to_next), load_v128(block + 32))
        d = xor(fold(d, to_next), load_v128(block + 48))
        state = _five_words(state, address)
        second = _five_words(second, address + stream_bytes)
        third = _five_words(third, address + 2 * stream_bytes)
        address += _STREAM_BYTES
    streams = xor(
        xor(
            clmul_low(v128_of(state), v128_of(constants[0])),
            clmul_low(v128_of(second), v128_of(constants[1])),
        ),
        clmul_low(v128_of(third), v128_of(constants[2])),
    )
    last = _to_last_lane(a, b, c, d)
    folded = crc32q(crc32q(np.uint64(0), low_half(last)), high_half(last))
    return folded ^ crc32q(np.uint64(0), low_half(streams))


@inlined
def _by_blocks(state, address, size):
    """Return the state after *size* bytes, at least two blocks."""
    head_bytes = size & (_BLOCK_BYTES - 1)
    state = _by_words(state, address, head_bytes)
    block = address + head_bytes
    end = address + size
    a = xor(load_v128(block), v128_of(state))
    b = load_v128(block + 16)
    c = load_v128(block + 32)
    d = load_v128(block + 48)
    to_next = load_v128(np.int64(_TO_NEXT_BLOCK.ctypes.data))
    block += _BLOCK_BYTES
    while block != end:
        prefetch(block + _LONG_BYTES)
        a = xor(fold(a, to_next), load_v128(block))
        b = xor(fold(b, to_next), load_v128(block + 16))
        c = xor(fold(c, to_next), load_v128(block + 32))
        d = xor(fold(d, to_next), load_v128(block + 48))
        block += _BLOCK_BYTES
    last = _to_last_lane(a, b, c, d)
    return crc32q(crc32q(np.uint64(0), low_half(last)), high_half(last))


@inlined
def checksum(address, size):
    """Return the CRC-32C of *size* bytes at *address*, int64, 0 <= checksum < 2**32; size >= 1."""
    state = _ALL_ONES
    while size >= _LONG_BYTES:
        state = _by_streams(state, address, _LONG_ROUNDS, _LONG_CONSTANTS)
        address += _LONG_BYTES
        size -= _LONG_BYTES
    while size >= _SHORT_BYTES:
        state = _by_streams(state, address, _SHORT_ROUNDS, _SHORT_CONSTANTS)
        address += _SHORT_BYTES
        size -= _SHORT_BYTES
    if size >= 2 * _BLOCK_BYTES:
        return np.int64(_by_blocks(state, address, size) ^ _ALL_ONES)
    return np.int64(_by_words(state, address, size) ^ _ALL_ONES)
