"""The run of a verify: all partitions of all log dirs, their segments read by one pool of threads.

Segments are handed out in the order of base offsets, partition by partition, the log dirs in turns; results are taken
in the same order, so a large partition keeps all threads busy and memory holds a few results.

What is found in the log dir of a live broker is looked at again before it is said: files that retention or
compaction has taken away or replaced meanwhile are no damage.
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

from recovery.check.checked_log_dir import CheckedLogDir, find_contradictions, kind_of, log_sizes
from recovery.check.choice import PartitionChoice
from recovery.check.facts import PartitionFacts
from recovery.check.finding import FileVerdict, Finding, findings_by_file
from recovery.check.folder_files import LocalFolder, read_folder
from recovery.check.log_dir_files import OFFSET_CHECKPOINTS, LogDirFiles, read_log_dir
from recovery.check.options import VerifyOptions
from recovery.check.partition import PartitionCheck
from recovery.check.report import VerifyReport
from recovery.check.second_look import Recheck
from recovery.check.segment import check_segment
from recovery.check.segment_files import FolderSegmentFiles
from recovery.check.task import Reading, SegmentResult, SegmentTask
from recovery.errors import InterruptedRecoveryError
from recovery.logdir.lock import is_locked
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
    PartitionFolder,
    file_kind,
)

_RESULTS_AHEAD = 4
"""Segments in hand for each thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    """What a verify needs of a topic's settings.

    Attributes:
        is_contiguous: whether nothing is ever compacted away, as far as is known.
        topic_id: as the metadata log has it, None where that is not known.
    """

    is_contiguous: bool = False
    is_preallocated: bool = False
    segment_index_bytes: int | None = None
    topic_id: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFacts:
    """What a verify goes by that is the broker's, and no option.

    Attributes:
        topic_facts: of a topic.
        thread_count: threads for each log dir; they work in one pool.
        producer_id_expiration_ms: `producer.id.expiration.ms`.
        node_id: of the configuration, None where it has none.
        remarks: what was found out so far, for the observers; notes of the run.
    """

    topic_facts: Callable[[str], TopicFacts]
    thread_count: int
    producer_id_expiration_ms: int = 86_400_000
    node_id: int | None = None
    remarks: tuple[Remark, ...] = ()


@dataclass(slots=True, kw_only=True)
class _Partition:
    """A partition in hand."""

    owner: CheckedLogDir
    folder: PartitionFolder
    check: PartitionCheck
    results: list[SegmentResult] = field(default_factory=list)
    failures: list[Finding] = field(default_factory=list)


