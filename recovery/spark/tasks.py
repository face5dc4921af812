"""What runs in Spark's Python workers: scanning packed segments, reading kept scans, folding partitions, rebuilding.

These functions are pickled by name, so the package must be installed where the executors run.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recovery.archive.check.kept_scans import KeptScanError, keep_scans, read_scans
from recovery.archive.check.output import VERDICTS, InPlace, RebuiltOutput
from recovery.archive.check.rebuild import rebuild_indexes
from recovery.archive.check.scan_rows import fold_rows, rebuilt_row, scan_task
from recovery.archive.check.scanned import ScanOptions
from recovery.archive.check.tally import Tally
from recovery.archive.check.verdict_rows import (
    object_row,
    object_schema,
    partition_row,
    partition_schema,
    sound_table,
)
from recovery.archive.layouts.layouts import make_layout
from recovery.archive.parquet import to_parquet
from recovery.archive.stores.stores import open_store
from recovery.spark.row_batches import batches_to_rows, rows_to_batches
from recovery.spark.worker import prepare_worker

if TYPE_CHECKING:
    import pyarrow as pa

    from recovery.archive.check.logs.sound_logs import SoundLogs
    from recovery.archive.check.packing import PackedTask
    from recovery.archive.check.rebuild import RebuildWork, Write
    from recovery.archive.check.scan_rows import ScanRow
    from recovery.archive.check.verdict import PartitionVerdict
    from recovery.archive.layouts.layout import Layout
    from recovery.archive.stores.archived import PartitionPrefix

SCAN_DDL = "prefix string, base_offset long, segment_id string, digest binary, log_bytes long, value binary"
FOLD_DDL = "kind string, payload string"
REBUILD_DDL = "prefix string, work binary"
MOST_BAD_OBJECTS = 1_000
"""Rows of bad objects that one task returns to the driver."""
MOST_NOTED_OBJECTS = 100
"""The same of sound objects with a note."""
_ROWS_IN_A_FILE = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanPlan:
    """What the tasks of one wave have in common.

    Attributes:
        run: 16 bytes that name the run.
        tasks: pickled `PackedTask`s, by number.
    """

    options: ScanOptions
    run: bytes
    tasks: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldPlan:
    """What the tasks of the fold have in common."""

    options: ScanOptions
    run: bytes


def scan_wave(plan: ScanPlan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Scan the tasks with the numbers in *batches*; yield rows, without their results if the output keeps those."""
    prepare_worker()
    options = plan.options
    store, layout = open_store(options.url), make_layout(options.layout, options.keys)
    for batch in batches:
        for number in batch.column(0).to_pylist():
            task: PackedTask = pickle.loads(plan.tasks[number])
            rows = scan_task(task, store, layout, run=plan.run, is_logs_only=options.is_logs_only)
            if options.output is not None:
                rows = keep_scans(open_store(options.output), rows, plan.run)
            yield from rows_to_batches(rows)


