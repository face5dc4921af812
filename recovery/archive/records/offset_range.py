"""Where reading begins and ends in a partition: limits in the terms of Spark's Kafka source, as offsets of its archive.

An offset that the archive does not have is an error, as it is for a topic: the archive may end long before the topic.

Kafka: UnifiedLog.fetchOffsetByTimestamp. Spark: KafkaOffsetReaderAdmin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from recovery.archive.records.archive_reader import read_task
from recovery.archive.records.damage import LeftOut
from recovery.archive.records.log_tails import LogTails
from recovery.archive.records.offset_limits import (
    EARLIEST,
    LATEST,
    Incarnation,
    OffsetLimits,
    TopicPartition,
    meant_id,
)
from recovery.archive.records.read_options import Corrupt, ReadOptions
from recovery.archive.records.read_request import OffsetRange, PlannedSegments, ReadRequest, SegmentRun
from recovery.archive.records.record_schema import Include
from recovery.archive.stores.archived import PartitionPrefix
from recovery.errors import UsageError

NOTHING = OffsetRange(end=0)
"""What begins at the end, wherever that is."""


class OffsetLookup:
    """Looks up offsets in the segments of one partition.

    Args:
        request: what is read.
        where: the partition.
        topic_id: of its topic, empty if it is not known.
        planned: its segments.
        start_offset: the log start offset, None if not known.
        last_stable_offset: where a consumer of committed records ends, None without an open transaction.
        runs_of: makes the runs for some of the segments, by their rows.
        tails: of the logs of the archive.

    Attributes:
        lost_line: what a stream will miss of the partition, if the query goes on without it; empty for nothing.
    """

    def __init__(
        self,
        request: ReadRequest,
        where: PartitionPrefix,
        topic_id: str,
        planned: PlannedSegments,
        *,
        start_offset: int | None,
        last_stable_offset: int | None,
        runs_of: Callable[[Sequence[int]], list[SegmentRun]],
        tails: LogTails,
    ) -> None:
        self._request = request
        self._where = where
        self._topic_id = topic_id
        self._planned = planned
        self._start_offset = start_offset
        self._last_stable_offset = last_stable_offset
        self._runs_of = runs_of
        self._tails = tails
        self.lost_line = ""

    def range(self) -> OffsetRange:
        """Return what the request's limits mean for the partition.

        Raises:
            UsageError: a limit that this partition does not have, or has no value for.
            DamagedSegmentError, OSError: segments in which is looked for it cannot be read.
        """
        starts, ends = self._request.selection.starts, self._request.selection.ends
        start = None if starts is None else self._offset(starts)
        end = None if ends is None else self._offset(ends)
        if start == LATEST:
            return NOTHING
        return OffsetRange(
            start=None if start == EARLIEST else start,
            end=None if end == LATEST else end,
            is_known=ends is not None and bool(ends.by_incarnation),
        )

    def _offset(self, limits: OffsetLimits) -> int:
        """Return the offset that is meant, or EARLIEST or LATEST."""
        value = limits.of(self._where, self._topic_id)
        if not limits.are_times:
            options = self._request.options
            if limits.by_incarnation:
                self._check_stream(limits, value)
            elif value >= 0 and (options.lost or options.corrupt) is Corrupt.FAIL:
                self._check(limits, value)
            return value
        offset = self._first_since(value)
        if offset is not None:
            return offset
        if limits.needs_match:
            raise UsageError(
                f"{limits.option}: {self._name} has no record of {value} ms or later in the archive: give an earlier "
                "time, or startingOffsetsByTimestampStrategy=latest, which then reads nothing of the partition"
            )
        return LATEST

    def _check(self, limits: OffsetLimits, offset: int) -> None:
        """Refuse an offset below the log's start, or after its end."""
        first = self._first_offset
        if first is None:
            raise UsageError(
                f"{limits.option}: {self._name} has no segment in the archive, {offset} is requested"
            )
        if offset < first:
            raise UsageError(
                f"{limits.option}: {self._name} begins at offset {first} in the archive, {offset} is requested: "
                "-2, or failOnDataLoss=false, takes what is there"
            )
        stable = self._last_stable_offset
        if (stable is not None and offset > stable) or not self._reaches(offset):
            until = "" if stable is None else f" (read_committed: at its last stable offset, {stable})"
            raise UsageError(
                f"{limits.option}: {self._name} ends before offset {offset} in the archive{until}: -1, or "
                "failOnDataLoss=false, takes what is there"
            )

    def _check_stream(self, limits: OffsetLimits, offset: int) -> None:
        """Judge whether what a stream has not read yet is there: the archive has had it.

        Where the end of the last log is before the end of a micro-batch, its task finds that.
        """
        first, stable, selection = self._first_offset, self._last_stable_offset, self._request.selection
        text = ""
        if limits is selection.starts and first is not None and offset < first:
            if offset >= 0:
                text = f"{_span(offset, first)} were deleted from the archive before the stream read them"
        elif limits is selection.ends and offset > 0 and first is None:
            text = f"the archive has no segment any more; a batch of the stream ends at offset {offset}"
        elif limits is selection.ends and stable is not None and offset > stable:
            text = (
                f"{_span(stable, offset)} were committed when a batch of the stream was planned, the last stable "
                "offset of the archive is before them now"
            )
        if text:
            self.lost_line = lose(self._request.options, f"{self._name}: {text}")

    @property
    def _first_offset(self) -> int | None:
        """The first offset there is, None without a segment."""
        if not self._planned:
            return None
        return max(self._planned.segments.base_offsets[0], self._start_offset or 0)

    def _reaches(self, offset: int) -> bool:
        """Return whether there is a batch with the offset before *offset*, or a segment that begins there or later.

        Raises:
            DamagedSegmentError: the last segment is damaged so that nobody knows.
        """
        last = len(self._planned) - 1
        if offset <= self._planned.segments.base_offsets[last]:
            return True
        options = ReadOptions(include=Include.BATCHES, lowest_offset=offset - 1)
        if self._first("last_offset", options, [last]) is not None:
            return True
        end_row = self._tails.last_row(self._planned)
        if end_row != last and self._tails.of(self._planned[end_row]).end_offset >= offset:
            return True
        # The last segment may be damaged, and fail the query: then that is the reason.
        damaged = replace(self._request.options, lowest_offset=offset - 1, has_control_records=True)
        return self._first("offset", damaged, [last]) is not None

    def _first_since(self, time_ms: int) -> int | None:
        """Return the first offset of a record that is not older, as a broker does: control records count."""
        corrupt = self._request.options.corrupt
        options = ReadOptions(
            corrupt=Corrupt.FAIL if corrupt is Corrupt.FAIL else Corrupt.SKIP,
            has_control_records=True,
            lowest_timestamp_ms=time_ms,
            most_batch_bytes=self._request.options.most_batch_bytes,
        )
        offset = self._first("offset", options, range(len(self._planned)))
        stable = self._last_stable_offset
        return None if offset is None or (stable is not None and offset >= stable) else offset

    def _first(self, column: str, options: ReadOptions, rows: Sequence[int]) -> int | None:
        """Return the first value of a column of offsets in the segments in *rows*, None if no row comes of them."""
        request = replace(self._request, options=options, needs_aborted=False)
        schema = pa.schema([(column, pa.int64())])
        for found in read_task(request, self._runs_of(rows), schema, on_left_out=_ignored):
            offsets = found.column(0).drop_null()
            if len(offsets):
                value: int = offsets[0].as_py()
                return value
        return None

    @property
    def _name(self) -> str:
        return f"{self._where.topic}-{self._where.partition}"


