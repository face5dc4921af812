"""The place where bytes go before they leave a log dir.

    <log dir>.quarantine/<run>/manifest.jsonl            one line for each saved file or tail
    <log dir>.quarantine/<run>/<partition>/<file>        a whole file, hard-linked where the file system
    allows it <log dir>.quarantine/<run>/<partition>/<file>.from-<position>   the tail that was cut off

A sibling of the log dir is on the same file system in most set-ups. Where it is not (the log dir is a mount
point), or where the parent folder may not be written, quarantine lies inside, in a folder that a broker
passes over because its name parses as a log of `__cluster_metadata`. Nothing is created before the first byte
is saved.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import stat
import time
from io import FileIO
from threading import Lock

MANIFEST = "manifest.jsonl"
SIBLING_SUFFIX = ".quarantine"
INSIDE_FOLDER = "__cluster_metadata-0.quarantine-stray"
"""A broker ignores it: LogManager.loadLogs skips every folder whose topic parses as __cluster_metadata."""

_COPY_BYTES = 1 << 20


class Quarantine:
    """What one run saves from one log dir. Thread-safe."""

    def __init__(self, log_dir: str, *, root: str | None = None) -> None:
        """Prepare quarantine for *log_dir*, creating nothing.

        Args:
            root: `--quarantine-dir`; each log dir gets a folder of its own in it.
        """
        self._log_dir = log_dir
        self._root = (
            default_root(log_dir)
            if root is None
            else os.path.join(root, log_dir.strip("/").replace("/", "_"))
        )
        self._run: str | None = None
        self._unsynced_folders: set[str] = set()
        self._lock = Lock()

    @property
    def root(self) -> str:
        """The folder of all runs on this log dir."""
        return self._root

    @property
    def run_folder(self) -> str | None:
        """This run's folder, None while nothing was saved."""
        return self._run

    def save_file(
        self, path: str, *, folder: str, reason: str, may_link: bool = True, kind: str = "file"
    ) -> str:
        """Save the whole file *path* and return where.

        Args:
            folder: of the partition.
            reason: why, in words.
            may_link: whether a hard link will do: not where the file itself is going to be changed.
            kind: of the line in the manifest; `moved` where the file is taken out of the log dir.
        """
        target = os.path.join(self._folder(folder), os.path.basename(path))
        linked = may_link and _link(path, target)
        if not linked:
            _copy(path, target, 0)
        self._record(kind, path, 0, target, folder=folder, reason=reason, linked=linked)
        return target

    def save_tail(self, path: str, position: int, *, folder: str, reason: str) -> str:
        """Copy the bytes of *path* from *position* on; return where."""
        target = os.path.join(self._folder(folder), f"{os.path.basename(path)}.from-{position}")
        _copy(path, target, position)
        self._record("tail", path, position, target, folder=folder, reason=reason, linked=False)
        return target

    def move_away(self, path: str, *, folder: str, reason: str) -> str:
        """Take the file or folder *path* out of the log dir, durably, and return where it is.

        A regular file is saved before its name goes: killed in between, it is in both places. Anything else is
        renamed as a whole, its line in the manifest first: killed in between, it is where it was.

        Args:
            folder: of the partition, or of the log dir itself.
            reason: why, in words.

        Raises:
            OSError: it stays where it is. EXDEV: only regular files go to another file system.
        """
        found = os.lstat(path)
        if stat.S_ISREG(found.st_mode):
            target = self.save_file(path, folder=folder, reason=reason, kind="moved")
            self.sync()
            os.unlink(path)
        else:
            target = os.path.join(self._folder(folder), os.path.basename(path))
            if os.stat(os.path.dirname(target)).st_dev != found.st_dev or os.path.ismount(path):
                raise OSError(errno.EXDEV, "quarantine is on another file system", path)
            if os.path.lexists(target):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
            self._record("moved", path, 0, target, folder=folder, reason=reason, linked=False)
            self.sync()
            os.rename(path, target)
            _sync(os.path.dirname(target))
        _sync(os.path.dirname(path))
        return target

    def sync(self) -> None:
        """Bring all names and the manifest to disk; only then may anything be touched."""
        with self._lock:
            folders, self._unsynced_folders = self._unsynced_folders, set()
            for folder in sorted(folders):
                _sync(folder)
            if self._run is not None:
                _sync(os.path.join(self._run, MANIFEST))
                for folder in (self._run, self._root, os.path.dirname(self._root)):
                    _sync(folder)

    def _folder(self, partition: str) -> str:
        with self._lock:
            if self._run is None:
                self._run = self._make_run_folder()
            folder = os.path.join(self._run, partition)
            if not os.path.isdir(folder):
                os.mkdir(folder)
                self._adopt_owner(folder)
            self._unsynced_folders.add(folder)
            return folder

    def _make_run_folder(self) -> str:
        if not os.path.isdir(self._root):
            os.makedirs(self._root)
            self._adopt_owner(self._root)
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        for attempt in range(1000):
            run = os.path.join(self._root, stamp if not attempt else f"{stamp}-{attempt}")
            try:
                os.mkdir(run)
            except FileExistsError:
                continue
            self._adopt_owner(run)
            return run
        raise FileExistsError(f"{self._root}: a thousand runs in one second")

    def _adopt_owner(self, path: str) -> None:
        owner = os.stat(self._log_dir)
        with contextlib.suppress(PermissionError):
            os.chown(path, owner.st_uid, owner.st_gid)

    def _record(
        self, kind: str, path: str, position: int, target: str, *, folder: str, reason: str, linked: bool
    ) -> None:
        """Add a line to the manifest; what cannot be entered there is not kept."""
        assert self._run is not None
        try:
            self._enter(self._run, kind, path, position, target, folder=folder, reason=reason, linked=linked)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(target)
            raise

    def _enter(
        self,
        run: str,
        kind: str,
        path: str,
        position: int,
        target: str,
        *,
        folder: str,
        reason: str,
        linked: bool,
    ) -> None:
        is_file = os.path.isfile(target)  # a folder is moved as a whole, after its line is written
        entry = {
            "version": 1,
            "log_dir": self._log_dir,
            "kind": kind,
            "partition": folder,
            "file": os.path.basename(path),
            "position": position,
            "size_bytes": os.stat(target).st_size if is_file else 0,
            "stored": os.path.relpath(target, run),
            "linked": linked,
            "sha256": _sha256(target) if is_file else None,
            "reason": reason,
        }
        manifest_path = os.path.join(run, MANIFEST)
        with self._lock, open(manifest_path, "ab") as manifest:
            if manifest.tell() == 0:
                self._adopt_owner(manifest_path)
            manifest.write(json.dumps(entry).encode() + b"\n")


