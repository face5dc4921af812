"""Parquet files of results, joined without Arrow's threads."""

from __future__ import annotations

import subprocess
import sys
from io import BytesIO

import pyarrow as pa
import pyarrow.parquet as pq

from recovery.archive.parquet import joined, to_parquet
from tests import ROOT

_SCHEMA = pa.schema([("number", pa.int64()), ("text", pa.string())])
_COUNT_THREADS = """
import os
import pyarrow as pa
from recovery.archive.parquet import joined, to_parquet

schema = pa.schema([(f"column{number}", pa.int64()) for number in range(20)])
files = [to_parquet([{f"column{number}": row for number in range(20)} for row in range(100)], schema)] * 3
before = len(os.listdir("/proc/self/task"))
pieces = list(joined(files))
print(len(os.listdir("/proc/self/task")) - before)
"""


def rows(first: int) -> list[dict[str, object]]:
    return [{"number": number, "text": f"{number}"} for number in range(first, first + 10)]


def test_joined_files_have_the_rows_of_all_in_their_order() -> None:
    whole = b"".join(joined([to_parquet(rows(0), _SCHEMA), to_parquet(rows(10), _SCHEMA)]))
    assert pq.ParquetFile(BytesIO(whole)).read().to_pylist() == [*rows(0), *rows(10)]


def test_no_thread_of_arrow_is_left_that_may_hold_what_was_read() -> None:
    """At the end of the interpreter it would end the process with SIGABRT, after a whole report."""
    done = subprocess.run(
        [sys.executable, "-c", _COUNT_THREADS], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "0\n"
