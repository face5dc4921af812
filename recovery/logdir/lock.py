"""The broker's own lock on each log dir.

`.lock` is locked as a whole by a record lock, which is what Java's FileChannel.tryLock takes; `flock` would not keep a
broker out. If kernel and file system support it, it is a lock of the open file (`F_OFD_SETLK`): it keeps a broker out
as well, and lasts until the last process that was given the descriptor is gone, so that worker processes hold it, too.
Otherwise it is Java's own kind, of this process alone (POSIX), which is lost as soon as *any* descriptor of the
process on that file is closed. So each file is opened once, here, and nowhere else.

Brokers take this lock, too; the lock that only this tool takes is in `recovery/logdir/work_lock.py`, and is taken here
as well.

Existing files are locked before any is created: if a broker runs on one of several log dirs, none of them is changed.

Kafka: LogManager.lockLogDirs, FileLock.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
from collections.abc import Collection, Iterable
from types import TracebackType

from recovery.errors import LogDirLockedError, LogDirOfflineError
from recovery.logdir.listing import mount_problems
from recovery.logdir.user import access_remedy, give_to_owner_of
from recovery.logdir.work_lock import WorkLocks
from recovery.problem import Problem
from recovery.read.file_system import look_at, naming, open_file
from segfmt.filenames import LOCK_FILE

_FLOCK = struct.Struct("hhqqi4x")
"""glibc's struct flock on 64-bit Linux: type, whence, start, length, pid."""
_OPEN_FILE = -1
"""Instead of a pid: the lock of an open file (F_OFD_SETLK)."""
_ATTEMPTS = 10
_HELD_ERRNOS = frozenset({errno.EACCES, errno.EAGAIN})
_UNKNOWN_ERRNOS = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})


class LogDirLocks:
    """Holds the locks of several log dirs for the length of a `with` block.

    Args:
        log_dirs: absolute paths, including a separate metadata.log.dir.
        dry_run: create nothing and only test existing `.lock` files.

    Attributes:
        offline: after entering, the dirs whose `.lock` cannot be opened or locked because of an I/O error; a broker
            takes such a dir offline and continues with the others.

    Raises:
        LogDirLockedError: on entering, if somebody holds a lock; nothing was changed then.
    """

    def __init__(self, log_dirs: Iterable[str], *, dry_run: bool = False) -> None:
        self._log_dirs = tuple(log_dirs)
        self._dry_run = dry_run
        self._held: dict[str, int] = {}
        self._created: set[str] = set()
        self._are_of_files = True
        self._work = WorkLocks(())
        self.offline: dict[str, LogDirOfflineError] = {}

    def __enter__(self) -> LogDirLocks:
        try:
            for log_dir in self._log_dirs:
                self._lock(log_dir, create=False)
            if not self._dry_run:
                for log_dir in self._log_dirs:
                    if log_dir not in self._held and log_dir not in self.offline:
                        self._lock(log_dir, create=True)
                for log_dir, descriptor in [*self._held.items()]:
                    self._give_to_owner(log_dir, descriptor)
                self._work = WorkLocks(self._held).__enter__()
        except BaseException:
            self._release(self._created)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._dry_run:
            self._release(())
        elif kind is not None:  # nothing was done, so a lock file that a kill has left stays
            self._release(self._created)
        else:
            self._release(self._held)  # as a broker leaves it after a clean shutdown

    @property
    def inheritable(self) -> tuple[int, ...] | None:
        """The descriptors with which another process holds the locks, too; None if locks cannot be shared."""
        return (*self._held.values(), *self._work.descriptors) if self._are_of_files else None

    def _lock(self, log_dir: str, *, create: bool) -> None:
        """Lock a log dir; try again if the file lost its name meanwhile: then its lock excludes nobody."""
        for _ in range(_ATTEMPTS):
            if self._try_to_lock(log_dir, create=create):
                return
        raise LogDirLockedError(
            f"{os.path.join(log_dir, LOCK_FILE)}: another process keeps creating and removing it. Nothing was "
            "changed. Remedy: find that process and stop it"
        )

    def _try_to_lock(self, log_dir: str, *, create: bool) -> bool:
        """Lock a log dir, or note that it is offline; return False if another file has the lock's name now."""
        path = os.path.join(log_dir, LOCK_FILE)
        flags = os.O_RDONLY if self._dry_run else os.O_RDWR
        try:
            # A broker locks what a link leads to. Nothing is created through one.
            descriptor = open_file(path, flags | (os.O_CREAT | os.O_NOFOLLOW if create else 0), 0o644)
        except OSError as error:
            if not (isinstance(error, FileNotFoundError) and not create):
                self.offline[log_dir] = LogDirOfflineError(
                    log_dir, error, problems=_lock_problems(log_dir, error)
                )
            return True
        try:
            # A dry run needs no write permission: a shared lock is refused, too, while a broker holds its own.
            self._are_of_files &= _lock_file(descriptor, fcntl.F_RDLCK if self._dry_run else fcntl.F_WRLCK)
        except OSError as error:
            os.close(descriptor)
            if error.errno not in _HELD_ERRNOS:
                self.offline[log_dir] = LogDirOfflineError(
                    log_dir, OSError(error.errno, error.strerror, path)
                )
                return True
            raise LogDirLockedError(
                f"{path}: locked by another process: a broker runs on this log dir, or another recovery "
                "does. Nothing was changed. Remedy: stop it, then start this again"
            ) from error
        try:
            has_name = _has_name(descriptor, path)
        except OSError as error:
            os.close(descriptor)
            self.offline[log_dir] = LogDirOfflineError(log_dir, error)
            return True
        if not has_name:
            os.close(descriptor)
            return False
        self._held[log_dir] = descriptor
        if create:
            self._created.add(log_dir)
        return True

    def _give_to_owner(self, log_dir: str, descriptor: int) -> None:
        """Give the lock file to the dir's owner: a kill must not leave one that the broker cannot open."""
        try:
            give_to_owner_of(log_dir, os.path.join(log_dir, LOCK_FILE), descriptor)
        except OSError as error:
            self.offline[log_dir] = LogDirOfflineError(log_dir, error)
            self._release_one(log_dir, is_removed=log_dir in self._created)

    def _release(self, removed: Collection[str]) -> None:
        """Unlink the lock files of the dirs *removed*, then unlock all."""
        self._work.release()
        for log_dir in [*self._held]:
            self._release_one(log_dir, is_removed=log_dir in removed)

    def _release_one(self, log_dir: str, *, is_removed: bool) -> None:
        if is_removed:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(log_dir, LOCK_FILE))
        os.close(self._held.pop(log_dir))


