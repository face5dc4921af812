"""The only writer. It carries out plans, one durable step after another.

A file that is written is written beside its place, synced, renamed over it, and its folder synced. New files
take owner, group and mode from what they replace, else from the folder they lie in, so that a broker that
runs as somebody else can open them. Whatever fails raises `OSError` and leaves what is there as it was.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Iterator

from recovery.plan import (
    TEMPORARY_SUFFIX,
    Action,
    CopyPart,
    LinkFile,
    PartitionPlan,
    RemoveFile,
    RenameFile,
    SaveFile,
    TruncateFile,
    WriteFile,
)
from recovery.quarantine import Quarantine

_COPY_BYTES = 1 << 20


def apply_partition(folder: str, plan: PartitionPlan, quarantine: Quarantine) -> list[str]:
    """Carry out *plan* in *folder*: quarantine first, then the actions in order.

    Returns:
        The paths that hold what was put into quarantine.
    """
    saved = []
    for save in plan.saves:
        path = os.path.join(folder, save.name)
        if isinstance(save, SaveFile):
            saved.append(
                quarantine.save_file(path, folder=plan.folder, reason=save.reason, may_link=not save.is_cut)
            )
        else:
            saved.append(quarantine.save_tail(path, save.position, folder=plan.folder, reason=save.reason))
    if plan.saves:
        quarantine.sync()
    for action in plan.actions:
        _apply_action(folder, action)
    if plan.actions:
        sync_folder(folder)
    return saved


def sync_files(paths: Iterable[str]) -> None:
    """Bring the bytes of existing files to disk.

    A clean marker must not vouch for pages that only the cache holds.

    Kafka: UnifiedLog.flush at a clean shutdown.
    """
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_file(path: str, data: bytes, *, size_bytes: int | None = None) -> None:
    """Write *path* in whole, durably and at once: whoever looks sees the old file or the new one.

    Args:
        size_bytes: the file's size where it is larger than *data*; the rest is zeros.
    """
    with _replacement(path) as descriptor:
        _write_fully(descriptor, data)
        if size_bytes is not None and size_bytes > len(data):
            os.ftruncate(descriptor, size_bytes)


def remove_file(path: str) -> None:
    """Unlink *path* if it is there."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def sync_folder(folder: str) -> None:
    """Bring the names in *folder* to disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _apply_action(folder: str, action: Action) -> None:
    match action:
        case WriteFile(name=name, data=data, size_bytes=size_bytes):
            write_file(os.path.join(folder, name), data, size_bytes=size_bytes)
        case RemoveFile(name=name):
            remove_file(os.path.join(folder, name))
        case RenameFile(old=old, new=new):
            os.rename(os.path.join(folder, old), os.path.join(folder, new))
            sync_folder(folder)  # a later cut must not reach the disk before the segments behind it are gone
        case LinkFile(old=old, new=new):
            os.link(os.path.join(folder, old), os.path.join(folder, new))
            sync_folder(folder)
        case CopyPart(source=source, name=name, position=position, size_bytes=size_bytes):
            _copy_part(os.path.join(folder, source), os.path.join(folder, name), position, size_bytes)
        case TruncateFile(name=name, size_bytes=size_bytes):
            _truncate(os.path.join(folder, name), size_bytes)


def _copy_part(source: str, path: str, position: int, size_bytes: int) -> None:
    with open(source, "rb", buffering=0) as opened, _replacement(path) as descriptor:
        opened.seek(position)
        while size_bytes > 0:
            chunk = opened.read(min(size_bytes, _COPY_BYTES))
            if not chunk:
                raise OSError(errno.EIO, "the file became shorter while it was copied", source)
            _write_fully(descriptor, chunk)
            size_bytes -= len(chunk)


@contextlib.contextmanager
def _replacement(path: str) -> Iterator[int]:
    """Open a new file that takes the place of *path* when the block ends well, and is gone when it does not."""
    temporary = path + TEMPORARY_SUFFIX
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        try:
            _adopt(
                descriptor, path
            )  # first, so that a kill leaves no file that the broker's user may not remove
            yield descriptor
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _write_fully(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _truncate(path: str, size_bytes: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.ftruncate(descriptor, size_bytes)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _adopt(descriptor: int, path: str) -> None:
    """Take owner, group and mode from the file at *path*, else from its folder."""
    try:
        model = os.stat(path)
        mode = stat.S_IMODE(model.st_mode)
    except FileNotFoundError:
        model = os.stat(os.path.dirname(path))
        mode = stat.S_IMODE(model.st_mode) & 0o666
    os.fchmod(descriptor, mode)
    found = os.fstat(descriptor)
    if (found.st_uid, found.st_gid) != (model.st_uid, model.st_gid):
        try:
            os.fchown(descriptor, model.st_uid, model.st_gid)
        except PermissionError:
            # Only root may give a file to a group that it is not in. A broker's own new files are no different.
            if found.st_uid != model.st_uid:
                raise