def lost_partitions(request: ReadRequest, planned: Iterable[Incarnation]) -> Iterator[str]:
    """Yield a line for each partition of a stream's batch that is not among those *planned*, if the query goes on so.

    Raises:
        UsageError: it does not.
    """
    ends = request.selection.ends
    if ends is None or not ends.by_incarnation:
        return
    there: dict[TopicPartition, dict[str, str | None]] = {}
    for topic, partition, topic_id in planned:
        known_id = meant_id(ends.by_incarnation.get((topic, partition), {}), topic_id)
        there.setdefault((topic, partition), {})[topic_id] = known_id
    for (topic, partition), by_id in sorted(ends.by_incarnation.items()):
        found = there.get((topic, partition), {})
        for topic_id in sorted(by_id.keys() - found.values()):
            others = ", ".join(other or "one without an id" for other in sorted(found))
            yield lose(
                request.options,
                f"{topic}-{partition}: the archive has nothing of the topic {topic_id or 'without an id'} any more"
                f"{f', but {others}' if others else ''}; a batch of the stream ends at its offset {by_id[topic_id]}",
            )


def lose(options: ReadOptions, text: str, remedy: str = "bring the segments back") -> str:
    """Return what a user should know of offsets that a stream has lost and the query goes on without.

    Raises:
        UsageError: it does not go on without them.
    """
    if (options.lost or options.corrupt) is Corrupt.FAIL:
        raise UsageError(f"{text}. Remedy: {remedy}; failOnDataLoss=false goes on with what is there")
    return f"{text}: the stream goes on with what is there"


def _span(start: int, end: int) -> str:
    return f"offsets {start} to {end - 1}"


def _ignored(_left_out: LeftOut) -> None:
    """Ignore it: the task that reads the segment reports it."""
