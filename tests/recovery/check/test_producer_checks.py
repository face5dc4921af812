"""Snapshots against the log, one by one: what is said where their bytes differ, and where they do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from recovery.check.rules.producers import ProducerChecks
from segfmt.byte_layout import PRODUCER_ENTRY_DTYPE
from segfmt.producer_snapshot import encode_producer_snapshot
from tests.recovery.load.producer_twin import Batch
from tests.recovery.load.test_producer_state import NOW_MS, scan_of

IDS = (8, 3, 16)
BATCHES = [
    Batch(base_offset=at, last_offset=at, producer_id=one, base_sequence=at, timestamp_ms=NOW_MS)
    for at, one in enumerate(IDS)
]


def snapshot(*, order: tuple[int, ...] = (16, 3, 8), **changed: Any) -> bytes:
    """Return the snapshot at offset 3; *changed* are fields of producer 3."""
    rows = np.array([(one, 0, at, at, 0, NOW_MS, -1, -1) for at, one in enumerate(IDS)], PRODUCER_ENTRY_DTYPE)
    for name, value in changed.items():
        rows[name][IDS.index(3)] = value
    rows["producer_id"] = IDS
    return encode_producer_snapshot(rows[[IDS.index(one) for one in order]])


def said(data: bytes, *, offset: int = 3) -> list[str]:
    """Return what is said of the snapshot *data* at *offset*."""
    checks = ProducerChecks(
        {offset: data}, start_offset=0, log_start_offset=0, now_ms=NOW_MS, expiration_ms=1000
    )
    checks.take("x.log", scan_of(BATCHES))
    checks.reach(offset)
    return [found.detail for found in checks.findings]


def test_the_log_makes_the_same_bytes() -> None:
    checks = ProducerChecks({}, start_offset=0, log_start_offset=0, now_ms=NOW_MS, expiration_ms=1000)
    checks.take("x.log", scan_of(BATCHES))
    assert checks.snapshot_at(3) == snapshot()


@pytest.mark.parametrize("order", [(16, 3, 8), (3, 8, 16)])
def test_the_same_producers_in_any_order(order: tuple[int, ...]) -> None:
    assert said(snapshot(order=order)) == []


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"epoch": 1}, "producer 3: epoch 1, the log says 0"),
        ({"last_sequence": 9}, "producer 3: last_sequence 9, the log says 1"),
        ({"timestamp_ms": 9}, f"producer 3: timestamp_ms 9, the log says {NOW_MS}"),
    ],
)
def test_a_field_that_differs(changed: dict[str, int], words: str) -> None:
    assert said(snapshot(**changed)) == [words]


def test_producers_that_differ() -> None:
    assert said(snapshot(order=(16, 8))) == ["producer 3 is missing"]
    entry = np.array([(5, 0, 0, 1, 0, NOW_MS, -1, -1)], PRODUCER_ENTRY_DTYPE)
    own = np.frombuffer(snapshot()[10:], PRODUCER_ENTRY_DTYPE)
    assert said(encode_producer_snapshot(np.concatenate((own, entry)))) == ["producer 5 has written nothing"]


def test_a_batch_behind_it_that_the_log_has_too() -> None:
    """The bytes are those of the log, and cannot be: of two producers the one with the lower id is named."""
    assert said(snapshot(), offset=1) == ["producer 3: last offset 1, transaction from offset -1"]
