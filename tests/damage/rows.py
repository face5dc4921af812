"""Rows of damaged archives are right, or say that they are not: `python -m tests.damage.rows --cases 100 --seed 7`.

A case is an archive in one of the layouts, with or without its metadata topic, damaged in one way (every damage of
`archive_damage`, and those below, which leave all checksums right) and read in the three modes of `corrupt`, in both
isolations, in one of the modes by tasks of one segment, too. Each row that comes back is that of the sound archive, or
carries a fault; rows that are missing are announced, by an object of their segment or its neighbours where they are
left out; or the query fails with a sentence. Rows do not depend on the tasks.
What `archive verify` does not find either is counted and passed over.

`--filters N` reads a sound archive with N random filters, and compares with the unfiltered rows.
"""

from __future__ import annotations

import argparse
import random
import re
import shutil
import struct
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from recovery.archive.records.damage import LeftOut
from recovery.archive.records.read_options import Corrupt, ReadOptions
from recovery.archive.records.read_request import Selection
from recovery.errors import RecoveryError
from segfmt import byte_layout
from segfmt.errors import FormatError
from tests.brokers.tiered_broker import unpack_tiered
from tests.damage.archive_campaign import ArchiveBench
from tests.damage.archive_damage import ARCHIVE_DAMAGES
from tests.damage.laundering import LOSSES, about
from tests.logs.archives import (
    LAYOUTS,
    LOG,
    TXN_INDEX,
    SegmentCopy,
    WrittenArchive,
    batch_positions,
    metadata_records,
)
from tests.logs.metadata_topic import write_metadata
from tests.runs.readings import read

Row = dict[str, Any]
Rows = dict[tuple[str, int, int], Row]
"""By topic, partition and offset."""

RowDamage = Callable[[WrittenArchive, random.Random], object]
"""Changes an archive; None where there is nothing to change."""

_COLUMNS = (
    "topic", "partition", "offset", "timestamp", "key", "value", "headers", "leader_epoch", "producer_id",
    "producer_epoch", "sequence", "is_transactional", "aborted", "crc_valid", "fault",
)  # fmt: skip
_FEWEST_BATCHES = 3
_MISSING = re.compile(r"offsets (\d+) to (\d+) are missing")
_EPOCH_POSITION, _MAGIC_POSITION = 12, 16


def _segment(archive: WrittenArchive, rng: random.Random, *, part: str = LOG) -> SegmentCopy | None:
    """A segment that has *part*, and several batches."""
    fitting = [
        copy
        for copy in archive.copies
        if part in copy.files and len(batch_positions(copy.files[LOG])) > _FEWEST_BATCHES
    ]
    return rng.choice(fitting) if fitting and not archive.is_aiven else None


def _of_batches(change: Callable[[list[bytes], random.Random], None]) -> RowDamage:
    """The batches of one log are others."""

    def damage(archive: WrittenArchive, rng: random.Random) -> object:
        copy = _segment(archive, rng)
        if copy is None:
            return None
        log = copy.files[LOG]
        batches = [log[start:end] for start, end in pairwise(batch_positions(log))]
        change(batches, rng)
        return archive.place(copy, LOG).write_bytes(b"".join(batches))

    return damage


def _flip(batches: list[bytes], rng: random.Random, first: int, last: int) -> None:
    """One bit of a field that no checksum covers."""
    number = rng.randrange(len(batches))
    batch = bytearray(batches[number])
    batch[rng.randrange(first, last)] ^= 1 << rng.randrange(8)
    batches[number] = bytes(batch)


def _shifted(batches: list[bytes], rng: random.Random) -> None:
    number = rng.randrange(len(batches))
    (base,) = struct.unpack_from(">q", batches[number])
    batches[number] = (
        struct.pack(">q", max(0, base + rng.choice((-40, -3, -1, 1, 3, 40)))) + batches[number][8:]
    )


def _swapped(batches: list[bytes], rng: random.Random) -> None:
    first, second = sorted(rng.sample(range(len(batches)), 2))
    batches[first], batches[second] = batches[second], batches[first]


def _repeated(batches: list[bytes], rng: random.Random) -> None:
    """Several batches in a row, once more right after them or later."""
    first = rng.randrange(len(batches))
    last = rng.randrange(first, len(batches)) + 1
    at = rng.randrange(last, len(batches) + 1)
    batches[at:at] = batches[first:last]


def _dropped(batches: list[bytes], rng: random.Random) -> None:
    first = rng.randrange(len(batches) - 1)
    del batches[first : first + rng.randrange(1, 3)]


