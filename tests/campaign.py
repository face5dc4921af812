"""Any number of damaged partitions through Kafka's own LogManager and through the recovery, compared.

    python -m tests.campaign --cases 1000 --seed 7 [--combine] [--plain] [--again]    verdicts, and what is unexplained
    python -m tests.campaign --only 7/123 [--combine] [--plain] [--again]             one of them again, in detail

A case is a partition of a sample with one damage, or up to three. The verdicts:

    identical       the trees are the same, file by file and byte by byte
    refused         a broker dies or takes the log dir offline; here the partition is refused and untouched
    out of order    a deliberate difference: a batch whose offset is out of order costs its tail, not its
                    whole segment. The tree is what the broker leaves where the log was torn in that batch
    waiting         a deliberate difference: a folder that waits for its deletion, in a log dir with a clean marker,
                    is left as it is
    not split       a batch whose offset is too far from its segment's base, in a segment without an index: a broker
                    may split the segment, this version refuses the partition
    unexplained     anything else, a batch that is lost, or a report that does not say what was done

Whatever the verdict: a dry run before changes nothing and announces what is then done, and every valid batch is
afterwards in the log or in quarantine, which holds what its manifest says.
"""

from __future__ import annotations

import argparse
import collections
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from recovery.report import PartitionReport, RecoveryReport
from tests.kafka import Oracle, OracleOutcome
from tests.mutilate import DAMAGES, PLAIN_DAMAGES, Victim, make_victim
from tests.recovery.driving import (
    footprint,
    log_bytes,
    lost_batches,
    manifest_errors,
    own_leftovers,
    recover,
)
from tests.samples import MARKER, Sample, differences, tree_of, unpack

IDENTICAL, REFUSED, OUT_OF_ORDER = "identical", "refused", "out of order"
WAITING, NOT_SPLIT, UNEXPLAINED = "waiting", "not split", "unexplained"
OUT_OF_ORDER_REASON = "a batch whose offset is out of order"
OVERFLOW_REASON = "an offset that does not fit the segment's base offset"
SAMPLES = ("crashed", "crashed-v0-v1", "intact")
_MOST_DRAWS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """What became of one case."""

    name: str  # SEED/CASE
    partition: str
    damages: tuple[str, ...]
    verdict: str
    details: tuple[str, ...] = ()

    def __str__(self) -> str:
        words = [f"{self.name}: {self.verdict}: {self.partition}", *self.damages, *self.details]
        return "\n    ".join(words)


