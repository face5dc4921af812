# ruff: noqa: ARG001
# ^ numba calls with fixed argument lists, and by these names
# mypy: ignore-errors
# ^ kernels: numba infers their types, mypy cannot follow it
"""Loads from raw addresses, and tables at them, for kernels.

An address is an int64. Kernels that read file bytes take addresses, not arrays: a read-only view and a
writable one would be two array types and two compilations, and an index that may be negative costs a
comparison. The caller of a kernel keeps the memory alive and says how many bytes of it may be read.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array


def _load(builder, address, bits):
    """Emit a load of *bits* bits at *address*, aligned or not."""
    integer = ir.IntType(bits)
    pointer = builder.inttoptr(address, integer.as_pointer())
    value = builder.load(pointer)
    value.align = 1
    return value


@intrinsic
def load_u8(typing_context, address):
    """Return the byte at *address*, int64, 0..255."""

    def generate(context, builder, signature, args):
        return builder.zext(_load(builder, args[0], 8), ir.IntType(64))

    return types.int64(types.int64), generate


@intrinsic
def load_i8(typing_context, address):
    """Return the signed byte at *address*, int64."""

    def generate(context, builder, signature, args):
        return builder.sext(_load(builder, args[0], 8), ir.IntType(64))

    return types.int64(types.int64), generate


@intrinsic
def load_le64(typing_context, address):
    """Return the 8 bytes at *address* as the CPU has them, uint64: the first byte is the lowest."""

    def generate(context, builder, signature, args):
        return _load(builder, args[0], 64)

    return types.uint64(types.int64), generate


@intrinsic
def load_le32(typing_context, address):
    """Return the 4 bytes at *address* as the CPU has them, int64, 0..2**32 - 1."""

    def generate(context, builder, signature, args):
        return builder.zext(_load(builder, args[0], 32), ir.IntType(64))

    return types.int64(types.int64), generate


@intrinsic
def load_be16(typing_context, address):
    """Return the big-endian int16 at *address*, int64."""

    def generate(context, builder, signature, args):
        return builder.sext(builder.bswap(_load(builder, args[0], 16)), ir.IntType(64))

    return types.int64(types.int64), generate


@intrinsic
def load_be32(typing_context, address):
    """Return the big-endian int32 at *address*, int64."""

    def generate(context, builder, signature, args):
        return builder.sext(builder.bswap(_load(builder, args[0], 32)), ir.IntType(64))

    return types.int64(types.int64), generate


@intrinsic
def load_be64(typing_context, address):
    """Return the big-endian int64 at *address*."""

    def generate(context, builder, signature, args):
        return builder.bswap(_load(builder, args[0], 64))

    return types.int64(types.int64), generate


def _array_at(dtype, extents):
    """Return the array of *dtype*, a numba type, at an address; its shape has as many int64s as *extents*."""
    array_type = types.Array(dtype.dtype, len(extents), "C")

    def generate(context, builder, signature, args):
        address, *shape, _dtype = args
        array = make_array(array_type)(context, builder)
        item_bytes = context.get_abi_sizeof(context.get_data_type(dtype.dtype))
        strides = [context.get_constant(types.intp, item_bytes)]
        for extent in reversed(shape[1:]):
            strides.insert(0, builder.mul(strides[0], extent))
        populate_array(
            array,
            data=builder.inttoptr(address, array.data.type),
            shape=shape,
            strides=strides,
            itemsize=item_bytes,
            meminfo=None,
        )
        return array._getvalue()

    return array_type(types.int64, *extents, dtype), generate


@intrinsic
def rows_at(typing_context, address, row_count, dtype):
    """Return the array at *address*, shape (row_count,), of *dtype*, a global of the kernel's module."""
    return _array_at(dtype, (types.int64,))


@intrinsic
def table_at(typing_context, address, row_count, column_count, dtype):
    """Return the array at *address*, shape (row_count, column_count), like `rows_at`."""
    return _array_at(dtype, (types.int64, types.int64))


@intrinsic
def store_le64(typing_context, address, value):
    """Put the 8 bytes of *value*, uint64, at *address*, aligned or not: the lowest byte first."""
    return _storing(types.uint64, 64)


@intrinsic
def store_le32(typing_context, address, value):
    """Put the low 4 bytes of *value*, int64, at *address*, aligned or not: the lowest byte first."""
    return _storing(types.int64, 32)


@intrinsic
def store_u8(typing_context, address, value):
    """Put the low byte of *value*, int64, at *address*."""
    return _storing(types.int64, 8)


def _storing(value_type, bits):
    """Return the signature and code of a store of the low *bits* bits of a value."""

    def generate(context, builder, signature, args):
        integer = ir.IntType(bits)
        value = args[1] if bits == 64 else builder.trunc(args[1], integer)
        builder.store(value, builder.inttoptr(args[0], integer.as_pointer())).align = 1
        return context.get_dummy_value()

    return types.none(types.int64, value_type), generate
