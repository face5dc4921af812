"""Where an archive is: a folder, or a bucket; what every store can do."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from recovery.archive.stores.archived import StoredObject
from recovery.archive.stores.segment_table import ObjectTable
from recovery.read.opened_log import OpenedLog


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One level below a prefix.

    Attributes:
        prefixes: of what is further down, each with its `/`, in order.
        objects: in the order of their names, each once.
        unread: what is there and cannot be looked at, with the reason.
    """

    prefixes: Sequence[str]
    objects: ObjectTable
    unread: Sequence[tuple[str, str]] = ()


class Store(Protocol):
    """A tree of objects below a URL. Keys are relative to it.

    Failures are OSErrors: FileNotFoundError, PermissionError, or one with the store's own message. A store can be
    pickled, and is opened again where it is unpickled.
    """

    @property
    def url(self) -> str:
        """The URL that it was opened by."""
        ...

    def list_level(self, prefix: str) -> Level:
        """Return what is directly below *prefix*, which is empty or ends in `/`."""
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
        """Write an object that does not exist, whole or not at all; return False if it exists."""
        ...

    def replace(self, key: str, data: bytes | Iterable[bytes]) -> None:
        """Write an object, whole or not at all, replacing what is there; *data* in one piece, or piece by piece."""
        ...

    def remove(self, key: str) -> None:
        """Remove an object."""
        ...


class Source(Protocol):
    """What is sent to a store: read once, from its beginning."""

    def read(self, size_bytes: int, /) -> bytes:
        """Return the next bytes, at most so many; none at the end, and from where on they cannot be read."""
        ...


class OutputStore(Store, Protocol):
    """A store that takes objects of any size."""

    def send(
        self, key: str, source: Source, size_bytes: int, *, part_key: Callable[[], str] = lambda: ""
    ) -> str:
        """Write an object of *size_bytes*, whole or not at all, replacing what is there, without holding it in memory.

        Args:
            part_key: asked when the source has ended early: the key of an object for the bytes that it gave; empty if
                they are not wanted.

        Returns:
            The key that the bytes have now; empty if they have none: they were not wanted, or are not held any more.

        Raises:
            OSError: of the store. Nothing new has a key then.
        """
        ...

    def keep(self, key: str, others: Iterable[str]) -> str:
        """Have an object under a second key, too, so that it outlives its own; it is on disk then.

        Args:
            others: keys, of which the first is taken that has no object, or has this very one already.

        Returns:
            The second key.

        Raises:
            OSError: of the store.
        """
        ...

    def sync(self, keys: Collection[str]) -> None:
        """Wait until the objects *keys* outlive a loss of power.

        Raises:
            OSError: they do not, or perhaps do not.
        """
        ...

    def held(self) -> AbstractContextManager[None]:
        """Let `sync` hear of all errors that there are in the block."""
        ...
