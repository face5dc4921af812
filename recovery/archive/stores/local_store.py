"""A folder as a store, local or mounted (NFS). Read with `pread`, so that a truncated file cannot end the process."""

from __future__ import annotations

import os
import secrets

from recovery.archive.stores.archived import StoredObject
from recovery.archive.stores.segment_table import ObjectTable
from recovery.archive.stores.store import Level
from recovery.read.file_system import absolute, fill, open_file
from recovery.read.opened_log import OpenedFile


class LocalStore:
    """The files below one folder.

    Args:
        root: path of the folder.
    """

    def __init__(self, root: str) -> None:
        self._root = absolute(root)

    @property
    def url(self) -> str:
        """The folder's path."""
        return self._root

    def list_level(self, prefix: str) -> Level:
        """Return folders and files directly below *prefix*; links are followed, other things skipped."""
        prefixes: list[str] = []
        rows: list[tuple[str, int, str]] = []
        with os.scandir(self._path(prefix)) as entries:
            for entry in entries:
                try:
                    if entry.is_dir():
                        prefixes.append(f"{prefix}{entry.name}/")
                    elif entry.is_file():
                        status = entry.stat()
                        rows.append((entry.name, status.st_size, _version(status)))
                except FileNotFoundError:
                    continue  # removed meanwhile
        return Level(prefixes=sorted(prefixes), objects=ObjectTable.of_rows(prefix, sorted(rows)))

    def stat(self, key: str) -> StoredObject:
        """Return a file as it is now."""
        status = os.stat(self._path(key))
        return StoredObject(key=key, size_bytes=status.st_size, version=_version(status))

    def read(self, key: str, *, most_bytes: int) -> bytes:
        """Return the first bytes of a file."""
        with open(self._path(key), "rb", 0, opener=open_file) as file:
            parts = []
            while most_bytes > 0:
                data = file.read(most_bytes)
                if not data:
                    break
                parts.append(data)
                most_bytes -= len(data)
        return b"".join(parts)

    def read_into(self, key: str, target: memoryview) -> int:
        """Fill *target* from the beginning of a file on; return how many bytes there were."""
        descriptor = open_file(self._path(key))
        try:
            return fill(target, descriptor, 0)
        finally:
            os.close(descriptor)

    def open(self, key: str) -> OpenedFile:
        """Open a file for reading."""
        return OpenedFile(self._path(key))

    def create(self, key: str, data: bytes) -> bool:
        """Write a file that does not exist; by a link, so that one of two writers succeeds."""
        path = self._path(key)
        temporary = self._write_temporary(path, data)
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        finally:
            os.unlink(temporary)
        _sync_folder(os.path.dirname(path))
        return True

    def replace(self, key: str, data: bytes) -> None:
        """Write a file, replacing what is there."""
        path = self._path(key)
        os.rename(self._write_temporary(path, data), path)
        _sync_folder(os.path.dirname(path))

    def _write_temporary(self, path: str, data: bytes) -> str:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        temporary = f"{path}.{secrets.token_hex(8)}.tmp"
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        return temporary

    def _path(self, key: str) -> str:
        if ".." in key.split("/"):
            raise PermissionError(f"{key}: a key may not lead out of the archive")
        return os.path.join(self._root, key) if key else self._root


def _version(status: os.stat_result) -> str:
    return f"{status.st_mtime_ns:x}-{status.st_ino:x}"


def _sync_folder(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
