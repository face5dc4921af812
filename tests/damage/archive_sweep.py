"""Every file of an archive, changed in every way, verified: `python -m tests.damage.archive_sweep --cases 3000`.

A case takes the next pair of a file's kind and a change (tests/damage/file_changes.py) in the next layout, at a segment
drawn by the seed, in tiered storage with or without the metadata topic. Something other than a note must be found in
that partition, or in the metadata topic; before, nothing must be. Where nothing is found, one of the documented reasons
of tests/damage/archive_harmless.py has to hold, by what the bytes are.
"""

from __future__ import annotations

import argparse
import itertools
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from recovery.archive.inventory.expectations import open_expectations
from recovery.archive.layouts.aiven_cipher import AivenKeys, load_aiven_keys
from recovery.check.finding import Finding
from segfmt.checkpoint import encode_offset_checkpoint
from tests.brokers.tiered_broker import TieredArchive, unpack_tiered
from tests.damage.archive_harmless import INTERVAL_BYTES, METADATA, Case, reason_of
from tests.damage.file_changes import CHANGES
from tests.logs.aiven_archive import KEY_ID, write_private_key
from tests.logs.archives import (
    INDEXES,
    LAYOUTS,
    LOG,
    MANIFEST,
    PARTS,
    SegmentCopy,
    WrittenArchive,
    copies_of,
    made_copies,
    metadata_records,
    write_archive,
)
from tests.logs.metadata_topic import write_metadata
from tests.runs.goings import NOW_MS, gone_through, objects_of

PLAIN_WITH_CHECKPOINTS = "plain, with checkpoints"
SWEPT = (*LAYOUTS, PLAIN_WITH_CHECKPOINTS)
CHECKPOINTS = (
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
)
EXCHANGES = ("exchanged with the next segment's", "exchanged with another partition's")
OBJECT = "object"
"""What the plugin stores of a log: chunks."""


def _parts_of(layout: str) -> list[tuple[str, bool]]:
    """The kinds of files in a layout; True: of the segment that is then stored, not of the stored object."""
    if layout.startswith("aiven"):
        objects = [(part, False) for part in (OBJECT, INDEXES, MANIFEST, METADATA)]
        return objects + [(part, True) for part in PARTS]
    if layout == PLAIN_WITH_CHECKPOINTS:
        return [(part, False) for part in (*PARTS, *CHECKPOINTS)]
    return [(part, False) for part in (*PARTS, *((METADATA,) if layout == "local-tiered" else ()))]


def _changes_of(part: str) -> list[str]:
    own = CHANGES["checkpoint" if part in CHECKPOINTS else part]
    exchanges = EXCHANGES if part in (*PARTS, OBJECT, INDEXES, MANIFEST) else ()
    return [*own, *exchanges]


def kinds() -> list[tuple[str, str, bool, str]]:
    """All kinds of cases: layout, part, whether it is stored anew, change."""
    return [
        (layout, part, is_inner, change)
        for layout in SWEPT
        for part, is_inner in _parts_of(layout)
        for change in _changes_of(part)
    ]


@dataclass(frozen=True, slots=True)
class _Drawn:
    """A sound archive of two partitions in one layout."""

    archive: WrittenArchive
    partitions: tuple[list[SegmentCopy], list[SegmentCopy]]


