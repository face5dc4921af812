"""The local driver: all log dirs of a broker, one pool of threads each.

Data flows one way: inventory, then for each partition scan, fold, plan, apply, then the hand-off of the dir.
Settings, the clock and the locks are settled before the first byte is read.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from functools import partial

from native.segment_scan import warm_up
from recovery.errors import InterruptedRecoveryError, LogDirLockedError, LogDirOfflineError, UnsafeError
from recovery.handoff import Handoff
from recovery.inventory import LogDirInventory, list_log_dir
from recovery.lock import LogDirLocks
from recovery.log_dir_run import LogDirRun, log_count
from recovery.model import LogSettings
from recovery.observer import (
    LogDirOffline,
    LogDirStarted,
    Notifier,
    Observer,
    Remark,
    RunFinished,
    RunStarted,
)
from recovery.problem import Problem
from recovery.quarantine import Quarantine
from recovery.report import EXIT_ERROR, LogDirReport, RecoveryReport
from recovery.space import SpaceLedger
from recovery.survey import survey_log_dirs

_NOTABLE_COMPILE_S = 2.0


class StopRequest:
    """A flag that a signal handler raises and the threads look at between windows and actions."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self.signal_number = 0

    def request(self, signal_number: int) -> None:
        """Ask the run to end. Safe in a signal handler."""
        self.signal_number = signal_number
        self._event.set()

    def check(self) -> None:
        """Raise InterruptedRecoveryError once the run is to end."""
        if self._event.is_set():
            raise InterruptedRecoveryError(self.signal_number)


