"""A log dir that is recovered by a process of its own, as its parent sees it.

Thousands of small logs are work for Python, and an interpreter does one thing at a time: with the threads of all log
dirs in one process, the second dir takes as long again as the first. Each log dir has its own journal, quarantine and
threads anyway, so it can have its own process, too.

If it is killed, the dir counts as offline, and the next run resumes its recovery.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from multiprocessing.connection import Pipe

from recovery.engine.cut_ledger import untold, untold_in
from recovery.engine.handoff import reported_marker
from recovery.engine.job import LogDirJob
from recovery.engine.kept_place import located
from recovery.engine.partition_report import failed_reports, log_dir_report, refused_reports
from recovery.engine.report import LogDirReport
from recovery.engine.resume import RunJournal
from recovery.engine.worker import NO_MEMORY, NO_THREADS, STOP_SIGNALS, WorkerResult, WorkerTask
from recovery.errors import MORE_MEMORY, JournalError, WorkerError, error_text
from recovery.own_process import search_path
from recovery.stop_request import StopRequest
from recovery.threads import is_started
from recovery.watch.events import LogDirOffline, Observer
from recovery.watch.phases import Phases
from recovery.write.space_share import SpaceShare

_PROGRAM = (
    "import sys; from recovery.own_process import prepare_process; prepare_process(); "
    "from recovery.engine.worker import main; main(int(sys.argv[1]))"
)
_POLL_S = 0.05


class LogDirProcess:
    """The recovery of one log dir in another process; used as a `LogDirRun` is.

    Args:
        number: that of the worker among those of the run.
        locks: descriptors of the locks, which the worker inherits.
        share: the memory in which reservations of space are shared.
        stop: passed on to the worker.
    """

    def __init__(
        self,
        job: LogDirJob,
        *,
        number: int,
        locks: Iterable[int],
        share: SpaceShare,
        phases: Phases,
        notify: Observer,
        stop: StopRequest,
    ) -> None:
        self._job = job
        self._number = number
        self._locks = tuple(locks)
        self._share = share
        self._phases = phases
        self._notify = notify
        self._stop = stop
        self._thread: threading.Thread | None = None
        self._result: WorkerResult | None = None
        self._is_stop_told = False

    def start(self) -> None:
        """Start the process, and a thread that receives what it sends.

        Raises:
            WorkerError: the system allows no more processes or threads; nothing was begun.
        """
        self._connection, end = Pipe()
        # The worker starts with these blocked, until its handlers are installed.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        try:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-c",
                    _PROGRAM,
                    str(end.fileno()),
                ],  # -P: import nothing from the working folder
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(end.fileno(), self._share.descriptor, *self._locks),
                env={**os.environ, "PYTHONPATH": os.pathsep.join(search_path())},
            )
        except OSError as error:
            raise WorkerError(f"no process can be started for it ({error})") from error
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            end.close()
        thread = threading.Thread(target=self._converse, name=f"log-worker-{self._job.log_dir}")
        if not is_started(thread):
            self._connection.close()  # the worker ends, as its parent has closed the connection
            self._process.wait()
            raise WorkerError("no thread can be started to listen to its process")
        self._thread = thread

    def wait(self) -> None:
        """Wait until the process is gone."""
        while self._thread is not None and self._thread.is_alive():
            self._thread.join(timeout=0.2)  # short waits, so that the main thread sees signals

    def join(self) -> LogDirReport:
        """Wait for the process and return what became of the log dir.

        Raises:
            WorkerError: it failed because of a defect.
        """
        self.wait()
        result = self._result
        if result is None:
            return self._killed()
        self._phases.add(result.spent_ns)
        if result.failure is not None or result.report is None:
            raise WorkerError(f"{self._job.log_dir}: the worker process failed:\n{result.failure}")
        if result.signal_number:
            self._stop.request(result.signal_number)
        return result.report

    def _converse(self) -> None:
        """Send the worker its task, and take what it sends until it is gone."""
        try:
            with self._connection, suppress(EOFError, OSError):
                self._connection.send(
                    WorkerTask(
                        job=self._job,
                        parent_pid=os.getpid(),
                        space_descriptor=self._share.descriptor,
                        number=self._number,
                    )
                )
                while self._result is None:
                    if self._connection.poll(_POLL_S):
                        self._take(self._connection.recv())
                    self._send_stop()
        finally:
            self._process.wait()  # the connection is broken: if the worker has not ended, it does now
            self._share.clear(self._number)

    def _send_stop(self) -> None:
        if self._stop.is_made and not self._is_stop_told:
            self._is_stop_told = True
            with suppress(OSError):  # it has ended meanwhile; its result may still be in the pipe
                self._connection.send(self._stop.signal_number)

    def _take(self, message: object) -> None:
        if isinstance(message, WorkerResult):
            self._result = message
        elif isinstance(message, list):
            for event in message:
                self._notify(event)

    def _killed(self) -> LogDirReport:
        """Return the report of a log dir whose worker was killed, by an operator or for lack of memory."""
        job, inventory = self._job, self._job.inventory
        is_asked = self._stop.is_made
        error = OSError(
            f"the process that recovered this log dir ended with {_ending(self._process.returncode)}. What it had "
            "finished is done. Remedy: start again to resume"
        )
        if not is_asked:
            self._notify(LogDirOffline(log_dir=job.log_dir, error=error_text(error)))
        run_folder, entered_folders = self._left_behind()
        failed = failed_reports(inventory, (), error, entered_folders=entered_folders, run_folder=run_folder)
        partitions = (*refused_reports(inventory), *(() if is_asked else failed))
        return log_dir_report(
            inventory,
            status="interrupted" if is_asked else "offline",
            marker=reported_marker(job.log_dir),
            partitions=partitions,
            repairs=job.repairs,
            quarantine=run_folder,
            error=error_text(error),
            earlier_cuts=located(
                job.log_dir, job.options.quarantine_dir, untold(untold_in(job.log_dir), partitions)
            ),
        )

    def _left_behind(self) -> tuple[str | None, frozenset[str]]:
        """Return the folder of the run in quarantine, and what the worker has entered as done, or to be done."""
        job = self._job
        with suppress(OSError, JournalError):
            journal = RunJournal(job.log_dir, quarantine_dir=job.options.quarantine_dir, dry_run=True)
            try:
                return journal.run_folder, journal.entered_folders
            finally:
                journal.close()
        return None, frozenset()


def _ending(code: int) -> str:
    if code == NO_THREADS:
        return f"code {code}: it could start no threads (ulimit -u, pids.max; or --processes never)"
    if code == NO_MEMORY:
        return f"code {code}: there was too little memory ({MORE_MEMORY}; or --processes never)"
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"code {code}"
