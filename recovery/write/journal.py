"""A run's journal on one log dir: what is done, so that the next run after a kill resumes instead of starting over.

One file that only grows, apart from Kafka's own files; `recovery/write/journal_format.py` has its format. Scans are
appended as they are made and never waited for: they save work, and a run that cannot write them continues without.
What a caller commits is on disk when `commit` returns, with all that was written before it.

A torn or damaged record ends the reading; everything before it counts, and it is cut off when the journal is opened to
resume a run. Scans and documents are read from the file on demand: only a position for each is in memory.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Collection, Iterator, Mapping
from types import TracebackType
from typing import Any, Final

from native.raw_scan import RawScan
from recovery.errors import JournalError
from recovery.load.model import FileStat, ScanRequest
from recovery.plan.actions import TEMPORARY_SUFFIX
from recovery.write import journal_format as journal_record
from recovery.write import scan_record
from recovery.write.durable import remove_empty_folder, sync
from recovery.write.journal_file import (
    FoundRecord,
    JournalFile,
    create_journal_file,
    make_folder,
    open_journal_file,
)
from recovery.write.journal_format import START, Document, Header, RecordKind
from segfmt.filenames import is_written_to

_NEW_SUFFIX: Final = ".new"
_FORGETTING_NOTE: Final = "forgetting"


class Journal:
    """The journal of one log dir, open. Thread-safe. Made by `create` and `open`."""

    def __init__(self, path: str, file: JournalFile, header: Header, *, made_folder: bool) -> None:
        self._path = path
        self._file = file
        self._header = header
        self._made_folder = made_folder
        self._scans: dict[bytes, int] = {}
        self._commits: dict[str, int] = {}
        self._notes: dict[str, int] = {}

    @classmethod
    def create(cls, path: str, header: Header) -> Journal:
        """Begin a journal at *path*, replacing what is there; it is on disk as a whole, or not there at all.

        A missing folder is made. Folder and file belong to the owner of the log dir.

        Raises:
            OSError: it cannot be written; nothing is left behind.
        """
        folder = os.path.dirname(path)
        made_folder = make_folder(folder, header.log_dir)
        file: JournalFile | None = None
        try:
            file = create_journal_file(path + _NEW_SUFFIX, header.log_dir)
            body = journal_record.encode_header(header)
            file.append(RecordKind.HEADER, {"made_folder": made_folder}, [body])
            file.sync()
            os.rename(file.path, path)
            file.path = path
            sync(folder)
        except BaseException:
            if file is not None:
                file.close()
                with contextlib.suppress(OSError):
                    os.unlink(file.path)
            if made_folder:
                remove_empty_folder(folder)
            raise
        return cls(path, file, header, made_folder=made_folder)

    @classmethod
    def open(cls, path: str, *, read_only: bool = False) -> Journal | None:
        """Return the journal at *path*; None if there is none, or none with a whole header: nothing was begun.

        Args:
            read_only: change nothing, not even a torn end.

        Raises:
            JournalError: the file is not a journal, or one of another version. A link is never followed.
            OSError: it cannot be read.
        """
        file = open_journal_file(path, read_only=read_only)
        if file is None:
            return None
        try:
            journal = cls._load(path, file)
        except BaseException:
            file.close()
            raise
        if journal is None:
            file.close()
        return journal

    @classmethod
    def _load(cls, path: str, file: JournalFile) -> Journal | None:
        """Find the records, and cut off a torn end."""
        if not file.is_begun():
            return None
        first = file.check(START.size)
        if first is None or first.kind is not RecordKind.HEADER:
            return None
        content = file.read(START.size)
        header = None if content is None else journal_record.decode_header(bytes(content[1]))
        if header is None:
            raise JournalError(
                f"{path}: byte {START.size}: the first record is not that of a run. Remedy: move the file away; "
                "everything is then read again"
            )
        journal = cls(path, file, header, made_folder=first.head.get("made_folder") is True)
        position = first.end
        while (record := file.check(position)) is not None and journal._enter(record, position):
            position = record.end
        file.cut(position)
        return journal

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def path(self) -> str:
        """Path of the journal."""
        return self._path

    @property
    def header(self) -> Header:
        """What the run began with."""
        return self._header

    @property
    def scan_count(self) -> int:
        """How many scans it holds."""
        return len(self._scans)

    @property
    def commits(self) -> Mapping[str, dict[str, Any]]:
        """The partitions that are done, by folder: a view that reads each document on demand.

        The last one of a folder counts. A document that can no longer be read raises `JournalError`.
        """
        return _Documents(self, self._commits)

    @property
    def notes(self) -> Mapping[str, dict[str, Any]]:
        """The notes by name, a view like `commits`."""
        return _Documents(self, self._notes)

    # -- scans ----------------------------------------------------------------------------------------------

    def has_scan(self, folder: str, request: ScanRequest, stat: FileStat) -> bool:
        """Return whether there is a scan of these bytes by an earlier run; see `scan_of`."""
        return _digest(scan_record.scan_key(folder, request, stat)) in self._scans

    def scan_of(self, folder: str, request: ScanRequest, stat: FileStat) -> RawScan | None:
        """Return the scan of these bytes of a segment by an earlier run; None if none can be read.

        Args:
            folder: of the partition.
            stat: the file as it is now; only a scan of this size, mtime, ctime and inode counts.
        """
        key = scan_record.scan_key(folder, request, stat)
        position = self._scans.get(_digest(key))
        if position is None:
            return None
        try:
            record = self._file.read(position)
        except OSError:
            return None  # the segment is read instead
        if record is None:
            return None
        head, body = record
        scan = head.get("scan")
        if head.get("key") != key or not isinstance(scan, dict):
            return None
        return scan_record.decode_scan(scan, body, request)

    def add_scan(self, folder: str, request: ScanRequest, stat: FileStat, scan: RawScan) -> bool:
        """Append a scan, not synced. It only saves work: a caller may ignore a failure.

        Returns:
            Whether it was written. It is not if the journal is open for reading only, if the scan is too large for
            the format, or if less would stay free in the file system than the journal takes: what the run still has
            to write (indexes) is of that size, and must not fail because of its journal.

        Raises:
            OSError: it could not be written; the journal is as it was.
        """
        key = scan_record.scan_key(folder, request, stat)
        integers, body = scan_record.encode_scan(scan)
        position = self._file.append_if_room(RecordKind.SCAN, {"key": key, "scan": integers}, body)
        if position is not None:
            self._scans[_digest(key)] = position
        return position is not None

    # -- documents ------------------------------------------------------------------------------------------

    def commit(self, folder: str, document: Document) -> None:
        """Enter that the partition in *folder* is done; see `commit_all`."""
        self.commit_all({folder: document})

    def commit_all(self, documents: Mapping[str, Document]) -> None:
        """Enter that partitions are done, durably, with everything that was appended before.

        Args:
            documents: what is recorded of each, by folder.

        Raises:
            OSError: it could not be written, or not be brought to disk. Only the next run then knows which of them
                count.
        """
        self._append_documents(RecordKind.COMMIT, "folder", documents, self._commits)

    def note(self, name: str, document: Document) -> None:
        """Enter *document* under *name*, durably, with everything that was appended before, like `commit`."""
        self._append_documents(RecordKind.NOTE, "name", {name: document}, self._notes)

    def _append_documents(
        self, kind: RecordKind, key: str, documents: Mapping[str, Document], positions: dict[str, int]
    ) -> None:
        appended = {
            name: self._file.append(kind, {key: name}, [journal_record.encode_json(document)])
            for name, document in documents.items()
        }
        self._file.sync()
        positions.update(appended)

    def forget(self, kept: Collection[str]) -> None:
        """Forget, durably, all commits, and all notes but those called *kept*; what was scanned still counts.

        Raises:
            OSError: it could not be written; nothing is forgotten then.
        """
        self.note(_FORGETTING_NOTE, {"kept": sorted(kept)})
        self.pass_over(kept)

    def pass_over(self, kept: Collection[str]) -> None:
        """Be as `forget` would leave it, and write nothing."""
        self._commits.clear()
        for name in [name for name in self._notes if name not in kept]:
            del self._notes[name]

    # -- end ------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the file; the journal stays for the next run."""
        self._file.close()

    def remove(self) -> None:
        """Close and remove the journal, durably, and its folder if that was made for it and is empty."""
        self.close()
        folder = os.path.dirname(self._path)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)
        sync(folder)
        if self._made_folder:
            remove_empty_folder(folder)

    def _enter(self, record: FoundRecord, position: int) -> bool:
        """Remember where a record is; return whether it is one of those that follow a header."""
        head = record.head
        match record.kind:
            case RecordKind.SCAN if scan_record.is_scan_key(head.get("key")):
                self._scans[_digest(head["key"])] = position
            case RecordKind.COMMIT if isinstance(head.get("folder"), str):
                self._commits[head["folder"]] = position
            case RecordKind.NOTE if head.get("name") == _FORGETTING_NOTE:
                kept = self._read_document(position).get("kept")
                self.pass_over(kept if isinstance(kept, list) else ())
            case RecordKind.NOTE if isinstance(head.get("name"), str):
                self._notes[head["name"]] = position
            case _:
                return False
        return True

    def _read_document(self, position: int) -> dict[str, Any]:
        record = self._file.read(position)
        document = None if record is None else journal_record.decode_json(bytes(record[1]))
        if document is None:
            raise JournalError(
                f"{self._path}: byte {position}: the record there was whole and no longer is. Remedy: check "
                "the disk, or move the file away; everything is then read again"
            )
        return document


