"""Any number of damaged log dirs through Kafka's own LogManager and through the recovery, compared.

    python -m tests.damage.campaign --cases 1000 --seed 7 [--release 4.4] [--jobs 2] [--mode single] [--threads 1,2,8]
        [--json FILE]
    python -m tests.damage.campaign --only combined-7/123      one of them again, in detail

A case is a partition of a sample, damaged by seed. Cases go round the damages in turn, so that each comes as often
as any other. The modes:

    single      one damage
    combined    two or three
    again       two or three, and what was recovered, now with a marker, is loaded and recovered once more
    plain       one of those that a crash does most often
    whole       a whole log dir of a sample with several damaged partitions

tests/damage/judgement.py has the verdicts.
"""

from __future__ import annotations

import argparse
import collections
import json
import multiprocessing
import os
import random
import shutil
import struct
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.brokers import RELEASES, Oracle
from tests.damage.judgement import IDENTICAL, UNEXPLAINED, Judge, Judgement
from tests.damage.mutilate import DAMAGES, FAMILIES, FOLDER_DAMAGES, PLAIN_DAMAGES, Victim, make_victim
from tests.damage.mutilations.names import NAME_DAMAGES
from tests.logs.samples import Sample, tree_of, unpack, write_tree

SAMPLES = ("crashed", "crashed-v0-v1", "intact")
MODES = ("single", "combined", "again", "plain", "whole")
_SHARES = {"single": 10, "combined": 6, "again": 2, "plain": 1, "whole": 1}
"""How many of twenty cases are of a mode where none is asked for."""
_MOST_DRAWS = 100
_COSTLY = {"huge file": 10}
"""Only every tenth turn of these is taken; the others go to the next damage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """What became of one case."""

    name: str  # MODE-SEED/NUMBER
    partition: str
    damages: tuple[str, ...]
    verdict: str
    details: tuple[str, ...] = ()

    def __str__(self) -> str:
        words = [f"{self.name}: {self.verdict}: {self.partition}", *self.damages, *self.details]
        return "\n    ".join(words)


class Campaign:
    """The samples, unpacked once and held; each case works on a copy of one partition."""

    def __init__(self, oracle: Oracle | None, root: Path, *, thread_counts: Sequence[int] = (2,)) -> None:
        """Unpack the samples below *root*; without an *oracle* damage them only."""
        self._root = root
        self._thread_counts = tuple(thread_counts)
        samples = [unpack(name, root / "samples") for name in SAMPLES]
        self._judges = {} if oracle is None else {sample.name: Judge(oracle, sample) for sample in samples}
        self.partitions = [
            (sample, folder)
            for sample in samples
            for log_dir in sample.log_dirs
            for folder in sorted(log_dir.iterdir())
            if folder.is_dir() and _is_log(folder.name)
        ]
        self._trees = {folder: tree_of(folder) for _, folder in self.partitions}

    def run(self, name: str) -> CaseResult:
        """Run the case *name*, `MODE-SEED/NUMBER`; an error of the suite itself is a verdict, too."""
        try:
            return self._run(name)
        except Exception:
            words = tuple(traceback.format_exc().splitlines())
            return CaseResult(name=name, partition="?", damages=(), verdict=UNEXPLAINED, details=words)

    def _run(self, name: str) -> CaseResult:
        mode = name.partition("-")[0]
        with self.folder() as work:
            if mode == "whole":
                return self._run_whole(name, random.Random(name), work)
            sample, victim, damages = self.damaged(name, work)
            judge = self._judges[sample.name]
            judgement = judge.compare(victim.log_dirs, work, thread_counts=self._thread_counts)
            if mode == "again" and judgement.verdict == IDENTICAL:
                (work / "again").mkdir()
                judgement = judge.compare(victim.log_dirs, work / "again", thread_counts=self._thread_counts)
        return _result(name, f"{sample.name}/{victim.folder.name}", damages, judgement)

    def run_named(
        self, partition: str, damage: Callable[[Victim], object], *, sample_name: str = "crashed"
    ) -> CaseResult:
        """Run a case made by hand: *damage* on *partition* of a sample."""
        sample, folder = next(
            found for found in self.partitions if (found[0].name, found[1].name) == (sample_name, partition)
        )
        with self.folder() as work:
            victim = make_victim(sample, folder, work / "d", self._trees[folder])
            words = damage(victim)
            judgement = self._judges[sample_name].compare(
                victim.log_dirs, work, thread_counts=self._thread_counts
            )
        return _result(partition, f"{sample_name}/{partition}", [str(words)], judgement)

    def damaged(self, name: str, work: Path) -> tuple[Sample, Victim, list[str]]:
        """Return the sample, the damaged partition below *work*, and its damages, of a case that is not `whole`."""
        mode, _, place = name.partition("-")
        rng = random.Random(name)
        return self._damaged(rng, work, _damages_of(mode, int(place.partition("/")[2]), rng))

    def _damaged(
        self, rng: random.Random, work: Path, names: Sequence[str]
    ) -> tuple[Sample, Victim, list[str]]:
        """Damage some partition in which the first of *names*, at least, finds something to bite on."""
        for _ in range(_MOST_DRAWS):
            sample, folder = rng.choice(self.partitions)
            victim = make_victim(sample, folder, work / "d", self._trees[folder])
            words = apply_damages(victim, names, rng)
            if words:
                return sample, victim, words
            for log_dir in victim.log_dirs:
                shutil.rmtree(log_dir)
        raise RuntimeError(f"none of {names} finds anything to bite on")

    def _run_whole(self, name: str, rng: random.Random, work: Path) -> CaseResult:
        sample, source, damages = self.damaged_whole(rng, work)
        judgement = self._judges[sample.name].compare([work / "d"], work, thread_counts=self._thread_counts)
        return _result(name, f"{sample.name}/{source.name}", damages, judgement)

    def damaged_whole(self, rng: random.Random, work: Path) -> tuple[Sample, Path, list[str]]:
        """Make a whole log dir of a sample at *work* / "d", some partitions damaged, each once or twice.

        Returns:
            The sample, its log dir that was copied, and the damages.
        """
        sample, folder = rng.choice(self.partitions)
        source = folder.parent
        tree = {
            path: data
            for path, data in tree_of(source).items()
            if not path.startswith(("__cluster_metadata-", ".lock"))
        }
        folders = [path for owner, path in self.partitions if owner is sample and path.parent == source]
        damages = []
        for path in rng.sample(folders, min(len(folders), rng.randint(2, 6))):
            victim = make_victim(sample, path, work / "victims" / path.name / "d", self._trees[path])
            names = [one for one in rng.sample(FOLDER_DAMAGES, rng.randint(1, 2)) if one not in _COSTLY]
            damages += [f"{path.name}: {words}" for words in apply_damages(victim, names, rng)]
            tree = {at: data for at, data in tree.items() if not at.startswith(f"{path.name}/")}
            tree |= {
                at: data for at, data in tree_of(victim.log_dir).items() if at.startswith(f"{path.name}/")
            }
        write_tree(tree, work / "d")
        return sample, source, damages

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """A folder for one case, which is gone afterwards."""
        work = Path(tempfile.mkdtemp(prefix="case-", dir=self._root))
        try:
            yield work
        finally:
            shutil.rmtree(work)


def apply_damages(victim: Victim, names: Sequence[str], rng: random.Random) -> list[str]:
    """Do *names* in turn, links and the like last (nobody reads on through them); empty if the first did nothing."""
    words = []
    for name in sorted(names, key=lambda name: name in NAME_DAMAGES):
        try:
            done = DAMAGES[name](victim, rng)
        except (OSError, struct.error) as error:  # what another damage has put there is in the way
            done = f"half done ({type(error).__name__})"
        if done is not None:
            words.append(f"{name}: {done}")
        elif name == names[0]:
            return []
    return words


def case_names(mode: str | None, seed: int, count: int) -> list[str]:
    """The names of *count* cases of *mode*, of all modes in their shares unless given."""
    if mode is not None:
        return [f"{mode}-{seed}/{number}" for number in range(count)]
    turn = [one for one, share in _SHARES.items() for _ in range(share)]
    modes = [turn[number % len(turn)] for number in range(count)]
    return [f"{one}-{seed}/{modes[:number].count(one)}" for number, one in enumerate(modes)]


def family_of(damage: str) -> str:
    """The family of a damage, or of words that begin with its name."""
    name = damage.partition(":")[0]
    return next((family for family, damages in FAMILIES.items() if name in damages), name)


def _damages_of(mode: str, number: int, rng: random.Random) -> list[str]:
    names = PLAIN_DAMAGES if mode == "plain" else tuple(DAMAGES)
    turn, place = divmod(number, len(names))
    first = names[place]
    if turn % _COSTLY.get(first, 1):
        first = names[(place + turn) % len(names)]
    if mode in ("single", "plain"):
        return [first]
    others = [name for name in names if name not in _COSTLY and name != first]
    return [first, *rng.sample(others, rng.randint(1, 2))]


def _result(name: str, partition: str, damages: Sequence[str], judgement: Judgement) -> CaseResult:
    return CaseResult(
        name=name,
        partition=partition,
        damages=tuple(damages),
        verdict=judgement.verdict,
        details=judgement.details,
    )


def _is_log(folder_name: str) -> bool:
    stem, _, number = folder_name.split(".")[0].rpartition("-")
    return bool(stem) and number.isdecimal() and stem != "__cluster_metadata"


# -- the command -----------------------------------------------------------------------------------------

_worker: list[Campaign] = []


def run_all(
    names: Sequence[str], *, jobs: int = 1, thread_counts: Sequence[int] = (2,), release: str = "4.3"
) -> Iterator[CaseResult]:
    """Run the cases *names* in *jobs* processes, each with an oracle of its own; results as they come."""
    version = RELEASES[release]
    if jobs == 1:
        with memory_folder() as root, Oracle(version=version) as oracle:
            campaign = Campaign(oracle, root, thread_counts=thread_counts)
            yield from map(campaign.run, names)
        return
    with memory_folder() as root:
        context = multiprocessing.get_context("spawn")
        with context.Pool(jobs, _begin_worker, (str(root), tuple(thread_counts), version)) as pool:
            yield from pool.imap_unordered(_run_in_worker, names, chunksize=20)


def _begin_worker(root: str, thread_counts: tuple[int, ...], version: str) -> None:
    place = Path(tempfile.mkdtemp(prefix="worker-", dir=root))
    _worker.append(Campaign(Oracle(version=version), place, thread_counts=thread_counts))


def _run_in_worker(name: str) -> CaseResult:
    return _worker[0].run(name)


@contextmanager
def memory_folder() -> Iterator[Path]:
    """A folder in memory where the machine has /dev/shm, which is gone afterwards."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as root:
        yield Path(root)


