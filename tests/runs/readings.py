"""Records of archives read in this process, by several tasks, for tests."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pyarrow as pa

from native.crc32c import crc32c_of_bytes
from recovery.archive.layouts.aiven_cipher import NO_KEYS, AivenKeys
from recovery.archive.layouts.layouts import layout_of
from recovery.archive.records.archive_reader import read_task
from recovery.archive.records.broker_view import BrokerView
from recovery.archive.records.damage import LeftOut
from recovery.archive.records.read_options import ReadOptions
from recovery.archive.records.read_plan import plan_reads
from recovery.archive.records.read_request import ReadRequest, Selection
from recovery.archive.records.record_schema import Include, column_called, columns_of
from recovery.archive.stores.stores import open_store

SMALL_TASK = 20_000


def read(
    url: Path | str,
    *names: str,
    options: ReadOptions | None = None,
    selection: Selection | None = None,
    metadata: tuple[Path, ...] = (),
    left_out: list[LeftOut] | None = None,
    notes: list[str] | None = None,
    keys: AivenKeys = NO_KEYS,
) -> list[dict[str, Any]]:
    """The rows, by several tasks."""
    store = open_store(str(url))
    layout = layout_of(store, keys=keys)
    options = options or ReadOptions()
    wanted = ReadRequest(
        url=str(url),
        layout=layout.name,
        keys=keys,
        options=options,
        selection=selection or Selection(task_bytes=SMALL_TASK),
        needs_aborted=options.is_committed or "aborted" in names,
    )
    schema = arrow_schema(options.include, *names)
    found = [] if left_out is None else left_out
    with BrokerView(open_store(str(log_dir)) for log_dir in metadata) as broker:
        on_note = ([] if notes is None else notes).append
        tasks = list(plan_reads(store, layout, wanted, broker if metadata else None, on_note=on_note))
    batches = [batch for task in tasks for batch in read_task(wanted, task, schema, on_left_out=found.append)]
    table = pa.Table.from_batches(batches, schema)
    for place, field in enumerate(schema):
        if pa.types.is_timestamp(field.type):
            table = table.set_column(place, field.name, table.column(place).cast(pa.int64()))
    return table.to_pylist()


def of_partition(rows: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """Those of one partition, `topic-0`."""
    return [row for row in rows if f"{row['topic']}-{row['partition']}" == name]


def checksum(rows: list[dict[str, Any]]) -> int:
    """As tests/oracle/src/ReadCounts.java has it."""
    parts = []
    for row in rows:
        parts.append(struct.pack(">qq", row["offset"], row["timestamp"]))
        contents = [row["key"], row["value"]]
        for header in row["headers"]:
            contents += [header["key"].encode(), header["value"]]
        parts += [struct.pack(">i", -1 if one is None else len(one)) + (one or b"") for one in contents]
    return crc32c_of_bytes(b"".join(parts))


def arrow_schema(include: Include, *names: str, timestamp_unit: str = "ms") -> pa.Schema:
    """The schema of the columns called *names*, of all of them without names."""
    kinds = {
        "string": pa.string(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "boolean": pa.bool_(),
        "binary": pa.binary(),
        "timestamp": pa.timestamp(timestamp_unit, tz="UTC"),
        "array<struct<key:string,value:binary>>": pa.list_(
            pa.struct([("key", pa.string()), ("value", pa.binary())])
        ),
    }
    known = columns_of(include)
    return pa.schema([(name, kinds[column_called(name, include).kind]) for name in names or known])
