"""An archive checked by Spark: survey on the driver, scan in waves of tasks, fold by partition, a report back.

The driver lists and packs, holds one wave at a time, and gets back counts and bad objects. The results of segments go
from the scan to the fold through the output, if there is one, where the next run finds them again; else through Spark.
"""

from __future__ import annotations

import json
import pickle
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from recovery.archive.check.kept_scans import kept_keys, known_digests
from recovery.archive.check.options import CheckOptions
from recovery.archive.check.output import QUARANTINE, VERDICTS
from recovery.archive.check.packing import LOG_BYTES, SEGMENT_BYTES, PackedTask, pack
from recovery.archive.check.progress import ArchiveProgress, TaskShare
from recovery.archive.check.report import ArchiveReport
from recovery.archive.check.scanned import DIGEST_BYTES
from recovery.archive.check.survey import SurveyedPartition, survey
from recovery.archive.check.survey_spool import SurveySpool
from recovery.archive.check.tally import Tally
from recovery.archive.inventory.expectations import open_expectations
from recovery.archive.layouts.layouts import layout_of, refuse_nothing
from recovery.archive.layouts.walk import UnlistedPrefix
from recovery.archive.stores.stores import open_store
from recovery.errors import InterruptedRecoveryError, RecoveryError, UsageError
from recovery.problem import Note
from recovery.spark.tasks import (
    FOLD_DDL,
    REBUILD_DDL,
    SCAN_DDL,
    FoldPlan,
    ScanPlan,
    find_rebuilds,
    fold_partitions,
    load_scans,
    rebuild_segments,
    scan_wave,
)
from recovery.spark.watch import is_connect, watched_tasks
from recovery.stop_request import StopRequest
from recovery.watch.events import Observer
from recovery.watch.notifier import Notifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from recovery.archive.layouts.layout import Layout
    from recovery.archive.stores.store import Store

_WAVE_BYTES = 16 << 20
"""Of pickled tasks in one wave, which travel with the job."""
_TASKS_A_CORE = 3
"""At least, if there is enough to do: a core that is done early takes another."""
_MOST_TASK_BYTES = 4 << 30
_LEAST_TASK_BYTES = 32 << 20
_LEAST_WAVE_TASKS = 256
_WAVES = 20
"""About how many waves a large run is divided into; a small one is a single wave."""
_CONNECT_CORES = 8
MOST_OBJECTS = 10_000
"""Rows of bad objects in a report."""
MOST_NOTED = 1_000
"""Rows of sound objects with notes."""


class ExecutorError(RecoveryError):
    """A task failed for a reason outside the archive: an executor without the package, or out of memory."""

    exit_code = 1


