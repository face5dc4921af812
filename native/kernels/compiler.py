"""Kernels compiled to machine code: numba makes LLVM IR of them, LLVM an object, and `link` bytes.

This is the slow part of a first start; see `loader` for when it is needed.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import numba
from llvmlite import binding
from numba import types
from numba.core.registry import cpu_target

from native._cpu_type import CpuPathType
from native._jit import FLAGS
from native.cpu_path import CpuPath, Target
from native.kernels.kernel import Kernel
from native.kernels.link import link
from native.kernels.machine_code import MachineCode

_ENTRY = "kernel_entry"


def target() -> Target:
    """Return what numba compiles for: this CPU, or the one that its environment names instead."""
    return Target(*cpu_target.target_context.codegen().magic_tuple())


def compile_kernel(kernel: Kernel, path: CpuPath | None, wanted: Target | None = None) -> MachineCode:
    """Return the machine code of *kernel* by *path*, for numba's target or another one.

    The code generator aborts the process if *path* needs what the target lacks, so the caller must check first.

    Raises:
        UnlinkableError: the code is not self-contained.
    """
    return link(to_object(_llvm(kernel, path), wanted or target()), _ENTRY)


def to_object(language: str, wanted: Target) -> bytes:
    """Return the object code, for *wanted*, of a module in LLVM IR."""
    target()  # the first call has numba initialise LLVM
    machine = binding.Target.from_triple(wanted.triple).create_target_machine(
        cpu=wanted.cpu_name, features=wanted.features, opt=3, reloc="pic", codemodel="small"
    )
    module = binding.parse_assembly(language)
    module.triple = wanted.triple
    module.data_layout = str(machine.target_data)
    code: bytes = machine.emit_object(module)
    return code


def _llvm(kernel: Kernel, path: CpuPath | None) -> str:
    """Return *kernel* in LLVM IR, optimised, with a C function that calls it.

    numba's function returns whether it raised, and through pointers what. A kernel does not raise. numba's own C
    functions, which check for it nevertheless, are left out, because they need Python.
    """
    signature = _signature(kernel, path)
    options = {**FLAGS, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    dispatcher = numba.njit(signature, **options)(_function(kernel))
    (overload,) = dispatcher.overloads.values()
    integers = [f"i64 %argument_{number}" for number in range(kernel.argument_count)]
    passed = ["ptr %result", "ptr %error", *["ptr null"] * kernel.has_path, *integers]
    return f"""{dispatcher.inspect_llvm(signature.args)}
define i64 @{_ENTRY}({", ".join(integers)}) {{
  %result = alloca i64
  %error = alloca ptr
  %status = call i32 @"{overload.fndesc.llvm_func_name}"({", ".join(passed)})
  %value = load i64, ptr %result
  ret i64 %value
}}
"""


def in_this_process(kernel: Kernel, path: CpuPath | None) -> Callable[..., int]:
    """Return *kernel* by *path* as numba itself calls it: it may raise, as it must when bounds are checked."""
    dispatcher = numba.njit(_signature(kernel, path), **FLAGS)(_function(kernel))
    return dispatcher if path is None else functools.partial(dispatcher, path)


def _function(kernel: Kernel) -> Callable[..., Any]:
    function: Callable[..., Any] = getattr(importlib.import_module(kernel.module), kernel.function)
    return function


def _signature(kernel: Kernel, path: CpuPath | None) -> Any:
    integers = [types.int64] * kernel.argument_count
    return types.int64(*integers) if path is None else types.int64(CpuPathType(path), *integers)
