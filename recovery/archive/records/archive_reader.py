"""Reading records, second half: the rows of one task, segment after segment.

Kafka: LocalLog.read, collectAbortedTransactions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import replace

import pyarrow as pa

from recovery.archive.layouts.layout import ArchivedFiles, Layout
from recovery.archive.layouts.layouts import make_layout
from recovery.archive.records.arrow_rows import ArrowRows
from recovery.archive.records.batch_faults import BatchFaults
from recovery.archive.records.batch_heads import Fault
from recovery.archive.records.damage import DamageReport, LeftOut, MissingOffsets
from recovery.archive.records.foreign_logs import is_foreign
from recovery.archive.records.history_seams import HistorySeams
from recovery.archive.records.log_tails import LogTails
from recovery.archive.records.read_options import Corrupt
from recovery.archive.records.read_request import PlannedSegment, ReadRequest, SegmentRun
from recovery.archive.records.record_columns import SegmentView, damage_report, read_segment
from recovery.archive.records.record_schema import Include
from recovery.archive.records.run_files import RunFiles, index_positions, told_of
from recovery.archive.records.run_transactions import RunTransactions
from recovery.archive.records.segment_bounds import expected_end, judge_age, why_missing
from recovery.archive.remote.lineage import OffsetRange, subtract_ranges
from recovery.archive.stores.archived import PartKind
from recovery.archive.stores.store import Store
from recovery.archive.stores.stores import open_store
from recovery.errors import UsageError
from segfmt.errors import MissingKeyError
from segfmt.filenames import CLUSTER_METADATA_TOPIC, log_name


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
        _ends: the offsets after the segments that were read to their ends, by their numbers.
    """

    def __init__(
        self,
        store: Store,
        layout: Layout,
        request: ReadRequest,
        run: SegmentRun,
        on_left_out: Callable[[LeftOut], None],
    ) -> None:
        self._layout = layout
        self._request = request
        self._run = run
        self._files = RunFiles(store, layout, run)
        self._on_left_out = on_left_out
        self._tails = LogTails(store, layout, most_batch_bytes=request.options.most_batch_bytes)
        self._seams = HistorySeams(layout, self._files, self._tails)
        self._ends: dict[int, int] = {}
        self._transactions = None
        if request.needs_aborted:
            highest = run.offsets.within(request.options).highest_offset
            self._transactions = RunTransactions(run, self._files, self._tails, highest)

    def read(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        for name, fault in self._run.faults:
            yield from self._report(name, schema).take_object(fault)
        try:
            for number, planned in enumerate(self._run.segments):
                # Also after the last stable offset: the logs may contradict it, or be damaged.
                yield from self._read_segment(number, schema)
                is_whole = number in self._ends
                yield from self._read_rests(number, schema)
                if planned.end_offset is None and is_whole and self._transactions is not None:
                    self._transactions.check_end(number)
                if not self._is_copied_again(number):
                    yield from self._judge_end(number, schema)
            if self._transactions is not None and self._run.segments:
                self._transactions.finish(self._ends.get(len(self._run.segments) - 1))
        except MissingKeyError as error:
            raise UsageError(f"{self._files.url_of(self._run.where.prefix)}: missing-key: {error}") from error

    def _read_segment(self, number: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        planned, run = self._run.segments[number], self._run
        if PartKind.LOG not in planned.segment.parts:
            return
        files = self._files.described(planned.segment)
        if isinstance(files, Fault):
            report = self._report(self._files.description_name(planned.segment), schema)
            yield from report.take_stretch(0, planned.segment.log_bytes, files)
            if self._transactions is not None:
                self._transactions.pass_gap(number, planned.segment.base_offset)
            return
        for detail in self._files.wrong_sizes(planned, files):
            report = self._report(self._files.name_of(planned.segment), schema)
            yield from report.take_object(Fault("object-size", detail))
        is_too_old, fault = judge_age(self._request, planned, files)
        if is_too_old:
            told = told_of(planned, files)
            assert told is not None
            self._ends[number] = told.end_offset + 1
            if self._transactions is not None:
                self._transactions.pass_over(number, told.end_offset + 1)
            return
        if fault is not None:
            name = self._files.part_name_of(planned.segment, PartKind.TIME_INDEX)
            yield from self._report(name, schema).take_object(fault)
        yield from self._judge_seam(number, files, schema)
        end_offset = yield from self._read_offsets(
            number, planned, files, schema, start_offset=run.start_offset, end_offset=planned.end_offset
        )
        if end_offset is not None:
            self._ends[number] = end_offset

    def _judge_seam(self, number: int, files: ArchivedFiles, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield what is wrong with the offset before a segment, if that is requested as well."""
        planned = self._run.segments[number]
        lowest = self._run.offsets.within(self._request.options).lowest_offset
        if not self._gives_each_offset_once or (lowest or 0) >= planned.segment.base_offset:
            return
        fault = self._seams.judge(planned, files, self._run.earlier(number))
        if fault is not None:
            yield from self._report(self._files.name_of(planned.segment), schema).take_object(fault)

    def _read_offsets(
        self,
        number: int,
        planned: PlannedSegment,
        files: ArchivedFiles,
        schema: pa.Schema,
        *,
        start_offset: int | None,
        end_offset: int | None,
        is_judged: bool = False,
    ) -> Generator[pa.RecordBatch, None, int | None]:
        """Yield the rows of a segment from one offset to another; return where its log ends, None if that is not known.

        Args:
            number: of the segment of the run that it is, or whose end its rows follow.
            planned: the segment.
            files: its own.
            schema: the requested columns.
            start_offset, end_offset: of what is read of it.
            is_judged: whether its damage is told of elsewhere.
        """
        run, options = self._run, self._run.offsets.within(self._request.options)
        segment, told = planned.segment, told_of(planned, files)
        if is_judged:
            options = replace(options, corrupt=Corrupt.SKIP, lost=Corrupt.SKIP)
        view = SegmentView(
            name=self._files.name_of(segment),
            topic=run.where.topic,
            partition=run.where.partition,
            topic_id=run.topic_id,
            base_offset=segment.base_offset,
            start_offset=start_offset,
            end_offset=end_offset,
            is_last=planned.is_last,
            transactions=None
            if self._transactions is None
            else self._transactions.of_segment(number, segment),
            last_stable_offset=run.last_stable_offset,
        )
        faults = BatchFaults(
            log=log_name(segment.base_offset),
            base_offset=segment.base_offset,
            next_base_offset=segment.next_base_offset,
            told_end_offset=None if told is None else told.end_offset,
            expected_end_offset=planned.end_offset if told is None else told.end_offset + 1,
            told_epochs=None if told is None else told.leader_epochs,
            read_epochs=lambda: self._files.leader_epochs(segment, files),
            is_metadata_log=run.where.topic == CLUSTER_METADATA_TOPIC,
            is_doubtful=any(self._files.wrong_sizes(planned, files)),
            is_foreign=lambda: is_foreign(files, segment.base_offset),
            is_compacted=self._files.is_compacted,
        )
        log = files.open(log_name(segment.base_offset))
        has_grown = self._layout.has_plain_logs and log.end_position != segment.log_bytes
        if has_grown and self._transactions is not None:
            self._transactions.grow()
        try:
            is_whole = yield from read_segment(
                log,
                view,
                schema,
                options,
                faults=faults,
                index_positions=lambda: index_positions(files, segment.base_offset),
                on_left_out=_ignored if is_judged else self._on_left_out,
            )
        finally:
            log.close()
        return faults.end_offset if is_whole and not faults.is_after_damage else None

    def _read_rests(self, number: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield what earlier segments have after the end of one: two leaders have archived these offsets.

        Their damage is told of where they are read themselves, if they are.
        """
        planned = self._run.segments[number]
        segment = planned.segment
        if not self._gives_each_offset_once or not self._tails.has_rests(planned):
            return
        start = self._ends.get(number)
        if start is None:  # it has no log, or a damaged end, or goes on after all that is requested
            start = self._tails.of(planned).known_end
            highest = self._run.offsets.within(self._request.options).highest_offset
            if highest is not None and start > highest:
                return
        for rest in self._tails.rests(self._run.earlier(number), planned, max(start, segment.base_offset)):
            reached = yield from self._read_offsets(
                number,
                rest.planned,
                self._files.of(rest.planned.segment),
                schema,
                start_offset=rest.start,
                end_offset=rest.end,
                is_judged=self._is_read_itself(rest.planned),
            )
            if reached is not None:
                yield from self._missing(number, max(reached, rest.start), rest.end, schema)
            self._ends[number] = rest.end

    def _is_read_itself(self, planned: PlannedSegment) -> bool:
        """Return whether a segment that is not the last one has offsets of its own that are requested."""
        lowest = self._run.offsets.within(self._request.options).lowest_offset
        return lowest is None or planned.end_offset is None or planned.end_offset > lowest

    # -- what is missing -------------------------------------------------------------------------------------

    def _is_copied_again(self, number: int) -> bool:
        """Return whether the next segment is another copy of this one, as in a list of all batches."""
        bases = self._run.segments.segments.base_offsets
        return number + 1 < len(bases) and bases[number + 1] == bases[number]

    def _judge_end(self, number: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield what is known of the offsets between the end of a segment and the one after it."""
        planned, run = self._run.segments[number], self._run
        has_log = PartKind.LOG in planned.segment.parts
        ends = [self._ends[number]] if number in self._ends else []
        if not self._gives_each_offset_once:
            ends = [*self._ends.values()]
        if has_log and not ends:
            return  # it was not read to its end, or ends in damage, which was reported
        start = max([planned.segment.base_offset, *ends])
        known_end = run.offsets.end if run.offsets.is_known else None
        end = expected_end(self._layout, self._files, planned, start, known_end or 0)
        if end is not None and start < end:
            yield from self._missing(number, start, end, schema)

    @property
    def _gives_each_offset_once(self) -> bool:
        return self._request.options.include is Include.RECORDS

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
        rule, detail = why_missing(self._layout, planned, is_known=run.offsets.is_known)
        if rule == "offset-gap" and not self._layout.is_tiered and self._files.is_compacted():
            return
        report = self._report(self._files.name_of(segment), schema)
        for first, last in ranges:
            text = f"{detail}offsets {first} to {last} are missing"
            yield from report.take_missing(MissingOffsets(first, last + 1, segment.log_bytes, rule, text))
            if self._transactions is not None:
                self._transactions.pass_gap(number, first)

    def _report(self, name: str, schema: pa.Schema) -> DamageReport:
        run = self._run
        rows = ArrowRows(schema, run.where.topic, run.where.partition, run.topic_id)
        return damage_report(name, rows, self._request.options, self._on_left_out)


def _ignored(_left_out: LeftOut) -> None:
    """Ignore what was left out."""
