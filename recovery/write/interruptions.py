"""What was interrupted in a log dir and `recover` refuses to begin on, for commands that only look."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

from recovery.write.move_in import FINISH_RESTORE, has_intent
from recovery.write.undo_notice import entered_undo, undo_remedy


def interruptions(log_dirs: Iterable[str]) -> Iterator[str]:
    """Yield a sentence, with its remedy, on each `undo` and each restore that has not ended in *log_dirs*.

    What cannot be looked at is passed over: a command that looks tells of it by itself.
    """
    for log_dir in log_dirs:
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
