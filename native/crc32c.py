"""CRC-32C at the speed of memory, one implementation a CPU path.

For kernels there is `checksum(path, address, size)`, which compiles the one path that it is given and no other; for
Python there is `crc32c`.

Kafka: org.apache.kafka.common.utils.Crc32C.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba.extending import overload

from native import _gf2, _slicing, cpu
from native._cpu_type import CpuPathType
from native._jit import INLINED_OVERLOAD, inlined, kernel
from native.cpu import CpuPath

_TABLES = _slicing.tables(_gf2.CASTAGNOLI)
_ALL_ONES = np.uint64(0xFFFFFFFF)


@inlined
def _portable(address, size):
    return np.int64(_slicing.advance(_TABLES, _ALL_ONES, address, size) ^ _ALL_ONES)


def checksum(path, address, size):
    """Return the CRC-32C of *size* bytes at *address* (for kernels).

    Args:
        path: a CpuPath; its value is a constant to the compiler.
        address: int64.
        size: int64, >= 1.

    Returns:
        int64, 0 <= checksum < 2**32.
    """
    raise NotImplementedError("for kernels; Python calls crc32c()")


@overload(checksum, jit_options=INLINED_OVERLOAD)
def _checksum_of_path(path, address, size):
    if not isinstance(path, CpuPathType):
        return None
    if path.path is CpuPath.PORTABLE:
        return lambda path, address, size: _portable(address, size)
    return None


@kernel
def _checksum_kernel(path, address, size):
    return checksum(path, address, size)


def crc32c(data: npt.NDArray[np.uint8], crc: int = 0, *, cpu_path: CpuPath | None = None) -> int:
    """Return the CRC-32C of *data*.

    Args:
        data: uint8, shape (n,), C-contiguous. Not written; may be read-only.
        crc: the CRC-32C of the bytes before *data*: ``crc32c(b, crc32c(a)) == crc32c(a + b)``.
        cpu_path: the path to take; the fastest by default.

    Raises:
        UnsupportedCpuPathError: the CPU lacks *cpu_path*.
    """
    path = cpu.choose(cpu_path)
    if data.size == 0:
        return crc
    own: int = _checksum_kernel(path, data.ctypes.data, data.size)
    return own if crc == 0 else _gf2.join(crc, own, data.size, _gf2.CASTAGNOLI)