def _has_name(descriptor: int, path: str) -> bool:
    """Return whether *path* is the name of the open file: whoever releases a log dir unlinks its lock.

    Raises:
        OSError: it cannot be determined.
    """
    named = look_at(path)
    with naming(path):
        return named is not None and os.path.samestat(named, os.fstat(descriptor))


def _lock_problems(log_dir: str, error: OSError) -> Iterable[Problem]:
    """Return why the lock of *log_dir* cannot be opened, if more is known than the *error*."""
    if error.errno == errno.EROFS:
        return mount_problems(log_dir)
    if isinstance(error, PermissionError):
        detail = f"the user that runs this may not lock it: {LOCK_FILE}: {error.strerror}"
        return (
            Problem(
                file=log_dir,
                rule="access",
                detail=detail,
                remedy=access_remedy(os.path.join(log_dir, LOCK_FILE)),
            ),
        )
    return ()


def _lock_file(descriptor: int, kind: int) -> bool:
    """Lock a whole file; return whether the lock belongs to the open file, and not to this process alone.

    Raises:
        OSError: EACCES or EAGAIN if somebody holds a lock that excludes it.
    """
    request = _FLOCK.pack(kind, os.SEEK_SET, 0, 0, 0)
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, request)
    except OSError as error:
        if error.errno not in _UNKNOWN_ERRNOS:
            raise
        fcntl.fcntl(descriptor, fcntl.F_SETLK, request)
        return False
    return True


def is_locked(log_dir: str) -> bool:
    """Return whether another process holds the lock of *log_dir*: a broker runs on it, or a recovery does.

    Nothing is locked and nothing is created, so that a broker can start at any time.

    Raises:
        OSError: `.lock` is there and cannot be opened or queried.
    """
    return _holder(log_dir) is not None


def is_locked_by_broker(log_dir: str) -> bool:
    """Return whether a broker holds the lock of *log_dir*. Its lock is Java's; this tool has another kind where it can.

    Raises:
        OSError: as of `is_locked`.
    """
    return _holder(log_dir) not in (None, _OPEN_FILE)


def _holder(log_dir: str) -> int | None:
    """Return the pid of the process that holds the lock of *log_dir*, None if nobody does.

    0: a process in another namespace of pids; -1: the lock is that of an open file.
    """
    path = os.path.join(log_dir, LOCK_FILE)
    try:
        descriptor = open_file(path)
    except FileNotFoundError:
        return None
    try:
        request = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        with naming(path):
            kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, request))
        return None if kind == fcntl.F_UNLCK else int(pid)
    finally:
        os.close(descriptor)
