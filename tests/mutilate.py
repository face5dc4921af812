"""Damage for log dirs: a table of what can happen to one partition's folder, applied by seed.

Each damage is a function of a `Victim`, a fresh log dir that holds one partition's folder of a sample, and a
random generator. It changes files in place and returns words for the report, or None where it has nothing to
bite on in this partition.
"""

from __future__ import annotations

import contextlib
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from segfmt.errors import FormatError
from segfmt.layout import RECORD_BATCH_OVERHEAD_BYTES
from segfmt.record_batch import BatchSlice, walk_batches
from tests.samples import Sample

CHECKPOINTS = ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint")


@dataclass(frozen=True, slots=True, kw_only=True)
class Victim:
    """A log dir with one partition."""

    log_dir: Path
    folder: Path
    recovery_point: int

    def logs(self) -> list[Path]:
        return sorted(self.folder.glob("*.log"))

    def unflushed(self) -> list[Path]:
        logs = self.logs()
        floor = max((int(log.stem) for log in logs if int(log.stem) <= self.recovery_point), default=-1)
        return [log for log in logs if int(log.stem) >= floor and log.stat().st_size]

    def flushed(self) -> list[Path]:
        unflushed = set(self.unflushed())
        return [log for log in self.logs() if log not in unflushed and log.stat().st_size]


Damage = Callable[[Victim, random.Random], str | None]


def make_victim(sample: Sample, folder: Path, into: Path) -> Victim:
    """Copy *folder* of *sample* into the new log dir *into*, with its own lines of the checkpoints and the marker."""
    into.mkdir(parents=True)
    shutil.copytree(folder, into / folder.name, symlinks=True)
    topic, _, partition = folder.name.split(".")[0].rpartition("-")
    recovery_point = 0
    for name in CHECKPOINTS:
        lines = (folder.parent / name).read_text().splitlines() if (folder.parent / name).exists() else []
        kept = [line for line in lines[2:] if line.split()[:2] == [topic, partition]]
        (into / name).write_text(f"0\n{len(kept)}\n" + "".join(f"{line}\n" for line in kept))
        if kept and name.startswith("recovery-point"):
            recovery_point = int(kept[0].split()[2])
    for name in ("meta.properties", ".kafka_cleanshutdown"):
        if (folder.parent / name).exists():
            shutil.copy2(folder.parent / name, into / name)
    return Victim(log_dir=into, folder=into / folder.name, recovery_point=recovery_point)


def torn_tail(victim: Victim, rng: random.Random) -> str | None:
    log = _pick(victim.unflushed(), rng)
    if log is None:
        return None
    batches = _batches(log.read_bytes())
    if not batches:
        return None
    batch = batches[-1] if rng.random() < 0.7 else rng.choice(batches)
    kept = rng.choice([rng.randrange(RECORD_BATCH_OVERHEAD_BYTES + 1), rng.randrange(batch.size_bytes)])
    kept = min(kept, batch.size_bytes - 1)
    with log.open("r+b") as file:
        file.truncate(batch.position + kept)
    return f"{log.name} cut {kept} bytes into the batch at {batch.position}"


def junk_tail(victim: Victim, rng: random.Random) -> str | None:
    log = _pick(victim.unflushed(), rng)
    if log is None:
        return None
    count = rng.choice([1, 5, 16, 17, 18, 61, 100, 5000])
    junk = bytes(count) if rng.random() < 0.5 else rng.randbytes(count)
    with log.open("ab") as file:
        file.write(junk)
    return f"{log.name} with {count} bytes of {'zeros' if not any(junk) else 'junk'} behind"


def bit_flip_unflushed(victim: Victim, rng: random.Random) -> str | None:
    return _flip(_pick(victim.unflushed(), rng), rng)


def bit_flip_flushed(victim: Victim, rng: random.Random) -> str | None:
    return _flip(_pick(victim.flushed(), rng), rng)


def _flip(log: Path | None, rng: random.Random) -> str | None:
    if log is None:
        return None
    data = bytearray(log.read_bytes())
    batches = _batches(bytes(data))
    if not batches:
        return None
    batch = rng.choice(batches)
    span = RECORD_BATCH_OVERHEAD_BYTES if rng.random() < 0.6 else batch.size_bytes
    position, bit = batch.position + rng.randrange(min(span, batch.size_bytes)), rng.randrange(8)
    data[position] ^= 1 << bit
    log.write_bytes(data)
    return f"{log.name} bit {bit} of byte {position} (byte {position - batch.position} of its batch)"


def zeroed_page(victim: Victim, rng: random.Random) -> str | None:
    log = _pick(victim.unflushed(), rng)
    if log is None:
        return None
    size = log.stat().st_size
    start = rng.randrange(0, size, 512)
    count = min(4096, size - start)
    with log.open("r+b") as file:
        file.seek(start)
        file.write(bytes(count))
    return f"{log.name} zeroed from {start}, {count} bytes"


def missing_file(suffix: str) -> Damage:
    def damage(victim: Victim, rng: random.Random) -> str | None:
        files = sorted(victim.folder.glob(f"*{suffix}"))
        if not files:
            return None
        gone = files if rng.random() < 0.3 else [rng.choice(files)]
        for file in gone:
            file.unlink()
        return f"without {', '.join(file.name for file in gone)}"

    return damage


