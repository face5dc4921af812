"""The clean-shutdown marker while a recovery is taken back: set aside first, put back last.

No broker may take the log dir for clean while it is halfway between its two states.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from recovery.load.model import RemovalKind
from recovery.plan.actions import LOG_DIR_ITSELF, TEMPORARY_SUFFIX, Action, RemoveFile, RestoreFile
from recovery.plan.undo_plan import Change, Saved
from recovery.read.file_system import is_link, is_there, look_at
from recovery.saved.saved_files import SavedFiles
from recovery.write.durable import copy_opened, opened_itself, remove_file, rename_anywhere, sync
from segfmt.filenames import CLEAN_SHUTDOWN_FILE


class KeptMarker:
    """The marker that a log dir had before a run that is taken back.

    Args:
        run: path of the run's folder in quarantine, where the marker waits.
        changes: what the run did, in order.
        saved: what the run has saved.
    """

    def __init__(self, log_dir: str, run: str, changes: Sequence[Change], saved: SavedFiles) -> None:
        self._path = os.path.join(log_dir, CLEAN_SHUTDOWN_FILE)
        self._kept_path = os.path.join(run, "kept-marker")
        self._changes = [change for change in changes if change.commit.folder == LOG_DIR_ITSELF]
        self._files = saved

    @property
    def actions(self) -> tuple[Action, ...]:
        """What is done to the marker; nothing if the run did not touch it."""
        actions: list[Action] = []
        if self._is_made:
            stat = look_at(self._path)
            size_bytes = 0 if stat is None else stat.st_size
            actions.append(
                RemoveFile(name=CLEAN_SHUTDOWN_FILE, size_bytes=size_bytes, kind=RemovalKind.DERIVED)
            )
        if (saved := self._saved) is not None:
            actions.append(RestoreFile(source=saved.stored, name=CLEAN_SHUTDOWN_FILE))
        return tuple(actions)

    @property
    def size_bytes(self) -> int:
        """Size of the marker that comes back; 0 if the run has not saved one."""
        return 0 if (saved := self._saved) is None else saved.size_bytes

    @property
    def is_held(self) -> bool:
        """Whether the run has removed it, and put no other in its place."""
        return self._saved is not None and not self._is_made

    def set_aside(self) -> None:
        """Put the old marker into quarantine to wait there, and remove the one that is there, durably.

        Raises:
            OSError: that failed; called again, it continues.
        """
        if self._was_there and not is_there(self._kept_path):
            temporary = self._kept_path + TEMPORARY_SUFFIX
            if (saved := self._saved) is not None:
                with self._files.opened(LOG_DIR_ITSELF, saved) as read:
                    copy_opened(read, temporary)
            else:
                with opened_itself(self._path) as read:
                    copy_opened(read, temporary)
            if not is_link(temporary):
                sync(temporary)
            rename_anywhere(temporary, self._kept_path)
        remove_file(self._path)
        sync(os.path.dirname(self._path))

    def put_back(self) -> None:
        """Put the old marker back into the log dir; do nothing if it had none, or has it again.

        Raises:
            OSError: that failed; called again, it continues.
        """
        if is_there(self._kept_path):
            rename_anywhere(self._kept_path, self._path)

    @property
    def _was_there(self) -> bool:
        """Whether it was there before; a run that only moved something away for a repair has not touched it."""
        if self._changes:
            return CLEAN_SHUTDOWN_FILE in self._changes[0].commit.before
        return is_there(self._path)

    @property
    def _is_made(self) -> bool:
        return any(CLEAN_SHUTDOWN_FILE in change.commit.made for change in self._changes)

    @property
    def _saved(self) -> Saved | None:
        saved_markers = (change.saved.get(CLEAN_SHUTDOWN_FILE) for change in self._changes)
        return next((saved for saved in saved_markers if saved is not None), None)


def without_marker(change: Change) -> Change:
    """Return *change* as if it had nothing to do with the marker."""
    before = {name: stat for name, stat in change.commit.before.items() if name != CLEAN_SHUTDOWN_FILE}
    saved_files = {name: saved for name, saved in change.saved.items() if name != CLEAN_SHUTDOWN_FILE}
    return replace(change, commit=replace(change.commit, before=before), saved=saved_files)
