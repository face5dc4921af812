"""A byte string read as a row of decisions: how a fuzzer that knows bytes alone builds structures.

The same bytes always give the same decisions; bytes that have run out give zeros, so that every string is a
whole case and its beginning decides most. atheris' FuzzedDataProvider does the like; this one needs no atheris.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

_T = TypeVar("_T")


class Choices:
    """The decisions in *data*, front to back."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def is_exhausted(self) -> bool:
        """Whether all that follows is zeros."""
        return self._position >= len(self._data)

    def take(self, size: int) -> bytes:
        """The next *size* bytes, fewer at the end."""
        taken = self._data[self._position : self._position + size]
        self._position += size
        return taken

    def rest(self) -> bytes:
        """All bytes that are left."""
        return self.take(max(0, len(self._data) - self._position))

    def unsigned(self, size: int) -> int:
        """A number of *size* bytes."""
        return int.from_bytes(self.take(size).ljust(size, b"\0"), "big")

    def signed(self, size: int) -> int:
        """A signed number of *size* bytes."""
        return int.from_bytes(self.take(size).ljust(size, b"\0"), "big", signed=True)

    def below(self, bound: int) -> int:
        """A number from 0 to *bound* - 1."""
        size = 1 if bound <= 256 else 2 if bound <= 1 << 16 else 4
        return self.unsigned(size) % bound

    def pick(self, options: Sequence[_T]) -> _T:
        """One of *options*; zeros give the first."""
        return options[self.below(len(options))]

    def is_rare(self, one_in: int) -> bool:
        """True once in *one_in* times; zeros never."""
        return self.below(one_in) == one_in - 1
