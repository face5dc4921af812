"""Kills, faults, crashes, full disks and shrinking files in any number.

    python -m tests.faults.campaign KIND [--seed S] [--seeded N] [--stride N] [--jobs N] [--show N]
    python -m tests.faults.campaign KIND --only STATE [--point POINT]      one state, or one point of it

The kinds:

    kills           each call: killed before it, after it, within a write, each disk that this can leave once; and as
                    many double kills; then started again, and taken back
    kills-everywhere  the same, and killed before each call that only looks, too
    kills-restart   each call that changes something: killed, then begun anew with --restart: who was told of what
    kills-broker    each call that changes something: killed, then a broker is started instead
    long-kills      a run of seconds on large log dirs, killed at random times
    faults          each call fails: EIO, ENOSPC, EDQUOT, EACCES, EROFS, short reads and writes, once and from then on
    faults-resumed  the same in a run that goes on with one that was killed
    full-disk       a tmpfs that is too small, at 64 sizes
    shrinking       files that are cut or replaced while they are read
    undo-kills, undo-faults, undo-crashes  the same of an `undo`
    crashes         a power loss at each barrier: unsynced bytes and names lost, torn, reordered; then started again
    crashes-broker  the same, and a broker is started instead

Prints counts, and for each failing case the line that repeats it.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.brokers import Oracle
from tests.faults import crashes, full_disk, kills, shrinking, undone
from tests.faults.bench import CLEAN_CODES, Bench, StateBench
from tests.faults.io_faults import check_fault, check_resumed_fault, fault_points, resumed_fault_points
from tests.faults.long_runs import LongRun
from tests.faults.shim import Fault
from tests.faults.states import MADE_STATES, State, find_state
from tests.logs.samples import differences

LONG_RUN_COUNT = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of disturbance.

    Attributes:
        points: all there are for a state.
        check: disturbs a run at a point and returns what is wrong; None where there was nothing to disturb.
        needs_broker: whether *check* takes the oracle and the broker's own end, too.
    """

    points: Callable[[StateBench, random.Random], Sequence[str]]
    check: Callable[..., list[str] | None]
    needs_broker: bool = False


def _kill_points(bench: StateBench, rng: random.Random) -> list[str]:
    single = kills.kill_points(bench.calls)
    return [*map(str, single), *_double_kills(bench, rng)]


def _disk_points(bench: StateBench, rng: random.Random) -> list[str]:
    return [*map(str, kills.disk_points(bench.calls)), *_double_kills(bench, rng)]


def _double_kills(bench: StateBench, rng: random.Random) -> list[str]:
    count = len(kills.disk_points(bench.calls))
    return [f"{first},{second}" for first, second in kills.double_kills(bench.calls, count, rng)]


def _check_kills(bench: StateBench, point: str) -> list[str]:
    return kills.check_kills(bench, [Fault.parse(word) for word in point.split(",")])


def _crash_points(bench: StateBench, _rng: random.Random) -> list[str]:
    return [f"{fault}/{variant}" for fault, variant in crashes.crash_points(bench.calls)]


def _full_disk_points(bench: StateBench, _rng: random.Random) -> list[str]:
    if full_disk.may_mount():
        return [f"{size}{how}" for size in full_disk.free_sizes(bench) for how in ("", " unseen")]
    return [str(fault) for fault in full_disk.shim_shortages(bench)]


def _check_full_disk(bench: StateBench, point: str) -> list[str]:
    size, _, how = point.partition(" ")
    if size.isdecimal():
        return full_disk.check_full_disk(bench, int(size), is_seen=not how)
    return check_fault(bench, Fault.parse(point))


