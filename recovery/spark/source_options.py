"""The options of the data source, read and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from recovery.archive.layouts.aiven_cipher import NO_KEYS, AivenKeys
from recovery.archive.layouts.layouts import AUTO, LAYOUTS
from recovery.archive.layouts.log_windows import MOST_BATCH_BYTES
from recovery.archive.records.offset_limits import EARLIEST, LATEST
from recovery.archive.records.read_options import Corrupt, ReadOptions
from recovery.archive.records.read_request import TASK_BYTES, TASK_SEGMENTS, Selection
from recovery.archive.records.record_schema import Include
from recovery.errors import UsageError
from recovery.spark import kafka_options
from recovery.spark.kafka_options import KafkaChoice, read_choice
from recovery.spark.option_reader import OptionReader
from segfmt.errors import FormatError
from segfmt.java_text import LONG_MAX
from segfmt.kafka_uuid import format_uuid, read_uuid

NAMES = (
    "path",
    "layout",
    "include",
    "topic",
    "partition",
    "topicId",
    "startOffset",
    "endOffset",
    "startTime",
    "endTime",
    "isolation",
    "corrupt",
    "failOnDataLoss",
    "controlRecords",
    "metadata",
    "aivenKeys",
    "maxBatchBytes",
    "taskBytes",
    "taskSegments",
    "timeIndex",
    "pushFilters",
)
"""The names of the options; Spark accepts them in upper and lower case."""
_OF_TABLES = "provider"
"""Spark gives it with the options of CREATE TABLE."""
_LEAST_BATCH_BYTES, _MOST_BATCH_BYTES = 1 << 16, 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What the options say.

    Attributes:
        path: URL of the archive.
        layout: its name, or auto.
        metadata: URLs of log dirs of the broker that made it.
        takes_filters: whether Spark may push filters down.
        is_kafka_style: partitions are chosen by the options of Spark's Kafka source, and the columns are its own.
        has_headers: with `headers` among these.
        most_offsets: of one micro-batch of a stream; None without a limit.
        ignored: given options that mean nothing here.
    """

    path: str
    layout: str = AUTO
    keys: AivenKeys = NO_KEYS
    metadata: tuple[str, ...] = ()
    read: ReadOptions
    selection: Selection
    takes_filters: bool = False
    is_kafka_style: bool = False
    has_headers: bool = False
    most_offsets: int | None = None
    ignored: tuple[str, ...] = ()

    @classmethod
    def read_from(cls, options: Mapping[str, str]) -> SourceOptions:
        """Return what *options* say.

        Raises:
            UsageError: an unknown option, or an invalid value.
        """
        reader = OptionReader(options)
        path = reader.text("path")
        if not path or reader.text(_OF_TABLES):
            raise UsageError(
                "path: name the archive by .load(URL) or the option `path`. In SQL: CREATE TEMPORARY VIEW ... USING; "
                "CREATE TABLE does not work, because Spark keeps no options of a table for a Python data source"
            )
        ignored = _refuse_unknown(options)
        choice = read_choice(reader)
        read = _read_options(reader)
        if choice is not None and read.include is Include.BATCHES:
            raise UsageError(
                "include=batches: subscribe, subscribePattern and assign give the records of Spark's Kafka source: "
                "choose by topic and partition"
            )
        return cls(
            path=path,
            layout=reader.one_of("layout", (AUTO, *LAYOUTS), AUTO),
            keys=reader.keys(),
            metadata=reader.several("metadata"),
            read=read,
            selection=_selection(reader, choice or KafkaChoice()),
            takes_filters=reader.flag("pushFilters", is_default=False),
            is_kafka_style=choice is not None,
            has_headers=reader.flag("includeHeaders", is_default=False),
            most_offsets=reader.number("maxOffsetsPerTrigger", 0, 1, LONG_MAX)
            if reader.text("maxOffsetsPerTrigger")
            else None,
            ignored=ignored,
        )

    def refuse_for_batch(self) -> None:
        """Refuse what only a stream may begin or end with.

        Raises:
            UsageError: there is such an option.
        """
        starts, ends = self.selection.starts, self.selection.ends
        if starts is not None and not starts.are_times and LATEST in starts.values():
            raise UsageError(f"{starts.option}: a batch query cannot begin at the latest offset")
        if ends is not None and not ends.are_times and EARLIEST in ends.values():
            raise UsageError(f"{ends.option}: a batch query cannot end at the earliest offset")

    def refuse_for_stream(self) -> None:
        """Refuse what a stream cannot do.

        Raises:
            UsageError: there is such an option.
        """
        if self.selection.ends is not None:
            raise UsageError(
                f"{self.selection.ends.option}: a stream has no end: use trigger(availableNow=True)"
            )
        if self.read.include is Include.BATCHES:
            raise UsageError(
                "include=batches: a stream gives records, because a micro-batch may end within a batch"
            )
        if self.read.corrupt is Corrupt.INCLUDE:
            raise UsageError(
                "corrupt=include: a stream would repeat the rows that stand for damage, which have no offset of their "
                "own: use fail or skip"
            )


