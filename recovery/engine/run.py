"""The local driver: all log dirs of a broker, with a pool of threads for each.

Data flows one way: inventory, then for each partition scan, fold, plan, apply, then the hand-off of the dir.
Settings, the clock and the locks are settled before the first byte is read.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from recovery.broker.starting_release import StartingRelease
from recovery.engine.cut_ledger import CutLedger, acknowledge, untold_in
from recovery.engine.forecast import bytes_to_scan, segments_to_recover
from recovery.engine.handoff import reported_marker
from recovery.engine.inventories import list_log_dirs
from recovery.engine.job import LogDirJob
from recovery.engine.options import RecoverOptions
from recovery.engine.pool import Pool, wants_processes
from recovery.engine.report import EarlierCut, LogDirReport, RecoveryReport
from recovery.engine.resume import RunJournal
from recovery.errors import LogDirLockedError, LogDirOfflineError, UnsafeError, exit_code_of, remedied_text
from recovery.load.model import LogSettings
from recovery.logdir.choice import PartitionChoice
from recovery.logdir.inventory import LogDirInventory, list_log_dir
from recovery.logdir.lock import LogDirLocks
from recovery.logdir.quarantine_place import places_of
from recovery.logdir.remote_part import RemoteMetadata
from recovery.problem import Note, Problem
from recovery.quick_switches import quick_switches
from recovery.read.kernel_start import KernelStart, start_kernels
from recovery.stop_request import StopRequest
from recovery.watch.events import LogDirOffline, LogDirStarted, Observer, Remark, RunFinished, RunStarted
from recovery.watch.notifier import Notifier
from recovery.watch.phases import Phases
from recovery.write.move_in import refuse_unfinished_restore
from recovery.write.quarantine import Quarantine
from recovery.write.undo_notice import refuse_unfinished_undo
from recovery.write.write_back import held_file_systems


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFacts:
    """What a run needs to know of the broker besides its options.

    Attributes:
        settings_of: the settings of a topic's logs.
        thread_count: threads for each log dir.
        producer_id_expiration_ms: `producer.id.expiration.ms`.
        release: of the broker that will start, and how it is known.
        cordoned_log_dirs: those that get no new logs, for observers.
        problems: by log dir, why it must not be touched.
        blockers: by log dir, why a broker does not start though it can be recovered.
        remarks: what was noticed so far, for the observers; they become notes of the run.
    """

    settings_of: Callable[[str], LogSettings]
    thread_count: int
    producer_id_expiration_ms: int = 86_400_000
    release: StartingRelease = field(default_factory=StartingRelease)
    cordoned_log_dirs: tuple[str, ...] = ()
    problems: Mapping[str, tuple[Problem, ...]] = field(default_factory=dict)
    blockers: Mapping[str, tuple[Problem, ...]] = field(default_factory=dict)
    remarks: tuple[Remark, ...] = ()


class Engine:
    """One run over the log dirs of one broker.

    Args:
        log_dirs: absolute paths.
        options: `quarantine_dir` is absolute; *broker* has what the broker's settings decide if the options do not.
        broker: what is known of it.
        locks: on the log dirs, and on a separate metadata.log.dir.
    """

    def __init__(
        self,
        log_dirs: Iterable[str],
        options: RecoverOptions,
        broker: BrokerFacts,
        locks: LogDirLocks,
        *,
        observers: Iterable[Observer] = (),
        stop: StopRequest | None = None,
    ) -> None:
        self._log_dirs = tuple(log_dirs)
        self._options = options
        self._broker = broker
        self._locks = locks
        self._notify = Notifier(observers)
        self._stop = StopRequest() if stop is None else stop
        self._quarantines: dict[str, Quarantine] = {}
        self._repairs: dict[str, tuple[str, ...]] = {}
        self._phases = Phases()
        self._offline: dict[str, LogDirOfflineError] = {}
        self._journals: dict[str, RunJournal] = {}
        self._begun_dirs: set[str] = set()
        self._reviewed_dirs: set[str] = set()
        self._earlier_cuts: dict[str, tuple[EarlierCut, ...]] = {}
        self._notes: dict[str, list[Note]] = {}
        self._is_clock_obsolete = False
        self._started_ms = time.time_ns() // 1_000_000

    def run(self) -> RecoveryReport:
        """Recover all log dirs and return what became of them.

        Raises:
            LogDirLockedError: another process holds a lock; nothing was changed.
            UnsafeError: a separate metadata.log.dir cannot be locked, or an interrupted run had another
                configuration; nothing was changed.
        """
        try:
            with quick_switches():
                report = self._run()
        except LogDirLockedError:
            raise
        except BaseException as error:  # observers must not wait for a run that is over
            self._notify(RunFinished(exit_code=exit_code_of(error)))
            raise
        self._notify(RunFinished(exit_code=report.exit_code))
        if self._options.acknowledge:
            acknowledge(report, is_locked=True)
        return report

    def _run(self) -> RecoveryReport:
        started_s = time.monotonic()
        dry_run = self._options.dry_run
        with held_file_systems(() if dry_run else places_of(self._log_dirs, self._options.quarantine_dir)):
            self._take_offline()
            now_ms = self._open_journals()
            kernels = start_kernels()
            self._notify(
                RunStarted(
                    log_dirs=self._log_dirs,
                    threads_per_dir=self._broker.thread_count,
                    dry_run=dry_run,
                    cpu_path=kernels.cpu_path,
                    kernel_origin=kernels.origin,
                    release=self._broker.release.release.value,
                    cordoned_log_dirs=self._broker.cordoned_log_dirs,
                    has_shared_pace=self._has_shared_pace,
                )
            )
            for remark in (*kernels.remarks, *self._broker.remarks):
                self._notify(remark)
            for log_dir, error in self._offline.items():
                self._notify(LogDirOffline(log_dir=log_dir, error=remedied_text(error.error)))
            try:
                with self._phases.during("inventory"):
                    inventories = self._list_log_dirs(now_ms)
                    if self._is_clock_obsolete:
                        now_ms = self._clock()
                        inventories = [self._at(now_ms, inventory) for inventory in inventories]
                reports = self._recover(inventories, now_ms, kernels)
            finally:
                for journal in self._journals.values():
                    journal.close()
        order = {log_dir: position for position, log_dir in enumerate(self._log_dirs)}
        return RecoveryReport(
            dry_run=self._options.dry_run,
            repair=self._options.repair,
            keep_deleted=self._options.keep_deleted,
            now_ms=now_ms,
            cpu_path=kernels.cpu_path,
            kernel_origin=kernels.origin,
            release=self._broker.release,
            duration_ms=int((time.monotonic() - started_s) * 1000),
            log_dirs=tuple(
                replace(
                    report,
                    notes=(*self._notes.get(report.log_dir, ()), *report.notes),
                    is_begun=report.log_dir in self._begun_dirs,
                )
                for report in sorted(
                    [*reports, *self._offline_reports()],
                    key=lambda log_dir_report: order[log_dir_report.log_dir],
                )
            ),
            signal_exit_code=128 + self._stop.signal_number
            if any(report.status == "interrupted" for report in reports)
            else None,
            phases=self._phases.times(),
            notes=tuple(
                Note(level=remark.level, text=remark.text)
                for remark in (
                    *(remark for remark in kernels.remarks if remark.level != "info"),
                    *self._broker.remarks,
                )
            ),
        )

    @property
    def _has_shared_pace(self) -> bool:
        """Whether the log dirs share a limit or a device. They share the CPUs, too, but reading takes longer."""
        devices = set()
        for log_dir in self._log_dirs:
            with suppress(OSError):  # it goes offline
                devices.add(os.stat(log_dir).st_dev)
        return self._options.max_bytes_per_second is not None or len(devices) < len(self._log_dirs)

    def _take_offline(self) -> None:
        """Leave out the log dirs whose lock fails with an I/O error. Kafka: LogManager.lockLogDirs."""
        for log_dir, error in self._locks.offline.items():
            if log_dir not in self._log_dirs:
                raise UnsafeError(f"metadata.log.dir cannot be locked. Nothing was changed: {error}")
            self._offline[log_dir] = error

    def _open_journals(self) -> int:
        """Look for interrupted runs and return the clock of this one, which an interrupted one has set.

        Raises:
            JournalError: what lies there is not a journal that this version knows.
        """
        for log_dir in self._log_dirs:
            if log_dir in self._offline:
                continue
            try:
                refuse_unfinished_restore(log_dir)
                refuse_unfinished_undo(log_dir, self._options.quarantine_dir)
                self._journals[log_dir] = RunJournal(
                    log_dir,
                    quarantine_dir=self._options.quarantine_dir,
                    dry_run=self._options.dry_run,
                    is_forgotten=self._options.restart,
                )
                if not self._options.force:
                    self._journals[log_dir].refuse_forgetting(is_restart=self._options.restart)
            except OSError as error:
                self._offline[log_dir] = LogDirOfflineError(log_dir, error)
        self._begun_dirs = {path for path, journal in self._journals.items() if journal.is_anything_begun}
        # Once none is refused
        for log_dir, journal in [*self._journals.items()] if self._options.restart else ():
            try:
                journal.abandon()
                journal.abandon_others()
            except OSError as error:
                self._offline[log_dir] = LogDirOfflineError(log_dir, error)
                del self._journals[log_dir]
        return self._clock()

    def _clock(self) -> int:
        """Return the clock of the run: the given one, else that of an interrupted run that it resumes, else now."""
        if self._options.now_ms is not None:
            return self._options.now_ms
        interrupted_clocks = [
            journal.now_ms for journal in self._journals.values() if journal.now_ms is not None
        ]
        return interrupted_clocks[0] if interrupted_clocks else time.time_ns() // 1_000_000

    def _at(self, now_ms: int, inventory: LogDirInventory) -> LogDirInventory:
        """Return *inventory* with another clock, unless an interrupted run has set that of its log dir."""
        if self._journals[inventory.log_dir].is_begun:
            return inventory
        return replace(inventory, tasks=tuple(replace(task, now_ms=now_ms) for task in inventory.tasks))

    def _list_log_dirs(self, now_ms: int) -> list[LogDirInventory]:
        for log_dir in self._log_dirs:
            with suppress(OSError):  # it goes offline for that
                for move in CutLedger(log_dir).moves():
                    self._note(log_dir, str(move))
        listed = list_log_dirs(
            [log_dir for log_dir in self._log_dirs if log_dir not in self._offline],
            partial(
                _list_chosen,
                self._options.choice(),
                settings_of=self._broker.settings_of,
                now_ms=now_ms,
                producer_id_expiration_ms=self._broker.producer_id_expiration_ms,
                release=self._broker.release.release,
                ignores_marker=self._options.force,
                is_only_looked_at=self._options.dry_run,
                remote_metadata=RemoteMetadata(self._log_dirs),
            ),
            known=self._broker.problems,
            known_blockers=self._broker.blockers,
            repair_into=self._repair_into if self._options.repair else None,
            before_repair=self._check_resumable,
            dry_run=self._options.dry_run,
        )
        self._repairs = listed.repairs
        for log_dir, lines in listed.repairs.items():
            for line in lines:
                self._notify(Remark(text=line, level="warning", log_dir=log_dir))
        for log_dir, lines in listed.unrepaired.items():
            for line in lines:
                self._note(log_dir, line)
        for log_dir, error in listed.offline.items():
            self._note_offline(log_dir, error)
        # Check all of them before the first journal is discarded: if one is refused, nothing is changed.
        for inventory in listed.ready:
            with suppress(OSError):  # it goes offline below
                self._check_resumable(inventory)
        candidates = (self._ready(inventory) for inventory in listed.ready)
        inventories = [inventory for inventory in candidates if inventory is not None]
        for inventory in inventories:
            journal = self._journals[inventory.log_dir]
            self._notify(
                LogDirStarted(
                    log_dir=inventory.log_dir,
                    had_clean_shutdown=inventory.had_clean_shutdown,
                    log_count=inventory.log_count,
                    segment_count=sum(segments_to_recover(task, journal) for task in inventory.tasks),
                    bytes_total=sum(bytes_to_scan(task, journal) for task in inventory.tasks),
                )
            )
            for note in (*inventory.blockers, *inventory.notes):
                self._notify(Remark(text=str(note), level="warning", log_dir=inventory.log_dir))
            for folder in inventory.passed_over:
                self._notify(
                    Remark(
                        text=f"{folder} is left alone: a broker looks after it itself",
                        log_dir=inventory.log_dir,
                    )
                )
        return inventories

    def _ready(self, inventory: LogDirInventory) -> LogDirInventory | None:
        """Return *inventory* as the run uses it, None if the log dir goes offline instead."""
        try:
            resumed = self._resumed(inventory)
            self._quarantine_of(inventory.log_dir)
            self._earlier_cuts[inventory.log_dir] = CutLedger(inventory.log_dir).settle(
                dry_run=self._options.dry_run
            )
        except OSError as error:
            self._note_offline(inventory.log_dir, LogDirOfflineError(inventory.log_dir, error))
            return None
        return resumed

    def _note_offline(self, log_dir: str, error: LogDirOfflineError) -> None:
        self._offline[log_dir] = error
        self._notify(LogDirOffline(log_dir=log_dir, error=remedied_text(error.error)))

    def _quarantine_of(self, log_dir: str) -> Quarantine:
        """Return this run's quarantine of a log dir, in the folder of the interrupted run if there was one."""
        if log_dir not in self._quarantines:
            journal = self._journals[log_dir]
            self._quarantines[log_dir] = Quarantine(
                log_dir,
                root=self._options.quarantine_dir,
                run=journal.run,
                started_ms=self._started_ms,
                on_created=journal.note_run,
            )
        return self._quarantines[log_dir]

    def _resumed(self, inventory: LogDirInventory) -> LogDirInventory:
        """Return *inventory* as an interrupted run had it, if there was one and it can be resumed."""
        if inventory.log_dir not in self._reviewed_dirs:
            self._review(inventory)
        return self._journals[inventory.log_dir].resumed(inventory)

    def _review(self, inventory: LogDirInventory) -> None:
        """Decide what of an interrupted run counts, if there was one, and note it."""
        journal = self._journals[inventory.log_dir]
        review = journal.review(inventory, self._configuration(inventory), self._options.now_ms)
        if review is not None:
            self._is_clock_obsolete |= not review.is_resumed
            self._note(inventory.log_dir, review.text)
        self._reviewed_dirs.add(inventory.log_dir)

    def _repair_into(self, inventory: LogDirInventory) -> Quarantine:
        """Return where a repair moves things: it is known only once the interrupted run is reviewed.

        Raises:
            OSError: that failed; nothing was moved.
        """
        self._review(inventory)
        return self._quarantine_of(inventory.log_dir)

    def _note(self, log_dir: str, text: str) -> None:
        """Notify the observers, and add a note to the report."""
        self._notify(Remark(text=text, log_dir=log_dir))
        self._notes.setdefault(log_dir, []).append(Note(level="info", text=text))

    def _check_resumable(self, inventory: LogDirInventory) -> None:
        """Refuse what an interrupted run does not allow; nothing was changed so far."""
        journal = self._journals[inventory.log_dir]
        journal.check_resumable(
            inventory,
            self._configuration(inventory),
            self._options.now_ms,
            is_forced=self._options.force,
        )

    def _configuration(self, inventory: LogDirInventory) -> dict[str, str]:
        """Return all settings that decide about bytes, by name."""
        return {
            **self._options.deciding(),
            "release": self._broker.release.release.value,
            "producer.id.expiration.ms": str(self._broker.producer_id_expiration_ms),
            **{f"settings of {task.topic_partition.topic}": str(task.settings) for task in inventory.tasks},
        }

    def _job(self, inventory: LogDirInventory, now_ms: int) -> LogDirJob:
        run_folder = self._quarantine_of(inventory.log_dir).run_folder
        return LogDirJob(
            inventory=inventory,
            options=self._options.of_a_log_dir(),
            configuration=self._configuration(inventory),
            now_ms=now_ms,
            goes_on=self._journals[inventory.log_dir].is_begun,
            thread_count=self._broker.thread_count,
            quarantine_run=None if run_folder is None else os.path.basename(run_folder),
            started_ms=self._started_ms,
            repairs=self._repairs.get(inventory.log_dir, ()),
            earlier_cuts=self._earlier_cuts[inventory.log_dir],
        )

    def _recover(
        self, inventories: list[LogDirInventory], now_ms: int, kernels: KernelStart
    ) -> list[LogDirReport]:
        jobs = [self._job(inventory, now_ms) for inventory in inventories]
        pool = Pool(
            notify=self._notify,
            phases=self._phases,
            stop=self._stop,
            max_bytes_per_second=self._options.max_bytes_per_second,
        )
        # Kernels that cannot be cached would be compiled by each process, and the rate limit holds within one process.
        may_be_others = kernels.origin != "memory" and self._options.max_bytes_per_second is None
        descriptors = self._locks.inheritable if may_be_others else None
        if descriptors is None or not wants_processes(jobs, self._options.processes):
            return pool.run_in_threads(jobs, self._journals, self._quarantines)
        self._notify(Remark(text=f"one process for each of {len(jobs)} log dirs"))
        for job in jobs:
            self._journals.pop(job.log_dir).close()
        return pool.run_in_processes(jobs, descriptors)

    def _offline_reports(self) -> list[LogDirReport]:
        """Return the reports of the log dirs that are offline, and left as they are."""
        markers = {log_dir: reported_marker(log_dir) for log_dir in self._offline}
        return [
            LogDirReport(
                log_dir=log_dir,
                status="offline",
                had_clean_shutdown=bool(markers[log_dir]),
                marker=markers[log_dir],
                partitions=(),
                error=remedied_text(offline.error),
                problems=offline.problems,
                repairs=self._repairs.get(log_dir, ()),
                quarantine=self._quarantines[log_dir].run_folder if log_dir in self._quarantines else None,
                earlier_cuts=untold_in(log_dir),
            )
            for log_dir, offline in self._offline.items()
        ]


def _list_chosen(is_chosen: PartitionChoice, log_dir: str, **options: Any) -> LogDirInventory:  # noqa: ANN401 - handed on
    return list_log_dir(log_dir, **options).of(is_chosen)
