"""One run on one log dir, and how it is taken back; `recovery/saved/undo.py` says which runs, and in which order.

After a kill at any point the next `undo` resumes: its journal has what is put back, change by change.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from stat import S_ISREG

from recovery.engine.cut_ledger import CutLedger, forget_run
from recovery.errors import JournalError, UndoneError, UnsafeError
from recovery.load.model import FileStat
from recovery.logdir.listing import list_files
from recovery.logdir.quarantine_place import UNDO_JOURNAL
from recovery.plan.actions import (
    LOG_DIR_ITSELF,
    TEMPORARY_SUFFIX,
    Action,
    AppendPart,
    RemoveFile,
    RenameFile,
    RestoreFile,
    is_derived,
)
from recovery.plan.commit import Commit
from recovery.plan.manifest import is_segment
from recovery.plan.undo_plan import Change, Moved, plan_undo, read_account, sizes_of_whole
from recovery.quantity import listed_text
from recovery.read.file_system import is_folder, is_there, look_at
from recovery.saved.kept_marker import KeptMarker, without_marker
from recovery.saved.log_dir_state import LogDirState, files_in, folder_path
from recovery.saved.purge import remove_undone
from recovery.saved.saved_files import SavedFiles, check_target, is_same_file
from recovery.saved.unnamed_files import LostPart, refuse_unnamed, remedy_by_hand
from recovery.version import VERSION
from recovery.watch.tally import Tally
from recovery.write.apply import publish, remove_uncommitted, stage
from recovery.write.digest import has_part
from recovery.write.durable import remove_empty_folder, rename_anywhere, sync, sync_below
from recovery.write.journal import Journal
from recovery.write.journal_format import Header
from recovery.write.quarantine import manifest_entries
from recovery.write.take_out import remove_taken_out, take_out
from recovery.write.undo_notice import UNDO_NOTICE, remove_undo, way_out
from segfmt.filenames import CLEAN_SHUTDOWN_FILE

_TAKEN_BACK_NOTE, _RESTORED_NOTE = "taken back", "restored"
_LAST_RUN = "last run"
"""In the journal of an `undo`: the last run that it takes back, which the next one must know to resume."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirUndo:
    """What was, or would be, taken back in one log dir.

    Attributes:
        run: name of the quarantined run; None if there is nothing to take back.
        partitions: folders that are as they were before.
        restored_bytes: bytes of files and tails that the run had taken away and that are back, from wherever.
        log_bytes: of these, the ones of segments: what `recover` says is cut, and `quarantine list` has.
        removed_bytes: bytes of files that the run had made.
        actions: what was done, by folder.
        earlier_runs: runs before it that changed a partition, and are not taken back; the newest first.
        is_left: whether it was left as it is: an interrupted `undo` is finished first, and did not concern it.
    """

    log_dir: str
    run: str | None = None
    partitions: tuple[str, ...] = ()
    restored_bytes: int = 0
    log_bytes: int = 0
    removed_bytes: int = 0
    actions: tuple[tuple[str, Action], ...] = ()
    moved_back: tuple[str, ...] = ()
    earlier_runs: tuple[str, ...] = ()
    is_left: bool = False


