"""Values of our dataclasses as Arrow columns, by the types of their fields, and back.

    int, bool, str, bytes           int64, bool, string, binary
    X | None                        the column of X with nulls; any other null is refused
    dataclass, NamedTuple           struct of its fields
    list, tuple[X, ...], frozenset  list
    Mapping                         list of struct<key, value>
    tuple[X, Y]                     struct<first, second>
    Enum, UUID                      the column of its value; string
    NDArray of numbers              list
    Annotated[NDArray | bytes, dtype]  binary: items of the dtype back to back, little-endian

A value that a type does not allow is refused: what was read may have been made by anybody. Columns are made of all rows
at once.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from functools import cache
from itertools import accumulate, chain, pairwise
from operator import attrgetter, methodcaller
from typing import TYPE_CHECKING, Any, Final, Protocol
from uuid import UUID

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

NOT_KEPT: Final = types.MappingProxyType({"is_kept": False})
"""The metadata of a dataclass's field that has no column."""
_LISTS: Final = {list: list, tuple: tuple, frozenset: frozenset, Sequence: list}


class Column(Protocol):
    """How values of one type are a column."""

    type: pa.DataType

    def encode(self, values: Sequence[Any]) -> pa.Array:
        """Return *values* as a column."""
        ...

    def decode(self, array: pa.Array) -> list[Any]:
        """Return the values in a column of this type.

        Raises:
            ValueError: one of them is not allowed.
        """
        ...


@cache
def column_of(hint: Any) -> Column:  # noqa: ANN401 - a type, with or without arguments
    """Return the column for values of a type.

    Raises:
        TypeError: there is none.
    """
    import pyarrow as pa

    kind, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hasattr(kind, "__value__"):  # a `type` statement, as NDArray is from numpy 2.5 on
        return column_of(kind.__value__[arguments])
    plain = {int: pa.int64(), bool: pa.bool_(), str: pa.string(), bytes: pa.binary()}
    if hint in plain:
        return _Plain(plain[hint])
    if kind is typing.Annotated:
        return _Items(np.dtype(arguments[1]), is_array=arguments[0] is not bytes)
    if kind is np.ndarray:
        (item,) = typing.get_args(arguments[1])
        return _Arrays(np.dtype(item))
    if kind in (typing.Union, types.UnionType):
        (inner,) = (argument for argument in arguments if argument is not types.NoneType)
        return _Optional(column_of(inner))
    if kind is typing.Literal:
        return _Mapped(column_of(str), str, {name: name for name in arguments}.__getitem__)
    if kind is tuple and arguments[-1] is not Ellipsis:
        names = ("first", "second")[: len(arguments)]
        return _Struct(dict(zip(names, arguments, strict=True)), tuple, lambda *values: values)
    if kind is not None and issubclass(kind, Mapping):
        entries = _Struct(dict(zip(("key", "value"), arguments, strict=True)), tuple, lambda *entry: entry)
        return _Mapped(_List(entries, list), methodcaller("items"), dict)
    if kind in _LISTS:
        return _List(column_of(arguments[0]), _LISTS[kind])
    if hint is UUID:
        return _Mapped(column_of(str), str, UUID)
    if isinstance(hint, type) and issubclass(hint, Enum):
        value_kind: Any = type(next(iter(hint)).value)
        return _Mapped(column_of(value_kind), attrgetter("value"), hint)
    return _struct_of(hint)


class _Plain:
    """Numbers, texts and bytes."""

    def __init__(self, kind: pa.DataType) -> None:
        import pyarrow as pa

        self.type = kind
        self._is_fixed = not (pa.types.is_string(kind) or pa.types.is_binary(kind))

    def encode(self, values: Sequence[Any]) -> pa.Array:
        import pyarrow as pa

        return pa.array(values, self.type)

    def decode(self, array: pa.Array) -> list[Any]:
        _refuse_nulls(array)
        values = array.to_numpy(zero_copy_only=False) if self._is_fixed else array
        return list(values.tolist())


class _Arrays:
    """Arrays of numbers.

    Args:
        dtype: of the numbers.
    """

    def __init__(self, dtype: np.dtype[Any]) -> None:
        import pyarrow as pa

        self.type = pa.list_(pa.from_numpy_dtype(dtype))
        self._dtype = dtype

    def encode(self, values: Sequence[Any]) -> pa.Array:
        import pyarrow as pa

        ends = np.array([0, *accumulate(map(len, values))], np.int32)
        items = np.concatenate([np.empty(0, self._dtype), *values])
        return pa.ListArray.from_arrays(pa.array(ends), pa.array(items, self.type.value_type), type=self.type)

    def decode(self, array: pa.Array) -> list[Any]:
        _refuse_nulls(array)
        items = array.flatten()
        _refuse_nulls(items)
        ends = np.cumsum(array.value_lengths().to_numpy(zero_copy_only=False))
        numbers = items.to_numpy(zero_copy_only=False).astype(self._dtype, copy=False)
        return np.split(numbers, ends[:-1])


