"""How much of its changes an interrupted run has made, entered in its manifest: it enters nothing more itself."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import replace
from stat import S_ISREG

from recovery.engine.handoff import HANDED_OVER_FILES, TEMPORARY_CHECKPOINTS
from recovery.errors import UnsafeError
from recovery.load.model import FileStat
from recovery.logdir.listing import file_stat, list_files
from recovery.plan.actions import LOG_DIR_ITSELF, TEMPORARY_SUFFIX
from recovery.plan.commit import Commit
from recovery.plan.undo_plan import read_account
from recovery.read.file_system import look_at
from recovery.write.quarantine import Quarantine, manifest_entries
from segfmt.filenames import DELETED_SUFFIX


def settle(log_dir: str, commit: Commit, quarantine: Quarantine) -> None:
    """Enter how much of *commit* is done, unless something else was at work in its folder."""
    path = log_dir if commit.folder == LOG_DIR_ITSELF else os.path.join(log_dir, commit.folder)
    try:
        files = list_files(path)
    except FileNotFoundError:
        return
    changed_files = own_files(log_dir) if commit.folder == LOG_DIR_ITSELF else files
    done = commit.done(changed_files)
    if done and commit.has_left(changed_files):
        quarantine.note_change(replace(commit, actions=done), _live(files))


def settle_deleted(log_dir: str, quarantine: Quarantine) -> None:
    """Enter which pending deletions a run has kept and carried out in folders where it was killed before a commit."""
    assert quarantine.run_folder is not None
    kept: dict[str, list[str]] = {}
    with contextlib.suppress(UnsafeError):  # a line of somebody else; `undo` says so
        for folder, name, _ in read_account(
            manifest_entries(quarantine.run_folder), quarantine.run_folder
        ).unused:
            if name.endswith(DELETED_SUFFIX):
                kept.setdefault(folder, []).append(name)
    for folder, names in kept.items():
        with contextlib.suppress(FileNotFoundError):
            files = _live(list_files(os.path.join(log_dir, folder)))
            if set(names) - files.keys():
                quarantine.note_change(Commit(folder=folder, before=files, staged={}, actions=()), files)


def _live(files: Mapping[str, FileStat]) -> dict[str, FileStat]:
    return {name: stat for name, stat in files.items() if not name.endswith(TEMPORARY_SUFFIX)}


def own_files(log_dir: str) -> dict[str, FileStat]:
    """Return those of the log dir's own files that a run writes and that exist, staged ones too."""
    files = {}
    names = (*HANDED_OVER_FILES, *TEMPORARY_CHECKPOINTS)
    for name in (*names, *(name + TEMPORARY_SUFFIX for name in HANDED_OVER_FILES)):
        stat = look_at(os.path.join(log_dir, name))
        if stat is not None and S_ISREG(stat.st_mode):
            files[name] = file_stat(stat)
    return files