def _refuse_unknown(options: Mapping[str, str]) -> tuple[str, ...]:
    """Return the options that mean nothing here, and refuse those that nobody knows."""
    known_names = {name.lower() for name in (*NAMES, *kafka_options.NAMES)}
    ignored = []
    for name in options:
        if name.lower() in known_names:
            continue
        if not kafka_options.is_ignored(name):
            raise UsageError(
                f"{name}: no option of this source; the options are {', '.join(NAMES)}, and those of Spark's Kafka "
                "source"
            )
        ignored.append(name)
    return tuple(sorted(ignored))


def _read_options(reader: OptionReader) -> ReadOptions:
    isolation = kafka_options.ISOLATION if reader.text(kafka_options.ISOLATION) else "isolation"
    levels = ("read_uncommitted", "read_committed")
    return ReadOptions(
        include=reader.member("include", Include, Include.RECORDS),
        corrupt=reader.member("corrupt", Corrupt, Corrupt.FAIL),
        lost=_lost(reader),
        is_committed=reader.one_of(isolation, levels, levels[0]) == levels[1],
        has_control_records=reader.flag("controlRecords", is_default=False),
        lowest_offset=reader.offset("startOffset"),
        highest_offset=_before(reader.offset("endOffset")),
        lowest_timestamp_ms=reader.time_ms("startTime"),
        highest_timestamp_ms=_before(reader.time_ms("endTime")),
        most_batch_bytes=reader.number(
            "maxBatchBytes", MOST_BATCH_BYTES, _LEAST_BATCH_BYTES, _MOST_BATCH_BYTES
        ),
    )


def _lost(reader: OptionReader) -> Corrupt | None:
    """Return what is done about missing offsets, None if the option for it is not given."""
    if not reader.text("failOnDataLoss"):
        return None
    return Corrupt.FAIL if reader.flag("failOnDataLoss", is_default=True) else Corrupt.SKIP


def _selection(reader: OptionReader, choice: KafkaChoice) -> Selection:
    topics, partitions = reader.several("topic"), reader.several("partition")
    return Selection(
        topics=frozenset(topics) if topics else choice.topics,
        partitions=frozenset(map(_partition, partitions)) if partitions else None,
        pattern=choice.pattern,
        assigned=choice.assigned,
        topic_ids=_topic_ids(reader.several("topicId")),
        starts=choice.starts,
        ends=choice.ends,
        task_bytes=reader.number("taskBytes", TASK_BYTES, 1, 1 << 40),
        task_segments=reader.number("taskSegments", TASK_SEGMENTS, 1, 1 << 20),
        uses_time_index=reader.flag("timeIndex", is_default=True),
    )


def _topic_ids(texts: tuple[str, ...]) -> frozenset[str] | None:
    """Return the ids; none for all of them, None without the option."""
    if not texts:
        return None
    if texts == ("all",):
        return frozenset()
    try:
        return frozenset(format_uuid(read_uuid(text)) for text in texts)
    except FormatError as error:
        raise UsageError(f"topicId={','.join(texts)}: {error}: expected ids of topics, or all") from None


def _before(end: int | None) -> int | None:
    return None if end is None else end - 1


def _partition(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise UsageError(f"partition={text}: expected numbers separated by commas")
    return int(text)
