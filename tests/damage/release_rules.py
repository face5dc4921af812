"""Damage on which releases of Kafka differ (recovery/load/release.py), to the log of tests/logs/edge_log.py."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial

import numpy as np

from native.crc32c import crc32c_of_bytes
from segfmt.byte_layout import PRODUCER_ENTRY_DTYPE
from segfmt.producer_snapshot import MOST_ENTRIES, encode_producer_snapshot
from tests.logs.edge_log import BASES, NOW_MS, Log

HALTING_BOTH = (0x0100, 0x0101, 0x7FFF)
HALTING_LATER = (0x0001, 0x00FF, 0x8000, 0xFF00, 0xFFFF)


def add_rest(log: Log, rest_bytes: int, *, loses_all_snapshots: bool) -> None:
    """Put a part of an entry behind each offset index; without snapshots more of them are opened."""
    for base in BASES:
        index = log.file(base, ".index")
        index.write_bytes(index.read_bytes() + bytes(rest_bytes))
    for snapshot in log.folder.glob("*.snapshot"):
        if loses_all_snapshots or int(snapshot.stem) > BASES[1]:
            snapshot.unlink()


def set_version(log: Log, version: int) -> None:
    """Give the aborted transaction of the second segment a version that no broker writes."""
    log.file(12, ".txnindex").write_bytes(struct.pack(">Hqqqq", version, 200, 15, 18, 19))


def fill_snapshots(log: Log, count: int) -> None:
    """Put so many producers into each snapshot."""
    entries = np.zeros(count, PRODUCER_ENTRY_DTYPE)
    entries["producer_id"] = np.arange(count) + 1000
    entries["last_sequence"] = entries["last_offset"] = -1
    entries["timestamp_ms"] = NOW_MS
    entries["current_txn_first_offset"] = -1
    data = encode_producer_snapshot(entries, crc32c=crc32c_of_bytes)
    for snapshot in log.folder.glob("*.snapshot"):
        snapshot.write_bytes(data)


DAMAGES: dict[str, Callable[[Log], None]] = {
    **{
        f"rest-{rest}-{'all' if lost else 'newest'}": partial(
            add_rest, rest_bytes=rest, loses_all_snapshots=lost
        )
        for rest in (1, 7)
        for lost in (False, True)
    },
    **{
        f"txn-version-{version:04x}": partial(set_version, version=version)
        for version in (*HALTING_BOTH, *HALTING_LATER)
    },
    **{
        f"producers-{count}": partial(fill_snapshots, count=count)
        for count in (MOST_ENTRIES, MOST_ENTRIES + 1)
    },
}
"""All of them by name."""
