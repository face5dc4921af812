"""Which store a URL names."""

from __future__ import annotations

from recovery.archive.stores.store import Store
from recovery.errors import UsageError
from recovery.read.file_system import absolute

_OBJECT_SCHEMES = ("s3", "s3a", "gs", "gcs", "az", "azure", "abfs", "abfss", "memory")


def absolute_url(url: str) -> str:
    """Return a path as an absolute one, valid in other processes of this machine; URLs as they are."""
    return url if "://" in url else absolute(url)


def is_within(url: str, outer: str) -> bool:
    """Return whether *url* is *outer*, or below it, by their names."""
    inner_url, outer_url = (
        absolute_url(each).removeprefix("file://").rstrip("/") + "/" for each in (url, outer)
    )
    return inner_url.startswith(outer_url)


def beside(url: str, suffix: str) -> str:
    """Return the URL of a sibling of *url*, named like it and *suffix*.

    Raises:
        UsageError: it is a whole bucket, or the root.
    """
    own = absolute_url(url).rstrip("/")
    if not own.partition("://")[2 if "://" in own else 0].partition("/")[2]:
        raise UsageError(f"{url} has nothing beside it: give --output URL")
    return own + suffix


def open_store(url: str) -> Store:
    """Return the store at *url*: a path, `file://`, `s3://`, `gs://`, `az://`.

    Raises:
        UsageError: this kind of store is not supported.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        from recovery.archive.stores.local_store import LocalStore

        return LocalStore(url)
    if scheme == "file":
        from recovery.archive.stores.local_store import LocalStore

        return LocalStore("/" + rest.partition("/")[2])
    if scheme in _OBJECT_SCHEMES:
        from recovery.archive.stores.object_store import ObjectStore

        return ObjectStore(url)
    raise UsageError(
        f"{url}: no store for {scheme}:// (a path, file://, s3://, gs:// and az:// are known; HDFS is not: "
        "mount it by its NFS gateway or FUSE, and give the path)"
    )


def open_archive(url: str, files_from: str | None = None) -> Store:
    """Return the store at *url*; if the file *files_from* lists its objects, the store itself is not listed.

    Raises:
        UsageError: as `open_store`, or the list cannot be read.
    """
    store = open_store(url)
    if files_from is None:
        return store
    from recovery.archive.stores.listed_store import ListedStore

    return ListedStore(store, files_from)
