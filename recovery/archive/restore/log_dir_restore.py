"""The part of a restore in one log dir: what goes there is fetched into its stage, and moved in once it is recovered.

An I/O error of the log dir ends its part, and the other log dirs go on. An error of the archive ends a partition.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Literal

from recovery.archive.restore.log_end import RECOVER_COPY
from recovery.archive.restore.plan import PlannedRestore, refused
from recovery.archive.restore.progress import RestoreProgress
from recovery.archive.restore.report import RestoredPartition
from recovery.archive.restore.source import SourceSegment
from recovery.archive.restore.stage import Stage
from recovery.archive.stores.store import Store
from recovery.engine.report import PartitionReport
from recovery.errors import DamagedSegmentError, InterruptedRecoveryError, LogDirOfflineError, error_text
from recovery.quantity import count_text
from recovery.read.rate_limit import RateLimit
from recovery.stop_request import StopRequest
from recovery.write.move_in import MovedIn, OpenQuarantine, has_intent, move_in, sync_stage
from segfmt.errors import FormatError


class _Numbers(threading.local):
    """The number of the calling thread among those that fetch."""

    value = 0


class LogDirRestore:
    """What is restored into one log dir, step by step: `open`, `fetch`, (the engine), `move_in`.

    Args:
        log_dir: the log dir.
        partitions: that go there.
        producers_since_ms: when those last wrote that a broker still knows.
        progress: is told of each step.
        stop: ends the work early.

    Attributes:
        stage: where they are made.
        failure: the I/O error that ended the work in the log dir, None while there was none.
    """

    def __init__(
        self,
        log_dir: str,
        partitions: Sequence[PlannedRestore],
        *,
        producers_since_ms: int,
        progress: RestoreProgress,
        stop: StopRequest,
    ) -> None:
        self.log_dir = log_dir
        self.stage = Stage(log_dir)
        self.failure: OSError | None = None
        self._partitions = partitions
        self._producers_since_ms = producers_since_ms
        self._progress = progress
        self._stop = stop
        self._faults: dict[str, list[Exception]] = {one.source.name: [] for one in partitions}
        self._missing_segments: Mapping[str, Sequence[SourceSegment]] = {}
        self._numbers = _Numbers()

    @property
    def sound(self) -> Sequence[PlannedRestore]:
        """The partitions with which nothing is wrong so far."""
        if self.failure is not None:
            return ()
        return [one for one in self._partitions if not self._faults[one.source.name]]

    @contextmanager
    def may_fail(self) -> Iterator[None]:
        """Let an I/O error in the block end the work in this log dir."""
        try:
            yield
        except LogDirOfflineError as error:
            self.fail(error.error if isinstance(error.error, OSError) else OSError(str(error)))
        except OSError as error:
            self.fail(error)

    def open(self) -> None:
        """Make the stage, or take over what an interrupted run has left in it."""
        missing: dict[str, Sequence[SourceSegment]] = {}
        with self.may_fail():
            self.stage.open(self._partitions)
            missing = {one.source.name: self._missing(one) for one in self._partitions}
        self._missing_segments = missing
        bytes_to_fetch = {name: sum(one.log_bytes for one in segments) for name, segments in missing.items()}
        self._progress.start_log_dir(self.log_dir, self._partitions, bytes_to_fetch)

    def fetch(self, store: Store, limit: RateLimit, thread_count: int) -> None:
        """Lay down the logs of all partitions.

        Raises:
            InterruptedRecoveryError: the run is to end.
        """
        numbers = itertools.count()

        def number_thread() -> None:
            self._numbers.value = next(numbers)

        with ThreadPoolExecutor(thread_count, "archive-restore", initializer=number_thread) as pool:
            pending = [
                pool.submit(self._try, one, step)
                for one in self._partitions
                for step in self._steps(one, store, limit)
            ]
            try:
                for one in pending:
                    one.result()
            except InterruptedRecoveryError:
                pool.shutdown(cancel_futures=True)
                raise

    def move_in(
        self,
        reports: Mapping[str, PartitionReport],
        open_quarantine: OpenQuarantine,
        *,
        needs_start_line: Callable[[PlannedRestore, RestoredPartition], bool],
    ) -> tuple[list[RestoredPartition], str | None]:
        """Move what is whole into the log dir.

        Args:
            reports: of the engine, by folder.
            needs_start_line: whether the log dir's checkpoint must say where a log begins.

        Returns:
            What became of each partition, and the run's folder in quarantine.

        Raises:
            InterruptedRecoveryError: the run is to end.
        """
        results = [self._checked(one, reports.get(one.source.name)) for one in self._partitions]
        run = None
        with self.may_fail():
            if self.failure is None:
                run = self._move_in(results, open_quarantine, needs_start_line)
        if self.failure is not None:
            reason = f"{error_text(self.failure)}. {self._after_failure()}"
            results = [
                _left(planned, [reason], status="failed") if one.status == "restored" else one
                for planned, one in zip(self._partitions, results, strict=True)
            ]
        for result in results:
            self._progress.finish_partition(result)
        self._progress.finish_log_dir(self.log_dir, self.failure)
        return results, run

    def _move_in(
        self,
        results: Sequence[RestoredPartition],
        open_quarantine: OpenQuarantine,
        needs_start_line: Callable[[PlannedRestore, RestoredPartition], bool],
    ) -> str | None:
        moved = []
        for one, result in zip(self._partitions, results, strict=True):
            if result.status == "restored":
                moved.append(_moved_in(result, has_start=needs_start_line(one, result)))
            else:
                self.stage.drop(one.source.name)
        if not moved:
            return None
        self._stop.check()
        sync_stage(self.log_dir)
        return move_in(self.log_dir, moved, open_quarantine)

    def fail(self, error: OSError) -> None:
        """End the work in this log dir; the first error is kept."""
        self.failure = self.failure or error

    def _missing(self, planned: PlannedRestore) -> Sequence[SourceSegment]:
        """Return the segments that are to be fetched: what an interrupted run has fetched is there."""
        segments = planned.source.segments if planned.mode == "full" else ()
        return [segment for segment in segments if not self.stage.has_fetched(planned, segment)]

    def _steps(self, planned: PlannedRestore, store: Store, limit: RateLimit) -> Iterator[Callable[[], None]]:
        """Yield what there is to do for a partition; each may be done by another thread."""
        yield partial(self.stage.write_small_files, planned, store)
        for segment in self._missing_segments.get(planned.source.name, ()):
            yield partial(self._fetch, planned, segment, store, limit)

    def _try(self, planned: PlannedRestore, step: Callable[[], None]) -> None:
        """Do a step; an error of the archive is a fault of the partition."""
        if self.failure is not None:
            return
        with self.may_fail():
            try:
                step()
            except (DamagedSegmentError, FormatError, OSError) as error:
                self._faults[planned.source.name].append(error)

    def _fetch(self, planned: PlannedRestore, segment: SourceSegment, store: Store, limit: RateLimit) -> None:
        self._stop.check()
        name, thread_num = planned.source.name, self._numbers.value
        self._progress.start_segment(self.log_dir, name, thread_num)
        self.stage.fetch(
            store,
            planned,
            segment,
            limit=limit,
            stop=self._stop,
            on_bytes=partial(self._progress.fetched, self.log_dir, name, thread_num),
        )

    def _checked(self, planned: PlannedRestore, report: PartitionReport | None) -> RestoredPartition:
        """Return what becomes of a partition, `restored` also if its log dir has failed, or does now."""
        result = planned.result()
        faults = self._faults[planned.source.name]
        if faults:
            is_failed = any(isinstance(fault, OSError) for fault in faults)
            texts = [_text(planned, fault) for fault in faults]
            return _left(planned, texts, status="failed" if is_failed else "refused")
        if self.failure is not None:
            return result
        try:
            if planned.mode == "aux":
                left_open = _open_transactions(self.stage, planned, result)
                return replace(result, warnings=(*result.warnings, *left_open))
            return self._judged(planned, result, report)
        except OSError as error:
            self.fail(error)
            return result

    def _judged(
        self, planned: PlannedRestore, result: RestoredPartition, report: PartitionReport | None
    ) -> RestoredPartition:
        """Return what becomes of a partition whose log was recovered in the stage."""
        if report is None:
            return _left(planned, ["it was not recovered after it was fetched"], status="failed")
        if report.cuts:
            texts = [f"{cut.file}, position {cut.position:,}: {cut.reason}" for cut in report.cuts]
            return _left(planned, [f"{'; '.join(texts)}. {_remedy(planned)}"])
        if report.status in ("truncated", "refused", "failed"):
            return _left(planned, report.reasons or ["its log is damaged"])
        if result.log_end_offset not in (None, report.log_end_offset):
            why = f"it ends at offset {report.log_end_offset}, and should at {result.log_end_offset}"
            return _left(planned, [why])
        assert report.log_end_offset >= 0
        is_remote = planned.remote_start_offset is not None
        result = replace(
            result,
            log_start_offset=result.log_start_offset if is_remote else report.log_start_offset,
            log_end_offset=report.log_end_offset,
        )
        warnings = (
            *result.warnings,
            *map(str, report.warnings),
            *map(str, report.holes),
            *_open_transactions(self.stage, planned, result),
            *_known_producers(self.stage, planned, result, self._producers_since_ms),
        )
        return replace(result, warnings=warnings)

    def _after_failure(self) -> str:
        """Return what the operator should know after an I/O error of this log dir."""
        is_begun = True
        with suppress(OSError):
            is_begun = has_intent(self.log_dir)
        left = "what is missing of it is moved in then" if is_begun else "nothing of it is in the log dir"
        return f"Remedy: see to that disk, and start again; {left}"


def _text(planned: PlannedRestore, fault: Exception) -> str:
    """Return what is said of a fault of the archive, with a remedy."""
    text = error_text(fault)
    if "Remedy:" in text:
        return text
    if isinstance(fault, DamagedSegmentError):
        return f"{text}. {_remedy(planned)}"
    return f"{text}. Remedy: see that it can be read, and start again"


def _remedy(planned: PlannedRestore) -> str:
    """Return what helps where a log in the archive is damaged."""
    if planned.source.layout.is_tiered:
        return "Remedy: put sound objects in the place of those that archive verify calls damaged"
    return f"Remedy: copy it again; or, which cuts what is damaged and keeps it, {RECOVER_COPY}"


def _left(
    planned: PlannedRestore, reasons: Iterable[str], *, status: Literal["refused", "failed"] = "refused"
) -> RestoredPartition:
    """Return the report on a partition that is not moved in."""
    return replace(refused(planned.source, planned.mode, reasons), status=status, log_dir=planned.log_dir)


def _moved_in(result: RestoredPartition, *, has_start: bool) -> MovedIn:
    assert result.log_end_offset is not None
    return MovedIn(
        folder=f"{result.topic}-{result.partition}",
        log_start_offset=result.log_start_offset if has_start else None,
        log_end_offset=result.log_end_offset,
    )


def _open_transactions(stage: Stage, planned: PlannedRestore, result: RestoredPartition) -> list[str]:
    """Return a warning of each transaction that is open at the log's end, which nobody will end by himself."""
    assert result.log_end_offset is not None
    left = stage.open_transactions(planned, result.log_end_offset)
    return [
        f"a transaction of producer {producer_id} is open at the end of the archive, from offset {first} on: consumers "
        "at read_committed stop there. Remedy: once the broker runs, kafka-transactions.sh --bootstrap-server "
        f"HOST:PORT abort --topic {result.topic} --partition {result.partition} --start-offset {first}"
        for producer_id, first in sorted(left, key=lambda one: one[1])
    ]


def _known_producers(
    stage: Stage, planned: PlannedRestore, result: RestoredPartition, since_ms: int
) -> list[str]:
    """Return a warning if a log of another cluster knows producers, whose ids this one will give to others.

    Kafka: ProducerIdControlManager, ProducerAppendInfo.checkSequence, ProducerStateEntry.findDuplicateBatch.
    """
    assert result.log_end_offset is not None
    if planned.source.topic_id == result.topic_id:
        return []
    producer_ids = stage.producers(planned, result.log_end_offset, since_ms)
    if not producer_ids:
        return []
    known = f"{count_text(len(producer_ids), 'producer')} with ids up to {max(producer_ids)}"
    return [
        f"{known} known at its end, and a new cluster gives these ids to others: what such a producer writes first "
        "may be taken for a duplicate, which is acknowledged and not written. Remedy: until they expire, a day "
        "after they last wrote, run all brokers with producer.id.expiration.ms=60000"
    ]
