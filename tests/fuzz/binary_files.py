"""Targets: indexes, snapshots, the order of a Java map, checksums."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from segfmt import byte_layout, offset_index, time_index, transaction_index
from segfmt.crc32c import crc32c
from segfmt.errors import FormatError
from segfmt.java_hash_map import JavaLongMap, java_hash_map_order
from segfmt.producer_snapshot import as_loaded, encode_producer_snapshot, read_producer_snapshot
from tests.fuzz.choices import Choices
from tests.fuzz.targets import Target, assert_within
from tests.logs import reference


def _check(check: Callable[[bytes, int], None], data: bytes, base_offset: int) -> None:
    try:
        check(data, base_offset)
    except FormatError as error:
        assert_within(error, data)


def _index(data: bytes) -> None:
    """Both kinds of index over the same bytes, lookups against a walk."""
    choices = Choices(data)
    base_offset, target = choices.signed(8), choices.signed(8)
    octets = choices.rest()
    offsets = offset_index.view_offset_index(octets)
    times = time_index.view_time_index(octets)
    assert offset_index.encode_offset_index(offsets) == octets[: len(octets) // 8 * 8]
    assert time_index.encode_time_index(times) == octets[: len(octets) // 12 * 12]
    for entries, column, found in (
        (offsets, "relative_offset", offset_index.lookup(offsets, base_offset, target).offset),
        (times, "timestamp_ms", time_index.lookup(times, base_offset, target).timestamp_ms),
    ):
        keys = [int(key) for key in entries[column]]
        wanted = target - base_offset if column == "relative_offset" else target
        if keys == sorted(set(keys)):
            below = [key for key in keys if key <= wanted]
            none = base_offset if column == "relative_offset" else -1
            shift = base_offset if column == "relative_offset" else 0
            assert found == (below[-1] + shift if below else none)
    offset_index.last_offset(offsets, base_offset)
    _check(offset_index.check_offset_index, octets, base_offset)
    _check(time_index.check_time_index, octets, base_offset)


def _transaction_index(data: bytes) -> None:
    choices = Choices(data)
    base_offset, offset = choices.signed(8), choices.signed(8)
    octets = choices.rest()
    entries = transaction_index.view_transaction_index(octets)
    assert transaction_index.encode_transaction_index(entries) == octets[: len(octets) // 34 * 34]
    _check(transaction_index.check_transaction_index, octets, base_offset)
    position = transaction_index.truncation_position(entries, offset)
    kept = entries if position is None else entries[: position // 34]
    assert not (kept["last_offset"] >= offset).any()


def _producer_snapshot(data: bytes) -> None:
    """The bytes as they are, and with the version and checksum that let them through."""
    body = data[byte_layout.SNAPSHOT_COUNT_POSITION :]
    sealed = byte_layout.SNAPSHOT_VERSION.to_bytes(2, "big") + crc32c(body).to_bytes(4, "big") + body
    count = len(body[4:]) // byte_layout.PRODUCER_ENTRY_DTYPE.itemsize
    counted = count.to_bytes(4, "big") + body[4:]
    whole = byte_layout.SNAPSHOT_VERSION.to_bytes(2, "big") + crc32c(counted).to_bytes(4, "big") + counted
    for candidate in (data, sealed, whole):
        try:
            entries = read_producer_snapshot(candidate)
        except FormatError:
            assert candidate is not whole
            continue
        assert encode_producer_snapshot(entries)[10:] == candidate[10 : 10 + 46 * len(entries)]
        loaded = as_loaded(entries)
        assert as_loaded(loaded).tobytes() == loaded.tobytes()


def _java_hash_map(data: bytes) -> None:
    """Puts against a dict; keys that share a bucket are likely."""
    choices = Choices(data)
    tree: JavaLongMap[int] = JavaLongMap()
    plain: dict[int, int] = {}
    only_put = True
    while not choices.is_exhausted:
        key = choices.pick([1, 1 << 7, 1 << 20, 1 << 32, -1]) * choices.below(256)
        if choices.below(16) < 14:
            tree[key] = plain[key] = choices.below(256)
            continue
        only_put = False
        tree.compute_if_absent(key, 0)
        plain.setdefault(key, 0)
    assert dict(tree.items()) == plain
    assert len(tree) == len(plain) == len(tree.keys())
    if only_put:
        keys = np.array(list(plain), np.int64)
        assert keys[java_hash_map_order(keys)].tolist() == tree.keys()


def _checksum(data: bytes) -> None:
    assert crc32c(data) == reference.crc32c(data)
    half = len(data) // 2
    assert crc32c(data[half:], crc32c(data[:half])) == reference.crc32c(data)


def _crowded() -> list[bytes]:
    """Ten and more keys of one bucket: a tree, also of keys that were computed."""
    puts = b"".join(bytes([3, n, 0, n]) for n in range(40))
    return [puts, puts + b"".join(bytes([3, n, 15]) for n in range(30, 60)), puts * 2]


TARGETS = [
    Target(name="index", run=_index, seeds=("own.index", "own.timeindex")),
    Target(name="transaction_index", run=_transaction_index, seeds=("aborted.txnindex",)),
    Target(
        name="producer_snapshot",
        run=_producer_snapshot,
        seeds=("few.snapshot", "transactions.snapshot"),
        longest_bytes=1024,
    ),
    Target(name="java_hash_map", run=_java_hash_map, more_seeds=_crowded, longest_bytes=1024),
    Target(name="checksum", run=_checksum, longest_bytes=512),
]
