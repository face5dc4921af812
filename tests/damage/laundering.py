"""No recover hides a loss: `python -m tests.damage.laundering --cases 100 --seed 7`.

A case is an archive in one of the layouts, with or without its metadata topic. The bytes of one or two logs are not
what they were any more (cut, swapped, flipped, with a batch removed or doubled, of other times or producers), and up to
two derived files may be damaged as well. Then it is recovered up to three times: to an output, in place, or to an
output from which somebody copies everything into the archive. Whatever a verify has found about a changed log before,
it must find something about that log after each of them; that a file is missing or malformed says nothing about its
log. No log may change, and no object may be damaged that was not before.
"""

from __future__ import annotations

import argparse
import random
import shutil
import struct
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from native.crc32c import crc32c_of_bytes
from tests.brokers.tiered_broker import unpack_tiered
from tests.damage.archive_campaign import ArchiveBench
from tests.damage.archive_damage import ARCHIVE_DAMAGES
from tests.logs.archives import INDEXES, LOG, MANIFEST, PARTS, SegmentCopy, WrittenArchive, batch_positions

_LAYOUTS = ("plain", "local-tiered", "aiven")
_DERIVED = tuple(
    name
    for name in ARCHIVE_DAMAGES
    if name.startswith(
        ("missing ", "offset index", "time index", "transaction index", "snapshot", "leader epochs")
    )
    and name
    not in ("missing log", "missing segment", "missing last segment", "missing manifest", "missing indexes")
)

_OF_ITSELF = frozenset({
    "missing-object", "missing-index", "index-size", "index-order", "malformed-entry", "snapshot", "epoch-checkpoint",
})  # fmt: skip
"""Rules by which a file is not sound, whatever its log is."""

Loss = Callable[[WrittenArchive, random.Random], list[SegmentCopy]]
"""Changes the bytes of logs; returns the segments whose logs they were, none where there is nothing to change."""


def _any(archive: WrittenArchive, rng: random.Random, *, batches: int = 2) -> SegmentCopy:
    """A segment, also a first or a last one, with so many batches at least."""
    return rng.choice([copy for copy in archive.copies if len(batch_positions(copy.files[LOG])) > batches])


def _rewrite(archive: WrittenArchive, copy: SegmentCopy, log: bytes) -> list[SegmentCopy]:
    archive.place(copy, LOG).write_bytes(log)
    return [copy]


def _cut(archive: WrittenArchive, rng: random.Random) -> list[SegmentCopy]:
    copy = _any(archive, rng)
    log = copy.files[LOG]
    return _rewrite(archive, copy, log[: rng.choice(batch_positions(log)[1:-1])])


def _swapped(archive: WrittenArchive, rng: random.Random) -> list[SegmentCopy]:
    copy = _any(archive, rng)
    other = rng.choice([other for other in archive.copies if other is not copy])
    same_start = [
        other
        for other in archive.copies
        if other is not copy and other.remote.start_offset == copy.remote.start_offset
    ]
    if same_start and rng.random() < 0.5:
        other = rng.choice(same_start)
    return [
        *_rewrite(archive, copy, other.files[LOG]),
        *_rewrite(archive, other, copy.files[LOG]),
    ]


def _without_a_batch(archive: WrittenArchive, rng: random.Random) -> list[SegmentCopy]:
    copy = _any(archive, rng)
    log = copy.files[LOG]
    positions = batch_positions(log)
    number = rng.randrange(len(positions) - 1)
    return _rewrite(archive, copy, log[: positions[number]] + log[positions[number + 1] :])


def _doubled_batch(archive: WrittenArchive, rng: random.Random) -> list[SegmentCopy]:
    copy = _any(archive, rng)
    log = copy.files[LOG]
    positions = batch_positions(log)
    number = rng.randrange(len(positions) - 1)
    return _rewrite(archive, copy, log[: positions[number + 1]] + log[positions[number] :])


