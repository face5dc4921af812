"""An archive gone through in this process, one partition after the other: what the other drivers must agree with."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy

from recovery.archive.check.packing import PackedTask
from recovery.archive.check.rebuild import Write, rebuild_indexes
from recovery.archive.check.scan_rows import fold_rows, rebuilt_row, scan_task
from recovery.archive.check.survey import SurveyedPartition
from recovery.archive.check.survey_spool import spooled_head
from recovery.archive.check.verdict import PartitionVerdict
from recovery.archive.layouts.layout import Layout
from recovery.archive.stores.store import Store

_RUN = b"run"


def verdicts_of(
    store: Store,
    layout: Layout,
    partitions: Iterator[SurveyedPartition],
    *,
    write: Write | None = None,
) -> Iterator[PartitionVerdict]:
    """Yield the verdicts of *partitions*, in their order."""
    for surveyed in partitions:
        task = PackedTask(heads=[spooled_head(surveyed.head)], works=[surveyed.works])
        rows = list(scan_task(task, store, layout, run=_RUN))
        if write is not None:
            (judged,) = fold_rows(deepcopy(rows), layout, run=_RUN)
            results = (rebuild_indexes(work, store, layout, write) for work in judged.rebuilds)
            rows = [rebuilt_row(surveyed.works.prefix, result, run=_RUN) for result in results] + rows
        yield from fold_rows(rows, layout, run=_RUN, write=write)


def log_verdicts_of(
    store: Store, layout: Layout, partitions: Iterator[SurveyedPartition]
) -> Iterator[PartitionVerdict]:
    """Yield the verdicts on the logs of *partitions* alone."""
    for surveyed in partitions:
        task = PackedTask(heads=[spooled_head(surveyed.head)], works=[surveyed.works])
        rows = scan_task(task, store, layout, run=_RUN, is_logs_only=True)
        yield from fold_rows(rows, layout, run=_RUN, is_logs_only=True)
