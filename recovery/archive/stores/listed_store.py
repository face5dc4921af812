"""A store whose objects are taken from a list: millions of them without a request.

A list is a text file, gzipped or not, of one object per line:

    key                      relative to the archive, or to its bucket, or a whole URL
    key<TAB>size<TAB>ETag    with what a listing would say; without a size the store is asked for it

or the `manifest.json` of an S3 Inventory as CSV, whose files are next to it, or in `data` next to it or next to its
folder, as S3 writes them. The list is kept in a temporary SQLite database, so that memory does not grow with it.
"""

from __future__ import annotations

import csv
import errno
import functools
import gzip
import hashlib
import json
import os
import sqlite3
import threading
import weakref
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple, TextIO
from urllib.parse import unquote

from recovery.archive.stores.archived import StoredObject
from recovery.archive.stores.segment_table import ObjectTable
from recovery.archive.stores.store import Level, Store
from recovery.errors import UsageError, reason_text
from recovery.read.file_system import is_there
from recovery.read.opened_log import OpenedLog

_ROWS_AT_A_TIME = 10_000
_GZIP_MAGIC = b"\x1f\x8b"
_SIZE_UNKNOWN = -1
_MOST_OBJECT_BYTES = 1 << 50


class ListedStore:
    """The objects of another store that a list names.

    Args:
        store: where they are.
        path: of the list.

    Raises:
        UsageError: the list cannot be read, or a line of it.
    """

    def __init__(self, store: Store, path: str) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._database = sqlite3.connect("", check_same_thread=False)  # a file without a name
        weakref.finalize(self, self._database.close)  # Python 3.13 warns of one that is not closed
        self._database.executescript(
            "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF;"
            "CREATE TABLE objects (parent TEXT, name TEXT, size INTEGER, version TEXT);"
            "CREATE TABLE prefixes (parent TEXT, prefix TEXT PRIMARY KEY) WITHOUT ROWID;"
        )
        self._fill(_entries(path))
        self._database.executescript(
            "CREATE INDEX by_parent ON objects (parent, name); CREATE INDEX by_prefix ON prefixes (parent, prefix);"
        )

    @property
    def url(self) -> str:
        """The URL of the store."""
        return self._store.url

    def list_level(self, prefix: str) -> Level:
        """Return what the list names directly below *prefix*."""
        with self._lock:
            prefixes = self._database.execute(
                "SELECT prefix FROM prefixes WHERE parent = ? ORDER BY prefix", (prefix,)
            ).fetchall()
            rows = self._database.execute(
                "SELECT name, size, version, max(rowid) FROM objects WHERE parent = ? GROUP BY name ORDER BY name",
                (prefix,),
            ).fetchall()  # of objects named twice, the last
        sized_rows, gone, unread = [], [], []
        for row in rows:
            try:
                sized_rows.append(self._row_of(prefix, row[0]) if row[1] == _SIZE_UNKNOWN else row[:3])
            except FileNotFoundError:
                gone.append(row[0])
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                unread.append((prefix + row[0], str(error.strerror)))
        if gone:
            detail = (
                f"in the list, and not there, as {len(gone)} in all that the list has below the same prefix"
            )
            unread.append((prefix + gone[0], detail))
        return Level(
            prefixes=[child for (child,) in prefixes],
            objects=ObjectTable.of_rows(prefix, sized_rows),
            unread=unread,
        )

    def stat(self, key: str) -> StoredObject:
        """Return an object as it is now."""
        return self._store.stat(key)

    def read(self, key: str, *, most_bytes: int) -> bytes:
        """Return the first bytes of an object."""
        return self._store.read(key, most_bytes=most_bytes)

    def read_into(self, key: str, target: memoryview) -> int:
        """Fill *target* from the beginning of an object on; return how many bytes there were."""
        return self._store.read_into(key, target)

    def open(self, key: str) -> OpenedLog:
        """Open an object for reading."""
        return self._store.open(key)

    def create(self, key: str, data: bytes) -> bool:
        """Write an object that does not exist."""
        return self._store.create(key, data)

    def replace(self, key: str, data: bytes | Iterable[bytes]) -> None:
        """Write an object, replacing what is there."""
        self._store.replace(key, data)

    def remove(self, key: str) -> None:
        """Remove an object."""
        self._store.remove(key)

    def _row_of(self, prefix: str, name: str) -> tuple[str, int, str]:
        """Return a row with what the store says of an object."""
        stored = self._store.stat(prefix + name)
        return name, stored.size_bytes, stored.version

    def _fill(self, entries: Iterator[_Entry]) -> None:
        roots = (f"{self._store.url.rstrip('/')}/", _path_in_bucket(self._store.url))
        while batch := list(islice(entries, _ROWS_AT_A_TIME)):
            rows = []
            prefixes: set[tuple[str, str]] = set()
            for entry in batch:
                key = entry.key
                for root in roots:
                    key = key.removeprefix(root)
                folder, slash, name = key.rpartition("/")
                rows.append((folder + slash, name, entry.size_bytes, entry.version))
                prefixes.update(_prefixes_of(folder + slash))
            self._database.executemany("INSERT INTO objects VALUES (?, ?, ?, ?)", rows)
            self._database.executemany("INSERT OR IGNORE INTO prefixes VALUES (?, ?)", prefixes)


