"""What a run on one log dir has done so far, so that the next one can resume it.

The journal lies with the quarantine, apart from Kafka's own files. It says how the log dir was when the run began
(a clean marker is removed at the first change), which segments are scanned, and which partitions are done. What it
says counts only while files are the same by size, mtime, ctime and inode.

An interrupted run is resumed under the same configuration and by the same clock, or not at all. If something else,
such as a broker, was at work since, another configuration is no objection: what was done is obsolete then, and
forgotten. Another version of the tool resumes the run as well, but makes its own scans.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

from native.raw_scan import RawScan
from recovery.engine.cut_ledger import CutLedger
from recovery.engine.handoff import has_marker
from recovery.engine.outcomes import PartitionResult
from recovery.engine.settled_changes import own_files, settle, settle_deleted
from recovery.errors import JournalError, UnsafeError
from recovery.load.model import FileStat, PartitionTask, RemovalKind, ScanMode, ScanRequest
from recovery.logdir.inventory import LogDirInventory
from recovery.logdir.quarantine_place import JOURNAL, given_place, quarantine_root, started_ms_of
from recovery.plan.actions import LOG_DIR_ITSELF, TEMPORARY_SUFFIX, RemoveFile
from recovery.plan.commit import Commit
from recovery.printable import shell_line
from recovery.read.file_system import is_folder, is_there, keeps_inodes
from recovery.version import VERSION
from recovery.write.durable import remove_empty_folder, remove_file
from recovery.write.journal import Journal, listing_digest, remove_unfinished
from recovery.write.journal_format import Header
from recovery.write.quarantine import Quarantine
from segfmt.filenames import CLEAN_SHUTDOWN_FILE

_FIELD = re.compile(r"(\w+)=([^,()]+)")  # one setting in the text of `LogSettings`
_LOG_DIR_NOTE, _UNMARKING_NOTE, _HANDOFF_NOTE, _RUN_NOTE = "log dir", "unmarking", "hand-off", "run"


class Review(NamedTuple):
    """What became of an interrupted run; *text* says so."""

    is_resumed: bool
    text: str


class RunJournal:
    """The journal of one log dir: of an interrupted run, of this one, or of none yet.

    Args:
        quarantine_dir: `--quarantine-dir`.
        dry_run: read only.
        is_forgotten: what lies there is not resumed, and need not be a journal; `discard` removes it.

    Raises:
        JournalError: what lies there is not a journal that this version knows.
        OSError: it cannot be read.
    """

    def __init__(
        self,
        log_dir: str,
        *,
        quarantine_dir: str | None = None,
        dry_run: bool = False,
        is_forgotten: bool = False,
    ) -> None:
        self._log_dir = log_dir
        self._quarantine_dir = quarantine_dir
        self._root = quarantine_root(log_dir, quarantine_dir)
        self._dry_run = dry_run
        self._is_unreadable = False
        self._journal: Journal | None = None
        try:
            self._journal = Journal.open(self.path, read_only=dry_run)
        except JournalError:
            if not is_forgotten or is_folder(self.path):
                raise
            self._is_unreadable = True
        self._ledger = CutLedger(log_dir)
        self._committed: set[str] = set()
        self._looked_at: dict[str, tuple[Mapping[str, FileStat], str | None]] = {}
        self._has_made_place = False

    @property
    def path(self) -> str:
        """Where the journal is, or will be."""
        return os.path.join(self._root, JOURNAL)

    @property
    def is_begun(self) -> bool:
        """Whether there is one."""
        return self._journal is not None

    @property
    def is_anything_begun(self) -> bool:
        """Whether a run was interrupted, be it with another quarantine."""
        return self.is_begun or any(map(self._is_begun_in, self._other_places()))

    def _is_begun_in(self, place: str | None) -> bool:
        with contextlib.suppress(OSError):  # it may be gone by now
            return is_there(os.path.join(quarantine_root(self._log_dir, place), JOURNAL))
        return False

    def _other_places(self) -> set[str | None]:
        """Return where else quarantine may be, each as `--quarantine-dir` is given: the ledger names the runs."""
        runs: list[str] = []
        with contextlib.suppress(OSError):
            runs += (entry.quarantine for entry in self._ledger.entries() if entry.quarantine is not None)
        return {None, *(given_place(self._log_dir, run) for run in runs)} - {self._quarantine_dir}

    @property
    def now_ms(self) -> int | None:
        """The clock of the interrupted run, ms since 1970."""
        return None if self._journal is None else self._journal.header.now_ms

    @property
    def run(self) -> str | None:
        """Name of the interrupted run's folder in quarantine; None if it saved nothing, or that is gone."""
        note = None if self._journal is None else self._journal.notes.get(_RUN_NOTE)
        if note is None:
            return None
        folder = note.get("folder")
        if not isinstance(folder, str) or started_ms_of(folder) is None:
            raise JournalError(
                f"{self.path}: {folder!r} is not the name of a run. Remedy: begin anew with --restart"
            )
        return folder if is_folder(os.path.join(self._root, folder)) else None

    @property
    def run_folder(self) -> str | None:
        """Path of that folder."""
        return None if self.run is None else os.path.join(self._root, self.run)

    # -- an interrupted run ---------------------------------------------------------------------------------

    def refuse_forgetting(self, *, is_restart: bool) -> None:
        """Refuse to forget a run that has taken the marker of a clean log dir: begun anew, it would be an unclean one.

        Args:
            is_restart: whether the run with this quarantine is forgotten; one with another always is.

        Raises:
            UnsafeError: nothing was changed.
        """
        if is_restart:
            self._refuse_unmarked(self._quarantine_dir)
        for place in self._other_places():
            with contextlib.suppress(OSError, JournalError):  # it may be gone by now
                other = RunJournal(self._log_dir, quarantine_dir=place, dry_run=True, is_forgotten=True)
                try:
                    other._refuse_unmarked(place)
                finally:
                    other.close()

    def _refuse_unmarked(self, place: str | None) -> None:
        if self._has_unmarked:
            option = "--quarantine-dir"
            where = f"without {option}" if place is None else f"with {shell_line([option, place])}"
            raise UnsafeError(
                f"{self._log_dir}: it was clean before the run that was interrupted, which has taken the "
                "clean-shutdown marker away; a run that does not go on with that one would cut what the marker says "
                f"is sound. Nothing was changed. Remedy: start again {where} and without --restart; or add --force "
                "to begin anew, as after an unclean shutdown"
            )

    @property
    def _has_unmarked(self) -> bool:
        """Whether the interrupted run has taken the marker of a clean log dir, and nobody has been there since."""
        with contextlib.suppress(JournalError):  # what cannot be read says nothing
            return (
                self._journal is not None
                and self._journal.header.had_clean_shutdown
                and self.unmarking() is not None
                and not has_marker(self._log_dir)
                and self._log_dir_objection(by_inode=False) is None  # it may lie on another disk by now
            )
        return False

    @property
    def _saved_marker(self) -> str:
        return os.path.join(self.run_folder or self._root, LOG_DIR_ITSELF, CLEAN_SHUTDOWN_FILE)

    def check_resumable(
        self,
        inventory: LogDirInventory,
        configuration: Mapping[str, str],
        now_ms: int | None,
        *,
        is_forced: bool,
    ) -> None:
        """Refuse to resume an interrupted run under another configuration, or to begin anew over sound logs.

        Args:
            is_forced: whether a log dir that was clean may be recovered as an unclean one.

        Raises:
            UnsafeError: it differs, or the clock does, or a clean log dir's marker was taken; nothing was changed.
        """
        differences = self._differences(configuration, now_ms)
        objection = self._objection(inventory, is_configuration_another=bool(differences))
        if objection is not None and self._has_unmarked and not is_forced:
            raise UnsafeError(
                f"{self._log_dir}: it was clean before the run that was interrupted, which has taken the "
                f"clean-shutdown marker away; it cannot be resumed, because {objection}, and one that begins anew "
                "would cut what the marker says is sound. Nothing was changed. Remedy: if no broker was started "
                f"since, {shell_line(['cp', '-p', self._saved_marker, self._log_dir])}, and start again; or add "
                "--force to begin anew, as after an unclean shutdown"
            )
        if differences and objection is None:
            raise UnsafeError(
                f"{self._log_dir}: a run with another configuration was interrupted here: "
                f"{'; '.join(differences[:5])}. Nothing was changed. Remedy: resume with the same one, "
                f"or begin anew with --restart{' --force, as after an unclean shutdown' if self._has_unmarked else ''}"
            )

    def _differences(self, configuration: Mapping[str, str], now_ms: int | None) -> list[str]:
        """Return what differs from the interrupted run's settings, as text."""
        if self._journal is None:
            return []
        header = self._journal.header
        differences = _differing(
            (name, header.configuration[name], value)
            for name, value in sorted(configuration.items())
            if header.configuration.get(name, value) != value  # a topic may have been removed, or added
        )
        if now_ms not in (None, header.now_ms):
            differences.append(f"--now: {header.now_ms} then, {now_ms} now")
        return differences

    def review(
        self, inventory: LogDirInventory, configuration: Mapping[str, str], now_ms: int | None = None
    ) -> Review | None:
        """Decide what of the interrupted run counts; None if there was none.

        If something else, such as a broker, was at work meanwhile, only what was read from files that are the same
        still counts; if the interrupted run had begun with a clean log dir or under another configuration, or the
        log dir's checkpoints have changed, nothing does. Where a partition has changed that was done, none counts as
        done: this run has a folder of its own in quarantine then, so that each of both can be taken back.
        """
        if self._journal is None:
            return None
        is_another = bool(self._differences(configuration, now_ms))
        objection = self._objection(inventory, is_configuration_another=is_another)
        if objection is not None:
            self.abandon()
            return Review(False, f"a run was interrupted here, but {objection}: beginning anew")
        text = "resuming the run that was interrupted"
        if (changed := self._changed_commit(inventory)) is not None:
            kept = (_LOG_DIR_NOTE,)
            self._looked_at.clear()
            if self._dry_run:
                self._journal.pass_over(kept)
            else:
                self._enter_done()
                self._journal.forget(kept)
            text += f", whose changes are a run of their own: {changed} has changed since"
        return Review(True, text)

    def _changed_commit(self, inventory: LogDirInventory) -> str | None:
        """Return the path of what has changed of a partition that was done, None if nothing has."""
        done = (task for task in inventory.tasks if task.folder in self._commits)
        return next(filter(None, map(self._changed, done)), None)

    def resumed(self, inventory: LogDirInventory) -> LogDirInventory:
        """Return *inventory* as the interrupted run had it, once that is reviewed."""
        if self._journal is None:
            return inventory
        self._committed = {
            task.folder
            for task in inventory.tasks
            if task.folder in self._commits and self._changed(task) is None
        }
        was_clean, now_ms = self._journal.header.had_clean_shutdown, self._journal.header.now_ms
        tasks = tuple(replace(task, had_clean_shutdown=was_clean, now_ms=now_ms) for task in inventory.tasks)
        had_marker = inventory.had_marker or self.unmarking() is not None
        return replace(inventory, had_clean_shutdown=was_clean, had_marker=had_marker, tasks=tasks)

    def _objection(self, inventory: LogDirInventory, *, is_configuration_another: bool) -> str | None:
        if self._journal is None:
            return None
        objection = self._log_dir_objection(by_inode=self._keeps_inodes)
        return objection or self._folders_objection(inventory, is_configuration_another)

    def _log_dir_objection(self, *, by_inode: bool) -> str | None:
        assert self._journal is not None
        notes = self._journal.notes
        if _HANDOFF_NOTE in notes:
            commit = _commit_of(LOG_DIR_ITSELF, notes[_HANDOFF_NOTE], self.path)
        elif _LOG_DIR_NOTE in notes:
            commit_at_start = _commit_of(LOG_DIR_ITSELF, notes[_LOG_DIR_NOTE], self.path)
            marker = RemoveFile(name=CLEAN_SHUTDOWN_FILE, size_bytes=0, kind=RemovalKind.DERIVED)
            commit = replace(commit_at_start, actions=(marker,))
        else:
            return "it had not really begun"
        name = commit.explain(own_files(self._log_dir), by_inode=by_inode)
        return None if name is None else f"{name} has changed since"

    def _folders_objection(self, inventory: LogDirInventory, is_configuration_another: bool) -> str | None:
        assert self._journal is not None
        was_clean = self._journal.header.had_clean_shutdown
        if not (was_clean or is_configuration_another):
            return None
        changed = next(filter(None, map(self._changed, inventory.tasks)), None)
        if changed is None:
            return None
        why = "the log dir was clean then" if was_clean else "so has the configuration"
        return f"{changed} has changed since, and {why}"

    def _changed(self, task: PartitionTask) -> str | None:
        """Return the path of what has changed of a partition since the interrupted run, None if nothing has.

        Its commit is read from the journal once, as long as its files are not listed again.
        """
        files, changed = self._looked_at.get(task.folder, (None, None))
        if files is not task.files:
            changed = self._compared(task)
            self._looked_at[task.folder] = task.files, changed
        return changed

    def _compared(self, task: PartitionTask) -> str | None:
        assert self._journal is not None
        document = self._commits.get(task.folder)
        if document is None:
            is_same = self._journal.header.folders.get(task.folder) == listing_digest(task.files)
            return None if is_same else task.folder
        commit = _commit_of(task.folder, document.get("commit"), self.path)
        name = commit.explain(task.files, by_inode=self._keeps_inodes)
        if name is None and commit.pending(task.files.keys()):
            saved = PartitionResult.from_json(task, document.get("result", {})).report.quarantined
            return next((path for path in saved if not is_there(path)), None)  # it is saved once more
        return None if name is None else f"{task.folder}/{name}"

    @property
    def _commits(self) -> Mapping[str, Mapping[str, Any]]:
        return {} if self._journal is None else self._journal.commits

    @cached_property
    def _keeps_inodes(self) -> bool:
        return keeps_inodes(self._log_dir)

    def is_committed(self, folder: str) -> bool:
        """Whether a partition is committed: finished, or to be finished as planned."""
        return folder in self._committed

    @property
    def entered_folders(self) -> frozenset[str]:
        """Where something was, or is to be, done: it may be done in part, even where a log is refused by now."""
        return frozenset(self._commits)

    def committed(self, task: PartitionTask) -> tuple[Commit, PartitionResult]:
        """Return what was, or is to be, done in a partition's folder, and how it ended."""
        assert self._journal is not None
        document = self._journal.commits[task.folder]
        commit = _commit_of(task.folder, document.get("commit"), self.path)
        return commit, PartitionResult.from_json(task, document.get("result", {}))

    def unmarking(self) -> Commit | None:
        """Return how the marker was, or is to be, removed; None if the run did not get that far."""
        note = None if self._journal is None else self._journal.notes.get(_UNMARKING_NOTE)
        return None if note is None else _commit_of(LOG_DIR_ITSELF, note, self.path)

    def handoff(self) -> Commit | None:
        """Return what was, or is to be, done to the log dir's own files, None if the run did not get that far."""
        note = None if self._journal is None else self._journal.notes.get(_HANDOFF_NOTE)
        return None if note is None else _commit_of(LOG_DIR_ITSELF, note, self.path)

    @property
    def has_scans(self) -> bool:
        """Whether the journal has any scan that counts."""
        return self._journal is not None and self._has_own_scans and self._journal.scan_count > 0

    def has_scan(self, folder: str, request: ScanRequest, stat: FileStat) -> bool:
        """Whether the journal has the scan of a segment that is still the same."""
        journal = self._journal
        return journal is not None and self._has_own_scans and journal.has_scan(folder, request, stat)

    def scan_of(self, folder: str, request: ScanRequest, stat: FileStat | None) -> RawScan | None:
        """Return the scan of a segment that is still the same, None if there is none."""
        if not self._has_own_scans or stat is None or request.mode is not ScanMode.RECOVER:
            return None
        assert self._journal is not None
        return self._journal.scan_of(folder, request, stat)

    @property
    def _has_own_scans(self) -> bool:
        """Whether the scans in the journal are this version's: another one may have read the same bytes otherwise."""
        return self._journal is not None and self._journal.header.tool_version == VERSION

    # -- this run -------------------------------------------------------------------------------------------

    def begin(self, inventory: LogDirInventory, configuration: Mapping[str, str], now_ms: int) -> None:
        """Begin a journal unless there is one.

        Raises:
            OSError: it cannot be written; the run continues without it.
        """
        if self._journal is not None or self._dry_run:
            return
        header = Header(
            tool_version=VERSION,
            log_dir=self._log_dir,
            configuration=configuration,
            now_ms=now_ms,
            had_clean_shutdown=inventory.had_clean_shutdown,
            folders={task.folder: listing_digest(task.files) for task in inventory.tasks},
        )
        self.abandon_others()
        files = own_files(self._log_dir)
        before = {name: stat for name, stat in files.items() if not name.endswith(TEMPORARY_SUFFIX)}
        commit = Commit(folder=LOG_DIR_ITSELF, before=before, staged={}, actions=())
        self._has_made_place = not is_folder(os.path.dirname(self._root))
        journal = Journal.create(self.path, header)
        try:
            journal.note(_LOG_DIR_NOTE, commit.to_json())
        except OSError:
            journal.close()
            with contextlib.suppress(OSError):
                journal.remove()
            raise
        self._journal = journal

    def note_run(self, folder: str) -> None:
        """Enter the name of the run's folder in quarantine."""
        if self._journal is not None:
            self._journal.note(_RUN_NOTE, {"folder": folder})

    def add_scan(self, folder: str, request: ScanRequest, stat: FileStat | None, scan: RawScan) -> None:
        """Keep the scan of a whole segment; a failure to keep it only costs time later."""
        if self._journal is not None and not self._dry_run and stat is not None:
            with contextlib.suppress(OSError):
                self._journal.add_scan(folder, request, stat, scan)

    def commit(self, commits: Collection[tuple[Commit, PartitionResult]]) -> None:
        """Write to disk what will now be done in partitions' folders in any case, and how each of them ends."""
        if self._journal is not None:
            self._journal.commit_all(
                {
                    commit.folder: {"commit": commit.to_json(), "result": result.to_json()}
                    for commit, result in commits
                }
            )
        for _, result in commits:
            self.enter_cuts(result)

    def enter_cuts(self, result: PartitionResult) -> None:
        """Enter what is cut from a partition in the ledger, for the next run to report if this one does not."""
        self._ledger.add(result.report)

    def note_cuts_made(self, result: PartitionResult) -> None:
        """Enter that the cuts were made; a failure is no reason to stop: the files show it as well."""
        with contextlib.suppress(OSError):
            self._ledger.note_made(result.report)

    def commit_unmarking(self, commit: Commit) -> None:
        """Write to disk that the marker will now be removed."""
        if self._journal is not None:
            self._journal.note(_UNMARKING_NOTE, commit.to_json())

    def commit_handoff(self, commit: Commit) -> None:
        """Write to disk what will now be done to the log dir's own files."""
        if self._journal is not None:
            self._journal.note(_HANDOFF_NOTE, commit.to_json())

    def abandon(self) -> None:
        """Forget a run that is not resumed; what it has done is first entered in its manifest.

        Otherwise `undo` would not know of it, and could not tell what the saved bytes belong to.
        """
        if not self._dry_run:
            self._enter_done()
        self.discard()

    def _enter_done(self) -> None:
        """Enter what the interrupted run has done in its manifest: it enters nothing more."""
        if self._journal is not None and self.run is not None:
            quarantine = Quarantine(self._log_dir, root=self._quarantine_dir, run=self.run)
            with contextlib.suppress(JournalError):
                for commit in self._all_commits():
                    settle(self._log_dir, commit, quarantine)
            quarantine.end_manifest()
            settle_deleted(self._log_dir, quarantine)
            quarantine.sync()

    def abandon_others(self) -> None:
        """Forget runs with another quarantine, which may be gone by now: what they say is obsolete."""
        for place in () if self._dry_run else self._other_places():
            with contextlib.suppress(OSError, JournalError):
                RunJournal(self._log_dir, quarantine_dir=place, is_forgotten=True).abandon()

    def _all_commits(self) -> Iterator[Commit]:
        assert self._journal is not None
        if (unmarking := self.unmarking()) is not None:
            yield unmarking
        for folder, document in self._journal.commits.items():
            yield _commit_of(folder, document.get("commit"), self.path)
        if (handoff := self.handoff()) is not None:
            yield handoff

    def discard(self) -> None:
        """Forget everything: the run is over, or starts over."""
        journal, self._journal = self._journal, None
        self._committed.clear()
        if journal is not None:
            journal.close()
        if self._dry_run:
            return
        is_left = remove_unfinished(self.path)
        if self._is_unreadable:
            is_left, self._is_unreadable = True, False
            remove_file(self.path)
        if journal is not None:
            journal.remove()
        if journal is not None or is_left:
            remove_empty_folder(self._root)  # unless something is in quarantine
            if self._has_made_place:
                remove_empty_folder(os.path.dirname(self._root))

    def close(self) -> None:
        """Close the file; it stays for the next run."""
        if self._journal is not None:
            self._journal.close()


