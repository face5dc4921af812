# ruff: noqa: ARG001
# ^ numba calls with fixed argument lists, and by these names
# mypy: ignore-errors
# ^ kernels: numba infers their types, mypy cannot follow it
"""CpuPath as a numba type: one type per member, so that a kernel is compiled for one path alone.

A path as an integer would compile the instructions of every path into every kernel, those that the CPU lacks
included, and the code generator aborts the process when it meets one of those.
"""

from __future__ import annotations

from numba import types
from numba.extending import NativeValue, models, register_model, typeof_impl, unbox

from native.cpu_path import CpuPath


class CpuPathType(types.Dummy):
    """The type of exactly one CpuPath; its values carry nothing."""

    def __init__(self, path: CpuPath) -> None:
        self.path = path
        super().__init__(f"CpuPath.{path.name}")


register_model(CpuPathType)(models.OpaqueModel)


@typeof_impl.register(CpuPath)
def _typeof_cpu_path(value, context):
    return CpuPathType(value)


@unbox(CpuPathType)
def _unbox_cpu_path(numba_type, value, context):
    return NativeValue(context.context.get_dummy_value())
