"""The portable kernels as code for 64-bit Arm: generated and linked here, run where `tests.native.arm64` is used."""

from __future__ import annotations

import struct

import pytest

from native import kernels
from tests.native import arm64

pytestmark = pytest.mark.long

RET = 0xD65F03C0


@pytest.mark.parametrize("kernel", kernels.ALL, ids=lambda kernel: kernel.function)
def test_code_is_generated_and_self_contained(kernel: kernels.Kernel) -> None:
    code, entry = arm64.compile_kernel(kernel)
    assert entry % 4 == 0
    instructions = struct.unpack_from(f"<{(len(code) - entry) // 4}I", code, entry)
    assert RET in instructions
