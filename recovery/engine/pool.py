"""What works on the log dirs: threads of this process, or a process for each of them.

Threads are enough if kernels and disks do the work: they do not need the interpreter. Thousands of small logs do, and
an interpreter does one thing at a time; then a process repays the cost of its start many times over.

Kafka: LogManager.loadLogs, a pool of threads for each log dir.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from recovery.engine.context import RunContext
from recovery.engine.job import LogDirJob
from recovery.engine.log_dir_run import LogDirRun
from recovery.engine.options import Processes
from recovery.engine.report import LogDirReport
from recovery.engine.resume import RunJournal
from recovery.errors import WorkerError
from recovery.problem import Note
from recovery.read.rate_limit import RateLimit
from recovery.stop_request import StopRequest
from recovery.watch.events import Observer, Remark
from recovery.watch.phases import Phases
from recovery.write.quarantine import Quarantine
from recovery.write.space import SpaceLedger
from recovery.write.space_share import SpaceShare

_MANY_FILES = 2_000
"""Some hundred logs: half a second of work; a process takes a third of a second to start."""


class _Run(Protocol):
    def start(self) -> None: ...
    def wait(self) -> None: ...
    def join(self) -> LogDirReport: ...


class _ProcessOrThreads:
    """The recovery of a log dir in a process of its own; if none can be started, in threads of this one.

    Args:
        process: not started yet.
        open_run: makes the run in threads, and opens its journal.
    """

    def __init__(
        self,
        log_dir: str,
        process: _Run,
        open_run: Callable[[], tuple[LogDirRun, RunJournal]],
        notify: Observer,
    ) -> None:
        self._log_dir = log_dir
        self._run = process
        self._open_run = open_run
        self._notify = notify
        self._journal: RunJournal | None = None
        self._notes: tuple[Note, ...] = ()

    def start(self) -> None:
        """Start the process, or else the threads."""
        try:
            self._run.start()
        except WorkerError as error:
            text = f"{error}: its log dir is recovered by threads of this one"
            self._notes = (Note(text=text),)
            self._notify(Remark(text=text, level="warning", log_dir=self._log_dir))
            self._run, self._journal = self._open_run()
            self._run.start()

    def wait(self) -> None:
        """Wait until neither is at work."""
        try:
            self._run.wait()
        finally:
            self._close()

    def join(self) -> LogDirReport:
        """Wait, and return what became of the log dir."""
        try:
            report = self._run.join()
        finally:
            self._close()
        return replace(report, notes=(*self._notes, *report.notes))

    def _close(self) -> None:
        if self._journal is not None:
            self._journal.close()


def wants_processes(jobs: Sequence[LogDirJob], processes: Processes) -> bool:
    """Return whether each of *jobs* gets a process of its own.

    With *processes* `auto`, they do if at least two log dirs have so many files that both would wait for Python.
    """
    if processes == "never" or not jobs or not sys.executable:
        return False
    file_counts = [sum(len(task.files) for task in job.inventory.tasks) for job in jobs]
    return processes == "always" or processes_pay(file_counts)


def processes_pay(file_counts: Collection[int]) -> bool:
    """Return whether log dirs with so many files are done sooner by a process each than by threads of one."""
    return sum(count >= _MANY_FILES for count in file_counts) > 1 and len(os.sched_getaffinity(0)) > 1


class Pool:
    """What all log dirs of a run have in common while they are worked on.

    Args:
        stop: ends the work early.
        max_bytes_per_second: of `.log` files, over all log dirs together; None for no limit. Only threads observe it.
    """

    def __init__(
        self, *, notify: Observer, phases: Phases, stop: StopRequest, max_bytes_per_second: int | None
    ) -> None:
        self._notify = notify
        self._phases = phases
        self._stop = stop
        self._max_bytes_per_second = max_bytes_per_second

    def run_in_threads(
        self,
        jobs: Iterable[LogDirJob],
        journals: Mapping[str, RunJournal],
        quarantines: Mapping[str, Quarantine],
    ) -> list[LogDirReport]:
        """Do *jobs*, each in its own threads, and return what became of them.

        Args:
            journals: by log dir.
            quarantines: by log dir.
        """
        jobs = tuple(jobs)
        is_dry = any(job.options.dry_run for job in jobs)
        context = RunContext(
            notify=self._notify,
            phases=self._phases,
            stop=self._stop,
            limit=RateLimit(self._max_bytes_per_second, check=self._stop.check),
            space=SpaceLedger(dry_run=is_dry, log_dir_count=len(jobs), check_stop=self._stop.check),
        )
        return self._run(
            [LogDirRun(job, journals[job.log_dir], quarantines[job.log_dir], context) for job in jobs]
        )

    def run_in_processes(self, jobs: Sequence[LogDirJob], locks: Iterable[int]) -> list[LogDirReport]:
        """Do *jobs*, each in its own process, and return what became of them. Their journals must be closed.

        Args:
            locks: descriptors of the locks, which the processes inherit.

        Raises:
            WorkerError: a process failed because of a defect.
        """
        # Most runs have no processes, and the import is slow
        from recovery.engine.process import LogDirProcess
        from recovery.engine.worker import open_run

        with closing(SpaceShare.create(len(jobs))) as share:
            common: dict[str, Any] = {
                "share": share,
                "phases": self._phases,
                "notify": self._notify,
                "stop": self._stop,
            }
            return self._run(
                [
                    _ProcessOrThreads(
                        job.log_dir,
                        LogDirProcess(job, number=number, locks=locks, **common),
                        partial(open_run, job, **common),
                        self._notify,
                    )
                    for number, job in enumerate(jobs)
                ]
            )

    def _run(self, runs: Sequence[_Run]) -> list[LogDirReport]:
        try:
            for run in runs:
                run.start()
            return [run.join() for run in runs]
        except BaseException:
            self._stop.request(self._stop.signal_number)
            for run in runs:
                run.wait()  # the locks are released next: no process may write after that
            raise
