"""Removing runs from quarantine: what the manifest names, by name, kind and size, and nothing else.

A run that holds anything more is left whole, and reported. That includes a copy that a killed run did not enter in the
manifest, since nothing distinguishes it from a foreign file, and what was added to a folder after it was moved here; if
the manifest does not list the contents of that folder, the folder is reported as a whole. The manifest is removed
last, so that a purge that was killed can be repeated. No link is followed below the folder of all runs.

A purge does not take `.lock`. A broker does not use quarantine, and the time to purge is when the broker is up again
and its partitions are in sync. What a purge must not meet is a recovery or an undo: all three take the lock of
`recovery/logdir/work_lock.py`. If one of those was interrupted, the next one resumes from quarantine, and nothing is
purged.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from recovery.engine.cut_ledger import CutLedger
from recovery.errors import InterruptedRecoveryError, JournalError, UnsafeError, error_text
from recovery.logdir.quarantine_place import JOURNAL, JOURNALS, quarantine_roots
from recovery.logdir.user import access_remedy
from recovery.logdir.work_lock import WorkLocks
from recovery.plan.actions import LOG_DIR_ITSELF
from recovery.plan.manifest import FILE, FOLDER, OTHER, StoredEntry
from recovery.quantity import listed_text
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
from recovery.watch.tally import Tally
from recovery.write.journal import Journal
from recovery.write.move_in import FINISH_RESTORE, has_intent
from recovery.write.quarantine import MANIFEST
from recovery.write.undo_notice import UNDO_NOTICE, entered_undo
from segfmt.errors import FileNameError
from segfmt.filenames import read_folder_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Hindrance:
    """Why a purge leaves a run whole.

    Attributes:
        rule: the same as an identifier: untold-cuts or foreign-file.
    """

    reason: str
    remedy: str
    rule: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgedRun:
    """What became of one run.

    Attributes:
        freed_bytes: on disk; a file that has another name elsewhere, as in the log dir, frees nothing.
        problem: why the run is still there; None if it is gone, or would be.
        rule: the same as an identifier: untold-cuts, foreign-file, interrupted or io-error.
    """

    run: QuarantineRun
    file_count: int
    freed_bytes: int
    problem: str | None = None
    rule: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirPurge:
    """What became of the chosen runs, the oldest first."""

    log_dir: str
    runs: tuple[PurgedRun, ...]


def runs_of(log_dir: str, quarantine_dir: str | None) -> list[QuarantineRun]:
    """Return the runs of *log_dir*, the oldest first; in a `--quarantine-dir` without those of another log dir."""
    runs = [run for root in quarantine_roots(log_dir, quarantine_dir) for run in list_runs(root)]
    if quarantine_dir is not None:
        runs = [run for run in runs if not _is_another(run.manifest.log_dir, log_dir)]
    return sorted(runs, key=lambda run: (run.started_ms, run.name))


def _is_another(named: str | None, log_dir: str) -> bool:
    """Whether *named* is not *log_dir*, be it by another name, or one that it had."""
    if named in (None, log_dir):
        return False
    with contextlib.suppress(OSError):
        return not os.path.samefile(named, log_dir)
    return False


def unfinished(log_dir: str, quarantine_dir: str | None) -> list[str]:
    """Return the journals of runs on *log_dir* that are at work, or were interrupted, and the notice of an `undo`.

    Raises:
        JournalError: one of them cannot be read.
    """
    journals = []
    for root in quarantine_roots(log_dir, quarantine_dir):
        for name in JOURNALS:
            journal = Journal.open(os.path.join(root, name), read_only=True)
            if journal is not None:
                journals.append(journal.path)
                journal.close()
    if entered_undo(log_dir) is not None:
        journals.append(os.path.join(log_dir, UNDO_NOTICE))
    return journals


def purge(
    log_dirs: Iterable[str],
    quarantine_dir: str | None,
    choose: Callable[[QuarantineRun], bool],
    *,
    dry_run: bool = False,
    tally: Tally | None = None,
    check_stop: Callable[[], None] = lambda: None,
) -> tuple[LogDirPurge, ...]:
    """Remove the runs that *choose* accepts from the quarantine of each log dir.

    Args:
        log_dirs: absolute paths; one that is gone may still have its quarantine.
        dry_run: change nothing, report what would be removed.
        tally: counts the files.
        check_stop: raises InterruptedRecoveryError if no more is to be removed: what is left has that as its problem.

    Raises:
        LogDirLockedError: a recovery, an undo or another purge is at work; nothing was changed.
        UnsafeError: a recovery or an undo was interrupted; nothing was changed.
        OSError: quarantine cannot be read.
    """
    log_dirs = tuple(log_dirs)
    tally = tally or Tally()
    with WorkLocks(path for path in log_dirs if is_folder(path)):
        for log_dir in log_dirs:
            _refuse_unfinished(log_dir, quarantine_dir)
        releases = Releases()
        chosen = {
            log_dir: [run for run in runs_of(log_dir, quarantine_dir) if choose(run)] for log_dir in log_dirs
        }
        tally.expect(sum(len(run.files) for runs in chosen.values() for run in runs))
        purged: list[LogDirPurge] = []
        for log_dir, runs in chosen.items():
            untold = untold_runs(log_dir)
            ended = (
                _purge_run(run, hindrance(run, untold), releases, tally, check_stop, dry_run=dry_run)
                for run in runs
            )
            purged.append(LogDirPurge(log_dir=log_dir, runs=tuple(ended)))
        return tuple(purged)


def untold_runs(log_dir: str) -> frozenset[str]:
    """Return the names of the runs that hold what was cut from *log_dir* and has not been reported yet."""
    entries = CutLedger(log_dir).entries()
    return frozenset(
        os.path.basename(entry.quarantine) for entry in entries if entry.cuts and entry.quarantine
    )


def hindrance(run: QuarantineRun, untold: Collection[str]) -> Hindrance | None:
    """Return why a purge would leave *run*, None if it would not; *untold* is of `untold_runs`."""
    if run.name in untold:
        return Hindrance(
            reason="it holds what was cut and has not been reported yet",
            remedy="run recover, whose report mentions it, then purge again",
            rule="untold-cuts",
        )
    if foreign := foreign_files(run):
        return Hindrance(
            reason=f"{listed_text(foreign, 3)}: not named by the manifest with this kind and size: a foreign file, or "
            "a copy made by a run that was killed",
            remedy="move it away, then purge again",
            rule="foreign-file",
        )
    return None


def _refuse_unfinished(log_dir: str, quarantine_dir: str | None) -> None:
    try:
        journals = unfinished(log_dir, quarantine_dir)
    except JournalError as error:
        raise UnsafeError(f"{error_text(error)}. Nothing was purged") from error
    if has_intent(log_dir):
        raise UnsafeError(
            f"{log_dir}: a restore was interrupted while it moved partitions into it, and goes on in what is in "
            f"quarantine. Nothing was purged. Remedy: {FINISH_RESTORE}"
        )
    for path in journals:
        word = "recover" if os.path.basename(path) == JOURNAL else "undo"
        raise UnsafeError(
            f"{path}: {word} was interrupted on {log_dir}, and needs what is in quarantine to resume. Nothing was "
            f"purged. Remedy: let {word} finish; if it cannot, it says why, and what to do"
        )


def foreign_files(run: QuarantineRun) -> list[str]:
    """Return what is in a run's folder but not named by its manifest."""
    named = {entry.stored: entry for entry in run.manifest.entries}
    files = [file.path for file in run.files if not _is_ours(file, named)]
    return files + [path for path in run.empty_folders if not _is_our_folder(path, named)]


