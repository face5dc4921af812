"""The work of tasks, wherever they run: scanning packed segments, folding partitions, rebuilding indexes."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator

from recovery.archive.check.output import InPlace, RebuiltOutput
from recovery.archive.check.packing import PackedTask
from recovery.archive.check.rebuild import RebuildWork, Write, rebuild_indexes
from recovery.archive.check.scan_rows import ScanRow, fold_rows, rebuilt_row, scan_task
from recovery.archive.check.scanned import ScanOptions
from recovery.archive.check.verdict import PartitionVerdict
from recovery.archive.engine.engine import RunPlan
from recovery.archive.engine.verdicts import FoldResult, Verdicts
from recovery.archive.layouts.layout import PartitionLayouts
from recovery.archive.layouts.layouts import make_layouts
from recovery.archive.stores.stores import open_store


def scan_segments(plan: RunPlan, pickled: bytes) -> Iterator[ScanRow]:
    """Scan the segments of a pickled `PackedTask`; yield their rows."""
    options = plan.options
    store, layouts = open_store(options.url), make_layouts(options.layout, options.keys)
    task: PackedTask = pickle.loads(pickled)
    yield from scan_task(task, store, layouts, run=plan.run, is_logs_only=options.is_logs_only)


def find_rebuilds(plan: RunPlan, rows: Iterable[ScanRow]) -> Iterator[tuple[str, RebuildWork]]:
    """Fold sorted *rows*; yield what can be rebuilt of each segment, with the prefix of its partition."""
    layouts = make_layouts(plan.options.layout, plan.options.keys)
    for partition in fold_rows(rows, layouts, run=plan.run):
        for work in partition.rebuilds:
            yield partition.head.where.prefix, work


def rebuild_segments(plan: RunPlan, works: Iterable[tuple[str, RebuildWork]]) -> Iterator[ScanRow]:
    """Rebuild the indexes of segments; yield the rows that tell the fold of it."""
    options = plan.options
    store, layouts = open_store(options.url), make_layouts(options.layout, options.keys)
    write = _writer(options, layouts, plan.run)
    for prefix, work in works:
        yield rebuilt_row(prefix, rebuild_indexes(work, store, layouts.at(prefix), write), run=plan.run)


def judge_partitions(plan: RunPlan, rows: Iterable[ScanRow]) -> Iterator[PartitionVerdict]:
    """Fold sorted *rows*; yield the verdict of each partition, after what is to be rebuilt is written."""
    options = plan.options
    layouts = make_layouts(options.layout, options.keys)
    write = _writer(options, layouts, plan.run) if options.rebuilds else None
    yield from fold_rows(rows, layouts, run=plan.run, write=write, is_logs_only=options.is_logs_only)


def take_verdicts(plan: RunPlan, partitions: Iterable[PartitionVerdict], *, task: int) -> FoldResult:
    """Take the verdicts of a task of the fold, and return their sum.

    Args:
        plan: of the run.
        partitions: the verdicts.
        task: number of the task.
    """
    output = None if plan.options.output is None else open_store(plan.options.output)
    verdicts = Verdicts(output, plan.run.hex(), began_ms=plan.began_ms, task=task)
    for partition in partitions:
        verdicts.add(partition)
    verdicts.close()
    return verdicts.result


def _writer(options: ScanOptions, layouts: PartitionLayouts, run: bytes) -> Write:
    assert options.output is not None
    archive, output = open_store(options.url), open_store(options.output)
    writer = InPlace if options.is_in_place else RebuiltOutput
    return writer(archive, output, layouts, run.hex())
