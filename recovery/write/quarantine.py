"""The place where bytes go before they leave a log dir, and the account of every change to it.

    <log dir>.quarantine/<run>/manifest.jsonl            one line for each saved file or tail, and for each change
    <log dir>.quarantine/<run>/<partition>/<file>        a whole file, hard-linked if the file system allows it; a link
                                                         is saved itself, and not what it leads to
    <log dir>.quarantine/<run>/<partition>/<file>.from-<position>   the tail that was cut off

Nothing is created before the first byte is saved. `undo` reverses the account.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from threading import Lock
from typing import Any

from recovery.load.model import FileStat
from recovery.logdir.quarantine_place import quarantine_root, run_order, started_ms_of
from recovery.logdir.user import broker_user, give_to_owner_of
from recovery.plan.actions import PartitionPlan, Save, SaveFile
from recovery.plan.commit import Commit
from recovery.plan.manifest import Line, contents_fields, digest_fields, json_object, read_lines
from recovery.read.file_system import (
    check_size,
    free_name,
    is_folder,
    is_link,
    is_there,
    mount_of,
    naming,
    open_file,
    refuse_link,
)
from recovery.write.digest import is_begun_copy, look_into
from recovery.write.durable import (
    copy_new,
    copy_opened,
    end_of_lines,
    make_folder_like,
    make_folders,
    opened,
    opened_itself,
    remove_empty_folder,
    sync,
    sync_all,
    write_fully,
)
from recovery.write.moved_contents import list_contents

MANIFEST = "manifest.jsonl"
MANIFEST_VERSION = 1
MOST_MANIFEST_BYTES = 512 << 20


class Quarantine:
    """What one run saves from one log dir, and what it does to that dir. Thread-safe."""

    def __init__(
        self,
        log_dir: str,
        *,
        root: str | None = None,
        run: str | None = None,
        started_ms: int | None = None,
        on_created: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Prepare quarantine for *log_dir*, creating nothing.

        Args:
            root: `--quarantine-dir`; each log dir gets a folder of its own in it.
            run: name of the folder of an interrupted run that is resumed.
            started_ms: when this run began, ms since 1970: its name, in all log dirs; None for the time of the first
                save.
            on_created: called with the name of this run's folder before anything is saved in it.
        """
        self._log_dir = log_dir
        self._root = quarantine_root(log_dir, root)
        self._run = None if run is None else os.path.join(self._root, run)
        self._started_ms = started_ms
        self._on_created = on_created
        self._unsynced: dict[str, int] = {}  # path -> number of its last change
        self._change_count = 0
        entries = [] if self._run is None else manifest_entries(self._run)
        self._noted = {_digest(entry["commit"]) for entry in entries if isinstance(entry.get("commit"), dict)}
        self._entered = {entry["stored"] for entry in entries if isinstance(entry.get("stored"), str)}
        self._lock = Lock()

    @property
    def root(self) -> str:
        """The folder of all runs on this log dir."""
        return self._root

    @property
    def run_folder(self) -> str | None:
        """This run's folder, None until something is saved."""
        return self._run

    def save(self, folder: str, plan: PartitionPlan) -> list[str]:
        """Save what *plan* takes from the partition in *folder*; return the paths of what the log loses."""
        targets = self._save_all(folder, plan.folder, plan.saves) if plan.saves else []
        return [target for target, save in zip(targets, plan.saves, strict=True) if not save.is_derived]

    def move_away(self, path: str, *, folder: str, reason: str, rule: str = "") -> str:
        """Take the file or folder *path* out of the log dir, durably, and return its new path.

        A regular file is saved before it is unlinked: after a kill in between, it is in both places. Anything else is
        renamed as a whole, after its line in the manifest, with what is in it: after a kill in between, it has not
        moved.

        Args:
            folder: of the partition, or of the log dir itself.
            reason, rule: why, as text and as an identifier, if it has one.

        Raises:
            OSError: it stays where it is. EXDEV: only regular files go to another file system.
        """
        status = os.lstat(path)
        save = SaveFile(name=os.path.basename(path), size_bytes=status.st_size, rule=rule, reason=reason)
        if stat.S_ISREG(status.st_mode):
            target = self._save_all(os.path.dirname(path), folder, [save], kind="moved")[0]
            self.sync()
            os.unlink(path)
        else:
            with self._lock:
                target = os.path.join(self._folder(folder), save.name)
            if mount_of(os.path.dirname(target)) != mount_of(path):
                raise OSError(errno.EXDEV, "quarantine is on another file system", path)
            if is_there(target):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
            entry = self._entry(path, save, target, folder, kind="moved", is_linked=False)
            entry |= contents_fields(list_contents(path, broker_user(self._log_dir)))
            with self._lock:
                self._enter([entry])
            self.sync()
            os.rename(path, target)
            sync(os.path.dirname(target))
        sync(os.path.dirname(path))
        return target

    def note_change(
        self, commit: Commit, after: Mapping[str, FileStat], *, is_new_folder: bool = False
    ) -> None:
        """Enter what was done to a folder, and what is in it now, once. It is on disk after the next `sync`.

        Args:
            is_new_folder: whether the folder itself was made; `undo` removes it.
        """
        entry = self._change(commit, after) | ({"is_new_folder": True} if is_new_folder else {})
        with self._lock:
            if (digest := _digest(entry["commit"])) not in self._noted:
                self._enter([entry])
                self._noted.add(digest)

    def note_changes(self, changes: Iterable[tuple[Commit, Mapping[str, FileStat]]]) -> None:
        """Enter what was done to folders, and what is in each of them now, by commits of this run."""
        entries = [self._change(commit, after) for commit, after in changes]
        with self._lock:
            if entries:
                self._enter(entries)

    def _change(self, commit: Commit, after: Mapping[str, FileStat]) -> dict[str, Any]:
        return {
            "version": MANIFEST_VERSION,
            "log_dir": self._log_dir,
            "kind": "change",
            "partition": commit.folder,
            "commit": commit.to_json(),
            "after": {name: [file.inode, file.size_bytes, file.mtime_ns] for name, file in after.items()},
        }

    def end_manifest(self) -> None:
        """Remove a line that a kill has torn: a run that is not resumed enters nothing more."""
        with self._lock:
            if self._run is not None and is_there(os.path.join(self._run, MANIFEST)):
                self._enter(())

    def sync(self, others: Iterable[str] = ()) -> None:
        """Bring all that was saved, the manifest and the paths *others* to disk; only then may anything be touched.

        If several threads wait for the same paths, each waits itself: none proceeds before what it saved is on disk.

        Raises:
            OSError: that failed; nothing counts as synced then.
        """
        with self._lock:
            unsynced = dict(self._unsynced)
        sync_all([*others, *sorted(unsynced)])
        with self._lock:
            for path, number in unsynced.items():
                if self._unsynced.get(path) == number:
                    del self._unsynced[path]

    def _note_unsynced(self, *paths: str) -> None:
        self._change_count += 1
        self._unsynced.update(dict.fromkeys(paths, self._change_count))

    def _save_all(
        self, path: str, folder: str, saves: Iterable[Save], *, kind: str | None = None
    ) -> list[str]:
        """Save from the folder *path*, and enter all of it at once; what cannot be entered is not kept."""
        with self._lock:
            saved_folder = self._folder(folder)
        entries: dict[str, dict[str, Any]] = {}
        try:
            for save in saves:
                file = f"{path}/{save.name}"
                target, is_linked = self._keep(file, saved_folder, save)
                entries[target] = {}
                entries[target] = self._entry(file, save, target, folder, kind=kind, is_linked=is_linked)
        finally:
            self._enter_saved(saved_folder, entries)
        return list(entries)

    def _keep(self, path: str, saved_folder: str, save: Save) -> tuple[str, bool]:
        """Put a file or tail into *saved_folder*; return its path there, and whether it is a hard link."""
        target = f"{saved_folder}/{save.name}"
        if isinstance(save, SaveFile) and not save.is_cut and _link(path, target):
            return target, True
        if is_link(path):
            copy = free_name(target)
            with opened_itself(path) as read:
                copy_opened(read, copy)
            return copy, False
        position = 0 if isinstance(save, SaveFile) else save.position
        target = target if isinstance(save, SaveFile) else f"{target}.from-{position}"
        copy = free_name(target)
        copy_new(path, copy, position=position, like=path, keeps_time=True)
        if copy != target and self._is_unentered(target) and is_begun_copy(target, copy):
            os.rename(copy, target)  # an unfinished copy of a run that was killed, or lost power
            return target, False
        return copy, False

    def _is_unentered(self, target: str) -> bool:
        assert self._run is not None
        with self._lock:
            return target.removeprefix(f"{self._run}/") not in self._entered

    def _enter_saved(self, saved_folder: str, entries: Mapping[str, Mapping[str, Any]]) -> None:
        """Enter what was saved in *saved_folder*; what cannot be entered is not kept."""
        entered = {target: entry for target, entry in entries.items() if entry}
        try:
            if entered:
                with self._lock:
                    # First, so that nobody waits for files that are removed again.
                    self._enter(entered.values())
                    # A link is on disk with its folder, and may lead nowhere from there
                    files = (target for target, entry in entered.items() if entry.get("link") is None)
                    self._note_unsynced(saved_folder, *files)
                    self._entered.update(entry["stored"] for entry in entered.values())
        except BaseException:
            entered = {}
            raise
        finally:
            for target in entries.keys() - entered.keys():
                with contextlib.suppress(OSError):
                    os.unlink(target)

    def _entry(
        self, path: str, save: Save, target: str, folder: str, *, kind: str | None, is_linked: bool
    ) -> dict[str, Any]:
        assert self._run is not None
        size_bytes, digest = look_into(target, may_skip_zeros=save.is_derived)
        link = {"link": os.readlink(target)} if digest is None and is_link(target) else {}
        return {
            "version": MANIFEST_VERSION,
            "log_dir": self._log_dir,
            "kind": kind or ("file" if isinstance(save, SaveFile) else "tail"),
            "partition": folder,
            "file": os.path.basename(path),
            "position": 0 if isinstance(save, SaveFile) else save.position,
            "size_bytes": size_bytes,
            "first_offset": save.first_offset if save.first_offset >= 0 else None,
            "last_offset": save.last_offset if save.last_offset >= 0 else None,
            "stored": target.removeprefix(f"{self._run}/"),
            "linked": is_linked,
            "derived": save.is_derived,
            **digest_fields(digest, size_bytes),
            **link,
            "rule": save.rule or None,
            "reason": save.reason,
        }

    def _enter(self, entries: Iterable[Mapping[str, Any]]) -> None:
        """Add lines to the manifest, all of them or none."""
        folder = self._run_folder()
        path = os.path.join(folder, MANIFEST)
        lines = b"".join(json.dumps(entry).encode() + b"\n" for entry in entries)
        with opened(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600) as descriptor:
            size_bytes = os.fstat(descriptor).st_size
            if size_bytes == 0:
                os.fchmod(descriptor, stat.S_IMODE(os.stat(self._log_dir).st_mode) & 0o640 | 0o600)
                give_to_owner_of(self._log_dir, path, descriptor)
            whole_bytes = end_of_lines(descriptor, size_bytes)
            if whole_bytes < size_bytes:  # torn by a kill
                size_bytes = whole_bytes
                os.ftruncate(descriptor, size_bytes)
            try:
                write_fully(descriptor, lines)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.ftruncate(descriptor, size_bytes)
                raise
        self._note_unsynced(path, folder)

    def _folder(self, partition: str) -> str:
        run = self._run_folder()
        folder = os.path.join(run, partition)
        for path in (run, folder):
            refuse_link(path)
            if not is_folder(path):
                make_folder_like(path, self._log_dir)
                self._note_unsynced(os.path.dirname(path))
        return folder

    def _run_folder(self) -> str:
        if self._run is None:
            run = self._make_run_folder()
            try:
                self._on_created(os.path.basename(run))
            except BaseException:  # nothing may be saved in a run that the journal does not name
                remove_empty_folder(run)
                raise
            self._note_unsynced(run, self._root)
            self._run = run
        refuse_link(self._run)
        return self._run

    def _make_run_folder(self) -> str:
        """Make a folder whose name comes after those of all runs there, also where the clock was set back."""
        self.make_root()
        now_s = time.time() if self._started_ms is None else self._started_ms / 1000
        runs = [run_order(name) for name in os.listdir(self._root) if started_ms_of(name) is not None]
        now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now_s))
        stamp, first = max([(now, 0), *((stamp, number + 1) for stamp, number in runs)])
        for attempt in range(first, first + 1000):
            run = os.path.join(self._root, stamp if not attempt else f"{stamp}-{attempt}")
            try:
                make_folder_like(run, self._log_dir)
            except FileExistsError:
                continue
            return run
        raise FileExistsError(f"{self._root}: a thousand runs in one second")

    def make_root(self) -> str:
        """Make the folder of all runs unless it is there, and return it."""
        if not is_folder(self._root):
            make_folders(os.path.dirname(self._root))
            make_folder_like(self._root, self._log_dir)
            self._note_unsynced(os.path.dirname(self._root))
        return self._root


