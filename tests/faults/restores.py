"""Restores that are killed at a call, or in which one fails, and that are started again.

What must hold: no half folder; a run in which something failed says so by its exit code and names the errno; the next
run comes to the same tree, and `undo` takes both back.

    python -m tests.faults.restores --seed 7 --most 200
    python -m tests.faults.restores --faults --most 200

A point is repeated by its name: `--only kill-after@17`, `--only EIO+@29`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from recovery.write.move_in import STAGE_FOLDER
from tests.brokers.tiered_broker import ARCHIVE
from tests.faults.one_command import Campaign, CommandBench, run_recovery, unsaid
from tests.faults.shim import KILLING_ACTIONS, Fault
from tests.logs.samples import unpack

CHOSEN = ("plain-0", "expired-by-time-0", "stuck-copy-0")
"""Two whose folders are gone, and one that an empty folder stands for."""
Folders = dict[str, list[str]]
"""The names in each of the partitions' folders."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreBench(CommandBench):
    """A broker's log dirs without some partitions, whose archive is there.

    Attributes:
        is_aux: whether records stay in remote storage.
    """

    is_aux: bool = False

    def make(self) -> None:
        """Make what a case starts from."""
        sample = unpack("tiered", self.folder)
        for name in CHOSEN:
            for log_dir in sample.log_dirs:
                if name != "expired-by-time-0" or self.is_aux:
                    shutil.rmtree(log_dir / name, ignore_errors=True)
        sample.root.rename(self.folder / "fresh")
        (self.folder / "config").write_text(
            (self.folder / "fresh/server.properties").read_text().replace(str(sample.root), str(self.root))
        )

    def fresh(self) -> None:
        """Begin anew."""
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(self.folder / "fresh", self.root, symlinks=True)

    def command(self) -> Sequence[str]:
        """The restore."""
        chosen = [word for name in CHOSEN for word in ("--partition", name)]
        command = ["archive", "restore", str(self.root / ARCHIVE), "-c", str(self.folder / "config")]
        command += ["--progress", "none", "--threads", "1", *chosen]
        command += ["--metadata", f"{self.folder}/fresh/d1,{self.folder}/fresh/d2"]
        return [*command, "--aux"] if self.is_aux else command

    def undo(self) -> subprocess.CompletedProcess[str]:
        """Take the restore back."""
        return run_recovery(["undo", "-c", str(self.folder / "config")])

    def tree(self) -> dict[str, bytes]:
        """All files of the log dirs, but for what tells times and locks."""
        return {
            str(path.relative_to(self.root)): path.read_bytes()
            for log_dir in ("d1", "d2")
            for path in sorted((self.root / log_dir).rglob("*"))
            if path.is_file() and path.name != ".lock"
        }

    def folders(self) -> Folders:
        """The names in each of the partitions' folders that are there."""
        return {
            name: sorted(path.name for path in (self.root / log_dir / name).iterdir())
            for log_dir in ("d1", "d2")
            for name in CHOSEN
            if (self.root / log_dir / name).is_dir()
        }

    def expected(self) -> tuple[dict[str, bytes], Folders]:
        """The tree that an undisturbed command leaves, and the partitions' folders in it."""
        self.fresh()
        done = self.run()
        assert done.returncode == 0, done.stdout + done.stderr
        return self.tree(), self.folders()

    def differences(self, whole: dict[str, bytes], *, with_stage: bool = True) -> list[str]:
        """Some of the files that are not as in the tree *whole*."""
        now = self.tree()
        names = sorted(name for name in whole.keys() | now.keys() if whole.get(name) != now.get(name))
        return [name for name in names if with_stage or f"/{STAGE_FOLDER}/" not in name][:5]

    def problems(self, fault: Fault, whole: dict[str, bytes], folders: Folders) -> Iterator[str]:
        """Yield what is wrong after a run that *fault* has befallen, and one after it."""
        self.fresh()
        before, untouched = self.folders(), self.tree()
        killed = self.run(fault)
        yield from unsaid(fault, killed)
        if killed.returncode == 0 and fault.action not in KILLING_ACTIONS:
            yield from self._untold(killed.stdout, whole)
        for name, files in self.folders().items():
            if files not in (before.get(name), folders[name]):
                yield f"half a folder: {name}: {files}"
        again = self.run()
        if again.returncode != 0:
            yield f"started again: {again.returncode}: {again.stdout[-700:]}{again.stderr[-500:]}"
        elif names := self.differences(whole):
            yield f"another tree: {names}"
        if self._has_stage():
            yield "the stage is left"
        undone = self.undo()
        if killed.returncode == 4:  # some partitions were restored by one run, the others by the next
            undone = self.undo()
        if undone.returncode != 0 or self.tree() != untouched:
            yield f"not taken back: {undone.returncode}: {undone.stdout[-300:]}{undone.stderr[-500:]}"

    def _untold(self, said: str, whole: dict[str, bytes]) -> Iterator[str]:
        """Yield what a run that has ended well has left and not *said*: its stage may be, with a warning."""
        if names := self.differences(whole, with_stage=False):
            yield f"exit code 0, and another tree: {names}"
        if self._has_stage() and "the stage is left" not in said:
            yield "exit code 0, and no word about the stage that is left"

    def _has_stage(self) -> bool:
        return any((self.root / log_dir / STAGE_FOLDER).exists() for log_dir in ("d1", "d2"))


def run_cases(bench: RestoreBench, points: Iterable[Fault]) -> list[str]:
    """Return what is wrong at any of the *points*."""
    whole, folders = bench.expected()
    return [f"{point}: {problem}" for point in points for problem in bench.problems(point, whole, folders)]


CAMPAIGN = Campaign(
    about=__doc__,
    flag="--aux",
    bench_in=lambda folder, is_aux: RestoreBench(folder=folder, is_aux=is_aux),
    run_cases=run_cases,
)

if __name__ == "__main__":
    sys.exit(CAMPAIGN.main())
