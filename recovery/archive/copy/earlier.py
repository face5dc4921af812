"""What the output has of a file that has lost bytes since it was copied: it stays there, under another name.

A disk that dies, or a check of its file system after a loss of power, cuts files short, and empties them. Their copies
may be all that is left of those bytes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from recovery.archive.copy.reading import ReadFile
from recovery.archive.stores.store import Store
from segfmt.filenames import FileKind, file_kind

EARLIER_SUFFIX = ".earlier"
"""Of a copy that a later one of its file does not begin with; a number follows from the second one on."""
KEPT_REMEDY = (
    "archive restore leaves such copies out. Remedy: if no broker, recover or undo did that, the disk may have: the "
    "earlier copy may be all there is; else remove it"
)
_EARLIER = re.compile(r".+\.earlier(\.[0-9]+)?")
_WINDOW_BYTES = 1 << 20
_MADE_ANEW = frozenset({FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX})


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBytes:
    """An object that a file has at the output before it is sent.

    Attributes:
        sha256: by the manifest; empty if that does not name the object.
    """

    key: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptCopy:
    """An earlier copy that stays beside the later one.

    Attributes:
        size_bytes: of the file, as it is now.
        earlier_bytes: of the earlier copy.
        kept_as: its key at the output.
    """

    file: str
    size_bytes: int
    earlier_bytes: int
    kept_as: str

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "file": self.file,
            "bytes": self.size_bytes,
            "earlierBytes": self.earlier_bytes,
            "keptAs": self.kept_as,
        }


class Ending:
    """A source that has something done once all of it was read, and before who reads it learns that.

    Args:
        source: it is not done if the source ends with an error.
        before_end: done once.
    """

    def __init__(self, source: ReadFile, before_end: Callable[[], None]) -> None:
        self._source = source
        self._before_end: Callable[[], None] | None = before_end

    def read(self, size_bytes: int, /) -> bytes:
        """Return the next bytes, at most so many."""
        data = self._source.read(size_bytes)
        if not data and self._source.error is None and self._before_end is not None:
            before_end, self._before_end = self._before_end, None
            before_end()
        return data


def is_lost(name: str, stored: StoredBytes, source: ReadFile, *, is_cleaned: bool) -> bool:
    """Return whether bytes of *stored* are not in its file any more, which was read as *source*, as far as it goes.

    A log grows at its end, unless the log cleaner is at it. All else is written anew, by and by shorter; but nothing
    that cannot be made anew becomes empty, or nothing but zeros, as after a loss of power. An object that the manifest
    does not name is held against the file by its size alone.

    Args:
        name: of the file.
        stored: what the output has of it.
        source: the file, read to its end, or to where it can be read: *stored* is not longer then.
        is_cleaned: whether its segments are written anew by the log cleaner.
    """
    if not stored.size_bytes:
        return False
    if file_kind(name) is FileKind.LOG and not is_cleaned:
        begins_alike = not stored.sha256 or source.sha256_at.get(stored.size_bytes) == stored.sha256
        return source.position < stored.size_bytes or not begins_alike
    return source.is_blank and file_kind(name) not in _MADE_ANEW


def sha256_at(store: Store, key: str) -> str:
    """Return the SHA-256 of the bytes of an object.

    Raises:
        OSError: it cannot be read.
    """
    digest, window, position = hashlib.sha256(), np.empty(_WINDOW_BYTES, np.uint8), 0
    with closing(store.open(key)) as opened:
        while size_bytes := opened.read_at(window, position):
            digest.update(window[:size_bytes].data)
            position += size_bytes
            opened.approach(position)
            opened.leave(position)
    return digest.hexdigest()


def earlier_keys(key: str, taken: Container[str]) -> Iterator[str]:
    """Yield the keys for earlier copies of the object *key*, without those that are *taken* by files."""
    for number in count(1):
        earlier = f"{key}{EARLIER_SUFFIX}" + (f".{number}" if number > 1 else "")
        if earlier not in taken:
            yield earlier


def kept_before(keys: Iterable[str], taken: Container[str]) -> list[str]:
    """Return which of the *keys* at the output are earlier copies, and not those of files, which are *taken*."""
    return sorted(key for key in keys if _EARLIER.fullmatch(key) and key not in taken)
