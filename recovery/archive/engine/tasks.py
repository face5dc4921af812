"""The work of tasks, wherever they run: scanning packed segments, folding partitions, rebuilding indexes."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator

from recovery.archive.check.output import InPlace, RebuiltOutput
from recovery.archive.check.packing import PackedTask
from recovery.archive.check.rebuild import RebuildWork, Write, rebuild_indexes
from recovery.archive.check.scan_rows import ScanRow, fold_rows, rebuilt_row, scan_task
from recovery.archive.check.verdict import PartitionVerdict
from recovery.archive.engine.engine import RunPlan
from recovery.archive.engine.verdicts import FoldResult, Verdicts
from recovery.archive.layouts.layouts import make_layouts
from recovery.archive.stores.stores import open_store


class Tasks:
    """The work of a run's tasks. Archive and output are opened once: buckets cost a connection each time.

    Args:
        plan: of the run.

    Attributes:
        output: the store of the run's results, None without one.
    """

    def __init__(self, plan: RunPlan) -> None:
        options = plan.options
        self._plan = plan
        self._archive = open_store(options.url)
        self.output = None if options.output is None else open_store(options.output)
        self._layouts = make_layouts(options.layout, options.keys)

    def scan(self, pickled: bytes) -> Iterator[ScanRow]:
        """Scan the segments of a pickled `PackedTask`; yield their rows."""
        task: PackedTask = pickle.loads(pickled)
        yield from scan_task(
            task,
            self._archive,
            self._layouts,
            run=self._plan.run,
            is_logs_only=self._plan.options.is_logs_only,
        )

    def find_rebuilds(self, rows: Iterable[ScanRow]) -> Iterator[tuple[str, RebuildWork]]:
        """Fold sorted *rows*; yield what can be rebuilt of each segment, with the prefix of its partition."""
        for partition in fold_rows(rows, self._layouts, run=self._plan.run):
            for work in partition.rebuilds:
                yield partition.head.where.prefix, work

    def rebuild(self, works: Iterable[tuple[str, RebuildWork]]) -> Iterator[ScanRow]:
        """Rebuild the indexes of segments; yield the rows that tell the fold of it."""
        write = self._writer()
        for prefix, work in works:
            indexes = rebuild_indexes(work, self._archive, self._layouts.at(prefix), write)
            yield rebuilt_row(prefix, indexes, run=self._plan.run)

    def judge(self, rows: Iterable[ScanRow]) -> Iterator[PartitionVerdict]:
        """Fold sorted *rows*; yield the verdict of each partition, after what is to be rebuilt is written."""
        options = self._plan.options
        write = self._writer() if options.rebuilds else None
        yield from fold_rows(
            rows, self._layouts, run=self._plan.run, write=write, is_logs_only=options.is_logs_only
        )

    def take(self, partitions: Iterable[PartitionVerdict], *, task: int) -> FoldResult:
        """Take the verdicts of a task of the fold, and return their sum.

        Args:
            partitions: the verdicts.
            task: number of the task.
        """
        verdicts = Verdicts(self.output, self._plan.run.hex(), began_ms=self._plan.began_ms, task=task)
        for partition in partitions:
            verdicts.add(partition)
        verdicts.close()
        return verdicts.result

    def _writer(self) -> Write:
        assert self.output is not None
        writer = InPlace if self._plan.options.is_in_place else RebuiltOutput
        return writer(self._archive, self.output, self._layouts, self._plan.run.hex())
