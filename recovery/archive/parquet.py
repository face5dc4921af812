"""Rows as a Parquet file. pyarrow is imported on use, not with the module."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from io import BytesIO
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

_COMPRESSION = "zstd"


def to_parquet(
    rows: Iterable[dict[str, Any]],
    schema: pa.Schema,
    *tables: pa.Table,
    constants: Mapping[str, pa.Scalar] | None = None,
) -> bytes:
    """Return *rows*, followed by those of *tables*, as a Parquet file.

    Args:
        rows: without the constants.
        schema: of rows and tables.
        tables: more rows.
        constants: columns that come first and have one value.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.concat_tables([pa.Table.from_pylist(list(rows), schema=schema), *tables])
    for place, (name, value) in enumerate((constants or {}).items()):
        field = pa.field(name, value.type, nullable=False)
        table = table.add_column(place, field, pa.repeat(value, len(table)))
    sink = BytesIO()
    pq.write_table(table, sink, compression=_COMPRESSION)
    return sink.getvalue()


def joined(files: Iterable[bytes]) -> bytes:
    """Return the rows of several Parquet files, at least one, of the same columns as one file."""
    import pyarrow.parquet as pq

    sink, writer = BytesIO(), None
    for data in files:
        file = pq.ParquetFile(BytesIO(data))
        if writer is None:
            writer = pq.ParquetWriter(sink, file.schema_arrow, compression=_COMPRESSION)
        for number in range(file.num_row_groups):
            writer.write_table(file.read_row_group(number))
    assert writer is not None
    writer.close()
    return sink.getvalue()
