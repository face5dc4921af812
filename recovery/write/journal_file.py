"""The file of a journal: records appended in one piece, checked, and read back by their position.

It knows the frames of `recovery/write/journal_format.py` and nothing of what they hold. Thread-safe. A link is never
followed, and only regular files are accepted: the folder may belong to somebody else than the user who runs this.
"""

from __future__ import annotations

import contextlib
import errno
import os
import zlib
from collections.abc import Sequence
from threading import Lock
from typing import Any, Final, NamedTuple

from recovery.errors import JournalError
from recovery.logdir.user import give_to_owner_of
from recovery.read.file_system import is_folder, naming, open_file, read_at
from recovery.write import journal_format as journal_record
from recovery.write.durable import make_folder_like, make_folders, sync
from recovery.write.journal_format import PREFIX, START, Document, Piece, RecordKind

_CHUNK_BYTES: Final = 1 << 20  # holds the largest head
_MOST_READ_BYTES: Final = 512 << 20
_LEAST_FREE_BYTES: Final = 1 << 20


class FoundRecord(NamedTuple):
    """A whole record, without its body."""

    kind: RecordKind
    head: dict[str, Any]
    end: int


class JournalFile:
    """An open journal file. Made by `open_journal_file` and `create_journal_file`.

    Attributes:
        path: of the file.
        may_write: whether records can be appended.
    """

    def __init__(self, path: str, descriptor: int, *, may_write: bool) -> None:
        self.path = path
        self.may_write = may_write
        self._descriptor = descriptor
        with naming(path):
            self._end = os.fstat(descriptor).st_size
        self._is_torn = False
        self._lock = Lock()

    def close(self) -> None:
        """Close the file, once."""
        with self._lock:
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1

    def append(self, kind: RecordKind, head: Document, body: Sequence[Piece]) -> int:
        """Append a record in one piece, not synced, and return its position.

        Raises:
            OSError: it could not be written, or is too large; the file ends where it did before.
        """
        if not self.may_write:
            raise OSError(errno.EBADF, "the journal is open for reading only", self.path)
        payload = journal_record.encode_payload(head, body)
        if payload is None:
            raise OSError(errno.EFBIG, "too large for a record of the journal", self.path)
        checksum = journal_record.payload_checksum(kind, payload)
        with self._lock:
            return self._append(kind, payload, checksum)

    def append_if_room(self, kind: RecordKind, head: Document, body: Sequence[Piece]) -> int | None:
        """Append a record like `append`, if the file can be written, the format can hold it, and there is room.

        There is room if at least as much stays free in the file system as the journal then takes.
        """
        payload = journal_record.encode_payload(head, body)
        if payload is None or not self.may_write:
            return None
        checksum = journal_record.payload_checksum(kind, payload)
        with self._lock:
            has_room = self._has_room(PREFIX.size + sum(map(len, payload)))
            return self._append(kind, payload, checksum) if has_room else None

    def _append(self, kind: RecordKind, payload: Sequence[Piece], checksum: int) -> int:
        position, length = self._end, sum(map(len, payload))
        checksum = journal_record.end_checksum(checksum, position)
        self._write(PREFIX.pack(kind.value, length, checksum), *payload)
        return position

    def _write(self, *pieces: Piece) -> None:
        """Write *pieces* at the end; if that fails, the file ends where it did before."""
        try:
            with naming(self.path):
                if self._is_torn:
                    os.ftruncate(self._descriptor, self._end)
                    self._is_torn = False
                size_bytes = _write_fully(self._descriptor, pieces, self._end)
        except OSError:
            self._is_torn = True
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self._end)
                self._is_torn = False
            raise
        self._end += size_bytes

    def _has_room(self, size_bytes: int) -> bool:
        try:
            status = os.fstatvfs(self._descriptor)
        except OSError:
            return False
        left_bytes = status.f_bavail * status.f_frsize - size_bytes
        return left_bytes >= max(self._end + size_bytes, _LEAST_FREE_BYTES)

    def sync(self) -> None:
        """Bring all that was appended to disk.

        Raises:
            OSError: that failed.
        """
        with naming(self.path):
            os.fsync(self._descriptor)

    def check(self, position: int) -> FoundRecord | None:
        """Return the record at *position*, None if there is no whole one; its body is not kept."""
        prefix = journal_record.read_prefix(self._pread(PREFIX.size, position))
        if prefix is None:
            return None
        kind, length, expected = prefix
        begin = position + PREFIX.size
        end = begin + length
        if end > self._end:
            return None
        first = self._pread(min(length, _CHUNK_BYTES), begin)
        payload = journal_record.read_payload(first)
        if payload is None:
            return None
        checksum = zlib.crc32(first, journal_record.begin_checksum(kind, length))
        for at in range(begin + len(first), end, _CHUNK_BYTES):
            chunk = self._pread(min(end - at, _CHUNK_BYTES), at)
            checksum = zlib.crc32(chunk, checksum)
        is_whole = journal_record.end_checksum(checksum, position) == expected
        return FoundRecord(kind, payload[0], end) if is_whole else None

    def read(self, position: int) -> tuple[dict[str, Any], memoryview] | None:
        """Return head and body of the record at *position*, None if it is no longer whole."""
        prefix = journal_record.read_prefix(self._pread(PREFIX.size, position))
        if prefix is None or prefix[1] > self._end - position - PREFIX.size:
            return None
        kind, length, expected = prefix
        if length > _MOST_READ_BYTES:
            return None  # not written by us: a scan of that size is not kept, and a document is small
        payload = self._pread(length, position + PREFIX.size)
        checksum = journal_record.payload_checksum(kind, (payload,))
        if len(payload) != length or journal_record.end_checksum(checksum, position) != expected:
            return None
        return journal_record.read_payload(payload)

    def is_begun(self) -> bool:
        """Return whether the first bytes are those of a journal; False if they were never brought to disk.

        Raises:
            JournalError: they are those of something else, or of another version.
        """
        start = self._pread(START.size, 0)
        return any(start) and journal_record.check_start(start, self.path)

    def _pread(self, size_bytes: int, position: int) -> bytes:
        with naming(self.path):
            return read_at(self._descriptor, position, size_bytes)

    def cut(self, position: int) -> None:
        """Let the file end at *position*; if it is open for reading only, just read no further."""
        if self.may_write and position < self._end:
            with naming(self.path):
                os.ftruncate(self._descriptor, position)
        self._end = position


