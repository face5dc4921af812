"""A worker process: it recovers one log dir and reports to its parent.

It is a new interpreter, whatever threads the parent has, and shares only the locks, the reservations of space and one
connection with it. Over the connection it receives a job, then numbers of signals; it sends events in bundles, and at
the end the report. It does not outlive its parent.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from traceback import format_exception

from recovery.engine.context import RunContext
from recovery.engine.job import LogDirJob
from recovery.engine.log_dir_run import LogDirRun
from recovery.engine.report import LogDirReport
from recovery.engine.resume import RunJournal
from recovery.logdir.quarantine_place import places_of
from recovery.quick_switches import quick_switches
from recovery.read.kernel_start import start_kernels
from recovery.read.rate_limit import RateLimit
from recovery.stop_request import StopRequest
from recovery.watch.events import Event, Observer
from recovery.watch.phases import Phase, Phases
from recovery.write.quarantine import Quarantine
from recovery.write.space import SpaceLedger
from recovery.write.space_share import SpaceShare
from recovery.write.write_back import held_file_systems

STOP_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
NO_THREADS = 75
"""The exit code of a worker that could start no threads and has done nothing. BSD: EX_TEMPFAIL."""
NO_MEMORY = 71
"""The exit code of a worker that had too little memory even to report. BSD: EX_OSERR."""
_PR_SET_PDEATHSIG = 1
_EVENTS_S = 0.05
"""How long an event may wait for others before it is sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerTask:
    """The task of a worker.

    Attributes:
        parent_pid: the process that has started it.
        space_descriptor: the memory in which reservations are shared.
        number: the worker's number: its block in that memory.
    """

    job: LogDirJob
    parent_pid: int
    space_descriptor: int
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerResult:
    """How the work of a worker ended.

    Attributes:
        report: None if it failed.
        failure: the traceback of an error that is a defect of ours, or None.
        spent_ns: as `Phases.spent_ns` returns it.
        signal_number: the signal that has ended it early, or 0.
    """

    report: LogDirReport | None
    failure: str | None
    spent_ns: Mapping[Phase, tuple[int, int]]
    signal_number: int


class _Sender:
    """Sends events in bundles from a thread of its own, so that the threads that make them need not wait."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._events: deque[Event] = deque()
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="log-events", daemon=True)
        self._thread.start()

    def notify(self, event: Event) -> None:
        """Take an event, from any thread."""
        self._events.append(event)

    def close(self) -> None:
        """Send what is left."""
        self._is_closed.set()
        self._thread.join()

    def _run(self) -> None:
        is_last = False
        while not is_last:
            is_last = self._is_closed.wait(_EVENTS_S)
            events = [self._events.popleft() for _ in range(len(self._events))]
            if events:
                self._connection.send(events)


def main(descriptor: int) -> None:
    """Do the task received over the connection *descriptor*; called with the signals that stop a run blocked."""
    try:
        _serve(descriptor)
    except MemoryError:
        os._exit(NO_MEMORY)


def _serve(descriptor: int) -> None:
    stop = StopRequest()
    for number in STOP_SIGNALS:
        signal.signal(number, lambda received, _frame: stop.request(received))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    connection = Connection(descriptor)
    try:
        task: WorkerTask = connection.recv()
    except (EOFError, OSError):
        return  # the parent is gone
    _die_with(task.parent_pid)
    receiver = threading.Thread(
        target=_receive_signals, args=(connection, stop), name="log-signals", daemon=True
    )
    try:
        receiver.start()
        sender = _Sender(connection)
    except RuntimeError:
        os._exit(NO_THREADS)
    phases = Phases()
    report, failure = None, None
    try:
        report = _work(task, phases, sender, stop)
    except MemoryError:
        sender.close()
        raise
    except BaseException as error:
        failure = "".join(format_exception(error))
    sender.close()
    connection.send(
        WorkerResult(
            report=report, failure=failure, spent_ns=phases.spent_ns(), signal_number=stop.signal_number
        )
    )


def _work(task: WorkerTask, phases: Phases, sender: _Sender, stop: StopRequest) -> LogDirReport:
    job = task.job
    share = SpaceShare(task.space_descriptor, task.number)
    start_kernels()
    run, journal = open_run(job, share=share, phases=phases, notify=sender.notify, stop=stop)
    try:
        with quick_switches(), held_file_systems(places_of([job.log_dir], job.options.quarantine_dir)):
            run.start()
            return run.join()
    except BaseException:
        stop.request(stop.signal_number)
        run.wait()
        raise
    finally:
        journal.close()


def open_run(
    job: LogDirJob, *, share: SpaceShare, phases: Phases, notify: Observer, stop: StopRequest
) -> tuple[LogDirRun, RunJournal]:
    """Return the run of a job whose journal nobody has open, and that journal, which is to be closed after the run."""
    options = job.options
    journal = RunJournal(
        job.log_dir,
        quarantine_dir=options.quarantine_dir,
        dry_run=options.dry_run,
        is_forgotten=not job.goes_on,
    )
    if job.goes_on:
        # As the parent has done, so that this process knows what is committed
        if job.options.dry_run:
            journal.review(job.inventory, job.configuration)  # the parent could not enter what it has found
        journal.resumed(job.inventory)
    else:
        journal.discard()  # a dry run that starts over leaves it there
    quarantine = Quarantine(
        job.log_dir,
        root=options.quarantine_dir,
        run=job.quarantine_run,
        started_ms=job.started_ms,
        on_created=journal.note_run,
    )
    space = SpaceLedger(
        dry_run=options.dry_run, log_dir_count=share.count, check_stop=stop.check, share=share
    )
    limit = RateLimit(None, check=stop.check)
    context = RunContext(notify=notify, phases=phases, stop=stop, limit=limit, space=space)
    return LogDirRun(job, journal, quarantine, context), journal


def _receive_signals(connection: Connection, stop: StopRequest) -> None:
    with suppress(EOFError, OSError):
        while True:
            stop.request(connection.recv())
    stop.request(signal.SIGTERM)  # the parent is gone


def _die_with(parent_pid: int) -> None:
    """Let the kernel end this process when its parent ends, however that happens.

    If that is not possible, the end of the connection stops the run a little later; the locks are held until then.
    """
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os._exit(1)
