"""The course of a run over an archive: survey, scan in waves of tasks, fold by partition, a report back.

It lists and packs, holds one wave at a time, and gets back counts and bad objects; an engine does the work. The results
of segments stay with the engine, and in the output, if there is one, where the next run finds them again.
"""

from __future__ import annotations

import pickle
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace

from recovery.archive.check.known_scans import KnownScans
from recovery.archive.check.options import CheckOptions
from recovery.archive.check.output import HISTORY, QUARANTINE, RECOVERED, SUMMARY, publish
from recovery.archive.check.packing import LOG_BYTES, SEGMENT_BYTES, PackedTask, pack
from recovery.archive.check.progress import ArchiveProgress, TaskShare
from recovery.archive.check.report import ArchiveReport
from recovery.archive.check.survey import SurveyedPartition, missing_partitions, survey
from recovery.archive.check.survey_spool import SurveySpool
from recovery.archive.check.unended_runs import saved_by, unended_runs
from recovery.archive.copy.findings import CopyFindings
from recovery.archive.engine.engine import Engine, OpenEngine, RunPlan, RunSize
from recovery.archive.engine.verdicts import FoldResult
from recovery.archive.inventory.expectations import Expectations, open_expectations
from recovery.archive.layouts.layout import Layout
from recovery.archive.layouts.layouts import (
    AUTO,
    OtherLayouts,
    all_but,
    layout_of,
    make_layout,
    refuse_nothing,
)
from recovery.archive.layouts.walk import OtherLayout
from recovery.archive.stores.store import Store
from recovery.archive.stores.stores import open_store
from recovery.broker.topic_configs import without_effect
from recovery.errors import FULL_ERRNOS, InterruptedRecoveryError, RecoveryError, UsageError
from recovery.problem import Note
from recovery.stop_request import StopRequest
from recovery.watch.events import Observer
from recovery.watch.notifier import Notifier

_WAVE_BYTES = 16 << 20
"""Of pickled tasks in one wave, which travel with the job."""
_LEAST_WAVE_TASKS = 256
_WAVES = 20
"""About how many waves a large run is divided into; a small one is a single wave."""
_NOT_JUDGED = "the archive was not judged to the end, and no verdict of this run was put into verdicts/"
_NOT_PUBLISHED = "all was judged, but not all verdicts were put in the place of the last run's"
_OUTPUT_REMEDY = "or give another --output, and start again; segments kept in this one are not read again"


class OutputError(RecoveryError):
    """The output cannot be read or written; the run has ended without a report."""


