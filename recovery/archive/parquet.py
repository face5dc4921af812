"""Rows as a Parquet file. pyarrow is imported on use, not with the module."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
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


def joined(files: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the rows of several Parquet files, at least one, of the same columns as one file, piece by piece.

    No more than one of *files* and one row group of it are in memory. Arrow's threads take no part: one that still held
    some of *files* when the interpreter ends would end the process with SIGABRT.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    pieces, writer = _Pieces(), None
    for data in files:
        file = pq.ParquetFile(pa.BufferReader(data))
        if writer is None:
            writer = pq.ParquetWriter(pieces, file.schema_arrow, compression=_COMPRESSION)
        for number in range(file.num_row_groups):
            writer.write_table(file.read_row_group(number, use_threads=False))
            yield pieces.take()
    assert writer is not None
    writer.close()
    yield pieces.take()


class _Pieces:
    """A file that is written once, of which only what was not yet taken is in memory."""

    closed = False

    def __init__(self) -> None:
        self._waiting: list[bytes] = []
        self._size_bytes = 0

    def write(self, data: bytes) -> int:
        self._waiting.append(bytes(data))
        self._size_bytes += len(data)
        return len(data)

    def tell(self) -> int:
        return self._size_bytes

    def flush(self) -> None:
        """Do nothing: what was written waits to be taken."""

    def close(self) -> None:
        """Do nothing: what was written waits to be taken."""

    def take(self) -> bytes:
        """Return what was written since the last call."""
        taken = b"".join(self._waiting)
        self._waiting.clear()
        return taken
