"""Reading records, second half: the rows of one task, segment after segment.

Kafka: LocalLog.read, collectAbortedTransactions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pyarrow as pa

from recovery.archive.layouts.layout import ArchivedFiles, Layout
from recovery.archive.layouts.layouts import make_layout
from recovery.archive.records import aborted_txns
from recovery.archive.records.aborted_txns import AbortedTxns, collect_aborted
from recovery.archive.records.read_request import PlannedSegment, ReadRequest, SegmentRun
from recovery.archive.records.record_columns import LeftOut, SegmentView, read_segment
from recovery.archive.stores.archived import ArchivedSegment, PartKind
from recovery.archive.stores.store import Store
from recovery.archive.stores.stores import open_store
from recovery.errors import DamagedSegmentError, UsageError
from segfmt.errors import FormatError, MissingKeyError
from segfmt.filenames import log_name, offset_index_name, time_index_name
from segfmt.offset_index import view_offset_index
from segfmt.time_index import check_time_index, last_entry, view_time_index


def read_task(
    request: ReadRequest,
    runs: Iterable[SegmentRun],
    schema: pa.Schema,
    *,
    on_left_out: Callable[[LeftOut], None],
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one task.

    Args:
        request: what to read.
        runs: the task, from `plan_reads`.
        schema: the requested columns.
        on_left_out: called with what is left out because of damage.

    Raises:
        DamagedSegmentError: damage, as the request's options say; or a malformed manifest or transaction index.
        UsageError: segments are encrypted with a key that was not given.
        OSError: an object cannot be read, or no longer exists.
    """
    store = _store(request.url)
    layout = make_layout(request.layout, request.keys)
    for run in runs:
        yield from _RunReader(store, layout, request, run, on_left_out).read(schema)


@functools.lru_cache(maxsize=8)
def _store(url: str) -> Store:
    """Return a store, shared by the tasks of a worker so that connections stay open."""
    return open_store(url)


class _RunReader:
    def __init__(
        self,
        store: Store,
        layout: Layout,
        request: ReadRequest,
        run: SegmentRun,
        on_left_out: Callable[[LeftOut], None],
    ) -> None:
        self._store = store
        self._layout = layout
        self._request = request
        self._run = run
        self._on_left_out = on_left_out

    def read(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        try:
            aborted = self._aborted() if self._request.needs_aborted else aborted_txns.NONE
            stable = self._run.last_stable_offset
            for planned in self._run.segments:
                if stable is not None and planned.segment.base_offset >= stable:
                    return
                yield from self._read_segment(planned, schema, aborted)
        except MissingKeyError as error:
            raise UsageError(f"{self._store.url}/{self._run.where.prefix}: {error}") from error

    def _read_segment(
        self, planned: PlannedSegment, schema: pa.Schema, aborted: AbortedTxns
    ) -> Iterator[pa.RecordBatch]:
        segment, run = planned.segment, self._run
        files = self._files(segment)
        if self._is_too_old(planned, files):
            return
        view = SegmentView(
            name=self._name(segment),
            topic=run.where.topic,
            partition=run.where.partition,
            topic_id=run.topic_id,
            base_offset=segment.base_offset,
            start_offset=run.start_offset,
            end_offset=planned.end_offset,
            is_last=planned.is_last,
            aborted=aborted,
            last_stable_offset=run.last_stable_offset,
        )
        log = files.open(log_name(segment.base_offset))
        try:
            yield from read_segment(
                log,
                view,
                schema,
                run.offsets.within(self._request.options),
                index_positions=lambda: index_positions(files, segment.base_offset),
                on_left_out=self._on_left_out,
            )
        except MissingKeyError:
            raise
        except FormatError as error:  # of the layout: a chunk that cannot be restored
            raise DamagedSegmentError(f"{view.name}: {error}") from error
        finally:
            log.close()

    def _is_too_old(self, planned: PlannedSegment, files: ArchivedFiles) -> bool:
        """Return whether all records are older than what is requested.

        Once the segment was rolled, the last entry of the time index has its greatest timestamp. An index may have been
        cut since, and nothing in it shows that, so it must agree with what a broker said of the segment when it was
        archived: in the metadata topic, or in the manifest. Without that, the segment is read.
        """
        lowest_ms = self._request.options.lowest_timestamp_ms
        if lowest_ms is None or planned.is_last or not self._request.selection.uses_time_index:
            return False
        told_ms, described = planned.max_timestamp_ms, files.described()
        if told_ms is None and described is not None:
            told_ms = described.max_timestamp_ms
        if told_ms is None or not 0 <= told_ms < lowest_ms:
            return False
        base_offset = planned.segment.base_offset
        try:
            data, size_bytes = files.read_index(time_index_name(base_offset), lambda _: None)
            check_time_index(data, base_offset)
        except (FileNotFoundError, FormatError):
            return False
        last = last_entry(view_time_index(data), base_offset)
        return len(data) == size_bytes and last.timestamp_ms == told_ms

    # -- transactions ----------------------------------------------------------------------------------------

    def _aborted(self) -> AbortedTxns:
        segments = self._run.segments
        try:
            return collect_aborted(
                (
                    (segment.base_offset, functools.partial(self._txn_index, segment))
                    for segment in self._indexed_segments()
                ),
                start_offset=segments[0].segment.base_offset,
                end_offset=segments[-1].end_offset,
                known=self._run.local_aborted,
            )
        except MissingKeyError:
            raise
        except FormatError as error:
            raise DamagedSegmentError(
                f"{self._store.url}/{self._run.where.prefix}: a transaction index is malformed: {error}. Remedy: "
                "rebuild it by `archive recover`, or read with isolation=read_uncommitted and without `aborted`"
            ) from error

    def _indexed_segments(self) -> Iterator[ArchivedSegment]:
        for planned in self._run.segments:
            yield planned.segment
        yield from self._run.following
        if not self._run.follows_more:
            return
        last = self._run.following[-1].base_offset
        objects = self._store.list_level(self._run.where.prefix).objects
        for segment in self._layout.partition(self._run.where, objects).segments:
            if segment.base_offset > last:
                yield segment

    def _txn_index(self, segment: ArchivedSegment) -> bytes:
        if not segment.parts.keys() >= self._layout.objects_of(PartKind.TXN_INDEX):
            return b""
        try:
            return self._files(segment).read_part(PartKind.TXN_INDEX)
        except FileNotFoundError:
            return b""

    # -- files -----------------------------------------------------------------------------------------------

    def _files(self, segment: ArchivedSegment) -> ArchivedFiles:
        try:
            return self._layout.files(self._store, segment)
        except FormatError as error:
            raise DamagedSegmentError(
                f"{self._name(segment)}: its description is malformed: {error}"
            ) from error

    def _name(self, segment: ArchivedSegment) -> str:
        """Return the URL of a segment's log; for a segment with indexes only, of its last object."""
        log = segment.parts.get(PartKind.LOG) or [*segment.parts.values()][-1]
        return f"{self._store.url}/{log.key}"


def index_positions(files: ArchivedFiles, base_offset: int) -> list[int]:
    """Return the positions in the offset index, as hints that must be checked."""
    try:
        data, _ = files.read_index(offset_index_name(base_offset), lambda _: None)
    except FileNotFoundError:
        return []
    positions: list[int] = view_offset_index(data)["position"].astype(np.int64).tolist()
    return positions