def _is_ours(file: FoundFile, named: Mapping[str, StoredEntry]) -> bool:
    """Whether *file* is as a line of the manifest says, or is the manifest."""
    if file.path == MANIFEST:
        return file.is_regular
    entry = named.get(file.path)
    if entry is not None and file.is_regular and entry.contents is None:
        return file.size_bytes == entry.size_bytes
    if entry is not None and entry.link is not None:
        return not file.is_regular and file.size_bytes == len(os.fsencode(entry.link))
    return _is_moved(file.path, FILE if file.is_regular else OTHER, file.size_bytes, named)


def _is_moved(path: str, kind: str, size_bytes: int, named: Mapping[str, StoredEntry]) -> bool:
    """Whether what is at *path* was moved here as a whole, or as part of a folder that was."""
    parts = path.split("/")
    for count in range(1, len(parts) + 1):
        entry = named.get("/".join(parts[:count]))
        if entry is not None and entry.has_moved("/".join(parts[count:]), kind, size_bytes):
            return True
    return False


def _is_our_folder(path: str, named: Mapping[str, StoredEntry]) -> bool:
    """Whether the manifest names something in this empty folder, or a run has made it before it was killed."""
    if path == LOG_DIR_ITSELF or _is_moved(path, FOLDER, 0, named):
        return True
    if any(stored.startswith(f"{path}/") for stored in named):
        return True
    with contextlib.suppress(FileNameError):
        read_folder_name(path)
        return "/" not in path
    return False


