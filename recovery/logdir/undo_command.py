"""The commands that take runs back, for an operator to type."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from recovery.logdir.quarantine_place import given_place, possible_roots
from recovery.printable import shell_line
from recovery.read.file_system import is_same


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
    left_behind: dict[str, list[str]] = {}
    for log_dir, folders in kept.items():
        found = [folder for folder in folders if _is_found(log_dir, folder)]
        left_behind[log_dir] = [folder for folder in folders if folder not in found]
        run_counts = Counter(
            (given_place(log_dir, folder), os.path.basename(folder) if folder in handed_over else None)
            for folder in found
        )
        for rank, ((place, run), run_count) in enumerate(run_counts.items()):
            group = place, run_count, run
            together.setdefault(group, []).append(log_dir)
            ranks[group] = max(ranks[group], rank)
    for place, run_count, run in sorted(together, key=ranks.__getitem__):
        this = f"this {does}" if run_count == 1 else f"this, {run_count} times, {does} run by run"
        this = f"after that, {this}" if ranks[place, run_count, run] else this
        yield f"{this}: {undo_command(together[place, run_count, run], place, run=run)}"
    for log_dir, folders in left_behind.items():
        yield from _moves_first(log_dir, folders, does, is_last=bool(together))


def _is_found(log_dir: str, folder: str) -> bool:
    """Whether `undo` of *log_dir* looks for a run where *folder* is: not after the log dir was moved alone."""
    root = os.path.dirname(folder)
    roots = possible_roots(log_dir, given_place(log_dir, folder))
    return root in roots or any(is_same(root, one) for one in roots)


def _moves_first(log_dir: str, folders: Iterable[str], does: str, *, is_last: bool) -> Iterator[str]:
    """Yield how runs that the log dir has left behind are taken back: where their folder is, `undo` does not look."""
    place = possible_roots(log_dir, None)[0]
    for folder in folders:
        moved = shell_line(["mkdir", "-p", place]) + " && " + shell_line(["mv", folder, f"{place}/"])
        after = "after that, this" if is_last else "this"
        yield f"{after} {does}: {moved} && {undo_command([log_dir], None)}"


def undo_command(log_dirs: Collection[str], quarantine_dir: str | None, *, run: str | None = None) -> str:
    """Return the command that takes the newest run of *log_dirs* back, or *run* and those after it."""
    words = ["kafka-log-recovery", "undo", "--log-dirs", ",".join(log_dirs)]
    words += [] if quarantine_dir is None else ["--quarantine-dir", quarantine_dir]
    return shell_line([*words, *([] if run is None else ["--run", run])])
