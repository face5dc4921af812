"""Damage to the row of segments: missing, empty, doubled, overlapping, renamed, too large, offsets too far away."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

from tests.damage.mutilations.leftovers import SUFFIXES
from tests.damage.mutilations.victim import Damage, Victim, batches_of, patch, pick
from tests.logs import builders

MAX_LONG = 2**63 - 1


def missing_segment(victim: Victim, rng: random.Random) -> str | None:
    """The `.log` alone, or the whole segment; the first, the last, one in the middle, or several."""
    logs = victim.logs()
    if not logs:
        return None
    gone = [rng.choice(logs)] if rng.random() < 0.7 else [log for log in logs if rng.random() < 0.6] or logs
    is_whole = rng.random() < 0.5
    for log in gone:
        for suffix in SUFFIXES if is_whole else SUFFIXES[:1]:
            log.with_suffix(suffix).unlink(missing_ok=True)
    return (
        f"without {', '.join(log.name for log in gone)}{' and all that belongs to them' if is_whole else ''}"
    )


def empty_segment(victim: Victim, rng: random.Random) -> str | None:
    log = pick(victim.logs(), rng)
    if log is None:
        return None
    for suffix in SUFFIXES:
        path = log.with_suffix(suffix)
        if path.exists() and (suffix == ".log" or rng.random() < 0.5):
            path.write_bytes(b"")
    return f"{log.name} is empty"


def doubled_segment(victim: Victim, rng: random.Random) -> str | None:
    """A copy under another base offset: overlapping, behind the end, at 0, or the same one written otherwise."""
    return _rename(victim, rng, is_copy=True)


def renamed_segment(victim: Victim, rng: random.Random) -> str | None:
    return _rename(victim, rng, is_copy=False)


def _rename(victim: Victim, rng: random.Random, *, is_copy: bool) -> str | None:
    log = pick([path for path in victim.logs() if path.stem.isdecimal()], rng)
    if log is None:
        return None
    base, bases = int(log.stem), victim.bases()
    other = rng.choice(
        [0, base + 1, max(0, base - 1), rng.choice(bases) + 7, max(bases) + 1000, 10**12, MAX_LONG]
    )
    name = rng.choice([f"{other:020d}"] * 4 + [str(other), f"{base}", f"+{base}", f"-{base}", f"{base:021d}"])
    for suffix in SUFFIXES if rng.random() < 0.6 else SUFFIXES[:1]:
        source = log.with_suffix(suffix)
        if source.exists() and source != victim.folder / f"{name}{suffix}":
            (shutil.copyfile if is_copy else os.rename)(source, victim.folder / f"{name}{suffix}")
    return f"{log.name} {'copied' if is_copy else 'renamed'} to {name}"


def huge_file(victim: Victim, rng: random.Random) -> str | None:
    """Holes of gigabytes: a `.log` at and above the largest that a broker opens, an index, a snapshot, a `.swap`."""
    kind = rng.choice([".log", ".log", ".log.swap", ".index", ".timeindex", ".snapshot"])
    size = rng.choice([2**31, 2**31 + 1, 3 << 30])
    if kind == ".log.swap":
        file = victim.file(max(victim.bases(), default=0), kind)
        file.touch()
    else:
        found = pick(sorted(victim.folder.glob(f"*{kind}")), rng)
        if found is None:
            return None
        file = found
    os.truncate(file, size)
    return f"{file.name} of {size} bytes"


def offset_overflow(victim: Victim, rng: random.Random) -> str | None:
    """Batches too far from their segment's base, behind it or from somewhere in it on; with `.index` or without."""
    log = pick([path for path in victim.unflushed() if path.stem.isdecimal()], rng)
    if rng.random() < 0.25:
        log = pick([path for path in victim.flushed() if path.stem.isdecimal()], rng)
    batches = batches_of(log.read_bytes()) if log is not None else []
    if log is None or not batches:
        return None
    far = 2**31 * rng.choice([1, 1, 1, 2, 3]) + rng.choice([-1, 0, 1, 100, 5000])
    words = []
    if rng.random() < 0.5 and batches[0].magic >= 2:
        first = rng.choice([len(batches) - 1, rng.randrange(len(batches))])
        last = rng.choice([len(batches), first + 1])
        for batch in batches[first:last]:
            patch(log, batch.position, (batch.offset + far).to_bytes(8, "big"))
        words.append(f"batches {first} to {last - 1} moved by {far}")
    else:
        offset = int(log.stem)
        os.truncate(log, batches[-1].position + batches[-1].size_bytes)
        for _ in range(rng.randint(1, 3)):
            offset += far
            with log.open("ab") as file:
                file.write(builders.data_batch(offset, rng.randint(1, 3), leader_epoch=batches[0].magic))
        words.append(f"batches {far} apart behind, up to {offset}")
    gone = [suffix for suffix in SUFFIXES[1:] if rng.random() < 0.4]
    for suffix in gone:
        log.with_suffix(suffix).unlink(missing_ok=True)
    return f"{log.name} {'; '.join(words)}{' without ' if gone else ''}{', '.join(gone)}"


def extreme_offsets(victim: Victim, rng: random.Random) -> str | None:
    """Offsets and epochs at the borders of their types, in a batch that is there or in one behind."""
    log = pick(victim.unflushed(), rng)
    batches = batches_of(log.read_bytes()) if log is not None else []
    if log is None or not batches:
        return None
    base = int(log.stem) if log.stem.isdecimal() else 0
    offset = rng.choice(
        [-1, -(2**63), MAX_LONG, MAX_LONG - 1, base - 1, base, 0, base + 2**31 - 1, base + 2**31]
    )
    epoch = rng.choice([-1, -2, -(2**31), 2**31 - 1, 0, 1])
    delta = rng.choice([0, 0, 2, -1, -5, 2**31 - 1, -(2**31)])
    made = builders.data_batch(offset, 2, leader_epoch=epoch, last_offset_delta=delta)
    batch = rng.choice([batches[0], batches[-1], rng.choice(batches)])
    data = log.read_bytes()
    end = batch.position + batch.size_bytes
    log.write_bytes(data[:end] + made + (data[end:] if rng.random() < 0.5 else b""))
    return f"{log.name} at {end} with a batch of offset {offset}, epoch {epoch}, last offset delta {delta}"


def no_segments(victim: Victim, rng: random.Random) -> str:
    """Nothing but what is no segment, or not even that."""
    keeps: tuple[str, ...] = rng.choice(
        [(), (".snapshot",), ("leader-epoch-checkpoint", "partition.metadata")]
    )
    for path in list(victim.folder.iterdir()):
        if not path.name.endswith(keeps) or not keeps:
            _unlink(path)
    return f"with nothing but {', '.join(keeps) or 'the folder'}"


def _unlink(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


SEGMENT_DAMAGES: dict[str, Damage] = {
    "missing segment": missing_segment,
    "empty segment": empty_segment,
    "doubled segment": doubled_segment,
    "renamed segment": renamed_segment,
    "huge file": huge_file,
    "offset overflow": offset_overflow,
    "extreme offsets": extreme_offsets,
    "no segments": no_segments,
}