class ArchiveRun:
    """One run of `archive verify` or `archive recover`.

    Args:
        spark: the session that does the work.
        options: which archive, and how.
        observers: notified of all progress.
        stop: lets another thread end the run between two waves.
    """

    def __init__(
        self,
        spark: SparkSession,
        options: CheckOptions,
        *,
        observers: Iterable[Observer] = (),
        stop: StopRequest | None = None,
    ) -> None:
        self._spark = spark
        self._options = options
        self._choice = options.choice()
        self._topic_configs = options.settings()
        self._store: Store = options.open()
        self._layout: Layout = layout_of(self._store, options.layout, options.keys)
        self._for_tasks = options.for_tasks(self._layout.name)
        self._output = self._for_tasks.output
        self._progress = ArchiveProgress(
            Notifier(observers),
            self._store.url,
            "archive recover" if options.command == "recover" else "archive verify",
        )
        self._stop = StopRequest() if stop is None else stop
        self._cores = _core_count(spark) if options.cores is None else options.cores
        if options.is_in_place and self._layout.in_place_obstacle:
            raise UsageError(f"--in-place: {self._layout.in_place_obstacle}")
        self._run = uuid.uuid4().bytes
        self._scans: list[DataFrame] = []
        self._rebuilt: list[DataFrame] = []

    def run(self) -> ArchiveReport:
        """Check the archive and return the report.

        Raises:
            UsageError: the archive, or what was chosen of it, does not exist.
            OSError: the archive itself cannot be listed.
            ExecutorError: Spark gave up a task.
        """
        started_s = time.monotonic()
        report = ArchiveReport(
            command=self._options.command,
            url=self._store.url,
            layout=self._layout.name,
            output=self._output,
            quarantine=f"{self._output}/{QUARANTINE}{self._run.hex()}" if self._options.is_in_place else None,
            run=self._run.hex(),
            is_logs_only=self._options.is_logs_only,
            notes=tuple(Note(text=text) for text in self._options.notes),
        )
        self._progress.start()
        try:
            with SurveySpool() as spool:
                self._survey(spool, report)
                self._scan(spool)
            self._stop.check()
            self._fold(report)
        except InterruptedRecoveryError as error:
            report.signal_number = error.signal_number
        finally:
            for frame in (*self._scans, *self._rebuilt):
                frame.unpersist()
        report.duration_ms = round((time.monotonic() - started_s) * 1000)
        if self._output is not None and not report.signal_number:
            summary = f"{VERDICTS}{report.run}/summary.json"
            open_store(self._output).replace(summary, report.to_json().encode())
        self._progress.finish(report.exit_code)
        return report

    # -- survey and scan -------------------------------------------------------------------------------------

    def _survey(self, spool: SurveySpool, report: ArchiveReport) -> None:
        known = self._known_digests(report)
        with ExitStack() as stack:
            expected = open_expectations(self._options.metadata, stack)
            partitions = survey(
                self._store,
                self._layout,
                self._for_tasks,
                expected=expected,
                is_chosen=self._choice,
                topic_configs=self._topic_configs,
            )
            for partition in partitions:
                self._stop.check()
                if isinstance(partition, UnlistedPrefix):
                    report.unlisted.append(partition)
                else:
                    unknown = _without(partition, known)
                    report.known_segments += len(partition.works) - len(unknown.works)
                    spool.add(unknown)
            if not report.unlisted:
                self._choice.refuse_missing(self._store.url)
                if not spool.partition_count:
                    refuse_nothing(self._store, self._layout)
            report.metadata_findings = expected.findings()
        self._progress.surveyed(
            partition_count=spool.partition_count,
            segment_count=spool.segment_count,
            log_bytes=spool.log_bytes,
        )

    def _scan(self, spool: SurveySpool) -> None:
        segment_bytes = LOG_BYTES if self._options.is_logs_only else SEGMENT_BYTES
        cost_bytes = spool.log_bytes + spool.segment_count * segment_bytes
        task_bytes = self._task_bytes(cost_bytes)
        tasks = pack(spool, task_bytes=task_bytes, segment_bytes=segment_bytes)
        for wave in _waves(tasks, max(_LEAST_WAVE_TASKS, -(-cost_bytes // task_bytes // _WAVES))):
            self._stop.check()
            self._scan_wave(wave)

    def _scan_wave(self, wave: list[tuple[bytes, TaskShare]]) -> None:
        plan = ScanPlan(options=self._for_tasks, run=self._run, tasks=tuple(task for task, _ in wave))
        count = len(wave)
        frame = self._spark.range(0, count, 1, count).mapInArrow(partial(scan_wave, plan), SCAN_DDL)
        if self._output is None:
            frame = frame.persist()
            self._scans.append(frame)
        self._progress.start_wave([share for _, share in wave])
        done = 0

        def on_finished(finished: int) -> None:
            nonlocal done
            if finished > done:
                self._progress.finish_tasks(finished - done)
                done = finished

        with _spark_errors(), watched_tasks(self._spark, on_finished, self._stop):
            frame.agg({"log_bytes": "sum"}).collect()
        self._progress.finish_wave()

    def _known_digests(self, report: ArchiveReport) -> Any:  # noqa: ANN401 - an array of 16-byte strings
        """Return the digests of segments that earlier runs have kept, sorted; 16 bytes each."""
        if self._output is None:
            return np.empty(0, f"S{DIGEST_BYTES}")
        digests, notes = known_digests(open_store(self._output))
        report.notes += notes
        return np.unique(np.frombuffer(digests, f"S{DIGEST_BYTES}"))

    def _task_bytes(self, cost_bytes: int) -> int:
        if self._options.task_bytes is not None:
            return self._options.task_bytes
        share = cost_bytes // (_TASKS_A_CORE * self._cores) + 1
        return max(_LEAST_TASK_BYTES, min(_MOST_TASK_BYTES, share))

    # -- fold ------------------------------------------------------------------------------------------------

    def _fold(self, report: ArchiveReport) -> None:
        if self._output is None and not self._scans:
            return  # nothing could be listed
        plan = FoldPlan(options=self._for_tasks, run=self._run)
        rows = self._scan_rows()
        if self._options.rebuilds:
            rows = rows.union(self._rebuild(plan, rows))
        frame = self._by_partition(rows).mapInArrow(partial(fold_partitions, plan), FOLD_DDL)
        with _spark_errors(), watched_tasks(self._spark, lambda _: None, self._stop):
            results = frame.collect()
        for row in results:
            if row["kind"] == "tally":
                report.tally.merge(Tally.from_json(json.loads(row["payload"])))
            elif row["kind"] == "noted":
                if len(report.noted) < MOST_NOTED:
                    report.noted.append(json.loads(row["payload"]))
            elif row["kind"] == "left_out":
                report.left_out += int(row["payload"])
            elif len(report.objects) < MOST_OBJECTS:
                report.objects.append(json.loads(row["payload"]))
            else:
                report.left_out += 1
        report.objects.sort(key=lambda row: row["key"])
        report.noted.sort(key=lambda row: row["key"])

    def _rebuild(self, plan: FoldPlan, scans: DataFrame) -> DataFrame:
        """Judge all partitions by their *scans*, and rebuild indexes; return the rows that tell the fold of it."""
        works = self._by_partition(scans).mapInArrow(partial(find_rebuilds, plan), REBUILD_DDL)
        rebuilt = (
            works.repartition(_TASKS_A_CORE * self._cores)
            .mapInArrow(partial(rebuild_segments, plan), SCAN_DDL)
            .persist()
        )
        self._rebuilt.append(rebuilt)
        with _spark_errors(), watched_tasks(self._spark, lambda _: None, self._stop):
            rebuilt.agg({"log_bytes": "sum"}).collect()
        return rebuilt

    def _by_partition(self, rows: DataFrame) -> DataFrame:
        """Return *rows* with those of each partition together, in their order."""
        return rows.repartition(_TASKS_A_CORE * self._cores, "prefix").sortWithinPartitions(
            "prefix", "base_offset", "segment_id"
        )

    def _scan_rows(self) -> DataFrame:
        if self._output is None:
            frame = self._scans[0]
            for other in self._scans[1:]:
                frame = frame.union(other)
            return frame
        keys = kept_keys(open_store(self._output), self._run)
        count = max(1, min(len(keys), _TASKS_A_CORE * self._cores))
        return self._spark.range(0, len(keys), 1, count).mapInArrow(
            partial(load_scans, self._output, keys), SCAN_DDL
        )


def _without(partition: SurveyedPartition, known_digests: Any) -> SurveyedPartition:  # noqa: ANN401 - see _known_digests
    """Return *partition* without the work on segments whose digests are known."""
    if not len(known_digests):
        return partition
    digests = np.frombuffer(partition.head.digests, f"S{DIGEST_BYTES}")
    # Not np.isin: it would sort all known digests again for each partition.
    positions = np.minimum(np.searchsorted(known_digests, digests), len(known_digests) - 1)
    is_known = known_digests[positions] == digests
    return replace(partition, works=partition.works.take(np.flatnonzero(~is_known).tolist()))


def _core_count(spark: SparkSession) -> int:
    return _CONNECT_CORES if is_connect(spark) else int(spark.sparkContext.defaultParallelism)


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


@contextmanager
def _spark_errors() -> Iterator[None]:
    """Turn what Spark raises for a failed job into an error with a remedy."""
    try:
        yield
    except RecoveryError:
        raise
    except Exception as error:
        text = str(error)
        if "ModuleNotFoundError" in text and "recovery" in text:
            raise UsageError(
                "the executors have no kafka-log-recovery: install it in their Python environment "
                "(docs/archive.md: what executors need)"
            ) from error
        if not type(error).__module__.startswith(("pyspark", "py4j", "grpc")):
            raise
        last = next((line for line in reversed(text.splitlines()) if "Error" in line), text[:300])
        raise ExecutorError(f"Spark gave up the job: {last.strip()[:500]}") from error
