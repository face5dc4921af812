# mypy: ignore-errors
# ^ kernels: numba infers their types, mypy cannot follow it
# ruff: noqa: ARG001
# ^ numba calls with fixed argument lists, and goes by the names
"""What the compiler cannot know about a kernel: which way a branch goes, and when not to be clever."""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

_I64 = ir.IntType(64)


@intrinsic
def rarely(typing_context):
    """Say that the block of code that this stands in is hardly ever reached.

    It is moved out of the way, and registers go to the others: what it needs is saved inside of it. In a
    loop that has more values than there are registers, this is what keeps the position out of memory.
    """

    def generate(context, builder, signature, args):
        mark = builder.asm(ir.FunctionType(ir.VoidType(), []), "", "", [], side_effect=True)
        # No instruction, but a call to the compiler, and what leads to a cold call is cold. llvmlite's list
        # of known attributes has a gap here. llvm.expect would say it openly; it is lost on the way that
        # numba's booleans take.
        set.add(mark.attributes, "cold")
        return context.get_dummy_value()

    return types.none(), generate


@intrinsic
def opaque(typing_context, value):
    """Return *value*, an int64 that the compiler must not reason about.

    A loop whose trip count it cannot work out is not unrolled: the copies and their remainder loop cost a
    small message more in mispredicted branches than they save a large one.
    """

    def generate(context, builder, signature, args):
        return builder.asm(ir.FunctionType(_I64, [_I64]), "", "=r,0", [args[0]], side_effect=False)

    return types.int64(types.int64), generate
