"""The data source on real Spark: the counts of a real consumer, by DataFrames and SQL, and errors that say enough."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from recovery.spark import data_source
from tests.brokers.tiered_broker import TieredArchive
from tests.logs.aiven_archive import KEY_ID, finished_segments, store_segment, write_private_key
from tests.logs.samples import unpack
from tests.recovery.spark.patience import until_up

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def segments(spark: SparkSession, path: Path, schema: str = "", **options: object) -> DataFrame:
    data_source.register(spark)
    reader = spark.read.format("kafka-log-segments").options(
        **{name: str(one) for name, one in options.items()}
    )
    return (reader.schema(schema) if schema else reader).load(str(path))


def expected_of(archive: TieredArchive, isolation: str) -> dict[tuple[str, int], int]:
    found = {}
    for name, said in archive.expected["partitions"].items():
        topic, _, partition = name.rpartition("-")
        if said[isolation]["tiered"]["records"]:
            found[topic, int(partition)] = said[isolation]["tiered"]["records"]
    return found


@pytest.mark.every_spark
def test_counts_are_those_of_a_real_consumer(spark: SparkSession, stored_archive: TieredArchive) -> None:
    """At both isolation levels at once, by some dozen tasks, on each kind of Spark."""
    levels = ("read_uncommitted", "read_committed")
    first, second = (
        segments(
            spark,
            stored_archive.path,
            "topic STRING, partition INT, value BINARY",
            isolation=isolation,
            metadata=",".join(map(str, stored_archive.log_dirs)),
            taskBytes=200_000,
        ).selectExpr(f"'{isolation}' AS isolation", "topic", "partition", "value")
        for isolation in levels
    )
    found: dict[str, dict[tuple[str, int], int]] = {level: {} for level in levels}
    for row in first.union(second).groupBy("isolation", "topic", "partition").count().collect():
        found[row["isolation"]][row["topic"], row["partition"]] = row["count"]
    assert found == {isolation: expected_of(stored_archive, isolation) for isolation in levels}


@pytest.mark.parametrize("kind", ["standalone", "connect"])
def test_a_stream_gives_each_row_once(
    kind: str, request: pytest.FixtureRequest, stored_archive: TieredArchive, tmp_path: Path
) -> None:
    """As test_stream.py has it for `local`, over one growth."""
    spark: SparkSession = request.getfixturevalue(f"{kind}_spark")
    data_source.register(spark)
    source = next(stored_archive.path.glob("plain-0-*"))
    growing, rows = tmp_path / "archive" / source.name, tmp_path / "rows"
    growing.mkdir(parents=True)
    names = sorted(path.name for path in source.iterdir())
    for part in (names[: len(names) // 2], names):
        for name in part:
            shutil.copy(source / name, growing)
        stream = spark.readStream.format("kafka-log-segments").schema("offset BIGINT")
        writer = stream.load(str(growing.parent)).writeStream.format("parquet")
        writer = writer.options(path=str(rows), checkpointLocation=str(tmp_path / "checkpoint"))
        writer = writer.trigger(availableNow=True)
        until_up(lambda writer=writer: writer.start().awaitTermination())
    found = sorted(spark.read.parquet(str(rows)).collect())
    assert found == sorted(segments(spark, growing.parent, "offset BIGINT").collect())
    assert len(found) > 100


def test_encrypted_segments_need_their_key(
    local_spark: SparkSession, stored_archive: TieredArchive, tmp_path: Path
) -> None:
    topic, schema = "transactions", "partition INT, offset LONG, key BINARY, value BINARY"
    for segment, files in finished_segments(stored_archive.root, stored_archive.log_dirs, {topic}):
        store_segment(tmp_path / "archive", segment, files, is_compressed=True, is_encrypted=True)
    options = {"isolation": "read_committed", "metadata": ",".join(map(str, stored_archive.log_dirs))}
    plain = segments(local_spark, stored_archive.path, schema, topic=topic, **options)
    key = f"{KEY_ID}={write_private_key(tmp_path)}"
    opened = segments(local_spark, tmp_path / "archive", schema, aivenKeys=key, **options)
    rows = sorted(map(tuple, opened.collect()))
    assert rows == sorted(map(tuple, plain.collect()))
    assert len(rows) > 100
    for isolation in ("read_committed", "read_uncommitted"):
        without = segments(local_spark, tmp_path / "archive", schema, isolation=isolation, corrupt="skip")
        with pytest.raises(Exception, match=f"RSA key '{KEY_ID}', which was not given: .* aivenKeys"):
            without.collect()


def test_sql_by_hour(local_spark: SparkSession, stored_archive: TieredArchive) -> None:
    data_source.register(local_spark)
    local_spark.sql(
        f"CREATE TEMPORARY VIEW records (topic STRING, timestamp TIMESTAMP) USING `kafka-log-segments` "
        f"OPTIONS (path '{stored_archive.path}', topic 'plain,codecs', partition '0')"
    )
    rows = local_spark.sql(
        "SELECT topic, unix_seconds(date_trunc('HOUR', timestamp)) div 3600 AS hour, count(*) AS records "
        "FROM records GROUP BY ALL"
    ).collect()
    expected = {
        (topic, int(hour)): count
        for topic in ("plain", "codecs")
        for hour, count in stored_archive.expected["partitions"][f"{topic}-0"]["read_uncommitted"][
            "tiered_by_hour"
        ].items()
    }
    assert {(row["topic"], row["hour"]): row["records"] for row in rows} == expected


def test_views_and_tables(local_spark: SparkSession, stored_archive: TieredArchive) -> None:
    """Names in any case; a table of the catalog, for which Spark keeps no options, is an error in one sentence."""
    data_source.register(local_spark)
    options = f"OPTIONS (path '{stored_archive.path}', subscribe 'plain', includeHeaders 'true')"
    local_spark.sql(f"CREATE TEMPORARY VIEW whole USING `kafka-log-segments` {options}")
    local_spark.sql(
        f"CREATE TEMPORARY VIEW some (OFFSET BIGINT, timestampType INT) USING `kafka-log-segments` {options}"
    )
    joined = (
        "SELECT whole.Headers, some.TIMESTAMPTYPE FROM whole JOIN some USING (offset) WHERE Topic = 'plain'"
    )
    rows = local_spark.sql(joined).collect()
    assert {row["TIMESTAMPTYPE"] for row in rows} == {0}
    assert {bool(row["Headers"]) for row in rows} == {True, False}
    assert [] not in [row["Headers"] for row in rows]
    with pytest.raises(Exception, match=r"CREATE TABLE does not work"):
        local_spark.sql(f"CREATE TABLE kept USING `kafka-log-segments` {options}")
    local_spark.sql(f"CREATE TABLE typed (offset BIGINT) USING `kafka-log-segments` {options}")
    with pytest.raises(Exception, match=r"CREATE TABLE does not work"):
        local_spark.sql("SELECT count(*) FROM typed").collect()


def test_records_without_a_timestamp(local_spark: SparkSession, tmp_path: Path) -> None:
    """Null, but -1 ms where the columns are those of Spark's Kafka source; that is no row less for a pushed filter."""
    root = unpack("crashed-v0-v1", tmp_path).root
    own = segments(local_spark, root, topic="old-v0").selectExpr("timestamp", "timestamp_type").distinct()
    assert [tuple(row) for row in own.collect()] == [(None, -1)]
    with switched(local_spark, PUSHDOWN, "true"):
        frame = segments(local_spark, root, subscribe="old-v0", pushFilters="true")
        times = frame.filter("timestamp < TIMESTAMP '2020-01-01 00:00:00'").selectExpr(
            "unix_millis(timestamp) AS ms", "timestampType"
        )
        assert {tuple(row) for row in times.collect()} == {(-1, -1)}


