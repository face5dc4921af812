"""The commands that take runs back, for an operator to type."""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection, Iterator, Mapping

from recovery.logdir.quarantine_place import given_place, run_order


def undo_commands(kept: Mapping[str, Collection[str]], does: str) -> Iterator[str]:
    """Yield e.g. "this puts it back: kafka-log-recovery undo --log-dirs /d1,/d2", with what is to be known about it.

    Args:
        kept: by log dir the folders of the runs that are to be taken back.
        does: what the command does: "puts it back".

    Yields:
        A command for the log dirs that have the same place of quarantine and as many runs there: that of the newest
        run first, as no run can be taken back before a later one.
    """
    together: dict[tuple[str | None, int], list[str]] = {}
    newest: dict[tuple[str | None, int], tuple[str, int]] = {}
    for log_dir, folders in kept.items():
        runs_in: dict[str | None, list[tuple[str, int]]] = {}
        for folder in folders:
            order = run_order(os.path.basename(folder))
            runs_in.setdefault(given_place(log_dir, folder), []).append(order)
        for place, orders in runs_in.items():
            key = place, len(orders)
            together.setdefault(key, []).append(log_dir)
            newest[key] = max(*orders, newest.get(key, ("", 0)))
    for place, run_count in sorted(together, key=newest.__getitem__, reverse=True):
        log_dirs = together[place, run_count]
        this = f"this {does}" if run_count == 1 else f"this, {run_count} times, {does} run by run"
        yield f"{this}: {undo_command(log_dirs, place)}"


def undo_command(log_dirs: Collection[str], quarantine_dir: str | None, *, run: str | None = None) -> str:
    """Return the command that takes the newest run of *log_dirs* back, or *run* and those after it."""
    words = ["kafka-log-recovery", "undo", "--log-dirs", ",".join(log_dirs)]
    words += [] if quarantine_dir is None else ["--quarantine-dir", quarantine_dir]
    return shlex.join([*words, *([] if run is None else ["--run", run])])
