"""What copies say of the folders in an archive: whether they are whole, what is in them, what has gone since.

The word is that of the nearest manifest: in a folder above the partition's, in the archive or above that.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from recovery.archive.copy.manifest import (
    MANIFEST_KEY,
    CopiedFile,
    CopyDocument,
    is_partition,
    read_document,
)
from recovery.archive.stores.store import Level, Store
from recovery.archive.stores.stores import open_store
from recovery.errors import UsageError, error_text


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedFolder:
    """What a copy says of the folder of one partition.

    Attributes:
        is_whole: whether all of it was copied.
        files: what was, by name, as it was; without what had gone from the log dir when it was copied last.
        own_files: of the log dir, likewise.
        gone: names of what had gone.
        is_gone: whether all of it had gone: then that is in `files`.
        is_log_dir_whole: whether all of the log dir's own files were copied, and all of its folders are known.
        is_of_chosen: whether only chosen partitions of the log dir were copied.
    """

    is_whole: bool
    files: Mapping[str, CopiedFile]
    own_files: Mapping[str, CopiedFile]
    gone: frozenset[str]
    is_gone: bool
    is_log_dir_whole: bool
    is_of_chosen: bool = False

    @property
    def is_named(self) -> bool:
        """Whether the copy knows the folder at all."""
        return bool(self.files) or not self.is_whole

    @property
    def is_expected(self) -> bool:
        """Whether the folder should be there, or is known not to be whole."""
        return not self.is_whole or (bool(self.files) and not self.is_gone)

    def sha256(self, name: str) -> str | None:
        """Return that of a file as it was copied, None if the copy does not name it."""
        return self.files[name].sha256 if name in self.files else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Above:
    """The nearest manifest above an archive.

    Attributes:
        document: what it says.
        place: its URL.
        below: the archive's prefix in that copy.
    """

    document: CopyDocument
    place: str
    below: str


class CopyAccounts:
    """The manifests of copies in an archive and above it. Each is read once.

    Args:
        store: the archive.

    Attributes:
        unread: why it is not known whether there is a manifest above the archive, a sentence each.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._documents: dict[str, CopyDocument | None] = {}
        self._above: _Above | None = None
        self.unread: list[str] = []
        self._at("")
        if self._documents[""] is None:
            self._above = self._document_above()

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
        return _folder(self._above.document, self._above.below + prefix)

    def look_at(self, prefix: str, level: Level) -> None:
        """Read the manifest at *prefix*, which is there, or not, by what *level* has."""
        if MANIFEST_KEY in level.objects.names:
            self._at(prefix)
        else:
            self._documents.setdefault(prefix, None)

    def unfinished(self) -> Iterator[str]:
        """Yield the prefixes in the archive of partitions that are not whole, by the manifests read so far."""
        return self._in_archive(lambda document: filter(is_partition, document.unfinished))

    def present(self) -> Iterator[str]:
        """Yield the prefixes in the archive of partitions that should be there, by the manifests read so far."""
        return self._in_archive(lambda document: filter(is_partition, document.present_folders()))

    def log_dirs_in_part(self) -> Iterator[str]:
        """Yield the prefixes of log dirs that were not listed, or not all of whose own files were copied, whyever."""
        yield from sorted(
            self._in_archive(lambda document: (one for one in document.unfinished if not is_partition(one)))
        )

    @property
    def copied_log_dir(self) -> str | None:
        """The log dir of which the archive is the copy, or a part of it, by a manifest above; None if it is none."""
        if self._above is None:
            return None
        return self._above.document.log_dirs.get(self._above.below.partition("/")[0])

    @property
    def log_dirs_around(self) -> Sequence[str]:
        """The log dirs of the copy that the archive is somewhere in, by a manifest above; none if it is in none."""
        return () if self._above is None else sorted(self._above.document.log_dirs.values())

    @property
    def manifest_above(self) -> str:
        """The URL of the nearest manifest above the archive; empty without one."""
        return "" if self._above is None else self._above.place

    @property
    def copied_folders(self) -> Iterable[str]:
        """The folders of log dirs in the archive, by a manifest directly in it."""
        document = self._documents[""]
        return () if document is None else document.log_dirs

    def has_left_out(self) -> bool:
        """Return whether something in the archive is not whole, or has gone, by a manifest above."""
        if self._above is None:
            return False
        document = self._above.document
        return any(one.startswith(self._above.below) for one in (*document.unfinished, *document.gone))

    def _in_archive(self, folders_of: Callable[[CopyDocument], Iterable[str]]) -> Iterator[str]:
        """Yield the folders that manifests name, as prefixes in the archive: an empty one for the archive itself."""
        for outer, document in self._documents.items():
            if document is not None:
                yield from (outer + folder for folder in folders_of(document))
        if self._above is not None:
            below, folders = self._above.below, folders_of(self._above.document)
            yield from (one.removeprefix(below) for one in folders if one.startswith(below))

    def _document_above(self) -> _Above | None:
        """Return the nearest manifest above the archive.

        Raises:
            UsageError: it cannot be understood.
            OSError: there is one, and this user cannot read it.
        """
        scheme, separator, path = self._store.url.rpartition("://")
        if separator:
            return self._nearest(f"{scheme}{separator}", path.rstrip("/"))
        # A log dir of a copy may be a link: the copy is above the link, or above what that leads to
        places = dict.fromkeys((os.path.abspath(path), os.path.realpath(path)))
        found = (self._nearest("", place) for place in places)
        return next((one for one in found if one is not None), None)

    def _nearest(self, scheme: str, path: str) -> _Above | None:
        below = ""
        while "/" in path.lstrip("/") or (not scheme and path.strip("/")):
            path, _, name = path.rpartition("/")
            below = f"{name}/{below}"
            place = f"{scheme}{path}/{MANIFEST_KEY}"
            try:
                outer = _opened(f"{scheme}{path or '/'}")
                if outer is not None:
                    return _Above(document=read_document(outer), place=place, below=below)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                if not scheme:  # who can go through a folder knows whether there is one
                    raise
                self.unread.append(f"{place}: {error_text(error)}")
        return None

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


def _opened(url: str) -> Store | None:
    with suppress(UsageError):
        return open_store(url)
    return None


def _folder(document: CopyDocument, folder: str) -> CopiedFolder:
    files = document.folder(folder)
    gone = frozenset(name for name in files if folder + name in document.gone)
    is_gone = bool(files) and len(gone) == len(files)
    log_dir = folder[: folder.rstrip("/").rfind("/") + 1]
    own = document.folder(log_dir)
    return CopiedFolder(
        is_whole=folder not in document.unfinished,
        files={name: one for name, one in files.items() if is_gone or name not in gone},
        own_files={name: one for name, one in own.items() if log_dir + name not in document.gone},
        gone=gone,
        is_gone=is_gone,
        is_log_dir_whole=log_dir not in document.unfinished,
        is_of_chosen=log_dir.rstrip("/") in document.chosen,
    )
