"""The run of a verify: all partitions of all log dirs, their segments read by one pool of threads.

Segments are handed out in the order of base offsets, partition by partition, with the log dirs taking turns; results
are taken in the same order, so a large partition keeps all threads busy, and memory holds only a few results.

What is found in the log dir of a live broker is checked again before it is reported: files that retention or
compaction has removed or replaced meanwhile are not damage.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from uuid import UUID

from recovery.broker.starting_release import StartingRelease
from recovery.check.checked_log_dir import CheckedLogDir, find_contradictions, kind_of, log_sizes
from recovery.check.facts import PartitionFacts
from recovery.check.finding import FileVerdict, Finding, findings_by_file, unreadable
from recovery.check.folder_files import LocalFolder, read_folder
from recovery.check.log_dir_files import LogDirFiles, read_log_dir
from recovery.check.options import VerifyOptions
from recovery.check.partition import PartitionCheck
from recovery.check.report import VerifyReport
from recovery.check.rules.blame import blame_logs
from recovery.check.second_look import Recheck
from recovery.check.segment import check_segment
from recovery.check.segment_files import FolderSegmentFiles
from recovery.check.task import Reading, SegmentResult, SegmentTask
from recovery.errors import InterruptedRecoveryError, error_text
from recovery.logdir.checkpoints import OFFSET_CHECKPOINTS
from recovery.logdir.choice import PartitionChoice
from recovery.logdir.dirs import CHECK_MOUNT, NOT_A_LOG_DIR, is_without_logs
from recovery.logdir.lock import is_locked
from recovery.logdir.missing_logs import MissingLog
from recovery.logdir.user import access_remedy
from recovery.problem import Note
from recovery.read.kernel_start import KernelStart, start_kernels
from recovery.read.rate_limit import RateLimit
from recovery.stop_request import StopRequest
from recovery.threads import ThreadPool
from recovery.watch.events import (
    BytesScanned,
    LogDirFinished,
    LogDirOffline,
    LogDirStarted,
    Observer,
    PartitionChecked,
    PartitionStarted,
    Remark,
    RunFinished,
    RunStarted,
)
from recovery.watch.notifier import Notifier
from segfmt.filenames import (
    CLEANER_OFFSET_CHECKPOINT,
    CLUSTER_METADATA_TOPIC,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    FileKind,
    FolderState,
    PartitionFolder,
    file_kind,
)

_RESULTS_AHEAD = 4
"""Segments handed out per thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    """What a verify needs of a topic's settings.

    Attributes:
        is_contiguous: whether nothing is ever compacted away, as far as is known.
        topic_id: that in the metadata log, None if unknown.
        is_gone: whether a metadata log was read, and has no topic of this name.
    """

    is_contiguous: bool = False
    is_preallocated: bool = False
    segment_index_bytes: int | None = None
    topic_id: UUID | None = None
    is_gone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFacts:
    """What a verify needs to know of the broker besides its options.

    Attributes:
        topic_facts: returns what is known of a topic.
        thread_count: threads for each log dir; they work in one pool.
        producer_id_expiration_ms: `producer.id.expiration.ms`.
        node_id: that of the configuration, None if it has none.
        release: of the broker that will start, and how it is known.
        cordoned_log_dirs: those that get no new logs, for observers.
        missing_logs: those that have vanished, or that a broker at work is deleting.
        remarks: what was noticed so far, for the observers; they become notes of the run.
    """

    topic_facts: Callable[[str], TopicFacts]
    thread_count: int
    producer_id_expiration_ms: int = 86_400_000
    node_id: int | None = None
    release: StartingRelease = field(default_factory=StartingRelease)
    cordoned_log_dirs: tuple[str, ...] = ()
    missing_logs: tuple[MissingLog, ...] = ()
    remarks: tuple[Remark, ...] = ()


@dataclass(slots=True, kw_only=True)
class _Partition:
    """A partition being checked."""

    owner: CheckedLogDir
    folder: PartitionFolder
    check: PartitionCheck
    results: list[SegmentResult] = field(default_factory=list)
    failures: list[Finding] = field(default_factory=list)

    @property
    def segment_count(self) -> int:
        """How many segments are read, without `.swap` files and KRaft's snapshots."""
        return sum(result.task.has_indexes for result in self.results)