def _flipped(archive: WrittenArchive, rng: random.Random) -> list[SegmentCopy]:
    copy = _any(archive, rng)
    log = bytearray(copy.files[LOG])
    log[rng.randrange(len(log))] ^= 1 << rng.randrange(8)
    return _rewrite(archive, copy, bytes(log))


def _reencoded(change: Callable[[bytearray], None]) -> Loss:
    """Batches of the second half of a log are others, as long as before and with right checksums."""

    def damage(archive: WrittenArchive, rng: random.Random) -> list[SegmentCopy]:
        copy = _any(archive, rng)
        positions = batch_positions(copy.files[LOG])
        half = len(positions) // 2
        log = copy.files[LOG][: positions[half]]
        for start, end in pairwise(positions[half:]):
            batch = bytearray(copy.files[LOG][start:end])
            change(batch)
            struct.pack_into(">I", batch, 17, crc32c_of_bytes(bytes(batch[21:])))
            log += batch
        return _rewrite(archive, copy, log)

    return damage


def _later(batch: bytearray) -> None:
    for position in (27, 35):
        (timestamp_ms,) = struct.unpack_from(">q", batch, position)
        struct.pack_into(">q", batch, position, timestamp_ms + 1000)


def _of_another_producer(batch: bytearray) -> None:
    (producer_id,) = struct.unpack_from(">q", batch, 43)
    struct.pack_into(">q", batch, 43, producer_id + 67 if producer_id >= 0 else producer_id)


def _stretched(archive: WrittenArchive, rng: random.Random) -> list[SegmentCopy]:
    """A batch is gone, and the one before has its offsets: what a cleaner leaves, and no gap."""
    copy = _any(archive, rng, batches=3)
    log = copy.files[LOG]
    positions = batch_positions(log)
    number = rng.randrange(1, len(positions) - 1)
    before = bytearray(log[positions[number - 1] : positions[number]])
    (base,) = struct.unpack_from(">q", before, 0)
    (gone_base,) = struct.unpack_from(">q", log, positions[number])
    (gone_delta,) = struct.unpack_from(">i", log, positions[number] + 23)
    struct.pack_into(">i", before, 23, gone_base + gone_delta - base)
    struct.pack_into(">I", before, 17, crc32c_of_bytes(bytes(before[21:])))
    return _rewrite(
        archive, copy, log[: positions[number - 1]] + bytes(before) + log[positions[number + 1] :]
    )


LOSSES: dict[str, Loss] = {
    "cut": _cut,
    "swapped": _swapped,
    "without a batch": _without_a_batch,
    "a batch twice": _doubled_batch,
    "flipped": _flipped,
    "other times": _reencoded(_later),
    "other producers": _reencoded(_of_another_producer),
    "stretched": _stretched,
}


