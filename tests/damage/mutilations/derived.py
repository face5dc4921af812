"""Damage to what is derived from the log: offset, time and transaction indexes, producer snapshots."""

from __future__ import annotations

import random
import struct
from pathlib import Path

from tests.damage.mutilations.victim import Damage, Victim, patch, pick

INDEXES = {"offset index": ".index", "time index": ".timeindex", "transaction index": ".txnindex"}
DERIVED = INDEXES | {"snapshot": ".snapshot"}
_SEGMENT_INDEX_BYTES = 262_144  # of the samples' brokers; some topics have less


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
        file = pick(sorted(victim.folder.glob(f"*{suffix}")), rng)
        return None if file is None else broken(file, rng)

    return damage


def broken(file: Path, rng: random.Random) -> str:
    """Short, longer, with a flipped bit, junk, zeros, or nothing."""
    data = bytearray(file.read_bytes()[:100_000])
    how = rng.choice(["short", "junk", "flip", "zeros", "empty", "longer"])
    if how == "short":
        data = data[: rng.randrange(len(data) + 1)]
    elif how == "junk":
        data = bytearray(rng.randbytes(rng.choice([7, 34, 80, 1000])))
    elif how == "flip" and data:
        data[rng.randrange(min(len(data), 200))] ^= 1 << rng.randrange(8)
    elif how == "zeros":
        data = bytearray(rng.choice([8, 34, 96, 1200]))
    elif how == "longer":
        data += rng.choice([bytes(8), bytes(12), rng.randbytes(24), rng.randbytes(3)])
    else:
        data = bytearray()
    file.write_bytes(data)
    return f"{file.name} {how} ({len(data)} bytes)"


def oversized_index(victim: Victim, rng: random.Random) -> str | None:
    """Preallocated, or longer than segment.index.bytes allows."""
    file = pick(sorted(victim.folder.glob("*.index")) + sorted(victim.folder.glob("*.timeindex")), rng)
    if file is None:
        return None
    entry_bytes = 8 if file.suffix == ".index" else 12
    whole = _SEGMENT_INDEX_BYTES // entry_bytes * entry_bytes
    size = rng.choice([whole, whole + entry_bytes, whole - entry_bytes, 2 * whole, whole + 5])
    content = file.read_bytes().rstrip(b"\0")
    file.write_bytes(content[:size] + bytes(max(0, size - len(content))))
    return f"{file.name} of {size} bytes"


def wrong_entry(victim: Victim, rng: random.Random) -> str | None:
    """An entry of an offset index leads elsewhere: below 0, beyond the end, into a batch, backwards."""
    file = pick([path for path in sorted(victim.folder.glob("*.index")) if path.stat().st_size >= 8], rng)
    if file is None:
        return None
    used = len(file.read_bytes().rstrip(b"\0")) + 7 & ~7 or 8
    at = rng.choice([used - 8, rng.randrange(0, used, 8)])
    offset = rng.choice([0, -1, 1, 2**31 - 1, -(2**31), rng.randrange(2000)])
    position = rng.choice([0, -1, 1, 61, 2**31 - 1, -(2**31), rng.randrange(40_000)])
    patch(file, at, struct.pack(">ii", offset, position))
    return f"{file.name} entry {at // 8} is ({offset}, {position})"


def wrong_aborted(victim: Victim, rng: random.Random) -> str | None:
    """A `.txnindex` entry that cannot be: another version, an end below the base, out of order."""
    log = pick([path for path in victim.logs() if path.stem.isdecimal()], rng)
    if log is None:
        return None
    base = int(log.stem)
    entry = struct.pack(
        ">hqqqq",
        rng.choice([0, 0, 0, 1, 255, 256, 512, -1]),
        rng.choice([200, -1, 2**40]),
        rng.choice([base, base - 1, 0]),
        rng.choice([base - 1, base, base + 5, -1, 2**62]),
        rng.choice([base, 0, 2**62]),
    )
    file = log.with_suffix(".txnindex")
    found = file.read_bytes() if file.exists() else b""
    file.write_bytes(rng.choice([entry, found + entry, entry + found, found + entry[:20]]))
    return f"{file.name} with the entry {struct.unpack('>hqqqq', entry)}"


def orphans(victim: Victim, rng: random.Random) -> str | None:
    """Index files of a segment that is not there."""
    bases = victim.bases() or [0]
    offset = rng.choice([max(bases) + 10**6, rng.choice(bases) + 1, 0])
    made = []
    for suffix in INDEXES.values():
        file = victim.file(offset, suffix)
        if rng.random() < 0.7 and not file.exists() and not victim.file(offset, ".log").exists():
            file.write_bytes(rng.choice([b"", bytes(24), rng.randbytes(24)]))
            made.append(file.name)
    return f"with {', '.join(made)} and no log" if made else None


def stray_snapshots(victim: Victim, rng: random.Random) -> str | None:
    """Snapshots where no segment begins: below, between, behind; sound copies, or empty files."""
    source = pick(sorted(victim.folder.glob("*.snapshot")), rng)
    data = source.read_bytes() if source is not None and rng.random() < 0.7 else b""
    bases = victim.bases() or [0]
    made = []
    for _ in range(rng.randint(1, 4)):
        offset = max(0, rng.choice([*bases, max(bases) + rng.choice([1, 50, 10**6])]) + rng.randint(-3, 3))
        victim.file(offset, ".snapshot").write_bytes(data)
        made.append(str(offset))
    return f"with snapshots at {', '.join(made)} ({len(data)} bytes)"


DERIVED_DAMAGES: dict[str, Damage] = {
    **{f"missing {name}": missing_file(suffix) for name, suffix in DERIVED.items()},
    **{f"broken {name}": broken_file(suffix) for name, suffix in DERIVED.items()},
    "oversized index": oversized_index,
    "wrong index entry": wrong_entry,
    "wrong aborted transaction": wrong_aborted,
    "orphaned indexes": orphans,
    "stray snapshots": stray_snapshots,
}
