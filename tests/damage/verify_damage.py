"""All damages of tests/damage/mutilate.py, and whether `verify` finds them at the damaged file.

    python -m tests.damage.verify_damage --cases 20 [--first 0] [--kind "torn tail"] [--show]

A case is a partition of a sample, as its broker has left it or as `recover` has, damaged by seed. `verify` runs plainly
and with --deep; what it had found before the damage does not count. A case is *found* where a file is named that was
damaged, or one that `verify_expectations` allows for that kind, *elsewhere* where only others are, *noted* where
there are notes alone. Where it is not found a reason of that table has to hold, which a recovery or the bytes show.
Anything else is unexplained.
"""

from __future__ import annotations

import argparse
import collections
import os
import random
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from recovery.check.finding import Finding
from recovery.check.report import VerifyReport
from tests.damage.damaged_partition import DamagedPartition
from tests.damage.mutilate import DAMAGES, FAMILIES, make_victim
from tests.damage.verify_expectations import EXPECTED
from tests.logs.samples import SAMPLE_NAMES, Sample, tree_of, unpack
from tests.runs.driving import recover
from tests.runs.verifying import verified

FOUND, ELSEWHERE, NOTED, SILENT = "found", "elsewhere", "noted", "silent"
STATES = ("left", "recovered")
"""As the broker has left a sample, unclean for the most part, and as `recover` has: clean, all of it flushed."""
COSTLY = {"huge file": 10}
"""Of these a part of the cases is run."""
_MOST_DRAWS = 100

Placed = tuple[str, Finding]
"""A path relative to the work folder, and what was found there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What became of one case.

    Attributes:
        plain, deep: FOUND, ELSEWHERE, NOTED or SILENT.
        said: by `verify --deep`, beside what it says of the sound partition.
        reason: that holds where nothing was found.
    """

    name: str
    partition: str
    words: str
    plain: str
    deep: str
    said: tuple[str, ...]
    reason: str | None = None

    @property
    def is_explained(self) -> bool:
        """Whether it is as the table has it."""
        return self.deep == FOUND or self.reason is not None

    def __str__(self) -> str:
        why = f" because {self.reason}" if self.reason else ""
        return "\n    ".join([f"{self.name}: {self.deep}{why}: {self.partition}: {self.words}", *self.said])