class ArchiveRun:
    """One run of `archive verify` or `archive recover`.

    Args:
        options: which archive, and how.
        open_engine: chooses what does the work, once it is known how much there is.
        observers: notified of all progress.
        stop: lets another thread end the run.
    """

    def __init__(
        self,
        options: CheckOptions,
        open_engine: OpenEngine,
        *,
        observers: Iterable[Observer] = (),
        stop: StopRequest | None = None,
    ) -> None:
        self._options = options
        self._open_engine = open_engine
        self._choice = options.choice()
        self._topic_configs = options.settings()
        self._store: Store = options.open(stop)
        self._layout: Layout = layout_of(self._store, options.layout, options.keys)
        self._for_tasks = options.for_tasks(self._layout.name)
        self._output = None if self._for_tasks.output is None else open_store(self._for_tasks.output)
        self._progress = ArchiveProgress(
            Notifier(observers),
            self._store.url,
            "archive recover" if options.command == "recover" else "archive verify",
        )
        self._stop = StopRequest() if stop is None else stop
        self._refuse_in_place(self._layout)
        self._known = KnownScans(None)
        self._run = uuid.uuid4().bytes
        self._began_ms = time.time_ns() // 1_000_000

    def run(self) -> ArchiveReport:
        """Check the archive and return the report.

        Raises:
            UsageError: the archive, or what was chosen of it, does not exist.
            OSError: the archive itself cannot be listed.
            OutputError: the output cannot be read or written.
            ExecutorError: Spark gave up a task.
        """
        started_s = time.monotonic()
        report = ArchiveReport(
            command=self._options.command,
            url=self._store.url,
            layout=self._layout.name,
            output=self._for_tasks.output,
            quarantine=f"{self._for_tasks.output}/{QUARANTINE}{self._run.hex()}"
            if self._options.is_in_place
            else None,
            run=self._run.hex(),
            is_logs_only=self._options.is_logs_only,
            notes=tuple(Note(text=text) for text in self._options.notes),
        )
        if self._output is not None:
            report.unended_runs = unended_runs(self._output)
        self._progress.start()
        try:
            with SurveySpool() as spool, self._explained(report, _NOT_JUDGED):
                self._survey(spool, report)
                if spool.partition_count:
                    self._work(spool, report)
                report.summary.add_places(report.metadata_findings)
        except InterruptedRecoveryError as error:
            report.signal_number = error.signal_number
            if self._output is not None:
                report.saved_objects = saved_by(self._output, report.run)
        if report.quarantine is not None and self._output is not None and not report.signal_number:
            with suppress(OSError):
                report.quarantine = report.quarantine if saved_by(self._output, report.run) else None
        report.duration_ms = round((time.monotonic() - started_s) * 1000)
        if self._output is not None and not report.signal_number:
            with self._explained(report, _NOT_PUBLISHED):
                self._output.replace(f"{HISTORY}{report.run}/{SUMMARY}", report.to_json().encode())
                if report.summary.partitions:
                    publish(self._output, report.run)
                self._known.remove_unneeded(self._run, is_all=self._goes_through_all(report))
        self._progress.finish(report.exit_code)
        return report

    @contextmanager
    def _explained(self, report: ArchiveReport, undone: str) -> Iterator[None]:
        """Turn an error of the output in the block into one that says what is *undone*, and what to do.

        Raises:
            OutputError: the output cannot be read or written.
        """
        try:
            yield
        except OSError as error:
            if self._output is None or not f"{error.filename}/".startswith(f"{self._output.url}/"):
                raise
            text = f"{error.filename}: {error.strerror}: {undone}"
            if report.quarantine is not None:
                with suppress(OSError):
                    count = saved_by(self._output, report.run)
                    text += f"; objects copied to {report.quarantine} before they were replaced: {count}"
            elif self._options.rebuilds:
                text += f"; what it rebuilt, if anything, is in {self._output.url}/{RECOVERED}{report.run}"
            mend = "make room" if error.errno in FULL_ERRNOS else "mend that"
            raise OutputError(f"{text}. Remedy: {mend}, {_OUTPUT_REMEDY}") from error

    def _survey(self, spool: SurveySpool, report: ArchiveReport) -> None:
        known = self._known = KnownScans(self._output)
        report.notes += known.notes
        removed: list[str] = []
        with ExitStack() as stack:
            stack.callback(_note_removed, report, removed)
            expected = open_expectations(self._options.metadata, stack)
            copies = CopyFindings(self._store)
            unversioned = 0
            topics: set[str] = set()
            for partition in self._partitions(expected, report, copies):
                removed += partition.removed
                report.notes += (Note(text=partition.note),) if partition.note else ()
                topics.add(partition.head.where.topic)
                self._stop.check()
                unknown = known.without(partition)
                report.known_segments += len(partition.works) - len(unknown.works)
                unversioned += len(partition.works.segments.unversioned())
                spool.add(unknown)
            if unversioned and self._output is not None:
                text = f"{unversioned} segments are read in each run: neither list nor store has ETags of their objects"
                report.notes += (Note(text=f"{text}, and by its size alone no object is known again"),)
            idle = without_effect(
                self._options.topic_configs, topics, where="in what is checked of the archive"
            )
            report.notes += tuple(Note(text=text) for text in idle)
            if not report.unlisted:
                self._choice.refuse_missing(self._store.url)
                if not spool.partition_count:
                    refuse_nothing(self._store, self._layout)
            report.metadata_findings = (*expected.findings(), *copies.findings(self._choice))
        self._progress.surveyed(
            partition_count=spool.partition_count,
            segment_count=spool.segment_count,
            log_bytes=spool.log_bytes,
        )

    def _partitions(
        self, expected: Expectations, report: ArchiveReport, copies: CopyFindings
    ) -> Iterator[SurveyedPartition]:
        """Yield the partitions in all layouts that are asked for; then those that are missing."""
        others = OtherLayouts()
        layouts = [self._layout]
        for layout in layouts:
            self._refuse_in_place(layout)
            options = replace(self._for_tasks, layout=layout.name)
            for found in survey(
                self._store,
                layout,
                options,
                expected=expected,
                is_chosen=self._choice,
                topic_configs=self._topic_configs,
                others=all_but(layout),
                copies=copies,
            ):
                if isinstance(found, SurveyedPartition):
                    yield found
                elif isinstance(found, OtherLayout):
                    others.note(found)
                elif found not in report.unlisted:
                    report.unlisted.append(found)
            further = others.next_name([one.name for one in layouts])
            if self._options.layout == AUTO and further is not None:
                layouts.append(make_layout(further, self._options.keys))
        names = [layout.name for layout in layouts]
        report.layout = ", ".join(names)
        report.notes += tuple(Note(text=text) for text in others.notes(names))
        self._for_tasks = replace(self._for_tasks, layout=",".join(names))
        tiered = next((layout for layout in layouts if layout.is_tiered), self._layout)
        yield from missing_partitions(
            tiered,
            self._for_tasks,
            expected=expected,
            is_chosen=self._choice,
            topic_configs=self._topic_configs,
        )

    def _refuse_in_place(self, layout: Layout) -> None:
        if self._options.is_in_place and layout.in_place_obstacle:
            raise UsageError(f"--in-place: {layout.in_place_obstacle}")

    def _work(self, spool: SurveySpool, report: ArchiveReport) -> None:
        plan = RunPlan(options=self._for_tasks, run=self._run, began_ms=self._began_ms)
        size = RunSize(segment_count=spool.segment_count + report.known_segments, log_bytes=spool.log_bytes)
        engine, notes = self._open_engine(plan, size, self._stop)
        report.notes += tuple(Note(text=text) for text in notes)
        with closing(engine):
            self._scan(spool, engine)
            self._stop.check()
            self._fold(engine, report)

    def _scan(self, spool: SurveySpool, engine: Engine) -> None:
        segment_bytes = LOG_BYTES if self._options.is_logs_only else SEGMENT_BYTES
        cost_bytes = spool.log_bytes + spool.segment_count * segment_bytes
        task_bytes = self._options.task_bytes or engine.sizes.task_bytes(cost_bytes, engine.cores)
        tasks = pack(spool, task_bytes=task_bytes, segment_bytes=segment_bytes)
        for wave in _waves(tasks, max(_LEAST_WAVE_TASKS, -(-cost_bytes // task_bytes // _WAVES))):
            self._stop.check()
            self._scan_wave(wave, engine)

    def _scan_wave(self, wave: list[tuple[bytes, TaskShare]], engine: Engine) -> None:
        self._progress.start_wave([share for _, share in wave])
        done = 0

        def on_finished(finished: int) -> None:
            nonlocal done
            if finished > done:
                self._progress.finish_tasks(finished - done)
                done = finished

        engine.scan([task for task, _ in wave], on_finished)
        self._progress.finish_wave()

    def _goes_through_all(self, report: ArchiveReport) -> bool:
        """Return whether all partitions of the archive were surveyed."""
        options = self._options
        is_part = options.topics or options.partitions or options.files_from or report.unlisted
        return not is_part and options.layout == AUTO

    def _fold(self, engine: Engine, report: ArchiveReport) -> None:
        if self._options.rebuilds:
            report.has_begun_rebuilding = True
            engine.rebuild()
        total = FoldResult()
        for part in engine.fold():
            total.merge(part)
        report.summary = total.summary
        report.objects = total.objects.rows()
        report.left_out = total.objects.total - len(report.objects)
        report.noted = total.noted.rows()


def _note_removed(report: ArchiveReport, removed: Sequence[str]) -> None:
    """Enter in *report* which temporary files were removed, also if the survey ends early."""
    if removed:
        text = f"temporary files of a run in place that was killed, removed: {len(removed)}, the first {removed[0]}"
        report.notes += (Note(text=text),)


def _waves(tasks: Iterator[PackedTask], most_tasks: int) -> Iterator[list[tuple[bytes, TaskShare]]]:
    """Yield waves of pickled tasks with their shares."""
    wave: list[tuple[bytes, TaskShare]] = []
    size = 0
    for task in tasks:
        data = pickle.dumps(task, protocol=5)
        wave.append((data, _share(task)))
        size += len(data)
        if len(wave) >= most_tasks or size >= _WAVE_BYTES:
            yield wave
            wave, size = [], 0
    if wave:
        yield wave


def _share(task: PackedTask) -> TaskShare:
    return TaskShare(
        log_bytes=task.log_bytes,
        segment_count=task.segment_count,
        begun=tuple(task.begun),
        ended=tuple(task.ended),
    )
