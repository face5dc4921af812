"""Removing runs from quarantine: what a manifest names and what a run lays out, and nothing else.

A run that holds anything more is left whole, and said. The manifest goes last: a purge that was killed is done
again. No link is followed below the folder of all runs.

A purge does not take `.lock`. Quarantine is nothing to a broker, and the time to purge is when the broker is up again
and its partitions are in sync. What a purge must not meet is a recovery or an undo; they and it take
`recovery/work_lock.py`'s lock. And where one of them was interrupted, quarantine is what the next one goes on from.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable

from recovery.actions import LOG_DIR_ITSELF
from recovery.errors import JournalError, UnsafeError
from recovery.file_system import is_folder
from recovery.journal import Journal
from recovery.manifest import names_of
from recovery.quarantine import JOURNAL, JOURNALS, MANIFEST, quarantine_roots
from recovery.quarantine_runs import (
    FoundFile,
    QuarantineRun,
    Releases,
    list_runs,
    opened_folder,
    walk_files,
)
from recovery.work_lock import WorkLocks
from segfmt.errors import FileNameError
from segfmt.filenames import read_folder_name
from segfmt.value_class import dataclass


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
            LogDirPurge(log_dir=log_dir, runs=tuple(_purge_run(run, releases, dry_run) for run in runs))
            for log_dir, runs in chosen.items()
        )


def _refuse_unfinished(log_dir: str, quarantine_dir: str | None) -> None:
    try:
        journals = unfinished(log_dir, quarantine_dir)
    except JournalError as error:
        raise UnsafeError(f"{error}. Nothing was purged") from error
    for path in journals:
        word = os.path.basename(path).replace(JOURNAL, "recover")
        raise UnsafeError(
            f"{path}: {word} was interrupted on {log_dir}, and goes on from what is in quarantine. Nothing was "
            f"purged. Remedy: let {word} finish; or, if a broker was started since, remove that file, which is of no "
            "use then"
        )


def foreign_files(run: QuarantineRun) -> list[str]:
    """Return what is in a run's folder that neither the manifest names nor a run lays out."""
    named = names_of(run.manifest.entries)
    return [file.path for file in run.files if not _is_ours(file, named)]


def _is_ours(file: FoundFile, named: frozenset[str]) -> bool:
    """Whether a run has put *file* where it is.

    A copy without its line in the manifest is of a run that was killed before it touched the file.
    """
    parts = file.path.split("/")
    if any("/".join(parts[:count]) in named for count in range(1, len(parts) + 1)):
        return True
    if not file.is_regular:
        return False
    return file.path == MANIFEST or (len(parts) == 2 and _is_folder_of_run(parts[0]))


def _is_folder_of_run(name: str) -> bool:
    with contextlib.suppress(FileNameError):
        return name == LOG_DIR_ITSELF or bool(read_folder_name(name))
    return False


def _purge_run(run: QuarantineRun, releases: Releases, dry_run: bool) -> PurgedRun:
    foreign = foreign_files(run)
    if foreign:
        more = f" and {len(foreign) - 3} more" if len(foreign) > 3 else ""
        return PurgedRun(
            run=run,
            file_count=0,
            freed_bytes=0,
            problem=f"{', '.join(foreign[:3])}{more}: not put there by a recovery. Nothing of this run was removed. "
            "Remedy: move it away, then purge again",
        )
    gone: list[FoundFile] = []
    problem = None
    if dry_run:
        gone.extend(run.files)
    else:
        try:
            _remove(run, gone)
        except OSError as error:
            problem = str(error)
    freed_bytes = sum(releases.release(file) for file in gone)
    return PurgedRun(run=run, file_count=len(gone), freed_bytes=freed_bytes, problem=problem)


def _remove(run: QuarantineRun, gone: list[FoundFile]) -> None:
    """Remove *run*, and the folder of all runs where it was the last one; note in *gone* what is gone."""
    listed = {file.path: file for file in run.files}
    with opened_folder(run.root) as root:
        for file, folder in walk_files(root, run.name):
            if file.path in listed and file.path != MANIFEST:
                os.unlink(os.path.basename(file.path), dir_fd=folder)
                gone.append(listed[file.path])
        for path, folders, _, folder in os.fwalk(run.name, topdown=False, dir_fd=root):
            for name in folders:
                os.rmdir(name, dir_fd=folder)
            if path == run.name:
                _remove_manifest(run, folder, gone)
        os.rmdir(run.name, dir_fd=root)
        os.fsync(root)
    with contextlib.suppress(OSError):
        os.rmdir(run.root)  # not empty, or the operator's own link


def _remove_manifest(run: QuarantineRun, folder: int, gone: list[FoundFile]) -> None:
    for file in run.files:
        if file.path == MANIFEST:
            os.unlink(MANIFEST, dir_fd=folder)
            gone.append(file)
