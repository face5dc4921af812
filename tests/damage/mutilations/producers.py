"""Batches with a good CRC that make no sense, and producer ids that crowd the buckets of a hash map."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.damage.mutilations.victim import CHECKPOINTS, Damage, Victim, batches_of, insert
from tests.logs import builders

OPEN_PRODUCER, OTHER_PRODUCER = 7_000_001, 7_000_002


def _controls(rng: random.Random) -> dict[str, tuple[bytes, dict[str, object]]]:
    """Records, and fields of the batch around them, by what is wrong."""
    kind, record = rng.choice([builders.ABORT, builders.COMMIT]), builders.record
    sound = builders.control_record(kind)
    value = struct.pack(">hi", 0, 5)
    return {
        "no key": (record(key=None, value=value), {}),
        "an empty key": (record(key=b"", value=value), {}),
        "a short key": (record(key=b"\0\0\0", value=value), {}),
        "a long key": (record(key=struct.pack(">hh", 0, kind) + b"more", value=value), {}),
        "no value": (record(key=struct.pack(">hh", 0, kind), value=None), {}),
        "an empty value": (record(key=struct.pack(">hh", 0, kind), value=b""), {}),
        "a short value": (record(key=struct.pack(">hh", 0, kind), value=b"\0\0\0"), {}),
        "a long value": (record(key=struct.pack(">hh", 0, kind), value=value + b"more"), {}),
        "key version -1": (builders.control_record(kind, key_version=-1), {}),
        "key version 9": (builders.control_record(kind, key_version=9), {}),
        "value version -1": (builders.control_record(kind, value_version=-1), {}),
        "value version 9": (builders.control_record(kind, value_version=9), {}),
        "an unknown type": (builders.control_record(rng.choice([2, 3, 6, 7, 9, -1, 32767])), {}),
        "coordinator epoch -1": (builders.control_record(kind, coordinator_epoch=-1), {}),
        "the greatest coordinator epoch": (builders.control_record(kind, coordinator_epoch=2**31 - 1), {}),
        "a codec": (sound, {"codec": rng.choice([1, 2, 3, 4])}),
        "an unknown codec": (sound, {"codec": rng.choice([5, 6, 7])}),
        "compressed records": (builders.gzip(sound), {"codec": builders.GZIP}),
        "no records": (b"", {"record_count": 0}),
        "a count of 0": (sound, {"record_count": 0}),
        "a count of -1": (sound, {"record_count": -1}),
        "a count of 2": (sound, {"record_count": 2}),
        "garbage": (rng.randbytes(20), {}),
        "a torn record": (sound[:-3], {}),
        "a second record": (sound + builders.control_record(1 - kind), {"record_count": 2}),
        "no transaction": (sound, {"transactional": False}),
        "no producer": (sound, {"producer_id": -1, "producer_epoch": -1}),
        "another producer": (sound, {"producer_id": OTHER_PRODUCER}),
        "an epoch before": (sound, {"producer_epoch": 0}),
        "an epoch behind": (sound, {"producer_epoch": 9}),
        "the greatest epoch": (sound, {"producer_epoch": 32767}),
        "epoch -1": (sound, {"producer_epoch": -1}),
        "append time": (sound, {"log_append_time": True}),
        "a delete horizon": (sound, {"delete_horizon": True}),
        "nothing wrong": (sound, {}),
    }


def senseless_control(victim: Victim, rng: random.Random) -> str | None:
    """A control batch that ends an open transaction, or none, and is not as the coordinator writes it."""
    words, (records, fields) = rng.choice(sorted(_controls(rng).items(), key=lambda item: item[0]))
    is_open = rng.random() < 0.6

    def batches(offset: int, leader_epoch: int) -> Iterator[bytes]:
        if is_open:
            yield _transactional(offset, leader_epoch)
            offset += 1
        given = {"producer_id": OPEN_PRODUCER, "producer_epoch": 3, "transactional": True} | fields
        yield builders.record_batch(
            base_offset=offset, records=records, control=True, leader_epoch=leader_epoch, **given
        )
        yield builders.data_batch(offset + 1, 2, leader_epoch=leader_epoch)

    where = _write(victim, rng, batches)
    return (
        f"{where} with a control batch of {words}{', in a transaction' if is_open else ''}" if where else None
    )


def broken_transaction(victim: Victim, rng: random.Random) -> str | None:
    """Data outside of the producer's open transaction, transactions that end twice, never, or out of order."""
    how = rng.choice(
        ["data outside", "an end too many", "no end", "two ends in another order", "an end far behind"]
    )

    def batches(offset: int, leader_epoch: int) -> Iterator[bytes]:
        at = {"leader_epoch": leader_epoch}
        yield _transactional(offset, leader_epoch)
        if how == "data outside":
            yield builders.data_batch(
                offset + 1, producer_id=OPEN_PRODUCER, producer_epoch=3, base_sequence=1, **at
            )
        elif how == "two ends in another order":
            yield _transactional(offset + 1, leader_epoch, producer_id=OTHER_PRODUCER)
            for number, producer_id in enumerate((OTHER_PRODUCER, OPEN_PRODUCER)):
                yield builders.marker_batch(
                    offset + 2 + number, builders.ABORT, producer_id=producer_id, producer_epoch=3, **at
                )
        elif how != "no end":
            gap = 1000 if how == "an end far behind" else 1
            for number in range(2 if how == "an end too many" else 1):
                yield builders.marker_batch(
                    offset + gap + number, builders.ABORT, producer_id=OPEN_PRODUCER, producer_epoch=3, **at
                )

    where = _write(victim, rng, batches)
    return f"{where} with a transaction and {how}" if where else None


