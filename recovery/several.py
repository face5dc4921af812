"""What a caller of the library gives several of: never one text, of which each letter would count, or none."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TypeVar

from recovery.errors import UsageError

_Item = TypeVar("_Item")


def several(argument: str, items: Iterable[_Item]) -> tuple[_Item, ...]:
    """Return *items*, those of the *argument* of this name, as a tuple.

    Raises:
        UsageError: it is one text or path, or nothing that has items.
    """
    if isinstance(items, (str, bytes, os.PathLike)) or not isinstance(items, Iterable):
        raise UsageError(f"{argument}={items!r}: expected a list. Remedy: {argument}=[{items!r}]")
    return tuple(items)


def refuse_no_mapping(argument: str, value: object, remedy: str) -> None:
    """Raise UsageError if *value*, of the *argument* of this name, is not by name; None is nothing."""
    if value is not None and not isinstance(value, Mapping):
        raise UsageError(f"{argument}={value!r}: expected a dict. Remedy: {remedy}")
