"""Questions to file systems: what is there, whether it is local (only then may a segment be mapped), how to open it.

`os.path.exists` and the like answer "no" if they cannot look. Whatever depends on the answer uses the functions here,
which raise instead.

In a folder that belongs to somebody else, a file name may stand for anything. All such names are opened by
`open_file`, which never blocks: opening a pipe would wait until somebody opens its other end.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
import stat
from collections.abc import Iterator
from types import TracebackType

_NETWORK_MAGICS = frozenset(
    {
        0x6969,  # NFS
        0x517B,  # SMB
        0xFE534D42,  # SMB2
        0xFF534D42,  # CIFS
        0x65735546,  # FUSE, which may be anything
        0x00C36400,  # Ceph
        0x5346414F,  # AFS
        0x01021997,  # 9P
        0x0BD00BD0,  # Lustre
        0x47504653,  # GPFS
        0x19830326,  # BeeGFS
        0x7461636F,  # OCFS2
    }
)
"""Types by statfs(2). On these, another machine may change or remove a file that is mapped here."""

_UNSTABLE_INODE_MAGICS = frozenset(
    {
        0x794C7630,  # overlayfs: another inode once a file is copied up
        0x65735546,  # FUSE: whatever its program says, perhaps something else at each call
        0x517B,  # SMB
        0xFE534D42,  # SMB2
        0xFF534D42,  # CIFS
        0x01021997,  # 9P
        0x786F4256,  # vboxsf
    }
)
"""Types by statfs(2) where a file may have another inode after a rename, a link or a write, or in the next process."""

_FIRST_READ_BYTES, _READ_BYTES = 16 << 10, 1 << 20
_STATFS_BYTES = 120  # struct statfs of 64-bit Linux; the type is its first word


def is_there(path: str) -> bool:
    """Return whether something has the name *path*, including a dangling link.

    Raises:
        OSError: it cannot be determined.
    """
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def free_name(target: str) -> str:
    """Return *target*, or a similar name that nothing has: what an interrupted run has saved is kept."""
    name, count = target, 0
    while is_there(name):
        count += 1
        name = f"{target}~{count}"
    return name


def look_at(path: str) -> os.stat_result | None:
    """Return what *path* leads to, None if that is nothing: it is missing, a dangling link or one in a loop.

    Raises:
        OSError: it cannot be determined.
    """
    try:
        return os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            return None
        raise


def is_file(path: str) -> bool:
    """Return whether *path* leads to a regular file. Raises OSError if it cannot be determined."""
    status = look_at(path)
    return status is not None and stat.S_ISREG(status.st_mode)


def is_folder(path: str) -> bool:
    """Return whether *path* leads to a folder. Raises OSError if it cannot be determined."""
    status = look_at(path)
    return status is not None and stat.S_ISDIR(status.st_mode)


def is_link(path: str) -> bool:
    """Return whether *path* itself is a link. Raises OSError if it cannot be determined."""
    try:
        return stat.S_ISLNK(os.lstat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def absolute(path: str | os.PathLike[str]) -> str:
    """Return *path* as an absolute path that means the same to the kernel.

    `os.path.abspath` removes `..` together with the name before it, but after a link `..` means the parent of the
    link's target. Java leaves both to the kernel. Links after the last `..` stay: a log dir keeps its given name.
    """
    parts = os.fspath(path).split(os.sep)
    if os.pardir not in parts:
        return os.path.abspath(path)
    rest = len(parts) - parts[::-1].index(os.pardir)
    return os.path.normpath(os.path.join(os.path.realpath(os.sep.join(parts[:rest])), *parts[rest:]))


def refuse_link(path: str) -> None:
    """Raise OSError if *path* itself is a link, or if that cannot be determined."""
    if is_link(path):
        raise OSError(errno.ELOOP, "a link, which is not followed here", path)


def nearest(path: str) -> str:
    """Return *path*, or the nearest existing folder above it. Raises OSError if it cannot be determined."""
    while look_at(path) is None:
        path = os.path.dirname(path)
    return path


def raise_error(error: OSError) -> None:
    """Raise *error*, for `os.walk`, which otherwise skips what it cannot list."""
    raise error


class naming:  # noqa: N801 - a class, not a generator, because it surrounds nearly every call
    """Put *path* into errors of the block that name no file: those of calls on a descriptor."""

    __slots__ = ("_path",)

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, OSError) and (
            error.filename is None or isinstance(error.filename, int)  # a descriptor's number
        ):
            error.filename = self._path


class OddFileError(OSError):
    """Something that is not a file has the name of one, and only somebody else can have put it there."""

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}. Remedy: move it away"


def open_file(
    path: str,
    flags: int = os.O_RDONLY,
    mode: int = 0o600,
    *,
    at: int | None = None,
    may_be_folder: bool = False,
) -> int:
    """Open a regular file without blocking and return its descriptor. It serves as `opener` of Python's `open`.

    Args:
        flags: with O_NOFOLLOW the name must not be that of a link.
        at: descriptor of the folder that *path* starts from.

    Raises:
        OddFileError: EINVAL: something else has the name; ELOOP: a link has it, and must not.
        OSError: it cannot be opened.
    """
    flags |= os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    try:
        descriptor = os.open(path, flags, mode) if at is None else os.open(path, flags, mode, dir_fd=at)
    except OSError as error:
        if error.errno == errno.ELOOP and flags & os.O_NOFOLLOW:
            raise OddFileError(errno.ELOOP, "a link, which is not followed here", path) from error
        if error.errno in (errno.ENXIO, errno.EISDIR):
            # A pipe without a reader, a socket, a missing device; or a folder that was to be written.
            raise _not_a_file(path) from error
        raise
    is_fit = False
    try:
        with naming(path):
            kind = os.fstat(descriptor).st_mode
        is_fit = stat.S_ISREG(kind) or (may_be_folder and stat.S_ISDIR(kind))
    finally:
        if not is_fit:
            os.close(descriptor)
    if not is_fit:
        raise _not_a_file(path)
    return descriptor


def open_link(path: str, *, at: int | None = None) -> int:
    """Open a link itself, wherever it leads, and return its descriptor, which has nothing to read.

    Args:
        at: descriptor of the folder that *path* starts from.

    Raises:
        OddFileError: EINVAL: something else has the name.
        OSError: it cannot be opened.
    """
    descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
    if not stat.S_ISLNK(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OddFileError(errno.EINVAL, "not a link", path)
    return descriptor


def target_of(descriptor: int) -> str:
    """Return where the link that is open as *descriptor* leads."""
    return os.readlink("", dir_fd=descriptor)


def open_unseen(path: str, flags: int = os.O_RDONLY) -> int:
    """As `open_file` for reading, without a new time of access, if this user may ask for that: its owner, or root."""
    try:
        return open_file(path, flags | os.O_NOATIME)
    except PermissionError:
        return open_file(path, flags)


def _not_a_file(path: str) -> OSError:
    return OddFileError(errno.EINVAL, "not a regular file", path)


def mount_of(path: str) -> int:
    """Return the number of the mount that *path* is in, or that begins there: no hard link or rename leaves it.

    A file system that is mounted twice, or in part (a bind mount), has a number for each mount, and one `st_dev`.

    Raises:
        OSError: *path* cannot be looked at.
    """
    descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        lines = read_whole(f"/proc/self/fdinfo/{descriptor}").split(b"\n")
        return next(int(line.split()[1]) for line in lines if line.startswith(b"mnt_id:"))
    except (OSError, StopIteration):
        return os.fstat(descriptor).st_dev  # the best there is without /proc
    finally:
        os.close(descriptor)


def name_of(descriptor: int) -> str:
    """Return the path of an open file as far as it is known, for error messages."""
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return f"descriptor {descriptor}"


@contextlib.contextmanager
def opened_folder(path: str, *, at: int | None = None) -> Iterator[int]:
    """Open a folder; below another one, *at*, no link is followed. Errors of its listing name the folder."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (0 if at is None else os.O_NOFOLLOW)
    name = path if at is None else os.path.join(name_of(at), path)
    try:
        descriptor = os.open(path, flags, dir_fd=at)
    except OSError as error:
        error.filename = name
        raise
    try:
        yield descriptor
    except OSError as error:
        if error.filename == descriptor:
            error.filename = name
        raise
    finally:
        os.close(descriptor)


