"""Archived segments as a stream: `spark.readStream.format("kafka-log-segments")` over an archive that grows.

Each trigger lists the archive and finds where each partition ends; a micro-batch is what lies between two such ends
(`stream_offsets`). A batch that is run again reads the same offsets, or fails, so nothing is lost or repeated over
restarts.

Spark: DataSourceStreamReader; KafkaMicroBatchStream for the limit on a batch.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from recovery.archive.layouts.layouts import layout_of
from recovery.archive.records.archive_ends import ArchiveEnds, PartitionSpan
from recovery.archive.records.broker_view import BrokerView
from recovery.archive.records.offset_limits import EARLIEST, Incarnation
from recovery.archive.records.offset_range import lose
from recovery.archive.records.read_request import ReadRequest
from recovery.archive.stores.stores import open_store
from recovery.errors import UsageError
from recovery.spark.seen_selection import SeenSelection
from recovery.spark.source_options import SourceOptions
from recovery.spark.stream_offsets import Covered, Json, StreamOffsets, limits

if TYPE_CHECKING:
    import pyarrow as pa

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

    _HAS_LIMITS = True
except ImportError:  # before Spark 4.2, which asks for the latest offset without telling the start
    _HAS_LIMITS = False

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]  # Spark then keeps the first latest offset itself
        """Nothing."""


_log = logging.getLogger(__name__)


class BatchReader(Protocol):
    """Reads what options select, at once."""

    def request(self, layout: str) -> ReadRequest:
        """Return what is read."""
        ...

    def partitions(self) -> list[InputPartition]:
        """Return the tasks."""
        ...

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task."""
        ...


class SegmentStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Finds what is new on the driver; tasks are those of a batch.

    Args:
        options: of the source.
        reader_of: makes the reader of a batch with such options.

    Raises:
        UsageError: an option that this version of Spark does not support.
    """

    def __init__(self, options: SourceOptions, reader_of: Callable[[SourceOptions], BatchReader]) -> None:
        if options.most_offsets is not None and not _HAS_LIMITS:
            raise UsageError(
                "maxOffsetsPerTrigger: needs Spark 4.2 or newer, which tells a source where a batch begins"
            )
        self._options = options
        self._reader_of = reader_of
        self._begun = StreamOffsets()
        self._target: dict[Incarnation, int] | None = None

    # -- offsets ---------------------------------------------------------------------------------------------

    def initialOffset(self) -> Json:  # noqa: N802 - Spark's name
        """Return where a new query begins: nothing for partitions that are read from their beginning.

        Spark before 4.2 may have asked for the latest offset already.
        """
        initial = StreamOffsets()
        if self._options.selection.starts is not None:
            for span in self._spans(self._options, is_checked=True):
                if span.start_offset is not None:
                    initial[span.key] = Covered(span.start_offset)
        if not len(self._begun):
            self._begun = StreamOffsets.from_json(initial.to_json())
        return initial.to_json()

    def latestOffset(self, start: Json | None = None, limit: ReadLimit | None = None) -> Json:  # noqa: N802 - Spark's name
        """Return where the next batch ends, at most *limit* offsets after *start*; Spark before 4.2 gives neither.

        Raises:
            UsageError: the archive has another topic of the name, or ends before what was read of it.
        """
        begun = StreamOffsets.from_json(self._begun.to_json() if start is None else start)
        spans = self._spans(self._beyond(begun), is_checked=not len(begun))
        shares: list[_Share] = []
        for span in spans:
            known = begun.of(span.key)
            self._judge(span, begun)
            end_offset = span.end_offset
            if self._target is not None:
                if known is None and span.key not in self._target:
                    continue
                end_offset = min(end_offset, self._target.get(span.key, end_offset))
            first = span.first_offset if known is None else known.first
            begin = max(span.first_offset, first if known is None else known.begin)
            shares.append(_Share(begun.same(span.key), first, begin, max(begin, end_offset)))
        if limit is not None and not isinstance(limit, ReadAllAvailable):
            assert isinstance(limit, ReadMaxRows)  # the only one that is ever asked for
            shares = _limited(shares, limit.max_rows)
        for share in shares:
            begun[share.key] = Covered(share.first, share.end)
        return begun.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit by `maxOffsetsPerTrigger`."""
        most = self._options.most_offsets
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Note what there is now: this run of the query ends there."""
        self._target = {span.key: span.end_offset for span in self._spans(self._beyond(StreamOffsets()))}

    # -- batches ---------------------------------------------------------------------------------------------

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        """Return the tasks of a micro-batch.

        Raises:
            UsageError: the archive has lost what was not read yet.
        """
        begun, ends = StreamOffsets.from_json(start), StreamOffsets.from_json(end)
        self._begun = StreamOffsets.from_json(end)
        begins: dict[Incarnation, int] = {}
        due: dict[Incarnation, int] = {}
        for key, covered in ends.items():
            known = begun.of(key)
            if known is None:  # Spark before 4.2 does not ask `latestOffset` with what was read
                self._judge_topic(key, begun, is_live=bool(self._options.metadata))
            begin = covered.first if known is None or known.next is None else known.next
            if covered.begin < begin:
                self._lose_end(key, covered.begin, begin)
            elif covered.begin > begin:
                begins[key], due[key] = begin, covered.begin
        if not due:
            return []
        selection = replace(
            self._options.selection, starts=limits(begins, otherwise=EARLIEST), ends=limits(due, otherwise=0)
        )
        return self._reader_of(replace(self._options, selection=selection)).partitions()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task."""
        return self._reader_of(self._options).read(partition)

    # -- the archive -----------------------------------------------------------------------------------------

    def _beyond(self, begun: StreamOffsets) -> SourceOptions:
        """Return options for what follows *begun*."""
        starts = limits({key: covered.begin for key, covered in begun.items()}, otherwise=EARLIEST)
        return replace(self._options, selection=replace(self._options.selection, starts=starts))

    def _judge(self, span: PartitionSpan, begun: StreamOffsets) -> None:
        """Judge whether a partition is the one that was read before, and still has what was read of it."""
        known = begun.of(span.key)
        if known is not None:
            if span.end_offset < known.begin:
                self._lose_end(span.key, span.end_offset, known.begin)
        else:
            self._judge_topic(span.key, begun, is_live=span.is_live)

    def _judge_topic(self, key: Incarnation, begun: StreamOffsets, *, is_live: bool) -> None:
        """Judge whether a partition that was not read before is of the topic that was read."""
        topic, partition, topic_id = key
        others = begun.ids(topic) - {topic_id}
        is_chosen = self._options.selection.topic_ids is not None or is_live
        is_unclear = not topic_id and begun.has_partition(key)
        if not is_unclear and (not topic_id or not others or is_chosen):
            return
        text = (
            f"{topic}-{partition}: the archive has the topic {topic_id or 'without an id'}, the stream has read "
            f"{', '.join(sorted(others))}: the topic was created again, or another archive is read"
        )
        remedy = "bring that archive back, choose by topicId=ID, or begin anew with another checkpoint"
        _log.warning(lose(self._options.read, text, remedy))

    def _lose_end(self, key: Incarnation, end_offset: int, known: int) -> None:
        """Fail, or warn, because a partition ends before what was read of it."""
        topic, partition, topic_id = key
        text = (
            f"{topic}-{partition}{f' of the topic {topic_id}' if topic_id else ''}: the archive ends at offset "
            f"{end_offset}, the stream has read up to {known}: segments are lost or damaged, or the topic was created "
            "again"
        )
        remedy = "bring the segments back, or begin anew with another checkpoint"
        _log.warning(lose(self._options.read, text, remedy))

    def _spans(self, options: SourceOptions, *, is_checked: bool = False) -> list[PartitionSpan]:
        """Return what the archive has of each partition; where *is_checked*, what is selected must be there."""
        selection = options.selection
        seen = SeenSelection(selection, options.is_kafka_style)
        with ExitStack() as stack:
            broker = None
            if options.metadata:
                broker = stack.enter_context(BrokerView(open_store(url) for url in options.metadata))
            spans = list(self._archive.find(selection, broker, on_seen=seen.note, on_note=_log.warning))
        if is_checked:
            seen.refuse_missing(options.path)
        return spans

    @cached_property
    def _archive(self) -> ArchiveEnds:
        store = open_store(self._options.path)
        layout = layout_of(store, self._options.layout, self._options.keys)
        return ArchiveEnds(store, layout, self._reader_of(self._options).request(layout.name))


class _Share(NamedTuple):
    """What a micro-batch may read of a partition: the offsets from *begin* on and before *end*."""

    key: Incarnation
    first: int
    begin: int
    end: int


def _limited(shares: Sequence[_Share], most: int) -> list[_Share]:
    """Return ends that are *most* offsets after the starts together, a share for each partition by what it has."""
    total = sum(share.end - share.begin for share in shares)
    if total <= most:
        return list(shares)
    return [
        share._replace(end=min(share.end, share.begin + _part((share.end - share.begin) * most / total)))
        for share in shares
    ]


def _part(exact: float) -> int:
    """Return a part of the limit as a whole number; each partition with anything gets on. Spark: rateLimit."""
    return math.ceil(exact) if exact < 1 else math.floor(exact)
