"""Taking a recovery back: every log, epoch file, checkpoint and name is restored from quarantine.

Nothing is touched unless the log dir is just as the recovery has left it: the start of a broker, or a batch appended
since, cannot be taken back. After a kill at any point the next `undo` resumes. What is put back leaves quarantine.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack

from recovery.errors import JournalError, UnsafeError, UsageError
from recovery.logdir.lock import LogDirLocks
from recovery.logdir.quarantine_place import (
    UNDO_JOURNAL,
    places_of,
    quarantine_roots,
    run_order,
    started_ms_of,
)
from recovery.logdir.undo_command import undo_command
from recovery.saved.log_dir_state import LogDirState
from recovery.saved.run_undoing import LogDirUndo, RunUndoing
from recovery.saved.runs import run_names
from recovery.saved.unnamed_files import refuse_unnamed
from recovery.version import VERSION
from recovery.watch.tally import Tally
from recovery.write.durable import remove_empty_folder
from recovery.write.journal import Journal
from recovery.write.move_in import refuse_unfinished_restore
from recovery.write.undo_notice import (
    EnteredUndo,
    enter_undo,
    entered_undo,
    journal_in,
    left_dirs,
    refuse_entered_undo,
    refuse_interrupted_recovery,
    remove_undo,
)
from recovery.write.write_back import held_file_systems


def undo(
    log_dirs: Iterable[str],
    *,
    locked_dirs: Iterable[str] = (),
    quarantine_dir: str | None = None,
    run: str | None = None,
    dry_run: bool = False,
    check_stop: Callable[[], None] = lambda: None,
    tally: Tally | None = None,
) -> tuple[LogDirUndo, ...]:
    """Take recoveries of each log dir back, run by run, the newest first.

    Args:
        log_dirs: absolute paths.
        locked_dirs: further dirs to lock, such as a separate metadata.log.dir.
        quarantine_dir: as it was given to the recovery.
        run: name of the last run to take back, where a log dir has it; None for the newest that changed a partition.
            What came after it, such as a hand-off or the removal of pending deletions, is taken back first.
        dry_run: change nothing, report what would be done.
        check_stop: raises if the run is to end; the next `undo` resumes.
        tally: counts the changes that are taken back.

    Returns:
        One for each run, in the order in which they are taken back; one without a run for a log dir that has none, or
        that is left as it is.

    Raises:
        LogDirLockedError: a broker or a recovery is running; nothing was changed.
        UsageError: no log dir has such a run; nothing was changed.
        UnsafeError: a log dir has changed since, or its recovery is not finished; nothing was changed.
        OSError: an I/O error; the next `undo` resumes.
    """
    log_dirs = tuple(log_dirs)
    tally = tally or Tally()
    with (
        LogDirLocks(dict.fromkeys((*log_dirs, *locked_dirs)), dry_run=dry_run) as locks,
        held_file_systems(() if dry_run else places_of(log_dirs, quarantine_dir)),
        ExitStack() as journals,
    ):
        for error in locks.offline.values():
            raise UnsafeError(f"the log dir cannot be locked. Nothing was changed: {error}")
        undone = _chosen_in(log_dirs, quarantine_dir, run, dry_run=dry_run)
        for undoing in itertools.chain(*undone.values()):
            journals.callback(undoing.close)
        for log_dir, runs in undone.items():
            try:
                _check(log_dir, runs, quarantine_roots(log_dir, quarantine_dir))
            except UnsafeError as error:
                if others := [other for other in undone if undone[other] and other != log_dir]:
                    alone = undo_command(others, quarantine_dir, run=run)
                    raise UnsafeError(f"{error}; {log_dir} left out, this may work: {alone}") from error
                raise
        if not dry_run:
            _enter(undone)
            tally.expect(sum(undoing.change_count for runs in undone.values() for undoing in runs))
        results: list[LogDirUndo] = []
        for log_dir, runs in undone.items():
            state = LogDirState(log_dir)
            results += [
                undoing.report(state) if dry_run else undoing.do(check_stop, runs[-1].run, tally)
                for undoing in runs
            ]
            results += [] if runs else [LogDirUndo(log_dir=log_dir)]
            for root in () if dry_run else quarantine_roots(log_dir, quarantine_dir):
                remove_empty_folder(root)  # a kill may have left it
        return (
            *results,
            *(LogDirUndo(log_dir=log_dir, is_left=True) for log_dir in log_dirs if log_dir not in undone),
        )


def _check(log_dir: str, runs: Sequence[RunUndoing], roots: Iterable[str]) -> None:
    """Refuse if *runs* cannot be taken back, or leave something that they have set aside.

    Raises:
        UnsafeError: nothing was changed by this command.
    """
    state = LogDirState(log_dir)
    for undoing in runs:
        undoing.check(state)
    for root in roots:
        for name in run_names(root, with_manifest=False):
            # What lies in an earlier one was cut before, and is to stay there
            if not runs or run_order(name) >= run_order(runs[-1].run):
                refuse_unnamed(log_dir, os.path.join(root, name), state)


def _chosen_in(
    log_dirs: Collection[str], quarantine_dir: str | None, run: str | None, *, dry_run: bool
) -> dict[str, list[RunUndoing]]:
    """Return the runs to take back, by log dir; after an interrupted `undo`, those that it has left."""
    entered = {log_dir: entry for log_dir in log_dirs if (entry := entered_undo(log_dir)) is not None}
    roots = {log_dir: quarantine_roots(log_dir, quarantine_dir) for log_dir in log_dirs}
    resumed_dirs = [
        log_dir
        for log_dir in log_dirs
        if any(journal_in(root, UNDO_JOURNAL) is not None for root in roots[log_dir])
    ]
    if not (entered or resumed_dirs):
        chosen = {
            log_dir: _chosen(log_dir, roots[log_dir], run, None, dry_run=dry_run) for log_dir in log_dirs
        }
        if run is not None and not any(chosen.values()):
            looked = " or ".join(itertools.chain(*roots.values()))
            raise UsageError(f"no run {run} in {looked}. Remedy: see quarantine list")
        return chosen
    last_runs = {
        log_dir: entry.log_dirs[log_dir] for entry in entered.values() for log_dir in left_dirs(entry)
    }
    last_runs = {
        log_dir: last
        for log_dir, last in last_runs.items()
        if log_dir in roots and _has_run(roots[log_dir], last)
    }
    return {
        log_dir: _chosen(
            log_dir, roots[log_dir], last_runs.get(log_dir), entered.get(log_dir), dry_run=dry_run
        )
        for log_dir in log_dirs
        if log_dir in last_runs or log_dir in entered or log_dir in resumed_dirs
    }


def _has_run(roots: Iterable[str], run: str) -> bool:
    return any(run in run_names(root) for root in roots)


def _enter(undone: Mapping[str, Sequence[RunUndoing]]) -> None:
    """Enter in each log dir, before the first is touched, what is taken back in all of them, and begin with that one.

    Raises:
        OSError: one of them cannot be written; nothing was taken back, and the entries made before it are removed.
    """
    last = {log_dir: runs[-1] for log_dir, runs in undone.items() if runs}
    log_dirs = {log_dir: undoing.run for log_dir, undoing in last.items()}
    entered_dirs = {log_dir for log_dir in last if entered_undo(log_dir) is not None}
    try:
        for log_dir, undoing in last.items():
            enter_undo(log_dir, EnteredUndo(root=undoing.root, last_run=undoing.run, log_dirs=log_dirs))
        for runs in itertools.islice(filter(None, undone.values()), 1):
            runs[0].begin(runs[-1].run)
    except OSError:
        for log_dir in last.keys() - entered_dirs:
            with contextlib.suppress(OSError):
                remove_undo(log_dir)
        raise


def _chosen(
    log_dir: str, roots: Sequence[str], run: str | None, entered: EnteredUndo | None, *, dry_run: bool
) -> list[RunUndoing]:
    """Return the runs to take back, the newest first; an interrupted `undo` is finished as it was begun."""
    refuse_unfinished_restore(log_dir)
    for root in roots:
        refuse_interrupted_recovery(log_dir, root)
    undoings = [RunUndoing(log_dir, root, name) for root in roots for name in run_names(root)]
    undoings.sort(key=lambda undoing: run_order(undoing.run), reverse=True)
    if (interrupted := _interrupted(log_dir, roots, dry_run=dry_run)) is not None:
        undoings = [interrupted, *(undoing for undoing in undoings if undoing.run != interrupted.run)]
        run = interrupted.last_run
    elif entered is not None:
        if not any((undoing.root, undoing.run) == (entered.root, entered.last_run) for undoing in undoings):
            refuse_entered_undo(log_dir)
        run = entered.last_run
    if run is None:
        last = next(
            (undoing for undoing in undoings if undoing.changes_partitions), undoings[0] if undoings else None
        )
    else:
        last = next((undoing for undoing in undoings if undoing.run == run), interrupted)
    if last is None:
        return []
    count = undoings.index(last) + 1
    last.earlier_runs = tuple(
        undoing.run for undoing in undoings[count:] if undoing.changes_partitions or undoing.holds_marker
    )
    return undoings[:count]


def _interrupted(log_dir: str, roots: Iterable[str], *, dry_run: bool) -> RunUndoing | None:
    """Return the run that an interrupted `undo` was taking back, None if there is none."""
    for root in roots:
        journal = Journal.open(os.path.join(root, UNDO_JOURNAL), read_only=dry_run)
        if journal is not None:
            return RunUndoing(log_dir, root, _begun_run(journal), journal)
    return None


def _begun_run(journal: Journal) -> str:
    """Return the name of the run that an interrupted `undo` was taking back."""
    header = journal.header
    if header.tool_version != VERSION:
        raise JournalError(
            f"{journal.path}: an undo by version {header.tool_version} was interrupted, this is {VERSION}. "
            "Nothing was changed. Remedy: let that version finish it"
        )
    if header.run_folder is None or started_ms_of(header.run_folder) is None:
        raise JournalError(
            f"{journal.path}: {header.run_folder!r} is not the name of a run. Nothing was changed. "
            "Remedy: remove that file"
        )
    return header.run_folder
