"""Whether the files of a copy are as they were copied, by its manifest: all there, of the same size and bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from recovery.archive.copy.account import CopiedFolder
from recovery.archive.copy.manifest import CopiedFile
from recovery.archive.stores.archived import StoredObject
from recovery.archive.stores.store import Store
from recovery.check.folder_files import MOST_SMALL_FILE_BYTES
from recovery.logdir.checkpoints import OFFSET_CHECKPOINTS
from recovery.printable import is_utf8
from segfmt.filenames import FileKind, file_kind

_NEEDLESS_KINDS = frozenset(
    {FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX, FileKind.DELETED, FileKind.CLEANED}
)
"""Of files without which a log is whole: indexes are made anew, and no broker needs the others."""


class Difference(NamedTuple):
    """A file that is not as it was copied.

    Attributes:
        name: of the file.
        is_missing: whether it is not there at all.
        text: what is wrong, as the predicate of a sentence about it.
    """

    name: str
    is_missing: bool
    text: str


def needed_files(copied: CopiedFolder) -> dict[str, CopiedFile]:
    """Return the files of a partition's folder without which it is not the copy, by name."""
    return {
        name: one
        for name, one in copied.files.items()
        # A store lists what is not UTF-8 by another name, and no broker writes one
        if file_kind(name) not in _NEEDLESS_KINDS and is_utf8(name)
    }


def needed_checkpoints(copied: CopiedFolder) -> dict[str, CopiedFile]:
    """Return the files of the log dir on which a partition's log depends, by name."""
    return {name: one for name, one in copied.own_files.items() if name in OFFSET_CHECKPOINTS}


def is_small(name: str, size_bytes: int) -> bool:
    """Return whether the bytes of a file are compared: those of logs are checked batch by batch."""
    return file_kind(name) is not FileKind.LOG and size_bytes <= MOST_SMALL_FILE_BYTES


def differences(
    expected: Mapping[str, CopiedFile],
    objects: Iterable[StoredObject],
    *,
    store: Store | None,
) -> Iterator[Difference]:
    """Yield what is not as it was copied.

    Args:
        expected: the files as they were copied, by name.
        objects: those that are there.
        store: where they are, to compare the bytes of small ones; None: sizes alone are compared.

    Raises:
        OSError: a file cannot be read.
    """
    by_name = {one.name: one for one in objects}
    for name, copied in expected.items():
        stored = by_name.get(name)
        if stored is None:
            yield Difference(name, is_missing=True, text="was copied, and is not there")
        elif stored.size_bytes != copied.size_bytes:
            text = f"has {stored.size_bytes:,} bytes, and {copied.size_bytes:,} were copied"
            yield Difference(name, is_missing=False, text=text)
        elif store is not None and is_small(name, stored.size_bytes):
            data = store.read(stored.key, most_bytes=MOST_SMALL_FILE_BYTES)
            difference = other_bytes(name, data, copied.sha256)
            if difference is not None:
                yield difference


def other_bytes(name: str, data: bytes, sha256: str) -> Difference | None:
    """Return the difference of a file with *data*, None if the copy's SHA-256 is that of the data."""
    if hashlib.sha256(data).hexdigest() == sha256:
        return None
    return Difference(name, is_missing=False, text="has other bytes than were copied, by their SHA-256")
