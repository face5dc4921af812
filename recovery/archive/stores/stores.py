"""Which store a URL names."""

from __future__ import annotations

import os
from collections.abc import Iterable

from recovery.archive.stores.store import OutputStore, Store
from recovery.errors import UsageError
from recovery.logdir.brokers_place import refuse_brokers_place
from recovery.read.file_system import absolute

_OBJECT_SCHEMES = ("s3", "s3a", "gs", "gcs", "az", "azure", "abfs", "abfss", "memory")


def absolute_url(url: str) -> str:
    """Return a path as an absolute one, valid in other processes of this machine; URLs as they are."""
    return url if "://" in url else absolute(url)


def is_within(url: str, outer: str) -> bool:
    """Return whether *url* is *outer*, or below it: of paths by where they lead, links and all, of URLs by name."""
    inner_place, outer_place = (_place_of(each).rstrip("/") + "/" for each in (url, outer))
    return inner_place.startswith(outer_place)


def _place_of(url: str) -> str:
    """Return what is the same for all names of one place: a path without links, or a URL with its usual scheme."""
    path = local_path(url)
    if path is not None:
        return os.path.realpath(path)
    from recovery.archive.stores.object_store import usual_url

    return usual_url(url)


def local_path(url: str) -> str | None:
    """Return the path that *url* is, or names by `file://`; None if it names no folder."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return url
    return "/" + rest.partition("/")[2] if scheme == "file" else None


def beside(url: str, suffix: str) -> str:
    """Return the URL of a sibling of *url*, named like it and *suffix*.

    Raises:
        UsageError: it is a whole bucket, or the root.
    """
    own = absolute_url(url).rstrip("/")
    if not own.partition("://")[2 if "://" in own else 0].partition("/")[2]:
        raise UsageError(f"{url} has nothing beside it: give --output URL")
    return own + suffix


def refuse_within(named: str, url: str, archive: str, kind: str = "place") -> None:
    """Refuse a place that a user has named to be written to, and that is in an archive.

    Args:
        named: the option and what it names, for the error.
        kind: what to name instead.

    Raises:
        UsageError: it is.
    """
    if is_within(url, archive):
        raise UsageError(
            f"{named}: it is in the archive, perhaps by a link, and would be taken for its part. Remedy: name a {kind} "
            "outside"
        )


def refuse_brokers_output(url: str, log_dirs: Iterable[str] = ()) -> None:
    """Refuse an output in a log dir or in a partition's folder: a broker would not start with what is put there.

    Args:
        url: as it was given.
        log_dirs: folders, or their URLs, that are log dirs, whatever is in them.

    Raises:
        UsageError: it lies in one.
    """
    path = local_path(url)
    if path is not None:
        refuse_brokers_place(f"--output {url}", path, filter(None, map(local_path, log_dirs)))


def open_store(url: str) -> OutputStore:
    """Return the store at *url*: a path, `file://`, `s3://`, `gs://`, `az://`.

    Raises:
        UsageError: this kind of store is not supported, it has one slash too few, or nothing is named.
    """
    if not url.strip():
        raise UsageError(
            "an empty path or URL. Remedy: name a folder or a bucket; a shell variable may not be set"
        )
    path = local_path(url)
    scheme, colon, rest = url.partition(":/")
    if path is not None and colon and not rest.startswith("/") and scheme in (*_OBJECT_SCHEMES, "file"):
        raise UsageError(f"{url}: is {scheme}://{rest} meant? A folder of that name is ./{url}")
    if path is not None:
        from recovery.archive.stores.local_store import LocalStore

        return LocalStore(path)
    scheme = url.partition("://")[0]
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