def default_root(log_dir: str) -> str:
    """Return where quarantine lies unless the operator says otherwise: beside *log_dir*, else inside it."""
    parent = os.path.dirname(log_dir) or "/"
    with contextlib.suppress(OSError):
        if (
            os.stat(parent).st_dev == os.stat(log_dir).st_dev
            and not os.path.ismount(log_dir)
            and os.access(parent, os.W_OK)
        ):
            return log_dir.rstrip("/") + SIBLING_SUFFIX
    return os.path.join(log_dir, INSIDE_FOLDER)


def _link(path: str, target: str) -> bool:
    try:
        os.link(path, target)
    except FileExistsError:
        raise
    except OSError:
        return False
    return True


def _copy(path: str, target: str, position: int) -> None:
    with open(path, "rb", buffering=0) as source, open(target, "xb", buffering=0) as copy:
        try:
            source.seek(position)
            _copy_open(source, copy)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(target)
            raise


def _copy_open(source: FileIO, copy: FileIO) -> None:
    while chunk := source.read(_COPY_BYTES):
        if any(chunk):
            view = memoryview(chunk)
            while view:
                view = view[copy.write(view) :]
        else:
            copy.seek(len(chunk), os.SEEK_CUR)  # zeros stay a hole: a cut tail may be a gigabyte of them
    copy.truncate(copy.tell())
    found = os.fstat(source.fileno())
    os.fchmod(copy.fileno(), found.st_mode & 0o777)
    with contextlib.suppress(PermissionError):
        os.fchown(copy.fileno(), found.st_uid, found.st_gid)
    os.fsync(copy.fileno())


def _sha256(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