class _Items:
    """Arrays, or bytes that hold the items of one.

    Args:
        dtype: of an item.
        is_array: whether the values are arrays.
    """

    def __init__(self, dtype: np.dtype[Any], *, is_array: bool) -> None:
        import pyarrow as pa

        self.type = pa.binary()
        self.dtype = dtype
        self._is_array = is_array

    def encode(self, values: Sequence[Any]) -> pa.Array:
        import pyarrow as pa

        return pa.array(map(methodcaller("tobytes"), values) if self._is_array else values, self.type)

    def decode(self, array: pa.Array) -> list[Any]:
        _refuse_nulls(array)
        values: list[bytes] = array.tolist()
        for data in values:
            if len(data) % self.dtype.itemsize:
                raise ValueError(f"{len(data)} bytes are not a multiple of {self.dtype.itemsize}")
        return [np.frombuffer(data, self.dtype) for data in values] if self._is_array else values


class _Mapped:
    """Values that have a column of another type.

    Args:
        inner: that column.
        to_inner, from_inner: convert a value.
    """

    def __init__(
        self, inner: Column, to_inner: Callable[[Any], Any], from_inner: Callable[[Any], Any]
    ) -> None:
        self.type = inner.type
        self._inner = inner
        self._to_inner = to_inner
        self._from_inner = from_inner

    def encode(self, values: Sequence[Any]) -> pa.Array:
        return self._inner.encode(list(map(self._to_inner, values)))

    def decode(self, array: pa.Array) -> list[Any]:
        try:
            return list(map(self._from_inner, self._inner.decode(array)))
        except KeyError as error:
            raise ValueError(f"{error} is not one of its names") from None


class _Optional:
    """Values, some of which may be None."""

    def __init__(self, inner: Column) -> None:
        self.type = inner.type
        self._inner = inner

    def encode(self, values: Sequence[Any]) -> pa.Array:
        import pyarrow as pa

        present = [value for value in values if value is not None]
        array = self._inner.encode(present)
        if len(present) == len(values):
            return array
        ranks = accumulate((value is not None for value in values), initial=-1)
        rows = [
            None if value is None else rank for value, (_, rank) in zip(values, pairwise(ranks), strict=True)
        ]
        return array.take(pa.array(rows, pa.int64()))

    def decode(self, array: pa.Array) -> list[Any]:
        if not array.null_count:
            return self._inner.decode(array)
        is_valid = array.is_valid()
        values = iter(self._inner.decode(array.filter(is_valid)))
        return [next(values) if valid else None for valid in is_valid.to_numpy(zero_copy_only=False).tolist()]


class _List:
    """Sequences.

    Args:
        inner: the column of their items.
        make: makes a sequence of a list.
    """

    def __init__(self, inner: Column, make: Callable[[list[Any]], Any]) -> None:
        import pyarrow as pa

        self.type = pa.list_(inner.type)
        self._inner = inner
        self._make = make

    def encode(self, values: Sequence[Any]) -> pa.Array:
        import pyarrow as pa

        ends = np.array([0, *accumulate(map(len, values))], np.int32)
        items = list(chain.from_iterable(values))
        inner = self._inner.encode(items) if items else pa.array([], self._inner.type)
        return pa.ListArray.from_arrays(pa.array(ends), inner, type=self.type)

    def decode(self, array: pa.Array) -> list[Any]:
        _refuse_nulls(array)
        flat = array.flatten()
        items = self._inner.decode(flat) if len(flat) else []
        ends = accumulate(array.value_lengths().to_numpy(zero_copy_only=False).tolist(), initial=0)
        return [self._make(items[start:end]) for start, end in pairwise(ends)]


class _Struct:
    """Values with fields.

    Args:
        hints: the types of the fields.
        split: returns the values of the fields.
        make: makes a value of those of its fields.
    """

    def __init__(
        self, hints: Mapping[str, Any], split: Callable[[Any], tuple[Any, ...]], make: Callable[..., Any]
    ) -> None:
        import pyarrow as pa

        self.columns = {name: column_of(hint) for name, hint in hints.items()}
        self.type = pa.struct([(name, column.type) for name, column in self.columns.items()])
        self._split = split
        self._make = make

    def encode(self, values: Sequence[Any]) -> pa.Array:
        import pyarrow as pa

        fields: Iterable[Sequence[Any]] = zip(*map(self._split, values), strict=True)
        if not values:
            fields = [[] for _ in self.columns]
        arrays = [column.encode(field) for column, field in zip(self.columns.values(), fields, strict=True)]
        return pa.StructArray.from_arrays(arrays, fields=list(self.type))

    def decode(self, array: pa.Array) -> list[Any]:
        _refuse_nulls(array)
        fields = [
            column.decode(field) for column, field in zip(self.columns.values(), array.flatten(), strict=True)
        ]
        return list(map(self._make, *fields))


def _struct_of(kind: Any) -> _Struct:  # noqa: ANN401 - a class
    hints = typing.get_type_hints(kind, include_extras=True)
    of_class: Any = kind
    if dataclasses.is_dataclass(kind):
        fields = dataclasses.fields(kind)
        names = tuple(field.name for field in fields if field.metadata.get("is_kept", True))

        def make(*values: Any) -> Any:  # noqa: ANN401 - of the class
            return of_class(**dict(zip(names, values, strict=True)))

        split = attrgetter(*names)
        return _Struct(
            {name: hints[name] for name in names},
            split if len(names) > 1 else lambda value: (split(value),),
            make,
        )
    if isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return _Struct({name: hints[name] for name in kind._fields}, tuple, kind)
    raise TypeError(f"no column for {kind}")


def _refuse_nulls(array: pa.Array) -> None:
    if array.null_count:
        raise ValueError(f"{array.null_count} nulls among values of type {array.type}")