def manifest_entries(run: str) -> list[dict[str, Any]]:
    """Return the lines of the manifest in the folder *run*, without those torn by a kill or a power failure."""
    path = os.path.join(run, MANIFEST)
    refuse_link(run)
    try:
        descriptor = open_file(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return []
    entries = map(json_object, lines_of(descriptor, path))
    return [entry for entry in entries if entry is not None and "kind" in entry and "partition" in entry]


def lines_of(descriptor: int, path: str) -> Iterator[Line]:
    """Yield the lines of a manifest that is open, and close it.

    Args:
        path: its name in errors.

    Raises:
        OSError: it cannot be read. EFBIG: it is larger than any manifest.
    """
    with naming(path), open(descriptor, "rb", buffering=0) as file:
        check_size(descriptor, MOST_MANIFEST_BYTES, path)
        yield from read_lines(file.read)


def _digest(commit: Mapping[str, Any]) -> str:
    """Return what a change is identified by."""
    return hashlib.sha256(json.dumps(commit, sort_keys=True).encode()).hexdigest()


def _link(path: str, target: str) -> bool:
    """Make *target* a second name of *path*; it may be one already, from an interrupted run."""
    try:
        os.link(path, target)
    except FileExistsError:
        return os.path.samestat(os.lstat(path), os.lstat(target))
    except OSError:
        return False
    return True
