"""The columns of a query, under the names it gives them, and their making from the archive's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from recovery.archive.records.record_schema import Include, column_called
from recovery.errors import UsageError
from segfmt import byte_layout

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructField, StructType


class RowSchema:
    """A schema in Spark's terms, checked against the columns that there are.

    Args:
        schema: the columns in the query's order, under names in any case.
        include: what a row is.
        is_kafka_style: as in Spark's Kafka source, records without headers have null `headers` and not an empty list,
            and records without a timestamp the one of -1 ms.

    Raises:
        UsageError: an unknown column, one of another type, one that may not be null, or the same one twice.
    """

    def __init__(self, schema: StructType, include: Include, *, is_kafka_style: bool) -> None:
        self._schema = schema
        self._is_kafka_style = is_kafka_style
        self.names = tuple(column_called(name, include).name for name in schema.names)
        for field in schema.fields:
            wanted_type = column_called(field.name, include).kind
            given_type = field.dataType.simpleString()
            if given_type.lower() != wanted_type:
                raise UsageError(
                    f"{field.name}: the given schema has type {given_type}, the column is {wanted_type}"
                )
            if not _may_be_null(field):
                raise UsageError(
                    f"{field.name}: the given schema says NOT NULL: leave that out, because any column may be null "
                    "here, and Spark would not look for nulls in it"
                )
        if len(set(self.names)) < len(self.names):
            raise UsageError(f"the given schema has a column twice: {', '.join(schema.names)}")

    def arrow(self) -> pa.Schema:
        """Return the Arrow schema that Spark expects, under the columns' own names."""
        import pyarrow as pa
        from pyspark.sql.pandas.types import to_arrow_schema

        try:
            schema = to_arrow_schema(self._schema, timezone="UTC")
        except TypeError:  # before 4.2 there is no such argument, and UTC is the default
            schema = to_arrow_schema(self._schema)
        return pa.schema([field.with_name(name) for field, name in zip(schema, self.names, strict=True)])

    def finished(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return *batch* under the query's names: Spark compares names, types, and what may be null."""
        import pyarrow as pa

        if not self.names:
            return batch
        columns = batch.columns
        if self._is_kafka_style:
            columns = [
                _AS_IN_SPARK.get(name, _unchanged)(column)
                for column, name in zip(columns, self.names, strict=True)
            ]
        fields = [field.with_name(name) for field, name in zip(batch.schema, self._schema.names, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _may_be_null(field: StructField) -> bool:
    """Return whether a column, and the fields of the structs in it, may be null."""
    from pyspark.sql.types import ArrayType, StructType

    kind = field.dataType.elementType if isinstance(field.dataType, ArrayType) else field.dataType
    fields = kind.fields if isinstance(kind, StructType) else []
    return field.nullable and all(map(_may_be_null, fields))


def _without_empty(lists: pa.ListArray) -> pa.ListArray:
    """Return *lists* with null in place of those without entries."""
    import pyarrow as pa
    import pyarrow.compute as pc

    is_empty = pc.equal(pc.fill_null(pc.list_value_length(lists), 0), 0)
    return pa.ListArray.from_arrays(lists.offsets, lists.values, type=lists.type, mask=is_empty)


def _with_no_time(timestamps: pa.Array) -> pa.Array:
    """Return *timestamps* with -1 ms, Kafka's value for no timestamp, in place of null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    no_time = pa.scalar(byte_layout.NO_TIMESTAMP_MS, pa.timestamp("ms", tz=timestamps.type.tz))
    return pc.fill_null(timestamps, no_time.cast(timestamps.type))


def _unchanged(column: pa.Array) -> pa.Array:
    return column


_AS_IN_SPARK: Final[dict[str, Callable[[pa.Array], pa.Array]]] = {
    "headers": _without_empty,
    "timestamp": _with_no_time,
}