@functools.cache
def c_library() -> ctypes.CDLL:
    """Return the C library, for calls that Python's `os` does not have; errno is kept."""
    return ctypes.CDLL(None, use_errno=True)


def read_whole(path: str) -> bytes:
    """Return all bytes of a small file, in as few calls as possible."""
    with naming(path):
        descriptor = open_unseen(path)
        try:
            chunks = [os.read(descriptor, _FIRST_READ_BYTES)]
            while chunks[-1]:
                chunks.append(os.read(descriptor, _READ_BYTES))
        finally:
            os.close(descriptor)
    return chunks[0] if len(chunks) <= 2 else b"".join(chunks)


def read_small(path: str, most_bytes: int = 64 << 20, *, flags: int = os.O_RDONLY) -> bytes:
    """Return all bytes of a file that must be small, whoever has written it.

    Args:
        most_bytes: no such file is larger. A broker's checkpoint of a million partitions is smaller.

    Raises:
        OSError: it cannot be read. EFBIG: it is larger.
    """
    with naming(path), open(open_unseen(path, flags), "rb") as file:
        check_size(file.fileno(), most_bytes, path)
        return file.read()


def check_size(descriptor: int, most_bytes: int, path: str) -> int:
    """Return the size of the open file *path*, whoever has written it.

    Raises:
        OSError: EFBIG: it is more than *most_bytes*, which no such file has.
    """
    size_bytes = os.fstat(descriptor).st_size
    if size_bytes > most_bytes:
        raise OSError(
            errno.EFBIG,
            f"{size_bytes} bytes, but no such file has more than {most_bytes}. Remedy: move it away",
            path,
        )
    return size_bytes


