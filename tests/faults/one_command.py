"""A command as a process of its own that a fault befalls, and the campaigns over the points of such a command."""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from tests import ROOT
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
from tests.patience import LONGEST_WAIT_SECONDS

_KILLED = (-9, 137)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandBench(ABC):
    """What a command works on, and what it has to leave.

    Attributes:
        folder: of all that a case needs.
    """

    folder: Path

    @property
    def root(self) -> Path:
        """What a case works on: faults befall calls on files below it."""
        return self.folder / "work"

    @abstractmethod
    def command(self) -> Sequence[str]:
        """The command."""

    @abstractmethod
    def make(self) -> None:
        """Make what a case starts from."""

    @abstractmethod
    def fresh(self) -> None:
        """Begin anew."""

    def run(self, fault: Fault | None = None, *, is_traced: bool = False) -> subprocess.CompletedProcess[str]:
        """Run the command; *fault* befalls it."""
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
        return run_recovery(self.command(), environment)

    def calls(self) -> list[Call]:
        """The calls of a run that is not disturbed."""
        self.fresh()
        (self.folder / "trace").unlink(missing_ok=True)
        done = self.run(is_traced=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return list(read_trace(self.folder / "trace"))


def run_recovery(
    arguments: Sequence[str], environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `kafka-log-recovery` with *arguments*."""
    return subprocess.run(
        [sys.executable, "-m", "recovery", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST_WAIT_SECONDS,
    )


def unsaid(fault: Fault, ended: subprocess.CompletedProcess[str]) -> Iterator[str]:
    """Yield what a run that *fault* has befallen, and that has not ended well, should have said and has not."""
    said = ended.stdout + ended.stderr
    if fault.action in KILLING_ACTIONS:
        if ended.returncode not in (*_KILLED, 0):
            yield f"exit code {ended.returncode}: {ended.stderr[-500:]}"
    elif ended.returncode == 0:
        return
    elif ended.returncode < 0 or "an error in the tool itself" in said or "Traceback" in said:
        yield f"exit code {ended.returncode}, and it did not expect that: {said[-1500:]}"
    elif fault.action is Action.SHORTEN:
        yield f"exit code {ended.returncode} for a short read or write: {said[-700:]}"
    elif os.strerror(fault.error) not in said:
        yield f"exit code {ended.returncode}, and the errno is not named: {said[-700:]}"


def chosen_points(bench: CommandBench, seed: int, most: int, *, is_failing: bool = False) -> list[Fault]:
    """Return at most so many points of a run, by *seed*: kills, or calls that fail."""
    calls = bench.calls()
    points = fault_points(calls) if is_failing else kill_points(calls)
    return random.Random(seed).sample(points, min(most, len(points)))


_Bench = TypeVar("_Bench", bound=CommandBench)


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign(Generic[_Bench]):
    """A campaign over one command, as a program.

    Attributes:
        about: for its help.
        flag: an option that changes what the bench is.
        bench_in: makes the bench in a folder; told whether the option is given.
        run_cases: what is wrong at any of the points.
    """

    about: str | None
    flag: str
    bench_in: Callable[[Path, bool], _Bench]
    run_cases: Callable[[_Bench, Iterable[Fault]], list[str]]

    def main(self) -> int:
        """Run it; return 1 if anything is wrong."""
        parser = argparse.ArgumentParser(
            description=self.about, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        parser.add_argument("--seed", type=int, default=7)
        parser.add_argument("--most", type=int, default=100)
        parser.add_argument(self.flag, action="store_true", dest="is_other")
        parser.add_argument("--faults", action="store_true", help="calls that fail, not kills")
        parser.add_argument("--only")
        arguments = parser.parse_args()
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            bench = self.bench_in(Path(folder), arguments.is_other)
            bench.make()
            points = (
                [Fault.parse(arguments.only)]
                if arguments.only
                else chosen_points(bench, arguments.seed, arguments.most, is_failing=arguments.faults)
            )
            found = self.run_cases(bench, points)
        print("\n".join([*found, f"{len(points)} points, {len(found)} problems"]))
        return 1 if found else 0