class Sweep:
    """Runs cases below *folder*, on segments of a real archive and built ones."""

    def __init__(self, folder: Path, real: TieredArchive) -> None:
        self._folder = folder
        self._real = real
        self._kinds = kinds()
        self._sound: dict[tuple[str, int], _Drawn] = {}

    @cached_property
    def keys(self) -> AivenKeys:
        """What encrypted segments need."""
        return load_aiven_keys({KEY_ID: write_private_key(self._folder)})

    @cached_property
    def _partitions(self) -> list[list[SegmentCopy]]:
        real = [copies_of(self._real, name, most=5) for name in ("plain-0", "transactions-0", "codecs-0")]
        return [*real, made_copies(), made_copies(partition=1, segments=4)]

    def _drawn(self, layout: str, number: int) -> _Drawn:
        """The sound archive of two neighbouring partitions of the five."""
        if (layout, number) not in self._sound:
            pair = self._partitions[number], self._partitions[(number + 1) % len(self._partitions)]
            root = self._folder / f"sound {layout} {number}"
            name = "plain" if layout == PLAIN_WITH_CHECKPOINTS else layout
            archive = write_archive(root, name, itertools.chain(*pair))
            if layout == PLAIN_WITH_CHECKPOINTS:
                _write_checkpoints(archive, pair)
            assert self.found(archive, has_metadata=archive.is_tiered) == {}, layout
            self._sound[layout, number] = _Drawn(archive, pair)
        return self._sound[layout, number]

    def case(self, seed: int) -> Case | None:
        """The damaged archive that *seed* stands for; None where the drawn file cannot be changed in that way."""
        rng = random.Random(f"sweep {seed}")
        layout, part, is_inner, change = self._kinds[seed % len(self._kinds)]
        drawn = self._drawn(layout, rng.randrange(len(self._partitions)))
        root = self._folder / "damaged"
        shutil.rmtree(root, ignore_errors=True)
        archive = drawn.archive.copy(root)
        own, other = drawn.partitions
        copies = [copy for copy in own if part not in PARTS or part in copy.files]
        if not copies:
            return None
        number = rng.randrange(len(copies))
        case = Case(
            seed=seed,
            layout=layout,
            archive=archive,
            partition=own,
            copy=copies[number],
            part=part,
            change=change,
            has_metadata=archive.is_tiered and (part == METADATA or rng.random() < 0.5),
            knows_interval=rng.random() < 0.5,
            now_ms=NOW_MS,
        )
        others = {EXCHANGES[0]: copies[number + 1 :], EXCHANGES[1]: other}.get(change, [])
        others = [copy for copy in others if part not in PARTS or part in copy.files]
        if change in EXCHANGES and not others:
            return None
        return case if self._change(case, is_inner, others, rng) else None

    def _change(self, case: Case, is_inner: bool, others: Sequence[SegmentCopy], rng: random.Random) -> bool:
        """Change the file of *case*; return whether anything is another now."""
        archive, copy, part = case.archive, case.copy, case.part
        if part == METADATA:
            shutil.rmtree(case.log_dir, ignore_errors=True)
            write_metadata(case.log_dir, metadata_records(archive.metadata))
            path = rng.choice(sorted(case.log_dir.rglob("*.log")))
        elif part in CHECKPOINTS:
            path = archive.root / part
        else:
            path = archive.place(copy, LOG if part == OBJECT else part)
        case.before = copy.files[part] if is_inner else path.read_bytes()
        if not others:
            name = "checkpoint" if part in CHECKPOINTS else part
            if not case.before:
                return False
            case.after = CHANGES[name][case.change](case.before, rng)
        elif is_inner:
            case.after = others[0].files[part]
        else:
            other = archive.place(others[0], LOG if part == OBJECT else part)
            case.after = other.read_bytes()
            other.write_bytes(case.before)
        if case.after == case.before:
            return False
        if is_inner:
            _store_again(case)
        elif case.after is None:
            path.unlink()
        else:
            path.write_bytes(case.after)
        return True

    def judge(self, case: Case) -> str | None:
        """Return what was found, or the reason why nothing has to be; None if it is missed."""
        log_dir = case.log_dir if case.part == METADATA else None
        case.found = self.found(
            case.archive, has_metadata=case.has_metadata, log_dir=log_dir, knows_interval=case.knows_interval
        )
        if _has_more_than_notes(case.found):
            return "found"
        reason = reason_of(case)
        if reason is None and case.part == LOG:
            found = self.found(case.archive, has_metadata=case.has_metadata, is_deep=True)
            reason = (
                "records of a batch with a right checksum: found by --deep"
                if _has_more_than_notes(found)
                else None
            )
        return reason

    def found(
        self,
        archive: WrittenArchive,
        *,
        has_metadata: bool,
        log_dir: Path | None = None,
        knows_interval: bool = False,
        is_deep: bool = False,
    ) -> dict[str, list[Finding]]:
        """What is found, by the keys of objects; of the metadata topic itself without a key."""
        topics = {copy.owner.topic for copy in archive.copies} if knows_interval else ()
        configs = {topic: {"index.interval.bytes": str(INTERVAL_BYTES)} for topic in topics}
        with ExitStack() as stack:
            metadata = []
            if has_metadata:
                if log_dir is None:
                    log_dir = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=self._folder)))
                    write_metadata(log_dir, metadata_records(archive.metadata), segment_batches=1000)
                metadata = [log_dir]
            verdicts = gone_through(
                archive.root, metadata=metadata, keys=self.keys, topic_configs=configs, is_deep=is_deep
            )
            found = {
                key: list(one.verdict.findings)
                for key, one in objects_of(verdicts).items()
                if one.verdict.findings
            }
            if metadata:
                own = open_expectations([str(log_dir)], stack).findings()
                found |= {"": list(own)} if own else {}
            return found


def _has_more_than_notes(found: Mapping[str, Sequence[Finding]]) -> bool:
    return any(finding.severity != "note" for findings in found.values() for finding in findings)


def _write_checkpoints(archive: WrittenArchive, partitions: Sequence[Sequence[SegmentCopy]]) -> None:
    ends = {
        (one[-1].owner.topic, one[-1].owner.partition): one[-1].remote.end_offset + 1 for one in partitions
    }
    starts = {(one[0].owner.topic, one[0].owner.partition): one[0].remote.start_offset for one in partitions}
    for name, offsets in zip(CHECKPOINTS, (ends, starts, ends), strict=True):
        (archive.root / name).write_bytes(encode_offset_checkpoint(offsets))


def _store_again(case: Case) -> None:
    """Store the segment of *case* with another file in it, as if the plugin had been given that."""
    files = {part: data for part, data in case.copy.files.items() if part != case.part}
    if case.after is not None:
        files[case.part] = case.after
    copy = SegmentCopy(remote=case.copy.remote, files={LOG: b""} | files)
    place = case.archive.copies.index(case.copy)
    for path, content in LAYOUTS[case.layout](case.archive, copy, place).items():
        path.write_bytes(content)


def run(sweep: Sweep, seeds: range, counts: Counter[str]) -> Iterator[Case]:
    """Run the cases of *seeds*; yield those that are missed."""
    for seed in seeds:
        case = sweep.case(seed)
        if case is None:
            counts["nothing to change"] += 1
            continue
        reason = sweep.judge(case)
        counts[reason or "missed"] += 1
        if reason is None:
            yield case


def main() -> int:
    """Run the cases; 1 if one of them is missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.damage.archive_sweep", description=__doc__)
    parser.add_argument("--cases", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0, help="of the first one")
    parser.add_argument("--show", action="store_true", help="what is found in each")
    arguments = parser.parse_args()
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="archive-sweep-") as scratch:
        sweep = Sweep(Path(scratch), unpack_tiered(Path(scratch)))
        for case in run(sweep, range(arguments.seed, arguments.seed + arguments.cases), counts):
            print(f"MISSED {case}", flush=True)
    for reason, count in counts.most_common():
        print(f"{count:7} {reason}")
    return 1 if counts["missed"] else 0


if __name__ == "__main__":
    sys.exit(main())