def read_at(descriptor: int, position: int, size_bytes: int) -> bytes:
    """Return *size_bytes* of a file from *position* on, fewer only if it ends before: one read(2) may return less."""
    pieces = []
    while size_bytes > 0 and (piece := os.pread(descriptor, size_bytes, position)):
        pieces.append(piece)
        size_bytes, position = size_bytes - len(piece), position + len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def fill(target: memoryview, descriptor: int, position: int) -> int:
    """Fill *target* with the bytes of a file from *position* on; return how many there were: fewer at its end."""
    done = 0
    while done < len(target) and (count := os.preadv(descriptor, [target[done:]], position + done)):
        done += count
    return done


def is_local(path: str) -> bool:
    """Return whether *path* lies on a file system of this machine.

    Raises:
        OSError: statfs(2) failed.
    """
    return _file_system_magic(path) not in _NETWORK_MAGICS


def is_read_only(path: str) -> bool:
    """Return whether nobody, not even root, can write at *path*.

    Raises:
        OSError: statvfs(3) failed.
    """
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)


def is_same(path: str, other: str) -> bool:
    """Return whether both paths lead to the same file or folder; False if one of them cannot be looked at."""
    try:
        return os.path.samefile(path, other)
    except OSError:
        return False


def keeps_inodes(path: str) -> bool:
    """Return whether files below *path* keep their inodes, whatever is done to them.

    Raises:
        OSError: statfs(2) failed.
    """
    return _file_system_magic(path) not in _UNSTABLE_INODE_MAGICS


def _file_system_magic(path: str) -> int:
    """Return the type of the file system that *path* lies on, by statfs(2)."""
    buffer = (ctypes.c_ulong * (_STATFS_BYTES // 8 + 1))()
    if c_library().statfs(os.fsencode(path), ctypes.byref(buffer)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return int(buffer[0]) & 0xFFFFFFFF
