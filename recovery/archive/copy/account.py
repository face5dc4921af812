"""What copies say of the folders in an archive: whether they are whole, what is in them, what has gone since.

The word is that of the nearest manifest: in a folder above the partition's, in the archive or above that.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from recovery.archive.copy.manifest import CopiedFile, CopyDocument, read_document
from recovery.archive.stores.store import Store
from recovery.archive.stores.stores import open_store
from recovery.errors import UsageError
from segfmt.filenames import LOG_START_OFFSET_CHECKPOINT


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedFolder:
    """What a copy says of the folder of one partition.

    Attributes:
        is_whole: whether all of it was copied.
        files: what was, by name, as it was; without what had gone from the log dir when it was copied last.
        gone: the names of that.
        is_gone: whether all of it had gone: then nothing is in `gone`.
        begins_unknown: whether the copy should say where the log begins, and does not.
    """

    is_whole: bool
    files: Mapping[str, CopiedFile]
    gone: frozenset[str]
    is_gone: bool
    begins_unknown: bool

    def sha256(self, name: str) -> str | None:
        """Return that of a file as it was copied, None if the copy does not name it."""
        return self.files[name].sha256 if name in self.files else None


class CopyAccounts:
    """The manifests of copies in an archive and above it. Each is read once.

    Args:
        store: the archive.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._documents: dict[str, CopyDocument | None] = {}
        self._above: tuple[CopyDocument, str] | None = None
        self._at("")
        if self._documents[""] is None:
            self._above = _document_above(store)

    def folder(self, prefix: str) -> CopiedFolder | None:
        """Return what is said of the partition at *prefix*, which ends in a slash or is empty; None if nothing is.

        Raises:
            UsageError: a manifest that cannot be understood.
            OSError: one in the archive cannot be read.
        """
        for outer in _outer(prefix):
            document = self._at(outer)
            if document is not None:
                return _folder(document, prefix.removeprefix(outer))
        if self._above is None:
            return None
        document, below = self._above
        return _folder(document, below + prefix)

    def unfinished(self) -> Iterator[str]:
        """Yield the prefixes in the archive of folders that are not whole, by the manifests that were read so far."""
        for outer, document in self._documents.items():
            if document is not None:
                yield from (outer + folder for folder in document.unfinished)
        if self._above is not None:
            document, below = self._above
            yield from (one.removeprefix(below) for one in document.unfinished if one.startswith(below))

    def _at(self, outer: str) -> CopyDocument | None:
        if outer not in self._documents:
            try:
                self._documents[outer] = read_document(self._store, outer)
            except (FileNotFoundError, NotADirectoryError):
                self._documents[outer] = None
        return self._documents[outer]


def _outer(prefix: str) -> Iterator[str]:
    """Yield the prefixes above *prefix*, the nearest first."""
    parts = prefix.split("/")[:-1]
    for count in range(len(parts) - 1, -1, -1):
        yield "".join(f"{part}/" for part in parts[:count])


def _document_above(store: Store) -> tuple[CopyDocument, str] | None:
    """Return the nearest manifest above an archive, and the archive's prefix in that copy.

    Raises:
        UsageError: it cannot be understood.
    """
    scheme, separator, path = store.url.rpartition("://")
    path = path.rstrip("/") if separator else os.path.realpath(path)
    below = ""
    while "/" in path.lstrip("/") or (not separator and path.strip("/")):
        path, _, name = path.rpartition("/")
        below = f"{name}/{below}"
        with suppress(OSError):  # it need not be there, nor be readable
            outer = _opened(f"{scheme}{separator}{path or '/'}")
            if outer is not None:
                return read_document(outer), below
    return None


def _opened(url: str) -> Store | None:
    with suppress(UsageError):
        return open_store(url)
    return None


def _folder(document: CopyDocument, folder: str) -> CopiedFolder:
    files = document.folder(folder)
    gone = frozenset(name for name in files if folder + name in document.gone)
    is_gone = bool(files) and len(gone) == len(files)
    log_dir = folder[: folder.rstrip("/").rfind("/") + 1]
    return CopiedFolder(
        is_whole=folder not in document.unfinished,
        files={name: one for name, one in files.items() if is_gone or name not in gone},
        gone=frozenset() if is_gone else gone,
        is_gone=is_gone,
        begins_unknown=log_dir in document.unfinished
        and LOG_START_OFFSET_CHECKPOINT not in document.folder(log_dir),
    )
