"""One log dir: a pool of recovery threads, its partitions as jobs, and the hand-off at the end.

Pools belong to log dirs, as in a broker: a slow or failing disk does not hold up the others. An I/O error
takes the dir offline: its other partitions are not begun, nothing is handed over, and the run continues with
the other dirs.

Kafka: LogManager.loadLogs, LogManager.shutdown.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from recovery.engine.committer import Committer
from recovery.engine.context import RunContext
from recovery.engine.cut_ledger import CutLedger, untold
from recovery.engine.forecast import most_busy_threads
from recovery.engine.groups import CommitGroup
from recovery.engine.handoff import has_marker, plan_handoff, plan_unmarking, reported_marker
from recovery.engine.job import LogDirJob
from recovery.engine.kept_place import located
from recovery.engine.log_dir_handoff import finish_handoff, finish_unmarking, write_handoff
from recovery.engine.outcomes import PartitionResult
from recovery.engine.partition_report import (
    failed_reports,
    finished_event,
    log_dir_report,
    refused_reports,
)
from recovery.engine.partition_run import PartitionRun
from recovery.engine.report import EarlierCut, LogDirReport, PartitionReport
from recovery.engine.resume import RunJournal
from recovery.engine.segment_news import ReadSoFar
from recovery.engine.settled_changes import own_files
from recovery.errors import (
    AS_ROOT_DENIED,
    FULL_ERRNOS,
    InterruptedRecoveryError,
    error_text,
    scarcity_remedy,
)
from recovery.load.model import LogBounds, PartitionTask
from recovery.logdir.inventory import LogDirInventory
from recovery.plan.actions import WriteFile
from recovery.problem import Note
from recovery.read.file_system import is_local
from recovery.threads import start_threads
from recovery.watch.events import (
    CutByEarlierRun,
    LogDirFinished,
    LogDirHandedOver,
    LogDirOffline,
    PartitionFinished,
    PartitionStarted,
    Remark,
)
from recovery.write.apply import apply_partition
from recovery.write.quarantine import Quarantine
from recovery.write.space import free_bytes
from segfmt.filenames import CLEAN_SHUTDOWN_FILE


@dataclass(slots=True, kw_only=True)
class _Queue:
    """What the threads of one log dir share."""

    tasks: deque[PartitionTask]
    active: list[PartitionRun] = field(default_factory=list)
    results: dict[str, PartitionResult] = field(default_factory=dict)
    read_so_far: dict[str, ReadSoFar] = field(default_factory=dict)
    error: BaseException | None = None


class LogDirRun:
    """The recovery of one log dir."""

    def __init__(
        self,
        job: LogDirJob,
        journal: RunJournal,
        quarantine: Quarantine,
        context: RunContext,
    ) -> None:
        inventory = job.inventory
        self._job = job
        self._inventory = inventory
        self._journal = journal
        self._dry_run = job.options.dry_run
        self._context = context
        self._notify = context.notify
        self._quarantine = quarantine
        self._queue = _Queue(tasks=deque(inventory.tasks))
        self._changed = threading.Condition()
        self._may_map = is_local(inventory.log_dir)
        self._is_marker_gone = False
        self._is_journal_tried = False
        self._journal_error: OSError | None = None
        self._threads: list[threading.Thread] = []
        self._works_itself = False
        self._notes: list[Note] = []
        self._committer = Committer(f"log-commit-{inventory.log_dir}")
        self._numbers = threading.local()
        self._started_s, self._free_bytes = 0.0, 0

    def start(self) -> None:
        """Start the threads."""
        self._started_s = time.monotonic()
        self._free_bytes = free_bytes(self._inventory.log_dir)
        self._refuse_folders()
        count = min(self._job.thread_count, most_busy_threads(self._inventory.tasks))
        self._threads = start_threads(count, self._work, name=f"log-recovery-{self._inventory.log_dir}")
        if len(self._threads) < count:
            started = f"{len(self._threads)} of {count} threads" if self._threads else "no thread"
            self._note(
                f"{started} started: the system allows no more (see ulimit -u, and pids.max of the cgroup)"
            )
        self._works_itself = not self._threads

    def join(self) -> LogDirReport:
        """Wait for the threads, hand the dir over, and return what became of it.

        After a signal nothing is handed over, not even if all partitions are done.
        """
        self.wait()
        error = self._queue.error
        if error is None:
            try:
                self._context.stop.check()
                _refuse_lost(self._inventory, self._queue.results)
                with self._context.phases.during("hand-over"):
                    return self._hand_over()
            except (OSError, InterruptedRecoveryError, MemoryError) as failure:
                error = failure
        if isinstance(error, MemoryError):  # whatever it interrupted is as after a kill: the next run goes on
            error = OSError(errno.ENOMEM, "there is too little memory", self._inventory.log_dir)
        if isinstance(error, OSError):
            return self._offline(error)
        if isinstance(error, InterruptedRecoveryError):
            done_count, total_count = len(self._queue.results), len(self._inventory.tasks)
            return self._ended_early(
                "interrupted", f"{error}; {done_count:,} of {total_count:,} logs done so far"
            )
        raise error

    def wait(self) -> None:
        """Wait until no thread is at work; if none could be started, do the work."""
        if self._works_itself:
            self._works_itself = False
            self._work(0)
        for thread in self._threads:
            while thread.is_alive():
                thread.join(timeout=0.2)  # short waits, so that the main thread sees signals

    # -- threads --------------------------------------------------------------------------------------------

    def _work(self, number: int) -> None:
        self._numbers.value = number
        self._numbers.group = CommitGroup(self._quarantine, self._journal)
        try:
            while (run := self._next_run()) is not None:
                self._run_partition(run)
        except BaseException as error:
            self._note_error(error)
        self._commit_all()  # also after an error: nothing is wrong with these

    def _note_error(self, error: BaseException) -> None:
        with self._changed:
            if self._queue.error is None or isinstance(self._queue.error, InterruptedRecoveryError):
                self._queue.error = error
            self._changed.notify_all()

    def _commit_later(self) -> None:
        """Have the waiting partitions of this thread written to disk in the background."""
        group: CommitGroup = self._numbers.group
        if group.paths:
            self._committer.submit(partial(self._commit, group.split_off(), self._numbers.value))

    def _commit_all(self) -> None:
        """Write them to disk, and wait for these and all earlier ones."""
        self._commit_later()
        self._committer.drain()

    def _commit(self, group: CommitGroup, number: int) -> None:
        self._numbers.value = number
        paths = group.paths
        try:
            with self._context.phases.during("write"):
                results = group.finish()
            for result in results:
                self._note_result(result)
        except BaseException as error:
            self._note_error(error)
        finally:
            for path in paths:
                self._context.space.release(path)

    def _note_result(self, result: PartitionResult) -> None:
        with self._changed:
            self._queue.results[result.task.folder] = result
            count = len(self._queue.results) + len(self._inventory.refused)
            self._notify(self._finished(result.report, result.bounds, count))

    def _next_run(self) -> PartitionRun | None:
        """Return the next partition; help with the scans of others while there is none; return None at the end."""
        while True:
            self._context.stop.check()
            if self._numbers.group.is_full or not self._queue.tasks:
                self._commit_later()
            with self._changed:
                if self._queue.error is not None:
                    return None
                if self._queue.tasks:
                    task = self._queue.tasks.popleft()
                    run = PartitionRun(
                        task,
                        self._job,
                        self._journal,
                        self._context,
                        may_map=self._may_map,
                        thread_num_of=lambda: int(getattr(self._numbers, "value", 0)),
                        reserve=partial(
                            self._context.space.reserve,
                            os.path.join(task.log_dir, task.folder),
                            log_dir=task.log_dir,
                            quarantine=self._quarantine.root,
                            file_count=len(task.files),
                            before_waiting=self._commit_all,
                        ),
                    )
                    self._queue.active.append(run)
                    self._changed.notify_all()
                    return run
                helped = next((active for active in self._queue.active if active.scans.has_pending()), None)
                if helped is None:
                    if not self._queue.active:
                        return None
                    self._changed.wait(timeout=0.2)
                    continue
            helped.scans.help()

    def _run_partition(self, run: PartitionRun) -> None:
        if not self._dry_run and not self._inventory.had_clean_shutdown:
            self._begin_journal()
        group: CommitGroup = self._numbers.group
        try:
            result = run.run(None if self._dry_run else self._quarantine, self._before_change, group)
        finally:
            if run.path not in group.paths:
                self._context.space.release(run.path)
            with self._changed:
                self._queue.active.remove(run)
                self._queue.read_so_far[run.folder] = run.scans.news.read_so_far()
                self._changed.notify_all()
        if result is not None:
            self._note_result(result)

    def _finished(
        self, report: PartitionReport, bounds: LogBounds | None, finished_count: int
    ) -> PartitionFinished:
        return finished_event(
            report,
            bounds,
            thread_num=int(getattr(self._numbers, "value", 0)),
            finished_count=finished_count,
            log_count=self._inventory.log_count,
        )

    def _refuse_folders(self) -> None:
        """Report the folders that were refused before anything was read."""
        for count, report in enumerate(refused_reports(self._inventory), start=1):
            started = PartitionStarted(
                log_dir=report.log_dir, partition=report.folder, thread_num=0, unflushed_segment_count=None
            )
            self._notify(started)
            self._notify(self._finished(report, None, count))

    def _begin_journal(self) -> None:
        """Begin a journal. If there is no room for one, the run continues, but could not be resumed.

        It does not in a clean log dir, which would be an unclean one for the next run, and lose what is sound.
        """
        with self._changed:
            if self._is_journal_tried:
                return
            self._is_journal_tried = True
            try:
                self._journal.begin(self._inventory, self._job.configuration, self._job.now_ms)
                if self._quarantine.run_folder is not None:  # a repair has made it
                    self._journal.note_run(os.path.basename(self._quarantine.run_folder))
            except OSError as error:
                self._journal_error = error
                if self._inventory.had_clean_shutdown:
                    return
                self._note(
                    f"no journal ({error_text(error)}): if this run is interrupted, the next one begins anew"
                )

    def _note(self, text: str) -> None:
        """Notify the observers, and add a note to the report."""
        self._notify(Remark(text=text, level="warning", log_dir=self._inventory.log_dir))
        self._notes.append(Note(text=text))

    def _before_change(self) -> None:
        """Remove the marker of a clean dir before anything in it changes: a kill must leave it unclean.

        Kafka: LogManager.loadLogs deletes it first.
        """
        self._begin_journal()
        if self._journal_error is not None and self._inventory.had_clean_shutdown:
            raise self._journal_error
        with self._changed:
            if self._is_marker_gone:
                return
            log_dir = self._inventory.log_dir
            finish_unmarking(log_dir, self._journal, self._quarantine)
            plan = plan_unmarking(log_dir)
            if not plan.is_empty:
                apply_partition(
                    log_dir,
                    plan,
                    own_files(log_dir),
                    self._quarantine,
                    enter=lambda commit, _saved: self._journal.commit_unmarking(commit),
                )
            self._is_marker_gone = True

    # -- end ------------------------------------------------------------------------------------------------

    def _hand_over(self) -> LogDirReport:
        log_dir, results = self._inventory.log_dir, self._queue.results
        logs = {
            folder: (result.task, result.bounds)
            for folder, result in results.items()
            if result.bounds is not None
        }
        is_all_done = len(logs) == len(self._inventory.tasks) and not self._inventory.refused
        is_complete = is_all_done and not self._inventory.left_out
        # What was refused, or not chosen, in a clean dir is as clean as before, unless an interrupted run has begun to
        # change it: a broker must not recover it.
        stays_clean = (
            self._inventory.had_marker
            and all(result.report.status != "failed" for result in results.values())
            and self._journal.entered_folders <= logs.keys()
        )
        is_changed = any(result.is_changed for result in results.values())
        if not self._dry_run:
            reports = (result.report for result in results.values())
            # The next run would not find them
            CutLedger(log_dir).add_holes(reports, self._quarantine.run_folder)
            finish_unmarking(log_dir, self._journal, self._quarantine)
        is_handed_over = not self._dry_run and finish_handoff(log_dir, self._journal, self._quarantine)
        plan = plan_handoff(
            self._inventory,
            logs,
            handoff=self._job.options.handoff,
            may_mark=is_complete,
            keeps_marker=stays_clean and not is_complete,
            is_changed=is_changed and not is_handed_over,
        )
        if not self._dry_run:
            write_handoff(log_dir, plan, self._journal, self._quarantine, is_changed=is_changed)
        written = [action.name for action in plan.actions if isinstance(action, WriteFile)]
        is_as_before = not (self._dry_run and is_changed)
        marker = CLEAN_SHUTDOWN_FILE in written or (has_marker(log_dir) and is_as_before)
        duration_ms = int((time.monotonic() - self._started_s) * 1000)
        earlier_cuts = self._untold_cuts()
        if not self._dry_run:
            handoff = self._job.options.handoff
            self._notify(LogDirHandedOver(log_dir=log_dir, handoff=handoff, wrote_marker=marker))
        self._notify(LogDirFinished(log_dir=log_dir, duration_ms=duration_ms))
        # A clean dir of which a part was looked at, and found in order, is as clean as before
        is_in_order = is_complete or (is_all_done and marker)
        in_quarantine = self._context.space.quarantine_room(log_dir)
        is_untouched = not is_changed and plan.is_empty and is_in_order and not self._job.repairs
        return self._report(
            status="unchanged" if is_untouched else "recovered" if is_in_order else "partial",
            marker=marker,
            partitions=self._partition_reports(),
            repairs=self._job.repairs,
            actions=tuple(f"write {name}" for name in written),
            needed_bytes=self._context.space.needed_bytes(log_dir),
            free_bytes=self._free_bytes,
            quarantine_needed_bytes=in_quarantine.needed_bytes,
            quarantine_free_bytes=in_quarantine.free_bytes,
            earlier_cuts=earlier_cuts,
        )

    def _untold_cuts(self) -> tuple[EarlierCut, ...]:
        """Notify observers of what earlier runs have cut without reporting it, and return it."""
        reports = (result.report for result in self._queue.results.values())
        cuts = located(
            self._job.log_dir, self._job.options.quarantine_dir, untold(self._job.earlier_cuts, reports)
        )
        for cut in cuts:
            self._notify(_earlier_cut_event(self._inventory.log_dir, cut))
        return cuts

    def _offline(self, error: OSError) -> LogDirReport:
        text = error_text(error)
        if error.errno in FULL_ERRNOS:
            text += ". Remedy: make room (df -h, df -i), then start again, which resumes"
        elif (remedy := scarcity_remedy(error)) is not None and "Remedy: " not in text:
            fewer = ", or give fewer --threads" if error.errno == errno.ENOMEM else ""
            text += f". Remedy: {remedy}{fewer}; then start again, which resumes"
        elif error.errno == errno.EPERM and "Remedy: " not in text:
            text += f". Remedy: {AS_ROOT_DENIED}; then start again, which resumes"
        self._notify(LogDirOffline(log_dir=self._inventory.log_dir, error=text))
        failed = [
            *failed_reports(
                self._inventory,
                self._queue.results,
                error,
                self._queue.read_so_far,
                self._journal.entered_folders,
                self._quarantine.run_folder,
            )
        ]
        cut = [report for report in failed if report.losses]
        count = len(self._queue.results) + len(self._inventory.refused)
        for number, report in enumerate(cut, start=count + 1):
            self._notify(self._finished(report, None, number))
        return self._ended_early("offline", text, failed)

    def _ended_early(
        self,
        status: Literal["offline", "interrupted"],
        error: str,
        unfinished: Iterable[PartitionReport] = (),
    ) -> LogDirReport:
        """Return the report of a dir that is not handed over: the finished partitions, and *unfinished*."""
        return self._report(
            status=status,
            marker=reported_marker(self._inventory.log_dir),
            partitions=self._partition_reports(unfinished),
            repairs=self._job.repairs,
            error=error,
            earlier_cuts=self._untold_cuts(),
        )

    def _report(self, **fields: Any) -> LogDirReport:  # noqa: ANN401 - handed on
        return log_dir_report(
            self._inventory, quarantine=self._quarantine.run_folder, notes=tuple(self._notes), **fields
        )

    def _partition_reports(self, unfinished: Iterable[PartitionReport] = ()) -> tuple[PartitionReport, ...]:
        finished = (result.report for result in self._queue.results.values())
        reports = [*refused_reports(self._inventory), *finished, *unfinished]
        return tuple(sorted(reports, key=lambda report: report.folder))


def _refuse_lost(inventory: LogDirInventory, finished: Collection[str]) -> None:
    """Make sure that each partition has a result: none may silently be missing from the report.

    Args:
        finished: the folders of those that have one.

    Raises:
        OSError: one has none. The dir is not handed over then.
    """
    lost_folders = [task.folder for task in inventory.tasks if task.folder not in finished]
    if lost_folders:
        and_more = f" ({len(lost_folders) - 1} more as well)" if lost_folders[1:] else ""
        raise OSError(
            f"{inventory.log_dir}/{lost_folders[0]}: recovery ended without a result{and_more}, "
            "a defect in this program. Remedy: run again, and report it"
        )


def _earlier_cut_event(log_dir: str, cut: EarlierCut) -> CutByEarlierRun:
    """Return the event for a cut that an earlier run has made and not reported."""
    return CutByEarlierRun(
        log_dir=log_dir,
        partition=cut.partition,
        truncated_bytes=cut.truncated_bytes,
        truncated_batches=cut.truncated_batches,
        text=str(cut),
    )