class VerifyDamage:
    """The partitions of the samples in both states; each case works on a copy of one."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._partitions: list[tuple[str, Sample, Path]] = []
        self._known: dict[Path, set[object]] = {}
        for state in STATES:
            for name in SAMPLE_NAMES:
                sample = unpack(name, root / state)
                if state == "recovered":
                    recover(sample)
                self._partitions += [(state, sample, folder) for folder in _logs(sample)]

    def run(self, kind: str, number: int) -> Case:
        """Run case *number* of *kind*."""
        rng = random.Random(f"verify/{kind}/{number}")
        for _ in range(_MOST_DRAWS):
            state, sample, folder = rng.choice(self._partitions)
            with tempfile.TemporaryDirectory(dir=self._root) as place:
                damaged = self._damaged(kind, sample, folder, rng, Path(place) / "w")
                if damaged is not None:
                    return self._judged(f"{kind}/{number}", state, damaged, folder)
        raise RuntimeError(f"{kind} finds nothing to bite on")

    def _damaged(
        self, kind: str, sample: Sample, folder: Path, rng: random.Random, work: Path
    ) -> DamagedPartition | None:
        victim = make_victim(sample, folder, work / "d")
        before = tree_of(work)
        if folder not in self._known:
            report = verified(sample, [victim.log_dir], deep=True)
            self._known[folder] = {_identity(one) for one in _placed(report, work)}
        words = DAMAGES[kind](victim, rng)
        if words is None:
            return None
        if victim.second_log_dir.exists():  # a broker's own
            meta = (folder.parent / "meta.properties").read_text().splitlines(keepends=True)
            of_node = [line for line in meta if not line.startswith("directory.id")]
            (victim.second_log_dir / "meta.properties").write_text("".join(of_node))
        return DamagedPartition(
            sample=sample, victim=victim, work=work, words=words, before=before, after=tree_of(work)
        )

    def _judged(self, name: str, state: str, damaged: DamagedPartition, source: Path) -> Case:
        expected = EXPECTED[name.partition("/")[0]]
        places = damaged.places(expected.places)
        plain, _ = self._outcome(damaged, places, source, deep=False)
        deep, said = self._outcome(damaged, places, source, deep=True)
        reason = None
        if deep != FOUND:
            reason = next((one.words for one in expected.reasons if one.holds(damaged)), None)
        partition = f"{state} {damaged.sample.name}/{damaged.victim.folder.name}"
        return Case(
            name=name,
            partition=partition,
            words=damaged.words,
            plain=plain,
            deep=deep,
            said=said,
            reason=reason,
        )

    def _outcome(
        self, damaged: DamagedPartition, places: frozenset[str], source: Path, *, deep: bool
    ) -> tuple[str, tuple[str, ...]]:
        report = verified(damaged.sample, damaged.victim.log_dirs, deep=deep)
        new = [one for one in _placed(report, damaged.work) if _identity(one) not in self._known[source]]
        said = tuple(f"{path}: {one.severity}: {one.rule}: {one.detail}" for path, one in new)
        named = {path for path, one in new if one.severity != "note"}
        if named:
            return (FOUND if named & places else ELSEWHERE), said
        return (NOTED if new else SILENT), said


def _logs(sample: Sample) -> Iterator[Path]:
    for log_dir in sample.log_dirs:
        for folder in sorted(log_dir.iterdir()):
            is_other = folder.name.startswith(("__cluster", "remote-"))
            if folder.is_dir() and not is_other and not folder.name.endswith(("-delete", "-stray")):
                yield folder


def _placed(report: VerifyReport, work: Path) -> list[Placed]:
    return [(os.path.relpath(file.path, work), one) for file in report.files for one in file.findings]


def _identity(placed: Placed) -> object:
    path, one = placed
    return path, one.rule, one.position, one.detail, one.severity


def table(cases: Iterable[Case]) -> list[str]:
    """The cases by family as Markdown."""
    family_of = {kind: family for family, kinds in FAMILIES.items() for kind in kinds}
    counts: dict[str, collections.Counter[str]] = {family: collections.Counter() for family in FAMILIES}
    for case in cases:
        count = counts[family_of[case.name.partition("/")[0]]]
        count["all"] += 1
        if case.deep == FOUND:
            count["plain" if case.plain == FOUND else "deep"] += 1
        elif case.reason is not None:
            count["noted" if case.deep == NOTED else "no damage"] += 1
        else:
            count["unexplained"] += 1
    columns = ("all", "plain", "deep", "noted", "no damage", "unexplained")
    lines = [
        "| family | cases | found plainly | only with `--deep` | noted | no damage | unexplained |",
        "|---|---|---|---|---|---|---|",
    ]
    total: collections.Counter[str] = collections.Counter()
    for family, count in counts.items():
        lines.append(f"| {family} | {' | '.join(str(count[name]) for name in columns)} |")
        total += count
    return [*lines, f"| all | {' | '.join(str(total[name]) for name in columns)} |"]


def numbers_of(kind: str, first: int, count: int) -> range:
    """The case numbers of *kind* where *count* are asked for."""
    return range(first, first + max(1, count // COSTLY.get(kind, 1)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cases and print the table; exit code 1 where one is unexplained."""
    parser = argparse.ArgumentParser(prog="python -m tests.damage.verify_damage", description=main.__doc__)
    parser.add_argument("--cases", type=int, default=20, help="of each kind of damage")
    parser.add_argument("--first", type=int, default=0, help="number of the first one")
    parser.add_argument("--kind", action="append", help="only this one; may be given more than once")
    parser.add_argument(
        "--show", action="store_true", help="print each case that was not found, and the reasons"
    )
    options = parser.parse_args(arguments)
    memory = Path("/dev/shm")
    cases: list[Case] = []
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        damage = VerifyDamage(Path(folder))
        for kind in options.kind or DAMAGES:
            for number in numbers_of(kind, options.first, options.cases):
                case = damage.run(kind, number)
                cases.append(case)
                if not case.is_explained or (options.show and case.deep != FOUND):
                    print(case, flush=True)
    print("\n".join(table(cases)))
    reasons = collections.Counter(case.reason for case in cases if case.reason is not None)
    print("\n".join(f"{count} {reason}" for reason, count in reasons.most_common()))
    return 0 if all(case.is_explained for case in cases) else 1


if __name__ == "__main__":
    sys.exit(main())
