"""Damaged archives by seed, verified: `python -m tests.damage.archive_campaign --cases 20 --seed 7`.

Takes every damage of `archive_damage` in every layout. An archive has segments of a real broker, from the sample
`tiered`, and some that are built. What is damaged must be found as the table says; before, nothing must be found. With
`--logs-only` what is found in the logs alone must be what a whole verify finds of them.

`--brokers 3 --seed 7` lets three real brokers make healthy archives while settings of their topics change, and looks
after each of their lives at the tiered archive and, as a plain copy, at the log dirs, in all modes; nothing may be
found.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from recovery.archive.check.options import CheckOptions
from recovery.archive.check.verdict import ObjectVerdict
from recovery.archive.layouts.aiven_cipher import AivenKeys, load_aiven_keys
from recovery.check.finding import Finding
from tests.brokers.restless_broker import make_restless, settings_of
from tests.brokers.tiered_broker import TieredArchive, unpack_tiered
from tests.damage.archive_damage import ARCHIVE_DAMAGES, MustFind
from tests.logs.aiven_archive import KEY_ID, write_private_key
from tests.logs.archives import (
    LAYOUTS,
    SegmentCopy,
    WrittenArchive,
    copies_of,
    made_copies,
    metadata_records,
    write_archive,
)
from tests.logs.metadata_topic import write_metadata
from tests.logs.samples import read_properties
from tests.runs.goings import gone_through, run_through
from tests.runs.log_findings import of_logs, with_found_ends

Found = list[tuple[str, Finding]]
"""Key and finding of everything that is not as it should be."""


class ArchiveBench:
    """Sound archives in every layout, written once, and damaged copies of them.

    Args:
        folder: an empty one.
        real: whose segments they have.
    """

    def __init__(self, folder: Path, real: TieredArchive) -> None:
        self._folder = folder
        self._real = real
        self._sound: dict[str, WrittenArchive] = {}

    @cached_property
    def keys(self) -> AivenKeys:
        """What encrypted segments need."""
        return load_aiven_keys({KEY_ID: write_private_key(self._folder)})

    @cached_property
    def copies(self) -> list[SegmentCopy]:
        """The segments."""
        real = copies_of(self._real, "plain-0", "transactions-0", "codecs-0", most=7)
        return [*real, *made_copies(), *made_copies(partition=1, segments=4)]

    def sound(self, layout: str) -> WrittenArchive:
        """The undamaged archive; not to be changed."""
        if layout not in self._sound:
            self._sound[layout] = write_archive(self._folder / f"sound {layout}", layout, self.copies)
        return self._sound[layout]

    def damaged(self, name: str, layout: str, seed: int) -> tuple[WrittenArchive, MustFind] | None:
        """A copy with a damage, and what must be found; None where there is nothing to damage in this way."""
        root = self._folder / "damaged"
        shutil.rmtree(root, ignore_errors=True)
        archive = self.sound(layout).copy(root)
        must = ARCHIVE_DAMAGES[name](archive, random.Random(f"{name} {layout} {seed}"))
        return None if must is None else (archive, must)

    def found_in(
        self, archive: WrittenArchive, *, is_deep: bool = False, is_logs_only: bool = False
    ) -> Found:
        """What the driver that all others must agree with says; tiered archives come with their metadata topic."""
        return [
            (judged.verdict.path, finding)
            for judged in self.judged(archive, is_deep=is_deep, is_logs_only=is_logs_only)
            for finding in judged.verdict.findings
        ]

    def judged(
        self,
        archive: WrittenArchive,
        output: Path | None = None,
        *,
        is_in_place: bool = False,
        is_deep: bool = False,
        is_logs_only: bool = False,
        has_metadata: bool = True,
    ) -> list[ObjectVerdict]:
        """The verdicts on all objects; with an *output* what can be is rebuilt."""
        with ExitStack() as stack:
            log_dirs = []
            if archive.is_tiered and has_metadata:
                log_dirs.append(stack.enter_context(tempfile.TemporaryDirectory(dir=self._folder)))
                write_metadata(Path(log_dirs[0]), metadata_records(archive.metadata), segment_batches=1000)
            verdicts = gone_through(
                archive.root,
                output,
                metadata=log_dirs,
                keys=self.keys,
                is_in_place=is_in_place,
                is_deep=is_deep,
                is_logs_only=is_logs_only,
                now_ms=0,
            )
            return [judged for verdict in verdicts for judged in verdict.objects]


def is_found(found: Found, must: MustFind) -> bool:
    """Whether what must be found is among what was."""
    fitting = [
        finding
        for key, finding in found
        if key in must.keys
        and finding.rule in must.rules
        and (must.severity != "damage" or finding.severity == "damage")
    ]
    at_it = must.position is None or must.position in [finding.position for finding in fitting]
    return bool(fitting) and at_it


_MODES: Mapping[str, Mapping[str, bool]] = {
    "": {},
    "--deep": {"is_deep": True},
    "--logs-only": {"is_logs_only": True},
}


def false_alarms(archive: TieredArchive, counts: Counter[str]) -> Iterator[str]:
    """Verify what a broker has left in every mode, with and without metadata and settings; yield what is found."""
    configs, properties = (
        settings_of(archive),
        read_properties((archive.root / "server.properties").read_text()),
    )
    given: dict[str, Mapping[str, Any]] = {"": {}, "-c": {"topic_configs": configs, "config": properties}}
    metadata = {"": (), "--metadata": tuple(map(str, archive.log_dirs))}
    for root, mode, known, settings in product((archive.path, archive.root), _MODES, metadata, given):
        options = CheckOptions(url=str(root), metadata=metadata[known], **_MODES[mode], **given[settings])
        report, verdicts = run_through(options)
        counts["runs"] += 1
        counts["segments"] += report.summary.segments
        what = " ".join(filter(None, ("verify", root.name, mode, known, settings)))
        judged = [one.verdict for verdict in verdicts for one in verdict.objects]
        found = [(one.path, finding) for one in judged for finding in one.findings]
        counts.update(f"note {finding.rule}" for _, finding in found if finding.severity == "note")
        bad = [(path, finding) for path, finding in found if finding.severity != "note"]
        for path, finding in bad:
            if finding.rule == "not-compared" and finding.detail.startswith("its copy was begun"):
                counts["copies that a kill has interrupted, of which nobody knows"] += 1
            else:
                yield f"{what}: {path}: {finding.rule} at {finding.position}: {finding.detail}"
        if report.exit_code and not bad:
            yield f"{what}: exit code {report.exit_code}"


def run_brokers(folder: Path, seeds: range) -> int:
    """Let a broker live for each seed; 1 if anything is found."""
    counts: Counter[str] = Counter()
    alarms = 0
    for seed in seeds:
        root = folder / f"broker-{seed}"
        for life, archive in enumerate(make_restless(root, seed)):
            counts["lives"] += 1
            for alarm in false_alarms(archive, counts):
                alarms += 1
                print(f"FALSE ALARM broker {seed}, life {life}: {alarm}", flush=True)
        shutil.rmtree(root)
        print(f"broker {seed}: {dict(counts)}, {alarms} false alarms", flush=True)
    return 1 if alarms else 0


def main() -> int:
    """Run the cases; 1 if one of them is not found."""
    parser = argparse.ArgumentParser(prog="python -m tests.damage.archive_campaign", description=__doc__)
    parser.add_argument("--cases", type=int, default=10, help="of each damage in each layout")
    parser.add_argument("--seed", type=int, default=0, help="of the first one")
    parser.add_argument("--only", help="one damage")
    parser.add_argument("--logs-only", action="store_true", help="the logs alone, against a whole verify")
    parser.add_argument(
        "--brokers", type=int, default=0, help="healthy archives of so many real brokers instead"
    )
    arguments = parser.parse_args()
    if arguments.brokers:
        with tempfile.TemporaryDirectory(prefix="archive-brokers-") as scratch:
            return run_brokers(Path(scratch), range(arguments.seed, arguments.seed + arguments.brokers))
    missed: list[str] = []
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="archive-campaign-") as scratch:
        folder = Path(scratch)
        bench = ArchiveBench(folder, unpack_tiered(folder))
        for layout in LAYOUTS:
            assert bench.found_in(bench.sound(layout), is_deep=True) == [], layout
            for name in [arguments.only] if arguments.only else ARCHIVE_DAMAGES:
                for seed in range(arguments.seed, arguments.seed + arguments.cases):
                    case = bench.damaged(name, layout, seed)
                    if case is None:
                        continue
                    counts[layout] += 1
                    found = bench.found_in(case[0])
                    if arguments.logs_only:
                        alone = bench.found_in(case[0], is_logs_only=True)
                        is_right = with_found_ends(of_logs(alone), of_logs(found)) == of_logs(found)
                    else:
                        is_right = is_found(found, case[1])
                    if not is_right:
                        missed.append(f"{name} / {layout} / {seed}")
                        print(f"MISSED {missed[-1]}\n  must: {case[1]}\n  found: {found}", flush=True)
    print(f"{counts.total()} cases ({dict(counts)}), {len(missed)} missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
