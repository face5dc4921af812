"""Removing runs from quarantine: what a manifest names, by name, kind and size, and nothing else.

A run that holds anything more is left whole, and said; a copy that a run did not come to enter in the manifest, since
it was killed, is such a thing, for nothing tells it from a file of somebody else. So is what came into a folder since
that was moved here; where the manifest does not list what was in it, the folder is named as a whole. The manifest goes
last: a purge that was killed is done again. No link is followed below the folder of all runs.

A purge does not take `.lock`. Quarantine is nothing to a broker, and the time to purge is when the broker is up again
and its partitions are in sync. What a purge must not meet is a recovery or an undo; they and it take
`recovery/logdir/work_lock.py`'s lock. And where one of them was interrupted, quarantine is what the next one goes on
from.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from recovery.engine.cut_ledger import CutLedger
from recovery.errors import JournalError, UnsafeError
from recovery.logdir.quarantine_place import JOURNAL, JOURNALS, quarantine_roots
from recovery.logdir.work_lock import WorkLocks
from recovery.plan.actions import LOG_DIR_ITSELF
from recovery.plan.manifest import FILE, FOLDER, OTHER, StoredEntry
from recovery.read.file_system import is_folder, naming, opened_folder
from recovery.saved.runs import (
    FoundFile,
    QuarantineRun,
    Releases,
    list_runs,
    read_run,
    walk_files,
    walk_folders,
)
from recovery.write.journal import Journal
from recovery.write.quarantine import MANIFEST
from recovery.write.undo_notice import UNDO_NOTICE, entered_undo
from segfmt.errors import FileNameError
from segfmt.filenames import read_folder_name


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgedRun:
    """What became of one run.

    Attributes:
        freed_bytes: on disk; a file that has a name elsewhere, in the log dir for one, frees nothing.
        problem: why the run is still there; None where it is gone, or would be.
    """

    run: QuarantineRun
    file_count: int
    freed_bytes: int
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirPurge:
    """What became of the runs that were chosen, the oldest first."""

    log_dir: str
    runs: tuple[PurgedRun, ...]


def runs_of(log_dir: str, quarantine_dir: str | None) -> list[QuarantineRun]:
    """Return the runs of *log_dir*, the oldest first.

    In a `--quarantine-dir` two log dirs may share a folder (`/a/b` and `/a_b`): runs of the other one are left out.
    """
    runs = [run for root in quarantine_roots(log_dir, quarantine_dir) for run in list_runs(root)]
    if quarantine_dir is not None:
        runs = [run for run in runs if run.manifest.log_dir in (None, log_dir)]
    return sorted(runs, key=lambda run: (run.started_ms, run.name))


def unfinished(log_dir: str, quarantine_dir: str | None) -> list[str]:
    """Return the journals of runs on *log_dir* that are at work, or were interrupted.

    Raises:
        JournalError: there is one that cannot be read.
    """
    found = []
    for root in quarantine_roots(log_dir, quarantine_dir):
        for name in JOURNALS:
            journal = Journal.open(os.path.join(root, name), read_only=True)
            if journal is not None:
                found.append(journal.path)
                journal.close()
    return found


def purge(
    log_dirs: Iterable[str],
    quarantine_dir: str | None,
    choose: Callable[[QuarantineRun], bool],
    *,
    dry_run: bool = False,
) -> tuple[LogDirPurge, ...]:
    """Remove the runs that *choose* chooses from the quarantine of each log dir.

    Args:
        log_dirs: absolute paths; one that is gone may still have its quarantine.
        dry_run: change nothing, say what would go.

    Raises:
        LogDirLockedError: a recovery, an undo or another purge is at work; nothing was changed.
        UnsafeError: a recovery or an undo was interrupted; nothing was changed.
        OSError: quarantine cannot be read.
    """
    log_dirs = tuple(log_dirs)
    with WorkLocks(path for path in log_dirs if is_folder(path)):
        for log_dir in log_dirs:
            _refuse_unfinished(log_dir, quarantine_dir)
        releases = Releases()
        chosen = {
            log_dir: [run for run in runs_of(log_dir, quarantine_dir) if choose(run)] for log_dir in log_dirs
        }
        return tuple(
            LogDirPurge(log_dir=log_dir, runs=tuple(_purged(log_dir, runs, releases, dry_run=dry_run)))
            for log_dir, runs in chosen.items()
        )


def _purged(
    log_dir: str, runs: Iterable[QuarantineRun], releases: Releases, *, dry_run: bool
) -> Iterator[PurgedRun]:
    """Purge *runs* and yield what becomes of each; one with cuts that nobody has been told of stays."""
    entries = CutLedger(log_dir).entries()
    untold = {os.path.basename(entry.quarantine) for entry in entries if entry.cuts and entry.quarantine}
    for run in runs:
        if run.name in untold:
            problem = (
                "it has what was cut, of which nobody has been told yet. Nothing of this run was removed. Remedy: run "
                "recover, whose report tells of it, then purge again"
            )
            yield PurgedRun(run=run, file_count=0, freed_bytes=0, problem=problem)
        else:
            yield _purge_run(run, releases, dry_run)


def _refuse_unfinished(log_dir: str, quarantine_dir: str | None) -> None:
    try:
        journals = unfinished(log_dir, quarantine_dir)
    except JournalError as error:
        raise UnsafeError(f"{error}. Nothing was purged") from error
    if entered_undo(log_dir) is not None:
        journals.append(os.path.join(log_dir, UNDO_NOTICE))
    for path in journals:
        word = "recover" if os.path.basename(path) == JOURNAL else "undo"
        raise UnsafeError(
            f"{path}: {word} was interrupted on {log_dir}, and goes on from what is in quarantine. Nothing was "
            f"purged. Remedy: let {word} finish; or, if a broker was started since, remove that file, which is of no "
            "use then"
        )


def foreign_files(run: QuarantineRun) -> list[str]:
    """Return what is in a run's folder and is not what its manifest names."""
    named = {entry.stored: entry for entry in run.manifest.entries}
    files = [file.path for file in run.files if not _is_ours(file, named)]
    return files + [path for path in run.empty_folders if not _is_our_folder(path, named)]


