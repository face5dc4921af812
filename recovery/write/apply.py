"""The only writer. It carries out plans: what is lost is saved, what is new is staged, then all is published.

Up to the commit nothing that was there has changed except the broker's own pending deletions, which it would carry out,
too, and which may free the space that a full disk needs. After it every action is a rename, a link, a cut or an unlink.
Any failure raises `OSError`; before the commit it leaves everything as it was.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TypeGuard

from recovery.errors import JournalError
from recovery.load.model import FileStat, RemovalKind
from recovery.logdir.listing import file_stat, list_files
from recovery.plan.actions import (
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
from recovery.plan.commit import Commit
from recovery.read.file_system import keeps_inodes, read_at
from recovery.write.durable import (
    append_part,
    copy_new,
    copy_opened,
    link_opened,
    opened,
    remove_file,
    sync,
    sync_all,
    truncate,
    write_new,
)
from recovery.write.quarantine import Quarantine
from segfmt.filenames import FileKind, file_kind

_END_BYTES = 64 << 10
OpenSaved = Callable[[str], AbstractContextManager[int]]
"""Opens a file saved from a folder, by its name in quarantine, after checking that it is what the manifest says."""


def _nothing_saved(name: str) -> AbstractContextManager[int]:
    raise JournalError(
        f"{name}: the journal of a recovery restores it from quarantine, which no recovery does. "
        "Remedy: begin anew with --restart"
    )


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
        files: what is in the folder, as the plan assumes.
        enter: brings the commit to disk, with what it has saved; from then on it must be carried out.
        is_tidy: see `stage`.

    Returns:
        The paths in quarantine that hold what is lost from the log.
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
        bring_to_disk=quarantine.sync,  # one wait for what is staged and what is saved
        has_removed=bool(pending),
        is_tidy=is_tidy,
    )
    enter(commit, saved)  # if it fails, the commit may still count, so what is staged stays for the next run
    quarantine.note_change(commit, publish(folder, commit))
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
    open_saved: OpenSaved = _nothing_saved,
) -> Commit:
    """Write what *actions* make in *folder* under temporary names, durably, and return the commit over all.

    Args:
        name: of the folder, for the commit.
        files: what is there; files that an earlier run has staged do not count, and are removed.
        bring_to_disk: waits until what was written, and all else that the commit depends on, is on disk.
        has_removed: whether something was removed there that must not come back after a power failure.
        is_tidy: whether no earlier run has left anything there.
        open_saved: opens files of this folder that are in quarantine, by their names there.
    """
    if not is_tidy:
        unstage(folder)
    staged: dict[str, FileStat] = {}
    try:
        for action in actions:
            if _is_staged(action):
                path = f"{folder}/{action.name}"
                made = _stage_action(folder, action, path + TEMPORARY_SUFFIX, path, open_saved)
                staged[action.name] = file_stat(made)
        is_changed = bool(staged) or has_removed
        paths = [f"{folder}/{name}{TEMPORARY_SUFFIX}" for name in staged]
        bring_to_disk([*paths, folder] if is_changed else [])
    except BaseException:
        unstage(folder)
        raise
    before = {file: stat for file, stat in files.items() if not file.endswith(TEMPORARY_SUFFIX)}
    commit = Commit(folder=name, before=before, staged=staged, actions=actions)
    return commit if keeps_inodes(folder) else replace(commit, contents=_contents(folder, commit, ()))


def unstage(folder: str) -> None:
    """Remove the staged files that a run that ended before its commit has left in *folder*."""
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries if entry.name.endswith(TEMPORARY_SUFFIX)]
    for name in names:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(folder, name))


def remove_uncommitted(folder: str, commit: Commit) -> None:
    """Remove from *folder* what was staged after *commit*, for another that was never entered.

    Their names may be the same, and `publish` would take the later files for those of *commit*.
    """
    with os.scandir(folder) as entries:
        staged = [entry for entry in entries if entry.name.endswith(TEMPORARY_SUFFIX)]
    for entry in staged:
        made, found = commit.staged.get(entry.name.removesuffix(TEMPORARY_SUFFIX)), entry.stat()
        if made is None or (found.st_size, found.st_mtime_ns) != (made.size_bytes, made.mtime_ns):
            remove_file(entry.path)


def publish(
    folder: str, commit: Commit, *, open_saved: OpenSaved = _nothing_saved, may_have_moved: bool = False
) -> dict[str, FileStat]:
    """Do the actions of *commit* that are not done yet, in order, bring them to disk, and return what is then there.

    Args:
        open_saved: see `stage`.
        may_have_moved: whether the folder may have been copied to another disk since the commit.

    Raises:
        OSError: an action failed, or none did and the folder is still not what the commit says.
    """
    pending = commit.pending(os.listdir(folder))
    if len(pending) < len(commit.actions):
        sync(folder)  # a killed run has done the others, and may not have waited for the disk
    for _ in _steps(folder, commit, pending, open_saved):
        sync(folder)
    return _checked(folder, commit, by_inode=keeps_inodes(folder) and not may_have_moved)


def publish_staged(commits: Mapping[str, Commit]) -> dict[str, dict[str, FileStat]]:
    """Do the actions of all *commits*, none of which is begun, bring them to disk, and return what is then there.

    When one has to wait for the disk, all wait together, so that there are only as many waits as a single one needs.

    Args:
        commits: by path of the folder, as `stage` has made them: nothing else was there.

    Raises:
        OSError: as `publish`.
    """
    steps = {folder: _steps(folder, commit, commit.actions) for folder, commit in commits.items()}
    while steps:
        waiting = [folder for folder, step in steps.items() if next(step, None) is not None]
        sync_all(waiting)
        steps = {folder: steps[folder] for folder in waiting}
    return {
        folder: _checked(folder, commit, by_inode=keeps_inodes(folder)) for folder, commit in commits.items()
    }


def _steps(
    folder: str, commit: Commit, actions: Iterable[Action], open_saved: OpenSaved = _nothing_saved
) -> Iterator[str]:
    """Do *actions*, which are left of *commit*; yield the folder when it must be on disk before the next one."""
    has_unsynced_names = has_unsynced_removals = False
    for action in actions:
        if (has_unsynced_names and _seals(action)) or (
            has_unsynced_removals and isinstance(action, RenameFile)
        ):
            yield folder  # an index vouches for its segment; a broker that finds no .swap keeps old snapshots
            has_unsynced_names = has_unsynced_removals = False
        _do(folder, commit, action, open_saved)
        if isinstance(action, RenameFile | LinkFile):
            yield folder  # a later cut must not reach the disk before the segments after it are gone
            has_unsynced_names = has_unsynced_removals = False
        elif _is_staged(action):
            # An offset index vouches for all else of its segment, and for no other index
            has_unsynced_names |= file_kind(action.name) is not FileKind.OFFSET_INDEX
        else:
            has_unsynced_removals |= isinstance(action, RemoveFile)
    if commit.actions:
        yield folder


def _do(folder: str, commit: Commit, action: Action, open_saved: OpenSaved) -> None:
    match action:
        case RemoveFile(name=name):
            remove_file(f"{folder}/{name}")
        case RenameFile(old=old, new=new):
            os.rename(f"{folder}/{old}", f"{folder}/{new}")
        case LinkFile(old=old, new=new):
            os.link(f"{folder}/{old}", f"{folder}/{new}")
        case TruncateFile(name=name, size_bytes=size_bytes):
            first = commit.origins().get(name)
            found_bytes = None if first is None else commit.before[first].size_bytes
            truncate(f"{folder}/{name}", size_bytes, found_bytes=found_bytes)
        case AppendPart(name=name, position=position, size_bytes=size_bytes):
            end, source = position + size_bytes, action.source
            with contextlib.nullcontext() if source is None else open_saved(source) as read:
                append_part(read, f"{folder}/{name}", position, end, mtime_ns=action.mtime_ns)
        case WriteFile(name=name) | CopyPart(name=name) | RestoreFile(name=name):
            os.rename(f"{folder}/{name}{TEMPORARY_SUFFIX}", f"{folder}/{name}")


def _checked(folder: str, commit: Commit, *, by_inode: bool) -> dict[str, FileStat]:
    """Return what is in *folder*, which must be what *commit* leaves.

    A file system may report success for what it has not done: an overlay, a network file system, a program on FUSE.
    """
    files = list_files(folder)
    name = commit.contradiction(files, by_inode=by_inode)
    if name is None and commit.contents:
        after = _contents(folder, commit, files)
        name = next((last for last, digest in after.items() if digest != commit.contents.get(last)), None)
    if name is not None:
        raise OSError(
            errno.EIO,
            "not as the plan should leave it, although the file system has reported no error. What was taken out is in "
            "quarantine",
            f"{folder}/{name}",
        )
    return files


def _contents(folder: str, commit: Commit, present: Container[str]) -> dict[str, str]:
    """Return digests of the parts that stay of the files that *commit* moves, links or cuts, by final name.

    Only the two ends of a large file count. A file that already has its final name is in *present*.
    """
    kept = {action.name: action.size_bytes for action in commit.actions if isinstance(action, TruncateFile)}
    digests = {}
    for last, first in commit.origins().items():
        if last != first or last in kept:
            name = last if last in present else first
            size_bytes = kept.get(last, commit.before[first].size_bytes)
            with contextlib.suppress(FileNotFoundError):  # `.deleted` may be gone: quarantine has it
                digests[last] = _digest_of_ends(f"{folder}/{name}", size_bytes)
    return digests


def _digest_of_ends(path: str, size_bytes: int) -> str:
    with opened(path, os.O_RDONLY | os.O_NOFOLLOW) as descriptor:
        head = read_at(descriptor, 0, min(size_bytes, _END_BYTES))
        tail = read_at(descriptor, max(size_bytes - _END_BYTES, 0), min(size_bytes, _END_BYTES))
    return hashlib.sha256(head + tail).hexdigest()


def _is_staged(action: Action) -> TypeGuard[WriteFile | CopyPart | RestoreFile]:
    return isinstance(action, WriteFile | CopyPart | RestoreFile)


def _seals(action: Action) -> bool:
    return _is_staged(action) and seals_segment(action.name)


def _stage_action(
    folder: str,
    action: WriteFile | CopyPart | RestoreFile,
    temporary: str,
    path: str,
    open_saved: OpenSaved,
) -> os.stat_result:
    match action:
        case WriteFile(data=data, size_bytes=size_bytes, mtime_ns=mtime_ns):
            return write_new(temporary, bytes(data), size_bytes=size_bytes, like=path, mtime_ns=mtime_ns)
        case CopyPart(source=source, position=position, size_bytes=size_bytes):
            whole = os.path.join(folder, source)
            copy_new(whole, temporary, position=position, size_bytes=size_bytes, like=path)
        case RestoreFile(source=source):
            with open_saved(source) as read:
                if not link_opened(read, temporary):
                    copy_opened(read, temporary)
    return os.stat(temporary)
