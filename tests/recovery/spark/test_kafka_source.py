"""A batch job for Spark's Kafka source, on a real broker, and the same job on a copy of its log dirs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from recovery.spark import data_source
from tests.brokers.broker import QUIET_PROPERTIES, Broker
from tests.logs.samples import Sample, unpack
from tests.servers.kafka_connector import kafka_connector
from tests.servers.s3_server import free_port

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.broker]

SHAPES = {"subscribe": "shapes, append-time, deleted-records", "includeHeaders": "True"}
CODECS = {"subscribePattern": "codec-(gzip|zstd)"}
TRANSACTIONS = {"assign": '{"transactions":[0,2]}'}
COMMITTED = TRANSACTIONS | {"kafka.isolation.level": "read_committed"}


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    return unpack("crashed", tmp_path_factory.mktemp("kafka-source"))


@pytest.fixture(scope="module")
def broker(sample: Sample, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """On the log dirs themselves, as a copy would be the same bytes; on ports that Spark's JVM sees."""
    with Broker(
        sample.log_dirs,
        work_dir=tmp_path_factory.mktemp("broker"),
        properties=dict(sample.properties) | QUIET_PROPERTIES,
        now_ms=sample.now_ms,
        ports=(free_port(), free_port()),
    ) as started:
        started.start()
        yield started


@pytest.fixture
def spark(local_spark: SparkSession) -> SparkSession:
    for jar in kafka_connector():
        local_spark.sql(f"ADD JAR '{jar}'")
    data_source.register(local_spark)
    return local_spark


def of_topic(spark: SparkSession, broker: Broker, **options: str) -> DataFrame:
    asked = {"kafka.bootstrap.servers": broker.bootstrap_servers, "kafkaConsumer.pollTimeoutMs": "5000"}
    return spark.read.format("kafka").options(**asked, **options).load()


def of_archive(spark: SparkSession, sample: Sample, **options: str) -> DataFrame:
    asked = {"kafka.bootstrap.servers": "nowhere:9092", "kafkaConsumer.pollTimeoutMs": "5000"}
    reader = spark.read.format("kafka-log-segments").options(**asked, **options)
    return reader.load(str(sample.root))


def rows_of(frame: DataFrame) -> list[Any]:
    return sorted(frame.collect(), key=lambda row: (row["topic"], row["partition"], row["offset"]))


def by_partition(**offsets: Any) -> str:
    return json.dumps({name.replace("_", "-"): {"0": offset} for name, offset in offsets.items()})


def test_the_same_rows_and_schema(spark: SparkSession, broker: Broker, sample: Sample) -> None:
    times = [
        row["ms"]
        for row in of_topic(spark, broker, subscribe="out-of-order")
        .selectExpr("unix_millis(timestamp) AS ms")
        .collect()
    ]
    low, middle = str(sorted(times)[len(times) // 3]), max(times[: len(times) // 2])
    for options, least in (
        (SHAPES, 500),
        (COMMITTED, 200),
        (TRANSACTIONS, 300),
        (CODECS | {"startingOffsets": "EARLIEST", "endingOffsets": "latest"}, 3000),
        (CODECS | {"startingOffsets": by_partition(codec_gzip=50, codec_zstd=-2)}, 3000),
        (CODECS | {"endingOffsets": by_partition(codec_gzip=1, codec_zstd=999)}, 1000),
        ({"subscribe": "out-of-order", "startingTimestamp": low, "endingTimestamp": str(middle)}, 10),
        ({"subscribe": "out-of-order", "endingOffsetsByTimestamp": by_partition(out_of_order=middle)}, 10),
        (
            {
                "subscribe": "out-of-order",
                "startingOffsetsByTimestamp": by_partition(out_of_order=max(times) + 1),
                "startingOffsetsByTimestampStrategy": "latest",
            },
            0,
        ),
    ):
        expected, found = of_topic(spark, broker, **options), of_archive(spark, sample, **options)
        assert found.schema == expected.schema, options
        rows = rows_of(expected)
        assert rows_of(found) == rows, options
        assert len(rows) >= least, (options, len(rows))


def test_what_spark_refuses_is_refused(spark: SparkSession, broker: Broker, sample: Sample) -> None:
    for options, words in (
        ({"subscribe": "codec-gzip", "startingOffsets": "latest"}, "cannot begin at the latest offset"),
        ({"subscribe": "codec-gzip", "endingOffsets": "earliest"}, "cannot end at the earliest offset"),
        (CODECS | {"startingOffsets": by_partition(codec_gzip=1)}, "codec-zstd-0 is read and not named"),
        ({"subscribe": "nosuch"}, "subscribe=nosuch: not found"),
        ({"subscribe": "codec-gzip", "assign": '{"codec-gzip":[0]}'}, "give one of them"),
        ({"subscribe": "codec-gzip", "startingOffsets": by_partition(codec_zstd=1)}, "codec-gzip-0 is read"),
        ({"subscribe": "deleted-records", "startingOffsets": by_partition(deleted_records=3)}, "begins at"),
        ({"subscribe": "shapes", "endingOffsets": by_partition(shapes=10**6)}, "ends before offset 1000000"),
        ({"subscribe": "shapes", "startingTimestamp": "9" * 15}, "no record of 9{15} ms or later"),
    ):
        with pytest.raises(Exception):  # noqa: B017 - whatever Spark says
            of_topic(spark, broker, **options).collect()
        with pytest.raises(Exception, match=words):
            of_archive(spark, sample, **options).collect()
