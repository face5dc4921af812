"""Damage to the bytes of `.log` files: tails, bits, pages, order."""

from __future__ import annotations

import os
import random
import struct

from segfmt import byte_layout
from tests.damage.mutilations.victim import Damage, Victim, batches_of, patch, pick
from tests.logs import builders

HEADER_FIELDS = {
    "base offset": (byte_layout.OFFSET_POSITION, 8),
    "length": (byte_layout.LENGTH_POSITION, 4),
    "leader epoch": (byte_layout.PARTITION_LEADER_EPOCH_POSITION, 4),
    "magic": (byte_layout.MAGIC_POSITION, 1),
    "crc": (byte_layout.BATCH_CRC_POSITION, 4),
    "attributes": (byte_layout.ATTRIBUTES_POSITION, 2),
    "last offset delta": (byte_layout.LAST_OFFSET_DELTA_POSITION, 4),
    "base timestamp": (byte_layout.BASE_TIMESTAMP_POSITION, 8),
    "max timestamp": (byte_layout.MAX_TIMESTAMP_POSITION, 8),
    "producer id": (byte_layout.PRODUCER_ID_POSITION, 8),
    "producer epoch": (byte_layout.PRODUCER_EPOCH_POSITION, 2),
    "base sequence": (byte_layout.BASE_SEQUENCE_POSITION, 4),
    "record count": (byte_layout.RECORD_COUNT_POSITION, 4),
    "records": (byte_layout.RECORDS_POSITION, 1 << 30),
}
"""Position in the batch and bytes; of messages of magic 0 and 1 the bytes are others, and flipped as well."""

MAGICS = (0, 1, 3, 6, 10, 127, 128, 255)


def torn_tail(victim: Victim, rng: random.Random) -> str | None:
    """Cut in the last batch, mostly: at each byte of its header alike, or anywhere in it."""
    log = pick(victim.unflushed(), rng)
    batches = batches_of(log.read_bytes()) if log is not None else []
    if log is None or not batches:
        return None
    batch = batches[-1] if rng.random() < 0.7 else rng.choice(batches)
    kept = rng.choice(
        [rng.randrange(byte_layout.RECORD_BATCH_OVERHEAD_BYTES + 1), rng.randrange(batch.size_bytes)]
    )
    kept = min(kept, batch.size_bytes - 1)
    os.truncate(log, batch.position + kept)
    return f"{log.name} cut {kept} bytes into the batch at {batch.position}"


def junk_tail(victim: Victim, rng: random.Random) -> str | None:
    return _behind(victim, rng, rng.randbytes(rng.choice([1, 5, 16, 17, 18, 26, 61, 100, 5000])), "junk")


def zero_tail(victim: Victim, rng: random.Random) -> str | None:
    return _behind(victim, rng, bytes(rng.choice([1, 11, 12, 17, 18, 61, 512, 4096, 40_000])), "zeros")


def header_tail(victim: Victim, rng: random.Random) -> str | None:
    """Behind the last batch a header that cannot be: a length at each border, a magic at random."""
    length = rng.choice([-(2**31), -1, 0, 1, 13, 14, 15, 48, 49, 50, 2**31 - 13, 2**31 - 1])
    magic = rng.choice([0, 1, 2, 2, 2, 3, 127, -1])
    header = struct.pack(">qiibI", rng.choice([0, 10**6, 2**40]), length, 0, magic, 0)
    return _behind(
        victim, rng, header + bytes(rng.choice([0, 1, 40, 60, 200])), f"a header of length {length}"
    )


def _behind(victim: Victim, rng: random.Random, data: bytes, words: str) -> str | None:
    log = pick(victim.unflushed(), rng)
    if log is None:
        return None
    with log.open("ab") as file:
        file.write(data)
    return f"{log.name} with {len(data)} bytes behind, {words}"


def flipped_field(field: str, *, flushed: bool) -> Damage:
    position, size_bytes = HEADER_FIELDS[field]

    def damage(victim: Victim, rng: random.Random) -> str | None:
        log = pick(victim.flushed() if flushed else victim.unflushed(), rng)
        batches = batches_of(log.read_bytes()) if log is not None else []
        batches = [batch for batch in batches if batch.size_bytes > position]
        if log is None or not batches:
            return None
        batch = rng.choice(batches)
        at = batch.position + position + rng.randrange(min(size_bytes, batch.size_bytes - position))
        bit = rng.randrange(8)
        patch(log, at, bytes([log.read_bytes()[at] ^ 1 << bit]))
        return f"{log.name} bit {bit} of byte {at} (byte {at - batch.position} of its batch)"

    return damage


