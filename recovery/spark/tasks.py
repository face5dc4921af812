"""The work of tasks in Spark's Python workers: Arrow batches in, Arrow batches out.

These functions are pickled by name, so the package must be installed where the executors run.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from recovery.archive.check.kept_scans import KeptScanError, keep_scans, read_scans
from recovery.archive.check.summary import Summary
from recovery.archive.engine.engine import RunPlan
from recovery.archive.engine.tasks import Tasks
from recovery.archive.engine.verdicts import FoldResult
from recovery.archive.stores.stores import open_store
from recovery.spark.row_batches import batches_to_rows, rows_to_batches
from recovery.spark.worker import prepare_worker

if TYPE_CHECKING:
    import pyarrow as pa

SCAN_DDL = "prefix string, base_offset long, segment_id string, digest binary, log_bytes long, value binary"
REBUILD_DDL = "prefix string, work binary"
FOLD_DDL = "kind string, key string, payload string"
SUMMARY, OBJECT, NOTED = "summary", "object", "noted"
"""The kinds of rows that the fold returns: counts, and objects by key."""


def scan(
    plan: RunPlan, tasks: tuple[bytes, ...], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Scan the *tasks* with the numbers in *batches*; yield rows, without their results if the output keeps those."""
    prepare_worker()
    work = Tasks(plan)
    for number in _numbers(batches):
        rows = work.scan(tasks[number])
        if work.output is not None:
            rows = keep_scans(work.output, rows, heads_of=plan.run)
        yield from rows_to_batches(rows)


def load_scans(
    output: str, keys: tuple[str, ...], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Read the kept scans whose numbers in *keys* are in *batches*."""
    prepare_worker()
    store = open_store(output)
    for number in _numbers(batches):
        with suppress(KeptScanError):  # the run has noted it, and has read its segments again
            yield from rows_to_batches(read_scans(store, keys[number]))


def judge(plan: RunPlan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Fold sorted rows; yield what can be rebuilt, segment by segment."""
    import pyarrow as pa

    prepare_worker()
    for prefix, work in Tasks(plan).find_rebuilds(batches_to_rows(batches)):
        yield pa.RecordBatch.from_pydict({"prefix": [prefix], "work": [pickle.dumps(work, protocol=5)]})


def rebuild(plan: RunPlan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rebuild the indexes of segments; yield the rows that tell the fold of it."""
    prepare_worker()
    works = (
        (prefix, pickle.loads(work))
        for batch in batches
        for prefix, work in zip(*(batch.column(name).to_pylist() for name in ("prefix", "work")), strict=True)
    )
    yield from rows_to_batches(Tasks(plan).rebuild(works))


def fold(plan: RunPlan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Fold sorted rows; yield bad objects and a summary, and keep all verdicts in the output."""
    prepare_worker()
    tasks = Tasks(plan)
    result = tasks.take(tasks.judge(batches_to_rows(batches)), task=_task_number())
    counts = {"summary": result.summary.to_json(), OBJECT: result.objects.total, NOTED: result.noted.total}
    yield _batch(kind=[SUMMARY], key=[""], payload=[json.dumps(counts)])
    for kind, rows in ((OBJECT, result.objects.rows()), (NOTED, result.noted.rows())):
        yield _batch(
            kind=[kind] * len(rows),
            key=[row["key"] for row in rows],
            payload=[json.dumps(row) for row in rows],
        )


def folded(rows: Iterable[Any]) -> FoldResult:
    """Return the sum of what the tasks of `fold` have returned, from Spark's *rows* of it."""
    total = FoldResult()
    lowest = {OBJECT: total.objects, NOTED: total.noted}
    for row in rows:
        payload = json.loads(row["payload"])
        if row["kind"] == SUMMARY:
            total.summary.merge(Summary.from_json(payload["summary"]))
            for kind, counted in lowest.items():
                counted.add((), total=payload[kind])
        else:
            lowest[row["kind"]].add([payload], total=0)
    return total


def _numbers(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


def _batch(**columns: list[str]) -> pa.RecordBatch:
    import pyarrow as pa

    schema = pa.schema([(name, pa.string()) for name in columns])
    return pa.RecordBatch.from_pydict(columns, schema=schema)


def _task_number() -> int:
    """Return a number that is the same for each attempt of this task, and differs for other tasks."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else int(context.partitionId())
