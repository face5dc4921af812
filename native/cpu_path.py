"""The ways to compute a CRC-32C, and the target of machine code: values that kernels use, too."""

from __future__ import annotations

import enum
from typing import NamedTuple


class CpuPath(enum.IntEnum):
    """The ways to compute a CRC-32C, slowest first."""

    PORTABLE = 0
    """Tables; runs everywhere."""
    SSE42_PCLMUL = 1
    """crc32q and 128-bit carry-less multiplication: x86-64 since 2010."""
    AVX512_VPCLMUL = 2
    """512-bit carry-less multiplication: Ice Lake, Zen 4 and later."""

    @property
    def label(self) -> str:
        """The name that users see and give."""
        return self.name.lower().replace("_", "-")


class Target(NamedTuple):
    """What machine code is generated for, as LLVM writes it; features are `+sse4.2,-avx512f,...`."""

    triple: str
    cpu_name: str
    features: str
