"""Rows as a Parquet file. pyarrow is imported on use, not with the module."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


def to_parquet(rows: Iterable[dict[str, Any]], schema: pa.Schema, *tables: pa.Table) -> bytes:
    """Return *rows*, followed by those of *tables*, as a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    table = pa.concat_tables([pa.Table.from_pylist(list(rows), schema=schema), *tables])
    pq.write_table(table, sink, compression="zstd")
    return bytes(sink.getvalue())