class VerifyRun:
    """One verify over log dirs.

    Args:
        log_dirs: absolute paths.
        broker: what is known of it.
        limit: on the reads of all threads together; None for that of the options.
    """

    def __init__(
        self,
        log_dirs: Iterable[str],
        options: VerifyOptions,
        broker: BrokerFacts,
        *,
        observers: Iterable[Observer] = (),
        stop: StopRequest | None = None,
        limit: RateLimit | None = None,
    ) -> None:
        self._log_dirs = tuple(log_dirs)
        self._options = options
        self._broker = broker
        self._choice = PartitionChoice(options.topics, options.partitions)
        self._now_ms = time.time_ns() // 1_000_000 if options.now_ms is None else options.now_ms
        self._notify = Notifier(observers)
        self._stop = StopRequest() if stop is None else stop
        self._limit = limit or RateLimit(options.max_bytes_per_second, check=self._stop.check)
        self._one_at_a_time = threading.Lock()
        self._dirs: list[CheckedLogDir] = []

    def run(self) -> VerifyReport:
        """Check everything and return what was found. Damage and unreadable files are values, not errors.

        Raises:
            UsageError: what was chosen is in none of the log dirs.
        """
        started_s = time.monotonic()
        signal_number = 0
        try:
            self._start(start_kernels())
            self._check_all()
            for checked_dir in self._dirs:
                self._finish_dir(checked_dir, started_s)
        except InterruptedRecoveryError as error:
            signal_number = error.signal_number
        report = VerifyReport(
            log_dirs=tuple(checked_dir.report() for checked_dir in self._dirs),
            is_deep=self._options.deep,
            release=self._broker.release,
            duration_ms=round((time.monotonic() - started_s) * 1000),
            signal_number=signal_number,
            notes=tuple(Note(level=remark.level, text=remark.text) for remark in self._broker.remarks),
        )
        self._notify(RunFinished(exit_code=report.exit_code))
        return report

    # -- what there is ---------------------------------------------------------------------------------------

    def _start(self, kernels: KernelStart) -> None:
        self._notify(
            RunStarted(
                log_dirs=self._log_dirs,
                threads_per_dir=self._broker.thread_count,
                command="verify",
                dry_run=True,
                cpu_path=kernels.cpu_path,
                kernel_origin=kernels.origin,
                release=self._broker.release.release.value,
                cordoned_log_dirs=self._broker.cordoned_log_dirs,
            )
        )
        for remark in (*kernels.remarks, *self._broker.remarks):
            self._notify(remark)
        for log_dir in self._log_dirs:
            self._dirs.append(self._list(log_dir))
        if all(checked_dir.error is None for checked_dir in self._dirs):
            self._choice.refuse_missing(", ".join(self._log_dirs))
        find_contradictions(self._dirs, node_id=self._broker.node_id)
        for checked_dir in self._dirs:
            if checked_dir.error is not None:
                self._notify(LogDirOffline(log_dir=checked_dir.log_dir, error=checked_dir.error))
                continue
            sizes = [
                size
                for folder in checked_dir.partitions
                for size in log_sizes(checked_dir.log_dir, folder.name)
            ]
            self._notify(
                LogDirStarted(
                    log_dir=checked_dir.log_dir,
                    had_clean_shutdown=checked_dir.files.had_clean_shutdown,
                    log_count=len(checked_dir.partitions),
                    segment_count=len(sizes),
                    bytes_total=sum(sizes),
                )
            )

    def _list(self, log_dir: str) -> CheckedLogDir:
        try:
            if is_without_logs(log_dir):
                return _not_checked(log_dir, f"{NOT_A_LOG_DIR}, and there is no log in it. {CHECK_MOUNT}")
            is_live = is_locked(log_dir)
            files = read_log_dir(log_dir, take=self._limit.take)
        except FileNotFoundError:
            return _not_checked(log_dir, f"no such log dir. {CHECK_MOUNT}")
        except OSError as error:
            why = error_text(error).removeprefix(f"{log_dir}: ")
            if isinstance(error, PermissionError):
                why += f". Remedy: {access_remedy(error.filename or log_dir)}"
            return _not_checked(log_dir, why)
        checked_dir = CheckedLogDir(log_dir=log_dir, is_live=is_live, files=files)
        checked_dir.partitions = [folder for folder in files.folders if self._choice(folder)]
        checked_dir.log_dir_findings = [*files.findings, *self._missing_in(log_dir, is_live=is_live)]
        return checked_dir

    def _missing_in(self, log_dir: str, *, is_live: bool) -> Iterator[Finding]:
        """Yield the chosen logs that have vanished; a broker that is at work may just be deleting them."""
        for log in () if is_live else self._broker.missing_logs:
            if log.log_dir == log_dir and self._choice(log):
                detail = f"{log.checkpoint} ends it at offset {log.end}, and there is no folder"
                yield Finding(file=log.folder, position=None, rule="missing-log", detail=detail)

    def facts(self, checked_dir: CheckedLogDir, folder: PartitionFolder) -> PartitionFacts:
        """Return what is known of a partition."""
        topic = self._broker.topic_facts(folder.topic)
        was_cleaned = checked_dir.files.offset(CLEANER_OFFSET_CHECKPOINT, folder) is not None
        return PartitionFacts(
            path=os.path.join(checked_dir.log_dir, folder.name),
            folder=folder.name,
            topic=folder.topic,
            partition=folder.partition,
            is_live=checked_dir.is_live,
            had_clean_shutdown=checked_dir.files.had_clean_shutdown,
            recovery_point=checked_dir.files.offset(RECOVERY_POINT_CHECKPOINT, folder),
            log_start_offset=checked_dir.files.offset(LOG_START_OFFSET_CHECKPOINT, folder),
            high_watermark=checked_dir.files.offset(REPLICATION_OFFSET_CHECKPOINT, folder),
            is_contiguous=topic.is_contiguous and not was_cleaned,
            marked_ns=checked_dir.files.marked_ns if folder.state is FolderState.CURRENT else None,
            topic_id=topic.topic_id,
            is_topic_gone=topic.is_gone,
            is_metadata_log=folder.topic == CLUSTER_METADATA_TOPIC,
            is_preallocated=topic.is_preallocated,
            segment_index_bytes=topic.segment_index_bytes,
            is_deep=self._options.deep,
            now_ms=self._now_ms,
            expiration_ms=self._broker.producer_id_expiration_ms,
        )

    # -- the work --------------------------------------------------------------------------------------------

    def _check_all(self) -> None:
        thread_count = self._broker.thread_count * max(1, len(self._dirs))
        in_hand: deque[tuple[_Partition, Future[SegmentResult | Finding] | None]] = deque()
        pool = ThreadPool(thread_count, thread_name_prefix="log-verify")
        try:
            for partition in self._partitions():
                for task in partition.check.tasks():
                    in_hand.append(
                        (partition, pool.submit(self._read, partition.owner, partition.folder, task))
                    )
                    while len(in_hand) > _RESULTS_AHEAD * thread_count:
                        self._collect(*in_hand.popleft())
                in_hand.append((partition, None))
            while in_hand:
                self._collect(*in_hand.popleft())
        finally:
            pool.shutdown(cancel_futures=True)

    def _partitions(self) -> Iterator[_Partition]:
        """Yield the partitions, with the log dirs taking turns."""
        queues = [
            (checked_dir, deque(checked_dir.partitions))
            for checked_dir in self._dirs
            if checked_dir.error is None
        ]
        while queues:
            for checked_dir, folders in queues:
                if folders:
                    partition = self._open(checked_dir, folders.popleft())
                    if partition is not None:
                        yield partition
            queues = [(checked_dir, folders) for checked_dir, folders in queues if folders]

    def _open(self, checked_dir: CheckedLogDir, folder: PartitionFolder) -> _Partition | None:
        self._stop.check()
        facts = self.facts(checked_dir, folder)
        try:
            files = read_folder(
                LocalFolder(facts.path),
                is_live=checked_dir.is_live,
                is_metadata_log=facts.is_metadata_log,
                take=self._limit.take,
            )
        except OSError as error:
            if not (checked_dir.is_live and isinstance(error, FileNotFoundError)):
                checked_dir.log_dir_findings.append(unreadable(folder.name, error))
            return None
        check = PartitionCheck(facts, files)
        sizes = [file.size_bytes for name, file in files.names.items() if file_kind(name) is FileKind.LOG]
        self._notify(
            PartitionStarted(
                log_dir=checked_dir.log_dir,
                partition=folder.name,
                thread_num=0,
                unflushed_segment_count=len(sizes),
                recover_bytes=sum(sizes),
            )
        )
        return _Partition(owner=checked_dir, folder=folder, check=check)

    def _read(
        self, checked_dir: CheckedLogDir, folder: PartitionFolder, task: SegmentTask
    ) -> SegmentResult | Finding:
        def on_bytes(count: int) -> None:
            self._stop.check()
            if count:
                self._notify(
                    BytesScanned(
                        log_dir=checked_dir.log_dir, partition=folder.name, thread_num=0, scanned_bytes=count
                    )
                )

        reading = Reading(
            limit=self._limit,
            on_bytes=on_bytes,
            one_at_a_time=self._one_at_a_time,
        )
        files = FolderSegmentFiles(task.folder, drops_cache=self._options.drop_cache)
        try:
            return check_segment(task, reading, files)
        except OSError as error:
            return unreadable(task.log, error)

    def _collect(self, partition: _Partition, future: Future[SegmentResult | Finding] | None) -> None:
        if future is None:
            self._finish(partition)
            return
        result = future.result()
        if isinstance(result, Finding):
            partition.failures.append(result)
            return
        partition.results.append(result)
        partition.check.take(result)

    def _finish(self, partition: _Partition) -> None:
        checked_dir, folder = partition.owner, partition.folder
        findings = [*partition.check.finish(), *partition.failures]
        if any(finding.severity != "note" for finding in findings) and (
            checked_dir.is_live or is_locked(checked_dir.log_dir)
        ):
            checked_dir.is_live = True
            recheck = Recheck(
                facts=self.facts(checked_dir, folder),
                read=lambda task: self._read(checked_dir, folder, task),
                stop=self._stop,
                take=self._limit.take,
            )
            findings = recheck.confirm(findings, partition.results, partition.check.files)
        self._take_verdicts(partition, blame_logs(findings))

    # -- verdicts --------------------------------------------------------------------------------------------

    def _take_verdicts(self, partition: _Partition, findings: list[Finding]) -> None:
        checked_dir, check = partition.owner, partition.check
        of_dir = set(OFFSET_CHECKPOINTS)
        checked_dir.log_dir_findings += [finding for finding in findings if finding.file in of_dir]
        by_file = findings_by_file(finding for finding in findings if finding.file not in of_dir)
        checked = check.checked_bytes
        for name in sorted({*checked, *by_file}):
            checked_dir.verdicts.append(
                FileVerdict(
                    path=os.path.join(check.facts.path, name),
                    kind=kind_of(name),
                    checked_bytes=checked.get(name, 0),
                    findings=tuple(by_file.get(name, ())),
                )
            )
        checked_dir.finished_count += 1
        checked_dir.segment_count += partition.segment_count
        checked_dir.batch_count += sum(result.batch_count for result in partition.results)
        worst = [finding for finding in findings if finding.severity != "note"]
        for finding in worst:
            position = "" if finding.position is None else f" at byte {finding.position:,}"
            text = f"{finding.file}{position}: {finding.rule}: {finding.detail}"
            self._notify(
                Remark(text=text, level="error", log_dir=checked_dir.log_dir, partition=partition.folder.name)
            )
        self._notify(
            PartitionChecked(
                log_dir=checked_dir.log_dir,
                partition=partition.folder.name,
                thread_num=0,
                segment_count=partition.segment_count,
                finding_count=len(worst),
                finished_count=checked_dir.finished_count,
                log_count=len(checked_dir.partitions),
            )
        )

    def _finish_dir(self, checked_dir: CheckedLogDir, started_s: float) -> None:
        if checked_dir.error is None:
            duration_ms = round((time.monotonic() - started_s) * 1000)
            self._notify(LogDirFinished(log_dir=checked_dir.log_dir, duration_ms=duration_ms))


def _not_checked(log_dir: str, why: str) -> CheckedLogDir:
    return CheckedLogDir(log_dir=log_dir, is_live=False, files=LogDirFiles(log_dir=log_dir), error=why)
