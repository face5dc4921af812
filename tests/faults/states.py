"""The damaged log dirs that runs are killed on, or fail on: made by hand, and by seed from tests/damage/mutilate.py.

A state is one or two log dirs with one or more partitions of a sample.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from segfmt.record_batch import walk_batches
from tests.damage.mutilate import CHECKPOINTS, DAMAGES, Victim, make_victim
from tests.damage.mutilations.derived import DERIVED_DAMAGES
from tests.damage.mutilations.leftovers import LEFTOVER_DAMAGES
from tests.damage.mutilations.logs import LOG_DAMAGES
from tests.logs.samples import MARKER, Sample

Damaging = Callable[[Victim], object]

_CONFIG_FILES = ("meta.properties",)


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """How to make a damaged set of log dirs.

    Attributes:
        log_dirs: for each, the partitions of the sample in it, and what is done to each.
        sample: the sample's name.
        is_clean: whether each log dir has a clean-shutdown marker.
        keeps_broker: whether the recovery's end is the broker's own, so that the two may follow each other.
    """

    name: str
    log_dirs: Sequence[Mapping[str, Damaging]]
    sample: str = "crashed"
    is_clean: bool = False
    keeps_broker: bool = True

    def make(self, samples: Mapping[str, Sample], root: Path) -> None:
        """Make the log dirs d1, d2, .. below *root*."""
        for number, partitions in enumerate(self.log_dirs, 1):
            _make_log_dir(samples[self.sample], partitions, root / f"d{number}", is_clean=self.is_clean)

    def paths(self, root: Path) -> list[Path]:
        """The log dirs below *root*."""
        return [root / f"d{number}" for number in range(1, len(self.log_dirs) + 1)]


def _make_log_dir(sample: Sample, partitions: Mapping[str, Damaging], into: Path, *, is_clean: bool) -> None:
    """One log dir with all *partitions*; the lines of its checkpoints are those of each partition by itself."""
    lines: dict[str, list[str]] = {name: [] for name in CHECKPOINTS}
    into.mkdir(parents=True)
    for number, (partition, damage) in enumerate(partitions.items()):
        folder = next(log_dir / partition for log_dir in sample.log_dirs if (log_dir / partition).exists())
        alone = into.with_name(f"{into.name}-alone-{number}")
        victim = make_victim(sample, folder, alone)
        damage(victim)
        for path in alone.iterdir():
            if path.name in CHECKPOINTS:
                lines[path.name] += path.read_text().splitlines()[2:]
            else:
                path.rename(into / path.name)
        shutil.rmtree(alone)
    for name, found in lines.items():
        (into / name).write_text(f"0\n{len(found)}\n" + "".join(f"{line}\n" for line in found))
    if is_clean:
        (into / MARKER).write_text('{"version":0,"brokerEpoch":7}')


# -- damage made by hand ------------------------------------------------------------------------------------


def nothing(victim: Victim) -> None:
    """As the crash left it."""


def torn_first_segment(victim: Victim) -> None:
    """The first unflushed segment is cut, those behind it become .deleted."""
    log = victim.unflushed()[0]
    _cut(log, log.stat().st_size - 7)


def torn_first_segment_of(folder: Path) -> None:
    """Cut the first segment in *folder*."""
    log = min(folder.glob("*.log"))
    _cut(log, log.stat().st_size - 7)


def torn_last_segment(victim: Victim) -> None:
    log = [log for log in victim.logs() if log.stat().st_size][-1]
    _cut(log, log.stat().st_size - 7)


def missing_index_and_torn_tail(victim: Victim) -> None:
    victim.logs()[0].with_suffix(".index").unlink()
    torn_last_segment(victim)


def missing_indexes(victim: Victim) -> None:
    for log in victim.logs()[:-1]:
        log.with_suffix(".index").unlink()


def interrupted_compaction(victim: Victim) -> None:
    """Two segments wait as .swap for those that they replace."""
    logs = victim.logs()
    for log in logs[1:3]:
        for suffix in (".log", ".index", ".timeindex"):
            shutil.copy2(log.with_suffix(suffix), log.with_name(f"{log.stem}{suffix}.swap"))
    logs[1].with_suffix(".index").unlink()


def unfinished_split(victim: Victim) -> None:
    log = victim.logs()[1]
    shutil.copy2(log, log.with_name(f"{log.name}.swap"))
    shutil.copy2(log, log.with_name(f"{log.name}.cleaned"))


def log_start_beyond_the_end(victim: Victim) -> None:
    _checkpoint(victim, CHECKPOINTS[1], 100_000)
    torn_last_segment(victim)


def log_start_in_the_first_segment(victim: Victim) -> None:
    _checkpoint(victim, CHECKPOINTS[1], int(victim.logs()[1].stem) - 1)
    torn_last_segment(victim)


def negative_recovery_point(victim: Victim) -> None:
    _checkpoint(victim, CHECKPOINTS[0], -1)
    torn_last_segment(victim)


def overflowed_segment(victim: Victim) -> None:
    """The last two batches of a segment in the middle have offsets too high for it: it is split."""
    log = victim.unflushed()[0]
    data = bytearray(log.read_bytes())
    for batch in list(walk_batches(bytes(data)))[-2:]:
        data[batch.position : batch.position + 8] = (batch.offset + 2**40).to_bytes(8, "big")
    log.write_bytes(data)


def swapped_batches(victim: Victim) -> None:
    DAMAGES["swapped batches"](victim, random.Random(5))


def pending_deletions(victim: Victim) -> None:
    """A broker was stopped before it had removed two segments; the rest is torn."""
    for log in victim.logs()[:2]:
        for file in victim.folder.glob(f"{log.stem}.*"):
            shutil.copy2(file, file.with_name(f"{file.name}.deleted"))
    torn_last_segment(victim)


def unreadable_epochs(victim: Victim) -> None:
    """A broker does not load this: the partition is refused."""
    (victim.folder / "leader-epoch-checkpoint").write_text("1\n0\n")


def _checkpoint(victim: Victim, name: str, offset: int) -> None:
    topic, _, number = victim.folder.name.rpartition("-")
    (victim.log_dir / name).write_text(f"0\n1\n{topic} {number} {offset}\n")


def _cut(log: Path, size_bytes: int) -> None:
    with log.open("r+b") as file:
        file.truncate(size_bytes)


def _one(name: str, partition: str, damage: Damaging, **more: object) -> State:
    return replace(State(name=name, log_dirs=[{partition: damage}]), **more)


MADE_STATES = {
    state.name: state
    for state in (
        _one("torn first segment", "late-1", torn_first_segment),
        _one("torn with transactions", "transactions-1", torn_first_segment),
        _one("missing index and torn tail", "codec-lz4-0", missing_index_and_torn_tail),
        _one("interrupted compaction", "compacted-0", interrupted_compaction),
        _one("unfinished split", "late-0", unfinished_split),
        _one("log start beyond the end", "late-0", log_start_beyond_the_end),
        _one("log start inside", "transactions-0", log_start_in_the_first_segment),
        _one("negative recovery point", "append-time-0", negative_recovery_point),
        _one("batches out of order", "late-1", swapped_batches),
        _one("overflowed segment", "late-0", overflowed_segment),
        _one("pending deletions", "late-1", pending_deletions),
        _one("preallocated", "preallocated-0", nothing),
        _one("old messages", "old-v1-lz4-0", torn_first_segment, sample="crashed-v0-v1"),
        _one("clean, indexes missing", "late-1", missing_indexes, is_clean=True),
        _one("clean, interrupted compaction", "compacted-0", interrupted_compaction, is_clean=True),
        State(
            name="three partitions",
            log_dirs=[
                {"late-0": torn_first_segment, "late-1": unfinished_split, "shapes-0": torn_last_segment}
            ],
        ),
        State(
            name="two log dirs",
            log_dirs=[
                {"late-0": torn_first_segment, "transactions-2": missing_index_and_torn_tail},
                {"late-1": overflowed_segment, "many-producers-0": torn_last_segment},
            ],
        ),
        State(
            name="one refused",
            log_dirs=[{"late-0": unreadable_epochs, "late-1": torn_first_segment}],
            keeps_broker=False,
        ),
        State(
            name="clean, one of two is damaged",
            log_dirs=[{"transactions-0": nothing, "late-1": missing_indexes}],
            is_clean=True,
        ),
    )
}

SINGLE_STATES = {
    name: next(iter(MADE_STATES[name].log_dirs[0].items()))
    for name in (
        "torn first segment", "torn with transactions", "missing index and torn tail", "interrupted compaction",
        "unfinished split", "log start beyond the end", "batches out of order", "overflowed segment",
    )
}  # fmt: skip
"""Some of them that are one partition of the sample `crashed`: the partition, and what is done to it."""

_DRAWN_DAMAGES = {**LOG_DAMAGES, **DERIVED_DAMAGES, **LEFTOVER_DAMAGES}

_SEEDED_PARTITIONS = (
    "late-0", "late-1", "transactions-0", "transactions-1", "transactions-2", "short-segments-0", "out-of-order-0",
    "many-producers-0", "compacted-0", "append-time-0", "deleted-records-0", "tiered-0", "codec-none-0",
)  # fmt: skip


def seeded_state(seed: int, number: int) -> State:
    """One to three damages on one or two partitions, all drawn from *seed* and *number*."""
    rng = random.Random(f"faults {seed}/{number}")
    partitions = rng.sample(_SEEDED_PARTITIONS, rng.choice([1, 1, 2]))

    def damaging() -> Damaging:
        drawn, inner = rng.randint(1, 3), rng.random()

        def damage(victim: Victim) -> None:
            own = random.Random(inner)
            for _ in range(drawn):
                _DRAWN_DAMAGES[own.choice(sorted(_DRAWN_DAMAGES))](victim, own)

        return damage

    return State(name=f"{seed}/{number}", log_dirs=[{partition: damaging() for partition in partitions}])


def find_state(name: str) -> State:
    """The state called *name*: one made by hand, or SEED/NUMBER."""
    if name in MADE_STATES:
        return MADE_STATES[name]
    seed, _, number = name.partition("/")
    return seeded_state(int(seed), int(number))