def broken_file(suffix: str) -> Damage:
    def damage(victim: Victim, rng: random.Random) -> str | None:
        file = _pick(sorted(victim.folder.glob(f"*{suffix}")), rng)
        if file is None:
            return None
        data = bytearray(file.read_bytes()[:100_000])
        how = rng.choice(["short", "junk", "flip", "zeros", "empty"])
        if how == "short":
            data = data[: rng.randrange(len(data) + 1)]
        elif how == "junk":
            data = bytearray(rng.randbytes(rng.choice([7, 34, 80, 1000])))
        elif how == "flip" and data:
            data[rng.randrange(min(len(data), 200))] ^= 1 << rng.randrange(8)
        elif how == "zeros":
            data = bytearray(rng.choice([8, 34, 96, 1200]))
        else:
            data = bytearray()
        file.write_bytes(data)
        return f"{file.name} {how} ({len(data)} bytes)"

    return damage


def missing_segment(victim: Victim, rng: random.Random) -> str | None:
    log = _pick(victim.logs(), rng)
    if log is None:
        return None
    log.unlink()
    return f"without {log.name}"


def leftover(victim: Victim, rng: random.Random) -> str | None:
    log = _pick(victim.logs(), rng)
    if log is None:
        return None
    suffix = rng.choice([".deleted", ".cleaned", ".swap"])
    made = []
    for kind in (".log", ".index", ".timeindex", ".txnindex"):
        source = log.with_suffix(kind)
        if source.exists() and (kind == ".log" or rng.random() < 0.8):
            target = source.with_name(source.name + suffix)
            source.rename(target) if rng.random() < 0.5 else shutil.copy2(source, target)
            made.append(target.name)
    return f"with {', '.join(made)}"


def compacted(victim: Victim, rng: random.Random) -> str | None:
    """A cleaning that was all but done: a `.swap` with fewer batches than what it replaces, or with none."""
    log = _pick([log for log in victim.logs() if log.stat().st_size], rng)
    if log is None:
        return None
    swap = log.with_name(f"{log.name}.swap")
    data = log.read_bytes()
    batches = _batches(data)
    kept = [batch for batch in batches if rng.random() < 0.7]
    swap.write_bytes(b"".join(data[batch.position : batch.position + batch.size_bytes] for batch in kept))
    if rng.random() < 0.5:
        log.with_suffix(".index").unlink(missing_ok=True)
    return f"with {swap.name}, {len(kept)} of {len(batches)} batches"


def recovery_point(victim: Victim, rng: random.Random) -> str | None:
    return _checkpoint_line(victim, rng, CHECKPOINTS[0])


def log_start_offset(victim: Victim, rng: random.Random) -> str | None:
    return _checkpoint_line(victim, rng, CHECKPOINTS[1])


def _checkpoint_line(victim: Victim, rng: random.Random, name: str) -> str:
    bases = [int(log.stem) for log in victim.logs()] or [0]
    offset = rng.choice(
        [0, -1, 2**63 - 1, rng.choice(bases), rng.choice(bases) + 1, rng.randrange(max(bases) + 50), 10**9]
    )
    topic, _, partition = victim.folder.name.split(".")[0].rpartition("-")
    (victim.log_dir / name).write_text(f"0\n1\n{topic} {partition} {offset}\n")
    return f"{name} says {offset}"


def lying_marker(victim: Victim, rng: random.Random) -> str:
    (victim.log_dir / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":7}')
    return "with a clean-shutdown marker"


def swapped_batches(victim: Victim, rng: random.Random) -> str | None:
    log = _pick(victim.unflushed(), rng)
    if log is None:
        return None
    data = log.read_bytes()
    batches = _batches(data)
    if len(batches) < 2:
        return None
    first = rng.randrange(len(batches) - 1)
    one, two = batches[first], batches[first + 1]
    middle = data[two.position : two.position + two.size_bytes] + data[one.position : two.position]
    log.write_bytes(data[: one.position] + middle + data[two.position + two.size_bytes :])
    return f"{log.name} with batches {first} and {first + 1} swapped"


DAMAGES: dict[str, Damage] = {
    "torn tail": torn_tail,
    "junk tail": junk_tail,
    "bit flip, unflushed": bit_flip_unflushed,
    "bit flip, flushed": bit_flip_flushed,
    "zeroed page": zeroed_page,
    "missing index": missing_file(".index"),
    "missing time index": missing_file(".timeindex"),
    "missing transaction index": missing_file(".txnindex"),
    "missing snapshot": missing_file(".snapshot"),
    "missing epochs": missing_file("leader-epoch-checkpoint"),
    "missing partition.metadata": missing_file("partition.metadata"),
    "broken index": broken_file(".index"),
    "broken time index": broken_file(".timeindex"),
    "broken transaction index": broken_file(".txnindex"),
    "broken snapshot": broken_file(".snapshot"),
    "broken epochs": broken_file("leader-epoch-checkpoint"),
    "missing segment": missing_segment,
    "leftover files": leftover,
    "compacted": compacted,
    "recovery point": recovery_point,
    "log start offset": log_start_offset,
    "lying marker": lying_marker,
    "swapped batches": swapped_batches,
}
"""All damages by name."""

PLAIN_DAMAGES = ("torn tail", "junk tail", "bit flip, unflushed", "bit flip, flushed", "missing index")
"""What an unclean shutdown does most often: a broker loads nearly all of these."""


def _pick(paths: list[Path], rng: random.Random) -> Path | None:
    return rng.choice(paths) if paths else None


def _batches(data: bytes) -> list[BatchSlice]:
    """The batches at the start of a log, up to the first that is none (a preallocated log ends in zeros)."""
    found: list[BatchSlice] = []
    with contextlib.suppress(FormatError):
        found.extend(walk_batches(data))
    return found