def other_magic(victim: Victim, rng: random.Random) -> str | None:
    log = pick(victim.logs(), rng)
    batches = batches_of(log.read_bytes()) if log is not None else []
    if log is None or not batches:
        return None
    batch, magic = rng.choice(batches), rng.choice(MAGICS)
    patch(log, batch.position + byte_layout.MAGIC_POSITION, bytes([magic]))
    return f"{log.name} with magic {magic} in the batch at {batch.position}"


def old_messages(victim: Victim, rng: random.Random) -> str | None:
    """Messages of magic 0 or 1 behind what is there: sound ones, wrappers of garbage, of nothing, of too much."""
    log = pick(victim.unflushed(), rng)
    if log is None:
        return None
    batches = batches_of(log.read_bytes())
    offset = (batches[-1].offset if batches else int(log.stem)) + 100
    magic, value = rng.choice([0, 1]), bytes(rng.choice([0, 3, 200]))
    inner = [builders.message(offset + i if magic == 0 else i, magic=magic, value=value) for i in range(3)]
    made = {
        "a message": builders.message(offset, magic=magic, value=value),
        "a wrapper": builders.compressed_message(inner, offset=offset + 2, magic=magic),
        "a wrapper of nothing": builders.compressed_message([], offset=offset, magic=magic),
        "a wrapper of garbage": builders.message(
            offset, magic=magic, attributes=rng.choice([1, 2, 3]), value=rng.randbytes(40)
        ),
        "a message without value": builders.message(offset, magic=magic, value=None),
        "a message with a wrong CRC": builders.message(offset, magic=magic, value=value, crc=1),
        "a message of an unknown codec": builders.message(offset, magic=magic, attributes=7, value=value),
    }
    words = rng.choice(sorted(made))
    with log.open("ab") as file:
        file.write(made[words])
    return f"{log.name} with {words} of magic {magic} behind"


def zeroed_page(victim: Victim, rng: random.Random) -> str | None:
    log = pick(victim.unflushed(), rng)
    if log is None:
        return None
    size = log.stat().st_size
    start = rng.randrange(0, size, 512)
    count = min(4096, size - start)
    patch(log, start, bytes(count))
    return f"{log.name} zeroed from {start}, {count} bytes"


def swapped_batches(victim: Victim, rng: random.Random) -> str | None:
    log = pick(victim.unflushed(), rng)
    data = log.read_bytes() if log is not None else b""
    batches = batches_of(data)
    if log is None or len(batches) < 2:
        return None
    first = rng.randrange(len(batches) - 1)
    one, two = batches[first], batches[first + 1]
    middle = data[two.position : two.position + two.size_bytes] + data[one.position : two.position]
    log.write_bytes(data[: one.position] + middle + data[two.position + two.size_bytes :])
    return f"{log.name} with batches {first} and {first + 1} swapped"


def missing_batches(victim: Victim, rng: random.Random) -> str | None:
    """Batches are gone from the middle, or are there twice."""
    log = pick(victim.logs(), rng)
    data = log.read_bytes() if log is not None else b""
    batches = batches_of(data)
    if log is None or len(batches) < 2:
        return None
    batch = rng.choice(batches)
    end = batch.position + batch.size_bytes
    if rng.random() < 0.5:
        log.write_bytes(data[: batch.position] + data[end:])
        return f"{log.name} without the batch at {batch.position}"
    log.write_bytes(data[:end] + data[batch.position :])
    return f"{log.name} with the batch at {batch.position} twice"


LOG_DAMAGES: dict[str, Damage] = {
    "torn tail": torn_tail,
    "junk tail": junk_tail,
    "zero tail": zero_tail,
    "header tail": header_tail,
    **{f"flipped {field}, unflushed": flipped_field(field, flushed=False) for field in HEADER_FIELDS},
    **{f"flipped {field}, flushed": flipped_field(field, flushed=True) for field in HEADER_FIELDS},
    "other magic": other_magic,
    "old messages": old_messages,
    "zeroed page": zeroed_page,
    "swapped batches": swapped_batches,
    "missing or doubled batch": missing_batches,
}