def main() -> int:
    """Run cases and print what became of them; exit code 1 where a case is unexplained."""
    parser = argparse.ArgumentParser(prog="python -m tests.damage.campaign", description=main.__doc__)
    parser.add_argument("--cases", type=int, default=1000, help="how many of each seed")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds from there on")
    parser.add_argument("--mode", choices=MODES, help="only these cases; default: all, in their shares")
    parser.add_argument("--only", metavar="MODE-SEED/NUMBER", help="run this one and print all about it")
    parser.add_argument(
        "--release", choices=RELEASES, default="4.3", help="of the broker that the recovery is compared with"
    )
    parser.add_argument("--jobs", type=int, default=1, help="how many processes, each with a JVM")
    parser.add_argument(
        "--threads", default="2", help="recovery threads; of several the trees must be the same"
    )
    parser.add_argument("--until", metavar="HH:MM", help="begin no case after this time of day")
    parser.add_argument("--show", type=int, default=20, help="print this many unexplained cases")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the counts and what is unexplained")
    arguments = parser.parse_args()
    names = [
        name
        for seed in range(arguments.seed, arguments.seed + arguments.seeds)
        for name in case_names(arguments.mode, seed, arguments.cases)
    ]
    names = [arguments.only] if arguments.only else names
    thread_counts = [int(count) for count in arguments.threads.split(",")]
    started_s = time.monotonic()
    tally = Tally()
    for result in run_all(names, jobs=arguments.jobs, thread_counts=thread_counts, release=arguments.release):
        tally.add(result)
        if arguments.only or (result.verdict == UNEXPLAINED and len(tally.unexplained) <= arguments.show):
            print(result, flush=True)
        if arguments.until and time.strftime("%H:%M") >= arguments.until:
            break
    print(tally.to_text(time.monotonic() - started_s))
    if arguments.json:
        arguments.json.write_text(json.dumps(tally.to_dict(), indent=2) + "\n")
    return 1 if tally.unexplained else 0


