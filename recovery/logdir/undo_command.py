"""The commands that take runs back, for an operator to type."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

from recovery.logdir.quarantine_place import given_place
from recovery.printable import shell_line


def undo_commands(
    kept: Mapping[str, Sequence[str]], does: str, *, handed_over: Collection[str] = ()
) -> Iterator[str]:
    """Yield e.g. "this puts it back: kafka-log-recovery undo --log-dirs /d1,/d2", with what is to be known about it.

    Args:
        kept: by log dir the folders of the runs that are to be taken back, the newest first: no other way works.
        does: what the command does: "puts it back".
        handed_over: those of runs that changed no partition: they are named, lest `undo` go on to the run before.

    Yields:
        A command for the log dirs that have the same place of quarantine and as many runs there, in the order in which
        they work.
    """
    together: dict[tuple[str | None, int, str | None], list[str]] = {}
    ranks: Counter[tuple[str | None, int, str | None]] = Counter()
    for log_dir, folders in kept.items():
        run_counts = Counter(
            (given_place(log_dir, folder), os.path.basename(folder) if folder in handed_over else None)
            for folder in folders
        )
        for rank, ((place, run), run_count) in enumerate(run_counts.items()):
            group = place, run_count, run
            together.setdefault(group, []).append(log_dir)
            ranks[group] = max(ranks[group], rank)
    for place, run_count, run in sorted(together, key=ranks.__getitem__):
        this = f"this {does}" if run_count == 1 else f"this, {run_count} times, {does} run by run"
        this = f"after that, {this}" if ranks[place, run_count, run] else this
        yield f"{this}: {undo_command(together[place, run_count, run], place, run=run)}"


def undo_command(log_dirs: Collection[str], quarantine_dir: str | None, *, run: str | None = None) -> str:
    """Return the command that takes the newest run of *log_dirs* back, or *run* and those after it."""
    words = ["kafka-log-recovery", "undo", "--log-dirs", ",".join(log_dirs)]
    words += [] if quarantine_dir is None else ["--quarantine-dir", quarantine_dir]
    return shell_line([*words, *([] if run is None else ["--run", run])])
