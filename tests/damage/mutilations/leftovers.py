"""What interrupted deletions, cleanings and splits leave: `.deleted`, `.cleaned` and `.swap` files in all stages."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from tests.damage.mutilations.victim import Damage, Victim, batches_of, pick

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")
STAGES = (".deleted", ".cleaned", ".swap")


def leftover(victim: Victim, rng: random.Random) -> str | None:
    """One segment in one stage, its files beside the live ones or instead of them."""
    log = pick(victim.logs(), rng)
    return None if log is None else f"with {', '.join(_leave(log, rng.choice(STAGES), rng))}"


def leftovers(victim: Victim, rng: random.Random) -> str | None:
    """Several segments, each in a stage of its own."""
    logs = victim.logs()
    if not logs:
        return None
    made = [name for log in logs if rng.random() < 0.6 for name in _leave(log, rng.choice(STAGES), rng)]
    return f"with {', '.join(made)}" if made else None


def _leave(log: Path, stage: str, rng: random.Random) -> list[str]:
    made = []
    for suffix in SUFFIXES:
        source = log.with_suffix(suffix)
        if source.exists() and (suffix == ".log" or rng.random() < 0.8):
            target = source.with_name(source.name + stage)
            how = rng.choice(["moved", "moved", "copied", "copied", "empty", "torn"])
            if how == "moved":
                source.rename(target)
            else:
                shutil.copyfile(source, target)
                if how != "copied":
                    target.write_bytes(target.read_bytes()[: 0 if how == "empty" else rng.randrange(300)])
            made.append(f"{target.name} ({how})")
    return made


def index_leftovers(victim: Victim, rng: random.Random) -> str | None:
    """Files without their `.log`, in any stage; snapshots, too."""
    files = [path for path in sorted(victim.folder.iterdir()) if path.suffix in (*SUFFIXES[1:], ".snapshot")]
    made = []
    for _ in range(rng.randint(1, 3)):
        file = pick(files, rng)
        if file is not None:
            target = file.with_name(file.name + rng.choice(STAGES))
            shutil.copyfile(file, target)
            made.append(target.name)
    return f"with {', '.join(made)}" if made else None


def compacted(victim: Victim, rng: random.Random) -> str | None:
    """A cleaning that was all but done: a `.swap` with fewer batches than what it replaces, or with none."""
    log = pick([log for log in victim.logs() if log.stat().st_size], rng)
    if log is None:
        return None
    swap = log.with_name(f"{log.name}.swap")
    data = log.read_bytes()
    batches = batches_of(data)
    kept = [batch for batch in batches if rng.random() < 0.7]
    swap.write_bytes(b"".join(data[batch.position : batch.position + batch.size_bytes] for batch in kept))
    if rng.random() < 0.5:
        log.with_suffix(".index").unlink(missing_ok=True)
    return f"with {swap.name}, {len(kept)} of {len(batches)} batches"


def broken_swap(victim: Victim, rng: random.Random) -> str | None:
    """Several segments in one `.swap` that is torn, empty, or ends early at a batch; its index leads anywhere."""
    logs = [log for log in victim.logs() if log.stem.isdecimal()]
    if not logs:
        return None
    first = rng.randrange(len(logs))
    old = logs[first : first + rng.randint(1, 4)]
    data = b"".join(log.read_bytes() for log in old)
    ends = [0, *(batch.position + batch.size_bytes for batch in batches_of(data))]
    size = rng.choice([0, rng.choice(ends), rng.randrange(len(data) + 1)])
    swap = old[0].with_name(f"{old[0].name}.swap")
    swap.write_bytes(data[:size])
    for suffix in SUFFIXES[1:3]:
        source = rng.choice(old).with_suffix(suffix)
        if source.exists() and rng.random() < 0.6:
            shutil.copyfile(source, old[0].with_name(f"{old[0].stem}{suffix}.swap"))
    return f"{swap.name} of {len(old)} segments, {size} of {len(data)} bytes"


def interrupted_split(victim: Victim, rng: random.Random) -> str | None:
    """One segment becomes several, killed anywhere on the way."""
    log = pick([log for log in victim.logs() if log.stem.isdecimal() and log.stat().st_size], rng)
    return None if log is None else _replace(victim, [log], rng, most_parts=4)


def interrupted_merge(victim: Victim, rng: random.Random) -> str | None:
    """Two or three segments become one, killed anywhere on the way."""
    logs = [log for log in victim.logs() if log.stem.isdecimal()]
    if len(logs) < 2:
        return None
    first = rng.randrange(len(logs) - 1)
    return _replace(victim, logs[first : first + rng.randint(2, 3)], rng, most_parts=1)


def _replace(victim: Victim, old: list[Path], rng: random.Random, most_parts: int) -> str | None:
    """Play Kafka's replacement of segments up to a random one of its steps.

    Kafka: LocalLog.splitOverflowedSegment, LocalLog.replaceSegments: the new segments are written as `.cleaned`,
    renamed to `.swap` from the last to the first, the old ones become `.deleted`, the new ones lose `.swap`.
    """
    data = b"".join(log.read_bytes() for log in old)
    batches = batches_of(data)
    if not batches:
        return None
    count = min(len(batches), rng.randint(1, most_parts))
    starts = sorted({0, *rng.sample(range(len(batches)), count)})
    bases = [batches[start].offset if start else int(old[0].stem) for start in starts]
    positions = [
        *(batches[start].position for start in starts),
        batches[-1].position + batches[-1].size_bytes,
    ]
    new: dict[str, bytes] = {}
    for base, begin, end in zip(bases, positions, positions[1:], strict=False):
        name = victim.file(base, "").name
        new[f"{name}.log"] = data[begin:end]
        for suffix in SUFFIXES[1:3]:
            if rng.random() < 0.8:
                source = old[0].with_suffix(suffix)
                keeps = base == int(old[0].stem) and source.exists()
                new[f"{name}{suffix}"] = (
                    source.read_bytes().rstrip(b"\0") if keeps and rng.random() < 0.5 else b""
                )
    names = list(new)
    steps = [
        *[("write", name) for name in names],
        *[("swap", name) for name in reversed(names)],
        *[("delete", log.with_suffix(suffix).name) for log in old for suffix in SUFFIXES],
        *[("finish", name) for name in names],
    ]
    done = rng.randint(1, len(steps))
    for what, name in steps[:done]:
        _step(victim.folder, what, name, new)
    if steps[done - 1][0] == "write" and rng.random() < 0.5:
        torn = victim.folder / f"{steps[done - 1][1]}.cleaned"
        torn.write_bytes(torn.read_bytes()[: rng.randrange(200)])
    return f"{len(old)} segments from {old[0].name} to {bases}, stopped after {steps[done - 1]}"


def _step(folder: Path, what: str, name: str, new: dict[str, bytes]) -> None:
    if what == "write":
        (folder / f"{name}.cleaned").write_bytes(new[name])
    elif what == "swap":
        (folder / f"{name}.cleaned").rename(folder / f"{name}.swap")
    elif what == "finish":
        (folder / f"{name}.swap").rename(folder / name)
    elif (folder / name).exists():
        (folder / name).rename(folder / f"{name}.deleted")


LEFTOVER_DAMAGES: dict[str, Damage] = {
    "leftover files": leftover,
    "leftovers of several segments": leftovers,
    "leftover indexes and snapshots": index_leftovers,
    "compacted": compacted,
    "broken swap": broken_swap,
    "interrupted split": interrupted_split,
    "interrupted merge": interrupted_merge,
}
