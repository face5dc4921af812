"""Which store a URL names."""

from __future__ import annotations

from recovery.archive.stores.store import Store
from recovery.errors import UsageError
from recovery.read.file_system import absolute

_OBJECT_SCHEMES = ("s3", "s3a", "gs", "gcs", "az", "azure", "abfs", "abfss", "memory")


def absolute_url(url: str) -> str:
    """Return a path as an absolute one, valid in other processes of this machine; URLs as they are."""
    return url if "://" in url else absolute(url)


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
