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
    Column("topic_id", "string"),
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
    Column("topic_id", "string"),
)
_KAFKA_COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
"""Those of Spark's Kafka source, in its order."""
_OTHER_NAMES: Final = {"timestamptype": "timestamp_type"}
"""Names of that source, in lower case, for columns that have another name here."""


def columns_of(include: Include) -> dict[str, Column]:
    """Return all columns by name, in order."""
    columns = BATCH_COLUMNS if include is Include.BATCHES else RECORD_COLUMNS
    return {column.name: column for column in columns}


def sql_schema(include: Include) -> str:
    """Return all columns as the text of a SQL schema."""
    return ", ".join(f"{column.name} {column.kind}" for column in columns_of(include).values())


def kafka_schema(*, has_headers: bool) -> str:
    """Return the columns of Spark's Kafka source as the text of a SQL schema."""
    names = (*_KAFKA_COLUMNS, "headers") if has_headers else _KAFKA_COLUMNS
    return ", ".join(f"{name} {column_called(name, Include.RECORDS).kind}" for name in names)


def column_called(name: str, include: Include) -> Column:
    """Return the column called *name*, in upper or lower case; `timestampType` is another name of `timestamp_type`.

    Raises:
        UsageError: there is none.
    """
    lowered = name.lower()
    column = columns_of(include).get(_OTHER_NAMES.get(lowered, lowered))
    if column is None:
        raise UsageError(
            f"{name}: no column of include={include.value}; the columns are {', '.join(columns_of(include))}"
        )
    return column
