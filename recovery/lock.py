"""The broker's own lock on each log dir.

`.lock` is locked with a POSIX record lock on the whole file, which is what Java's FileChannel.tryLock takes;
`flock` would keep no broker out. A record lock is gone as soon as *any* descriptor of the process on that
file is closed, so each file is opened once, here, and nowhere else.

Kafka: LogManager.lockLogDirs, FileLock.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterable
from types import TracebackType

from recovery.errors import LogDirLockedError, LogDirOfflineError
from segfmt.filenames import LOCK_FILE


class LogDirLocks:
    """Holds the locks of several log dirs from `with` to its end.

    Args:
        log_dirs: absolute paths; a separate metadata.log.dir among them.
        dry_run: create nothing and test an existing `.lock` only.

    Raises:
        LogDirLockedError: on entering, where somebody holds a lock; nothing stays locked then.
    """

    def __init__(self, log_dirs: Iterable[str], *, dry_run: bool = False) -> None:
        self._paths = [os.path.join(log_dir, LOCK_FILE) for log_dir in log_dirs]
        self._dry_run = dry_run
        self._held: list[tuple[str, int]] = []

    def __enter__(self) -> LogDirLocks:
        try:
            for path in self._paths:
                self._lock(path)
        except BaseException:
            self._release()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._release()

    def _lock(self, path: str) -> None:
        flags = os.O_RDWR | os.O_CLOEXEC | (0 if self._dry_run else os.O_CREAT)
        try:
            descriptor = os.open(path, flags, 0o644)
        except FileNotFoundError:
            if self._dry_run:
                return
            raise
        except OSError as error:
            raise LogDirOfflineError(os.path.dirname(path), error) from error
        self._held.append((path, descriptor))
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            self._held.pop()
            raise LogDirLockedError(
                f"{path}: locked by another process: a broker runs on this log dir, or another recovery does. "
                "Nothing was changed. Remedy: stop it, then start again"
            ) from error
        if not self._dry_run:
            _adopt_owner(descriptor, os.path.dirname(path))

    def _release(self) -> None:
        while self._held:
            path, descriptor = self._held.pop()
            if not self._dry_run:  # as a broker leaves it after a clean shutdown
                with contextlib.suppress(OSError):
                    os.unlink(path)
            os.close(descriptor)


def _adopt_owner(descriptor: int, log_dir: str) -> None:
    """Give the lock file to the dir's owner: a kill must not leave one behind that the broker cannot open."""
    owner = os.stat(log_dir)
    found = os.fstat(descriptor)
    if (found.st_uid, found.st_gid) != (owner.st_uid, owner.st_gid):
        with contextlib.suppress(PermissionError):
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
