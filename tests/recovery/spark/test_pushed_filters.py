"""Random filters: what they leave unread has no row that they would let through. No Spark runs."""

from __future__ import annotations

import operator
import random
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import datasource

from recovery.archive.records.read_options import ReadOptions
from recovery.archive.records.read_request import Selection
from recovery.errors import DamagedSegmentError
from recovery.spark.pushed_filters import narrowed
from tests.brokers.tiered_broker import TieredArchive
from tests.runs.readings import SMALL_TASK, read

NAMES = ("topic", "partition", "offset", "timestamp")
TOPICS = ("plain", "codecs", "transactions")
WHOLE = Selection(topics=frozenset(TOPICS), task_bytes=SMALL_TASK)
COMPARED = {
    datasource.EqualTo: operator.eq,
    datasource.EqualNullSafe: operator.eq,
    datasource.GreaterThan: operator.gt,
    datasource.GreaterThanOrEqual: operator.ge,
    datasource.LessThan: operator.lt,
    datasource.LessThanOrEqual: operator.le,
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def in_spark(row: dict[str, Any]) -> dict[str, Any]:
    """The row with the value that Spark compares."""
    return row | {"timestamp": _EPOCH + timedelta(milliseconds=row["timestamp"])}


def random_filter(chance: random.Random, rows: list[dict[str, Any]]) -> datasource.Filter:
    """One about a value that some row has, or nearly has."""
    name = chance.choice(NAMES)
    values = [row[name] for row in chance.sample(rows, 3)]
    if name == "timestamp":
        values = [value + timedelta(microseconds=chance.choice((0, 0, -500, 500))) for value in values]
    elif name != "topic":
        values = [value + chance.choice((0, 0, -1, 1)) for value in values]
    if chance.random() < 0.2:
        return datasource.In((name,), tuple(values))
    one = chance.choice(list(COMPARED))((name,), values[0])
    return datasource.Not(one) if chance.random() < 0.1 else one


def lets_through(one: Any, row: dict[str, Any]) -> bool:
    if isinstance(one, datasource.Not):
        return not lets_through(one.child, row)
    value = row[one.attribute[0]]
    if isinstance(one, datasource.In):
        return value in one.value
    return bool(COMPARED[type(one)](value, one.value))


def test_no_row_is_lost_by_random_filters(stored_archive: TieredArchive) -> None:
    rows = [in_spark(row) for row in read(stored_archive.path, *NAMES, selection=WHOLE)]
    skipped = 0
    for seed in range(40):
        chance = random.Random(seed)
        filters = [random_filter(chance, rows) for _ in range(chance.randint(1, 4))]
        options, selection = narrowed(ReadOptions(), WHOLE, filters)
        found = [
            in_spark(row) for row in read(stored_archive.path, *NAMES, options=options, selection=selection)
        ]
        skipped += len(found) < len(rows)
        kept = [row for row in found if all(lets_through(one, row) for one in filters)]
        assert kept == [row for row in rows if all(lets_through(one, row) for one in filters)], (
            seed,
            filters,
        )
    assert skipped > 25


def test_damage_of_what_is_filtered_out_fails_no_query(stored_archive: TieredArchive, tmp_path: Path) -> None:
    for folder in (*stored_archive.path.glob("plain-0-*"), *stored_archive.path.glob("codecs-0-*")):
        shutil.copytree(folder, tmp_path / folder.name)
    log = min(tmp_path.glob("codecs-*/*.log"))
    data = bytearray(log.read_bytes())
    data[100] ^= 1
    log.write_bytes(data)
    end = int(sorted(tmp_path.glob("codecs-*/*.log"))[1].name.partition("-")[0])
    with pytest.raises(DamagedSegmentError, match="checksum"):
        read(tmp_path, *NAMES)
    for filters in (
        [datasource.EqualTo(("topic",), "plain")],
        [datasource.EqualTo(("topic",), "codecs"), datasource.GreaterThanOrEqual(("offset",), end)],
    ):
        options, selection = narrowed(ReadOptions(), Selection(task_bytes=SMALL_TASK), filters)
        assert len(read(tmp_path, *NAMES, options=options, selection=selection)) > 100
