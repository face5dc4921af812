"""An archive gone through in this process, one segment after the other: what the other drivers must agree with."""

from __future__ import annotations

from collections.abc import Iterator

from recovery.archive.check.chain import Write
from recovery.archive.check.packing import PackedTask
from recovery.archive.check.partition_fold import PartitionFold, PartitionVerdict
from recovery.archive.check.pickling import to_pickle
from recovery.archive.check.scan_rows import fold_rows, scan_task
from recovery.archive.check.segment_map import SegmentMap
from recovery.archive.check.stored_folder import scan_folder
from recovery.archive.check.survey import SurveyedPartition
from recovery.archive.layouts.layout import Layout
from recovery.archive.stores.store import Store


def verdicts_of(
    store: Store,
    layout: Layout,
    partitions: Iterator[SurveyedPartition],
    *,
    write: Write | None = None,
) -> Iterator[PartitionVerdict]:
    """Yield the verdicts of *partitions*, in their order."""
    segments = SegmentMap(store, layout, write=write)
    for surveyed in partitions:
        folder = None if layout.is_tiered else scan_folder(store, surveyed.head)
        fold = PartitionFold(surveyed.head, layout, folder=folder, write=write)
        for work in surveyed.works:
            fold.take(segments.scan(work))
        yield fold.finish()


def log_verdicts_of(
    store: Store, layout: Layout, partitions: Iterator[SurveyedPartition]
) -> Iterator[PartitionVerdict]:
    """Yield the verdicts on the logs of *partitions* alone."""
    for surveyed in partitions:
        task = PackedTask(heads=[to_pickle(surveyed.head)], works=[surveyed.works])
        rows = scan_task(task, store, layout, run=b"run", is_logs_only=True)
        yield from fold_rows(rows, layout, run=b"run", is_logs_only=True)