def _txn_entries(change: Callable[[np.ndarray[Any, Any], random.Random], np.ndarray[Any, Any]]) -> RowDamage:
    def damage(archive: WrittenArchive, rng: random.Random) -> object:
        copy = _segment(archive, rng, part=TXN_INDEX)
        if copy is None or not copy.files[TXN_INDEX]:
            return None
        entries = np.frombuffer(copy.files[TXN_INDEX], byte_layout.ABORTED_TXN_DTYPE).copy()
        return archive.place(copy, TXN_INDEX).write_bytes(
            change(entries, rng).astype(entries.dtype).tobytes()
        )

    return damage


def _with_entry(entries: np.ndarray[Any, Any], _rng: random.Random) -> np.ndarray[Any, Any]:
    """An abort of a producer that is not there, before the last one."""
    made = entries[-1:].copy()
    made["producer_id"] = 99
    made["last_offset"] -= 1
    return np.concatenate([entries[:-1], made, entries[-1:]])


def _no_txn_indexes(archive: WrittenArchive, _rng: random.Random) -> object:
    """All transaction indexes of the archive are gone."""
    gone = [path for path in archive.root.rglob("*.txnindex") if path.unlink() is None]
    return gone or None


def _lost_segments(archive: WrittenArchive, rng: random.Random) -> object:
    """Several segments between others are gone with all of their objects."""
    rows = zip(archive.copies, archive.copies[1:], archive.copies[2:], strict=False)
    inner = [two for one, two, three in rows if one.owner == two.owner == three.owner]
    for copy in rng.sample(inner, 3):
        for part in archive.parts(copy):
            path = archive.place(copy, part)
            if path.name != "leader-epoch-checkpoint":
                path.unlink(missing_ok=True)
    return True


ROW_DAMAGES: dict[str, RowDamage] = {
    **ARCHIVE_DAMAGES,
    **{name: LOSSES[name] for name in ("cut", "without a batch", "a batch twice", "flipped")},
    "base offset: a flipped bit": _of_batches(lambda batches, rng: _flip(batches, rng, 0, 8)),
    "base offset: near the right one": _of_batches(_shifted),
    "leader epoch: a flipped bit": _of_batches(
        lambda batches, rng: _flip(batches, rng, _EPOCH_POSITION, _MAGIC_POSITION)
    ),
    "magic: a flipped bit": _of_batches(
        lambda batches, rng: _flip(batches, rng, _MAGIC_POSITION, _MAGIC_POSITION + 1)
    ),
    "two batches swapped": _of_batches(_swapped),
    "batches repeated": _of_batches(_repeated),
    "batches dropped": _of_batches(_dropped),
    "all transaction indexes gone": _no_txn_indexes,
    "transaction index: an entry less": _txn_entries(
        lambda entries, rng: np.delete(entries, rng.randrange(len(entries)))
    ),
    "transaction index: an entry more": _txn_entries(_with_entry),
    "several segments gone": _lost_segments,
}
"""Each way in which rows can go wrong."""


