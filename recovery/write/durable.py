"""The calls with which bytes are brought to disk: in this package only journals are written otherwise.

New files take owner, group and mode from what they replace, else from the folder they are in, so that a broker that
runs as another user can open them. Any failure raises `OSError` and leaves no half-written file.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType

from recovery.logdir.user import give
from recovery.plan.actions import TEMPORARY_SUFFIX
from recovery.read.file_system import (
    OddFileError,
    is_link,
    look_at,
    name_of,
    naming,
    open_file,
    open_link,
    raise_error,
    read_at,
    target_of,
)
from recovery.write.write_back import sync_file_system

_COPY_BYTES = 1 << 20
_LOOK_BACK_BYTES = 64 << 10
_RIGHTS = 0o777
"""The bits of a mode that are taken from another file: never set-user-ID, set-group-ID or the sticky bit."""


class opened(naming):  # noqa: N801 - as `naming`
    """Open the file or folder *path* for the block; an error in it that names no file names this one."""

    __slots__ = ("_descriptor",)

    def __init__(self, path: str, flags: int = os.O_RDONLY, mode: int = 0o600) -> None:
        super().__init__(path)
        self._descriptor = open_file(path, flags, mode, may_be_folder=True)

    def __enter__(self) -> int:  # type: ignore[override]  # more than the name of a file
        return self._descriptor

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            os.close(self._descriptor)
        except OSError as failure:
            super().__exit__(type(failure), failure, failure.__traceback__)
            raise
        finally:
            super().__exit__(kind, error, trace)


def write_fully(descriptor: int, data: bytes | memoryview) -> None:
    """Write all of *data*, in as many calls as that takes."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def write_new(
    path: str,
    data: bytes,
    *,
    size_bytes: int | None = None,
    like: str | None = None,
    mtime_ns: int | None = None,
) -> os.stat_result:
    """Write the new file *path*, not yet synced, and return its status.

    Args:
        size_bytes: the file's size if it is larger than *data*; the rest is zeros.
        like: the file whose owner, group and mode it takes, if that exists; else its folder's are taken.
        mtime_ns: its modification time afterwards; None for the present time.
    """
    with new_file(path, like) as descriptor:
        write_fully(descriptor, data)
        if size_bytes is not None and size_bytes > len(data):
            os.ftruncate(descriptor, size_bytes)
        if mtime_ns is not None:
            os.utime(descriptor, ns=(mtime_ns, mtime_ns))
        return os.fstat(descriptor)


def copy_new(
    source: str,
    path: str,
    *,
    position: int = 0,
    size_bytes: int | None = None,
    like: str | None = None,
    keeps_time: bool = False,
) -> None:
    """Write the file *path* as a copy of *source* from *position* on, not yet synced. Zeros stay holes.

    Args:
        size_bytes: how much; None for all that is there.
        like: see `write_new`.
        keeps_time: whether it gets the modification time of *source*.
    """
    with opened(source) as read, new_file(path, like) as descriptor:
        copy_part(read, descriptor, position=position, size_bytes=size_bytes)
        if keeps_time:
            _take_time(descriptor, read)


@contextmanager
def opened_itself(path: str) -> Iterator[int]:
    """Open a file for the block, or a link itself, so that it can be copied as it is."""
    if not is_link(path):
        with opened(path, os.O_RDONLY | os.O_NOFOLLOW) as descriptor:
            yield descriptor
        return
    descriptor = open_link(path)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def copy_opened(read: int, path: str) -> None:
    """Write *path* as a copy of the file *read*, with its owner, group, mode and modification time, not yet synced.

    A copy of a link is a link to the same path.
    """
    if stat.S_ISLNK(_stat_of(read).st_mode):
        _copy_link(read, path)
        return
    with new_file(path, read) as descriptor:
        copy_part(read, descriptor, position=0, size_bytes=None)
        _take_time(descriptor, read)


def _copy_link(read: int, path: str) -> None:
    model = _stat_of(read)
    remove_file(path)  # from an interrupted run
    os.symlink(target_of(read), path)
    os.utime(path, ns=(model.st_mtime_ns, model.st_mtime_ns), follow_symlinks=False)
    with contextlib.suppress(PermissionError):  # nobody's rights depend on whose a link is
        os.chown(path, model.st_uid, model.st_gid, follow_symlinks=False)


def _take_time(descriptor: int, read: int) -> None:
    mtime_ns = _stat_of(read).st_mtime_ns
    os.utime(descriptor, ns=(mtime_ns, mtime_ns))


def _stat_of(read: int) -> os.stat_result:
    """Return the status of the open file *read*; an error names that file, and not the copy that is made of it."""
    with naming(name_of(read)):
        return os.fstat(read)