def odd_producer(victim: Victim, rng: random.Random) -> str | None:
    """Batches of one producer with numbers at the borders of their types, stale epochs, gaps in sequences."""
    producer_id = rng.choice([0, 1, -2, -(2**63), 2**63 - 1, 4000])
    epochs, sequences = [0, 1, 5, 32767, -1, -(2**15)], [0, 1, 100, 2**31 - 1, 2**31 - 3, -1, -2, -(2**31)]
    made = [(rng.choice(epochs), rng.choice(sequences), rng.randint(1, 4)) for _ in range(rng.randint(1, 5))]
    codec, stamp = (
        rng.choice([0, 0, 0, 5, 7]),
        rng.choice([builders.BASE_TIMESTAMP_MS, -1, 0, 2**63 - 1, -(2**63)]),
    )

    def batches(offset: int, leader_epoch: int) -> Iterator[bytes]:
        for epoch, sequence, count in made:
            yield builders.data_batch(
                offset, count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence,
                codec=codec, base_timestamp_ms=stamp, leader_epoch=leader_epoch,
            )  # fmt: skip
            offset += count

    where = _write(victim, rng, batches)
    return f"{where} with producer {producer_id}: {made}, codec {codec}, timestamp {stamp}" if where else None


def many_producers(victim: Victim, rng: random.Random) -> str | None:
    """Batches of many producers behind, ids that share buckets of a hash map among them."""
    ids = crowded_ids(rng, rng.choice([9, 12, 30, 60, 200]))

    def batches(offset: int, leader_epoch: int) -> Iterator[bytes]:
        yield from _one_each(ids, offset, leader_epoch)

    where = _write(victim, rng, batches)
    if where is None:
        return None
    words = _forget_snapshots(victim, rng)
    return f"{where} with {len(ids)} producers from {ids[:3]}{words}"