@dataclass(slots=True)
class RowBench:
    """Sound archives with their rows, and damaged copies of them.

    Attributes:
        bench: the archives.
        folder: for copies.
        counts: of cases and outcomes.
        unfound: what a verify does not find either.
    """

    bench: ArchiveBench
    folder: Path
    counts: Counter[str] = field(default_factory=Counter)
    unfound: list[str] = field(default_factory=list)
    _sound: dict[tuple[str, bool, bool], Rows] = field(default_factory=dict)

    def run(self, seed: int) -> str | None:
        """Return what is wrong with the rows of a case, None if nothing is."""
        rng = random.Random(f"rows {seed}")
        name, layout = rng.choice(list(ROW_DAMAGES)), rng.choice(list(LAYOUTS))
        has_metadata, is_committed = rng.random() < 0.5, rng.random() < 0.5
        shutil.rmtree(self.folder, ignore_errors=True)
        archive = self.bench.sound(layout).copy(self.folder / "archive")
        if ROW_DAMAGES[name](archive, rng) is None:
            return None
        self.counts.update(["cases", layout])
        expected = self._expected(layout, has_metadata=has_metadata, is_committed=is_committed)
        drawn = rng.choice(list(Corrupt))
        for mode in Corrupt:
            failure = self._mode(
                archive, mode, expected, has_metadata=has_metadata, is_committed=is_committed
            )
            if failure is None and mode is drawn:
                failure = self._tasks(archive, mode, has_metadata=has_metadata, is_committed=is_committed)
            if failure is None:
                continue
            judged = self.bench.judged(archive, has_metadata=has_metadata)
            if all(verdict.verdict.is_valid for verdict in judged):
                self.counts["not found by verify either"] += 1
                self.unfound.append(f"{seed}: {name} / {layout} / {mode.value}: {failure}")
                continue
            what = (
                f"{seed}: {name} / {layout}, metadata {has_metadata}, committed {is_committed}, {mode.value}"
            )
            return f"{what}: {failure}"
        return None

    def _expected(self, layout: str, *, has_metadata: bool, is_committed: bool) -> Rows:
        key = layout, has_metadata, is_committed
        if key not in self._sound:
            rows, left_out, notes = self._read(
                self.bench.sound(layout), Corrupt.FAIL, has_metadata, is_committed
            )
            assert not notes
            assert not [one for one in left_out if one.is_damage], layout
            self._sound[key] = by_offset(rows)
            assert len(self._sound[key]) == len(rows) > 300
        return self._sound[key]

    def _read(
        self,
        archive: WrittenArchive,
        mode: Corrupt,
        has_metadata: bool,
        is_committed: bool,
        selection: Selection | None = None,
    ) -> tuple[list[Row], list[LeftOut], list[str]]:
        left_out: list[LeftOut] = []
        notes: list[str] = []
        options = ReadOptions(corrupt=mode, is_committed=is_committed)
        with tempfile.TemporaryDirectory(dir=self.folder.parent) as log_dir:
            metadata = ()
            if has_metadata and archive.is_tiered:
                write_metadata(Path(log_dir), metadata_records(archive.metadata), segment_batches=1000)
                metadata = (Path(log_dir),)
            rows = read(
                archive.root,
                *_COLUMNS,
                options=options,
                selection=selection,
                metadata=metadata,
                left_out=left_out,
                notes=notes,
                keys=self.bench.keys,
            )
        return rows, left_out, notes

    def _tasks(
        self, archive: WrittenArchive, mode: Corrupt, *, has_metadata: bool, is_committed: bool
    ) -> str | None:
        """Return how the rows in one mode depend on the division into tasks."""
        found: list[Counter[str] | None] = []
        for selection in (Selection(), Selection(task_segments=1)):
            try:
                rows, _, _ = self._read(archive, mode, has_metadata, is_committed, selection)
                found.append(Counter(map(str, rows)))
            except (RecoveryError, FormatError, OSError):
                found.append(None)
        whole, divided = found
        if whole == divided:
            return None
        if whole is not None and divided is not None:
            return f"{len(whole)} rows by large tasks, {len(divided)} by small ones, or others"
        self.counts[f"{mode.value}: failed by tasks of one size alone"] += 1
        return "failed by tasks of one size alone" if mode is Corrupt.FAIL else None

    def _mode(
        self,
        archive: WrittenArchive,
        mode: Corrupt,
        expected: Rows,
        *,
        has_metadata: bool,
        is_committed: bool,
    ) -> str | None:
        """Return what is wrong with the rows in one mode."""
        try:
            rows, left_out, notes = self._read(archive, mode, has_metadata, is_committed)
        except (RecoveryError, FormatError, OSError) as error:
            self.counts[f"{mode.value}: failed"] += 1
            return None if not isinstance(error, FormatError) else f"no sentence of its own: {error!r}"
        trusted = [row for row in rows if row["fault"] is None]
        faulty = [row for row in rows if row["fault"] is not None]
        found = by_offset(trusted)
        if len(found) < len(trusted):
            return "rows come back twice"
        wrong = [key for key, row in found.items() if row != expected.get(key)]
        if wrong:
            first = wrong[0]
            return f"{len(wrong)} rows are others: {found[first]}, not {expected.get(first)}"
        missing = [key for key in expected if key not in found]
        self.counts[f"{mode.value}: {'rows missing' if missing else 'all rows'}"] += 1
        if not missing:
            return None
        if mode is Corrupt.FAIL:
            return f"{len(missing)} rows are missing, {missing[0]} first"
        if mode is Corrupt.INCLUDE:
            announced = {(row["topic"], row["partition"]) for row in faulty}
            silent = [key for key in missing if key[:2] not in announced]
        else:
            silent = [key for key in missing if not self._is_announced(archive, key, left_out, notes)]
        return f"{len(silent)} rows are missing in silence, {silent[0]} first: {left_out}" if silent else None

    def _is_announced(
        self, archive: WrittenArchive, key: tuple[str, int, int], left_out: list[LeftOut], notes: list[str]
    ) -> bool:
        """Return whether a missing row is, by an object near it, a range of offsets or a note on its partition."""
        about_row = self._about(archive, key)
        folders = {name.rpartition("/")[0] for name in about_row}
        for one in left_out:
            name = one.name.removeprefix(f"{archive.root}/")
            found = _MISSING.search(one.detail)
            is_within = found is not None and int(found[1]) <= key[2] <= int(found[2])
            if one.is_damage and (name in about_row or (is_within and name.rpartition("/")[0] in folders)):
                return True
        prefixes = tuple(note.partition(": ")[0] for note in notes)
        return any(name.startswith(prefixes) for name in about_row)

    def _about(self, archive: WrittenArchive, key: tuple[str, int, int]) -> set[str]:
        """Return the keys of the objects that tell of a row's segment."""
        topic, partition, offset = key
        return {
            name
            for copy in archive.copies
            if (copy.owner.topic, copy.owner.partition) == (topic, partition)
            and copy.remote.start_offset <= offset <= copy.remote.end_offset
            for name in about(archive, copy)
        }


