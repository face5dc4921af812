# mypy: ignore-errors
# ^ kernels: numba infers their types, mypy cannot follow it
"""What CRC-32C by carry-less multiplication needs on every vector width: the constants of folding.

***Folding* moves 128 bits of the message forwards by D bits: they are multiplied by x^D modulo the
polynomial, each 64-bit half by its own constant, and xored into the bits at their new position. Nothing is
divided until the end.

Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction" (Intel, 2009).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from native import _gf2
from native._jit import inlined
from native._vector import clmul_high, clmul_low, xor


def fold_constants(distances_bits: list[int]) -> npt.NDArray[np.uint64]:
    """Return the constants that move one 128-bit lane by each of *distances_bits* (0 is possible).

    uint64, shape (2 * number of lanes,). The product of two reflected factors comes out one bit too low,
    hence the shift by one; the low half is the one that comes first in the message, 64 bits further away.
    """
    exponents = [d + half for d in distances_bits for half in (32, -32)]
    return np.array([_gf2.reflect(_gf2.power_of_x(e, _gf2.CASTAGNOLI)) << 1 for e in exponents], np.uint64)


@inlined
def fold(vector, constants):
    """Return *vector* with each 128-bit lane moved by its constants."""
    return xor(clmul_low(vector, constants), clmul_high(vector, constants))
