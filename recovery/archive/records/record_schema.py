"""The columns of archived segments, by batch and by record, and their types."""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

from recovery.errors import UsageError


class Include(enum.Enum):
    """What a row is; the value is that of the option."""

    BATCHES = "batches"
    RECORDS = "records"


class Column(NamedTuple):
    """One column.

    Attributes:
        name: as in the schema.
        kind: its SQL type.
        is_of_batch: whether it comes from the header of a batch, which then need not be opened.
    """

    name: str
    kind: str
    is_of_batch: bool = True


BATCH_COLUMNS: Final = (
    Column("topic", "string"),
    Column("partition", "int"),
    Column("base_offset", "bigint"),  # null for a compressed message of magic 0 or 1
    Column("last_offset", "bigint"),
    Column("position", "bigint"),
    Column("size_bytes", "bigint"),
    Column("crc_valid", "boolean"),
    Column("magic", "int"),
    Column("codec", "string"),
    Column("timestamp_type", "int"),
    Column("max_timestamp", "timestamp"),
    Column("leader_epoch", "int"),
    Column("producer_id", "bigint"),
    Column("producer_epoch", "int"),
    Column("base_sequence", "int"),
    Column("record_count", "int"),  # null for a compressed message of magic 0 or 1
    Column("is_transactional", "boolean"),
    Column("is_control", "boolean"),
    Column("aborted", "boolean"),
    Column("fault", "string"),
)
RECORD_COLUMNS: Final = (
    Column("topic", "string"),
    Column("partition", "int"),
    Column("offset", "bigint", is_of_batch=False),
    Column("timestamp", "timestamp", is_of_batch=False),
    Column("timestamp_type", "int"),
    Column("key", "binary", is_of_batch=False),
    Column("value", "binary", is_of_batch=False),
    Column("headers", "array<struct<key:string,value:binary>>", is_of_batch=False),
    Column("leader_epoch", "int"),
    Column("producer_id", "bigint"),
    Column("producer_epoch", "int"),
    Column("sequence", "int", is_of_batch=False),
    Column("is_transactional", "boolean"),
    Column("is_control", "boolean"),
    Column("aborted", "boolean"),
    Column("position", "bigint"),
    Column("crc_valid", "boolean"),
    Column("fault", "string"),
)


def columns_of(include: Include) -> dict[str, Column]:
    """Return all columns by name, in order."""
    columns = BATCH_COLUMNS if include is Include.BATCHES else RECORD_COLUMNS
    return {column.name: column for column in columns}


def sql_schema(include: Include) -> str:
    """Return all columns as the text of a SQL schema."""
    return ", ".join(f"{column.name} {column.kind}" for column in columns_of(include).values())


def column_called(name: str, include: Include) -> Column:
    """Return the column called *name*.

    Raises:
        UsageError: there is none.
    """
    column = columns_of(include).get(name)
    if column is None:
        raise UsageError(
            f"{name}: no column of include={include.value}; the columns are {', '.join(columns_of(include))}"
        )
    return column