def crowded_log(victim: Victim, rng: random.Random) -> str:
    """The whole log is another one: many producers in several segments, transactions open and ended among them."""
    for path in list(victim.folder.iterdir()):
        if path.suffix in (".log", ".index", ".timeindex", ".txnindex", ".snapshot"):
            path.unlink()
    ids = crowded_ids(rng, rng.choice([9, 20, 40, 100]))
    offset, bases = 0, []
    for _ in range(rng.randint(1, 4)):
        bases.append(offset)
        some = rng.sample(ids, rng.randint(1, len(ids)))
        data = b"".join(_one_each(some, offset, 0, rng))
        offset += len(some)
        victim.file(bases[-1], ".log").write_bytes(data)
        if rng.random() < 0.8:
            for suffix in (".index", ".timeindex"):
                victim.file(bases[-1], suffix).write_bytes(b"")
    topic, partition = victim.topic_partition
    point = rng.choice([0, *bases, offset])
    (victim.log_dir / CHECKPOINTS[0]).write_text(f"0\n1\n{topic} {partition} {point}\n")
    (victim.log_dir / CHECKPOINTS[1]).write_text("0\n0\n")
    return f"segments at {bases} with {len(ids)} producers from {ids[:3]}, recovery point {point}"


def crowded_ids(rng: random.Random, count: int) -> list[int]:
    """Different producer ids, many of them of one bucket in a table of 16, 64, 1024 or any size.

    Java folds the upper half of an id onto the lower one, so `high << 32 | high ^ 5` is one hash for all.
    """
    ids: dict[int, None] = {}
    makers = [
        lambda: rng.randrange(60) << 12,
        lambda: (high := rng.randrange(1000)) << 32 | high ^ 5,
        lambda: rng.randrange(60) * 64 + 3,
        lambda: rng.randrange(5000),
        lambda: rng.getrandbits(62),
    ]
    chosen = rng.sample(makers, rng.randint(1, 3))
    for _ in range(count):
        ids[rng.choice(chosen)()] = None
    return list(ids)


def _one_each(
    ids: list[int], offset: int, leader_epoch: int, rng: random.Random | None = None
) -> Iterator[bytes]:
    for number, producer_id in enumerate(ids):
        is_transactional = rng is not None and rng.random() < 0.2
        yield builders.data_batch(
            offset + number, producer_id=producer_id, producer_epoch=0, base_sequence=number,
            leader_epoch=leader_epoch, transactional=is_transactional,
        )  # fmt: skip


def _transactional(offset: int, leader_epoch: int, producer_id: int = OPEN_PRODUCER) -> bytes:
    return builders.data_batch(
        offset, producer_id=producer_id, producer_epoch=3, base_sequence=0, transactional=True,
        leader_epoch=leader_epoch,
    )  # fmt: skip


def _forget_snapshots(victim: Victim, rng: random.Random) -> str:
    snapshots = sorted(victim.folder.glob("*.snapshot"))
    gone = [path for path in snapshots if rng.random() < rng.choice([0.0, 0.5, 1.0])]
    for path in gone:
        path.unlink()
    return f", without {len(gone)} of {len(snapshots)} snapshots" if gone else ""


def _write(victim: Victim, rng: random.Random, batches: Callable[[int, int], Iterator[bytes]]) -> str | None:
    """Put batches behind the end of a segment, the last one mostly, or of offsets of their own into it."""
    logs = [path for path in victim.unflushed() if path.stem.isdecimal()]
    if not logs:
        return None
    log: Path = logs[-1] if rng.random() < 0.75 else rng.choice(logs)
    found = batches_of(log.read_bytes())
    if not found:
        return None
    last = found[-1]
    position = last.position + last.size_bytes
    header = log.read_bytes()[last.position : position]
    offset = last.offset + 1
    leader_epoch = 0
    if last.magic >= 2:
        offset += struct.unpack_from(">i", header, 23)[0]
        leader_epoch = struct.unpack_from(">i", header, 12)[0]
    insert(log, position, b"".join(batches(offset, leader_epoch)))
    return f"{log.name} at {position}"


PRODUCER_DAMAGES: dict[str, Damage] = {
    "senseless control batch": senseless_control,
    "broken transaction": broken_transaction,
    "odd producer": odd_producer,
    "many producers": many_producers,
    "crowded log": crowded_log,
}