class Campaign:
    """The samples, unpacked once; each case works on a copy of one partition."""

    def __init__(self, oracle: Oracle, root: Path) -> None:
        self._oracle = oracle
        self._root = root
        samples = [unpack(name, root / "samples") for name in SAMPLES]
        self.partitions = [
            (sample, folder)
            for sample in samples
            for log_dir in sample.log_dirs
            for folder in sorted(log_dir.iterdir())
            if folder.is_dir() and _is_log(folder.name)
        ]

    def run(
        self,
        seed: int,
        number: int,
        *,
        names: Sequence[str] = tuple(DAMAGES),
        most_damages: int = 1,
        again: bool = False,
    ) -> CaseResult:
        """Run case *number* of *seed*: up to *most_damages* of *names* on one partition.

        With *again*, what both have left, now with a marker, is loaded and recovered once more.
        """
        rng = random.Random(f"{seed}/{number}")
        with self._folder() as work:
            sample, victim, damages = self._damaged(rng, work, names, most_damages)
            verdict, details = self.compare(sample, victim, work)
            if again and verdict == IDENTICAL:
                again_dir = work / "again"
                again_dir.mkdir()
                verdict, details = self.compare(sample, victim, again_dir)
        return CaseResult(
            name=f"{seed}/{number}",
            partition=f"{sample.name}/{victim.folder.name}",
            damages=tuple(damages),
            verdict=verdict,
            details=tuple(details),
        )

    def run_named(
        self, partition: str, damage: Callable[[Victim], object], *, sample_name: str = "crashed"
    ) -> CaseResult:
        """Run a case made by hand: *damage* on *partition* of a sample."""
        sample, folder = next(
            found for found in self.partitions if (found[0].name, found[1].name) == (sample_name, partition)
        )
        with self._folder() as work:
            victim = make_victim(sample, folder, work / "d")
            words = damage(victim)
            verdict, details = self.compare(sample, victim, work)
        return CaseResult(
            name=partition,
            partition=f"{sample_name}/{partition}",
            damages=(str(words),),
            verdict=verdict,
            details=tuple(details),
        )

    def compare(self, sample: Sample, victim: Victim, work: Path) -> tuple[str, list[str]]:
        """Let the oracle recover a copy of *victim* and the tool the victim itself; return verdict and details."""
        broker_dir = _copy(victim.log_dir, work / "broker")
        before = _copy(victim.log_dir, work / "before")
        outcome = self._load(sample, broker_dir)
        try:
            report, problems = _dry_and_wet(sample, victim.log_dir)
        except Exception:
            return UNEXPLAINED, [_broker_words(outcome), *traceback.format_exc().splitlines()[-6:]]
        lost = lost_batches(log_bytes(before), victim.log_dir)
        problems += [f"{len(lost)} batches are lost: {', '.join(lost[:5])}"] if lost else []
        problems += [f"quarantine: {error}" for error in manifest_errors(victim.log_dir)]
        problems += [f"left behind: {name}" for name in own_leftovers(victim.log_dir)]
        verdict, found = self._judge(sample, victim, outcome, broker_dir, before, report)
        if problems or verdict == UNEXPLAINED:
            words = report.to_text().splitlines()
            return UNEXPLAINED, [_broker_words(outcome), *problems, *found, "the report says:", *words]
        return verdict, found

    def _judge(
        self,
        sample: Sample,
        victim: Victim,
        outcome: OracleOutcome,
        broker_dir: Path,
        before: Path,
        report: RecoveryReport,
    ) -> tuple[str, list[str]]:
        if is_refused(report):
            verdict, found = _judge_refusal(victim, before, report)
            if outcome.outcome != "loaded" or found:
                return verdict, found
            is_overflow = OVERFLOW_REASON in report.to_text()
            return NOT_SPLIT if is_overflow else UNEXPLAINED, ["refused although the broker loads it"]
        cut = out_of_order_cut(report)
        if cut is not None:
            return self._judge_out_of_order(sample, victim, broker_dir, before, *cut)
        if outcome.outcome != "loaded":
            return UNEXPLAINED, ["recovered although the broker does not load it"]
        found = differences(tree_of(broker_dir), tree_of(victim.log_dir))
        if found and _is_waiting(victim, before):
            expected = {
                name: data
                for tree, is_folder in ((tree_of(broker_dir), False), (tree_of(before), True))
                for name, data in tree.items()
                if name.startswith(f"{victim.folder.name}/") == is_folder
            }
            found = differences(expected, tree_of(victim.log_dir))
            return (UNEXPLAINED if found else WAITING), found
        return (UNEXPLAINED if found else IDENTICAL), found

    def _judge_out_of_order(
        self, sample: Sample, victim: Victim, broker_dir: Path, before: Path, log: str, position: int
    ) -> tuple[str, list[str]]:
        """The broker's own tree, had the log been torn in the first byte of that batch."""
        found = []
        kept = _live_bytes(victim.log_dir)
        if kept < _live_bytes(broker_dir):
            found.append(f"{kept} bytes are live, the broker keeps {_live_bytes(broker_dir)}")
        torn = before / victim.folder.name / log
        os.truncate(torn, position + 1)
        outcome = self._load(sample, before)
        if outcome.outcome != "loaded":
            return UNEXPLAINED, [*found, f"the torn log: {_broker_words(outcome)}"]
        found += differences(tree_of(before), tree_of(victim.log_dir))
        return (UNEXPLAINED if found else OUT_OF_ORDER), found

    def _damaged(
        self, rng: random.Random, work: Path, names: Sequence[str], most_damages: int
    ) -> tuple[Sample, Victim, list[str]]:
        for _ in range(_MOST_DRAWS):
            sample, folder = rng.choice(self.partitions)
            victim = make_victim(sample, folder, work / "d")
            words = []
            for _ in range(rng.randint(1, most_damages)):
                name = rng.choice(names)
                done = DAMAGES[name](victim, rng)
                if done is not None:
                    words.append(f"{name}: {done}")
            if words:
                return sample, victim, words
            shutil.rmtree(work / "d")
        raise RuntimeError(f"none of {names} finds anything to bite on")

    def _load(self, sample: Sample, log_dir: Path) -> OracleOutcome:
        return self._oracle.load(
            [log_dir],
            now_ms=sample.now_ms,
            properties=sample.properties,
            topic_configs=sample.topic_configs,
        )

    @contextmanager
    def _folder(self) -> Iterator[Path]:
        work = Path(tempfile.mkdtemp(prefix="case-", dir=self._root))
        try:
            yield work
        finally:
            shutil.rmtree(work)


def is_refused(report: RecoveryReport) -> bool:
    """Whether the partition, or its log dir, was left alone."""
    return any(log_dir.status in ("partial", "offline") for log_dir in report.log_dirs)


def out_of_order_cut(report: RecoveryReport) -> tuple[str, int] | None:
    """The `.log` that was cut at a batch whose offset is out of order, and where."""
    for partition in report.partitions:
        for cut in partition.cuts:
            if cut.reason == OUT_OF_ORDER_REASON:
                return cut.file, cut.position
    return None


