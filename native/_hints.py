# mypy: ignore-errors
# ^ kernels: numba infers their types, mypy cannot follow it
# ruff: noqa: ARG001
# ^ numba calls with fixed argument lists, and by these names
"""What the compiler cannot know about a kernel: which way a branch goes, and where not to optimise."""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

_I64 = ir.IntType(64)


@intrinsic
def rarely(typing_context):
    """Mark the block of code that contains this call as hardly ever reached.

    It is moved out of the way, and the other blocks get the registers: what it needs is saved inside it. In a
    loop that has more values than there are registers, this keeps the position out of memory.
    """

    def generate(context, builder, signature, args):
        mark = builder.asm(ir.FunctionType(ir.VoidType(), []), "", "", [], side_effect=True)
        # Not an instruction, but a call to the compiler, and whatever leads to a cold call is cold. llvmlite's
        # list of known attributes lacks this one. llvm.expect would be plainer, but it gets lost in the way
        # numba compiles booleans.
        set.add(mark.attributes, "cold")
        return context.get_dummy_value()

    return types.none(), generate


@intrinsic
def opaque(typing_context, value):
    """Return *value*, an int64 that the compiler must not reason about.

    A loop whose trip count the compiler cannot work out is not unrolled: the copies and their remainder loop cost
    a small message more in mispredicted branches than they save a large one.
    """

    def generate(context, builder, signature, args):
        return builder.asm(ir.FunctionType(_I64, [_I64]), "", "=r,0", [args[0]], side_effect=False)

    return types.int64(types.int64), generate
