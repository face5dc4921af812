# mypy: ignore-errors
# ^ kernels: numba infers their types, mypy cannot follow it
"""CRC-32C by 512-bit carry-less multiplication: AVX-512 with VPCLMULQDQ.

The message is read once, forwards, in blocks of 256 bytes, four registers each. The *first* block is the
partial one: the bytes that it lacks, before the message, are masked to zero. So there are no tails,
whose unpredictable trip counts cost more than the rest of a small message. Masked bytes are never accessed.

The CRC's initial state of all ones belongs before the message's first byte; what is xored into the first
block is the state that the padding's zero bytes turn into it.

At the end each 128-bit lane is moved by its own distance to the last one, all at once, and two crc32q reduce
the 128 bits that remain: no chain of folds, no Barrett reduction.
"""

from __future__ import annotations

import numpy as np

from native import _gf2
from native._crc32c_folding import fold, fold_constants
from native._hints import opaque
from native._jit import inlined
from native._memory import load_le32
from native._vector import crc32q, high_half, load_v512, load_v512_from, low_half, v512_of, xor, xor_quarters

_BLOCK_BYTES = 256

# All constants are in one array, so that one register addresses them.
_NUMBERS = 0
"""uint8 0, 1, ... 255: the number of each byte of a block."""
_TO_LAST_LANE = _NUMBERS + _BLOCK_BYTES
"""Four registers; lane i of register j is 512 (3 - j) + 128 (3 - i) bits before the last lane."""
_TO_NEXT_BLOCK = _TO_LAST_LANE + 4 * 64
_INITIAL_STATES = _TO_NEXT_BLOCK + 64
"""uint32, by the number of padding bytes in the first block."""
_CONSTANTS = np.concatenate(
    [
        np.arange(_BLOCK_BYTES, dtype=np.uint8),
        fold_constants([512 * (3 - j) + 128 * (3 - i) for j in range(4) for i in range(4)]).view(np.uint8),
        fold_constants([8 * _BLOCK_BYTES] * 4).view(np.uint8),
        np.array(_gf2.states_before(0xFFFFFFFF, _BLOCK_BYTES, _gf2.CASTAGNOLI), np.uint32).view(np.uint8),
    ]
)
_ALL_ONES = np.uint64(0xFFFFFFFF)


@inlined
def checksum(address, size):
    """Return the CRC-32C of *size* bytes at *address*, int64, 0 <= checksum < 2**32; size >= 1."""
    constants = opaque(np.int64(_CONSTANTS.ctypes.data))
    numbers = constants + _NUMBERS
    to_last = constants + _TO_LAST_LANE
    padding = -size & (_BLOCK_BYTES - 1)
    block = address - padding
    last_block = address + size - _BLOCK_BYTES
    a = load_v512_from(block, load_v512(numbers), padding)
    b = load_v512_from(block + 64, load_v512(numbers + 64), padding)
    c = load_v512_from(block + 128, load_v512(numbers + 128), padding)
    d = load_v512_from(block + 192, load_v512(numbers + 192), padding)
    a = xor(a, v512_of(np.uint64(load_le32(constants + _INITIAL_STATES + 4 * padding))))
    while block != last_block:
        # Opaque: LLVM would unroll the loop, and a small message pays more for the remainder's branches.
        block = opaque(block + _BLOCK_BYTES)
        to_next = load_v512(constants + _TO_NEXT_BLOCK)
        a = xor(fold(a, to_next), load_v512(block))
        b = xor(fold(b, to_next), load_v512(block + 64))
        c = xor(fold(c, to_next), load_v512(block + 128))
        d = xor(fold(d, to_next), load_v512(block + 192))
    a = fold(a, load_v512(to_last))
    b = fold(b, load_v512(to_last + 64))
    c = fold(c, load_v512(to_last + 128))
    d = fold(d, load_v512(to_last + 192))
    last = xor_quarters(xor(xor(a, b), xor(c, d)))
    return np.int64(crc32q(crc32q(np.uint64(0), low_half(last)), high_half(last)) ^ _ALL_ONES)
