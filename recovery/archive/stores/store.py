"""Where an archive lies: a folder, or a bucket. What any store can do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from recovery.archive.stores.archived import StoredObject
from recovery.archive.stores.segment_table import ObjectTable
from recovery.read.opened_log import OpenedLog


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One level below a prefix.

    Attributes:
        prefixes: what is further down, each with its `/`, in order.
        objects: in the order of their names, each once.
    """

    prefixes: Sequence[str]
    objects: ObjectTable


class Store(Protocol):
    """A tree of objects below a URL. Keys are relative to it.

    What fails is an OSError: FileNotFoundError, PermissionError, or one whose text says what the store said. A store
    can be pickled, and is opened again where it arrives.
    """

    @property
    def url(self) -> str:
        """What it was opened by."""
        ...

    def list_level(self, prefix: str) -> Level:
        """Return what lies directly below *prefix*, which is empty or ends in `/`."""
        ...

    def stat(self, key: str) -> StoredObject:
        """Return an object as it is now."""
        ...

    def read(self, key: str, *, most_bytes: int) -> bytes:
        """Return the first *most_bytes* of an object."""
        ...

    def read_into(self, key: str, target: memoryview) -> int:
        """Fill *target* from the beginning of an object on; return how many bytes there were."""
        ...

    def open(self, key: str) -> OpenedLog:
        """Open an object for reading."""
        ...

    def create(self, key: str, data: bytes) -> bool:
        """Write an object that is not there, whole or not at all; return False where it is."""
        ...

    def replace(self, key: str, data: bytes) -> None:
        """Write an object, whole or not at all, in place of what is there."""
        ...
