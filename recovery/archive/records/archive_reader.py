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
from recovery.archive.layouts.log_windows import BatchWindow, LogWindows
from recovery.archive.records.arrow_rows import ArrowRows
from recovery.archive.records.batch_faults import BatchFaults
from recovery.archive.records.batch_heads import Fault
from recovery.archive.records.damage import Corrupt, DamageReport, LeftOut, MissingOffsets
from recovery.archive.records.read_request import PlannedSegment, ReadRequest, SegmentRun, Told
from recovery.archive.records.record_columns import SegmentView, damage_report, read_segment
from recovery.archive.records.record_schema import Include
from recovery.archive.records.run_transactions import RunTransactions, TransactionFiles
from recovery.archive.records.segment_choice import choose_segments
from recovery.archive.remote.lineage import OffsetRange, subtract_ranges
from recovery.archive.stores.archived import ArchivedSegment, PartKind
from recovery.archive.stores.store import Store
from recovery.archive.stores.stores import open_store
from recovery.check.finding import Rule
from recovery.check.folder_files import MOST_SMALL_FILE_BYTES
from recovery.check.rules.batches import has_compacted
from recovery.check.rules.epochs import check_epochs
from recovery.errors import DamagedSegmentError, UsageError
from segfmt.checkpoint import LeaderEpochEntry, read_leader_epoch_checkpoint
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
    """Reads the segments of one run.

    Attributes:
        _ends: the segments that were read to their ends, and the offsets after these.
        _epoch: leader epoch of the last batch, None before the first or if it is not to be trusted.
    """

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
        self._ends: list[tuple[int, int]] = []
        self._epoch: int | None = None
        self._has_compacted: bool | None = True if run.is_compacted else None
        self._transactions = None
        if request.needs_aborted:
            files = TransactionFiles(
                name=self._name,
                read_index=self._txn_index,
                open=lambda segment: self._files(segment).open(log_name(segment.base_offset)),
                indexed=self._indexed_segments,
                following=self._following_segments,
            )
            options = request.options
            self._transactions = RunTransactions(
                run,
                files,
                self._is_compacted,
                options.corrupt is Corrupt.FAIL and options.lost is not Corrupt.SKIP,
            )

    def read(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        try:
            stable = self._run.last_stable_offset
            for number, planned in enumerate(self._run.segments):
                if stable is not None and planned.segment.base_offset >= stable:
                    return
                yield from self._read_segment(number, schema)
                if not self._is_copied_again(number):
                    yield from self._judge_end(number, schema)
        except MissingKeyError as error:
            raise UsageError(f"{self._store.url}/{self._run.where.prefix}: {error}") from error

    def _read_segment(self, number: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        planned, run = self._run.segments[number], self._run
        if PartKind.LOG not in planned.segment.parts:
            return
        files = self._files(planned.segment)
        told = planned.told
        if told is not None and self._layout.has_plain_logs and told.size_bytes != planned.segment.log_bytes:
            detail = f"{planned.segment.log_bytes} bytes, {told.size_bytes} according to the metadata topic"
            report = self._report(self._name(planned.segment), schema)
            yield from report.take_object(Fault("object-size", detail))
        is_too_old, fault = self._judge_age(planned, files)
        if is_too_old:
            told = _told(planned, files)
            assert told is not None
            self._ends.append((number, told.end_offset + 1))
            return
        if fault is not None:
            name = f"{run.where.prefix}{self._layout.name_of(planned.segment, PartKind.TIME_INDEX)}"
            yield from self._report(f"{self._store.url}/{name}", schema).take_object(fault)
        yield from self._read_offsets(
            number, files, schema, start_offset=run.start_offset, end_offset=planned.end_offset
        )

    def _read_offsets(
        self,
        number: int,
        files: ArchivedFiles,
        schema: pa.Schema,
        *,
        start_offset: int | None,
        end_offset: int | None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a segment from one offset to another, and note where it ends."""
        planned, run = self._run.segments[number], self._run
        segment, told = planned.segment, _told(planned, files)
        view = SegmentView(
            name=self._name(segment),
            topic=run.where.topic,
            partition=run.where.partition,
            topic_id=run.topic_id,
            base_offset=segment.base_offset,
            start_offset=start_offset,
            end_offset=end_offset,
            is_last=planned.is_last,
            transactions=None if self._transactions is None else self._transactions.of_segment(number),
            last_stable_offset=run.last_stable_offset,
        )
        faults = BatchFaults(
            log=log_name(segment.base_offset),
            base_offset=segment.base_offset,
            next_base_offset=segment.next_base_offset,
            told_end_offset=None if told is None else told.end_offset,
            expected_end_offset=planned.end_offset if told is None else told.end_offset + 1,
            told_epochs=None if told is None else told.leader_epochs,
            read_epochs=lambda: self._leader_epochs(segment, files),
            is_compacted=self._is_compacted,
            epoch=self._epoch if told is None else None,  # what was told is compared in each segment
        )
        log = files.open(log_name(segment.base_offset))
        try:
            is_whole = yield from read_segment(
                log,
                view,
                schema,
                run.offsets.within(self._request.options),
                faults=faults,
                index_positions=lambda: index_positions(files, segment.base_offset),
                on_left_out=self._on_left_out,
            )
        except MissingKeyError:
            raise
        except FormatError as error:  # of the layout: a chunk that cannot be restored
            raise DamagedSegmentError(f"{view.name}: {error}") from error
        finally:
            log.close()
        self._epoch = faults.epoch
        if is_whole and not faults.is_after_damage:
            self._ends.append((number, faults.end_offset))

    # -- what is missing -------------------------------------------------------------------------------------

    def _is_copied_again(self, number: int) -> bool:
        """Return whether the next segment is another copy of this one, as in a list of all batches."""
        bases = self._run.segments.segments.base_offsets
        return number + 1 < len(bases) and bases[number + 1] == bases[number]

    def _judge_end(self, number: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield what is known of the offsets between the end of a segment and the one after it."""
        planned = self._run.segments[number]
        has_log = PartKind.LOG in planned.segment.parts
        own_ends = [end for of, end in self._ends if of == number or not self._gives_each_offset_once]
        if has_log and not own_ends:
            return  # it was not read to its end, or ends in damage, which was reported
        start = max([planned.segment.base_offset, *own_ends])
        end = self._expected_end(planned, start)
        if end is None or start >= end:
            return
        if self._gives_each_offset_once:
            others = [(of, other_end) for of, other_end in self._ends if other_end > start and of != number]
            if (
                others
            ):  # two leaders have archived these offsets, and the later copy ends before the earlier one
                of, other_end = others[-1]
                segment = self._run.segments[of].segment
                yield from self._read_offsets(
                    of, self._files(segment), schema, start_offset=start, end_offset=min(end, other_end)
                )
                start = other_end
        yield from self._missing(number, start, end, schema)

    @property
    def _gives_each_offset_once(self) -> bool:
        return self._request.options.include is Include.RECORDS

    def _expected_end(self, planned: PlannedSegment, start: int) -> int | None:
        """Return the offset up to which a segment should go, by all that is known; None if nothing is."""
        if planned.end_offset is not None:
            return planned.end_offset
        segment = planned.segment
        if PartKind.LOG not in segment.parts:
            return segment.base_offset + 1 if planned.told is None else planned.told.end_offset + 1
        files = self._files(segment)
        told = _told(planned, files)
        if told is not None:  # after a roll a segment may own offsets past its last batch
            return told.end_offset + 1 if files.log_bytes() != told.size_bytes else None
        if self._layout.is_tiered and not segment.log_bytes:
            return segment.base_offset + 1
        return self._end_by_indexes(planned, files, start) if self._layout.is_tiered else None

    def _end_by_indexes(self, planned: PlannedSegment, files: ArchivedFiles, start: int) -> int | None:
        """Return the end offset of which the indexes of the last segment know, if its log ends before that."""
        base_offset = planned.segment.base_offset
        known = [start]
        for name, view in (
            (offset_index_name(base_offset), view_offset_index),
            (time_index_name(base_offset), view_time_index),
        ):
            try:
                data, _ = files.read_index(name, lambda _: None)
            except FileNotFoundError:
                continue
            entries = view(data)
            if len(entries):
                known.append(base_offset + int(entries["relative_offset"][-1]) + 1)
        return max(known)

    def _missing(self, number: int, start: int, end: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield what becomes of offsets that are in no segment."""
        run = self._run
        options = run.offsets.within(self._request.options)
        lowest = max(offset for offset in (options.lowest_offset, run.start_offset, 0) if offset is not None)
        if end <= lowest or (options.highest_offset is not None and start > options.highest_offset):
            return
        gone = [OffsetRange(start_offset=first, end_offset=last) for first, last in run.gone]
        ranges = subtract_ranges(OffsetRange(start_offset=start, end_offset=end - 1), gone)
        planned = run.segments[number]
        segment = planned.segment
        rule, detail = self._why_missing(planned)
        if rule == "offset-gap" and not self._layout.is_tiered and self._is_compacted():
            return
        report = self._report(self._name(segment), schema)
        if self._transactions is not None and ranges:
            self._transactions.pass_gap(number, ranges[0][0])
        for first, last in ranges:
            text = f"{detail}offsets {first} to {last} are missing"
            yield from report.take_missing(MissingOffsets(first, last + 1, segment.log_bytes, rule, text))

    def _why_missing(self, planned: PlannedSegment) -> tuple[Rule, str]:
        """Return by which rule the offsets at the end of a segment are missing, and how the sentence begins."""
        segment = planned.segment
        if not segment.parts and segment.segment_id:
            return "missing-segment", "the segment has no objects: "
        if PartKind.LOG not in segment.parts:
            return "missing-object", "the segment has no log: "
        if not segment.log_bytes and self._layout.is_tiered:
            return "empty-log", "the log is empty: "
        if planned.end_offset is None:
            return "cut-end", "other files know of later ones: "
        return "offset-gap", ""

    def _is_compacted(self) -> bool:
        """Return whether the log was ever compacted: a batch has fewer records than offsets. Looked for once."""
        if self._has_compacted is None:
            objects = self._store.list_level(self._run.where.prefix).objects
            segments = self._layout.partition(self._run.where, objects).segments
            self._has_compacted = any(map(self._has_compacted_batch, segments))
        return self._has_compacted

    def _has_compacted_batch(self, segment: ArchivedSegment) -> bool:
        if not segment.log_bytes:
            return False
        try:
            log = self._files(segment).open(log_name(segment.base_offset))
        except FileNotFoundError:
            return False
        try:
            for window in LogWindows(log, base_offset=segment.base_offset, is_last=True):
                if isinstance(window, BatchWindow) and has_compacted(window.rows[window.is_valid]):
                    return True
        finally:
            log.close()
        return False

    # -- leader epochs ---------------------------------------------------------------------------------------

    def _leader_epochs(
        self, segment: ArchivedSegment, files: ArchivedFiles
    ) -> tuple[LeaderEpochEntry, ...] | None:
        """Return the lines of the checkpoint that goes with a segment; None if it is missing or malformed."""
        try:
            if self._layout.has_plain_logs:
                key = self._run.where.prefix + self._layout.name_of(segment, PartKind.LEADER_EPOCHS)
                data = self._store.read(key, most_bytes=MOST_SMALL_FILE_BYTES)
            else:
                data = files.read_part(PartKind.LEADER_EPOCHS)
            entries = read_leader_epoch_checkpoint(data)
        except (FileNotFoundError, FormatError):
            return None
        return entries if not check_epochs((), entries, log_end_offset=None, is_clean=False) else None

    # -- the time index --------------------------------------------------------------------------------------

    def _judge_age(self, planned: PlannedSegment, files: ArchivedFiles) -> tuple[bool, Fault | None]:
        """Return whether all records are older than what is requested, and what is wrong with the time index.

        Once the segment was rolled, the last entry of the time index has its greatest timestamp. An index may have been
        cut since, and nothing in it shows that, so it must agree with what a broker said of the segment when it was
        archived: in the metadata topic, or in the manifest. Without that, the segment is read.
        """
        lowest_ms, base_offset = self._request.options.lowest_timestamp_ms, planned.segment.base_offset
        if lowest_ms is None or planned.is_last or not self._request.selection.uses_time_index:
            return False, None
        told = _told(planned, files)
        if told is None or not 0 <= told.max_timestamp_ms < lowest_ms:
            return False, None
        told_ms = told.max_timestamp_ms
        try:
            data, size_bytes = files.read_index(time_index_name(base_offset), lambda _: None)
            check_time_index(data, base_offset)
        except FileNotFoundError:
            return False, None
        except FormatError as error:
            return False, Fault("index-order", f"the time index is malformed: {error}")
        last_ms = last_entry(view_time_index(data), base_offset).timestamp_ms
        if len(data) == size_bytes and last_ms == told_ms:
            return True, None
        detail = f"the last entry is of timestamp {last_ms}, the segment was archived with timestamps up to {told_ms}"
        return False, Fault("index-sparse" if last_ms < told_ms else "index-entry", detail)

    # -- transactions ----------------------------------------------------------------------------------------

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

    def _following_segments(self) -> Iterator[PlannedSegment]:
        """Yield the segments after the run, as they would be read."""
        last = self._run.segments[-1].segment.base_offset
        objects = self._store.list_level(self._run.where.prefix).objects
        for planned in choose_segments(self._layout.partition(self._run.where, objects), self._layout):
            if planned.segment.base_offset > last:
                yield planned

    def _txn_index(self, segment: ArchivedSegment) -> bytes:
        if not segment.parts.keys() >= self._layout.objects_of(PartKind.TXN_INDEX):
            return b""
        try:
            return self._files(segment).read_part(PartKind.TXN_INDEX)
        except FileNotFoundError:
            return b""

    def _report(self, name: str, schema: pa.Schema) -> DamageReport:
        run = self._run
        rows = ArrowRows(schema, run.where.topic, run.where.partition, run.topic_id)
        return damage_report(name, rows, self._request.options, self._on_left_out)

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
        if not segment.parts:
            prefix = self._run.where.prefix
            return f"{self._store.url}/{prefix}{self._layout.name_of(segment, PartKind.LOG)}"
        log = segment.parts.get(PartKind.LOG) or [*segment.parts.values()][-1]
        return f"{self._store.url}/{log.key}"


def _told(planned: PlannedSegment, files: ArchivedFiles) -> Told | None:
    """Return what is said of a segment: by the metadata topic, or else by the archive itself; None if nothing is."""
    described = files.described()
    return planned.told or (None if described is None else Told.by(described))


def index_positions(files: ArchivedFiles, base_offset: int) -> list[int]:
    """Return the positions in the offset index, as hints that must be checked."""
    try:
        data, _ = files.read_index(offset_index_name(base_offset), lambda _: None)
    except FileNotFoundError:
        return []
    positions: list[int] = view_offset_index(data)["position"].astype(np.int64).tolist()
    return positions