def _dry_and_wet(sample: Sample, log_dir: Path) -> tuple[RecoveryReport, list[str]]:
    """Run a dry run and the recovery; return its report, and what the dry run did or did not say."""
    found = footprint(log_dir)
    announced = recover(sample, [log_dir], dry_run=True)
    problems = [] if footprint(log_dir) == found else ["the dry run has changed the log dir"]
    report = recover(sample, [log_dir])
    problems += [
        f"the dry run announced {told}, the run says {done}"
        for told, done in zip(promises(announced), promises(report), strict=True)
        if told != done
    ]
    return report, problems


def promises(report: RecoveryReport) -> list[object]:
    """What a dry run and the run after it must say alike, one item a partition and one a log dir."""

    def of(partition: PartitionReport) -> object:
        return (
            partition.log_dir, partition.folder, partition.status,
            partition.actions, partition.to_quarantine, partition.cuts, partition.reasons, partition.warnings,
            partition.log_start_offset, partition.log_end_offset, partition.segment_count,
            partition.recovered_segments, partition.scanned_bytes, partition.recovered_bytes,
        )  # fmt: skip

    return [
        *(of(partition) for partition in report.partitions),
        *((one.log_dir, one.status, one.actions, one.marker, one.error) for one in report.log_dirs),
    ]


def _is_waiting(victim: Victim, before: Path) -> bool:
    return victim.folder.name.endswith("-delete") and (before / MARKER).exists()


def _judge_refusal(victim: Victim, before: Path, report: RecoveryReport) -> tuple[str, list[str]]:
    found = differences(tree_of(before / victim.folder.name), tree_of(victim.folder))
    if (victim.log_dir / MARKER).exists() and not (before / MARKER).exists():
        found.append("a marker in a log dir with a refused partition")
    if report.exit_code not in (1, 4):
        found.append(f"exit code {report.exit_code}")
    reasons = [reason for partition in report.partitions for reason in partition.reasons]
    reasons += [log_dir.error for log_dir in report.log_dirs if log_dir.error]
    if not any("Remedy:" in reason for reason in reasons):
        found.append(f"no remedy in {reasons}")
    return (UNEXPLAINED if found else REFUSED), found


def _broker_words(outcome: OracleOutcome) -> str:
    return f"the broker: {outcome.outcome} {outcome.error or ''}".rstrip()


def _live_bytes(log_dir: Path) -> int:
    return sum(path.stat().st_size for path in log_dir.rglob("*.log"))


def _is_log(folder_name: str) -> bool:
    stem, _, number = folder_name.split(".")[0].rpartition("-")
    return bool(stem) and number.isdecimal() and stem != "__cluster_metadata"


def _copy(log_dir: Path, to: Path) -> Path:
    return shutil.copytree(log_dir, to, symlinks=True)


def main() -> int:
    """Run cases and print what became of them; exit code 1 where a case is unexplained."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=main.__doc__)
    parser.add_argument("--cases", type=int, default=1000, help="how many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--combine", action="store_true", help="up to three damages a case")
    parser.add_argument("--again", action="store_true", help="recover what was recovered once more")
    parser.add_argument("--plain", action="store_true", help="only what a crash does most often")
    parser.add_argument("--only", metavar="SEED/CASE", help="run this one and print all about it")
    parser.add_argument("--show", type=int, default=20, help="print this many unexplained cases")
    arguments = parser.parse_args()
    names = PLAIN_DAMAGES if arguments.plain else tuple(DAMAGES)
    numbers = [(arguments.seed, number) for number in range(arguments.cases)]
    if arguments.only:
        seed, _, number = arguments.only.partition("/")
        numbers = [(int(seed), int(number))]
    started_s = time.monotonic()
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as root, Oracle() as oracle:
        campaign = Campaign(oracle, Path(root))
        results = []
        for seed, number in numbers:
            most_damages = 3 if arguments.combine else 1
            result = campaign.run(seed, number, names=names, most_damages=most_damages, again=arguments.again)
            results.append(result)
            if (
                result.verdict == UNEXPLAINED and len(_unexplained(results)) <= arguments.show
            ) or arguments.only:
                print(result, flush=True)
    counts = collections.Counter(result.verdict for result in results)
    words = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
    print(f"{len(results)} cases in {time.monotonic() - started_s:.0f} s: {words}")
    return 1 if counts[UNEXPLAINED] else 0


def _unexplained(results: Sequence[CaseResult]) -> list[CaseResult]:
    return [result for result in results if result.verdict == UNEXPLAINED]


if __name__ == "__main__":
    sys.exit(main())
