"""Any number of damaged log dirs, recovered in each kind of run, and its events held against rules and report.

    python -m tests.damage.event_campaign --cases 1000 --seed 7 [--kind killed] [--jobs 2]
    python -m tests.damage.event_campaign --only killed-7/123     one of them again, in detail

Every other case is a whole log dir with several damaged partitions, the others are one partition each. No JVM: the
rules are in tests/runs/event_rules.py, and what a broker's gauges show is compared in tests/kafka.
"""

from __future__ import annotations

import argparse
import collections
import errno
import itertools
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from recovery.problem import Problem
from recovery.read.partition_files import PartitionFiles
from recovery.stop_request import StopRequest
from recovery.watch.events import Event
from recovery.write.space import SpaceLedger
from tests.damage.campaign import Campaign, memory_folder
from tests.logs.samples import MARKER, Sample
from tests.runs.driving import recover
from tests.runs.event_rules import broken_rules

_KILLED = 7


@dataclass(kw_only=True)
class Case:
    """Log dirs in a state, and a seed for what is done to them."""

    sample: Sample
    log_dirs: list[Path]
    rng: random.Random

    def run(self, **options: Any) -> list[str]:
        """Recover them and return the rules that the run breaks."""
        events: list[Event] = []
        options = {"thread_count": 1} | options
        # What is read is not what is counted: helpers read on behind a cut, and an interrupted run has read before
        reads_all_once = not options.pop("is_resumed", False) and options["thread_count"] == 1
        report = recover(self.sample, self.log_dirs, observers=[events.append], **options)
        return broken_rules(events, report, reads_all_once=reads_all_once)

    def logs(self, pattern: str) -> Iterator[Path]:
        """The files of this pattern in the folders of logs."""
        return (path for log_dir in self.log_dirs for path in log_dir.glob(f"*/{pattern}") if path.is_file())

    def drop_indexes(self, share: float) -> None:
        """Remove this share of the offset indexes."""
        for path in sorted(self.logs("*.index")):
            if self.rng.random() < share:
                path.unlink()

    def set_markers(self) -> None:
        """Make all log dirs clean ones."""
        for log_dir in self.log_dirs:
            (log_dir / MARKER).write_text('{"version":0,"brokerEpoch":7}')


def _marked(case: Case, share: float, **options: Any) -> list[str]:
    case.set_markers()
    case.drop_indexes(share)
    return case.run(**options)


def _without_indexes(case: Case, share: float, **options: Any) -> list[str]:
    case.drop_indexes(share)
    return case.run(**options)


def _interrupted(case: Case) -> list[str]:
    """Stop at some event, then resume."""
    stop, number, count = StopRequest(), case.rng.randint(1, 60), itertools.count(1)

    def press(_: Event) -> None:
        if next(count) == number:
            stop.request(15)

    case.drop_indexes(case.rng.choice((0, 0.5)))
    threads = case.rng.choice((1, 3))
    first = _told(case, stop=stop, watch=press, thread_count=threads)
    return first + case.run(is_resumed=True, thread_count=case.rng.choice((1, 3)))


def _told(case: Case, *, watch: Callable[[Event], None], **options: Any) -> list[str]:
    events: list[Event] = []
    report = recover(case.sample, case.log_dirs, observers=[events.append, watch], **options)
    return broken_rules(events, report, reads_all_once=False)


def _killed(case: Case) -> list[str]:
    """Kill at some event, perhaps twice, then resume; large segments are entered in the journal as they are read."""
    case.drop_indexes(case.rng.choice((0, 0, 0.5)))
    with mock.patch("recovery.engine.forecast.LEAST_KEPT_SCAN_BYTES", case.rng.choice((1, 1 << 20))):
        for _ in range(case.rng.randint(1, 2)):
            _kill(case, case.rng.randint(3, 90), case.rng.choice((1, 3)))
        return case.run(is_resumed=True, thread_count=case.rng.choice((1, 3)))


def _kill(case: Case, number: int, thread_count: int) -> None:
    child = os.fork()
    if child == 0:
        count = itertools.count(1)

        def watch(_: Event) -> None:
            if next(count) == number:
                os._exit(_KILLED)

        try:
            recover(case.sample, case.log_dirs, thread_count=thread_count, observers=[watch])
        finally:
            os._exit(_KILLED)
    os.waitpid(child, 0)


def _offline(case: Case) -> list[str]:
    """Some read of a log fails, and so does each one of that file after it: a forecast may be the first to meet it."""
    number, count, lock = case.rng.randint(1, 20), itertools.count(1), threading.Lock()
    scan = PartitionFiles.scan
    broken: set[tuple[int, str]] = set()

    def failing(files: PartitionFiles, request: Any) -> Any:
        place = (id(files), request.part.file)
        with lock:
            if next(count) == number:
                broken.add(place)
            if place in broken:
                raise OSError(errno.EIO, "Input/output error", request.part.file)
        return scan(files, request)

    with mock.patch.object(PartitionFiles, "scan", failing):
        return case.run(is_resumed=True, thread_count=case.rng.choice((1, 3)))


def _full(case: Case) -> list[str]:
    """There is no room for some of the logs, which shows once they are read."""
    full = Problem(file="d", position=None, rule="space", detail="too little space", remedy="none")
    rng, reserve = random.Random(case.rng.random()), SpaceLedger.reserve

    def refusing(ledger: SpaceLedger, *arguments: Any, **options: Any) -> tuple[Problem, ...]:
        return (full,) if rng.random() < 0.5 else reserve(ledger, *arguments, **options)

    with mock.patch.object(SpaceLedger, "reserve", refusing):
        return case.run()


