"""CRC-32C of a buffer, at the speed of memory.

Kafka: org.apache.kafka.common.utils.Crc32C.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from native import _gf2, cpu, kernels
from native.address import address_of
from native.cpu_path import CpuPath


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
    own = kernels.entry(kernels.CHECKSUM, path)(address_of(data), data.size)
    return own if crc == 0 else _gf2.join(crc, own, data.size, _gf2.CASTAGNOLI)


def crc32c_of_bytes(data: bytes) -> int:
    """Return the CRC-32C of *data*, for the readers of `segfmt` that take a checksum function."""
    return crc32c(np.frombuffer(data, dtype=np.uint8))
