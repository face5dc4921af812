"""Starts and ends in the terms of Spark's Kafka source, against the rows of the whole archive."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from recovery.archive.records.offset_limits import EARLIEST, LATEST, OffsetLimits
from recovery.archive.records.read_options import Corrupt, ReadOptions
from recovery.archive.records.read_request import Selection
from recovery.archive.stores.local_store import LocalStore
from recovery.errors import UsageError
from recovery.read.opened_log import OpenedLog
from tests.brokers.tiered_broker import TieredArchive
from tests.logs.archives import made_copies, write_archive
from tests.logs.builders import BASE_TIMESTAMP_MS
from tests.patience import LONGEST_WAIT_SECONDS
from tests.runs.readings import SMALL_TASK, read

TRANSACTIONS = frozenset({"transactions"})


def offsets_of(archive: TieredArchive, topic: str = "plain", **given: Any) -> list[tuple[int, int]]:
    options = given.pop("options", ReadOptions(is_committed=given.pop("is_committed", False)))
    selection = Selection(
        topics=frozenset({topic}), partitions=frozenset({0}), task_bytes=SMALL_TASK, **given
    )
    rows = read(archive.path, "offset", "timestamp", options=options, selection=selection)
    return [(row["offset"], row["timestamp"]) for row in rows]


def limits(everywhere: int, **more: Any) -> OffsetLimits:
    return OffsetLimits(option="it", everywhere=everywhere, **more)


def test_each_time_means_the_first_offset_that_is_not_older(stored_archive: TieredArchive) -> None:
    rows = offsets_of(stored_archive)
    for _, time_ms in rows[:: len(rows) // 12]:
        for moment in (time_ms, time_ms + 1):
            first = next((at for at, row in enumerate(rows) if row[1] >= moment), len(rows))
            since = limits(moment, are_times=True)
            assert offsets_of(stored_archive, starts=since) == rows[first:]
            assert offsets_of(stored_archive, ends=since) == rows[:first] or first == len(rows)


def test_offsets_bound_and_the_archive_must_have_them(stored_archive: TieredArchive) -> None:
    rows = offsets_of(stored_archive)
    end = rows[-1][0] + 1
    for start, stop in (
        (EARLIEST, LATEST),
        (rows[9][0], LATEST),
        (EARLIEST, rows[9][0]),
        (40, 60),
        (end, end),
    ):
        found = offsets_of(stored_archive, starts=limits(start), ends=limits(stop))
        assert found == [row for row in rows if row[0] >= start and (stop == LATEST or row[0] < stop)]
    lossy = ReadOptions(lost=Corrupt.SKIP)
    assert offsets_of(stored_archive, options=lossy, ends=limits(end + 1)) == rows
    assert offsets_of(stored_archive, options=lossy, starts=limits(end + 1)) == []
    for given in ({"starts": limits(end + 1)}, {"ends": limits(end + 1)}):
        with pytest.raises(UsageError, match=rf"it: plain-0 ends before offset {end + 1} in the archive"):
            offsets_of(stored_archive, **given)


def test_committed_records_end_at_the_last_stable_offset(stored_archive: TieredArchive) -> None:
    """Nobody knows what becomes of an offset after it, so a query that names one fails."""
    whole = offsets_of(stored_archive, "transactions")
    stable = offsets_of(stored_archive, "transactions", is_committed=True)
    assert stable[-1] < whole[-1]
    with pytest.raises(UsageError, match="read_committed: at its last stable offset"):
        offsets_of(stored_archive, "transactions", is_committed=True, ends=limits(whole[-1][0]))


def test_partitions_are_looked_up_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [copy for partition in range(6) for copy in made_copies(partition=partition, segments=2)]
    archive = write_archive(tmp_path / "archive", "local-tiered", made)
    both, here = threading.Barrier(2), threading.main_thread()
    open_log = LocalStore.open

    def opened_by_two(store: LocalStore, key: str) -> OpenedLog:
        if threading.current_thread() is not here and key.endswith(".log"):
            both.wait(timeout=LONGEST_WAIT_SECONDS)
        return open_log(store, key)

    monkeypatch.setattr(LocalStore, "open", opened_by_two)
    selection = Selection(starts=limits(BASE_TIMESTAMP_MS, are_times=True))
    rows = read(archive.root, "partition", "offset", selection=selection)
    monkeypatch.undo()
    assert rows == read(archive.root, "partition", "offset")
    late = Selection(starts=limits(BASE_TIMESTAMP_MS << 1, are_times=True, needs_match=True))
    with pytest.raises(UsageError, match="it: made-0 has no record"):
        read(archive.root, "offset", selection=late)
