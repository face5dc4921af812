"""What has been copied: a line for each file, at the output. It tells the next run what need not be sent again.

It never names what a loss of power could still take: files are brought to disk first. What a whole file at the output
makes needless, the part of it that an earlier run could read, is removed after that.
"""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from collections.abc import Container, Iterable, Iterator, Mapping
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
        document: what is there; None if nothing is.
        version: of that, by which another writer shows.

    Attributes:
        unremoved: keys of needless objects that could not be removed, and why.
    """

    def __init__(
        self, store: OutputStore, document: CopyDocument | None = None, *, version: str = ""
    ) -> None:
        self.is_new = document is None
        document = document or CopyDocument(
            log_dirs={},
            unfinished=frozenset(),
            gone=frozenset(),
            chosen=frozenset(),
            sending=frozenset(),
            files=_Files(),
        )
        self._unfinished = set(document.unfinished)
        self._gone = set(document.gone)
        self._chosen = set(document.chosen)
        self._doubtful = set(document.sending)
        self._folders: frozenset[str] = frozenset()
        self._new_folders: frozenset[str] = frozenset()
        self._expected: set[str] = set()
        self._sending: set[str] = set()
        self._store = store
        self._log_dirs = dict(document.log_dirs)
        self._files = document.files
        self._is_forgotten = False
        self._noted: dict[str, _Noted] = {}
        self._needless: list[str] = []
        self.unremoved: dict[str, OSError] = {}
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._next_s = time.monotonic() + _WRITTEN_EVERY_S
        self._version = version

    @property
    def folders(self) -> Mapping[str, str]:
        """The log dirs of earlier runs and of this one, by folder."""
        return self._log_dirs

    def begin(self, folders: Mapping[str, str], *, is_forgotten: bool) -> None:
        """Take in the *folders* of this run's log dirs, and whether what earlier runs have copied does not count."""
        self._folders = frozenset(folders.values())
        self._new_folders = self._folders - self._log_dirs.keys()
        self._log_dirs |= {folder: log_dir for log_dir, folder in folders.items()}
        self._is_forgotten = is_forgotten

    def get(self, key: str) -> CopiedFile | None:
        """Return which whole file earlier runs have copied to *key*, None if none counts.

        What does not count stays named until another object has its key: it tells whether that one has lost bytes.
        """
        return None if self._is_forgotten else self._files.whole.get(key)

    def part(self, key: str) -> CopiedFile | None:
        """Return the file of *key* of which earlier runs have kept the beginning, None if none counts."""
        return None if self._is_forgotten else self._files.parts.get(key)

    def earlier(self, key: str) -> CopiedFile | None:
        """Return which whole file earlier runs have copied to *key*, whether that counts or not."""
        return self._files.whole.get(key)

    def is_doubtful(self, key: str) -> bool:
        """Return whether the object may be another one than is named: an earlier run was ended while it sent that."""
        return key in self._doubtful

    def earlier_part(self, key: str) -> CopiedFile | None:
        """Return the file of *key* of which earlier runs have kept the beginning, whether that counts or not."""
        return self._files.parts.get(key)

    def keys(self, folder: str) -> Iterator[str]:
        """Yield the keys of whole files below *folder* that earlier runs have copied."""
        yield from (key for key in self._files.whole if key.startswith(f"{folder}/"))

    def part_keys(self, folder: str) -> Iterator[str]:
        """Yield the keys of files below *folder* of which earlier runs have copied only the beginning."""
        yield from (key for key in self._files.parts if key.startswith(f"{folder}/"))

    def unfinished(self, folder: str) -> Iterator[str]:
        """Yield what is not whole of the log dir in *folder*, by earlier runs: folders, with a slash."""
        yield from (one for one in self._unfinished if one.startswith(f"{folder}/"))

    def expect(self, listed: Iterable[str], missing: Iterable[str], *, is_everything: bool) -> None:
        """Take in which files there are to copy, and write down the folders of those that are not at the output yet.

        A reader of the copy then knows that they are missing, however this run ends.

        Args:
            listed: keys of all files that were found.
            missing: keys of those that are to be sent.
            is_everything: whether all partitions were chosen: else a log dir that was not listed once stays so.
        """
        self._expected = set(missing)
        self._sending = set(self._expected)
        if is_everything:
            self._chosen -= self._folders
        else:
            self._chosen |= self._new_folders
        for key in listed:
            folder = folder_of(key)
            if is_everything or is_partition(folder):
                self._unfinished.discard(folder)
        if self._expected:
            self.write()

    def set_unsent(self, key: str) -> None:
        """Take in that the object of a file that was expected stays as it is."""
        with self._lock:
            self._sending.discard(key)

    def forget(self, key: str) -> None:
        """Take out a file that was removed from the output."""
        self._files.whole.pop(key, None)

    def forget_unseen(self, folder: str, seen: Container[str], unlisted: tuple[str, ...]) -> None:
        """Take in that all of a log dir was listed: what an earlier run could not list, or has not come to, is known.

        Partitions of these that have gone from it since are taken out.

        Args:
            folder: of the log dir.
            seen: folders that are there now, with a slash.
            unlisted: prefixes of what could not be listed now.
        """
        copied = {folder_of(key) for key in self.keys(folder)}
        self._unfinished -= {
            one
            for one in self._unfinished
            if one.startswith(f"{folder}/")
            and not (is_partition(one) and (one in seen or one in copied or one.startswith(unlisted)))
        }

    def set_gone(self, key: str, *, is_gone: bool) -> None:
        """Take in whether a file that earlier runs have copied is still in its log dir."""
        if is_gone:
            self._gone.add(key)
        else:
            self._gone.discard(key)

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
            self._files.add(key, one.copied)
        with self._lock:
            whole = {key for key, one in noted.items() if one.copied.kept_bytes is None}
            self._expected -= whole
            self._sending -= whole
            self._doubtful -= whole
            sending = (self._sending | self._doubtful) & self._files.whole.keys()
            unfinished = self._unfinished | {folder_of(key) for key in self._expected}
        lines = self._files.lines()
        document = {
            "version": _VERSION,
            "files": len(lines),
            "logDirs": {log_dir: folder for folder, log_dir in self._log_dirs.items()},
            "unfinished": sorted(unfinished),
            "gone": sorted(self._gone & self._files.whole.keys()),
            "chosen": sorted(self._chosen),
            "sending": sorted(sending),
        }
        self._refuse_other_writers()
        self._store.replace(MANIFEST_KEY, "\n".join([json.dumps(document), *lines, ""]).encode())
        self._version = _version_of(self._store)
        for object_key in [*needless, *(one.needless for one in noted.values() if one.needless)]:
            try:
                self._store.remove(object_key)
            except FileNotFoundError:
                pass
            except OSError as error:  # as in a bucket that lets nothing be deleted; what is whole is there
                self.unremoved[object_key] = error
        now_s = time.monotonic()
        self._next_s = now_s + max(_WRITTEN_EVERY_S, _LEAST_SHARE * (now_s - started_s))

    def _refuse_other_writers(self) -> None:
        """Raise OSError if the manifest is not as this run has left it: what another copy says is not written over."""
        if _version_of(self._store) != self._version:
            place = f"{self._store.url.rstrip('/')}/{MANIFEST_KEY}"
            raise OSError(
                errno.EBUSY, "another archive copy has written it since: let one end before the next", place
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyDocument:
    """A manifest as it was read.

    Attributes:
        log_dirs: log dir by its folder at the output.
        unfinished: folders of which not all was copied, with a slash.
        gone: keys of files that had gone from their log dir when it was copied last.
        chosen: folders of log dirs of which no run has copied all partitions, but only those that were chosen.
        sending: keys of whole files whose objects were being replaced.
        files: at the output.
    """

    log_dirs: Mapping[str, str]
    unfinished: frozenset[str]
    gone: frozenset[str]
    chosen: frozenset[str]
    sending: frozenset[str]
    files: _Files
    _by_folder: dict[str, dict[str, CopiedFile]] = field(default_factory=dict)

    def present_folders(self) -> Iterator[str]:
        """Yield the folders of which not all had gone when they were copied last."""
        self.folder("")
        for folder, files in self._by_folder.items():
            if any(folder + name not in self.gone for name in files):
                yield folder

    def folder(self, folder: str) -> Mapping[str, CopiedFile]:
        """Return the whole files directly in *folder*, which ends in a slash, by name."""
        if not self._by_folder:
            for key, copied in self.files.whole.items():
                above, _, name = key.rpartition("/")
                self._by_folder.setdefault(f"{above}/", {})[name] = copied
        return self._by_folder.get(folder, {})


def read_document(store: Store, prefix: str = "") -> CopyDocument:
    """Return the manifest at *prefix* of a store.

    Raises:
        UsageError: there is one, and it is none that this version understands.
        OSError: it cannot be read. FileNotFoundError: there is none.
    """
    data = store.read(prefix + MANIFEST_KEY, most_bytes=_MOST_BYTES)
    files = _Files()
    try:
        head, *lines = data.split(b"\n")
        document = json.loads(head)
        version = document["version"]
        if version != _VERSION:
            raise _not_understood(store, prefix, f"version {version}")
        log_dirs = {str(folder): str(log_dir) for log_dir, folder in document["logDirs"].items()}
        unfinished, gone = (frozenset(map(str, document[name])) for name in ("unfinished", "gone"))
        # earlier versions have not written these
        chosen, sending = (frozenset(map(str, document.get(name, ()))) for name in ("chosen", "sending"))
        expected = int(document.get("files", len(lines) - 1))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise _not_understood(
            store, prefix, "its first line is not that of one" if data else "it is empty"
        ) from error
    if lines[-1:] == [b""]:
        del lines[-1]  # of a whole file, which ends in a line feed
    if len(lines) != expected:
        how = "cut short: " if len(lines) < expected else "more than its first line says: "
        raise _not_understood(store, prefix, f"{how}{len(lines):,} of {expected:,} files")
    for number, line in enumerate(lines, start=2):
        try:
            files.add(*_file_in(line))
        except (ValueError, TypeError, OverflowError) as error:
            raise _not_understood(store, prefix, f"its line {number:,} names no file") from error
    return CopyDocument(
        log_dirs=log_dirs, unfinished=unfinished, gone=gone, chosen=chosen, sending=sending, files=files
    )


def _file_in(line: bytes) -> tuple[str, CopiedFile]:
    """Return the key and the file of a line.

    Raises:
        ValueError, TypeError, OverflowError: it is not as this version writes it.
    """
    key, size_bytes, mtime_ns, inode, sha256, *kept = json.loads(line)
    figures = FileFigures(int(size_bytes), int(mtime_ns), int(inode))
    return str(key), CopiedFile(figures, str(sha256), int(kept[0]) if kept else None)


def _not_understood(store: Store, prefix: str, why: str) -> UsageError:
    return UsageError(
        f"{store.url.rstrip('/')}/{prefix}{MANIFEST_KEY}: not the manifest of a copy ({why}), so whether the copy is "
        "whole is not known. Remedy: copy again, to another output or with this file moved away (everything is sent "
        "again then); or move it away and restore, if you know that all is there"
    )


def read_manifest(store: OutputStore) -> CopyManifest:
    """Return the manifest at the output *store*, an empty one if there is none.

    Raises:
        UsageError: it is not a manifest.
        OSError: it cannot be read.
    """
    version = _version_of(store)  # before it is read, so that a change meanwhile shows
    try:
        return CopyManifest(store, read_document(store), version=version)
    except (FileNotFoundError, NotADirectoryError):
        return CopyManifest(store, version=version)


def _version_of(store: Store) -> str:
    """Return what changes whenever the manifest is written; empty if there is none."""
    with suppress(FileNotFoundError, NotADirectoryError):
        return store.stat(MANIFEST_KEY).version
    return ""


def folder_of(key: str) -> str:
    """Return the folder of a file at the output: a partition's, or the log dir's for its own files, with a slash."""
    return "".join(f"{part}/" for part in key.split("/")[:-1][:2])


def is_partition(folder: str) -> bool:
    """Return whether *folder*, as `folder_of` returns it, is a partition's, and not a log dir's."""
    return folder.count("/") > 1
