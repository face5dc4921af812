"""The producers as columns, held against one producer after another."""

from __future__ import annotations

import random

import numpy as np
import pytest

from native.raw_scan import PRODUCER_DTYPE
from recovery.load.producer_table import ProducerTable
from segfmt.byte_layout import PRODUCER_ENTRY_DTYPE
from segfmt.java_hash_map import JavaLongMap

_Entry = tuple[int, ...]
"""As in PRODUCER_ENTRY_DTYPE, behind the producer id."""


def _take_one(
    known: dict[int, _Entry], row: dict[str, int], open_txns: dict[int, int], *, is_replayed: bool
) -> None:
    """Kafka: ProducerStateEntry.update, for one producer."""
    entry = known.setdefault(row["producer_id"], (-1, -1, -1, 0, -1, -1, -1))
    if not (row["has_data"] or row["has_marker"]):
        return
    epoch, sequence, offset, delta, _, coordinator_epoch, _ = entry
    if row["epoch"] != epoch if is_replayed else row["first_epoch"] != epoch or row["cleared"]:
        sequence, offset, delta = -1, -1, 0
    if row["has_data"] and not row["cleared"]:
        sequence, offset, delta = row["last_sequence"], row["last_offset"], row["offset_delta"]
    if row["has_marker"]:
        coordinator_epoch = row["coordinator_epoch"]
    first_offset = open_txns.get(row["producer_id"], -1)
    known[row["producer_id"]] = (
        row["epoch"], sequence, offset, delta, row["timestamp_ms"], coordinator_epoch, first_offset,
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(60))
def test_columns_take_what_one_producer_after_another_takes(seed: int) -> None:
    """Both ways of taking a scan, producers that are new and known, from tables of one to a hundred."""
    chance = random.Random(seed)
    names = PRODUCER_DTYPE.names or ()
    pool = [chance.choice((1, 64, 2**40)) * chance.randrange(300) for _ in range(chance.choice((2, 15, 120)))]
    table, known = ProducerTable(), {}
    for _ in range(4):
        rows = []
        for producer_id in dict.fromkeys(chance.choice(pool) for _ in range(chance.choice((0, 1, 40)))):
            row = {name: chance.randrange(-1, 4) for name in names} | {"producer_id": producer_id}
            row |= {name: int(chance.random() < 0.5) for name in ("has_data", "has_marker", "cleared")}
            rows.append(row)
        open_txns = {producer_id: 7 for producer_id in pool if chance.random() < 0.3}
        is_replayed = chance.random() < 0.5
        scan = np.array([tuple(row[name] for name in names) for row in rows], PRODUCER_DTYPE)
        table.take(scan, open_txns, keeps_batches_on_return=is_replayed)
        for row in rows:
            _take_one(known, row, open_txns, is_replayed=is_replayed)
        ordered: JavaLongMap[_Entry] = JavaLongMap()
        for producer_id, entry in known.items():
            ordered[producer_id] = entry
        assert table.in_map_order().tolist() == [(key, *entry) for key, entry in ordered.items()]
        assert table.open_txns(pool) == {key: known[key][-1] for key in pool if key in known}


def test_of_a_producer_that_is_there_twice_the_last_entry_counts() -> None:
    """It keeps the place of the first one, as in a map that is filled twice."""
    entries = np.zeros(4, PRODUCER_ENTRY_DTYPE)
    entries["producer_id"] = 16, 32, 16, 48  # one bucket: what came first goes first
    entries["last_offset"] = 1, 2, 3, 4
    table = ProducerTable(entries)
    assert table.in_map_order()[["producer_id", "last_offset"]].tolist() == [(16, 3), (32, 2), (48, 4)]
    assert len(table) == 3
