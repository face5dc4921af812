"""Restores that are killed at a call, or in which one fails, and that are started again.

What must hold: no half folder; a run in which something failed says so by its exit code and names the errno; the next
run comes to the same tree, and `undo` takes both back.

    python -m tests.faults.restores --seed 7 --most 200
    python -m tests.faults.restores --faults --most 200

A point is repeated by its name: `--only kill-after@17`, `--only EIO+@29`.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from recovery.write.move_in import STAGE_FOLDER
from tests import ROOT
from tests.brokers.tiered_broker import ARCHIVE
from tests.faults.io_faults import fault_points
from tests.faults.kills import kill_points
from tests.faults.shim import (
    CONTROL_VARIABLE,
    KILLING_ACTIONS,
    Action,
    Call,
    Fault,
    open_control,
    read_trace,
    shim_library,
)
from tests.logs.samples import unpack

CHOSEN = ("plain-0", "expired-by-time-0", "stuck-copy-0")
"""Two whose folders are gone, and one that an empty folder stands for."""
_KILLED = -9


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreBench:
    """A broker's log dirs without some partitions, whose archive is there.

    Attributes:
        folder: of all that a case needs.
        is_aux: whether records stay in remote storage.
    """

    folder: Path
    is_aux: bool = False

    @property
    def root(self) -> Path:
        """What a case works on."""
        return self.folder / "work"

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

    def run(self, fault: Fault | None = None, *, is_traced: bool = False) -> subprocess.CompletedProcess[str]:
        """Restore; *fault* befalls it."""
        chosen = [word for name in CHOSEN for word in ("--partition", name)]
        command = [sys.executable, "-m", "recovery", "archive", "restore", str(self.root / ARCHIVE)]
        command += ["-c", str(self.folder / "config"), "--progress", "none", "--threads", "1", *chosen]
        command += ["--metadata", f"{self.folder}/fresh/d1,{self.folder}/fresh/d2"]
        command += ["--aux"] if self.is_aux else []
        environment = dict(os.environ)
        if fault is not None or is_traced:
            control = open_control(self.folder / "control")
            control.set(
                str(self.root), fault, trace=str(self.folder / "trace"), with_data=False, freezes=False
            )
            control.armed = 1
            environment |= {
                "LD_PRELOAD": str(shim_library()),
                CONTROL_VARIABLE: str(self.folder / "control"),
            }
        return subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=120
        )

    def undo(self) -> subprocess.CompletedProcess[str]:
        """Take the restore back."""
        command = [sys.executable, "-m", "recovery", "undo", "-c", str(self.folder / "config")]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)

    def calls(self) -> list[Call]:
        """The calls of a run that is not disturbed."""
        self.fresh()
        (self.folder / "trace").unlink(missing_ok=True)
        done = self.run(is_traced=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return list(read_trace(self.folder / "trace"))

    def tree(self) -> dict[str, bytes]:
        """All files of the log dirs, but for what tells times and locks."""
        return {
            str(path.relative_to(self.root)): path.read_bytes()
            for log_dir in ("d1", "d2")
            for path in sorted((self.root / log_dir).rglob("*"))
            if path.is_file() and path.name != ".lock"
        }

    def folders(self) -> dict[str, list[str]]:
        """The names in each of the partitions' folders that are there."""
        return {
            name: sorted(path.name for path in (self.root / log_dir / name).iterdir())
            for log_dir in ("d1", "d2")
            for name in CHOSEN
            if (self.root / log_dir / name).is_dir()
        }

    def problems(self, fault: Fault, whole: dict[str, bytes], folders: dict[str, list[str]]) -> Iterator[str]:
        """Yield what is wrong after a run that *fault* has befallen, and one after it."""
        self.fresh()
        before, untouched = self.folders(), self.tree()
        killed = self.run(fault)
        if fault.action in KILLING_ACTIONS:
            if killed.returncode not in (_KILLED, 137, 0):
                yield f"exit code {killed.returncode}: {killed.stderr[-500:]}"
        elif killed.returncode == 0:
            if self.tree() != whole:
                yield "exit code 0, and another tree"
        else:
            yield from _unsaid(fault, killed)
        for name, files in self.folders().items():
            if files not in (before.get(name), folders[name]):
                yield f"half a folder: {name}: {files}"
        again = self.run()
        if again.returncode != 0:
            yield f"started again: {again.returncode}: {again.stdout[-700:]}{again.stderr[-500:]}"
        elif self.tree() != whole:
            now = self.tree()
            names = sorted(name for name in whole.keys() | now.keys() if whole.get(name) != now.get(name))
            yield f"another tree: {names[:5]}"
        if any((self.root / log_dir / STAGE_FOLDER).exists() for log_dir in ("d1", "d2")):
            yield "the stage is left"
        undone = self.undo()
        if undone.returncode != 0 or self.tree() != untouched:
            yield f"not taken back: {undone.returncode}: {undone.stdout[-300:]}{undone.stderr[-500:]}"


def _unsaid(fault: Fault, failed: subprocess.CompletedProcess[str]) -> Iterator[str]:
    """Yield what a run that has failed should have said and has not."""
    said = failed.stdout + failed.stderr
    if failed.returncode < 0 or "an error in the tool itself" in said or "Traceback" in said:
        yield f"exit code {failed.returncode}, and it did not expect that: {said[-1500:]}"
    elif fault.action is Action.SHORTEN:
        yield f"exit code {failed.returncode} for a short read or write: {said[-700:]}"
    elif os.strerror(fault.error) not in said:
        yield f"exit code {failed.returncode}, and the errno is not named: {said[-700:]}"


def run_cases(bench: RestoreBench, points: Iterable[Fault]) -> list[str]:
    """Return what is wrong at any of the *points*."""
    bench.fresh()
    done = bench.run()
    assert done.returncode == 0, done.stdout + done.stderr
    whole, folders = bench.tree(), bench.folders()
    return [f"{point}: {problem}" for point in points for problem in bench.problems(point, whole, folders)]


def chosen_points(bench: RestoreBench, seed: int, most: int, *, is_failing: bool = False) -> list[Fault]:
    """Return at most so many points of a run, by *seed*: kills, or calls that fail."""
    calls = bench.calls()
    points = fault_points(calls) if is_failing else kill_points(calls)
    return random.Random(seed).sample(points, min(most, len(points)))


def main() -> int:
    """Run the campaign; exit with 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--most", type=int, default=100)
    parser.add_argument("--aux", action="store_true")
    parser.add_argument("--faults", action="store_true", help="calls that fail, not kills")
    parser.add_argument("--only")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        bench = RestoreBench(folder=Path(folder), is_aux=arguments.aux)
        bench.make()
        points = (
            [Fault.parse(arguments.only)]
            if arguments.only
            else chosen_points(bench, arguments.seed, arguments.most, is_failing=arguments.faults)
        )
        found = run_cases(bench, points)
    print("\n".join([*found, f"{len(points)} points, {len(found)} problems"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
