# mypy: ignore-errors
# ^ kernels: numba infers their types, mypy cannot follow it
"""CRCs by eight tables (slicing-by-8): 8 bytes per step on any CPU, about 2 GB/s (Zen 4, 2026-11)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from native import _gf2
from native._jit import inlined
from native._memory import load_le64, load_u8


def tables(polynomial: int) -> npt.NDArray[np.uint32]:
    """Return uint32, shape (8, 256): row k holds the effect of a byte that k bytes follow."""
    reversed_polynomial = _gf2.reflect(polynomial & 0xFFFFFFFF)
    rows = np.zeros((8, 256), np.uint32)
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (reversed_polynomial if crc & 1 else 0)
        rows[0, byte] = crc
    for k in range(1, 8):
        rows[k] = rows[k - 1] >> 8 ^ rows[0, rows[k - 1] & 0xFF]
    return rows


@inlined
def advance(rows, state, address, size):
    """Return the CRC state after *size* bytes at *address*.

    Args:
        rows: what `tables` returned.
        state: uint64 below 2**32; not inverted, neither on entry nor in the result.
        address: int64.
        size: int64, >= 0.
    """
    end = address + size
    low_byte = np.uint64(0xFF)
    while end - address >= 8:
        word = load_le64(address) ^ state
        state = np.uint64(
            rows[7, word & low_byte]
            ^ rows[6, (word >> np.uint64(8)) & low_byte]
            ^ rows[5, (word >> np.uint64(16)) & low_byte]
            ^ rows[4, (word >> np.uint64(24)) & low_byte]
            ^ rows[3, (word >> np.uint64(32)) & low_byte]
            ^ rows[2, (word >> np.uint64(40)) & low_byte]
            ^ rows[1, (word >> np.uint64(48)) & low_byte]
            ^ rows[0, word >> np.uint64(56)]
        )
        address += 8
    while address < end:
        state = np.uint64(rows[0, (state ^ np.uint64(load_u8(address))) & low_byte]) ^ (state >> np.uint64(8))
        address += 1
    return state
