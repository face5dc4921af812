"""Archived segments as a Spark data source: `spark.read.format("kafka-log-segments")`, and `USING` in SQL.

    from recovery.spark import data_source

    data_source.register(spark)
    spark.read.format("kafka-log-segments").option("topic", "orders").load("s3://bucket/archive")

docs/archives/dataframes.md has the options and the columns. Spark has no column pruning for such sources: the user's
schema selects the columns to make, and options say what to leave unread.

Spark can also push down the filters of a query, but 4.1 to 4.3 keep those of one scan for all later scans of the same
DataFrame or view: a query without filters, or with other ones, then silently misses rows. So this is off unless it is
requested by `pushFilters`.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from recovery.extras import SPARK, needed_for

with needed_for("recovery.spark.data_source", extras=SPARK):
    import cramjam
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceReader,
        DataSourceStreamReader,
        Filter,
        InputPartition,
    )

from recovery.archive.layouts.layouts import layout_of
from recovery.archive.records.broker_view import BrokerView
from recovery.archive.records.damage import LeftOut
from recovery.archive.records.read_plan import plan_reads
from recovery.archive.records.read_request import ReadRequest, SegmentRun
from recovery.archive.records.record_schema import kafka_schema, sql_schema
from recovery.archive.stores.stores import open_store
from recovery.spark.pushed_filters import narrowed
from recovery.spark.row_schema import RowSchema
from recovery.spark.seen_selection import SeenSelection
from recovery.spark.source_options import SourceOptions
from recovery.spark.stream_reader import SegmentStreamReader
from recovery.spark.worker import prepare_worker

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

NAME = "kafka-log-segments"
_MOST_WARNINGS = 20
_log = logging.getLogger(__name__)


def register(spark: SparkSession) -> None:
    """Make the data source known to a session, classic or of Spark Connect."""
    spark.dataSource.register(KafkaLogSegments)


class KafkaLogSegments(DataSource):
    """The data source.

    Args:
        options: see docs/archives/dataframes.md.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._options = SourceOptions.read_from(options)
        if self._options.ignored:
            _log.warning("ignored, as no broker is asked: %s", ", ".join(self._options.ignored))

    @classmethod
    def name(cls) -> str:
        """The name for `format` and `USING`."""
        return NAME

    def schema(self) -> str:
        """The columns for queries without a schema: all of them, or those of Spark's Kafka source with its options."""
        if self._options.is_kafka_style:
            return kafka_schema(has_headers=self._options.has_headers)
        return sql_schema(self._options.read.include)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of the columns in *schema*."""
        self._options.refuse_for_batch()
        kind = PushingReader if self._options.takes_filters else SegmentReader
        return kind(self._options, self._rows(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return the reader of a stream of the columns in *schema*."""
        self._options.refuse_for_stream()
        return SegmentStreamReader(self._options, partial(SegmentReader, schema=self._rows(schema)))

    def _rows(self, schema: StructType) -> RowSchema:
        options = self._options
        return RowSchema(schema, options.read.include, is_kafka_style=options.is_kafka_style)


class Task(InputPartition):
    """One task's share, packed: Spark wants all tasks in a list, and a million segments have many names.

    Args:
        layout: name of the archive's layout, which the reader in a task does not know: it is pickled before planning.
        runs: what is to be read.
    """

    def __init__(self, layout: str, runs: tuple[SegmentRun, ...]) -> None:
        super().__init__(bytes(cramjam.snappy.compress_raw(pickle.dumps((layout, runs), protocol=5))))

    @property
    def share(self) -> tuple[str, tuple[SegmentRun, ...]]:
        """Layout and runs."""
        share: tuple[str, tuple[SegmentRun, ...]] = pickle.loads(cramjam.snappy.decompress_raw(self.value))
        return share


class SegmentReader(DataSourceReader):
    """Plans on the driver, reads in tasks.

    Args:
        options: of the source.
        schema: of the rows.
    """

    def __init__(self, options: SourceOptions, schema: RowSchema) -> None:
        self._options = options
        self._requested = options.selection
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """Return the tasks: runs of segments of about `taskBytes`."""
        options = self._options
        store = open_store(options.path)
        layout = layout_of(store, options.layout, options.keys)
        wanted = self.request(layout.name)
        seen = SeenSelection(self._requested, options.is_kafka_style)
        with ExitStack() as stack:
            broker = None
            if options.metadata:
                broker = stack.enter_context(BrokerView(open_store(url) for url in options.metadata))
            planned = plan_reads(store, layout, wanted, broker, on_seen=seen.note, on_note=_log.warning)
            tasks: list[InputPartition] = [Task(layout.name, runs) for runs in planned]
        seen.refuse_missing(store.url)
        return tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task."""
        prepare_worker()
        if not isinstance(partition, Task):  # Spark's own, if there is nothing to read
            return
        from recovery.archive.records.archive_reader import read_task

        left_out = _LeftOutCount()
        layout, runs = partition.share
        schema = self._schema.arrow()
        for batch in read_task(self.request(layout), runs, schema, on_left_out=left_out.add):
            yield self._schema.finished(batch)
        left_out.log()

    def request(self, layout: str) -> ReadRequest:
        """Return what is read of an archive of this layout."""
        options = self._options
        return ReadRequest(
            url=options.path,
            layout=layout,
            keys=options.keys,
            options=options.read,
            selection=options.selection,
            needs_aborted=options.read.is_committed or "aborted" in self._schema.names,
        )


class PushingReader(SegmentReader):
    """A reader that takes the filters of a query from Spark. For a DataFrame that is read once."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Narrow what is read; Spark filters each row again."""
        _log.warning(
            "pushFilters: load this DataFrame anew for each query, and use it in one place of it: Spark keeps what was "
            "pushed down here for all its scans, which then silently miss rows"
        )
        # Spark's Kafka source has a timestamp for records without one, and these have none to skip segments by.
        usable = [one for one in filters if not (self._options.is_kafka_style and _is_of_time(one))]
        read, selection = narrowed(self._options.read, self._options.selection, usable)
        self._options = replace(self._options, read=read, selection=selection)
        return filters


def _is_of_time(query_filter: Filter) -> bool:
    return getattr(query_filter, "attribute", ()) == ("timestamp",)


class _LeftOutCount:
    """Logs what a task leaves out, and how much, to the executor's log."""

    def __init__(self) -> None:
        self._count = self._bytes = 0

    def add(self, left_out: LeftOut) -> None:
        if not left_out.is_damage:
            _log.info("left out what a broker has not finished writing: %s", left_out)
            return
        self._count += 1
        self._bytes += left_out.size_bytes
        if self._count <= _MOST_WARNINGS:
            _log.warning("left out: %s", left_out)

    def log(self) -> None:
        if self._count:
            _log.warning(
                "left out in this task: %d batches, stretches or gaps, %d bytes", self._count, self._bytes
            )