def remove_unfinished(path: str) -> bool:
    """Remove what a run killed while beginning a journal at *path* has left; return whether it left anything."""
    try:
        os.unlink(path + _NEW_SUFFIX)
    except OSError:
        return False
    return True


class _Documents(Mapping[str, dict[str, Any]]):
    """Documents in the file, by name."""

    def __init__(self, journal: Journal, positions: dict[str, int]) -> None:
        self._journal = journal
        self._positions = positions

    def __getitem__(self, name: str) -> dict[str, Any]:
        return self._journal._read_document(self._positions[name])

    def __contains__(self, name: object) -> bool:
        return name in self._positions

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._positions))

    def __len__(self) -> int:
        return len(self._positions)


def listing_digest(files: Mapping[str, FileStat]) -> str:
    """Return the sha256 (hex) of a folder's listing: names, sizes, mtimes and inodes.

    What a load does not write to is left out: pending deletions, our own temporary files, files of others.
    """
    digest = hashlib.sha256()
    for name in sorted(files):
        if is_written_to(name) and not name.endswith(TEMPORARY_SUFFIX):
            stat = files[name]
            digest.update(name.encode("utf-8", "surrogatepass"))
            digest.update(f"\0{stat.size_bytes} {stat.mtime_ns} {stat.inode}\n".encode("ascii"))
    return digest.hexdigest()


def _digest(key: Document) -> bytes:
    return hashlib.blake2b(journal_record.encode_json(key), digest_size=16).digest()