KINDS = {
    "kills": Kind(points=_disk_points, check=_check_kills),
    "kills-everywhere": Kind(points=_kill_points, check=_check_kills),
    "kills-restart": Kind(
        points=lambda bench, _: [str(point) for point in kills.changing_kill_points(bench.calls)],
        check=lambda bench, point: kills.check_restart(bench, Fault.parse(point)),
    ),
    "kills-broker": Kind(
        points=lambda bench, _: [str(point) for point in kills.changing_kill_points(bench.calls)],
        check=lambda bench, point, *broker: kills.check_broker(bench, Fault.parse(point), *broker),
        needs_broker=True,
    ),
    "faults": Kind(
        points=lambda bench, _: [str(point) for point in fault_points(bench.calls)],
        check=lambda bench, point: check_fault(bench, Fault.parse(point)),
    ),
    "faults-resumed": Kind(
        points=lambda bench, rng: [
            ",".join(map(str, pair)) for pair in resumed_fault_points(bench.calls, rng)
        ],
        check=lambda bench, point: check_resumed_fault(bench, *map(Fault.parse, point.split(","))),
    ),
    "full-disk": Kind(points=_full_disk_points, check=_check_full_disk),
    "shrinking": Kind(
        points=lambda bench, _: [str(point) for point in shrinking.shrinking_points(bench.calls)],
        check=lambda bench, point: shrinking.check_shrinking(bench, Fault.parse(point)),
    ),
    "undo-kills": Kind(
        points=lambda bench, _: [str(point) for point in undone.undo_kill_points(bench)],
        check=lambda bench, point: undone.check_undo(bench, Fault.parse(point)),
    ),
    "undo-faults": Kind(
        points=lambda bench, _: [str(point) for point in undone.undo_fault_points(bench)],
        check=lambda bench, point: undone.check_undo(bench, Fault.parse(point)),
    ),
    "undo-crashes": Kind(
        points=lambda bench, _: undone.undo_crash_points(bench),
        check=lambda bench, point: undone.check_undo_crash(bench, *crashes.parse_point(point)),
    ),
    "crashes": Kind(
        points=_crash_points,
        check=lambda bench, point: crashes.check_crash(bench, *crashes.parse_point(point)),
    ),
    "crashes-broker": Kind(
        points=_crash_points,
        check=lambda bench, point, *broker: crashes.check_crash_broker(
            bench, *crashes.parse_point(point), *broker
        ),
        needs_broker=True,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Failing:
    """A case that did not hold."""

    kind: str
    state: str
    point: str
    problems: tuple[str, ...]

    def __str__(self) -> str:
        line = f"{self.kind} --only '{self.state}'" + (f" --point '{self.point}'" if self.point else "")
        return "\n    ".join([line, *self.problems])


@dataclass(slots=True)
class Tally:
    """What a campaign has done.

    Attributes:
        calls: of the undisturbed run.
    """

    cases: int
    failing: list[Failing]
    calls: int = 0


def run_state(
    bench: Bench,
    kind_name: str,
    state: State,
    *,
    seed: int = 1,
    stride: int = 1,
    most: int | None = None,
    point: str | None = None,
    oracle: Oracle | None = None,
    kills_every: int = 0,
) -> Tally:
    """Run every *stride*-th point of a kind on *state*, or about *most* of them, or *point* alone.

    Args:
        kills_every: so often a run is killed; at the others the disk stands still instead. 0: all are killed.
    """
    kind = KINDS[kind_name]
    tally = Tally(0, [])
    with bench.place(state) as on_bench:
        if on_bench.problems:
            tally.failing.append(
                Failing(kind=kind_name, state=state.name, point="", problems=tuple(on_bench.problems))
            )
        broker: tuple[object, ...] = ()
        if kind.needs_broker:
            assert oracle is not None
            untouched = _untouched_broker(on_bench, oracle)
            if untouched is None:
                return tally
            broker = (oracle, untouched)
        tally.calls = len(on_bench.calls)
        rng = random.Random(f"{seed}/{state.name}")
        points = [point] if point else kind.points(on_bench, rng)
        if most is not None:
            stride = max(1, len(points) // most)
        for number, one in enumerate(points[rng.randrange(min(stride, len(points))) :: stride]):
            bench.server.freezes = kills_every > 0 and number % kills_every != 0
            problems = kind.check(on_bench, one, *broker)
            if problems is None:
                continue
            tally.cases += 1
            if problems:
                tally.failing.append(
                    Failing(kind=kind_name, state=state.name, point=one, problems=tuple(problems))
                )
    return tally


def _untouched_broker(bench: StateBench, oracle: Oracle) -> kills.BrokerEnd | None:
    """The broker's own end of the state; None where it is not also the recovery's, so that one cannot follow it."""
    if bench.undisturbed.exit_code not in CLEAN_CODES:
        return None
    end = kills.untouched_end(bench, oracle)
    is_same = isinstance(end, kills.BrokerEnd) and not differences(bench.expected, end.tree)
    return end if is_same else None


def run_long_kills(root: Path, seed: int, count: int, **size: int) -> Tally:
    """Kill *count* long runs at random times, each up to three times. *size*: see `LongRun`."""
    tally = Tally(0, [])
    long_run = LongRun(root, **size)
    for number in range(count):
        rng = random.Random(f"{seed}/{number}")
        problems = long_run.check(rng, kills=rng.choice([1, 2, 3]))
        tally.cases += 1
        if problems:
            tally.failing.append(
                Failing(kind="long-kills", state=f"{seed}/{number}", point="", problems=tuple(problems))
            )
    return tally


@contextlib.contextmanager
def memory_folder() -> Iterator[Path]:
    """A folder in memory where the machine has /dev/shm."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None, prefix="faults-") as root:
        yield Path(root)


def main() -> int:
    """Run the command line."""
    arguments = _parser().parse_args()
    if arguments.jobs > 1:
        return _run_jobs(arguments)
    if arguments.kind == "full-disk" and not full_disk.may_mount():
        if full_disk.namespace_command() is not None:
            return full_disk.in_own_namespace(sys.argv[1:])
        print("this machine lets nobody mount a tmpfs: the shim says ENOSPC instead")
    started_s = time.monotonic()
    counts: Counter[str] = Counter()
    for name, tally in _tallies(arguments):
        for failing in tally.failing[: max(0, arguments.show - counts["failing"])]:
            print(failing, flush=True)
        counts.update(states=1, calls=tally.calls, cases=tally.cases, failing=len(tally.failing))
        print(f"{name}: {tally.cases} cases, {len(tally.failing)} failing", flush=True)
    words = ", ".join(f"{counts[name]} {name}" for name in ("states", "calls", "cases", "failing"))
    print(f"{arguments.kind}: {words} in {time.monotonic() - started_s:.0f} s", flush=True)
    return 1 if counts["failing"] else 0


def _tallies(arguments: argparse.Namespace) -> Iterator[tuple[str, Tally]]:
    with contextlib.ExitStack() as stack:
        root = stack.enter_context(memory_folder())
        if arguments.kind == "long-kills":
            yield "long runs", run_long_kills(root, arguments.seed, LONG_RUN_COUNT // arguments.stride)
            return
        bench = stack.enter_context(Bench(root, syncs_each=arguments.sync_each))
        oracle = stack.enter_context(Oracle()) if KINDS[arguments.kind].needs_broker else None
        for name in _names(arguments):
            yield (
                name,
                run_state(
                    bench,
                    arguments.kind,
                    find_state(name),
                    seed=arguments.seed,
                    stride=arguments.stride,
                    point=arguments.point,
                    oracle=oracle,
                    kills_every=arguments.kills_every,
                ),
            )


def _names(arguments: argparse.Namespace) -> list[str]:
    if arguments.only:
        return [arguments.only]
    names = [*MADE_STATES, *(f"{arguments.seed}/{number}" for number in range(arguments.seeded))]
    number, _, count = arguments.share.partition("/")
    return names[int(number) :: int(count)]


def _run_jobs(arguments: argparse.Namespace) -> int:
    """Share the states among processes."""
    words = [arguments.kind]
    for name in ("seed", "seeded", "stride", "show", "kills_every"):
        words += [f"--{name.replace('_', '-')}", str(getattr(arguments, name))]
    words += ["--sync-each"] if arguments.sync_each else []
    jobs = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.faults.campaign", *words, "--share", f"{number}/{arguments.jobs}"]
        )
        for number in range(arguments.jobs)
    ]
    return max([job.wait() for job in jobs])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults.campaign",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("kind", choices=[*KINDS, "long-kills"])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeded", type=int, default=8, help="states by seed, beside those made by hand")
    parser.add_argument("--stride", type=int, default=1, help="every N-th point only")
    parser.add_argument("--only", metavar="STATE", help="this one: a name, or SEED/NUMBER")
    parser.add_argument("--point", help="this point of it")
    parser.add_argument(
        "--kills-every",
        type=int,
        default=8,
        help="kill every N-th run, stop the disk at the others (0: kill all)",
    )
    parser.add_argument(
        "--sync-each", action="store_true", help="file by file, as where syncfs does not tell of errors"
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--share", default="0/1", help=argparse.SUPPRESS)
    parser.add_argument("--show", type=int, default=20, help="print this many failing cases in whole")
    return parser


if __name__ == "__main__":
    sys.exit(main())