def test_all_columns_have_what_the_schema_says(
    local_spark: SparkSession, stored_archive: TieredArchive
) -> None:
    """Spark compares the types of what a source gives with its schema; nulls and headers come through."""
    records = segments(local_spark, stored_archive.path, topic="plain").collect()
    assert {row["headers"][0]["key"] for row in records if row["headers"]} >= {"life"}
    assert any(row["key"] is None for row in records)
    assert any(row["value"] is None for row in records)
    batches = segments(local_spark, stored_archive.path, topic="codecs", include="batches")
    assert {row["codec"] for row in batches.collect()} == {"none", "gzip", "snappy", "lz4", "zstd"}
    assert sum(row["record_count"] for row in batches.filter("NOT is_control").collect()) == 2086
    assert segments(local_spark, stored_archive.path, "offset BIGINT", topic="plain").count() == 837


def test_what_is_wanted_is_said_by_options(local_spark: SparkSession, stored_archive: TieredArchive) -> None:
    options = {"topic": "plain", "partition": 0, "startOffset": 30, "endOffset": 90}
    offsets = segments(local_spark, stored_archive.path, "offset BIGINT", **options).collect()
    assert sorted(row["offset"] for row in offsets) == list(range(30, 90))
    times = segments(local_spark, stored_archive.path, "timestamp TIMESTAMP", topic="plain").collect()
    middle = sorted(row["timestamp"].timestamp() for row in times)[len(times) // 2]
    late = segments(
        local_spark, stored_archive.path, "offset BIGINT", topic="plain", startTime=round(middle * 1000)
    )
    assert late.count() == sum(row["timestamp"].timestamp() >= middle for row in times)


def test_filters_of_one_query_do_not_reach_another(
    local_spark: SparkSession, stored_archive: TieredArchive
) -> None:
    """As they do where a source takes them over: Spark plans such a source once for all scans of a DataFrame."""
    with switched(local_spark, PUSHDOWN, "true"):
        frame = segments(local_spark, stored_archive.path, "topic STRING, offset BIGINT")
        both = frame.filter("topic = 'plain'").union(frame.filter("topic = 'codecs'"))
        assert both.count() == 837 + 2086
        assert frame.filter("topic = 'plain'").count() == 837
        assert frame.filter("offset >= 2000").count() == 86
        assert frame.count() == 6970


def test_filters_leave_segments_unread_when_asked_to(
    local_spark: SparkSession, stored_archive: TieredArchive
) -> None:
    with switched(local_spark, PUSHDOWN, "true"):
        for condition, count in (
            ("topic = 'plain' AND partition IN (1, 7)", 432),
            ("offset >= 2000 AND timestamp >= TIMESTAMP '2020-01-01 00:00:00'", 86),
        ):
            whole = segments(local_spark, stored_archive.path, pushFilters="true", taskBytes=1)
            frame = whole.filter(condition)
            assert frame.count() == count
            assert frame.rdd.getNumPartitions() < 20
        nothing = segments(local_spark, stored_archive.path, topic="plain", pushFilters="true")
        assert nothing.filter("topic = 'nope'").count() == 0  # a query may ask for what is not there


def test_spark_keeps_what_it_pushed_for_later_scans(
    local_spark: SparkSession, stored_archive: TieredArchive
) -> None:
    """Why `pushFilters` is off by default. If this fails, Spark has mended it, and the default should change."""
    with switched(local_spark, PUSHDOWN, "true"):
        frame = segments(local_spark, stored_archive.path, "topic STRING", pushFilters="true")
        assert frame.filter("topic = 'plain'").count() == 837
        assert frame.count() == 837  # of 6970
        halves = frame.filter("topic = 'plain'").union(frame.filter("topic = 'codecs'"))
        assert halves.count() < 837 + 2086


def test_what_is_selected_must_be_there(local_spark: SparkSession, stored_archive: TieredArchive) -> None:
    for options, words in (
        ({"topic": "plain,nope"}, "topic=nope: not found in /.*; existing topics: codecs, "),
        ({"topic": "plain", "partition": "0,7"}, "partition=7: none of the topics that are read has it"),
    ):
        with pytest.raises(Exception, match=words):
            segments(local_spark, stored_archive.path, "offset BIGINT", **options).count()


def test_errors_say_what_and_where(local_spark: SparkSession, tmp_path: Path) -> None:
    root = unpack("intact", tmp_path).root
    folder = next(root.glob("d?/plain-0"))
    log = sorted(folder.glob("*.log"))[0]
    data = bytearray(log.read_bytes())
    data[100] ^= 1
    log.write_bytes(data)
    for expected, schema, options in (
        ("checksum: batch at offset 0", "value BINARY", {}),
        ("offset: the given schema has type int, the column is bigint", "offset INT", {}),
        ("no option of this source", "", {"topics": "plain"}),
    ):
        with pytest.raises(Exception, match=expected):
            segments(local_spark, folder, schema, **options).count()
    skipped = segments(local_spark, folder, "offset BIGINT", corrupt="skip").count()
    included = segments(local_spark, folder, "fault STRING", corrupt="include")
    assert included.filter("fault IS NULL").count() == skipped > 0
    assert included.filter("fault LIKE 'checksum%'").count() > 0
    batches = segments(local_spark, folder, include="batches")
    assert [row["position"] for row in batches.filter("NOT crc_valid").collect()] == [0]


@contextmanager
def switched(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.unset(name)