class VerifyRun:
    """One verify over log dirs.

    Args:
        log_dirs: absolute paths.
        broker: what is known of it.
        limit: on reads, over all threads together; None for the options' own.
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
            for one in self._dirs:
                self._finish_dir(one, started_s)
        except InterruptedRecoveryError as error:
            signal_number = error.signal_number
        report = VerifyReport(
            log_dirs=tuple(one.report() for one in self._dirs),
            is_deep=self._options.deep,
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
            )
        )
        for remark in (*kernels.remarks, *self._broker.remarks):
            self._notify(remark)
        for log_dir in self._log_dirs:
            self._dirs.append(self._list(log_dir))
        if all(one.error is None for one in self._dirs):
            self._choice.refuse_missing(", ".join(self._log_dirs))
        find_contradictions(self._dirs, node_id=self._broker.node_id)
        for one in self._dirs:
            if one.error is not None:
                self._notify(LogDirOffline(log_dir=one.log_dir, error=one.error))
                continue
            sizes = [size for folder in one.partitions for size in log_sizes(one.log_dir, folder.name)]
            self._notify(
                LogDirStarted(
                    log_dir=one.log_dir,
                    had_clean_shutdown=one.files.had_clean_shutdown,
                    log_count=len(one.partitions),
                    segment_count=len(sizes),
                    bytes_total=sum(sizes),
                )
            )

    def _list(self, log_dir: str) -> CheckedLogDir:
        try:
            is_live = is_locked(log_dir)
            files = read_log_dir(log_dir, take=self._limit.take)
        except OSError as error:
            return CheckedLogDir(
                log_dir=log_dir, is_live=False, files=LogDirFiles(log_dir=log_dir), error=str(error)
            )
        one = CheckedLogDir(log_dir=log_dir, is_live=is_live, files=files)
        one.partitions = [folder for folder in files.folders if self._choice(folder)]
        one.log_dir_findings = list(files.findings)
        return one

    def facts(self, one: CheckedLogDir, folder: PartitionFolder) -> PartitionFacts:
        """Return what is known of a partition."""
        topic = self._broker.topic_facts(folder.topic)
        was_cleaned = one.files.offset(CLEANER_OFFSET_CHECKPOINT, folder) is not None
        return PartitionFacts(
            path=os.path.join(one.log_dir, folder.name),
            folder=folder.name,
            topic=folder.topic,
            partition=folder.partition,
            is_live=one.is_live,
            had_clean_shutdown=one.files.had_clean_shutdown,
            recovery_point=one.files.offset(RECOVERY_POINT_CHECKPOINT, folder),
            log_start_offset=one.files.offset(LOG_START_OFFSET_CHECKPOINT, folder),
            high_watermark=one.files.offset(REPLICATION_OFFSET_CHECKPOINT, folder),
            is_contiguous=topic.is_contiguous and not was_cleaned,
            topic_id=topic.topic_id,
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
        """Yield the partitions, the log dirs in turns."""
        queues = [(one, deque(one.partitions)) for one in self._dirs if one.error is None]
        while queues:
            for one, folders in queues:
                if folders:
                    partition = self._open(one, folders.popleft())
                    if partition is not None:
                        yield partition
            queues = [(one, folders) for one, folders in queues if folders]

    def _open(self, one: CheckedLogDir, folder: PartitionFolder) -> _Partition | None:
        self._stop.check()
        facts = self.facts(one, folder)
        try:
            files = read_folder(
                LocalFolder(facts.path),
                is_live=one.is_live,
                is_metadata_log=facts.is_metadata_log,
                take=self._limit.take,
            )
        except OSError as error:
            if not (one.is_live and isinstance(error, FileNotFoundError)):
                one.log_dir_findings.append(_unreadable(folder.name, error))
            return None
        check = PartitionCheck(facts, files)
        sizes = [file.size_bytes for name, file in files.names.items() if file_kind(name) is FileKind.LOG]
        self._notify(
            PartitionStarted(
                log_dir=one.log_dir,
                partition=folder.name,
                thread_num=0,
                unflushed_segment_count=len(sizes),
                recover_bytes=sum(sizes),
            )
        )
        return _Partition(owner=one, folder=folder, check=check)

    def _read(
        self, one: CheckedLogDir, folder: PartitionFolder, task: SegmentTask
    ) -> SegmentResult | Finding:
        def on_bytes(count: int) -> None:
            self._stop.check()
            if count:
                self._notify(
                    BytesScanned(
                        log_dir=one.log_dir, partition=folder.name, thread_num=0, scanned_bytes=count
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
            return _unreadable(task.log, error)

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
        one, folder = partition.owner, partition.folder
        findings = [*partition.check.finish(), *partition.failures]
        if any(found.severity != "note" for found in findings) and (one.is_live or is_locked(one.log_dir)):
            one.is_live = True
            recheck = Recheck(
                facts=self.facts(one, folder),
                read=lambda task: self._read(one, folder, task),
                stop=self._stop,
                take=self._limit.take,
            )
            findings = recheck.confirm(findings, partition.results, partition.check.files)
        self._take_verdicts(partition, findings)

    # -- verdicts --------------------------------------------------------------------------------------------

    def _take_verdicts(self, partition: _Partition, findings: list[Finding]) -> None:
        one, check = partition.owner, partition.check
        of_dir = set(OFFSET_CHECKPOINTS)
        one.log_dir_findings += [found for found in findings if found.file in of_dir]
        by_file = findings_by_file(found for found in findings if found.file not in of_dir)
        checked = check.checked_bytes
        for name in sorted({*checked, *by_file}):
            one.verdicts.append(
                FileVerdict(
                    path=os.path.join(check.facts.path, name),
                    kind=kind_of(name),
                    checked_bytes=checked.get(name, 0),
                    findings=tuple(by_file.get(name, ())),
                )
            )
        one.finished_count += 1
        one.segment_count += len(partition.results)
        one.batch_count += sum(result.batch_count for result in partition.results)
        worst = [found for found in findings if found.severity != "note"]
        for found in worst:
            at = "" if found.position is None else f" at byte {found.position}"
            text = f"{found.file}{at}: {found.rule}: {found.detail}"
            self._notify(
                Remark(text=text, level="error", log_dir=one.log_dir, partition=partition.folder.name)
            )
        self._notify(
            PartitionChecked(
                log_dir=one.log_dir,
                partition=partition.folder.name,
                thread_num=0,
                segment_count=len(partition.results),
                finding_count=len(worst),
                finished_count=one.finished_count,
                log_count=len(one.partitions),
            )
        )

    def _finish_dir(self, one: CheckedLogDir, started_s: float) -> None:
        if one.error is None:
            duration_ms = round((time.monotonic() - started_s) * 1000)
            self._notify(LogDirFinished(log_dir=one.log_dir, duration_ms=duration_ms))


def _unreadable(name: str, error: OSError) -> Finding:
    return Finding(file=name, position=None, rule="unreadable", detail=str(error), severity="unchecked")
