"""What is in a folder that goes to quarantine as a whole: listed before it is moved, and compared afterwards.

Such a folder is renamed, however large it is, so its listing is limited: in bytes that are hashed, in bytes that are
added to the manifest, and in depth. No link is followed. What the broker's user may not read is not read.

Anybody who may write into quarantine may have written the list. So no name in it is ever opened: the folder is walked,
and what is there is looked up in the list.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from typing import Final, NamedTuple

from recovery.logdir.user import BrokerUser
from recovery.plan.manifest import FILE, FOLDER, MOST_DEPTH, OTHER, Contents, Digest, Thing
from recovery.read.file_system import name_of, naming, open_file, opened_folder
from recovery.write.digest import content_problem, sha256_of

MOST_HASHED_BYTES = 1 << 30
"""Of all files in one folder: a second or two on a fast disk."""
MOST_LISTED_BYTES = 16 << 20
"""Of the line in the manifest: some tens of thousands of things. The size of a manifest is limited, too."""
_THING_BYTES: Final = 160
"""What one thing takes of a line, without its path."""
_KIND_NAMES: Final = {FILE: "a file", FOLDER: "a folder", OTHER: "neither a file nor a folder"}


class Difference(NamedTuple):
    """Something that is not as it was when it was moved."""

    path: str
    """Relative to what was moved, which itself has the path ""."""
    is_loss: bool
    """Whether a file that was moved is no longer there, or has other bytes."""
    problem: str


def list_contents(path: str, user: BrokerUser) -> Contents | None:
    """Return what *path*, which is not a regular file, is, and what is below it.

    A file has no SHA-256 if it cannot be read, if the broker's user may not read it, or if it is larger than what is
    left of `MOST_HASHED_BYTES`, in the order of paths.

    Args:
        path: of a folder, a link, a pipe or the like.
        user: of the broker.

    Returns:
        None if it cannot be listed: there is too much of it, or a folder in it cannot be read. It is moved all the
        same, as a whole.
    """
    listing = _Listing(user)
    folder, name = os.path.split(path)
    try:
        with opened_folder(folder) as descriptor:
            listing.add(descriptor, name, "")
    except OSError:
        return None
    return listing.things


class _Listing:
    def __init__(self, user: BrokerUser) -> None:
        self.things: dict[str, Thing] = {}
        self._user = user
        self._listed_bytes = 0
        self._hashed_bytes = 0

    def add(self, folder: int, name: str, path: str) -> None:
        """Add the thing called *name* in an open folder, and all below it.

        Raises:
            OSError: it cannot be listed, or is too much.
        """
        status = os.lstat(name, dir_fd=folder)
        self._count(_THING_BYTES + len(json.dumps(path)))
        if stat.S_ISREG(status.st_mode):
            self.things[path] = self._file(folder, name, status)
        elif not stat.S_ISDIR(status.st_mode):
            self.things[path] = Thing(OTHER, status.st_size, None)
        elif path.count("/") >= MOST_DEPTH - 1:
            raise OSError(errno.ELOOP, "too deep to be listed", path)
        elif self._user.lacks(status, "rx"):
            raise OSError(errno.EACCES, "not to be listed for the broker's user", path)
        else:
            self.things[path] = Thing(FOLDER, 0, None)
            with opened_folder(name, at=folder) as below:
                for name_below in self._names(below):
                    self.add(below, name_below, _joined(path, name_below))

    def _count(self, listed_bytes: int) -> None:
        self._listed_bytes += listed_bytes
        if self._listed_bytes > MOST_LISTED_BYTES:
            raise OSError(errno.EFBIG, "too much to be listed")

    def _names(self, folder: int) -> list[str]:
        """Return the names in an open folder, sorted, unless there are too many."""
        names: list[str] = []
        with os.scandir(folder) as entries:
            for entry in entries:
                names.append(entry.name)
                if self._listed_bytes + len(names) * _THING_BYTES > MOST_LISTED_BYTES:
                    raise OSError(errno.EFBIG, "too much to be listed")
        return sorted(names)

    def _file(self, folder: int, name: str, status: os.stat_result) -> Thing:
        size_bytes, sha256 = status.st_size, None
        with contextlib.suppress(OSError):
            descriptor = open_file(name, os.O_RDONLY | os.O_NOFOLLOW, at=folder)
            try:
                status = os.fstat(descriptor)
                is_small = self._hashed_bytes + status.st_size <= MOST_HASHED_BYTES
                if is_small and not self._user.lacks(status, "r"):
                    self._hashed_bytes += status.st_size
                    size_bytes, sha256 = status.st_size, sha256_of(descriptor, status.st_size)
            finally:
                os.close(descriptor)
        return Thing(FILE, size_bytes, sha256)


def differences(run: int, stored: str, contents: Contents) -> list[Difference]:
    """Return what differs, was added or, at the end, is missing in what was moved as a whole.

    Args:
        run: the run's folder, open.
        stored: path relative to it.
        contents: as they were.

    Raises:
        FileNotFoundError, NotADirectoryError: what was moved is not there.
        OSError: it cannot be read.
    """
    *folders, name = stored.split("/")
    comparison = _Comparison(contents)
    with contextlib.ExitStack() as stack:
        for folder in folders:
            run = stack.enter_context(opened_folder(folder, at=run))
        comparison.compare(run, name, "")
    return comparison.end()


class _Comparison:
    def __init__(self, contents: Contents) -> None:
        self._contents = contents
        self._differences: list[Difference] = []
        self._seen: set[str] = set()

    def compare(self, folder: int, name: str, path: str) -> None:
        """Compare the thing called *name* in an open folder, and all below it that was listed.

        Raises:
            OSError: it cannot be read.
        """
        self._seen.add(path)
        with naming(os.path.join(name_of(folder), name)):
            status = os.lstat(name, dir_fd=folder)
            problem = self._problem(folder, name, path, status)
        listed = self._contents.get(path)
        if problem is not None:
            is_loss = listed is not None and listed.kind == FILE
            self._differences.append(Difference(path, is_loss, problem))
        elif listed is not None and listed.kind == FOLDER:
            with opened_folder(name, at=folder) as below:
                for name_below in sorted(os.listdir(below)):
                    self.compare(below, name_below, _joined(path, name_below))

    def _problem(self, folder: int, name: str, path: str, status: os.stat_result) -> str | None:
        listed, kind = self._contents.get(path), _kind_of(status)
        if listed is None:
            return "not there when the folder was moved"
        if kind != listed.kind:
            return f"{_KIND_NAMES[kind]} instead of {_KIND_NAMES[listed.kind]}"
        if kind == FOLDER or not path:
            return None
        if status.st_size != listed.size_bytes:
            return f"{status.st_size} bytes instead of {listed.size_bytes}"
        if listed.sha256 is None:
            return None
        descriptor = open_file(name, os.O_RDONLY | os.O_NOFOLLOW, at=folder)
        try:
            return content_problem(descriptor, listed.size_bytes, Digest(listed.sha256, listed.size_bytes))
        finally:
            os.close(descriptor)

    def end(self) -> list[Difference]:
        """Return the differences, those of missing things last."""
        missing = [
            Difference(path, thing.kind == FILE, "missing")
            for path, thing in self._contents.items()
            if path not in self._seen
        ]
        return self._differences + missing


def _kind_of(status: os.stat_result) -> str:
    if stat.S_ISREG(status.st_mode):
        return FILE
    return FOLDER if stat.S_ISDIR(status.st_mode) else OTHER


def _joined(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name
