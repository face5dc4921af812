"""A plugin of pytest that runs the portable kernels as code for 64-bit Arm, on an emulated CPU.

    pip install unicorn
    python -m pytest -p tests.native.arm64 tests/native -k "(portable or record) and not gil"

Every call of a kernel by the portable path is one of the emulated CPU, whose memory is that of the process: a page is
there when the code first touches it. What no kernel may touch is the emulator's error.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable

import pytest

from native import kernels
from native.cpu_path import CpuPath, Target
from native.kernels import compiler
from native.kernels.machine_code import MachineCode

TARGET = Target("aarch64-unknown-linux-gnu", "generic", "")

_PAGE_BYTES = 4096
_STACK_BYTES = 1 << 20
# Below everything that a process of Linux has.
_CODE, _RETURN, _STACK = 0x10000, 0x400000, 0x500000
_OURS_END = _STACK + _STACK_BYTES


def compile_kernel(kernel: kernels.Kernel) -> MachineCode:
    """Return a kernel, by the portable path, for Arm."""
    from llvmlite import binding

    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    return compiler.compile_kernel(kernel, CpuPath.PORTABLE if kernel.has_path else None, TARGET)


class EmulatedKernel:
    """A kernel on an emulated CPU, called like a compiled one."""

    def __init__(self, code: MachineCode) -> None:
        import unicorn
        from unicorn import arm64_const as registers

        self._cpu = cpu = unicorn.Uc(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_ARM)
        self._registers = registers
        self._entry = _CODE + code.entry
        self.call_count = 0
        cpu.mem_map(_CODE, -(-len(code.code) // _PAGE_BYTES) * _PAGE_BYTES)
        cpu.mem_write(_CODE, code.code)
        cpu.mem_map(_RETURN, _PAGE_BYTES)
        cpu.mem_map(_STACK, _STACK_BYTES)

        def share(_cpu: object, _access: int, address: int, *_more: object) -> bool:
            page = address & -_PAGE_BYTES
            if page < _OURS_END:
                return False
            cpu.mem_map_ptr(page, _PAGE_BYTES, unicorn.UC_PROT_READ | unicorn.UC_PROT_WRITE, page)
            return True

        cpu.hook_add(unicorn.UC_HOOK_MEM_UNMAPPED, share)

    def __call__(self, *integers: int) -> int:
        self.call_count += 1
        names = self._registers
        for number, integer in enumerate(integers):
            self._cpu.reg_write(names.UC_ARM64_REG_X0 + number, integer & (1 << 64) - 1)
        self._cpu.reg_write(names.UC_ARM64_REG_SP, _OURS_END - 256)
        self._cpu.reg_write(names.UC_ARM64_REG_LR, _RETURN)
        self._cpu.emu_start(self._entry, _RETURN)
        (result,) = struct.unpack("<q", struct.pack("<Q", self._cpu.reg_read(names.UC_ARM64_REG_X0)))
        return int(result)


@functools.cache
def _emulated(kernel: kernels.Kernel) -> EmulatedKernel:
    return EmulatedKernel(compile_kernel(kernel))


def pytest_configure(config: pytest.Config) -> None:
    """Put emulated kernels in the place of the portable ones."""
    compiled = kernels.entry

    def entry(kernel: kernels.Kernel, path: CpuPath | None = None) -> Callable[..., int]:
        return _emulated(kernel) if path in (None, CpuPath.PORTABLE) else compiled(kernel, path)

    kernels.entry = entry


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell how many calls were emulated."""
    counts = {kernel.function: _emulated(kernel).call_count for kernel in kernels.ALL}
    terminalreporter.write_line("emulated calls: " + ", ".join(f"{name} {n}" for name, n in counts.items()))
