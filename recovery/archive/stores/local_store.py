"""A folder as a store, local or mounted (NFS). Read with `pread`, so that a truncated file cannot end the process."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager, suppress
from typing import BinaryIO

from recovery.archive.stores.archived import StoredObject, temporary_name
from recovery.archive.stores.segment_table import ObjectTable
from recovery.archive.stores.store import Level, Source
from recovery.read.file_system import absolute, fill, is_there, naming, open_file, read_at
from recovery.read.opened_log import OpenedFile
from recovery.write.durable import make_folders, sync_all
from recovery.write.write_back import begin_write_back, held_file_systems

_PIECE_BYTES = 1 << 20
_BEGUN_BYTES = 32 << 20
"""Sent before the disk begins with them."""
_LINK_ERRNOS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV})
"""Of a file system without hard links, or without more of them."""


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
        """Return folders and files directly below *prefix*; links are followed, pipes and the like skipped.

        A file whose name is not UTF-8 has a name with escapes, and cannot be read by it: no broker writes one. What is
        below such a folder, and where a link leads nowhere or in a circle, is not looked at.
        """
        prefixes: list[str] = []
        rows: list[tuple[str, int, str]] = []
        unread: list[tuple[str, str]] = []
        with os.scandir(self._path(prefix)) as entries:
            for entry in entries:
                name = entry.name.encode("utf-8", "backslashreplace").decode("utf-8")
                try:
                    if not entry.is_dir():
                        if entry.is_file():
                            status = entry.stat()
                            rows.append((name, status.st_size, _version(status)))
                        elif entry.is_symlink():
                            unread.append((prefix + name, "a link to a file that is not there"))
                    elif name != entry.name:
                        unread.append((f"{prefix}{name}/", "the name of the folder is not UTF-8"))
                    elif entry.is_symlink() and self._is_circle(prefix, entry.path):
                        unread.append((f"{prefix}{name}/", "a link to a folder that it is in"))
                    else:
                        prefixes.append(f"{prefix}{name}/")
                except FileNotFoundError:
                    continue  # removed meanwhile
                except OSError as error:  # a link to itself; a link into a folder of another user
                    unread.append((prefix + name, str(error.strerror)))
        objects = ObjectTable.of_rows(prefix, sorted(rows))
        return Level(prefixes=sorted(prefixes), objects=objects, unread=sorted(unread))

    def _is_circle(self, prefix: str, link: str) -> bool:
        """Return whether *link*, directly below *prefix*, leads to a folder above it or above the root."""
        target = os.path.realpath(link)
        parts = prefix.split("/")[:-1]
        above = {os.path.realpath(self._path("/".join(parts[:depth]))) for depth in range(len(parts) + 1)}
        return target in above or os.path.commonpath([os.path.realpath(self._root), target]) == target

    def stat(self, key: str) -> StoredObject:
        """Return a file as it is now."""
        status = os.stat(self._path(key))
        return StoredObject(key=key, size_bytes=status.st_size, version=_version(status))

    def read(self, key: str, *, most_bytes: int) -> bytes:
        """Return the first bytes of a file."""
        with open(self._path(key), "rb", 0, opener=open_file) as file:
            return read_at(file.fileno(), 0, most_bytes)

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

    def replace(self, key: str, data: bytes | Iterable[bytes]) -> None:
        """Write a file, replacing what is there; it keeps owner and mode, a new one gets its folder's owner.

        A user who may not give files away becomes their owner.
        """
        path = self._path(key)
        _put(self._write_temporary(path, data), path, like=path)
        _sync_folder(os.path.dirname(path))

    def send(
        self, key: str, source: Source, size_bytes: int, *, part_key: Callable[[], str] = lambda: ""
    ) -> str:
        """Write a file piece by piece, with holes for zeros; `sync` brings it to disk, if it replaces none."""
        path = self._path(key)
        temporary, descriptor = self._open_temporary(path)
        try:
            with naming(path), open(descriptor, "wb") as file:
                sent_bytes = _write_pieces(file, source)
                if sent_bytes < size_bytes:
                    key = part_key()
                path = self._path(key)
                if key and is_there(path):
                    file.flush()
                    os.fsync(descriptor)  # a loss of power must not take both
            if key:
                _take_rights(temporary, path)
                os.rename(temporary, path)
            else:
                os.unlink(temporary)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise
        return key

    def keep(self, key: str, others: Iterable[str]) -> str:
        """Give a file a second name; where the file system has no hard links, a second file."""
        path = self._path(key)
        self._refuse_outside(path)
        for other in others:
            place = self._path(other)
            try:
                with naming(place):
                    os.link(path, place)
            except FileExistsError:
                if not os.path.samefile(path, place):
                    continue
            except OSError as error:
                if error.errno not in _LINK_ERRNOS:
                    raise
                self._copy_file(path, place)
            _sync_folder(os.path.dirname(place))
            return other
        raise OSError(errno.EEXIST, "all names for a copy of it are taken", path)

    def _copy_file(self, path: str, place: str) -> None:
        with open(path, "rb", 0, opener=open_file) as file:
            temporary = self._write_temporary(place, iter(lambda: file.read(_PIECE_BYTES), b""))
        _put(temporary, place, like=path)

    def sync(self, keys: Collection[str]) -> None:
        """Bring files, and the names of the folders above them, to disk."""
        paths = [self._path(key) for key in keys]
        folders: set[str] = set()
        for path in paths:
            while path != self._root and (path := os.path.dirname(path)) not in folders:
                folders.add(path)
        sync_all([*paths, *sorted(folders)])

    def held(self) -> AbstractContextManager[None]:
        """Hold the file system open, which reports an error in writing back to those who have it open."""
        return held_file_systems([self._root])

    def remove(self, key: str) -> None:
        """Remove a file."""
        path = self._path(key)
        self._refuse_outside(path)
        os.unlink(path)
        _sync_folder(os.path.dirname(path))

    def _write_temporary(self, path: str, data: bytes | Iterable[bytes]) -> str:
        temporary, descriptor = self._open_temporary(path)
        try:
            with naming(path), open(descriptor, "wb") as file:
                file.writelines([data] if isinstance(data, bytes) else data)
                file.flush()
                os.fsync(descriptor)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise
        return temporary

    def _open_temporary(self, path: str) -> tuple[str, int]:
        """Open a new file beside *path*, whose folder is made if needed; return its path and its descriptor."""
        self._refuse_outside(path)
        parent, name = os.path.split(path)
        make_folders(os.path.realpath(parent))
        temporary = os.path.join(parent, temporary_name(name, secrets.token_hex(8)))
        with naming(path):
            return temporary, os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)

    def _refuse_outside(self, path: str) -> None:
        """Raise PermissionError, with the link, if one leads from *path* out of the root: nothing is written there."""
        root, place, parent = os.path.realpath(self._root), self._root, os.path.dirname(path)
        if os.path.commonpath([root, os.path.realpath(parent)]) == root:
            return
        for name in os.path.relpath(parent, self._root).split("/"):
            place = os.path.join(place, name)
            if os.path.commonpath([root, os.path.realpath(place)]) != root:
                detail = f"the link leads out of {self._root}, where nothing is written (put a folder in its place)"
                raise PermissionError(errno.EACCES, detail, place)

    def _path(self, key: str) -> str:
        if key.startswith("/") or ".." in key.split("/") or "\0" in key:
            raise OSError(errno.EINVAL, f"the key leads out of {self._root}", key)
        return os.path.join(self._root, key) if key else self._root


def _write_pieces(file: BinaryIO, source: Source) -> int:
    """Write all of *source*, with a hole for each piece of zeros; return how many bytes it has."""
    size_bytes = begun_bytes = 0
    for piece in iter(lambda: source.read(_PIECE_BYTES), b""):
        if piece[0] or piece != bytes(len(piece)):
            file.write(piece)
        else:
            file.seek(len(piece), os.SEEK_CUR)
        size_bytes += len(piece)
        if size_bytes - begun_bytes >= _BEGUN_BYTES:
            file.flush()
            begin_write_back(file.fileno(), begun_bytes)
            begun_bytes = size_bytes
    file.truncate(size_bytes)
    begin_write_back(file.fileno(), begun_bytes)
    return size_bytes


def _version(status: os.stat_result) -> str:
    return f"{status.st_mtime_ns:x}-{status.st_ino:x}"


def _sync_folder(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _put(temporary: str, path: str, *, like: str) -> None:
    """Give a temporary file its name, and the rights of the file *like*; it goes if that fails."""
    try:
        _take_rights(temporary, like)
        os.rename(temporary, path)
    except OSError:
        os.unlink(temporary)
        raise


def _take_rights(temporary: str, path: str) -> None:
    """Give *temporary* the owner and mode of *path*; if that is new, the owner of its folder."""
    try:
        status = os.stat(path)
        os.chmod(temporary, stat.S_IMODE(status.st_mode))
    except FileNotFoundError:
        status = os.stat(os.path.dirname(path))
    with suppress(PermissionError):
        os.chown(temporary, status.st_uid, status.st_gid)