def link_opened(read: int, path: str) -> bool:
    """Make *path* a name of the file that is open as *read*; return whether the file system allows that."""
    with contextlib.suppress(OSError), opened(os.path.dirname(path)) as folder:
        # By descriptor, which nobody can redirect to another file meanwhile. With a folder's descriptor Python calls
        # linkat(2), which follows this link.
        os.link(f"/proc/self/fd/{read}", os.path.basename(path), src_dir_fd=folder, dst_dir_fd=folder)
        return True
    return False


def copy_part(read: int, descriptor: int, *, position: int, size_bytes: int | None) -> None:
    """Copy a part of the file *read* to where *descriptor* stands, at the end of its file. Zeros stay holes."""
    source = name_of(read)
    target = os.lseek(descriptor, 0, os.SEEK_CUR)
    end = _stat_of(read).st_size if size_bytes is None else position + size_bytes
    while position < end:
        start = _next_data(read, position, end)
        target += start - position
        with naming(source):
            chunk = os.pread(read, min(_next_hole(read, start, end) - start, _COPY_BYTES), start)
        if start < end and not chunk:
            raise OSError(errno.EIO, "the file became shorter while it was copied", source)
        if any(chunk):
            os.lseek(descriptor, target, os.SEEK_SET)
            write_fully(descriptor, chunk)  # the caller, who opened it, names it in errors
        position, target = start + len(chunk), target + len(chunk)
    os.ftruncate(descriptor, target)


def _next_data(descriptor: int, position: int, end: int) -> int:
    """Return where the next bytes outside a hole are, at most *end*: a preallocated file is mostly a hole."""
    try:
        return min(os.lseek(descriptor, position, os.SEEK_DATA), end)
    except OSError as error:
        if error.errno != errno.ENXIO:
            return position  # the file system does not say
        return end if end <= _stat_of(descriptor).st_size else position


def _next_hole(descriptor: int, position: int, end: int) -> int:
    """Return where the bytes at *position*, outside a hole, end: at most *end*."""
    if position >= end:
        return end
    try:
        hole = os.lseek(descriptor, position, os.SEEK_HOLE)
    except OSError:
        return end  # the file system does not say
    return min(hole, end) if hole > position else end


def truncate(path: str, size_bytes: int, *, found_bytes: int | None = None) -> None:
    """Cut the file *path* to *size_bytes*, on disk when this returns. A shorter file is left as it is.

    Args:
        found_bytes: what is cut of so many bytes is saved; None if they are not known.

    Raises:
        OSError: it cannot be cut. EBUSY: it has more bytes than were found, of which nothing is saved.
    """
    with opened(path, os.O_WRONLY | os.O_NOFOLLOW) as descriptor:
        present_bytes = os.fstat(descriptor).st_size
        if found_bytes is not None and present_bytes > found_bytes:
            raise OSError(
                errno.EBUSY,
                f"grown from {found_bytes:,} to {present_bytes:,} bytes since it was saved, so it was not cut. "
                "Remedy: stop what writes to it without a lock, and start again",
                path,
            )
        if present_bytes > size_bytes:
            os.ftruncate(descriptor, size_bytes)
        os.fsync(descriptor)


def append_part(read: int | None, path: str, position: int, end: int, *, mtime_ns: int) -> None:
    """Put the bytes of the file *read* into *path* from *position* to *end*, on disk when this returns.

    Args:
        read: None for zeros.
        end: where the file then ends.
        mtime_ns: its modification time afterwards.
    """
    if read is not None and _stat_of(read).st_size < end - position:
        raise OSError(errno.EIO, "shorter than what is to be put back", name_of(read))
    with opened(path, os.O_WRONLY | os.O_NOFOLLOW) as descriptor:
        os.ftruncate(descriptor, position)
        os.lseek(descriptor, position, os.SEEK_SET)
        if read is not None:
            copy_part(read, descriptor, position=0, size_bytes=end - position)
        os.ftruncate(descriptor, end)
        os.utime(descriptor, ns=(mtime_ns, mtime_ns))
        os.fsync(descriptor)


def rename_anywhere(old: str, new: str) -> None:
    """Give a file or folder another name, perhaps in another folder, on disk when this returns.

    A regular file or a link can go to another file system, too: by a copy, whole before the old one is
    removed.
    """
    try:
        os.rename(old, new)
    except OSError as error:
        kind = os.lstat(old).st_mode
        if error.errno != errno.EXDEV or not (stat.S_ISREG(kind) or stat.S_ISLNK(kind)):
            raise
        with opened_itself(old) as read:
            copy_opened(read, new + TEMPORARY_SUFFIX)
        if stat.S_ISREG(kind):
            sync(new + TEMPORARY_SUFFIX)
        os.rename(new + TEMPORARY_SUFFIX, new)
        sync(os.path.dirname(new))
        os.unlink(old)
    for folder in {os.path.dirname(old), os.path.dirname(new)}:
        sync(folder)