def _differing(values: Iterable[tuple[str, str, str]]) -> list[str]:
    """Return what differs, as text, of (name, value then, value now): a setting of several topics once."""
    names_of: dict[tuple[str, str, str], list[str]] = {}
    for name, then, now in values:
        then_fields = dict(_FIELD.findall(then)) or {"": then}
        now_fields = dict(_FIELD.findall(now)) or {"": now}
        for field in now_fields.keys() | then_fields.keys():
            changed = (field, then_fields.get(field, ""), now_fields.get(field, ""))
            if changed[1] != changed[2]:
                names_of.setdefault(changed, []).append(name)
    return [
        f"{_subject(names, field)}: {then or 'none'} then, {now or 'none'} now"
        for (field, then, now), names in sorted(names_of.items())
    ]


def _subject(names: Sequence[str], field: str) -> str:
    setting = field.replace("_", ".")
    if not field:
        return ", ".join(names)
    return f"{setting}, {names[0]}" if len(names) == 1 else f"{setting}, settings of {len(names):,} topics"


def _commit_of(folder: str, document: Mapping[str, Any] | None, path: str) -> Commit:
    """Return the commit of *folder* in a document of the journal at *path*.

    Raises:
        JournalError: it is not a commit, or one of another folder.
    """
    commit = Commit.from_json(document or {})
    if commit.folder != folder:
        raise JournalError(
            f"{path}: the commit of {folder} is one of {commit.folder}. Remedy: begin anew with --restart"
        )
    return commit