class Tally:
    """Counts of verdicts: in all, and by family of damages (a case with several damages counts for each)."""

    def __init__(self) -> None:
        self.count = 0
        self.verdicts: collections.Counter[str] = collections.Counter()
        self.families: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
        self.unexplained: list[CaseResult] = []

    def add(self, result: CaseResult) -> None:
        """Count one case."""
        self.count += 1
        self.verdicts[result.verdict] += 1
        names = {words.split(": ")[1 if result.name.startswith("whole") else 0] for words in result.damages}
        for family in {family_of(name) for name in names}:
            self.families[family][result.verdict] += 1
        if result.verdict == UNEXPLAINED:
            self.unexplained.append(result)

    def to_text(self, seconds: float) -> str:
        """The counts as lines."""
        lines = [
            f"{family:>16}: {_words(counts)}"
            for family, counts in sorted(self.families.items(), key=lambda item: item[0])
        ]
        return "\n".join([*lines, f"{self.count} cases in {seconds:.0f} s: {_words(self.verdicts)}"])

    def to_dict(self) -> Mapping[str, object]:
        """The counts, and what is unexplained, for a machine."""
        return {
            "version": 1,
            "cases": self.count,
            "verdicts": dict(self.verdicts),
            "families": {family: dict(counts) for family, counts in self.families.items()},
            "unexplained": [asdict(result) for result in self.unexplained],
        }


def _words(counts: collections.Counter[str]) -> str:
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())


if __name__ == "__main__":
    sys.exit(main())