class RunUndoing:
    """Undoes one run on one log dir.

    Args:
        root: the folder of all runs.
        run: name of the run's folder.
        journal: that of an interrupted `undo`, if any.

    Attributes:
        earlier_runs: of the last one that is taken back: those before it that changed a partition.
    """

    def __init__(self, log_dir: str, root: str, run: str, journal: Journal | None = None) -> None:
        self._log_dir = log_dir
        self.root = root
        self.run = run
        self._journal = journal
        self.earlier_runs: tuple[str, ...] = ()
        path = os.path.join(root, run)
        account = read_account(manifest_entries(path), path)
        self._changes, self._moves, self._unused = account.changes, account.moves, account.unused
        self._last_changes = {change.commit.folder: change for change in self._changes}
        self._saved = SavedFiles(log_dir, root, run)
        self._marker = KeptMarker(log_dir, path, self._changes, self._saved)
        self._actions: list[tuple[str, Action]] = []
        self._moved_back: list[str] = []
        self._restored_bytes = 0
        self._log_bytes = 0
        self._removed_bytes = 0

    def close(self) -> None:
        """Close the journal of an interrupted `undo`."""
        if self._journal is not None:
            self._journal.close()

    @property
    def last_run(self) -> str:
        """The last run that the interrupted `undo` was to take back."""
        return (
            self.run if self._journal is None else self._journal.header.configuration.get(_LAST_RUN, self.run)
        )

    @property
    def change_count(self) -> int:
        """How many changes there are to take back."""
        return len(self._changes) + len(self._moves)

    @property
    def changes_partitions(self) -> bool:
        """Whether the run did more than hand a log dir over and remove pending deletions."""
        return bool(self._moves) or any(
            change.commit.actions and change.commit.folder != LOG_DIR_ITSELF for change in self._changes
        )

    @property
    def holds_marker(self) -> bool:
        """Whether the run has taken the marker away, and made no other: it was ended, and another one began anew."""
        return self._marker.is_held

    # -- before anything is touched -------------------------------------------------------------------------

    def check(self, state: LogDirState) -> None:
        """Refuse if the log dir is not as the recovery has left it; turn *state* into that before the recovery.

        Raises:
            UnsafeError: nothing was changed.
        """
        if self._journal is None:
            self._refuse_changed(state)
            refuse_unnamed(self._log_dir, os.path.join(self.root, self.run), state)
        for number, change in self._newest_first():
            folder = change.commit.folder
            if self._is_done(number):
                if folder == LOG_DIR_ITSELF:
                    state.take_back(change)  # the marker comes back last
                continue
            if self._journal is not None:
                self._refuse_changed_meanwhile(self._journal, number, change, state)
            elif change is not self._last_changes[folder]:
                self._refuse_changed_between(change, state)
            for name, saved in change.saved.items():
                self._saved.check(folder, saved)
                if saved.link is not None:
                    check_target(
                        os.path.join(folder_path(self._log_dir, folder), name),
                        saved.link,
                        change.commit.before.get(name),
                    )
            if not self._is_begun(number):
                self._plan(change, state)  # it refuses what cannot be taken back
            state.take_back(change)
        if self._journal is None:
            self._refuse_unaccounted(state)
        made = {(change.commit.folder, name) for change in self._changes for name in change.commit.made}
        for move in {self._stored(moved): moved for moved in self._moves}.values():  # a later line counts
            key, path = (move.folder, move.name), self._place(move)
            is_in_place = key in state.moved_back or (key not in made and is_there(path))
            self._saved.check_moved(move, path, may_be_gone=is_in_place or self._journal is not None)
            state.moved_back.add(key)

    def _refuse_changed(self, state: LogDirState) -> None:
        last = self._last_changes
        changed = [
            f"{folder}/{name}"
            for folder, change in last.items()
            for name in [*state.differences(folder, change), *self._others_in_new(change)]
        ]
        if last and LOG_DIR_ITSELF not in last and CLEAN_SHUTDOWN_FILE in state.files(LOG_DIR_ITSELF):
            changed.append(f"{LOG_DIR_ITSELF}/{CLEAN_SHUTDOWN_FILE}")  # this run has left no marker
        changed += [
            f"{move.folder}/{move.name} (in the way)"
            for move in self._moves
            if self._is_in_the_way(move, last.get(move.folder))
        ]
        if changed:
            is_entered = is_there(os.path.join(self._log_dir, UNDO_NOTICE))
            raise UnsafeError(
                f"{self._log_dir}: changed since run {self.run} recovered it: {listed_text(changed, 5)}. "
                "Nothing was changed, and the bytes stay in quarantine. Remedy: if a later run made the changes, take "
                "that back first: it may have another --quarantine-dir, or an earlier name if the clock was set back; "
                "there is no remedy if a broker was at work, if the files were copied without their times (cp -a keeps "
                "them), or if that run was purged; quarantine list --verify tells whether the manifest is whole"
                + (f"; then {way_out(self._log_dir, None)}" if is_entered else "")
            )

    def _refuse_changed_meanwhile(
        self, journal: Journal, number: int, change: Change, state: LogDirState
    ) -> None:
        """Refuse if something else has changed a folder that the interrupted `undo` has not finished with."""
        folder = change.commit.folder
        if self._is_begun(number):
            commit = self._entered_commit(journal, number, folder)
            changed = self._changed_halfway(commit)
        elif change.is_new_folder:
            return  # it is taken out if it is as the recovery has left it, and stays otherwise
        else:
            changed = next(iter(self._changed_names(change, state)), None)
        if changed is not None:
            raise UnsafeError(
                f"{self._log_dir}: changed since the undo of run {self.run} was interrupted: {folder}/{changed}. "
                "Nothing more was changed, and all that was saved is in quarantine still. Remedy: put that back as it "
                f"was, if it was not a broker, and undo again; or {way_out(self._log_dir, journal.path)}"
            )

    def _changed_names(self, change: Change, state: LogDirState) -> list[str]:
        """Return what differs from what *change* has left, but for what a repair has moved away."""
        folder = change.commit.folder
        moved = {move.name for move in self._moves if move.folder == folder}
        names = [name for name in state.differences(folder, change) if name not in moved]
        if folder != LOG_DIR_ITSELF:
            return names
        return [name for name in names if name in _own_names(change.commit) and name != CLEAN_SHUTDOWN_FILE]

    def _changed_halfway(self, commit: Commit) -> str | None:
        """Return what is not as some step of *commit*, of this `undo`, can have left it; None if there is nothing.

        The folder may lie on another disk by now.
        """
        folder = folder_path(self._log_dir, commit.folder)
        try:
            files = list_files(folder)
        except FileNotFoundError:
            files = {}
        if commit.folder == LOG_DIR_ITSELF:
            own_names = _own_names(commit)
            files = {
                name: stat for name, stat in files.items() if name.removesuffix(TEMPORARY_SUFFIX) in own_names
            }
        if (changed := commit.explain(files, by_inode=False)) is not None:
            return changed
        to_come = {action.new for action in commit.pending(files.keys()) if isinstance(action, RenameFile)}
        for action in commit.actions:
            if isinstance(action, AppendPart) and action.name in files.keys() - to_come:
                source = None if action.source is None else self._saved.path(commit.folder, action.source)
                if not has_part(
                    os.path.join(folder, action.name), action.position, action.size_bytes, source
                ):
                    return action.name
        return None

    def _refuse_changed_between(self, change: Change, state: LogDirState) -> None:
        """Refuse if something else changed a folder between two changes of the run, which was interrupted there.

        Args:
            state: as the second of them found the folder.
        """
        folder = change.commit.folder
        changed = [f"{folder}/{name}" for name in self._changed_names(change, state)]
        if changed:
            raise UnsafeError(
                f"{self._log_dir}: changed while run {self.run} was interrupted: {listed_text(changed, 5)}. Nothing "
                "was changed, and the bytes stay in quarantine. Remedy: none in this tool; quarantine list shows what "
                "was cut, and where it lies"
            )

    def _others_in_new(self, change: Change) -> list[str]:
        """Return what is in a folder that the run has made, and is no file: it would go with the folder."""
        path = folder_path(self._log_dir, change.commit.folder)
        if not (change.is_new_folder and is_folder(path)):
            return []
        with os.scandir(path) as entries:
            return [entry.name for entry in entries if not entry.is_file()]

    def _refuse_unaccounted(self, state: LogDirState) -> None:
        """Refuse if only quarantine has what was cut by a run that was killed and never resumed.

        Args:
            state: as it will be once the changes in the manifest are taken back.
        """
        lost = [
            LostPart(
                self._saved.path(folder, saved.stored),
                os.path.join(folder_path(self._log_dir, folder), name),
                saved.position,
            )
            for folder, name, saved in self._unused
            if not is_derived(name) and not state.holds(folder, name, saved)
        ]
        if lost:
            raise UnsafeError(
                f"{lost[0].stored}: run {self.run} was interrupted while it changed that log, and its manifest does "
                "not say what it did: its journal is gone, or something else has changed the log since. Nothing was "
                "changed. "
                f"{remedy_by_hand(lost)}"
            )

    def _is_in_the_way(self, move: Moved, last: Change | None) -> bool:
        """Whether the place of *move* is taken, except by what the recovery has made there, which is removed first."""
        is_made = last is not None and move.name in last.commit.made
        is_made |= move.folder == LOG_DIR_ITSELF and any(
            change.is_new_folder and change.commit.folder == move.name for change in self._changes
        )
        stored, place = self._stored(move), self._place(move)
        return is_there(stored) and is_there(place) and not is_made and not self._is_same(move, stored, place)

    @staticmethod
    def _is_same(move: Moved, stored: str, place: str) -> bool:
        """Whether a repair was killed before it removed the file that it had saved."""
        saved, found = look_at(stored), look_at(place)
        if saved is None or found is None or not S_ISREG(found.st_mode):
            return False
        is_copy = found.st_size == move.saved.size_bytes and move.saved.digest is not None
        return os.path.samestat(saved, found) or (is_copy and is_same_file(move.saved, place))

    # -- at work --------------------------------------------------------------------------------------------

    def report(self, state: LogDirState) -> LogDirUndo:
        """Return what would be done, and change *state* accordingly."""
        self._note_marker()
        self._note_entered()
        for number, change in self._newest_first():
            if not (self._is_done(number) or self._is_begun(number)):
                self._note_planned(change, self._plan(change, state))
            if not self._is_done(number) or change.commit.folder == LOG_DIR_ITSELF:
                state.take_back(change)
        for move in reversed(self._moves):
            if is_there(self._stored(move)):
                self._moved_back.append(f"{move.folder}/{move.name}")
        return self._result()

    def _plan(self, change: Change, state: LogDirState) -> tuple[Action, ...]:
        return self._planned(change, state.files(change.commit.folder))

    def _planned(self, change: Change, files: dict[str, FileStat]) -> tuple[Action, ...]:
        """Return how *change* is taken back, with the *files* that are there.

        Raises:
            UnsafeError: it cannot be.
        """
        files.pop(CLEAN_SHUTDOWN_FILE, None)
        try:
            return plan_undo(without_marker(change), files)
        except UnsafeError as error:
            raise UnsafeError(
                f"{error}. Nothing {'was' if self._journal is None else 'more was'} changed, and the bytes stay in "
                "quarantine. Remedy: none in this tool; the log, or quarantine, was changed by something else"
            ) from error

    # -- what an interrupted undo has done -------------------------------------------------------------------

    def _newest_first(self) -> list[tuple[int, Change]]:
        return list(enumerate(self._changes))[::-1]

    def _is_done(self, number: int) -> bool:
        """Whether an interrupted `undo` has taken a change back: each one is carried out before the next is begun."""
        if self._journal is None:
            return False
        notes = self._journal.notes
        return _RESTORED_NOTE in notes or _TAKEN_BACK_NOTE in notes or number > self._first_begun

    def _is_begun(self, number: int) -> bool:
        """Whether an interrupted `undo` has entered how it takes a change back."""
        return self._journal is not None and f"{number}" in self._journal.commits

    @cached_property
    def _first_begun(self) -> int:
        """The number of the last change that an interrupted `undo` had begun: it counts down."""
        assert self._journal is not None
        return min(map(int, self._journal.commits), default=len(self._changes))

    @staticmethod
    def _entered_commit(journal: Journal, number: int, folder: str) -> Commit:
        commit = Commit.from_json(journal.commits[f"{number}"])
        if commit.folder != folder:
            raise JournalError(f"{journal.path}: the commit of {folder} is one of {commit.folder}")
        return commit

    def _note_entered(self) -> None:
        """Note what an interrupted `undo` has done, or begun."""
        for number, document in () if self._journal is None else self._journal.commits.items():
            commit = Commit.from_json(document)
            if int(number) < len(self._changes):
                self._note_planned(self._changes[int(number)], commit.actions)
            else:  # the manifest is gone already
                self._note(commit.folder, commit.actions, sizes_of_whole(commit))

    def do(self, check_stop: Callable[[], None], last_run: str, tally: Tally) -> LogDirUndo:
        """Take the run back.

        Args:
            last_run: name of the last one that is taken back.
            tally: counts its changes.

        Raises:
            OSError: the next `undo` resumes.
        """
        self._note_marker()
        self._note_entered()
        self.begin(last_run)
        assert self._journal is not None
        try:
            if _RESTORED_NOTE not in self._journal.notes:
                self._restore(self._journal, check_stop, tally)
            self._marker.put_back()
            if self.run == last_run:
                remove_undo(self._log_dir)
            # While the manifest is there to name them
            forget_run(self._log_dir, self.root, self.run)
            CutLedger(self._log_dir).forget_moves(
                [os.path.relpath(self._place(move), self._log_dir) for move in self._moves]
            )
            remove_undone(self.root, self.run)
            sync(self.root)  # without its journal, a run that reappeared would be taken for one to undo
            self._remove(self._journal)
        finally:
            self._journal.close()
        remove_empty_folder(self.root)  # unless another run is there
        return self._result()

    def begin(self, last_run: str) -> None:
        """Begin the journal, unless an interrupted `undo` has: from then on it must be finished.

        Raises:
            OSError: it cannot be written; nothing is left behind.
        """
        if self._journal is not None:
            return
        journal = Journal.create(os.path.join(self.root, UNDO_JOURNAL), self._header(last_run))
        try:
            journal.note("begun", {})
        except OSError:
            with contextlib.suppress(OSError):
                journal.remove()
            raise
        self._journal = journal

    @staticmethod
    def _remove(journal: Journal) -> None:
        """Remove the journal, with which the undo has ended.

        Raises:
            UndoneError: it is gone, but that is not on disk for certain.
        """
        try:
            journal.remove()
        except OSError as error:
            if is_there(journal.path):
                raise
            raise UndoneError(error.errno, error.strerror, error.filename) from error

    def _restore(self, journal: Journal, check_stop: Callable[[], None], tally: Tally) -> None:
        """Put everything back but the marker, durably, and note it: quarantine is not needed again."""
        self._marker.set_aside()
        remove_taken_out(self._log_dir)
        # Each commit is carried out before the next one: an interrupted undo has left open the last one at most.
        first_begun = self._first_begun
        for number, change in self._newest_first():
            check_stop()
            if number <= first_begun:
                self._take_back(journal, number, change)
            tally.add()
        # What is moved back may have the name of a file that the recovery had made: from here on, none is removed.
        if self._moves and _TAKEN_BACK_NOTE not in journal.notes:
            sync_below(self._log_dir)
            journal.note(_TAKEN_BACK_NOTE, {})
        for move in reversed(self._moves):
            self._move_back(move)
            tally.add()
        remove_taken_out(self._log_dir)
        sync_below(self._log_dir)
        journal.note(_RESTORED_NOTE, {})

    def _header(self, last_run: str) -> Header:
        return Header(
            tool_version=VERSION,
            log_dir=self._log_dir,
            configuration={_LAST_RUN: last_run},
            now_ms=0,
            had_clean_shutdown=False,
            run_folder=self.run,
        )

    def _take_back(self, journal: Journal, number: int, change: Change) -> None:
        folder = change.commit.folder
        path = folder_path(self._log_dir, folder)
        saved_files = {saved.stored: saved for saved in change.saved.values()}

        def open_saved(name: str) -> AbstractContextManager[int]:
            if name not in saved_files:
                raise OSError(errno.ENOENT, "not in the manifest", name)
            return self._saved.opened(folder, saved_files[name])

        if change.is_new_folder:
            if _TAKEN_BACK_NOTE not in journal.notes:
                self._take_out(change)
            return
        is_resumed = self._is_begun(number)
        if is_resumed:
            commit = self._entered_commit(journal, number, folder)
            remove_uncommitted(path, commit)
        else:
            files = files_in(self._log_dir, folder)
            actions = self._planned(change, dict(files))
            commit = stage(path, folder, files, actions, open_saved=open_saved)
            journal.commit(f"{number}", commit.to_json())
            self._note_planned(change, commit.actions)
        if _TAKEN_BACK_NOTE not in journal.notes:
            publish(path, commit, open_saved=open_saved, may_have_moved=is_resumed)

    def _take_out(self, change: Change) -> None:
        """Remove a folder that the run has made; an interrupted undo may have done so, and a broker made another."""
        folder, state = change.commit.folder, LogDirState(self._log_dir)
        if is_folder(folder_path(self._log_dir, folder)) and not state.differences(folder, change):
            self._note_planned(change, self._plan(change, state))
            take_out(self._log_dir, folder)

    def _move_back(self, move: Moved) -> None:
        stored, place = self._stored(move), self._place(move)
        if is_folder(stored) and is_folder(place) and os.listdir(place):
            raise UnsafeError(
                f"{place}: made while this undo was interrupted, and what was there before is to come back. Remedy: "
                "move it out of the log dir, and start undo again, which goes on"
            )
        if is_there(stored):
            rename_anywhere(stored, place)  # nothing, where both are the same file
            self._moved_back.append(f"{move.folder}/{move.name}")

    def _note_marker(self) -> None:
        self._note(LOG_DIR_ITSELF, self._marker.actions, {CLEAN_SHUTDOWN_FILE: self._marker.size_bytes})

    def _note_planned(self, change: Change, actions: Iterable[Action]) -> None:
        sizes = {name: saved.size_bytes for name, saved in change.saved.items() if not saved.is_tail}
        self._note(change.commit.folder, actions, sizes)

    def _note(self, folder: str, actions: Iterable[Action], sizes_bytes: Mapping[str, int]) -> None:
        """Count *actions*; *sizes_bytes* are those of the files that were saved whole, by name."""
        for action in actions:
            self._actions.append((folder, action))
            match action:
                case RestoreFile(name=name):
                    self._count(name, sizes_bytes[name])
                case RenameFile(new=name):  # as `.deleted` the folder may have it still
                    self._count(name, sizes_bytes.get(name, 0))
                case AppendPart(name=name, source=source, size_bytes=size_bytes) if source is not None:
                    self._count(name, size_bytes)
                case RemoveFile(size_bytes=size_bytes):
                    self._removed_bytes += size_bytes

    def _count(self, name: str, size_bytes: int) -> None:
        self._restored_bytes += size_bytes
        self._log_bytes += size_bytes if is_segment(name) else 0

    def _result(self) -> LogDirUndo:
        changed = {change.commit.folder for change in self._changes}
        folders = {*changed, *(folder for folder, _ in self._actions)} - {LOG_DIR_ITSELF}
        return LogDirUndo(
            log_dir=self._log_dir,
            run=self.run,
            partitions=tuple(sorted(folders)),
            restored_bytes=self._restored_bytes,
            log_bytes=self._log_bytes,
            removed_bytes=self._removed_bytes,
            actions=tuple(self._actions),
            moved_back=tuple(self._moved_back),
            earlier_runs=self.earlier_runs,
        )

    def _place(self, move: Moved) -> str:
        return os.path.join(folder_path(self._log_dir, move.folder), move.name)

    def _stored(self, move: Moved) -> str:
        return self._saved.path(move.folder, move.saved.stored)


def _own_names(commit: Commit) -> frozenset[str]:
    """Return the names that count in the log dir itself, where others put files too."""
    return frozenset(commit.before.keys() | commit.made)
