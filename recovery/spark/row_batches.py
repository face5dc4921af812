"""The rows between map and fold as Arrow batches, in which Spark takes them from one task to another.

Their values are pickled, as Spark itself pickles what it sends to tasks. No file is read this way: what is kept in the
output goes through `recovery.archive.check.kept_scans`.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from recovery.archive.check.scan_rows import ScanRow

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_AT_A_TIME = 256
"""In one Arrow batch: the results of segments with many producers are large."""


def rows_to_batches(rows: Iterable[ScanRow]) -> Iterator[pa.RecordBatch]:
    """Yield *rows* as Arrow batches of the columns in `recovery.spark.tasks.SCAN_DDL`."""
    import pyarrow as pa

    schema = pa.schema(
        [
            ("prefix", pa.string()),
            ("base_offset", pa.int64()),
            ("segment_id", pa.string()),
            ("digest", pa.binary()),
            ("log_bytes", pa.int64()),
            ("value", pa.binary()),
        ]
    )
    rows = iter(rows)
    while part := list(islice(rows, ROWS_AT_A_TIME)):
        pickled = [row._replace(value=pickle.dumps(row.value, protocol=5)) for row in part]
        columns = zip(*pickled, strict=True)
        yield pa.RecordBatch.from_arrays(
            [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)],
            schema=schema,
        )


def batches_to_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[ScanRow]:
    """Yield the rows in *batches*."""
    for batch in batches:
        columns = [column.to_pylist() for column in batch.columns]
        for row in map(ScanRow._make, zip(*columns, strict=True)):
            yield row._replace(value=pickle.loads(row.value))
