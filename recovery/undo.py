"""Taking a recovery back: every log, epoch file, checkpoint and name as it was, out of quarantine.

Nothing is touched unless the log dir is just as the recovery has left it: a broker that was started since, or a batch
appended, cannot be taken back. Killed at any point, the next `undo` goes on. What is put back leaves quarantine.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from recovery.actions import (
    LOG_DIR_ITSELF,
    TEMPORARY_SUFFIX,
    Action,
    AppendPart,
    RemoveFile,
    RestoreFile,
)
from recovery.apply import publish, stage
from recovery.commit import Commit
from recovery.durable import (
    copy_new,
    remove_empty_folder,
    remove_file,
    remove_tree,
    rename_anywhere,
    sync,
    sync_all,
    sync_below,
)
from recovery.errors import UnsafeError
from recovery.file_system import is_file, is_there
from recovery.journal import Journal
from recovery.journal_record import Header
from recovery.listing import list_files
from recovery.lock import LogDirLocks
from recovery.model import FileStat, RemovalKind
from recovery.quarantine import JOURNAL, MANIFEST, UNDO_JOURNAL, quarantine_root, read_manifest
from recovery.undo_plan import Change, Moved, plan_undo, read_account
from recovery.version import VERSION
from segfmt.filenames import CLEAN_SHUTDOWN_FILE, LOCK_FILE
from segfmt.value_class import dataclass

_RESTORED_NOTE = "restored"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirUndo:
    """What was, or would be, taken back in one log dir.

    Attributes:
        run: name of the quarantined run; None where there is nothing to take back.
        partitions: folders that are as they were.
        restored_bytes: of files and tails that came back out of quarantine.
        actions: in words, by folder.
    """

    log_dir: str
    run: str | None = None
    partitions: tuple[str, ...] = ()
    restored_bytes: int = 0
    actions: tuple[tuple[str, Action], ...] = ()
    moved_back: tuple[str, ...] = ()


def undo(
    log_dirs: Iterable[str],
    *,
    locked_dirs: Iterable[str] = (),
    quarantine_dir: str | None = None,
    run: str | None = None,
    dry_run: bool = False,
    check_stop: Callable[[], None] = lambda: None,
) -> tuple[LogDirUndo, ...]:
    """Take the newest recovery of each log dir back.

    Args:
        log_dirs: absolute paths.
        locked_dirs: further dirs to lock, a separate metadata.log.dir.
        quarantine_dir: as it was given to the recovery.
        run: name of the run to take back, instead of the newest of each log dir; it has to be the newest one that
            changed the log dir all the same.
        dry_run: change nothing, say what would be done.
        check_stop: raises where the run is to end; the next `undo` goes on.

    Raises:
        LogDirLockedError: a broker runs, or a recovery; nothing was changed.
        UnsafeError: a log dir has changed since, or its recovery is not finished; nothing was changed.
        OSError: an I/O error; the next `undo` goes on.
    """
    log_dirs = tuple(log_dirs)
    with LogDirLocks(dict.fromkeys((*log_dirs, *locked_dirs)), dry_run=dry_run) as locks:
        for error in locks.offline.values():
            raise UnsafeError(f"{error}: it cannot be locked. Nothing was changed")
        undone = [_LogDirUndoing(log_dir, quarantine_dir, run) for log_dir in log_dirs]
        for one in undone:
            one.check()
        return tuple(one.report() if dry_run else one.do(check_stop) for one in undone)


class _LogDirUndoing:
    """The undoing of one run on one log dir."""

    def __init__(self, log_dir: str, quarantine_dir: str | None, run: str | None) -> None:
        self._log_dir = log_dir
        self._root = quarantine_root(log_dir, quarantine_dir)
        self._journal = Journal.open(os.path.join(self._root, UNDO_JOURNAL))
        self._run = self._journal.header.run_folder if self._journal is not None else self._choose(run)
        self._changes: list[Change] = []
        self._moves: list[Moved] = []
        if self._run is not None:
            path = os.path.join(self._root, self._run)
            self._changes, self._moves = read_account(read_manifest(path), path)
        self._actions: list[tuple[str, Action]] = []
        self._restored_bytes = 0

    def _choose(self, run: str | None) -> str | None:
        runs: list[str] = []
        with contextlib.suppress(FileNotFoundError):
            runs = sorted(
                name for name in os.listdir(self._root) if is_file(os.path.join(self._root, name, MANIFEST))
            )
        if run is not None and run not in runs:
            raise UnsafeError(f"{self._log_dir}: no run {run} in {self._root}. Remedy: see quarantine list")
        return run or (runs[-1] if runs else None)

    # -- before anything is touched -------------------------------------------------------------------------

    def check(self) -> None:
        """Refuse where the log dir is not as the recovery has left it.

        Raises:
            UnsafeError: nothing was changed.
        """
        if self._run is None or self._journal is not None:
            return
        if is_there(os.path.join(self._root, JOURNAL)):
            raise UnsafeError(
                f"{self._log_dir}: its recovery was interrupted. Nothing was changed. "
                "Remedy: let recover finish it, then undo"
            )
        if not self._changes and not self._moves:
            raise UnsafeError(
                f"{self._log_dir}: the manifest of run {self._run} has no account of what was changed. "
                "Nothing was changed. Remedy: put the files back by hand, the manifest says where from"
            )
        last = {change.commit.folder: change for change in self._changes}
        changed = [
            f"{folder}/{name}"
            for folder, change in last.items()
            for name in _differences(change.after, self._files(folder))
        ]
        changed += [
            f"{move.folder}/{move.name} (in the way)"
            for move in self._moves
            if self._is_in_the_way(move, last.get(move.folder))
        ]
        if changed:
            more = f" and {len(changed) - 5} more" if len(changed) > 5 else ""
            raise UnsafeError(
                f"{self._log_dir}: changed since it was recovered: {', '.join(changed[:5])}{more}. "
                "Nothing was changed. Remedy: none here: a broker was at work here; the bytes stay in quarantine"
            )
        for change in self._changes:
            self._check_saved(change)

    def _check_saved(self, change: Change) -> None:
        for saved in change.saved.values():
            try:
                with open(saved.path, "rb") as file:
                    is_same = os.fstat(file.fileno()).st_size == saved.size_bytes and (
                        saved.sha256 is None
                        or hashlib.file_digest(file, "sha256").hexdigest() == saved.sha256
                    )
            except OSError as error:
                raise UnsafeError(f"{saved.path}: {error.strerror}. Nothing was changed") from error
            if not is_same:
                raise UnsafeError(
                    f"{saved.path}: not what the manifest says. Nothing was changed. "
                    "Remedy: see quarantine list --verify"
                )

    def _is_in_the_way(self, move: Moved, last: Change | None) -> bool:
        """Whether the place of *move* is taken, and not by what the recovery has made there: that goes first."""
        is_made = last is not None and move.name in last.commit.made
        return is_there(move.path) and is_there(self._place(move)) and not is_made

    # -- at work --------------------------------------------------------------------------------------------

    def report(self) -> LogDirUndo:
        """Return what would be done; of a folder that was changed twice, the last change."""
        if self._run is not None:
            last = {change.commit.folder: change for change in self._changes}
            for folder, change in last.items():
                self._note(folder, plan_undo(change, self._files(folder)))
        return self._result()

    def do(self, check_stop: Callable[[], None]) -> LogDirUndo:
        """Take the run back.

        Raises:
            OSError: the next `undo` goes on.
        """
        if self._run is None:
            return self._result()
        if self._journal is None:
            self._journal = Journal.create(os.path.join(self._root, UNDO_JOURNAL), self._header())
            self._journal.note("begun", {})
        try:
            if _RESTORED_NOTE not in self._journal.notes:
                self._restore(self._journal, check_stop)
            if is_there(self._kept_marker()):
                rename_anywhere(self._kept_marker(), os.path.join(self._log_dir, CLEAN_SHUTDOWN_FILE))
            with contextlib.suppress(FileNotFoundError):  # it was, when the undo was interrupted
                remove_tree(os.path.join(self._root, self._run))
            sync(self._root)  # without its journal a run that came back would be taken for one to undo
            self._journal.remove()
        finally:
            self._journal.close()
        remove_empty_folder(self._root)  # unless another run is there
        return self._result()

    def _restore(self, journal: Journal, check_stop: Callable[[], None]) -> None:
        """Put everything back but the marker, durably, and note it: quarantine is not asked again."""
        self._remove_marker()
        for number, change in reversed(list(enumerate(self._changes))):
            check_stop()
            self._take_back(journal, f"{number}", change)
        for move in reversed(self._moves):
            self._move_back(move)
        sync_below(self._log_dir)
        journal.note(_RESTORED_NOTE, {})

    def _remove_marker(self) -> None:
        """Nobody may take the log dir for clean while it is neither."""
        path = os.path.join(self._log_dir, CLEAN_SHUTDOWN_FILE)
        if is_there(path):
            if self._was_there(os.stat(path).st_ino):
                self._keep(path)
            size_bytes = os.path.getsize(path)
            removal = RemoveFile(name=CLEAN_SHUTDOWN_FILE, size_bytes=size_bytes, kind=RemovalKind.DERIVED)
            self._note(LOG_DIR_ITSELF, [removal])
            remove_file(path)
            sync(self._log_dir)

    def _was_there(self, inode: int) -> bool:
        """Whether the marker that is there now was there before the recovery, which did not need to touch it."""
        for change in self._changes:
            if change.commit.folder == LOG_DIR_ITSELF:
                before = change.commit.before.get(CLEAN_SHUTDOWN_FILE)
                return before is not None and before.inode == inode
        return False

    def _keep(self, marker: str) -> None:
        """Put the marker aside until everything else is as it was."""
        kept = self._kept_marker()
        if not is_there(kept):
            copy_new(marker, kept, like=marker)
            sync_all([kept, os.path.dirname(kept)])

    def _kept_marker(self) -> str:
        assert self._run is not None
        return os.path.join(self._root, self._run, "kept-marker")

    def _header(self) -> Header:
        return Header(
            tool_version=VERSION,
            log_dir=self._log_dir,
            configuration={},
            now_ms=0,
            had_clean_shutdown=False,
            run_folder=self._run,
        )

    def _take_back(self, journal: Journal, key: str, change: Change) -> None:
        folder = change.commit.folder
        path = self._path(folder)
        if key in journal.commits:
            commit = Commit.from_json(journal.commits[key])
        else:
            found = self._files(folder)
            commit = stage(path, folder, found, plan_undo(_without_marker(change), found))
            journal.commit(key, commit.to_json())
        self._note(folder, commit.actions)
        publish(path, commit)

    def _move_back(self, move: Moved) -> None:
        if is_there(move.path):
            rename_anywhere(move.path, self._place(move))

    def _note(self, folder: str, actions: Iterable[Action]) -> None:
        for action in actions:
            self._actions.append((folder, action))
            if isinstance(action, RestoreFile):
                with contextlib.suppress(OSError):
                    self._restored_bytes += os.path.getsize(action.source)
            elif isinstance(action, AppendPart) and action.source is not None:
                self._restored_bytes += action.size_bytes

    def _result(self) -> LogDirUndo:
        folders = {change.commit.folder for change in self._changes} - {LOG_DIR_ITSELF}
        return LogDirUndo(
            log_dir=self._log_dir,
            run=self._run,
            partitions=tuple(sorted(folders)),
            restored_bytes=self._restored_bytes,
            actions=tuple(self._actions),
            moved_back=tuple(f"{move.folder}/{move.name}" for move in self._moves),
        )

    def _files(self, folder: str) -> dict[str, FileStat]:
        """Return what is in a folder now, as an account has it."""
        try:
            files = list_files(self._path(folder))
        except FileNotFoundError:
            return {}
        return {
            name: stat
            for name, stat in files.items()
            if not name.endswith(TEMPORARY_SUFFIX) and name != LOCK_FILE
        }

    def _path(self, folder: str) -> str:
        return self._log_dir if folder == LOG_DIR_ITSELF else os.path.join(self._log_dir, folder)

    def _place(self, move: Moved) -> str:
        return os.path.join(self._path(move.folder), move.name)


def _without_marker(change: Change) -> Change:
    """Return *change* without a marker that it left where it was: that one is gone since the undo began."""
    before = {name: stat for name, stat in change.commit.before.items() if name != CLEAN_SHUTDOWN_FILE}
    is_kept = CLEAN_SHUTDOWN_FILE not in change.saved
    return replace(change, commit=replace(change.commit, before=before)) if is_kept else change


def _differences(then: Mapping[str, FileStat], now: Mapping[str, FileStat]) -> list[str]:
    return sorted(
        name for name in then.keys() | now.keys() if name != LOCK_FILE and then.get(name) != now.get(name)
    )
