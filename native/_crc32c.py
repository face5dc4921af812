# mypy: ignore-errors
# ^ kernels: numba infers their types, mypy cannot follow it
# ruff: noqa: ARG001, ARG005
# ^ an overload and its bodies take the same arguments, used or not
"""CRC-32C for kernels: `checksum(path, address, size)`, one implementation per CPU path.

Each kernel compiles only the implementation of the path that it is given.
"""

from __future__ import annotations

import numpy as np
from numba.extending import overload

from native import _crc32c_avx512, _crc32c_pclmul, _gf2, _slicing
from native._cpu_type import CpuPathType
from native._jit import INLINED_OVERLOAD, inlined, kernel
from native.cpu_path import CpuPath

_TABLES = _slicing.tables(_gf2.CASTAGNOLI)
_ALL_ONES = np.uint64(0xFFFFFFFF)


@inlined
def _portable(address, size):
    return np.int64(_slicing.advance(_TABLES, _ALL_ONES, address, size) ^ _ALL_ONES)


def checksum(path, address, size):
    """Return the CRC-32C of *size* bytes at *address*.

    Args:
        path: a CpuPath; its value is a constant to the compiler.
        address: int64.
        size: int64, >= 1.

    Returns:
        int64, 0 <= checksum < 2**32.
    """
    raise NotImplementedError("for kernels; Python calls native.crc32c.crc32c()")


@overload(checksum, jit_options=INLINED_OVERLOAD)
def _checksum_of_path(path, address, size):
    if not isinstance(path, CpuPathType):
        return None
    if path.path is CpuPath.PORTABLE:
        return lambda path, address, size: _portable(address, size)
    if path.path is CpuPath.SSE42_PCLMUL:
        return lambda path, address, size: _crc32c_pclmul.checksum(address, size)
    if path.path is CpuPath.AVX512_VPCLMUL:
        return lambda path, address, size: _crc32c_avx512.checksum(address, size)
    return None


@kernel
def checksum_of(path, address, size):
    """Do what `checksum` does, callable from Python."""
    return checksum(path, address, size)