def open_journal_file(path: str, *, read_only: bool) -> JournalFile | None:
    """Return the file at *path*, None if there is none.

    Raises:
        JournalError: it is a link, a folder, or anything else that is not a regular file.
        OSError: it cannot be opened.
    """
    descriptor = _open(path, os.O_RDONLY if read_only else os.O_RDWR)
    if descriptor is None:
        return None
    try:
        return JournalFile(path, descriptor, may_write=not read_only)
    except BaseException:
        os.close(descriptor)
        raise


def create_journal_file(path: str, log_dir: str) -> JournalFile:
    """Return a new file at *path*, replacing what is there, that belongs to the owner of *log_dir*."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        give_to_owner_of(log_dir, path, descriptor)
        file = JournalFile(path, descriptor, may_write=True)
        file._write(journal_record.encode_start())
    except BaseException:
        os.close(descriptor)
        with contextlib.suppress(OSError):
            os.unlink(path)
        raise
    return file


def make_folder(folder: str, log_dir: str) -> bool:
    """Make *folder* for the owner of *log_dir*; return False if it is already there."""
    if is_folder(folder):
        return False
    make_folders(os.path.dirname(folder))
    make_folder_like(folder, log_dir)
    sync(os.path.dirname(folder))
    return True


def _open(path: str, access: int) -> int | None:
    """Open the regular file *path*, not a link; return None if there is none."""
    try:
        return open_file(path, access | os.O_NOFOLLOW)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.EISDIR, errno.EINVAL):
            raise
        raise JournalError(
            f"{path}: not a regular file, so not a journal of this tool. Remedy: move it away"
        ) from error


def _write_fully(descriptor: int, pieces: Sequence[Piece], position: int) -> int:
    """Write *pieces*, in one call if the system accepts that, and return the number of bytes."""
    left = [memoryview(piece) for piece in pieces if piece]
    begin = position
    while left:
        count = os.pwritev(descriptor, left, position)
        if not count:
            raise OSError(errno.EIO, "nothing was written")
        position += count
        while left and count >= len(left[0]):
            count -= len(left.pop(0))
        if left:
            left[0] = left[0][count:]
    return position - begin
