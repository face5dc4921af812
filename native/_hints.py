# mypy: ignore-errors
# ^ kernels: numba infers their types, mypy cannot follow it
# ruff: noqa: ARG001
# ^ numba calls with fixed argument lists, and goes by the names
"""What the compiler cannot know about a kernel: which way a branch goes, and when not to be clever."""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

_I1, _I64 = ir.IntType(1), ir.IntType(64)


@intrinsic
def unlikely(typing_context, condition):
    """Return *condition*, which is hardly ever true.

    Registers go to the likely way, and what the other needs is saved on the other. In a loop that has more
    values than there are registers, this is what keeps its position out of memory.
    """

    def generate(context, builder, signature, args):
        signature = ir.FunctionType(_I1, [_I1, _I1])
        expect = builder.module.declare_intrinsic("llvm.expect.i1", fnty=signature)
        return builder.call(expect, [args[0], ir.Constant(_I1, 0)])

    return types.boolean(types.boolean), generate


@intrinsic
def opaque(typing_context, value):
    """Return *value*, an int64 that the compiler must not reason about.

    A loop whose trip count it cannot work out is not unrolled: the copies and their remainder loop cost a
    small message more in mispredicted branches than they save a large one.
    """

    def generate(context, builder, signature, args):
        return builder.asm(ir.FunctionType(_I64, [_I64]), "", "=r,0", [args[0]], side_effect=False)

    return types.int64(types.int64), generate
