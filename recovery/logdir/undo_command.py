"""The commands that take runs back, for an operator to type."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from recovery.logdir.quarantine_place import given_place


def undo_commands(kept: Mapping[str, Collection[str]], does: str) -> Iterator[str]:
    """Yield e.g. "this puts it back: kafka-log-recovery undo --log-dirs /d1,/d2", with what is to be known about it.

    Args:
        kept: by log dir the folders of the runs that are to be taken back.
        does: what the command does: "puts it back".

    Yields:
        A command for the log dirs that have the same place of quarantine and as many runs there.
    """
    together: dict[tuple[str | None, int], list[str]] = {}
    for log_dir, folders in kept.items():
        for place, run_count in Counter(given_place(log_dir, folder) for folder in folders).items():
            together.setdefault((place, run_count), []).append(log_dir)
    for (place, run_count), log_dirs in together.items():
        this = f"this {does}" if run_count == 1 else f"this, {run_count} times, {does} run by run"
        yield f"{this}: {undo_command(log_dirs, place)}"


def undo_command(log_dirs: Collection[str], quarantine_dir: str | None, *, run: str | None = None) -> str:
    """Return the command that takes the newest run of *log_dirs* back, or *run* and those after it."""
    words = ["kafka-log-recovery", "undo", "--log-dirs", ",".join(log_dirs)]
    words += [] if quarantine_dir is None else ["--quarantine-dir", quarantine_dir]
    return shlex.join([*words, *([] if run is None else ["--run", run])])