def by_offset(rows: list[Row]) -> Rows:
    """Rows by their place."""
    return {(row["topic"], row["partition"], row["offset"]): row for row in rows}


# -- filters ----------------------------------------------------------------------------------------------------


def filtered(
    root: Path, everything: Mapping[bool, list[Row]], rng: random.Random, *, metadata: tuple[Path, ...] = ()
) -> str | None:
    """Read with one random filter; return how the rows differ from those of *everything*, by isolation."""
    is_committed = rng.random() < 0.5
    rows = everything[is_committed]
    offsets, times = sorted({row["offset"] for row in rows}), sorted(row["timestamp"] for row in rows)

    def drawn(values: list[int]) -> int | None:
        return rng.choice(values) + rng.choice((-1, 0, 0, 1)) if rng.random() < 0.5 else None

    options = ReadOptions(
        is_committed=is_committed,
        lowest_offset=drawn(offsets),
        highest_offset=drawn(offsets),
        lowest_timestamp_ms=drawn(times),
        highest_timestamp_ms=drawn(times),
    )
    topics = sorted({row["topic"] for row in rows})
    selection = Selection(
        topics=frozenset(rng.sample(topics, rng.randrange(1, len(topics) + 1)))
        if rng.random() < 0.5
        else None,
        partitions=frozenset(rng.sample((0, 1, 2), 2)) if rng.random() < 0.5 else None,
        task_bytes=rng.choice((1, 20_000, 1 << 30)),
        uses_time_index=rng.random() < 0.8,
    )
    found = read(root, *everything_columns(), options=options, selection=selection, metadata=metadata)
    expected = [row for row in rows if _is_in(row, options, selection)]
    if found == expected:
        return None
    return f"{options} {selection}: {len(found)} rows, not {len(expected)}"


def everything_columns() -> tuple[str, ...]:
    """The columns that filters are about, and one that needs the records."""
    return "topic", "partition", "offset", "timestamp", "value"


def _is_in(row: Row, options: ReadOptions, selection: Selection) -> bool:
    bounds = (
        (row["offset"], options.lowest_offset, options.highest_offset),
        (row["timestamp"], options.lowest_timestamp_ms, options.highest_timestamp_ms),
    )
    return (
        (selection.topics is None or row["topic"] in selection.topics)
        and (selection.partitions is None or row["partition"] in selection.partitions)
        and all(
            (low is None or value >= low) and (high is None or value <= high) for value, low, high in bounds
        )
    )


def filter_failures(root: Path, seeds: range, *, metadata: tuple[Path, ...] = ()) -> Iterator[str]:
    """Read with a random filter for each seed; yield what differs."""
    everything = {
        is_committed: read(
            root, *everything_columns(), options=ReadOptions(is_committed=is_committed), metadata=metadata
        )
        for is_committed in (False, True)
    }
    for seed in seeds:
        failure = filtered(root, everything, random.Random(f"filter {seed}"), metadata=metadata)
        if failure is not None:
            yield f"{seed}: {failure}"


def main() -> int:
    """Run the cases; 1 if any of them fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.damage.rows", description=__doc__)
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--filters", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0, help="of the first one")
    arguments = parser.parse_args()
    failures = 0
    with tempfile.TemporaryDirectory(prefix="rows-") as scratch:
        folder = Path(scratch)
        real = unpack_tiered(folder)
        bench = RowBench(ArchiveBench(folder, real), folder / "case")
        for seed in range(arguments.seed, arguments.seed + arguments.cases):
            failure = bench.run(seed)
            if failure is not None:
                failures += 1
                print(f"WRONG {failure}", flush=True)
        for failure in bench.unfound:
            print(f"passed over {failure}"[:300])
        for metadata in ((), real.log_dirs):
            seeds = range(arguments.seed, arguments.seed + arguments.filters // 2)
            for failure in filter_failures(real.path, seeds, metadata=metadata):
                failures += 1
                print(f"FILTER {failure}", flush=True)
    print(f"{dict(bench.counts)}, {arguments.filters} filters, {failures} failing")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