def end_of_lines(descriptor: int, size_bytes: int) -> int:
    """Return where the last whole line ends in the first *size_bytes* of an open file."""
    end = size_bytes
    while end > 0:
        begin = end - min(end, _LOOK_BACK_BYTES)
        if (found := read_at(descriptor, begin, end - begin).rfind(b"\n")) >= 0:
            return begin + found + 1
        end = begin
    return 0


def remove_empty_folder(folder: str) -> None:
    """Remove *folder* if it is there and empty, durably."""
    with contextlib.suppress(OSError):
        os.rmdir(folder)
        sync(os.path.dirname(folder))


def make_folder_like(path: str, log_dir: str) -> None:
    """Make the folder *path*, with owner, group and mode of *log_dir*: what it holds is just as private.

    Raises:
        OSError: it cannot be made, or already exists.
    """
    model = os.stat(log_dir)
    os.mkdir(path, 0o700)
    with opened(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW) as descriptor:
        os.fchmod(descriptor, stat.S_IMODE(model.st_mode) & _RIGHTS | 0o700)
        give(descriptor, model)


def make_folders(path: str) -> None:
    """Make the folder *path*, and those above it, unless it is there.

    Differs: `os.makedirs` says "File exists" of a folder that it may not look at; this gives the look's own error.

    Raises:
        OSError: it cannot be made or looked at, or something else has its name.
    """
    try:
        os.makedirs(path, exist_ok=True)
    except FileExistsError:
        if not stat.S_ISDIR(os.stat(path).st_mode):
            raise


def remove_file(path: str) -> None:
    """Unlink *path* if it is there.

    Raises:
        OddFileError: it is a folder.
        OSError: it cannot be unlinked.
    """
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except IsADirectoryError as error:
        raise OddFileError(errno.EISDIR, "a folder, where a file is needed", path) from error


def sync(path: str) -> None:
    """Bring the bytes of a file, or the names in a folder, to disk."""
    with opened(path) as descriptor:
        os.fsync(descriptor)


def sync_all(paths: Iterable[str]) -> None:
    """Bring the bytes of files and the names in folders to disk, with one wait for each file system if possible."""
    is_synced: dict[int, bool] = {}  # by device; False: it cannot be synced as a whole
    for path in paths:
        device = os.stat(path).st_dev
        if device not in is_synced:
            is_synced[device] = sync_file_system(path)
        if not is_synced[device]:
            sync(path)


def sync_below(folder: str) -> None:
    """Bring everything below *folder* to disk."""
    if sync_file_system(folder):
        return
    for below, _, names in os.walk(folder, onerror=raise_error):
        for name in names:
            if stat.S_ISREG(os.lstat(os.path.join(below, name)).st_mode):
                sync(os.path.join(below, name))
        sync(below)


@contextmanager
def new_file(path: str, like: str | int | None = None) -> Iterator[int]:
    """Open the new file *path* for the block, not yet synced; an error in the block removes it.

    Args:
        like: see `write_new`, or a descriptor.
    """
    try:
        with _opened_new(path) as descriptor:
            # First of all, so that a kill leaves no file that the broker's user may not remove.
            _adopt(descriptor, path, like)
            yield descriptor
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(path)
        raise


def _opened_new(path: str) -> opened:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        return opened(path, flags)
    except FileExistsError:  # from an interrupted run, or somebody else's, who may have it open
        remove_file(path)
        return opened(path, flags)


def _adopt(descriptor: int, path: str, like: str | int | None) -> None:
    """Take owner, group and mode from the file *like*, a path or a descriptor, else from the folder of *path*."""
    model = _stat_of(like) if isinstance(like, int) else None if like is None else look_at(like)
    if model is not None:
        mode = stat.S_IMODE(model.st_mode) & _RIGHTS
    else:
        model = os.stat(os.path.dirname(path))
        mode = stat.S_IMODE(model.st_mode) & 0o666
    os.fchmod(descriptor, mode)
    status = os.fstat(descriptor)
    if (status.st_uid, status.st_gid) != (model.st_uid, model.st_gid):
        try:
            os.fchown(descriptor, model.st_uid, model.st_gid)
        except PermissionError:
            # Only root may give a file to a group that the user is not in. A broker's own new files are no different.
            if status.st_uid != model.st_uid:
                raise
