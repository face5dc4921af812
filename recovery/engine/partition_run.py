"""One partition from fold to apply, reported to observers on the way."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from recovery.engine.context import RunContext
from recovery.engine.forecast import bytes_to_scan
from recovery.engine.groups import CommitGroup, may_share
from recovery.engine.job import LogDirJob
from recovery.engine.outcomes import PartitionResult
from recovery.engine.partition_report import report_of, report_of_refused
from recovery.engine.partition_scans import PartitionScans, is_left_alone, refusal_for_memory
from recovery.engine.resume import RunJournal
from recovery.errors import PartitionRefusedError
from recovery.load.model import PartitionOutcome, PartitionTask
from recovery.load.preflight import fold_checked
from recovery.plan.actions import TEMPORARY_SUFFIX, PartitionPlan, TruncateFile
from recovery.plan.plan import plan_partition
from recovery.problem import Problem
from recovery.quantity import count_text
from recovery.read.file_system import keeps_inodes, look_at
from recovery.watch.events import IndexFileProblem, PartitionStarted, Remark, SegmentsDeleted
from recovery.write.apply import apply_partition, publish, unstage
from recovery.write.quarantine import Quarantine
from segfmt.filenames import LOG_SUFFIX


class PartitionRun:
    """The work on one partition: owned by one thread, helped by others of the same log dir."""

    def __init__(
        self,
        task: PartitionTask,
        job: LogDirJob,
        journal: RunJournal,
        context: RunContext,
        *,
        may_map: bool,
        thread_num_of: Callable[[], int],
        reserve: Callable[[PartitionPlan], tuple[Problem, ...]],
    ) -> None:
        """Prepare, reading nothing.

        Args:
            job: that of the log dir.
            journal: that of the log dir: what an interrupted run has done is not done again.
            may_map: whether the log dir is on a local file system.
            thread_num_of: returns the number of the calling thread in its log dir.
            reserve: reserves space for a plan, or returns why there is too little.
        """
        files = {name: stat for name, stat in task.files.items() if not name.endswith(TEMPORARY_SUFFIX)}
        self._has_leftovers = len(files) < len(task.files)
        self._task = task = replace(task, files=files) if self._has_leftovers else task
        self._options = job.options
        self._journal = journal
        self._context = context
        self._notify = context.notify
        self._thread_num_of = thread_num_of
        self._reserve = reserve
        self._path = os.path.join(task.log_dir, task.folder)
        self.scans = PartitionScans(task, job, journal, context, may_map=may_map, thread_num_of=thread_num_of)

    @property
    def folder(self) -> str:
        """The name of the folder."""
        return self._task.folder

    @property
    def path(self) -> str:
        """The path of the folder."""
        return self._path

    def run(
        self,
        quarantine: Quarantine | None,
        before_change: Callable[[], None],
        group: CommitGroup,
    ) -> PartitionResult | None:
        """Fold, plan and, with a *quarantine*, apply; return None if the *group* is to finish the partition.

        Args:
            quarantine: None for a dry run.
            before_change: called once before the first change in this folder.
            group: takes partitions that can wait for others.

        Raises:
            OSError: an I/O error; the log dir goes offline.
        """
        try:
            return self._run(quarantine, before_change, group)
        finally:
            self.scans.close()

    def _run(
        self, quarantine: Quarantine | None, before_change: Callable[[], None], group: CommitGroup
    ) -> PartitionResult | None:
        started_s = time.monotonic()
        thread_num = self._thread_num_of()
        self.scans.start(thread_num)
        self._notify(
            PartitionStarted(
                log_dir=self._task.log_dir,
                partition=self._task.folder,
                thread_num=thread_num,
                unflushed_segment_count=self.scans.unflushed_count if self._task.is_recovered else None,
                recover_bytes=bytes_to_scan(self._task, self._journal),
            )
        )
        if self._journal.is_committed(self._task.folder):
            return self._finish_committed(quarantine)
        try:
            with self._context.phases.during("fold"):
                outcome = self._as_left(fold_checked(self._task, self.scans, peek=self.scans.peek))
            self.scans.news.finish()
        except PartitionRefusedError as refusal:
            return self._refused(refusal, started_s)
        except PermissionError as error:  # nothing was written so far
            return self._refused(_refusal_of(error), started_s)
        except MemoryError:
            return self._refused(refusal_for_memory(self._task.folder), started_s)
        finally:
            self.scans.cancel()
        with self._context.phases.during("plan"):
            plan = self._plan(outcome)
        outcome = replace(outcome, warnings=(*outcome.warnings, *_shared_cuts(self._path, plan)))
        # If so, nothing is written, not even into the journal.
        is_passed_over = plan.is_empty and not self._task.is_recovered
        if not is_passed_over and (problems := self._reserve(plan)):
            return self._refused(PartitionRefusedError.of(problems), started_s)
        self._notify_outcome(outcome)

        def result(saved: list[str]) -> PartitionResult:
            return PartitionResult(
                task=self._task,
                bounds=outcome.bounds,
                report=report_of(self._task, outcome, plan, saved, duration_ms=_elapsed_ms(started_s)),
                is_changed=not plan.is_empty,
            )

        if quarantine is None:
            return result([])
        if self._has_leftovers:
            unstage(self._path)
        if is_passed_over:
            return result([])
        with self._context.phases.during("write"):
            if not plan.is_empty:
                before_change()
            if may_share(plan):
                group.stage(self._path, plan, self._task.files, result)
                return None
            saved = apply_partition(
                self._path,
                plan,
                self._task.files,
                quarantine,
                enter=lambda commit, saved: self._journal.commit([(commit, result(saved))]),
                is_tidy=True,
            )
            partition_result = result(saved)
            self._journal.note_cuts_made(partition_result)
            return partition_result

    def _finish_committed(self, quarantine: Quarantine | None) -> PartitionResult:
        """Finish what an interrupted run has committed, and return its result."""
        commit, result = self._journal.committed(self._task)
        if quarantine is not None and commit.actions:
            self._journal.enter_cuts(result)
            quarantine.note_change(commit, publish(self._path, commit))
            self._journal.note_cuts_made(result)
        if quarantine is None and commit.contradiction(self._task.files, by_inode=keeps_inodes(self._path)):
            return replace(result, report=replace(result.report, is_to_be_finished=True))
        return result

    def _plan(self, outcome: PartitionOutcome) -> PartitionPlan:
        """Return what to do in the folder."""
        if is_left_alone(self._task):
            return PartitionPlan(folder=self._task.folder, saves=(), actions=())
        return plan_partition(self._task, outcome, self.scans.read, keep_deleted=self._options.keep_deleted)

    def _as_left(self, outcome: PartitionOutcome) -> PartitionOutcome:
        """Return *outcome*; for a folder that is left alone, without the changes, which are not made there."""
        if not is_left_alone(self._task):
            return outcome
        return replace(
            outcome,
            cuts=(),
            holes=(),
            warnings=(),
            orphaned_indexes=(),
            recovered_segments=0,
            recovered_bytes=0,
        )

    def _notify_outcome(self, outcome: PartitionOutcome) -> None:
        log_dir, partition, deleted = self._task.log_dir, self._task.folder, outcome.deleted_base_offsets
        if not is_left_alone(self._task):
            self.scans.news.cut()
        for file in outcome.orphaned_indexes:
            self._notify(
                IndexFileProblem(
                    log_dir=log_dir,
                    partition=partition,
                    path=os.path.join(self._path, file),
                    problem="orphaned",
                )
            )
        if deleted:
            dropped_end_offset = outcome.dropped_end_offset
            self._notify(
                SegmentsDeleted(
                    log_dir=log_dir,
                    partition=partition,
                    base_offsets=deleted,
                    log_end_offset=dropped_end_offset,
                    log_start_offset=None if dropped_end_offset is None else self._task.log_start_offset,
                )
            )
        for warning in (*outcome.warnings, *map(str, outcome.holes)):
            self._notify(Remark(text=warning, level="warning", log_dir=log_dir, partition=partition))

    def _refused(self, refusal: PartitionRefusedError, started_s: float) -> PartitionResult:
        self.scans.news.drop()
        so_far = self.scans.news.read_so_far()
        report = report_of_refused(self._task, refusal, so_far, duration_ms=_elapsed_ms(started_s))
        return PartitionResult(task=self._task, bounds=None, report=report, is_changed=False)


def _shared_cuts(path: str, plan: PartitionPlan) -> Iterator[str]:
    """Yield a warning on each segment that is to be cut and has other names, in a backup by hard links, say."""
    for action in plan.actions:
        if isinstance(action, TruncateFile) and action.name.endswith(LOG_SUFFIX):
            status = look_at(os.path.join(path, action.name))
            if status is not None and status.st_nlink > 1:
                others = count_text(status.st_nlink - 1, "other name", "other names")
                yield f"{action.name} has {others} (hard links), and is cut there as well"


def _refusal_of(error: PermissionError) -> PartitionRefusedError:
    """Return the refusal of a partition with a file that cannot be opened, although its owner and mode allow it."""
    return PartitionRefusedError(
        file=os.path.basename(str(error.filename)),
        position=None,
        rule="access",
        detail=f"{error.strerror} (IOException takes the log dir offline)",
        remedy="find out what keeps it closed: access lists, a security module, an exported file system",
    )


def _elapsed_ms(started_s: float) -> int:
    return int((time.monotonic() - started_s) * 1000)
