"""The only writer. It carries out plans: what is lost is saved, what is new is staged, then all is published.

Up to the commit nothing that was there has changed but the broker's own pending deletions, which it would make, too,
and which may be what gives a full disk its space back. Behind it every action is a rename, a link, a cut or an unlink.
Whatever fails raises `OSError`; before the commit it leaves everything as it was.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeGuard

from recovery.actions import (
    TEMPORARY_SUFFIX,
    Action,
    AppendPart,
    CopyPart,
    LinkFile,
    PartitionPlan,
    RemoveFile,
    RenameFile,
    RestoreFile,
    TruncateFile,
    WriteFile,
    seals_segment,
)
from recovery.commit import Commit
from recovery.durable import (
    append_part,
    copy_new,
    remove_file,
    sync,
    sync_all,
    truncate,
    write_new,
)
from recovery.listing import is_of_type
from recovery.model import FileStat, RemovalKind
from recovery.quarantine import Quarantine


def apply_partition(
    folder: str,
    plan: PartitionPlan,
    files: Mapping[str, FileStat],
    quarantine: Quarantine,
    *,
    enter: Callable[[Commit, list[str]], None] = lambda _commit, _saved: None,
    is_tidy: bool = False,
) -> list[str]:
    """Carry out *plan* in *folder*.

    Args:
        files: what lies in the folder, as the plan was made for it.
        enter: brings the commit to disk, and what it has saved; from then on it is to be carried out.
        is_tidy: see `stage`.

    Returns:
        The paths that hold what is lost from the log.
    """
    saved = quarantine.save(folder, plan)
    pending = {
        action.name
        for action in plan.actions
        if isinstance(action, RemoveFile) and action.kind is RemovalKind.PENDING_DELETION
    }
    if any(save.name in pending for save in plan.saves):  # kept ones go only once they are safe
        quarantine.sync()
    for name in sorted(pending):
        remove_file(os.path.join(folder, name))
    commit = stage(
        folder,
        plan.folder,
        {name: stat for name, stat in files.items() if name not in pending},
        tuple(
            action
            for action in plan.actions
            if not (isinstance(action, RemoveFile) and action.kind is RemovalKind.PENDING_DELETION)
        ),
        bring_to_disk=quarantine.sync,  # what is staged and what is saved by one wait
        has_removed=bool(pending),
        is_tidy=is_tidy,
    )
    enter(commit, saved)  # where it fails it may count all the same, so what is staged stays for the next run
    publish(folder, commit)
    quarantine.note_change(commit, list_files(folder))
    return saved


def stage(
    folder: str,
    name: str,
    files: Mapping[str, FileStat],
    actions: tuple[Action, ...],
    *,
    bring_to_disk: Callable[[Iterable[str]], None] = sync_all,
    has_removed: bool = False,
    is_tidy: bool = False,
) -> Commit:
    """Write what *actions* make in *folder* under temporary names, durably, and return the commit over all.

    Args:
        name: of the folder, for the commit.
        files: what lies there; what an earlier run has staged is gone now.
        bring_to_disk: waits for what was written, and for what else must be on disk before the commit.
        has_removed: whether something was removed there that must not come back after a power failure.
        is_tidy: whether no earlier run has left anything there.
    """
    if not is_tidy:
        unstage(folder)
    staged: dict[str, FileStat] = {}
    try:
        for action in actions:
            if isinstance(action, WriteFile | CopyPart | RestoreFile):
                path = f"{folder}/{action.name}"
                staged[action.name] = _file_stat(_stage_action(folder, action, path + TEMPORARY_SUFFIX, path))
        is_changed = bool(staged) or has_removed
        made = [f"{folder}/{name}{TEMPORARY_SUFFIX}" for name in staged]
        bring_to_disk([*made, folder] if is_changed else [])
    except BaseException:
        unstage(folder)
        raise
    before = {file: stat for file, stat in files.items() if not file.endswith(TEMPORARY_SUFFIX)}
    return Commit(folder=name, before=before, staged=staged, actions=actions)


def unstage(folder: str) -> None:
    """Remove what a run that ended before its commit has left in *folder*."""
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries if entry.name.endswith(TEMPORARY_SUFFIX)]
    for name in names:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(folder, name))


def publish(folder: str, commit: Commit) -> None:
    """Do the actions of *commit* that are not done yet, in order, and bring them to disk."""
    with os.scandir(folder) as entries:
        present = {entry.name: entry.inode() for entry in entries}
    for _ in _Publication(folder, commit, present).steps():
        sync(folder)


def publish_staged(commits: Mapping[str, Commit]) -> None:
    """Do the actions of all *commits*, of which none is begun, and bring them to disk.

    Where one has to wait for the disk, all do, so that it is waited for as often as one of them needs it.

    Args:
        commits: by path of the folder, as `stage` has made them: nothing was there but what they say.
    """
    steps = {
        folder: _Publication(folder, commit, _present(commit)).steps() for folder, commit in commits.items()
    }
    while steps:
        waiting = [folder for folder, step in steps.items() if next(step, None) is not None]
        sync_all(waiting)
        steps = {folder: steps[folder] for folder in waiting}


def _present(commit: Commit) -> dict[str, int]:
    """Return the inodes in a folder of which nothing is published yet."""
    return {name: stat.inode for name, stat in commit.before.items()} | {
        name + TEMPORARY_SUFFIX: stat.inode for name, stat in commit.staged.items()
    }


def list_files(folder: str) -> dict[str, FileStat]:
    """Return the regular files in *folder*."""
    with os.scandir(folder) as entries:
        files = [entry for entry in entries if is_of_type(entry, os.DirEntry.is_file)]
        return {entry.name: _file_stat(entry.stat()) for entry in files}


class _Publication:
    """The state of a folder while a commit is carried out.

    Args:
        present: the inodes that are there, by name.
    """

    def __init__(self, folder: str, commit: Commit, present: dict[str, int]) -> None:
        self._folder = folder
        self._commit = commit
        self._present = present
        self._has_unsynced_names = False

    def steps(self) -> Iterator[str]:
        """Do the actions that are not done; yield the folder where what was done must be on disk before it goes on."""
        for action in self._commit.actions:
            if self._has_unsynced_names and _seals(action) and self._is_staged(action.name):
                yield self._folder  # an index vouches for its segment
                self._has_unsynced_names = False
            if self._do(action):
                yield self._folder
                self._has_unsynced_names = False
        if self._commit.actions:
            yield self._folder

    def _do(self, action: Action) -> bool:
        """Do *action* unless it is done; return whether its name must be on disk before the next one."""
        match action:
            case RemoveFile(name=name):
                if self._is_first(name):
                    remove_file(self._path(name))
                    del self._present[name]
            case RenameFile(old=old, new=new):
                if self._is_first(old):
                    self._rename(old, new)
                    return True  # a later cut must not reach the disk before the segments behind it are gone
            case LinkFile(old=old, new=new):
                if self._is_first(old) and new not in self._present:
                    os.link(self._path(old), self._path(new))
                    self._present[new] = self._present[old]
                    return True
            case TruncateFile(name=name, size_bytes=size_bytes):
                truncate(self._path(name), size_bytes)
            case AppendPart(name=name, position=position, size_bytes=size_bytes):
                end = position + size_bytes
                append_part(action.source, self._path(name), position, end, mtime_ns=action.mtime_ns)
            case WriteFile(name=name) | CopyPart(name=name) | RestoreFile(name=name):
                if self._is_staged(name):
                    self._rename(name + TEMPORARY_SUFFIX, name)
        return False

    def _is_staged(self, name: str) -> bool:
        """Whether what is to be called *name* still waits for it."""
        return self._present.get(name + TEMPORARY_SUFFIX) == self._commit.staged[name].inode

    def _is_first(self, name: str) -> bool:
        """Whether the file that is called *name* now is the one that was called so at the start."""
        before = self._commit.before.get(name)
        return before is not None and self._present.get(name) == before.inode

    def _rename(self, old: str, new: str) -> None:
        os.rename(self._path(old), self._path(new))
        self._present[new] = self._present.pop(old)
        self._has_unsynced_names = True

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}"


def _seals(action: Action) -> TypeGuard[WriteFile | CopyPart | RestoreFile]:
    return isinstance(action, WriteFile | CopyPart | RestoreFile) and seals_segment(action.name)


def _stage_action(
    folder: str, action: WriteFile | CopyPart | RestoreFile, temporary: str, path: str
) -> os.stat_result:
    match action:
        case WriteFile(data=data, size_bytes=size_bytes):
            return write_new(temporary, bytes(data), size_bytes=size_bytes, like=path)
        case CopyPart(source=source, position=position, size_bytes=size_bytes):
            whole = os.path.join(folder, source)
            copy_new(whole, temporary, position=position, size_bytes=size_bytes, like=path)
        case RestoreFile(source=source):
            try:
                os.link(source, temporary)
            except OSError:
                copy_new(source, temporary, like=source)
    return os.stat(temporary)


def _file_stat(found: os.stat_result) -> FileStat:
    return FileStat(size_bytes=found.st_size, mtime_ns=found.st_mtime_ns, inode=found.st_ino)