def _is_ours(file: FoundFile, named: Mapping[str, StoredEntry]) -> bool:
    """Whether *file* is what a line of the manifest says, or the manifest."""
    if file.path == MANIFEST:
        return file.is_regular
    entry = named.get(file.path)
    if entry is not None and file.is_regular and entry.contents is None:
        return file.size_bytes == entry.size_bytes
    return _is_moved(file.path, FILE if file.is_regular else OTHER, file.size_bytes, named)


def _is_moved(path: str, kind: str, size_bytes: int, named: Mapping[str, StoredEntry]) -> bool:
    """Whether what is at *path* is what was moved here as a whole, or came here in that."""
    parts = path.split("/")
    for count in range(1, len(parts) + 1):
        entry = named.get("/".join(parts[:count]))
        if entry is not None and entry.has_moved("/".join(parts[count:]), kind, size_bytes):
            return True
    return False


def _is_our_folder(path: str, named: Mapping[str, StoredEntry]) -> bool:
    """Whether an empty folder is one that the manifest names something in, or that a run made before it was killed."""
    if path == LOG_DIR_ITSELF or _is_moved(path, FOLDER, 0, named):
        return True
    if any(stored.startswith(f"{path}/") for stored in named):
        return True
    with contextlib.suppress(FileNameError):
        read_folder_name(path)
        return "/" not in path
    return False


def _purge_run(run: QuarantineRun, releases: Releases, dry_run: bool) -> PurgedRun:
    foreign = foreign_files(run)
    if foreign:
        more = f" and {len(foreign) - 3} more" if len(foreign) > 3 else ""
        return PurgedRun(
            run=run,
            file_count=0,
            freed_bytes=0,
            problem=f"{', '.join(foreign[:3])}{more}: not named by the manifest with this kind and size: somebody "
            "else's, or a copy of a run that was killed. Nothing of this run was removed. Remedy: move it away, then "
            "purge again",
        )
    gone: list[FoundFile] = []
    problem = None
    if dry_run:
        gone.extend(run.files)
    else:
        try:
            _remove(run, {file.path: file for file in run.files}, gone)
        except OSError as error:
            problem = str(error)
    freed_bytes = sum(releases.release(file) for file in gone)
    return PurgedRun(run=run, file_count=len(gone), freed_bytes=freed_bytes, problem=problem)


def remove_undone(root: str, name: str) -> None:
    """Remove what the manifest names of the run *name* in the folder *root*, and the manifest; all else stays.

    Raises:
        OSError: some of it is still there.
    """
    run = read_run(root, name)
    if run is not None:
        foreign = frozenset(foreign_files(run))
        _remove(run, {file.path: file for file in run.files if file.path not in foreign}, [], kept=foreign)


def _remove(
    run: QuarantineRun,
    listed: Mapping[str, FoundFile],
    gone: list[FoundFile],
    kept: Collection[str] = (),
) -> None:
    """Remove the files *listed* of *run*, and folders that are empty then, but those *kept*; note what is *gone*."""
    with opened_folder(run.root) as root:
        for file, folder in walk_files(root, run.name):
            is_same = file.path in listed and listed[file.path].inode == file.inode
            if is_same and file.path != MANIFEST:
                os.unlink(os.path.basename(file.path), dir_fd=folder)
                gone.append(listed[file.path])
        for path, folder, entries in walk_folders(root, run.name):
            for name, found in entries.items():
                is_kept = os.path.join(path, name).removeprefix(f"{run.name}/") in kept
                if not stat.S_ISREG(found.st_mode) and not is_kept:
                    # What has become a link meanwhile is an error.
                    _remove_empty(name, folder)
            if path == run.name and not kept and (left := set(os.listdir(folder)) - {MANIFEST}):
                raise OSError(
                    errno.ENOTEMPTY, "it came while this run was purged, or lies too deep", min(left)
                )
            if path == run.name and MANIFEST in listed:
                os.unlink(MANIFEST, dir_fd=folder)
                gone.append(listed[MANIFEST])
        _remove_empty(run.name, root)
        with naming(run.root):
            os.fsync(root)
    with contextlib.suppress(OSError):
        os.rmdir(run.root)  # not empty, or the operator's own link


def _remove_empty(name: str, folder: int) -> None:
    """Remove the folder *name* in *folder*; one that is not empty holds what is not ours."""
    try:
        os.rmdir(name, dir_fd=folder)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