class _Entry(NamedTuple):
    key: str
    size_bytes: int = _SIZE_UNKNOWN
    version: str = ""


def _entries(path: str) -> Iterator[_Entry]:
    try:
        if os.path.basename(path) != "manifest.json":
            with _opened(path) as lines:
                yield from _listed(lines)
            return
        with open(path, encoding="utf-8") as file:
            manifest = json.load(file)
        _refuse_other_formats(manifest)
        columns = [name.strip() for name in manifest["fileSchema"].split(",")]
        for data_file in manifest["files"]:
            data_path = _path_of_data_file(path, data_file["key"])
            _refuse_incomplete(data_path, data_file)
            with _opened(data_path) as lines:
                yield from _inventoried(lines, columns)
    except OSError as error:
        other = "" if error.filename in (None, path) else f"{error.filename}: "
        raise UsageError(
            f"--files-from {path}: {other}{reason_text(error)}. Remedy: name a file that this user may read"
        ) from error
    except (ValueError, csv.Error) as error:
        raise UsageError(f"--files-from {path}: {error}") from error
    except (EOFError, zlib.error) as error:
        raise UsageError(
            f"--files-from {path}: a gzip file is cut or damaged ({error}): copy it again"
        ) from error
    except (KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"--files-from {path}: it is no manifest of an S3 Inventory: {error!r}") from error


def _refuse_other_formats(manifest: Mapping[str, object]) -> None:
    """Refuse an inventory that is no CSV.

    Raises:
        ValueError: it says so.
    """
    file_format = manifest.get("fileFormat", "CSV")
    if file_format != "CSV":
        raise ValueError(f"its fileFormat is {file_format}: have S3 write the inventory as CSV")


def _refuse_incomplete(path: str, data_file: Mapping[str, object]) -> None:
    """Refuse a file of an inventory that is not the one that its manifest names.

    Raises:
        ValueError: it has another size or checksum.
    """
    size_bytes, checksum = data_file.get("size"), data_file.get("MD5checksum")
    found_bytes = os.path.getsize(path)
    if size_bytes is not None and found_bytes != size_bytes:
        raise ValueError(f"{path} has {found_bytes} bytes, the manifest says {size_bytes}: copy it again")
    if checksum is None:
        return
    with open(path, "rb") as file:
        found = hashlib.file_digest(file, functools.partial(hashlib.md5, usedforsecurity=False)).hexdigest()
    if found != checksum:
        raise ValueError(f"{path} has the MD5 checksum {found}, the manifest says {checksum}: copy it again")


def _opened(path: str) -> TextIO:
    with open(path, "rb") as file:
        is_gzip = file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
    if is_gzip:
        return gzip.open(path, "rt", encoding="utf-8", newline="")
    return open(path, encoding="utf-8", newline="")


def _path_of_data_file(manifest: str, key: str) -> str:
    """Return where a file of an inventory is after it was copied with its manifest."""
    folder, name = os.path.dirname(manifest), key.rpartition("/")[2]
    candidates = [os.path.join(folder, *above, name) for above in ((), ("data",), ("..", "data"))]
    return next(filter(is_there, candidates), candidates[0])


def _listed(lines: Iterable[str]) -> Iterator[_Entry]:
    for number, line in enumerate(lines, 1):
        fields = line.rstrip("\r\n").split("\t")
        if not fields[0]:
            continue
        if len(fields) > 3 or (len(fields) > 1 and not fields[1].isdecimal()):
            raise ValueError(f"line {number}: expected a key, or key, size and ETag with tabs between them")
        size_bytes = int(fields[1]) if len(fields) > 1 else _SIZE_UNKNOWN
        if size_bytes > _MOST_OBJECT_BYTES:
            raise ValueError(f"line {number}: a size of {size_bytes} bytes, which no store holds")
        yield _Entry(fields[0], size_bytes, fields[2].strip('"') if len(fields) > 2 else "")


def _inventoried(lines: Iterable[str], columns: Sequence[str]) -> Iterator[_Entry]:
    for number, row in enumerate(csv.reader(lines), 1):
        if len(row) != len(columns):
            raise ValueError(f"line {number}: {len(row)} columns, the manifest names {len(columns)}")
        fields = dict(zip(columns, row, strict=True))
        if fields.get("IsLatest", "true") == "true" and fields.get("IsDeleteMarker", "false") == "false":
            size = fields.get("Size", "")
            yield _Entry(unquote(fields["Key"]), int(size) if size else _SIZE_UNKNOWN, fields.get("ETag", ""))


def _prefixes_of(folder: str) -> Iterator[tuple[str, str]]:
    """Yield each prefix on the way down to *folder*, after its parent."""
    above = ""
    for part in folder.split("/")[:-1]:
        yield above, f"{above}{part}/"
        above = f"{above}{part}/"


def _path_in_bucket(url: str) -> str:
    """Return the prefix in a bucket's keys that precedes the keys of an archive in it."""
    _, separator, rest = url.partition("://")
    path = rest.partition("/")[2].strip("/") if separator else ""
    return f"{path}/" if path else ""
