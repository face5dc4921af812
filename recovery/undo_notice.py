"""What keeps a recovery and an `undo` of another one apart: neither begins where the other was interrupted.

While an `undo` is at work a file of the log dir says so, for half of that is then as it was before a recovery.

The journal of the `undo` lies in quarantine, where a recovery with another `--quarantine-dir` does not look. A broker
passes over the file: LogManager.loadLogs looks at folders alone.
"""

from __future__ import annotations

import os

from recovery.actions import TEMPORARY_SUFFIX
from recovery.durable import remove_file, sync, write_new
from recovery.errors import UnsafeError
from recovery.file_system import is_there, read_small
from recovery.journal import Journal
from recovery.printable import printable
from recovery.quarantine_place import JOURNAL, UNDO_JOURNAL, quarantine_roots

UNDO_NOTICE = ".kafka-log-recovery-undo"
_MOST_BYTES = 64 << 10


def enter_undo(log_dir: str, root: str) -> None:
    """Enter, durably, that an `undo` is at work whose quarantine is the folder *root*.

    Raises:
        OSError: it cannot be written; nothing may be taken back then.
    """
    path = os.path.join(log_dir, UNDO_NOTICE)
    temporary = path + TEMPORARY_SUFFIX
    write_new(temporary, os.fsencode(root))
    sync(temporary)
    os.rename(temporary, path)
    sync(log_dir)


def remove_undo(log_dir: str) -> None:
    """Remove the file, durably: the log dir is as it was.

    Raises:
        OSError: it cannot be removed; done again, it is.
    """
    for name in (UNDO_NOTICE, UNDO_NOTICE + TEMPORARY_SUFFIX):
        remove_file(os.path.join(log_dir, name))
    sync(log_dir)


def refuse_interrupted_recovery(log_dir: str, root: str) -> None:
    """Raise UnsafeError where a recovery was interrupted whose quarantine is the folder *root*.

    Raises:
        UnsafeError: nothing was changed.
        JournalError: what has the name of its journal is none.
        OSError: it cannot be looked at.
    """
    journal = Journal.open(os.path.join(root, JOURNAL), read_only=True)
    if journal is not None:
        journal.close()
        raise UnsafeError(
            f"{log_dir}: its recovery was interrupted ({journal.path}). Nothing was changed. Remedy: take back first "
            "what was done since with another --quarantine-dir, let recover finish this one, then undo"
        )


def refuse_unfinished_undo(log_dir: str, quarantine_dir: str | None) -> None:
    """Raise UnsafeError where an `undo` was interrupted: half of the log dir is as it was before.

    Raises:
        UnsafeError: nothing was changed.
        OSError: it cannot be looked at.
    """
    if any(is_there(os.path.join(root, UNDO_JOURNAL)) for root in quarantine_roots(log_dir, quarantine_dir)):
        raise UnsafeError(
            f"{log_dir}: an undo was interrupted here. Nothing was changed. Remedy: let undo finish first"
        )
    refuse_entered_undo(log_dir)


def refuse_entered_undo(log_dir: str) -> None:
    """Raise UnsafeError where an `undo` was at work that has not ended.

    Raises:
        UnsafeError: nothing was changed.
        OSError: it cannot be looked at.
    """
    path = os.path.join(log_dir, UNDO_NOTICE)
    if is_there(path):
        root = printable(os.fsdecode(read_small(path, _MOST_BYTES, flags=os.O_RDONLY | os.O_NOFOLLOW)))
        raise UnsafeError(
            f"{log_dir}: an undo was interrupted here whose quarantine is {root}. Nothing was changed. Remedy: let it "
            f"finish first, with the --quarantine-dir that it had; if that quarantine is gone for good, remove {path}"
        )
