"""What has been copied: a line for each file, at the output. It tells the next run what need not be sent again.

It never names what a loss of power could still take: files are brought to disk first. What a whole file at the output
makes needless, the part of it that an earlier run could read, is removed after that.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from recovery.archive.stores.store import OutputStore, Store
from recovery.errors import UsageError

MANIFEST_KEY = "kafka-log-recovery-copy.jsonl"
_VERSION = 1
_MOST_BYTES = 1 << 30
_WRITTEN_EVERY_S = 30.0
_LEAST_SHARE = 20
"""Of the time between two writings, that of one is at most one in so many."""


class FileFigures(NamedTuple):
    """What tells, without reading it, whether a file is still the same."""

    size_bytes: int
    mtime_ns: int
    inode: int

    @classmethod
    def of(cls, status: os.stat_result) -> Self:
        """Return those of a file with *status*."""
        return cls(status.st_size, status.st_mtime_ns, status.st_ino)


@dataclass(frozen=True, slots=True)
class CopiedFile:
    """A file as it was when it was copied.

    Attributes:
        sha256: of the bytes at the output.
        kept_bytes: how many of them are there; None for all.
    """

    figures: FileFigures
    sha256: str
    kept_bytes: int | None = None

    @property
    def size_bytes(self) -> int:
        """Of the file, all of which need not be there."""
        return self.figures.size_bytes


@dataclass(slots=True, kw_only=True)
class _Files:
    """Files at the output, by key: whole ones, and those of which the beginning is there."""

    whole: dict[str, CopiedFile] = field(default_factory=dict)
    parts: dict[str, CopiedFile] = field(default_factory=dict)

    def add(self, key: str, copied: CopiedFile) -> None:
        if copied.kept_bytes is None:
            self.whole[key] = copied
            self.parts.pop(key, None)
        else:
            self.parts[key] = copied

    def lines(self) -> list[str]:
        rows = []
        for key, one in [*self.whole.items(), *self.parts.items()]:
            kept = [] if one.kept_bytes is None else [one.kept_bytes]
            rows.append((key, len(kept), [key, *one.figures, one.sha256, *kept]))
        return [json.dumps(row) for _, _, row in sorted(rows)]


class _Noted(NamedTuple):
    """A file that is at the output, perhaps not on disk yet."""

    copied: CopiedFile
    at: str
    needless: str


class CopyManifest:
    """The files at an output, by key. Thread-safe.

    Args:
        store: the output.
        log_dirs: folder by log dir, for people.
        earlier: what earlier runs have copied.
        unfinished: folders of which earlier runs have not copied all.
        is_forgotten: whether what they have copied does not count, and is only told.
        is_new: whether there was none.
    """

    def __init__(
        self,
        store: OutputStore,
        log_dirs: Mapping[str, str],
        earlier: _Files,
        *,
        unfinished: Iterable[str] = (),
        is_forgotten: bool = False,
        is_new: bool = False,
    ) -> None:
        self.is_new = is_new
        self._unfinished = set(unfinished)
        self._expected: set[str] = set()
        self._store = store
        self._log_dirs = dict(log_dirs)
        self._earlier = earlier
        self._is_forgotten = is_forgotten
        self._durable = _Files() if is_forgotten else earlier
        self._noted: dict[str, _Noted] = {}
        self._needless: list[str] = []
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._next_s = time.monotonic() + _WRITTEN_EVERY_S

    def get(self, key: str) -> CopiedFile | None:
        """Return which whole file earlier runs have copied to *key*, None if none counts."""
        return None if self._is_forgotten else self._earlier.whole.get(key)

    def part(self, key: str) -> CopiedFile | None:
        """Return the file of *key* of which earlier runs have kept the beginning, None if none counts."""
        return None if self._is_forgotten else self._earlier.parts.get(key)

    def earlier(self, key: str) -> CopiedFile | None:
        """Return which whole file earlier runs have copied to *key*, whether that counts or not."""
        return self._earlier.whole.get(key)

    def keys(self, folder: str) -> Iterator[str]:
        """Yield the keys of whole files below *folder* that earlier runs have copied."""
        yield from (key for key in self._earlier.whole if key.startswith(f"{folder}/"))

    def expect(self, listed: Iterable[str], missing: Iterable[str]) -> None:
        """Take in which files there are to copy, and write down the folders of those that are not at the output yet.

        A reader of the copy then knows that they are missing, however this run ends.

        Args:
            listed: keys of all files that were found.
            missing: keys of those that are to be sent.
        """
        self._expected = set(missing)
        self._unfinished -= {folder_of(key) for key in listed}
        if self._expected:
            self.write()

    def forget(self, key: str) -> None:
        """Take out a file that was removed from the output."""
        self._durable.whole.pop(key, None)
        self._earlier.whole.pop(key, None)

    def settle(self, key: str) -> None:
        """Take in that a file is gone from the log dir: nothing of it is missing."""
        with self._lock:
            self._expected.discard(key)

    def note(self, key: str, copied: CopiedFile, *, at: str, needless: str = "") -> None:
        """Note a file whose bytes are at the output now; the manifest is written there now and then.

        Args:
            key: of the file.
            at: that of the object; another one if only a part is there.
            needless: an object that is removed once this one is on disk.
        """
        with self._lock:
            self._noted[key] = _Noted(copied, at, needless)
            is_due = time.monotonic() > self._next_s
        if is_due and self._writing.acquire(blocking=False):
            try:
                self._write()
            finally:
                self._writing.release()

    def remove(self, needless: str) -> None:
        """Have an object removed with the next writing."""
        with self._lock:
            self._needless.append(needless)

    def write(self) -> None:
        """Bring what was noted to disk, write all of it to the output, and remove what is needless then."""
        with self._writing:
            self._write()

    def _write(self) -> None:
        started_s = time.monotonic()
        with self._lock:
            noted, self._noted = self._noted, {}
            needless, self._needless = self._needless, []
        self._store.sync([one.at for one in noted.values()])
        for key, one in noted.items():
            self._durable.add(key, one.copied)
        with self._lock:
            self._expected -= {key for key, one in noted.items() if one.copied.kept_bytes is None}
            unfinished = self._unfinished | {folder_of(key) for key in self._expected}
        head = json.dumps({"version": _VERSION, "logDirs": self._log_dirs, "unfinished": sorted(unfinished)})
        self._store.replace(MANIFEST_KEY, "\n".join([head, *self._durable.lines(), ""]).encode())
        for object_key in [*needless, *(one.needless for one in noted.values() if one.needless)]:
            with suppress(FileNotFoundError):
                self._store.remove(object_key)
        now_s = time.monotonic()
        self._next_s = now_s + max(_WRITTEN_EVERY_S, _LEAST_SHARE * (now_s - started_s))


def read_manifest(store: OutputStore, log_dirs: Mapping[str, str], *, is_forgotten: bool) -> CopyManifest:
    """Return the manifest at the output *store*, an empty one if there is none.

    Args:
        log_dirs: folder by log dir, of this run.
        is_forgotten: whether what earlier runs have copied does not count.

    Raises:
        UsageError: it is of other log dirs, or not a manifest.
    """
    try:
        data = store.read(MANIFEST_KEY, most_bytes=_MOST_BYTES)
    except FileNotFoundError:
        return CopyManifest(store, log_dirs, _Files(), is_new=True)
    files = _Files()
    try:
        head, *lines = data.decode().splitlines()
        document = json.loads(head)
        for line in lines:
            key, size_bytes, mtime_ns, inode, sha256, *kept = json.loads(line)
            figures = FileFigures(int(size_bytes), int(mtime_ns), int(inode))
            files.add(str(key), CopiedFile(figures, str(sha256), int(kept[0]) if kept else None))
        others = {str(folder): str(log_dir) for log_dir, folder in document["logDirs"].items()}
        unfinished = list(map(str, document.get("unfinished", ())))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"{store.url}/{MANIFEST_KEY}: not the manifest of a copy ({error}). Remedy: move it away, and everything "
            "is sent again, or choose another output"
        ) from error
    for log_dir, folder in log_dirs.items():
        if others.get(folder, log_dir) != log_dir:
            raise UsageError(
                f"{store.url}/{folder}: the copy of another log dir, {others[folder]}. Remedy: choose another output"
            )
    all_dirs = {log_dir: folder for folder, log_dir in others.items()} | dict(log_dirs)
    return CopyManifest(store, all_dirs, files, unfinished=unfinished, is_forgotten=is_forgotten)


def folder_of(key: str) -> str:
    """Return the folder of a file at the output: a partition's, or the log dir's for its own files, with a slash."""
    return "".join(f"{part}/" for part in key.split("/")[:-1][:2])


def read_unfinished(store: Store) -> frozenset[str]:
    """Return the folders in the copy at *store* that are not whole; none if there is no manifest of a copy.

    Raises:
        UsageError: there is one, and it does not say so.
        OSError: it cannot be read.
    """
    try:
        data = store.read(MANIFEST_KEY, most_bytes=_MOST_BYTES)
    except FileNotFoundError:
        return frozenset()
    try:
        return frozenset(map(str, json.loads(data.partition(b"\n")[0]).get("unfinished", ())))
    except (ValueError, TypeError, AttributeError) as error:
        raise UsageError(
            f"{store.url}/{MANIFEST_KEY}: not the manifest of a copy ({error}), so whether the copy is whole is not "
            "known. Remedy: copy again, or move that file away if you know that it is"
        ) from error
