"""What keeps a recovery and an `undo` of another one apart: neither begins where the other was interrupted.

While an `undo` is at work, a file in each of its log dirs says so, until all that was to be taken back there is. Until
then a part of the log dir is as it was before a recovery, and the next `undo` must resume this one and choose no other
runs.

    {"version": 1, "root": "/data/kafka.quarantine", "last_run": "20261123T004842Z", "log_dirs": {"/data/kafka": ...}}

The journal of the `undo` lies in quarantine, where a recovery with another `--quarantine-dir` does not look. A broker
ignores the file: LogManager.loadLogs looks only at folders.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from recovery.errors import UnsafeError
from recovery.logdir.quarantine_place import JOURNAL, UNDO_JOURNAL, given_place, quarantine_roots
from recovery.logdir.undo_command import undo_command
from recovery.plan.actions import TEMPORARY_SUFFIX
from recovery.printable import printable
from recovery.read.file_system import is_there, read_small
from recovery.write.durable import remove_file, sync, write_new
from recovery.write.journal import Journal

UNDO_NOTICE = ".kafka-log-recovery-undo"
_MOST_BYTES = 64 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class EnteredUndo:
    """An `undo` that has not ended.

    Attributes:
        root: where its quarantine is.
        last_run: name of the last run that it takes back.
        log_dirs: all that it was begun on, each with the last run taken back there.
    """

    root: str
    last_run: str = ""
    log_dirs: Mapping[str, str] = field(default_factory=dict)


def enter_undo(log_dir: str, entered: EnteredUndo) -> None:
    """Enter, durably, that an `undo` is at work.

    Raises:
        OSError: it cannot be written; nothing may be taken back then.
    """
    path = os.path.join(log_dir, UNDO_NOTICE)
    temporary = path + TEMPORARY_SUFFIX
    document = {
        "version": 1,
        "root": entered.root,
        "last_run": entered.last_run,
        "log_dirs": dict(entered.log_dirs),
    }
    write_new(temporary, json.dumps(document).encode())
    sync(temporary)
    os.rename(temporary, path)
    sync(log_dir)


def entered_undo(log_dir: str) -> EnteredUndo | None:
    """Return the `undo` that is entered; if the file cannot be parsed, one with its text as the quarantine.

    Raises:
        OSError: it cannot be read.
    """
    path = os.path.join(log_dir, UNDO_NOTICE)
    if not is_there(path):
        return None
    data = read_small(path, _MOST_BYTES, flags=os.O_RDONLY | os.O_NOFOLLOW)
    try:
        return _read(json.loads(data))
    except (ValueError, KeyError, TypeError, RecursionError):
        return EnteredUndo(root=os.fsdecode(data))


def _read(document: dict[str, Any]) -> EnteredUndo:
    root, last_run, log_dirs = document["root"], document["last_run"], dict(document["log_dirs"])
    if not all(isinstance(text, str) for text in (root, last_run, *log_dirs, *log_dirs.values())):
        raise TypeError
    return EnteredUndo(root=root, last_run=last_run, log_dirs=log_dirs)


def remove_undo(log_dir: str) -> None:
    """Remove the file, durably: the log dir is as it was.

    Raises:
        OSError: it cannot be removed; this can be tried again.
    """
    for name in (UNDO_NOTICE, UNDO_NOTICE + TEMPORARY_SUFFIX):
        remove_file(os.path.join(log_dir, name))
    sync(log_dir)


def refuse_interrupted_recovery(log_dir: str, root: str) -> None:
    """Raise UnsafeError if a recovery was interrupted whose quarantine is the folder *root*.

    Raises:
        UnsafeError: nothing was changed.
        JournalError: a file has the name of its journal and is not one.
        OSError: it cannot be looked at.
    """
    if (journal := journal_in(root, JOURNAL)) is not None:
        raise UnsafeError(
            f"{log_dir}: its recovery was interrupted ({journal}). Nothing was changed. Remedy: let recover "
            "finish it, then undo; but first take back what was done since with another --quarantine-dir, if anything"
        )


def refuse_unfinished_recovery(log_dir: str, quarantine_dir: str | None) -> None:
    """Raise UnsafeError if a recovery was interrupted: what else is changed meanwhile, `undo` could not take back.

    Raises:
        UnsafeError: nothing was changed.
        JournalError: a file has the name of its journal and is not one.
        OSError: it cannot be looked at.
    """
    for root in quarantine_roots(log_dir, quarantine_dir):
        if (journal := journal_in(root, JOURNAL)) is not None:
            raise UnsafeError(
                f"{log_dir}: its recovery was interrupted ({journal}). Nothing was changed. Remedy: let recover finish "
                "it first"
            )


def journal_in(root: str, name: str) -> str | None:
    """Return the path of the journal *name* that an interrupted command has left in *root*, None if there is none.

    Raises:
        JournalError: a file has that name and is no journal.
        OSError: it cannot be looked at.
    """
    journal = Journal.open(os.path.join(root, name), read_only=True)
    if journal is None:
        return None
    journal.close()
    return journal.path


def refuse_unfinished_undo(log_dir: str, quarantine_dir: str | None) -> None:
    """Raise UnsafeError if an `undo` was interrupted: a part of the log dir is as it was before.

    Raises:
        UnsafeError: nothing was changed.
        OSError: it cannot be looked at.
    """
    refuse_entered_undo(log_dir)
    for root in quarantine_roots(log_dir, quarantine_dir):
        if journal_in(root, UNDO_JOURNAL) is not None:
            _refuse(log_dir, EnteredUndo(root=root, log_dirs={log_dir: ""}))


def refuse_entered_undo(log_dir: str) -> None:
    """Raise UnsafeError if an `undo` was at work and has not ended.

    Raises:
        UnsafeError: nothing was changed.
        OSError: it cannot be looked at.
    """
    if (entered := entered_undo(log_dir)) is not None:
        _refuse(log_dir, entered)


def left_dirs(entered: EnteredUndo) -> tuple[str, ...]:
    """Return the log dirs in which an `undo` has not ended.

    It enters itself in all of them, in order, before it begins one. So where the file is missing it is done, or
    somebody has ended it as `way_out` says; unless it was killed while it entered itself.

    Raises:
        OSError: one of them cannot be looked at.
    """
    entries = {log_dir: entered_undo(log_dir) for log_dir in entered.log_dirs}
    is_begun = any(
        entry is not None and is_there(os.path.join(entry.root, UNDO_JOURNAL)) for entry in entries.values()
    )
    is_entered = [entry is not None for entry in entries.values()]
    return tuple(
        log_dir
        for number, log_dir in enumerate(entries)
        if is_entered[number] or not (is_begun or any(is_entered[number:]))
    )


def way_out(log_dir: str, journal: str | None) -> str:
    """Return how an `undo` that cannot be finished in *log_dir* is ended there; *journal* is its journal's path."""
    files = [printable(path) for path in (os.path.join(log_dir, UNDO_NOTICE), journal) if path is not None]
    return (
        f"end the undo where it is: remove {' and '.join(files)}, run recover, and put back by hand what "
        "quarantine list -v shows"
    )


def _refuse(log_dir: str, entered: EnteredUndo) -> NoReturn:
    raise UnsafeError(
        f"{log_dir}: an undo was interrupted here. Nothing was changed. Remedy: {undo_remedy(log_dir, entered)}"
    )


def undo_remedy(log_dir: str, entered: EnteredUndo) -> str:
    """Return how an `undo` that was interrupted in *log_dir* is ended.

    Raises:
        OSError: one of its log dirs cannot be looked at.
    """
    remedy = "let it finish first, with the --quarantine-dir that it had"
    if left := left_dirs(entered):
        place = given_place(log_dir, os.path.join(entered.root, entered.last_run))
        remedy = f"let it finish first: {undo_command(left, place)}"
    notice = printable(os.path.join(log_dir, UNDO_NOTICE))
    if not entered.root:
        return f"{remedy}. {notice} names no quarantine; if no undo has been at work here, remove it"
    if not is_there(entered.root):
        root = printable(entered.root)
        return f"{remedy}. Its quarantine, {root}, is not there; if it is gone for good, remove {notice}"
    return remedy
