"""An `undo` of a restore that is killed at a call, or in which one fails, and that is started again.

What must hold: a log is there whole or not at all; a run in which something failed says so by its exit code and names
the errno; the next `undo` comes to the tree before the restore.

    python -m tests.faults.restore_undos --seed 7 --most 200
    python -m tests.faults.restore_undos --faults --most 200
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tests.faults.one_command import Campaign, run_recovery, unsaid
from tests.faults.restores import RestoreBench
from tests.faults.shim import Fault

Folders = dict[str, list[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoBench(RestoreBench):
    """The log dirs after a restore."""

    def make(self) -> None:
        """Make what a case starts from: the log dirs after the restore, and what was there before."""
        RestoreBench.make(self)

    def fresh(self) -> None:
        """Begin anew."""
        self.before()
        done = run_recovery(RestoreBench.command(self))
        assert done.returncode == 0, done.stdout + done.stderr

    def before(self) -> None:
        """Lay down what was there before the restore."""
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(self.folder / "fresh", self.root, symlinks=True)

    def command(self) -> Sequence[str]:
        """The undo."""
        return ["undo", "-c", str(self.folder / "config"), "--progress", "none"]

    def problems(self, fault: Fault, whole: dict[str, bytes], folders: Folders) -> Iterator[str]:
        """Yield what is wrong after an undo that *fault* has befallen, and one after it.

        Args:
            fault: what befalls it.
            whole: the tree before the restore.
            folders: the partitions' folders before the restore.
        """
        self.fresh()
        restored = self.folders()
        ended = self.run(fault)
        yield from unsaid(fault, ended)
        for name, files in self.folders().items():
            if files not in (restored[name], folders.get(name)):
                yield f"half a folder: {name}: {files}"
        again = self.run()
        if again.returncode != 0:
            yield f"started again: {again.returncode}: {again.stdout[-700:]}{again.stderr[-500:]}"
        elif (now := self.tree()) != whole:
            names = sorted(name for name in whole.keys() | now.keys() if whole.get(name) != now.get(name))
            yield f"another tree: {names[:5]}"


def run_cases(bench: UndoBench, points: Iterable[Fault]) -> list[str]:
    """Return what is wrong at any of the *points*."""
    bench.before()
    whole, folders = bench.tree(), bench.folders()
    return [f"{point}: {problem}" for point in points for problem in bench.problems(point, whole, folders)]


CAMPAIGN = Campaign(
    about=__doc__,
    flag="--aux",
    bench_in=lambda folder, is_aux: UndoBench(folder=folder, is_aux=is_aux),
    run_cases=run_cases,
)

if __name__ == "__main__":
    sys.exit(CAMPAIGN.main())
