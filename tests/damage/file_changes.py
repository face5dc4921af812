"""What may have become of one file of an archive, by kinds of files: bytes to bytes, None where nothing is left.

Some changes happen to any file (a bit, a cut, zeros, another file's bytes). The others know the format: a field, an
entry or a batch is another, is gone or is there twice, and checksums are right again.
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from native.crc32c import crc32c_of_bytes
from segfmt import byte_layout
from segfmt.checkpoint import LeaderEpochEntry, encode_leader_epoch_checkpoint, read_leader_epoch_checkpoint
from segfmt.producer_snapshot import encode_producer_snapshot, read_producer_snapshot
from tests.logs.archives import batch_positions

Change = Callable[[bytes, random.Random], bytes | None]
"""Returns the bytes that are there now; the same ones where there is nothing to change."""

# -- any file ---------------------------------------------------------------------------------------------------


def flip_bit(data: bytes, position: int, rng: random.Random) -> bytes:
    """One bit of the byte at *position*."""
    return data[:position] + bytes([data[position] ^ 1 << rng.randrange(8)]) + data[position + 1 :]


def _flipped(data: bytes, rng: random.Random) -> bytes:
    return flip_bit(data, rng.randrange(len(data)), rng)


def _range(data: bytes, rng: random.Random) -> tuple[int, int]:
    start = rng.randrange(len(data))
    return start, rng.randrange(start + 1, len(data) + 1)


def _zeros(data: bytes, rng: random.Random) -> bytes:
    start, end = _range(data, rng)
    return data[:start] + bytes(end - start) + data[end:]


def _garbage(data: bytes, rng: random.Random) -> bytes:
    start, end = _range(data, rng)
    return data[:start] + rng.randbytes(end - start) + data[end:]


ANY_FILE: dict[str, Change] = {
    "a bit": _flipped,
    "cut": lambda data, rng: data[: rng.randrange(1, len(data))] if len(data) > 1 else data,
    "zeros": _zeros,
    "all zeros": lambda data, _: bytes(len(data)),
    "garbage": _garbage,
    "all garbage": lambda data, rng: rng.randbytes(len(data)),
    "empty": lambda _, _rng: b"",
    "missing": lambda _, _rng: None,
    "extended by garbage": lambda data, rng: data + rng.randbytes(rng.randrange(1, 100)),
    "extended by zeros": lambda data, rng: data + bytes(rng.randrange(1, 200)),
}

# -- logs -------------------------------------------------------------------------------------------------------

_FIELDS: Mapping[str, tuple[np.dtype[Any], int]] = {
    name: byte_layout.RECORD_BATCH_HEADER_DTYPE.fields[name][:2]  # type: ignore[index,misc]  # it has fields
    for name in byte_layout.RECORD_BATCH_HEADER_DTYPE.names or ()
}
_FIRST_OF_CRC = byte_layout.BATCH_CRC_POSITION + 4


def with_crc(batch: bytes | bytearray) -> bytes:
    """A batch with the right checksum."""
    copy = bytearray(batch)
    struct.pack_into(">I", copy, byte_layout.BATCH_CRC_POSITION, crc32c_of_bytes(bytes(copy[_FIRST_OF_CRC:])))
    return bytes(copy)


def batches_of(log: bytes) -> list[bytes]:
    """The batches of a sound log."""
    return [log[start:end] for start, end in pairwise(batch_positions(log))]


def _flipped_field(name: str) -> Change:
    dtype, position = _FIELDS[name]

    def change(data: bytes, rng: random.Random) -> bytes:
        start = rng.choice(batch_positions(data)[:-1])
        return flip_bit(data, start + position + rng.randrange(dtype.itemsize), rng)

    return change


def _other_field(name: str, change_value: Callable[[int, random.Random], int]) -> Change:
    """A field of one or of all batches is another, and the checksums are right."""
    dtype, position = _FIELDS[name]

    def change(data: bytes, rng: random.Random) -> bytes:
        batches = batches_of(data)
        numbers = range(len(batches)) if rng.random() < 0.3 else [rng.randrange(len(batches))]
        for number in numbers:
            batch = bytearray(batches[number])
            value = int(np.frombuffer(batch, dtype, 1, position)[0])
            batch[position : position + dtype.itemsize] = np.array(
                [change_value(value, rng)], dtype
            ).tobytes()
            batches[number] = with_crc(batch)
        return b"".join(batches)

    return change


def _cut_at_a_batch(data: bytes, rng: random.Random) -> bytes:
    ends = batch_positions(data)[1:-1]
    return data[: rng.choice(ends)] if ends else data


def _reordered(change: Callable[[list[bytes], int, random.Random], Sequence[bytes]]) -> Change:
    def apply(data: bytes, rng: random.Random) -> bytes:
        batches = batches_of(data)
        return b"".join(change(batches, rng.randrange(len(batches)), rng))

    return apply


def _exchanged(batches: list[bytes], number: int, rng: random.Random) -> list[bytes]:
    other = rng.randrange(len(batches))
    batches[number], batches[other] = batches[other], batches[number]
    return batches


def _stretched(batches: list[bytes], number: int, _rng: random.Random) -> list[bytes]:
    """A batch is gone, and the one before has its offsets, as after a compaction."""
    if number == 0:
        return batches
    before, gone = bytearray(batches[number - 1]), batches[number]
    (base,), (gone_base,) = struct.unpack_from(">q", before), struct.unpack_from(">q", gone)
    (gone_delta,) = struct.unpack_from(">i", gone, 23)
    struct.pack_into(">i", before, 23, gone_base + gone_delta - base)
    return [*batches[: number - 1], with_crc(before), *batches[number + 1 :]]


def _shifted(data: bytes, rng: random.Random) -> bytes:
    """All batches from one on have later offsets."""
    batches = batches_of(data)
    first, by = rng.randrange(len(batches)), rng.randrange(1, 50)
    for number in range(first, len(batches)):
        (base,) = struct.unpack_from(">q", batches[number])
        batches[number] = struct.pack(">q", base + by) + batches[number][8:]
    return b"".join(batches)


_LOG: dict[str, Change] = {
    **{f"a bit of {name}": _flipped_field(name) for name in _FIELDS},
    "cut at a batch": _cut_at_a_batch,
    "a batch removed": _reordered(lambda batches, number, _: batches[:number] + batches[number + 1 :]),
    "a batch twice": _reordered(lambda batches, number, _: batches[: number + 1] + batches[number:]),
    "the last batch twice": _reordered(lambda batches, _n, _r: [*batches, batches[-1]]),
    "batches exchanged": _reordered(_exchanged),
    "a batch stretched": _reordered(_stretched),
    "offsets shifted": _shifted,
    "other producer": _other_field("producer_id", lambda value, _: value + 67 if value >= 0 else 67),
    "other producer epoch": _other_field("producer_epoch", lambda value, rng: value + rng.choice([-1, 1, 7])),
    "other sequence": _other_field("base_sequence", lambda value, rng: max(-1, value + rng.choice([-1, 1, 40]))),
    "other leader epoch": _other_field("partition_leader_epoch", lambda value, rng: value + rng.choice([-1, 1, 5])),
    "other base timestamp": _other_field("base_timestamp_ms", lambda value, rng: value + rng.choice([-1000, 1000])),
    "other timestamp": _other_field("max_timestamp_ms", lambda value, rng: value + rng.choice([-10**9, -1, 1, 10**9])),
    "other attributes": _other_field("attributes", lambda value, rng: value ^ 1 << rng.randrange(7)),
    "other last offset": _other_field("last_offset_delta", lambda value, rng: value + rng.choice([-1, 1, 9])),
    "other record count": _other_field("record_count", lambda value, rng: value + rng.choice([-1, 1, 9])),
}  # fmt: skip

# -- files of entries -------------------------------------------------------------------------------------------


def _entries(dtype: np.dtype[Any], change: Callable[[np.ndarray, int, random.Random], np.ndarray]) -> Change:
    """A change of the entries, at one of them; trailing bytes are none."""

    def apply(data: bytes, rng: random.Random) -> bytes:
        entries = np.frombuffer(data, dtype).copy()
        return change(entries, rng.randrange(len(entries)), rng).tobytes() if len(entries) else data

    return apply


def _with_other(name: str) -> Callable[[np.ndarray, int, random.Random], np.ndarray]:
    def change(entries: np.ndarray, number: int, rng: random.Random) -> np.ndarray:
        by = rng.choice([-1000, -1, 1, 1000])
        entries[name][number] = (
            (int(entries[name][number]) + by) % (1 << 15)
            if entries.dtype[name].itemsize == 2
            else int(entries[name][number]) + by
        )
        return entries

    return change


def _exchanged_entries(entries: np.ndarray, number: int, rng: random.Random) -> np.ndarray:
    other = rng.randrange(len(entries))
    entries[[number, other]] = entries[[other, number]]
    return entries


def _array(dtype: np.dtype[Any]) -> dict[str, Callable[[np.ndarray, int, random.Random], np.ndarray]]:
    return {
        "cut at an entry": lambda entries, number, _: entries[:number],
        "the last entry removed": lambda entries, _n, _r: entries[:-1],
        "an entry removed": lambda entries, number, _: np.delete(entries, number),
        "an entry twice": lambda entries, number, _: np.insert(entries, number, entries[number]),
        "entries exchanged": _exchanged_entries,
        **{f"other {name}": _with_other(name) for name in dtype.names or ()},
    }


def _index(dtype: np.dtype[Any]) -> dict[str, Change]:
    return {name: _entries(dtype, change) for name, change in _array(dtype).items()}


def _snapshot(change: Callable[[np.ndarray, int, random.Random], np.ndarray]) -> Change:
    def apply(data: bytes, rng: random.Random) -> bytes:
        entries = read_producer_snapshot(data, crc32c=crc32c_of_bytes).copy()
        if not len(entries):
            return data
        return encode_producer_snapshot(
            change(entries, rng.randrange(len(entries)), rng), crc32c=crc32c_of_bytes
        )

    return apply


def _epochs(
    change: Callable[[list[LeaderEpochEntry], int, random.Random], Sequence[LeaderEpochEntry]],
) -> Change:
    def apply(data: bytes, rng: random.Random) -> bytes:
        entries = list(read_leader_epoch_checkpoint(data))
        return (
            encode_leader_epoch_checkpoint(change(entries, rng.randrange(len(entries)), rng))
            if entries
            else data
        )

    return apply


def _other_epoch(entries: list[LeaderEpochEntry], number: int, rng: random.Random) -> list[LeaderEpochEntry]:
    entries[number] = LeaderEpochEntry(
        max(0, entries[number].epoch + rng.choice([-1, 1])), entries[number].start_offset
    )
    return entries


def _other_start(entries: list[LeaderEpochEntry], number: int, rng: random.Random) -> list[LeaderEpochEntry]:
    start = max(0, entries[number].start_offset + rng.choice([-9, -1, 1, 9]))
    entries[number] = LeaderEpochEntry(entries[number].epoch, start)
    return entries


def _one_epoch_more(
    entries: list[LeaderEpochEntry], _number: int, rng: random.Random
) -> list[LeaderEpochEntry]:
    last = entries[-1]
    return [*entries, LeaderEpochEntry(last.epoch + 1, last.start_offset + rng.randrange(1, 200))]


_EPOCHS: dict[str, Change] = {
    "cut at an entry": _epochs(lambda entries, number, _: entries[:number]),
    "an entry removed": _epochs(lambda entries, number, _: entries[:number] + entries[number + 1 :]),
    "an entry twice": _epochs(lambda entries, number, _: entries[: number + 1] + entries[number:]),
    "an entry more": _epochs(_one_epoch_more),
    "other epoch": _epochs(_other_epoch),
    "other start": _epochs(_other_start),
}  # fmt: skip

# -- manifests --------------------------------------------------------------------------------------------------


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, dict | list) and value:
        keys = value if isinstance(value, dict) else range(len(value))
        return [leaf for key in keys for leaf in _leaves(value[key], (*path, key))]
    return [path]


def _manifest(change: Callable[[Any, random.Random], Any]) -> Change:
    """A leaf of the JSON is another; KeyError: it is taken out."""

    def apply(data: bytes, rng: random.Random) -> bytes:
        members = json.loads(data)
        *path, last = rng.choice(_leaves(members))
        holder = members
        for key in path:
            holder = holder[key]
        try:
            holder[last] = change(holder[last], rng)
        except KeyError:
            del holder[last]
        return json.dumps(members).encode()

    return apply


def _other_leaf(value: Any, rng: random.Random) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + rng.choice([-1, 1, 1000])
    if isinstance(value, str) and value:
        at = rng.randrange(len(value))
        return value[:at] + rng.choice("abcXYZ0189") + value[at + 1 :]
    return 7


def _no_leaf(_value: Any, _rng: random.Random) -> Any:
    raise KeyError


_MANIFEST: dict[str, Change] = {
    "another value": _manifest(_other_leaf),
    "a value removed": _manifest(_no_leaf),
}

# -- checkpoints ------------------------------------------------------------------------------------------------


def _lines(change: Callable[[list[str], int, random.Random], Sequence[str]]) -> Change:
    def apply(data: bytes, rng: random.Random) -> bytes:
        lines = data.decode().splitlines()
        return "".join(f"{line}\n" for line in change(lines, rng.randrange(len(lines)), rng)).encode()

    return apply


def _beyond(lines: list[str], number: int, _rng: random.Random) -> list[str]:
    return [line + "9" * 5 if at == number > 1 else line for at, line in enumerate(lines)]


_CHECKPOINT: dict[str, Change] = {
    "a line removed": _lines(lambda lines, number, _: lines[:number] + lines[number + 1 :]),
    "a line twice": _lines(lambda lines, number, _: lines[: number + 1] + lines[number:]),
    "a line more": _lines(lambda lines, _n, _r: [*lines, "x 0 0"]),
    "an offset beyond": _lines(_beyond),
}  # fmt: skip

CHANGES: dict[str, dict[str, Change]] = {
    "log": ANY_FILE | _LOG,
    "index": ANY_FILE | _index(byte_layout.OFFSET_INDEX_DTYPE),
    "timeindex": ANY_FILE | _index(byte_layout.TIME_INDEX_DTYPE),
    "txnindex": ANY_FILE | _index(byte_layout.ABORTED_TXN_DTYPE),
    "snapshot": ANY_FILE
    | {name: _snapshot(change) for name, change in _array(byte_layout.PRODUCER_ENTRY_DTYPE).items()},
    "leader_epoch_checkpoint": ANY_FILE | _EPOCHS,
    "rsm-manifest": ANY_FILE | _MANIFEST,
    "checkpoint": ANY_FILE | _CHECKPOINT,
    "metadata": ANY_FILE
    | {
        name: _LOG[name]
        for name in ("cut at a batch", "a batch removed", "a batch twice", "batches exchanged")
    },
    "indexes": ANY_FILE,
    "object": ANY_FILE,
}
"""All changes by the part of a segment that they are for, and by name."""
