"""Waiting for file systems: what was written is on disk, or its writer gets the error that says it is not.

The kernel reports an error in writing back once to each descriptor that was open when it happened. A descriptor that
is opened for the wait gets no error that was reported to somebody else's sync before. So each file system that a run
writes to is held open from before its first write, and once it has failed, everything that waits for it fails: nobody
knows whose bytes were lost.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from threading import Condition, Lock

from recovery.read.file_system import c_library, is_local, nearest, open_file

_SYNC_FILE_RANGE_WRITE = 2
_lock = Lock()
_held: dict[int, _HeldFileSystem] = {}
"""By device."""


class _HeldFileSystem:
    """A file system that is held open. A caller that comes while another wait is under way shares the next one."""

    def __init__(self, path: str) -> None:
        self.user_count = 0
        self._path = path
        self._descriptor = open_file(path, may_be_folder=True)
        self._changed = Condition()
        self._begun, self._ended = 0, 0
        self._error: OSError | None = None

    def close(self) -> None:
        os.close(self._descriptor)

    def sync(self) -> None:
        with self._changed:
            needed = self._begun + 1  # one that is under way may miss what this caller has written
            while self._ended < needed:
                if self._begun > self._ended:
                    self._changed.wait()
                else:
                    self._begun += 1
                    self._sync()
            if self._error is not None:
                raise OSError(self._error.errno, self._error.strerror, self._path)

    def _sync(self) -> None:
        """Wait with the lock released."""
        self._changed.release()
        error = None
        try:
            _sync_file_system(self._descriptor, self._path)
        except OSError as failure:
            error = failure
        finally:
            self._changed.acquire()
            self._error = self._error or error
            self._ended = self._begun
            self._changed.notify_all()


@contextmanager
def held_file_systems(paths: Iterable[str]) -> Iterator[None]:
    """Hold the file systems of *paths* open for the block; for a missing path that of the nearest folder above it.

    A path that cannot be opened is skipped: whoever uses it gets the error.
    """
    with ExitStack() as stack:
        for path in paths:
            with suppress(OSError):
                stack.enter_context(_held_file_system(nearest(path)))
        yield


@contextmanager
def _held_file_system(path: str) -> Iterator[None]:
    device = os.stat(path).st_dev
    with _lock:
        held = _held.get(device)
        if held is None:
            held = _held[device] = _HeldFileSystem(path)
        held.user_count += 1
    try:
        yield
    finally:
        with _lock:
            held.user_count -= 1
            if not held.user_count:
                del _held[device]
                held.close()


def sync_file_system(path: str) -> bool:
    """Bring all that was written to the file system of *path* to disk; return False if it does not report errors.

    Raises:
        OSError: it failed, now or at any time since it was first held open.
    """
    if not _reports_errors(path):
        return False
    with _lock:
        held = _held.get(os.stat(path).st_dev)
    if held is not None:
        held.sync()
        return True
    descriptor = open_file(path, may_be_folder=True)
    try:
        _sync_file_system(descriptor, path)
    finally:
        os.close(descriptor)
    return True


def begin_write_back(descriptor: int, position: int) -> None:
    """Let the disk begin with what was written to a file from *position* on, while its writer goes on.

    An error is left to who waits for it: `sync_file_system`, or fsync(2).
    """
    c_library().sync_file_range(
        descriptor, ctypes.c_int64(position), ctypes.c_int64(0), _SYNC_FILE_RANGE_WRITE
    )


def _reports_errors(path: str) -> bool:
    """Whether syncfs(2) reports errors in writing back as fsync(2) does: on local file systems, since Linux 5.8."""
    major, minor = os.uname().release.split(".")[:2]
    return (int(major), int(minor.split("-")[0])) >= (5, 8) and is_local(path)


def _sync_file_system(descriptor: int, path: str) -> None:
    if c_library().syncfs(descriptor) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