class Engine:
    """One run over the log dirs of one broker.

    Args:
        log_dirs: absolute paths.
        locked_dirs: further dirs to lock, a separate metadata.log.dir.
        settings: returns the settings of a topic's logs; called once the locks are held.
        thread_count: `num.recovery.threads.per.data.dir`.
        now_ms: the clock by which producers expire.
        force: recover as after an unclean shutdown, whatever the markers say.
        problems: why log dirs may not be touched, as far as the caller knows.
        repair: first move away what keeps a broker from loading, where that costs no batch.
        remarks: what the caller found out before, for the observers.
        locks: on all these dirs, where the caller holds them already.
    """

    def __init__(
        self,
        log_dirs: Iterable[str],
        *,
        locked_dirs: Iterable[str] = (),
        settings: Callable[[], Callable[[str], LogSettings]],
        thread_count: int,
        now_ms: int,
        producer_id_expiration_ms: int = 86_400_000,
        handoff: Handoff = "clean-shutdown",
        dry_run: bool = False,
        quarantine_dir: str | None = None,
        keep_deleted: bool = False,
        force: bool = False,
        repair: bool = False,
        problems: Mapping[str, tuple[Problem, ...]] | None = None,
        observers: Iterable[Observer] = (),
        stop: StopRequest | None = None,
        remarks: Iterable[Remark] = (),
        locks: LogDirLocks | None = None,
    ) -> None:
        self._log_dirs = tuple(log_dirs)
        self._locked_dirs = tuple(dict.fromkeys((*self._log_dirs, *locked_dirs)))
        self._settings = settings
        self._thread_count = thread_count
        self._now_ms = now_ms
        self._producer_id_expiration_ms = producer_id_expiration_ms
        self._handoff: Handoff = handoff
        self._dry_run = dry_run
        self._quarantine_dir = quarantine_dir
        self._keep_deleted = keep_deleted
        self._force = force
        self._repair = repair
        self._problems = problems or {}
        self._quarantines: dict[str, Quarantine] = {}
        self._repairs: dict[str, tuple[str, ...]] = {}
        self._notify = Notifier(observers)
        self._stop = StopRequest() if stop is None else stop
        self._remarks = tuple(remarks)
        self._locks = locks
        self._offline: dict[str, LogDirOfflineError] = {}

    def run(self) -> RecoveryReport:
        """Recover all log dirs and return what became of them.

        Raises:
            LogDirLockedError: somebody holds a lock; nothing was changed.
            UnsafeError: a separate metadata.log.dir cannot be locked; nothing was changed.
        """
        try:
            report = self._run()
        except LogDirLockedError:
            raise
        except BaseException:
            self._notify(RunFinished(exit_code=EXIT_ERROR))  # watchers must not wait for a run that is over
            raise
        self._notify(RunFinished(exit_code=report.exit_code))
        return report

    def _run(self) -> RecoveryReport:
        started_s = time.monotonic()
        own_locks = LogDirLocks(self._locked_dirs, dry_run=self._dry_run)
        with own_locks if self._locks is None else nullcontext(self._locks) as locks:
            self._take_offline(locks)
            compile_s = _warm_up()
            self._notify(
                RunStarted(log_dirs=self._log_dirs, threads_per_dir=self._thread_count, dry_run=self._dry_run)
            )
            if compile_s > _NOTABLE_COMPILE_S:
                self._notify(Remark(text=f"compiled the kernels for this CPU in {compile_s:.0f} s, once"))
            for remark in self._remarks:
                self._notify(remark)
            for log_dir, error in self._offline.items():
                self._notify(LogDirOffline(log_dir=log_dir, error=str(error.error)))
            inventories = self._list_log_dirs()
            reports = self._recover(inventories)
        order = {log_dir: place for place, log_dir in enumerate(self._log_dirs)}
        return RecoveryReport(
            dry_run=self._dry_run,
            now_ms=self._now_ms,
            duration_ms=int((time.monotonic() - started_s) * 1000),
            log_dirs=tuple(sorted([*reports, *self._offline_reports()], key=lambda one: order[one.log_dir])),
            signal_exit_code=128 + self._stop.signal_number
            if any(report.status == "interrupted" for report in reports)
            else None,
        )

    def _take_offline(self, locks: LogDirLocks) -> None:
        """Leave out the log dirs that cannot be locked for an I/O error. Kafka: LogManager.lockLogDirs."""
        for log_dir, error in locks.offline.items():
            if log_dir not in self._log_dirs:
                raise UnsafeError(
                    f"metadata.log.dir {error}: it cannot be locked. Nothing was changed. "
                    "Remedy: give this user the right to write there"
                )
            self._offline[log_dir] = error

    def _list_log_dirs(self) -> list[LogDirInventory]:
        settings_of = self._settings()
        survey = survey_log_dirs(
            [log_dir for log_dir in self._log_dirs if log_dir not in self._offline],
            partial(
                list_log_dir,
                settings_of=settings_of,
                now_ms=self._now_ms,
                producer_id_expiration_ms=self._producer_id_expiration_ms,
                ignores_marker=self._force,
            ),
            known=self._problems,
            repair_into=self._quarantine_of if self._repair else None,
            dry_run=self._dry_run,
        )
        self._repairs = survey.repairs
        for log_dir, lines in survey.repairs.items():
            for line in lines:
                self._notify(Remark(text=line, level="warning", log_dir=log_dir))
        for log_dir, error in survey.offline.items():
            self._offline[log_dir] = error
            self._notify(LogDirOffline(log_dir=log_dir, error=str(error.error)))
        inventories = survey.inventories
        for inventory in inventories:
            self._notify(
                LogDirStarted(
                    log_dir=inventory.log_dir,
                    had_clean_shutdown=inventory.had_clean_shutdown,
                    log_count=log_count(inventory),
                    segment_count=inventory.unflushed_segment_count,
                    bytes_total=inventory.unflushed_bytes,
                )
            )
            for folder in inventory.passed_over:
                self._notify(
                    Remark(
                        text=f"{folder} is left alone: a broker looks after it itself",
                        log_dir=inventory.log_dir,
                    )
                )
        return inventories

    def _quarantine_of(self, log_dir: str) -> Quarantine:
        """Return this run's place in quarantine for what comes from a log dir."""
        return self._quarantines.setdefault(log_dir, Quarantine(log_dir, root=self._quarantine_dir))

    def _recover(self, inventories: list[LogDirInventory]) -> list[LogDirReport]:
        space = SpaceLedger(dry_run=self._dry_run, check_stop=self._stop.check)
        runs = [
            LogDirRun(
                inventory,
                thread_count=self._thread_count,
                handoff=self._handoff,
                dry_run=self._dry_run,
                quarantine=self._quarantine_of(inventory.log_dir),
                space=space,
                repairs=self._repairs.get(inventory.log_dir, ()),
                keep_deleted=self._keep_deleted,
                notify=self._notify,
                check_stop=self._stop.check,
            )
            for inventory in inventories
        ]
        try:
            for run in runs:
                run.start()
            return [run.join() for run in runs]
        except BaseException:
            self._stop.request(self._stop.signal_number)
            for run in runs:
                run.wait()  # the locks go now: no thread may write any more
            raise

    def _offline_reports(self) -> list[LogDirReport]:
        return [
            LogDirReport(
                log_dir=log_dir,
                status="offline",
                had_clean_shutdown=False,
                marker=os.path.exists(os.path.join(log_dir, ".kafka_cleanshutdown")),
                partitions=(),
                error=str(error.error),
                problems=error.problems,
                actions=self._repairs.get(log_dir, ()),
            )
            for log_dir, error in self._offline.items()
        ]


def _warm_up() -> float:
    """Load or compile the kernels before any clock of progress runs; return the seconds that it took."""
    started_s = time.monotonic()
    warm_up()
    return time.monotonic() - started_s