def load_scans(
    output: str, keys: tuple[str, ...], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Read the kept scans whose numbers in *keys* are in *batches*."""
    prepare_worker()
    store = open_store(output)
    for batch in batches:
        for number in batch.column(0).to_pylist():
            with suppress(KeptScanError):  # the run has noted it, and has read its segments again
                yield from rows_to_batches(read_scans(store, keys[number]))


def find_rebuilds(plan: FoldPlan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Fold sorted rows; yield what can be rebuilt, segment by segment."""
    import pyarrow as pa

    prepare_worker()
    layout = make_layout(plan.options.layout, plan.options.keys)
    schema = pa.schema([("prefix", pa.string()), ("work", pa.binary())])
    for partition in fold_rows(batches_to_rows(batches), layout, run=plan.run):
        rows = [
            {"prefix": partition.head.where.prefix, "work": pickle.dumps(work, protocol=5)}
            for work in partition.rebuilds
        ]
        if rows:
            yield pa.RecordBatch.from_pylist(rows, schema=schema)


def rebuild_segments(plan: FoldPlan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rebuild the indexes of segments; yield the rows that tell the fold of it."""
    prepare_worker()
    options = plan.options
    store, layout = open_store(options.url), make_layout(options.layout, options.keys)
    write = _writer(options, layout, plan.run)
    for batch in batches:
        prefixes, pickled = (batch.column(name).to_pylist() for name in ("prefix", "work"))
        works: Iterator[RebuildWork] = map(pickle.loads, pickled)
        rows = (
            rebuilt_row(prefix, rebuild_indexes(work, store, layout, write), run=plan.run)
            for prefix, work in zip(prefixes, works, strict=True)
        )
        yield from rows_to_batches(rows)


def fold_partitions(plan: FoldPlan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Fold sorted rows; yield bad objects and a tally, and keep all verdicts in the output."""
    import pyarrow as pa

    prepare_worker()
    layout = make_layout(plan.options.layout, plan.options.keys)
    write = _writer(plan.options, layout, plan.run) if plan.options.rebuilds else None
    verdicts = _Verdicts(plan)
    rows: Iterator[ScanRow] = batches_to_rows(batches)
    schema = pa.schema([("kind", pa.string()), ("payload", pa.string())])
    is_logs_only = plan.options.is_logs_only
    for partition in fold_rows(rows, layout, run=plan.run, write=write, is_logs_only=is_logs_only):
        verdicts.add(partition)
    bad = [("object", json.dumps(row)) for row in verdicts.bad]
    noted = [("noted", json.dumps(row)) for row in verdicts.noted]
    results = [
        *bad,
        *noted,
        ("left_out", str(verdicts.left_out)),
        ("tally", json.dumps(verdicts.tally.to_json())),
    ]
    verdicts.close()
    yield pa.RecordBatch.from_pylist(
        [{"kind": kind, "payload": payload} for kind, payload in results], schema=schema
    )


class _Verdicts:
    """The verdicts of one task of the fold."""

    def __init__(self, plan: FoldPlan) -> None:
        self._plan = plan
        self._objects: list[dict[str, object]] = []
        self._sound: list[tuple[PartitionPrefix, SoundLogs]] = []
        self._rows = 0
        self._partitions: list[dict[str, object]] = []
        self._files = 0
        self.tally = Tally()
        self.bad: list[dict[str, object]] = []
        self.noted: list[dict[str, object]] = []
        self.left_out = 0

    def add(self, partition: PartitionVerdict) -> None:
        self.tally.add(partition)
        objects = [object_row(partition, judged) for judged in partition.objects]
        for row in objects:
            if row["valid"] is True and row["rebuilt"] is None:
                if row["findings"] and len(self.noted) < MOST_NOTED_OBJECTS:
                    self.noted.append(row)
                continue
            if len(self.bad) < MOST_BAD_OBJECTS:
                self.bad.append(row)
            else:
                self.left_out += 1
        if self._plan.options.output is not None:
            self._objects += objects
            self._sound += [(partition.head.where, sound) for sound in partition.sound]
            self._partitions.append(partition_row(partition))
            self._rows += len(objects) + sum(map(len, partition.sound))
            if self._rows >= _ROWS_IN_A_FILE:
                self.close()

    def close(self) -> None:
        """Write the rows that are pending."""
        if self._plan.options.output is None or not self._partitions:
            return
        output = open_store(self._plan.options.output)
        name = _task_name(self._files)
        folder = f"{VERDICTS}{self._plan.run.hex()}/"
        objects = to_parquet(self._objects, object_schema(), sound_table(self._sound))
        output.create(f"{folder}objects/part-{name}.parquet", objects)
        output.create(
            f"{folder}partitions/part-{name}.parquet", to_parquet(self._partitions, partition_schema())
        )
        self._objects, self._sound, self._partitions = [], [], []
        self._rows = 0
        self._files += 1


def _task_name(file: int) -> str:
    """Return a name that is the same for each attempt of this task, and differs for other tasks."""
    from pyspark import TaskContext

    context = TaskContext.get()
    number = 0 if context is None else context.partitionId()
    return f"{number:05d}-{file:03d}"


def _writer(options: ScanOptions, layout: Layout, run: bytes) -> Write:
    assert options.output is not None
    output = open_store(options.output)
    if options.is_in_place:
        return InPlace(open_store(options.url), output, layout, run.hex())
    return RebuiltOutput(output, layout)
