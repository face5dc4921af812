"""Verdicts as rows: one for each object, one for each partition; as Arrow tables for Parquet, and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from recovery.archive.check.logs.sound_logs import SoundLogs
from recovery.archive.check.trust import DERIVED
from recovery.archive.check.verdict import ObjectVerdict, PartitionVerdict, by_object, validity
from recovery.archive.stores.archived import PartitionPrefix, PartKind
from recovery.check.finding import OF_COPIES, SEVERITIES, Finding, badness, finding_line
from recovery.printable import printable

if TYPE_CHECKING:
    import pyarrow as pa

_REBUILT_KINDS: Final = frozenset(kind.value for kind in (*DERIVED, PartKind.INDEXES))
_OF_BYTES: Final = frozenset(
    {"checksum", "batch-length", "torn-batch", "trailing-bytes", "chunk", "object-size", "record"}
)
_REBUILD: Final = "run `archive recover`: it is rebuilt from the log"
_RESTORE: Final = "restore the segment from another copy: a replica's log dir, a backup"
_UPLOAD_AGAIN: Final = "restore {} from another copy, or have the plugin upload the segment again"
_KEEP_ASIDE: Final = (
    "restore the object from another copy; until then keep it aside, so that no reader trusts it"
)
_LEAVE_OUT_MARKER: Final = (
    "restore the log dir without its clean-shutdown marker: the broker then reads producers from the log"
)
_CUT_BY_BROKER: Final = (
    "none in the archive: a broker that starts on this copy cuts it, as does `recover` there. If the topic "
    "preallocates its logs, say so with --topic-config, and zeros are a note"
)
_NO_REBUILD: Final = frozenset({"unreadable", "changing", "missing-key", "too-large", *OF_COPIES})


def remedy(judged: ObjectVerdict, finding: Finding) -> str:
    """Return what to do about a finding on an object of an archive."""
    kind, is_of_segment = judged.verdict.kind, judged.base_offset >= 0
    is_derived = kind in _REBUILT_KINDS and is_of_segment and finding.rule not in _NO_REBUILD
    if finding.severity == "damage" and is_derived:
        if judged.rebuilt is not None:
            if judged.holder:
                content = f"{judged.rebuilt.key} of the output is what it should hold"
                return f"{_UPLOAD_AGAIN.format(judged.holder)}: {content}"
            is_in_place = judged.rebuilt.key == judged.verdict.path
            return (
                "none: it is rebuilt"
                if is_in_place
                else f"put {judged.rebuilt.key} of the output in its place"
            )
        if judged.is_held_rebuilt:
            return (
                f"{_UPLOAD_AGAIN.format(judged.verdict.path)}: what it should hold is rebuilt, part by part"
            )
        return f"{_RESTORE} (not rebuilt: {judged.obstacle})" if judged.obstacle else _REBUILD
    if finding.rule == "missing-snapshot":
        return _LEAVE_OUT_MARKER
    if finding.rule == "unclean-tail":
        return _CUT_BY_BROKER
    if finding.severity == "damage" and kind == "log" and finding.rule in _OF_BYTES:
        return _KEEP_ASIDE
    return finding.remedy


def object_row(partition: PartitionVerdict, judged: ObjectVerdict) -> dict[str, Any]:
    """Return the row of one object."""
    where, verdict = partition.head.where, judged.verdict
    first = verdict.first
    return {
        "topic": where.topic,
        "partition": where.partition,
        "topic_id": where.topic_id,
        "base_offset": None if judged.base_offset < 0 else judged.base_offset,
        "segment_id": judged.segment_id,
        "key": verdict.path,
        "kind": verdict.kind,
        "size_bytes": judged.size_bytes,
        "version": judged.version,
        "valid": verdict.is_valid,
        "rule": None if first is None else first.rule,
        "first_bad_position": None if first is None else first.position,
        "detail": None if first is None else first.detail,
        "remedy": None if first is None else remedy(judged, first),
        "bytes_checked": verdict.checked_bytes,
        "rebuilt": None if judged.rebuilt is None else judged.rebuilt.key,
        "not_rebuilt": judged.obstacle or None,
        "findings": [
            {
                "rule": finding.rule,
                "severity": finding.severity,
                "position": finding.position,
                "detail": finding.detail,
                "remedy": remedy(judged, finding),
            }
            for finding in verdict.findings
        ],
    }


def partition_row(partition: PartitionVerdict) -> dict[str, Any]:
    """Return the row of one partition."""
    where = partition.head.where
    valid = [validity(parts) for parts in by_object(partition.objects)]
    return {
        "topic": where.topic,
        "partition": where.partition,
        "topic_id": where.topic_id,
        "prefix": where.prefix,
        "segments": partition.segment_count,
        "batches": partition.batch_count,
        "log_bytes": partition.log_bytes,
        "start_offset": partition.start_offset,
        "end_offset": partition.end_offset,
        "chains": partition.chain_count,
        "objects": len(valid) + sum(map(len, partition.sound)),
        "damaged": valid.count(False),
        "unchecked": valid.count(None),
        "rebuilt": sum(judged.rebuilt is not None for judged in partition.objects),
    }


def object_schema() -> pa.Schema:
    """Return the Arrow schema of the rows of objects."""
    import pyarrow as pa

    finding = pa.struct(
        [
            ("rule", pa.string()),
            ("severity", pa.string()),
            ("position", pa.int64()),
            ("detail", pa.string()),
            ("remedy", pa.string()),
        ]
    )
    return pa.schema(
        [
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("topic_id", pa.string()),
            ("base_offset", pa.int64()),
            ("segment_id", pa.string()),
            ("key", pa.string()),
            ("kind", pa.string()),
            ("size_bytes", pa.int64()),
            ("version", pa.string()),
            ("valid", pa.bool_()),
            ("rule", pa.string()),
            ("first_bad_position", pa.int64()),
            ("detail", pa.string()),
            ("remedy", pa.string()),
            ("bytes_checked", pa.int64()),
            ("rebuilt", pa.string()),
            ("not_rebuilt", pa.string()),
            ("findings", pa.list_(finding)),
        ]
    )


def partition_schema() -> pa.Schema:
    """Return the Arrow schema of the rows of partitions."""
    import pyarrow as pa

    texts, ints = ("topic", "topic_id", "prefix"), ("partition",)
    names = (
        "topic",
        "partition",
        "topic_id",
        "prefix",
        "segments",
        "batches",
        "log_bytes",
        "start_offset",
        "end_offset",
        "chains",
        "objects",
        "damaged",
        "unchecked",
        "rebuilt",
    )
    return pa.schema(
        [
            (name, pa.string() if name in texts else pa.int32() if name in ints else pa.int64())
            for name in names
        ]
    )


def run_columns(run: str, began_ms: int) -> dict[str, pa.Scalar]:
    """Return the columns that come before those of both schemas: the name of the run, and when it began."""
    import pyarrow as pa

    return {
        "run_id": pa.scalar(run, pa.string()),
        "run_time": pa.scalar(began_ms, pa.timestamp("ms", "UTC")),
    }


def sound_table(logs_by_partition: Sequence[tuple[PartitionPrefix, SoundLogs]]) -> pa.Table:
    """Return the rows of sound logs of some partitions, as `object_row` would make them."""
    import pyarrow as pa

    logs = [sound.segments.logs() for _, sound in logs_by_partition]
    counts = np.array([len(log_table) for log_table in logs], np.int64)
    total = int(counts.sum())

    def of_partitions(values: Sequence[str | int], kind: pa.DataType) -> pa.Array:
        return pa.array(values, kind).take(pa.array(np.repeat(np.arange(len(counts)), counts)))

    def joined(columns: Iterable[Iterable[str | int]], kind: pa.DataType) -> pa.Array:
        return pa.array(list(chain.from_iterable(columns)), kind)

    schema = object_schema()
    no_findings = pa.array([], schema.field("findings").type.value_type)
    values_by_name = {
        "topic": of_partitions([where.topic for where, _ in logs_by_partition], pa.string()),
        "partition": of_partitions([where.partition for where, _ in logs_by_partition], pa.int32()),
        "topic_id": of_partitions([where.topic_id for where, _ in logs_by_partition], pa.string()),
        "base_offset": joined((sound.segments.base_offsets for _, sound in logs_by_partition), pa.int64()),
        "segment_id": joined((sound.segments.segment_ids for _, sound in logs_by_partition), pa.string()),
        "key": joined(
            ([log_table.prefix + name for name in log_table.names] for log_table in logs), pa.string()
        ),
        "kind": pa.repeat(PartKind.LOG.value, total),
        "size_bytes": joined((log_table.sizes_bytes for log_table in logs), pa.int64()),
        "version": joined((log_table.versions for log_table in logs), pa.string()),
        "valid": pa.repeat(True, total),
        "bytes_checked": joined((sound.log_bytes.tolist() for _, sound in logs_by_partition), pa.int64()),
        "findings": pa.ListArray.from_arrays(pa.array(np.zeros(total + 1, np.int32)), no_findings),
    }
    columns = [values_by_name.get(field.name, pa.nulls(total, field.type)) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def badness_of(row: dict[str, Any]) -> tuple[int, bool]:
    """Return the key of an object's row to sort by, the worst first."""
    is_derived = row["kind"] in _REBUILT_KINDS
    keys = (badness(finding["severity"], finding["rule"]) for finding in row["findings"])
    severity, is_rebuilt = min(keys, default=(len(SEVERITIES), True))
    return severity, is_rebuilt or is_derived


def lines_of(rows: Sequence[dict[str, Any]]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield what is found in objects' rows, then what was rebuilt: what is said, and the line that says it of one."""
    for row in rows:
        for finding in row["findings"]:
            said = tuple(finding[name] for name in ("severity", "rule", "detail", "remedy"))
            yield said, finding_line(row["key"], finding)
    yield from (
        (("rebuilt",), f"rebuilt {printable(row['rebuilt'])}") for row in rows if row["rebuilt"] is not None
    )