@dataclass(frozen=True, slots=True)
class Launderer:
    """Runs cases on copies of the bench's archives, in *folder*."""

    bench: ArchiveBench
    folder: Path

    def run(self, seed: int, counts: Counter[str]) -> str | None:
        """Return what was hidden, or None."""
        rng = random.Random(f"laundering {seed}")
        layout = rng.choice(_LAYOUTS)
        shutil.rmtree(self.folder, ignore_errors=True)
        archive = self.bench.sound(layout).copy(self.folder / "archive")
        has_metadata = rng.random() < 0.3
        names = rng.choices(list(LOSSES), k=rng.choice((1, 1, 1, 2)))
        changed = [copy for name in names for copy in LOSSES[name](archive, rng)]
        damages = rng.choices(_DERIVED, k=rng.choice((0, 0, 1, 2)))
        for name in damages:
            ARCHIVE_DAMAGES[name](archive, rng)
        logs = {path: path.read_bytes() for path in archive.root.rglob("*.log")}
        before = self._bad(archive, has_metadata=has_metadata)
        telling = {key for key, rules in before.items() if not _OF_ITSELF.issuperset(rules)}
        told = [copy for copy in changed if telling & about(archive, copy)]
        steps = rng.choices(("output", "in place", "copied"), k=rng.choice((1, 2, 3)))
        counts.update([layout, *names, *steps, "found" if told else "not found before"])
        what = f"{seed}: {layout}, metadata {has_metadata}, {names}, {damages}"
        for number, step in enumerate(steps):
            if archive.is_aiven and step != "output":
                continue
            rebuilt = self._recover(archive, step, number, has_metadata=has_metadata)
            counts["rebuilt"] += rebuilt
            after = self._bad(archive, has_metadata=has_metadata)
            hidden = [copy.stem for copy in told if not after.keys() & about(archive, copy)]
            new = {key: rules for key, rules in after.items() if key not in before}
            if any(path.read_bytes() != data for path, data in logs.items()):
                return f"{what}: {steps[: number + 1]} changed a log"
            if hidden:
                return f"{what}: {steps[: number + 1]} hid {hidden}: {before} became {after}"
            if new:
                return f"{what}: {steps[: number + 1]} damaged {new}, before {before}"
        return None

    def _bad(self, archive: WrittenArchive, *, has_metadata: bool) -> dict[str, list[str]]:
        """The rules by which each object is not sound."""
        return {
            judged.verdict.path: [f.rule for f in judged.verdict.findings if f.severity != "note"]
            for judged in self.bench.judged(archive, has_metadata=has_metadata)
            if judged.verdict.is_valid is not True
        }

    def _recover(self, archive: WrittenArchive, step: str, number: int, *, has_metadata: bool) -> int:
        """Recover *archive*; return how many objects were rebuilt."""
        output = self.folder / f"output {number}"

        judged = self.bench.judged(archive, output, is_in_place=step == "in place", has_metadata=has_metadata)
        for rebuilt in (output / "recovered").glob("*") if step == "copied" else ():
            shutil.copytree(rebuilt, archive.root, dirs_exist_ok=True)
        return sum(verdict.rebuilt is not None for verdict in judged)


def about(archive: WrittenArchive, copy: SegmentCopy) -> set[str]:
    """Return the keys of all objects that can tell that a segment's log is not what it was."""
    number = archive.copies.index(copy)
    neighbours = [
        other for other in archive.copies[max(0, number - 1) : number + 2] if other.owner == copy.owner
    ]
    parts = (*PARTS, INDEXES, MANIFEST)
    paths = {archive.place(copy, part) for part in parts} | {
        archive.place(other, LOG) for other in neighbours
    }
    if archive.is_aiven:
        stem = archive.place(copy, INDEXES).with_suffix("")
        paths |= {stem.with_name(f"{stem.name}.{part}") for part in (*PARTS, "leader-epoch-checkpoint")}
    return {path.relative_to(archive.root).as_posix() for path in paths}


def cases(seeds: range, counts: Counter[str]) -> Iterator[str]:
    """Run the cases with *seeds*; yield what went wrong."""
    with tempfile.TemporaryDirectory(prefix="laundering-") as scratch:
        folder = Path(scratch)
        launderer = Launderer(ArchiveBench(folder, unpack_tiered(folder)), folder / "case")
        for seed in seeds:
            failure = launderer.run(seed, counts)
            if failure is not None:
                yield failure


def main() -> int:
    """Run the cases; 1 if one of them hides anything."""
    parser = argparse.ArgumentParser(prog="python -m tests.damage.laundering", description=__doc__)
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="of the first one")
    arguments = parser.parse_args()
    counts: Counter[str] = Counter()
    failures = 0
    for failure in cases(range(arguments.seed, arguments.seed + arguments.cases), counts):
        failures += 1
        print(f"HIDDEN {failure}", flush=True)
    print(f"{arguments.cases} cases ({dict(counts)}), {failures} failing")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
