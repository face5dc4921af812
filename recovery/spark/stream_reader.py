"""Archived segments as a stream: `spark.readStream.format("kafka-log-segments")` over an archive that grows.

Each trigger lists the archive and finds where each partition ends; a micro-batch is what lies between two such ends.
The offsets in the checkpoint are `{topic: {topic id: {partition: next offset}}}`, and a batch that is run again reads
the same offsets, so nothing is lost or repeated over restarts.

Spark: DataSourceStreamReader; KafkaMicroBatchStream for the limit on a batch.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from recovery.archive.layouts.layouts import layout_of
from recovery.archive.records.archive_ends import ArchiveEnds, PartitionSpan
from recovery.archive.records.broker_view import BrokerView
from recovery.archive.records.offset_limits import EARLIEST, Incarnation, OffsetLimits
from recovery.archive.records.read_request import ReadRequest
from recovery.archive.stores.stores import open_store
from recovery.errors import UsageError
from recovery.spark.seen_selection import SeenSelection
from recovery.spark.source_options import SourceOptions

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

_CHECKPOINT = "the checkpoint"
Ends = dict[Incarnation, int]
_Json = dict[str, dict[str, dict[str, int]]]


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
        self._target: Ends | None = None

    # -- offsets ---------------------------------------------------------------------------------------------

    def initialOffset(self) -> _Json:  # noqa: N802 - Spark's name
        """Return where a new query begins: nothing for partitions that are read from their beginning."""
        if self._options.selection.starts is None:
            return {}
        spans = self._spans(self._options, is_checked=True)
        return _to_json({span.key: span.start_offset for span in spans if span.start_offset is not None})

    def latestOffset(self, start: _Json | None = None, limit: ReadLimit | None = None) -> _Json:  # noqa: N802 - Spark's name
        """Return where the next batch ends, at most *limit* offsets after *start*; Spark before 4.2 gives neither."""
        begun = _from_json(start or {})
        spans = self._spans(self._beyond(begun), is_checked=not begun)
        ends = {span.key: max(span.end_offset, _known(begun, span.key) or 0) for span in spans}
        if self._target is not None:
            ends = {key: min(end, self._target.get(key, 0)) for key, end in ends.items()}
            ends = {
                key: max(end, _known(begun, key) or 0) for key, end in ends.items() if end or key in begun
            }
        if limit is not None and not isinstance(limit, ReadAllAvailable):
            assert isinstance(limit, ReadMaxRows)  # the only one that is ever asked for
            ends = _limited(ends, begun, spans, limit.max_rows)
        known = {(topic, partition) for topic, partition, _ in ends}
        kept = {key: offset for key, offset in begun.items() if key[2] or key[:2] not in known}
        return _to_json(kept | ends)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit by `maxOffsetsPerTrigger`."""
        most = self._options.most_offsets
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Note what there is now: this run of the query ends there."""
        self._target = {span.key: span.end_offset for span in self._spans(self._beyond({}))}

    # -- batches ---------------------------------------------------------------------------------------------

    def partitions(self, start: _Json, end: _Json) -> Sequence[InputPartition]:
        """Return the tasks of a micro-batch.

        Raises:
            UsageError: the archive has lost what was not read yet.
        """
        begun, ends = _from_json(start), _from_json(end)
        due = {key: offset for key, offset in ends.items() if offset > (_known(begun, key) or 0)}
        if not due:
            return []
        read = {key[:2] for key in due}
        options = self._beyond({key: offset for key, offset in begun.items() if key[:2] in read})
        limits = OffsetLimits(option=_CHECKPOINT, by_incarnation=due, otherwise=0)
        return self._reader_of(
            replace(options, selection=replace(options.selection, ends=limits))
        ).partitions()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task."""
        return self._reader_of(self._options).read(partition)

    # -- the archive -----------------------------------------------------------------------------------------

    def _beyond(self, begun: Ends) -> SourceOptions:
        """Return options for what follows *begun*."""
        limits = OffsetLimits(option=_CHECKPOINT, by_incarnation=begun, otherwise=EARLIEST)
        return replace(self._options, selection=replace(self._options.selection, starts=limits))

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


def _limited(ends: Ends, begun: Ends, spans: Sequence[PartitionSpan], most: int) -> Ends:
    """Return ends that are *most* offsets after the starts together, a share for each partition by what it has."""
    starts = {}
    for span in spans:
        known = _known(begun, span.key)
        starts[span.key] = span.first_offset if known is None else max(known, span.first_offset)
    sizes = {key: max(end - starts[key], 0) for key, end in ends.items()}
    total = sum(sizes.values())
    if total <= most:
        return ends
    return {
        key: max(starts[key], min(end, starts[key] + _share(sizes[key] * most / total)))
        for key, end in ends.items()
    }


def _share(exact: float) -> int:
    """Return a share of the limit as a whole number; each partition with anything gets on. Spark: rateLimit."""
    return math.ceil(exact) if exact < 1 else math.floor(exact)


def _known(offsets: Ends, key: Incarnation) -> int | None:
    """Return the offset of a partition, whose topic's id may not have been known before."""
    offset = offsets.get(key)
    return offsets.get((*key[:2], "")) if offset is None else offset


def _from_json(offsets: Mapping[str, Any]) -> Ends:
    return {
        (topic, int(partition), topic_id): offset
        for topic, by_id in offsets.items()
        for topic_id, by_partition in by_id.items()
        for partition, offset in by_partition.items()
    }


def _to_json(offsets: Mapping[Incarnation, int]) -> _Json:
    found: _Json = {}
    for (topic, partition, topic_id), offset in sorted(offsets.items()):
        found.setdefault(topic, {}).setdefault(topic_id, {})[str(partition)] = offset
    return found
