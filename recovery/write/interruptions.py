"""What has not ended in a log dir, which is neither as before nor as it will be, for commands that only look."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

from recovery.errors import JournalError
from recovery.logdir.quarantine_place import JOURNAL, quarantine_roots
from recovery.write.move_in import FINISH_RESTORE, has_intent
from recovery.write.undo_notice import entered_undo, journal_in, undo_remedy


def interruptions(log_dirs: Iterable[str]) -> Iterator[str]:
    """Yield a sentence, with its remedy, on each recovery, `undo` and restore that has not ended in *log_dirs*.

    What cannot be looked at is passed over: a command that looks tells of it by itself. So is a recovery whose
    quarantine is elsewhere.
    """
    for log_dir in log_dirs:
        with suppress(OSError, JournalError):
            if any(journal_in(root, JOURNAL) is not None for root in quarantine_roots(log_dir, None)):
                yield (
                    f"{log_dir}: a recovery has not ended: what it has cut so far is in quarantine, and not reported "
                    "yet. Remedy: let it finish, or start the same recover again"
                )
        with suppress(OSError):
            if (entered := entered_undo(log_dir)) is not None:
                yield (
                    f"{log_dir}: an undo was interrupted, so a part of it is as a recovery has left it, and a part as "
                    f"before. Remedy: {undo_remedy(log_dir, entered)}"
                )
            if has_intent(log_dir):
                yield (
                    f"{log_dir}: a restore was interrupted while it moved partitions in, and those that it has not are "
                    f"not there. Remedy: {FINISH_RESTORE}"
                )
