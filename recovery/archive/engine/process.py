"""An archive checked in this process, by threads: nothing has to be started, and the kernels run side by side."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from itertools import chain
from typing import TypeVar

from recovery.archive.check.kept_scans import KeptScanError, keep_scans, kept_keys, read_scans
from recovery.archive.check.rebuild import RebuildWork
from recovery.archive.check.scan_rows import ScanRow
from recovery.archive.check.verdict import PartitionVerdict
from recovery.archive.engine.engine import RunPlan, TaskSizes
from recovery.archive.engine.row_spool import RowSpool
from recovery.archive.engine.tasks import Tasks
from recovery.archive.engine.verdicts import FoldResult
from recovery.quick_switches import quick_switches
from recovery.stop_request import StopRequest
from recovery.threads import ThreadPool

_AHEAD_A_CORE = 2
"""Jobs that wait for a thread: what they need and return is in memory."""

_Job = TypeVar("_Job")
_Result = TypeVar("_Result")


class ProcessEngine:
    """The engine that needs nothing but this process.

    Args:
        plan: what the tasks have in common.
        stop: ends a step after the segments, or partitions, in hand.
        cores: how many threads work; None: one for each CPU that this process may use.
    """

    sizes = TaskSizes(tasks_a_core=4, least_bytes=4 << 20, most_bytes=256 << 20)

    def __init__(self, plan: RunPlan, stop: StopRequest, *, cores: int | None = None) -> None:
        self.cores = len(os.sched_getaffinity(0)) if cores is None else cores
        self._stop = stop
        self._tasks = Tasks(plan)
        self._kept = () if self._tasks.output is None else kept_keys(self._tasks.output)  # by earlier runs
        self._open = ExitStack()
        self._open.enter_context(quick_switches())
        self._rows = self._open.enter_context(RowSpool())

    def close(self) -> None:
        """Forget the rows."""
        self._open.close()

    def scan(self, tasks: Sequence[bytes], on_finished: Callable[[int], None]) -> None:
        """Scan the segments of *tasks*, and keep their rows."""
        for finished, _ in enumerate(self._side_by_side(self._scan, tasks), 1):
            on_finished(finished)

    def rebuild(self) -> None:
        """Judge the partitions one by one, and rebuild the indexes that may be."""
        self._load_kept()
        works = chain.from_iterable(self._side_by_side(self._rebuilds, self._rows.prefixes()))
        for rows in self._side_by_side(lambda work: list(self._tasks.rebuild([work])), works):
            for row in rows:
                self._rows.add(row)

    def fold(self) -> Iterator[FoldResult]:
        """Judge all partitions."""
        yield self._tasks.take(self.verdicts(), task=0)

    def verdicts(self) -> Iterator[PartitionVerdict]:
        """Judge all partitions: yield the verdict of each, in the order of their prefixes."""
        self._load_kept()
        yield from chain.from_iterable(self._side_by_side(self._judge, self._rows.prefixes()))

    def _rebuilds(self, prefix: str) -> list[tuple[str, RebuildWork]]:
        return list(self._tasks.find_rebuilds(self._rows_of(prefix)))

    def _judge(self, prefix: str) -> list[PartitionVerdict]:
        return list(self._tasks.judge(self._rows_of(prefix)))

    def _scan(self, pickled: bytes) -> None:
        rows = self._noted(self._tasks.scan(pickled))
        if self._tasks.output is not None:
            rows = keep_scans(self._tasks.output, rows, heads_of=None)
        for _ in rows:
            pass

    def _noted(self, rows: Iterable[ScanRow]) -> Iterator[ScanRow]:
        for row in rows:
            self._stop.check()
            self._rows.add(row)
            yield row

    def _load_kept(self) -> None:
        """Read what earlier runs have kept of the partitions of this one."""
        kept, self._kept = self._kept, ()
        prefixes = set(self._rows.prefixes())

        def load(key: str) -> None:
            assert self._tasks.output is not None
            with suppress(KeptScanError):  # the run has noted it, and has read its segments again
                for row in read_scans(self._tasks.output, key):
                    if row.prefix in prefixes:
                        self._rows.add(row)

        for _ in self._side_by_side(load, kept):
            pass

    def _rows_of(self, prefix: str) -> Iterator[ScanRow]:
        for row in self._rows.rows_of(prefix):
            self._stop.check()
            yield row

    def _side_by_side(self, work: Callable[[_Job], _Result], jobs: Iterable[_Job]) -> Iterator[_Result]:
        """Yield the results of *work* for *jobs*, in their order, with few of them in memory.

        Raises:
            InterruptedRecoveryError: the run is to stop.
        """
        with ThreadPool(self.cores, thread_name_prefix="archive-check") as pool:
            pending: deque[Future[_Result]] = deque()
            try:
                for job in jobs:
                    pending.append(pool.submit(work, job))
                    if len(pending) >= _AHEAD_A_CORE * self.cores:
                        yield pending.popleft().result()
                while pending:
                    yield pending.popleft().result()
            finally:
                pool.shutdown(cancel_futures=True)
