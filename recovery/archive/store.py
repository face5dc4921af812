"""Where an archive lies: a folder, or a bucket. What any store can do, and which one a URL names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from recovery.archive.archived import StoredObject
from recovery.errors import UsageError
from segfmt.value_class import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One level below a prefix.

    Attributes:
        prefixes: what is further down, each with its `/`, in order.
        objects: in the order of their keys.
    """

    prefixes: Sequence[str]
    objects: Sequence[StoredObject]


class OpenedObject(Protocol):
    """One object that is read forwards, window by window.

    Attributes:
        end_position: its size when it was opened.
    """

    @property
    def end_position(self) -> int: ...

    def read_at(self, target: npt.NDArray[np.uint8], position: int) -> int:
        """Fill *target* from *position* on; return how many bytes there were.

        Raises:
            OSError: it cannot be read.
        """
        ...

    def approach(self, position: int) -> None:
        """Have what stands behind *position* read ahead."""
        ...

    def leave(self, position: int) -> None:
        """Forget what stands before *position*."""
        ...

    def close(self) -> None:
        """Give it back."""
        ...


class Store(Protocol):
    """A tree of objects below a URL. Keys are relative to it.

    What fails is an OSError: FileNotFoundError, PermissionError, or one whose text says what the store said. A store can
    be pickled, and is opened again where it arrives.
    """

    @property
    def url(self) -> str: ...

    def list_level(self, prefix: str) -> Level:
        """Return what lies directly below *prefix*, which is empty or ends in `/`."""
        ...

    def stat(self, key: str) -> StoredObject:
        """Return an object as it is now."""
        ...

    def read(self, key: str, *, most_bytes: int) -> bytes:
        """Return the first *most_bytes* of an object."""
        ...

    def open(self, key: str) -> OpenedObject:
        """Open an object for reading."""
        ...

    def create(self, key: str, data: bytes) -> bool:
        """Write an object that is not there, whole or not at all; return False where it is."""
        ...

    def replace(self, key: str, data: bytes) -> None:
        """Write an object, whole or not at all, in place of what is there."""
        ...

    def copy(self, key: str, to_key: str) -> None:
        """Copy an object within the store, where there is none by the new name yet."""
        ...


_OBJECT_SCHEMES = ("s3", "s3a", "gs", "gcs", "az", "azure", "abfs", "abfss", "memory")


def open_store(url: str) -> Store:
    """Return the store at *url*: a path, `file://`, `s3://`, `gs://`, `az://`.

    Raises:
        UsageError: no store of that kind is known here.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        from recovery.archive.local_store import LocalStore

        return LocalStore(url)
    if scheme == "file":
        from recovery.archive.local_store import LocalStore

        return LocalStore("/" + rest.partition("/")[2])
    if scheme in _OBJECT_SCHEMES:
        from recovery.archive.object_store import ObjectStore

        return ObjectStore(url)
    raise UsageError(
        f"{url}: no store for {scheme}:// (a path, file://, s3://, gs:// and az:// are known; HDFS is not: "
        "mount it by its NFS gateway or FUSE, and give the path)"
    )