def _purge_run(
    run: QuarantineRun,
    hindered: Hindrance | None,
    releases: Releases,
    tally: Tally,
    check_stop: Callable[[], None],
    *,
    dry_run: bool,
) -> PurgedRun:
    """Purge *run*, and return what becomes of it."""
    if hindered is not None:
        return PurgedRun(
            run=run,
            file_count=0,
            freed_bytes=0,
            problem=f"{hindered.reason}. Nothing of this run was removed. Remedy: {hindered.remedy}",
            rule=hindered.rule,
        )
    removed: list[FoundFile] = []
    problem: str | None = None
    rule: str | None = None
    if dry_run:
        removed.extend(run.files)
    else:
        try:
            _remove(run, {file.path: file for file in run.files}, removed, tally=tally, check_stop=check_stop)
        except InterruptedRecoveryError as error:
            gone = f"{len(removed):,} of its {len(run.files):,} files are gone"
            problem, rule = f"{error}; {gone}. Remedy: purge again", "interrupted"
        except OSError as error:
            problem, rule = f"{error_text(error)}. Remedy: {_remedy(error, run.path)}", "io-error"
    return PurgedRun(
        run=run,
        file_count=len(removed),
        freed_bytes=sum(releases.release(file) for file in removed),
        problem=problem,
        rule=rule,
    )


def _remedy(error: OSError, path: str) -> str:
    if error.errno == errno.EROFS:
        return "mount it read-write, then purge again"
    if isinstance(error, PermissionError):
        return access_remedy(path)
    return "look for I/O errors of its disk (dmesg), then purge again"


def remove_undone(root: str, name: str) -> None:
    """Remove what the manifest names of the run *name* in the folder *root*, then the manifest; all else stays.

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
    removed: list[FoundFile],
    kept: Collection[str] = (),
    tally: Tally | None = None,
    check_stop: Callable[[], None] = lambda: None,
) -> None:
    """Remove the *listed* files of *run*, and folders left empty, except for *kept*; append each file to *removed*."""
    tally = tally or Tally()
    with opened_folder(run.root) as root:
        for file, folder in walk_files(root, run.name):
            is_same = file.path in listed and listed[file.path].inode == file.inode
            if is_same and file.path != MANIFEST:
                check_stop()
                os.unlink(os.path.basename(file.path), dir_fd=folder)
                removed.append(listed[file.path])
                tally.add()
        for path, folder, entries in walk_folders(root, run.name):
            for name, entry_stat in entries.items():
                is_kept = os.path.join(path, name).removeprefix(f"{run.name}/") in kept
                if not stat.S_ISREG(entry_stat.st_mode) and not is_kept:
                    # A folder that has become a link meanwhile is an error.
                    _remove_empty(name, folder)
            with naming(run.path):
                foreign = set(os.listdir(folder)) - {MANIFEST} if path == run.name and not kept else set()
            if foreign:
                raise OSError(
                    errno.ENOTEMPTY, "it was added while this run was purged, or lies too deep", min(foreign)
                )
            if path == run.name and MANIFEST in listed:
                os.unlink(MANIFEST, dir_fd=folder)
                removed.append(listed[MANIFEST])
                tally.add()
        _remove_empty(run.name, root)
        with naming(run.root):
            os.fsync(root)
    with contextlib.suppress(OSError):
        os.rmdir(run.root)  # not empty, or the operator's own link


def _remove_empty(name: str, folder: int) -> None:
    """Remove the folder *name* in *folder* unless it is not empty, as then it holds foreign files."""
    try:
        os.rmdir(name, dir_fd=folder)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
