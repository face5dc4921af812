"""Streams over an archive that grows: each row once, whatever ends the query between two batches or in one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from recovery.spark import data_source
from tests.brokers.tiered_broker import TieredArchive
from tests.recovery.spark.patience import until_up

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = pytest.mark.spark

SCHEMA = "topic STRING, partition INT, offset BIGINT"
TOPICS = ("plain", "codecs")
Row = tuple[str, int, int]


class Growing:
    """An archive to which the segments of another are added, and a query that reads it."""

    def __init__(self, spark: SparkSession, source: Path, work_dir: Path) -> None:
        self._spark = spark
        self._source = source
        self.path = work_dir / "archive"
        self.checkpoint = work_dir / "checkpoint"
        self.batches: dict[int, list[Row]] = {}
        data_source.register(spark)

    def add(self, share: float) -> None:
        """Add segments until each partition has this share of them, and one whose upload is under way."""
        for topic in TOPICS:
            for folder in self._source.glob(f"{topic}-*"):
                target = self.path / folder.name
                target.mkdir(parents=True, exist_ok=True)
                names = sorted({path.name.partition(".")[0] for path in folder.iterdir()})
                count = round(len(names) * share)
                for at, name in enumerate(names[: count + 1]):
                    for path in folder.glob(f"{name}.*"):
                        if at < count or path.suffix == ".log":
                            shutil.copy(path, target)

    def rows(self) -> list[Row]:
        """All rows by a batch query over the whole archive."""
        reader = self._spark.read.format("kafka-log-segments").schema(SCHEMA)
        return as_rows(reader.option("topic", ",".join(TOPICS)).load(str(self._source)))

    def start(
        self,
        take: Callable[[DataFrame, int], None] | None = None,
        trigger: dict[str, Any] | None = None,
        **options: Any,
    ) -> StreamingQuery:
        reader = self._spark.readStream.format("kafka-log-segments").schema(SCHEMA)
        choice = {} if "subscribe" in options else {"topic": ",".join(TOPICS)}
        named = {"layout": "local-tiered"} | choice | options
        frame = reader.options(**named).load(str(self.path))
        writer = frame.writeStream.option("checkpointLocation", str(self.checkpoint))
        return writer.foreachBatch(take or self._take).trigger(**trigger or {"availableNow": True}).start()

    def _take(self, batch: DataFrame, number: int) -> None:
        self.batches[number] = as_rows(batch)

    @property
    def taken(self) -> list[Row]:
        return sorted(row for rows in self.batches.values() for row in rows)

    def offsets(self) -> dict[str, Any]:
        """The offsets that the checkpoint ends with."""
        last = max((self.checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
        found: dict[str, Any] = json.loads(last.read_text().splitlines()[-1])
        return found


def as_rows(frame: DataFrame) -> list[Row]:
    return sorted((row["topic"], row["partition"], row["offset"]) for row in frame.collect())


@pytest.fixture
def growing(local_spark: SparkSession, stored_archive: TieredArchive, tmp_path: Path) -> Growing:
    return Growing(local_spark, stored_archive.path, tmp_path)


@pytest.mark.every_spark
def test_each_row_comes_once_while_the_archive_grows(growing: Growing, local_spark: SparkSession) -> None:
    tells_start = local_spark.version >= "4.2"
    limit = {"maxOffsetsPerTrigger": 400} if tells_start else {}
    for share in (0.3, 0.3, 0.6):
        growing.add(share)
        until_up(lambda: growing.start(**limit).awaitTermination())
    sizes = [len(rows) for rows in growing.batches.values()]
    assert len(sizes) > 3 or not tells_start
    assert max(sizes) <= 400 + 2 * len(TOPICS) or not tells_start

    def catch_up() -> None:
        query = growing.start(trigger={"processingTime": "0 seconds"})
        growing.add(0.8)
        query.processAllAvailable()
        query.stop()

    until_up(catch_up)
    assert len(growing.taken) > sum(sizes)
    fails_in = max(growing.batches) + 1

    def fail(batch: DataFrame, number: int) -> None:
        as_rows(batch)
        raise RuntimeError("in the middle of a batch")

    growing.add(1)
    with pytest.raises(Exception, match="in the middle of a batch"):
        until_up(lambda: growing.start(fail).awaitTermination())
    assert max(growing.batches) < fails_in
    until_up(lambda: growing.start().awaitTermination())
    assert growing.taken == growing.rows()
    offsets = growing.offsets()
    assert set(offsets) == set(TOPICS)
    (topic_id,) = offsets["plain"]
    assert len(topic_id) == 22
    ends = {
        (topic, int(at)): covered["next"]
        for topic in TOPICS
        for at, covered in next(iter(offsets[topic].values())).items()
    }
    assert ends.keys() == {row[:2] for row in growing.taken}
    for (topic, partition), end in ends.items():
        assert end > max(row[2] for row in growing.taken if row[:2] == (topic, partition))


def test_a_new_query_begins_where_it_is_told(growing: Growing) -> None:
    growing.add(0.3)
    begins = json.dumps({"plain": {"0": 40, "1": -1}, "codecs": {"0": -2}})
    until_up(lambda: growing.start(subscribe=",".join(TOPICS), startingOffsets=begins).awaitTermination())
    growing.add(1)
    until_up(lambda: growing.start(subscribe=",".join(TOPICS), startingOffsets=begins).awaitTermination())
    taken, rows = growing.taken, growing.rows()
    (first, *_) = (row[2] for row in taken if row[:2] == ("plain", 1))
    assert first > 40
    assert taken == [row for row in rows if row[2] >= {("plain", 0): 40, ("plain", 1): first}.get(row[:2], 0)]


def test_segments_that_vanish_before_they_are_read_end_the_query(growing: Growing) -> None:
    growing.add(0.3)
    until_up(lambda: growing.start().awaitTermination())
    growing.add(1)
    for folder in growing.path.glob("plain-0-*"):
        for name in sorted({path.name.partition(".")[0] for path in folder.iterdir()})[:-1]:
            for path in folder.glob(f"{name}.*"):
                path.unlink()
    with pytest.raises(Exception, match=r"plain-0: offsets \d+ to \d+ were deleted from the archive"):
        until_up(lambda: growing.start().awaitTermination())
    before = growing.taken
    until_up(lambda: growing.start(failOnDataLoss="false").awaitTermination())
    expected, taken = growing.rows(), growing.taken
    assert len(before) < len(taken) < len(expected)
    assert set(taken) < set(expected)
    assert taken[-1] == expected[-1]


def test_what_a_stream_cannot_do_is_said(growing: Growing) -> None:
    growing.add(0.3)
    for options, words in (
        ({"include": "batches"}, "include=batches: a stream gives records"),
        ({"corrupt": "include"}, "corrupt=include: a stream would repeat"),
        ({"topic": "nope"}, "topic=nope: not found in"),
    ):
        with pytest.raises(Exception, match=words):
            until_up(lambda options=options: growing.start(**options).awaitTermination())
