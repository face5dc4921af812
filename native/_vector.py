# mypy: ignore-errors
# ^ kernels: numba infers their types, mypy cannot follow it
# ruff: noqa: ARG001
# ^ numba calls with fixed argument lists, and by these names
"""Vector registers as values in kernels: 128 and 512 bits, and the x86 instructions that CRCs are made of.

A value of `VectorType` lives in a register as an LLVM vector of 64-bit lanes, so that kernels that fold data
by carry-less multiplication are ordinary Python loops. These instructions must not reach the code generator
of a CPU that lacks them (it aborts the process): only the implementation of a CPU path that has them may use
them.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic, models, register_model

_I8, _I32, _I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)


class VectorType(types.Type):
    """A register of *lanes* 64-bit lanes."""

    def __init__(self, lanes):
        self.lanes = lanes
        super().__init__(f"Vector({lanes} x i64)")


@register_model(VectorType)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, data_model_manager, vector):
        super().__init__(data_model_manager, vector, ir.VectorType(_I64, vector.lanes))


V128 = VectorType(2)
V512 = VectorType(8)
_CLMUL = {V128: "llvm.x86.pclmulqdq", V512: "llvm.x86.pclmulqdq.512"}


def _declare(builder, name, result, arguments):
    """Return LLVM's intrinsic *name*, declared in the module that is being built."""
    return builder.module.declare_intrinsic(name, fnty=ir.FunctionType(result, arguments))


def _load(builder, address, llvm_type):
    value = builder.load(builder.inttoptr(address, llvm_type.as_pointer()))
    value.align = 1
    return value


@intrinsic
def load_v128(typing_context, address):
    """Return the 16 bytes at *address*."""

    def generate(context, builder, signature, args):
        return _load(builder, args[0], ir.VectorType(_I64, 2))

    return V128(types.int64), generate


@intrinsic
def load_v512(typing_context, address):
    """Return the 64 bytes at *address*."""

    def generate(context, builder, signature, args):
        return _load(builder, args[0], ir.VectorType(_I64, 8))

    return V512(types.int64), generate


@intrinsic
def load_v512_from(typing_context, address, numbers, first):
    """Return the 64 bytes at *address*, but zero where a byte's number is below *first*.

    Such bytes are not accessed: their pages need not exist.
    *numbers* (V512) holds a number, 0..255, for each byte; *first* is an int64, 0..255.
    """

    def generate(context, builder, signature, args):
        address, numbers, first = args
        bytes_type = ir.VectorType(_I8, 64)
        mask_type = ir.VectorType(ir.IntType(1), 64)
        one = builder.insert_element(
            ir.Constant(bytes_type, ir.Undefined), builder.trunc(first, _I8), ir.Constant(_I32, 0)
        )
        all_lanes = ir.Constant(ir.VectorType(_I32, 64), None)
        broadcast = builder.shuffle_vector(one, ir.Constant(bytes_type, ir.Undefined), all_lanes)
        mask = builder.icmp_unsigned(">=", builder.bitcast(numbers, bytes_type), broadcast)
        pointer_type = bytes_type.as_pointer()
        load = _declare(
            builder,
            "llvm.masked.load.v64i8.p0",
            bytes_type,
            [pointer_type, _I32, mask_type, bytes_type],
        )
        pointer = builder.inttoptr(address, pointer_type)
        loaded = builder.call(load, [pointer, ir.Constant(_I32, 1), mask, ir.Constant(bytes_type, None)])
        return builder.bitcast(loaded, ir.VectorType(_I64, 8))

    return V512(types.int64, V512, types.int64), generate


@intrinsic
def xor(typing_context, a, b):
    """Return a ^ b, two vectors of one size."""
    if not isinstance(a, VectorType) or a != b:
        return None

    def generate(context, builder, signature, args):
        return builder.xor(*args)

    return a(a, b), generate


def _clmul(immediate):
    def typing(typing_context, a, b):
        if not isinstance(a, VectorType) or a != b:
            return None

        def generate(context, builder, signature, args):
            vector = args[0].type
            multiply = _declare(builder, _CLMUL[a], vector, [vector, vector, _I8])
            return builder.call(multiply, [*args, ir.Constant(_I8, immediate)])

        return a(a, b), generate

    return typing


clmul_low = intrinsic(_clmul(0x00))
"""Per 128 bits: the carry-less product of the two low lanes."""
clmul_high = intrinsic(_clmul(0x11))
"""Per 128 bits: the carry-less product of the two high lanes."""


@intrinsic
def xor_quarters(typing_context, vector):
    """Return the xor of the four 128-bit parts of a V512, as V128."""

    def generate(context, builder, signature, args):
        def half(vector, first, count):
            lanes = ir.Constant(
                ir.VectorType(_I32, count), [ir.Constant(_I32, first + i) for i in range(count)]
            )
            return builder.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), lanes)

        four = builder.xor(half(args[0], 0, 4), half(args[0], 4, 4))
        return builder.xor(half(four, 0, 2), half(four, 2, 2))

    return V128(V512), generate


@intrinsic
def low_half(typing_context, vector):
    """Return the low lane of a V128, uint64."""

    def generate(context, builder, signature, args):
        return builder.extract_element(args[0], ir.Constant(_I32, 0))

    return types.uint64(V128), generate


@intrinsic
def high_half(typing_context, vector):
    """Return the high lane of a V128, uint64."""

    def generate(context, builder, signature, args):
        return builder.extract_element(args[0], ir.Constant(_I32, 1))

    return types.uint64(V128), generate


def _with_low_lane(vector):
    def typing(typing_context, low):
        def generate(context, builder, signature, args):
            zero = ir.Constant(ir.VectorType(_I64, vector.lanes), None)
            return builder.insert_element(zero, args[0], ir.Constant(_I32, 0))

        return vector(types.uint64), generate

    return typing


v128_of = intrinsic(_with_low_lane(V128))
"""A V128 with a uint64 in its lowest lane and 0 elsewhere."""
v512_of = intrinsic(_with_low_lane(V512))
"""A V512 with a uint64 in its lowest lane and 0 elsewhere."""


@intrinsic
def crc32q(typing_context, state, word):
    """Return the CRC-32C state (uint64) after 8 bytes (uint64)."""

    def generate(context, builder, signature, args):
        step = _declare(builder, "llvm.x86.sse42.crc32.64.64", _I64, [_I64, _I64])
        return builder.call(step, args)

    return types.uint64(types.uint64, types.uint64), generate


@intrinsic
def crc32b(typing_context, state, byte):
    """Return the CRC-32C state (uint64) after one byte (int64)."""

    def generate(context, builder, signature, args):
        step = _declare(builder, "llvm.x86.sse42.crc32.32.8", _I32, [_I32, _I8])
        state = builder.call(step, [builder.trunc(args[0], _I32), builder.trunc(args[1], _I8)])
        return builder.zext(state, _I64)

    return types.uint64(types.uint64, types.int64), generate


@intrinsic
def prefetch(typing_context, address):
    """Ask for the cache line at *address*, which need not exist."""

    def generate(context, builder, signature, args):
        pointer_type = _I8.as_pointer()
        ask = _declare(builder, "llvm.prefetch.p0", ir.VoidType(), [pointer_type, _I32, _I32, _I32])
        for_reading, keep, data = (ir.Constant(_I32, value) for value in (0, 3, 1))
        builder.call(ask, [builder.inttoptr(args[0], pointer_type), for_reading, keep, data])
        return context.get_dummy_value()

    return types.none(types.int64), generate
