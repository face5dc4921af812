"""Options and filters as what is wanted; no Spark runs."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pyspark.sql import datasource
from pyspark.sql.types import ArrayType, BinaryType, LongType, StringType, StructField, StructType

from recovery.archive.records.offset_limits import EARLIEST, OffsetLimits
from recovery.archive.records.read_options import Corrupt, ReadOptions
from recovery.archive.records.read_request import Selection
from recovery.archive.records.record_schema import Include
from recovery.archive.stores.archived import PartitionPrefix
from recovery.errors import UsageError
from recovery.spark.pushed_filters import narrowed
from recovery.spark.row_schema import RowSchema
from recovery.spark.source_options import SourceOptions


class TestOptions:
    def test_have_defaults(self) -> None:
        options = SourceOptions.read_from({"path": "/archive"})
        assert (options.layout, options.metadata, options.takes_filters) == ("auto", (), False)
        assert options.read == ReadOptions(include=Include.RECORDS, corrupt=Corrupt.FAIL)
        assert options.selection == Selection()

    def test_missing_offsets_are_treated_as_damage_unless_told_otherwise(self) -> None:
        for value, lost in (("", None), ("true", Corrupt.FAIL), ("false", Corrupt.SKIP)):
            options = SourceOptions.read_from({"path": "a", "failOnDataLoss": value})
            assert (options.read.corrupt, options.read.lost) == (Corrupt.FAIL, lost)

    def test_are_read_in_any_case(self) -> None:
        options = SourceOptions.read_from(
            {
                "PATH": "s3://bucket/archive",
                "Topic": "orders, invoices",
                "partition": "0,7",
                "ISOLATION": "read_committed",
                "startoffset": "10",
                "endOffset": "20",
                "startTime": "2026-11-22T06:00:00.0001Z",
                "endTime": "1795327200000",
                "maxBatchBytes": "1048576",
            }
        )
        assert options.selection.topics == {"orders", "invoices"}
        assert options.selection.partitions == {0, 7}
        read = options.read
        assert (read.is_committed, read.most_batch_bytes) == (True, 1 << 20)
        assert (read.lowest_offset, read.highest_offset) == (10, 19)
        assert (read.lowest_timestamp_ms, read.highest_timestamp_ms) == (1795327200001, 1795327199999)

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({}, "path: name the archive by"),
            ({"path": "a", "location": "a", "provider": "x"}, "path: name the archive by"),
            ({"path": "a", "topicId": "x"}, "topicId=x: "),
            ({"path": "a", "subscribe": "t", "topic": "t"}, "subscribe and topic say the same in two styles"),
            (
                {"path": "a", "kafka.isolation.level": "x", "isolation": "y"},
                "kafka.isolation.level and isolation",
            ),
            (
                {"path": "a", "subscribe": "t", "startOffset": "1", "startingTimestamp": "2"},
                "startingTimestamp and startOffset say the same",
            ),
            ({"path": "a", "startingOffsets": "earliest"}, "startingOffsets: belongs to subscribe"),
            ({"path": "a", "subscribe": "t", "assign": "{}"}, "subscribe, assign: give one of them"),
            ({"path": "a", "subscribePattern": "("}, "subscribePattern=(: not a regular expression"),
            ({"path": "a", "assign": '{"t":["0"]}'}, 'assign={"t":["0"]}: expected JSON such as'),
            (
                {"path": "a", "subscribe": "t", "startingOffsets": "first"},
                "startingOffsets=first: expected JSON",
            ),
            (
                {"path": "a", "subscribe": "t", "endingOffsets": '{"t":{"0":-3}}'},
                "endingOffsets: -3: expected",
            ),
            (
                {"path": "a", "subscribe": "t", "startingTimestamp": "noon"},
                "startingTimestamp: noon: expected",
            ),
            ({"path": "a", "subscribe": "t", "include": "batches"}, "include=batches: subscribe"),
            ({"path": "a", "topics": "t"}, "topics: no option of this source; the options are path, layout"),
            (
                {"path": "a", "layout": "flat"},
                "layout=flat: expected one of auto, plain, local-tiered, aiven",
            ),
            ({"path": "a", "corrupt": "ignore"}, "corrupt=ignore: expected one of fail, skip, include"),
            ({"path": "a", "partition": "x"}, "partition=x: expected numbers separated by commas"),
            ({"path": "a", "startTime": "noon"}, "startTime=noon: expected a time such as"),
            (
                {"path": "a", "endTime": "20261101"},
                "endTime=20261101: a day, or ms since the epoch? Write 2026-11-01",
            ),
            ({"path": "a", "maxBatchBytes": "1"}, "maxBatchBytes=1: expected a number from 65536"),
        ],
    )
    def test_that_cannot_be_are_named(self, options: dict[str, str], words: str) -> None:
        with pytest.raises(UsageError) as caught:
            SourceOptions.read_from(options)
        assert str(caught.value).startswith(words)


class TestKafkaOptions:
    def test_say_what_they_say_to_spark(self) -> None:
        options = SourceOptions.read_from(
            {
                "path": "a",
                "subscribepattern": "orders-.*",
                "startingOffsets": '{"orders-a":{"0":23,"1":-2}}',
                "endingTimestamp": "1795327200000",
                "endingOffsets": "latest",
                "includeHeaders": "TRUE",
                "kafka.isolation.level": "read_committed",
                "kafka.bootstrap.servers": "b:9092",
                "minPartitions": "4",
            }
        )
        selection = options.selection
        assert (options.is_kafka_style, options.has_headers, options.read.is_committed) == (True, True, True)
        assert options.ignored == ("kafka.bootstrap.servers", "minPartitions")
        assert selection.starts == OffsetLimits(
            option="startingOffsets", by_partition={("orders-a", 0): 23, ("orders-a", 1): EARLIEST}
        )
        assert selection.ends == OffsetLimits(
            option="endingTimestamp", everywhere=1795327200000, are_times=True
        )

    def test_choose_partitions(self) -> None:
        seen = [
            PartitionPrefix(prefix="", topic=topic, partition=at) for topic in ("a", "ab") for at in (0, 1)
        ]
        internal = ("__consumer_offsets", "__cluster_metadata")
        seen += [PartitionPrefix(prefix="", topic=topic, partition=0) for topic in internal]
        for name, value, expected in (
            ("subscribe", "a, b", {("a", 0), ("a", 1)}),
            ("subscribePattern", "a", {("a", 0), ("a", 1)}),
            ("subscribePattern", ".*b?", {("a", 0), ("a", 1), ("ab", 0), ("ab", 1)}),
            ("assign", '{"a":[1],"ab":[0]}', {("a", 1), ("ab", 0)}),
        ):
            selection = SourceOptions.read_from({"path": "p", name: value}).selection
            assert {(one.topic, one.partition) for one in seen if selection.has(one)} == expected


NOON = datetime(2026, 11, 22, 12, 0, 0, 500, tzinfo=UTC)
NOON_MS = 1795348800000


def column(name: str) -> tuple[str]:
    return (name,)


class TestFilters:
    @pytest.mark.parametrize(
        ("one", "read"),
        [
            (datasource.EqualTo(column("offset"), 5), ReadOptions(lowest_offset=5, highest_offset=5)),
            (datasource.In(column("offset"), (9, 4)), ReadOptions(lowest_offset=4, highest_offset=9)),
            (datasource.GreaterThan(column("base_offset"), 5), ReadOptions(lowest_offset=5)),
            (datasource.LessThanOrEqual(column("last_offset"), 5), ReadOptions(highest_offset=5)),
            (
                datasource.GreaterThanOrEqual(column("timestamp"), NOON),
                ReadOptions(lowest_timestamp_ms=NOON_MS),
            ),
            (datasource.LessThan(column("max_timestamp"), NOON), ReadOptions(highest_timestamp_ms=NOON_MS)),
            (datasource.GreaterThan(column("timestamp"), NOON.replace(tzinfo=None)), ReadOptions()),
            (datasource.Not(datasource.EqualTo(column("offset"), 5)), ReadOptions()),
            (datasource.EqualNullSafe(column("offset"), None), ReadOptions()),
            (datasource.GreaterThan(column("position"), 5), ReadOptions()),
            (datasource.GreaterThan(column("topic"), "a"), ReadOptions()),
        ],
    )
    def test_bound_what_is_read(self, one: datasource.Filter, read: ReadOptions) -> None:
        assert narrowed(ReadOptions(), Selection(), [one]) == (read, Selection())

    def test_of_topics_and_partitions_are_joined(self) -> None:
        filters = [
            datasource.In(column("topic"), ("a", "b")),
            datasource.EqualTo(column("topic"), "b"),
            datasource.In(column("partition"), (1, 2)),
        ]
        read, selection = narrowed(ReadOptions(), Selection(partitions=frozenset({2, 3})), filters)
        assert read == ReadOptions()
        assert (selection.topics, selection.partitions) == ({"b"}, {2})

    def test_of_a_range_are_joined(self) -> None:
        filters = [
            datasource.GreaterThanOrEqual(column("offset"), 5),
            datasource.LessThan(column("offset"), 50),
            datasource.LessThan(column("offset"), 40),
        ]
        read, _ = narrowed(ReadOptions(lowest_offset=10), Selection(), filters)
        assert (read.lowest_offset, read.highest_offset) == (10, 40)


HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType(), nullable=False)])


class TestSchema:
    @pytest.mark.parametrize(
        ("fields", "words"),
        [
            ([StructField("key", BinaryType(), nullable=False)], "key: the given schema says NOT NULL"),
            ([StructField("headers", ArrayType(HEADER))], "headers: the given schema says NOT NULL"),
            (
                [StructField(name, LongType()) for name in ("offset", "OFFSET")],
                "the given schema has a column twice: offset, OFFSET",
            ),
        ],
    )
    def test_that_gives_wrong_rows_is_refused(self, fields: list[StructField], words: str) -> None:
        with pytest.raises(UsageError, match=words):
            RowSchema(StructType(fields), Include.RECORDS, is_kafka_style=False)