KINDS: dict[str, Callable[[Case], list[str]]] = {
    "plain": lambda case: case.run(),
    "threads": lambda case: case.run(thread_count=4),
    "dry": lambda case: case.run(dry_run=True),
    "bare": lambda case: _without_indexes(case, 1),
    "half-bare": lambda case: _without_indexes(case, 0.5),
    "bare-threads": lambda case: _without_indexes(case, case.rng.choice((0.5, 1)), thread_count=3),
    "clean": lambda case: _marked(case, 0.3),
    "clean-dry": lambda case: _marked(case, 0.6, dry_run=True, thread_count=3),
    "forced": lambda case: _marked(case, 0.2, force=True),
    "repaired": lambda case: case.run(repair=True),
    "interrupted": _interrupted,
    "killed": _killed,
    "offline": _offline,
    "full": _full,
    "processes": lambda case: case.run(processes="always", thread_count=2),
}
RARE = frozenset({"processes"})
"""Every twentieth turn of these is taken: each starts processes."""


class EventCampaign:
    """The samples, unpacked once; each case works on a copy."""

    def __init__(self, root: Path) -> None:
        self._campaign = Campaign(None, root)

    def run(self, name: str) -> tuple[str, list[str], list[str]]:
        """Run the case *name*, `KIND-SEED/NUMBER`; return it, the damages, and the rules that it breaks."""
        kind, _, place = name.partition("-seed")
        seed, _, number = place.partition("/")
        rng = random.Random(name)
        with self._campaign.folder() as work:
            if int(number) % 2:
                sample, _, damages = self._campaign.damaged_whole(rng, work)
                log_dirs = [work / "d"]
            else:
                mode = rng.choice(("single", "combined"))
                sample, victim, damages = self._campaign.damaged(f"{mode}-{seed}/{number}", work)
                log_dirs = victim.log_dirs
            if rng.random() < 0.3 or kind == "processes":
                log_dirs = [*log_dirs, _another(work, sample, rng)]
            try:
                return name, damages, KINDS[kind](Case(sample=sample, log_dirs=log_dirs, rng=rng))
            except Exception:
                return name, damages, traceback.format_exc().splitlines()[-12:]


def _another(work: Path, sample: Sample, rng: random.Random) -> Path:
    """Return a second log dir with two sound logs of the sample."""
    source = rng.choice(sample.log_dirs)
    path = work / "another"
    path.mkdir()
    folders = sorted(
        one for one in source.iterdir() if one.is_dir() and one.name.startswith(("plain", "compact"))
    )
    for folder in rng.sample(folders, min(2, len(folders))):
        shutil.copytree(folder, path / f"other-{folder.name.rpartition('-')[2]}{len(os.listdir(path))}")
    return path


def names_of(kind: str | None, seed: int, count: int) -> list[str]:
    """The names of *count* cases of *kind*, of all kinds in turn unless given."""
    turns = itertools.count() if kind is None else ()
    common = (one for turn in turns for one in KINDS if one not in RARE or turn % 20 == 0)
    kinds = itertools.islice(common, count) if kind is None else itertools.repeat(kind, count)
    seen: collections.Counter[str] = collections.Counter()
    names = []
    for one in kinds:
        names.append(f"{one}-seed{seed}/{seen[one]}")
        seen[one] += 1
    return names


# -- the command -----------------------------------------------------------------------------------------

_worker: list[EventCampaign] = []


def run_all(names: Sequence[str], *, jobs: int = 1) -> Iterator[tuple[str, list[str], list[str]]]:
    """Run the cases *names* in *jobs* processes; what became of them, as they come."""
    with memory_folder() as root:
        if jobs == 1:
            yield from map(EventCampaign(root).run, names)
            return
        context = multiprocessing.get_context("spawn")
        with context.Pool(jobs, _begin_worker, (str(root),)) as pool:
            yield from pool.imap_unordered(_run_in_worker, names, chunksize=20)


def _begin_worker(root: str) -> None:
    _worker.append(EventCampaign(Path(tempfile.mkdtemp(prefix="worker-", dir=root))))


def _run_in_worker(name: str) -> tuple[str, list[str], list[str]]:
    return _worker[0].run(name)


def main() -> int:
    """Run cases and print those that break a rule; exit code 1 where there are some."""
    parser = argparse.ArgumentParser(prog="python -m tests.damage.event_campaign", description=main.__doc__)
    parser.add_argument("--cases", type=int, default=1000, help="how many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=KINDS, help="only these runs; default: all in turn")
    parser.add_argument("--only", metavar="KIND-SEED/NUMBER", help="run this one")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes")
    parser.add_argument("--show", type=int, default=20, help="print this many cases that break a rule")
    arguments = parser.parse_args()
    names = [arguments.only] if arguments.only else names_of(arguments.kind, arguments.seed, arguments.cases)
    counts: collections.Counter[str] = collections.Counter()
    started_s, broken = time.monotonic(), 0
    for name, damages, told in run_all(names, jobs=arguments.jobs):
        counts[name.partition("-seed")[0]] += 1
        broken += bool(told)
        if (told and broken <= arguments.show) or arguments.only:
            print("\n    ".join([name, *damages, *told]), flush=True)
    kinds = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    print(f"{len(names)} cases in {time.monotonic() - started_s:.0f} s, {broken} break a rule: {kinds}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
