"""A lock among processes of this tool: only one recovery, undo or purge of quarantine works on a log dir at a time.

`.lock` does not serve for this: a broker holds it, and quarantine may be purged while one runs. So the folder of the
log dir itself is locked with `flock`, which a broker neither takes nor sees; nothing is created for it. The lock ends
with the process.

If a file system has no such locks (some network ones), nothing is locked: the only protection then is that a purge
takes no run that was begun after it looked, and none at all if a journal shows that one is at work.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterable
from types import TracebackType

from recovery.errors import LogDirLockedError

_HELD_ERRNOS = frozenset({errno.EACCES, errno.EAGAIN})


class WorkLocks:
    """Holds the locks of several log dirs for the length of a `with` block.

    Args:
        log_dirs: absolute paths of folders.

    Raises:
        LogDirLockedError: on entering, if somebody holds one; nothing was changed.
    """

    def __init__(self, log_dirs: Iterable[str]) -> None:
        self._log_dirs = tuple(log_dirs)
        self._held: dict[tuple[int, int], int] = {}  # device and inode -> descriptor

    def __enter__(self) -> WorkLocks:
        try:
            for log_dir in self._log_dirs:
                self._lock(log_dir)
        except BaseException:
            self.release()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Those of the folders; another process that is given them holds the locks, too."""
        return tuple(self._held.values())

    def release(self) -> None:
        """Release all locks."""
        while self._held:
            os.close(self._held.popitem()[1])

    def _lock(self, log_dir: str) -> None:
        with contextlib.suppress(OSError):  # whoever reads the log dir reports that it cannot be opened
            descriptor = os.open(log_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            status = os.fstat(descriptor)
            if (status.st_dev, status.st_ino) in self._held:  # the same folder by another name
                os.close(descriptor)
                return
            self._held[status.st_dev, status.st_ino] = descriptor
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno in _HELD_ERRNOS:
                    raise LogDirLockedError(
                        f"{log_dir}: another process of this tool works on this log dir or its quarantine. Nothing was "
                        "changed. Remedy: wait for it, then start again"
                    ) from error
