"""An `undo` of a restore that is killed at a call, or in which one fails, and that is started again.

What must hold: a log is there whole or not at all; a run in which something failed says so by its exit code and names
the errno; the next `undo` comes to the tree before the restore.

    python -m tests.faults.restore_undos --seed 7 --most 200
    python -m tests.faults.restore_undos --faults --most 200
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.faults.one_command import Campaign, run_recovery, unsaid
from tests.faults.restores import Folders, RestoreBench, run_cases
from tests.faults.shim import Fault


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoBench(RestoreBench):
    """The log dirs after a restore."""

    def fresh(self) -> None:
        """Begin anew."""
        RestoreBench.fresh(self)
        done = run_recovery(RestoreBench.command(self))
        assert done.returncode == 0, done.stdout + done.stderr

    def expected(self) -> tuple[dict[str, bytes], Folders]:
        """What was there before the restore."""
        RestoreBench.fresh(self)
        return self.tree(), self.folders()

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
        elif names := self.differences(whole):
            yield f"another tree: {names}"


CAMPAIGN = Campaign(
    about=__doc__,
    flag="--aux",
    bench_in=lambda folder, is_aux: UndoBench(folder=folder, is_aux=is_aux),
    run_cases=run_cases,
)

if __name__ == "__main__":
    sys.exit(CAMPAIGN.main())
