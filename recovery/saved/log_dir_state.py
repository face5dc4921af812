"""The folders of a log dir as an `undo` finds them, and as they will be once it has taken some runs back.

Several runs are taken back only if all can be, so the older ones are compared with what undoing the newer ones leaves.
"""

from __future__ import annotations

import os

from recovery.engine.report import CUT_LEDGER
from recovery.load.model import FileStat
from recovery.logdir.listing import list_files
from recovery.plan.actions import LOG_DIR_ITSELF, TEMPORARY_SUFFIX
from recovery.plan.undo_plan import Change, Saved
from recovery.read.file_system import is_link
from recovery.saved.saved_files import is_same_file
from recovery.write.undo_notice import UNDO_NOTICE
from segfmt.filenames import DELETED_SUFFIX, LOCK_FILE

_ANY = -1
_OTHERS_FILES = frozenset({LOCK_FILE, CUT_LEDGER, UNDO_NOTICE})
"""Files of a log dir that appear and disappear without a recovery."""


class LogDirState:
    """What lies in the folders of a log dir: now, or once some runs are taken back."""

    def __init__(self, log_dir: str) -> None:
        self._log_dir = log_dir
        self._files_after: dict[str, dict[str, FileStat]] = {}
        self.moved_back: set[tuple[str, str]] = set()
        """What a repair had moved away and undoing those runs puts back: folder and name."""

    def files(self, folder: str) -> dict[str, FileStat]:
        """Return the files of *folder* that a manifest accounts for."""
        return (
            dict(self._files_after[folder])
            if folder in self._files_after
            else files_in(self._log_dir, folder)
        )

    def differences(self, folder: str, change: Change) -> list[str]:
        """Return the names of files that are not as *change* has left them.

        A `.deleted` file may be gone: a broker or the next run may have removed it, and quarantine has it.
        """
        expected, current = change.after, self.files(folder)
        return sorted(
            name
            for name in (expected.keys() | current.keys()) - _OTHERS_FILES
            if not _is_same(expected.get(name), current.get(name))
            and not (name not in current and name.endswith(DELETED_SUFFIX))
        )

    def holds(self, folder: str, name: str, saved: Saved) -> bool:
        """Return whether the file *name* still has what was saved of it; judge by size what is yet to be taken back.

        Raises:
            OSError: it cannot be read.
        """
        stat, end = self.files(folder).get(name), saved.position + saved.size_bytes
        if stat is None or stat.size_bytes < end:
            return False
        path = os.path.join(folder_path(self._log_dir, folder), name)
        if saved.link is not None:
            return folder in self._files_after or (is_link(path) and os.readlink(path) == saved.link)
        if saved.is_tail or folder in self._files_after:
            return saved.is_tail or stat.size_bytes == end
        return stat.size_bytes == end and is_same_file(saved, path)

    def take_back(self, change: Change) -> None:
        """Take *change* back in this state."""
        folder = change.commit.folder
        files = self.files(folder)
        kept = {name: stat for name, stat in files.items() if name not in change.commit.made}
        pending = {
            name: FileStat(size_bytes=saved.size_bytes if saved.link is None else _ANY, mtime_ns=_ANY)
            for name, saved in change.saved.items()
            if name not in change.commit.before and not saved.is_tail
        }
        self._files_after[folder] = {**kept, **pending, **change.commit.before}


def files_in(log_dir: str, folder: str) -> dict[str, FileStat]:
    """Return the files that are in *folder* now and that a manifest accounts for."""
    try:
        files = list_files(folder_path(log_dir, folder))
    except FileNotFoundError:
        return {}
    return {
        name: stat
        for name, stat in files.items()
        if not name.endswith(TEMPORARY_SUFFIX) and name not in _OTHERS_FILES
    }


def folder_path(log_dir: str, folder: str) -> str:
    """Return the path of *folder*, as a commit names it: a partition's, or that of the log dir's own files."""
    return log_dir if folder == LOG_DIR_ITSELF else os.path.join(log_dir, folder)


def _is_same(expected: FileStat | None, current: FileStat | None) -> bool:
    """Whether a file is unchanged, whatever its inode: another `undo` may have put it back."""
    if expected is None or current is None:
        return expected is current
    pairs = ((expected.mtime_ns, current.mtime_ns), (expected.size_bytes, current.size_bytes))
    return all(_ANY in pair or pair[0] == pair[1] for pair in pairs)
