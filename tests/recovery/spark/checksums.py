"""What the tasks of the tests of Spark itself do: checksums of files by the compiled kernel."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA = "path string, bytes long, crc32c long, pid long, prefix string"


def checksums(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A row for each path: how long the file is and its CRC-32C, and which process has read it."""
    import numpy as np
    import pyarrow as pa

    from native.crc32c import crc32c

    for batch in batches:
        rows = []
        for path in batch.column("path").to_pylist():
            data = np.fromfile(path, dtype=np.uint8)
            rows.append({"path": path, "bytes": data.size, "crc32c": crc32c(data)} | where())
        if rows:
            yield pa.RecordBatch.from_pylist(rows)


def slow_checksums(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same, a second for each batch of paths."""
    for found in checksums(batches):
        time.sleep(1)
        yield found


def where() -> dict[str, object]:
    """The process, and its Python's environment."""
    return {"pid": os.getpid(), "prefix": sys.prefix}
