"""What tasks leave in the output for the fold and for the next run: Parquet files of plain columns.

Each column is in docs/reference/kept-scans.md.

    scans/<checksum>.segments.parquet   a row for each segment, as it was read
    scans/<checksum>.logs.parquet       only logs were checked: a row for up to 512 neighbouring sound ones
    heads/<run>/<checksum>.parquet      what is known of each partition beforehand, for the fold of that run alone
    heads/<run>/<checksum>.*.parquet    rows that no other run goes by: of segments with an object of unknown version,
                                        or with one that could not be read, or not with the keys that were given

The name of a file is the checksum of its bytes, so one that was cut or changed is known by it. Others may be able to
write there: what a file says is taken as values, never as objects, and only if it can be the result of a scan. A file
that is refused is named, and its segments are read again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from recovery.archive.check.kept_values import refuse_logs, refuse_scanned
from recovery.archive.check.logs.sound_logs import SoundLogs
from recovery.archive.check.output import holds
from recovery.archive.check.scan_rows import HEAD_OFFSET, ScanRow, head_row, logs_row, segment_row
from recovery.archive.check.scanned import VERSION, PartitionHead, ScannedSegment
from recovery.archive.columns import column_of
from recovery.archive.stores.segment_table import SegmentTable
from recovery.archive.stores.store import Store
from recovery.check.finding import Rule
from recovery.check.folder_files import FolderFiles
from recovery.errors import error_text
from segfmt.errors import FormatError

if TYPE_CHECKING:
    import pyarrow as pa

SCANS, HEADS = "scans/", "heads/"
_SEGMENTS, _LOGS, _HEADS = ".segments.parquet", ".logs.parquet", ".parquet"
_CHECKSUM_BYTES = 16
_FORMAT: Final = {b"kafka-log-recovery.format": b"kept-scans", b"kafka-log-recovery.version": b"%d" % VERSION}
_PASSING: Final = frozenset[Rule]({"unreadable", "changing", "missing-key"})
"""What is found of the moment, or of the keys that were given, and not of the objects."""
_MOST_ROWS = 5_000
_MOST_BYTES = 64 << 20
"""Of results in one file, so that writing and reading it take little memory."""
_MOST_FILE_BYTES = 1 << 31
_MOST_VALUES = 1 << 28


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptSegment:
    """A row of `.segments.parquet`.

    Attributes:
        prefix: of its partition.
        digest: DIGEST_BYTES, which change with its objects and all that its scan depends on.
    """

    prefix: str
    digest: bytes
    scanned: ScannedSegment


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptLogs:
    """A row of `.logs.parquet`."""

    prefix: str
    logs: SoundLogs


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptHead:
    """A row of `heads/`."""

    head: PartitionHead
    folder: FolderFiles | None


_ROW_OF: Final = {_SEGMENTS: KeptSegment, _LOGS: KeptLogs, _HEADS: KeptHead}


class KeptScanError(Exception):
    """A file is not one that a task has written."""


class OlderVersionError(KeptScanError):
    """A file is of an older version, and whole."""


def keep_scans(output: Store, rows: Iterable[ScanRow], *, heads_of: bytes | None) -> Iterator[ScanRow]:
    """Write *rows*, which are those of one task, and yield them without their results.

    Args:
        output: where to.
        rows: of the task.
        heads_of: the run for whose fold is written, too, what it alone needs; None: it has that.
    """
    own = f"{HEADS}{(heads_of or b'').hex()}/"
    heads = _Writer(output, own, _HEADS)
    shared = {suffix: _Writer(output, SCANS, suffix) for suffix in (_SEGMENTS, _LOGS)}
    of_run = {suffix: _Writer(output, own, suffix) for suffix in (_SEGMENTS, _LOGS)}
    for row in rows:
        if row.base_offset == HEAD_OFFSET:
            if heads_of is not None:
                head, folder = row.value
                heads.add(KeptHead(head=head, folder=folder), len(head.digests))
        elif _is_lasting(row):
            _add(row, shared)
        elif heads_of is not None:
            _add(row, of_run)
        yield row._replace(value=None)
    for writer in (*shared.values(), *of_run.values(), heads):
        writer.flush()


def segments_of(row: ScanRow) -> SegmentTable:
    """Return the segments of a row."""
    value = row.value
    return value.segments if isinstance(value, SoundLogs) else SegmentTable.of(row.prefix, [value.segment])


def _is_lasting(row: ScanRow) -> bool:
    """Return whether the next run would find the same of the same objects."""
    if segments_of(row).unversioned():
        return False
    if isinstance(row.value, SoundLogs):
        return True
    scanned: ScannedSegment = row.value
    findings = (*scanned.findings, *(() if scanned.result is None else scanned.result.findings))
    return not any(finding.rule in _PASSING for finding in findings)


def _add(row: ScanRow, writers: Mapping[str, _Writer]) -> None:
    if isinstance(row.value, SoundLogs):
        writers[_LOGS].add(KeptLogs(prefix=row.prefix, logs=row.value), len(row.digest))
    else:
        kept = KeptSegment(prefix=row.prefix, digest=row.digest, scanned=row.value)
        writers[_SEGMENTS].add(kept, _held_bytes(row.value))


class _Writer:
    """Writes rows of one kind into files."""

    def __init__(self, output: Store, folder: str, suffix: str) -> None:
        self._output = output
        self._folder = folder
        self._suffix = suffix
        self._rows: list[Any] = []
        self._held_bytes = 0

    def add(self, row: object, held_bytes: int) -> None:
        self._rows.append(row)
        self._held_bytes += held_bytes
        if len(self._rows) >= _MOST_ROWS or self._held_bytes >= _MOST_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the rows that are pending."""
        if not self._rows:
            return
        data = _encode(self._rows, _ROW_OF[self._suffix])
        key = f"{self._folder}{_checksum(data)}{self._suffix}"
        if not self._output.create(key, data) and not holds(self._output, key, data):
            self._output.replace(key, data)  # somebody has changed it
        self._rows, self._held_bytes = [], 0


def kept_keys(output: Store, run: bytes | None = None) -> tuple[str, ...]:
    """Return the keys of all files of kept scans, and of the heads of a run."""
    heads = () if run is None else keys_below(output, f"{HEADS}{run.hex()}/")
    return (*heads, *filter(is_kept_scan, keys_below(output, SCANS)))


def is_kept_scan(key: str) -> bool:
    """Return whether an object is a file of kept scans, by its name."""
    return key.endswith((_SEGMENTS, _LOGS))


def keys_below(output: Store, prefix: str) -> list[str]:
    """Return the keys of the objects directly below a prefix, none if there is no such prefix."""
    try:
        return [stored.key for stored in output.list_level(prefix).objects]
    except FileNotFoundError:
        return []


def read_scans(output: Store, key: str) -> list[ScanRow]:
    """Return the rows of one file.

    Raises:
        OlderVersionError: it is of an older version.
        KeptScanError: it cannot be read, or is not one that a task has written.
    """
    name = key.rpartition("/")[2]
    checksum, _, kind = name.partition(".")
    try:
        data = output.read(key, most_bytes=_MOST_FILE_BYTES)
    except OSError as error:
        raise KeptScanError(f"it cannot be read: {error_text(error)}") from error
    if checksum != _checksum(data):
        raise KeptScanError("it was cut or changed: its bytes do not have the checksum that is its name")
    try:
        return [_row(kept, key) for kept in _decode(data, _ROW_OF[f".{kind}"])]
    except OlderVersionError:
        raise
    except (ValueError, TypeError, LookupError, OverflowError, OSError, MemoryError, FormatError) as error:
        raise KeptScanError(str(error).partition("\n")[0]) from error


def _row(kept: KeptSegment | KeptLogs | KeptHead, key: str) -> ScanRow:
    """Return the row of a value that was kept.

    Raises:
        ValueError, FormatError: no scan has this result.
    """
    if isinstance(kept, KeptHead):
        return head_row(kept.head, kept.folder, run=bytes.fromhex(key.split("/")[1]))
    if isinstance(kept, KeptLogs):
        refuse_logs(kept.prefix, kept.logs)
        return logs_row(kept.prefix, kept.logs)
    refuse_scanned(kept.prefix, kept.digest, kept.scanned)
    return segment_row(kept.prefix, kept.scanned, kept.digest)


def _checksum(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=_CHECKSUM_BYTES).hexdigest()


def schema_of(kind: type) -> pa.Schema:
    """Return the columns of a file of rows of a *kind*."""
    import pyarrow as pa

    return pa.schema(list(column_of(kind).type), metadata=_FORMAT)


def _encode(rows: Sequence[Any], kind: type) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    batch = pa.RecordBatch.from_struct_array(column_of(kind).encode(rows))
    sink = pa.BufferOutputStream()
    table = pa.Table.from_batches([batch]).replace_schema_metadata(_FORMAT)
    pq.write_table(table, sink, compression="zstd", use_dictionary=False, write_statistics=False)
    return bytes(sink.getvalue())


def _decode(data: bytes, kind: type) -> list[Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = pq.ParquetFile(pa.BufferReader(data))
    metadata, schema = file.metadata, file.schema_arrow
    stored = {key: (schema.metadata or {}).get(key) for key in _FORMAT}
    if stored != _FORMAT:
        kind_of, version = (value or b"" for value in stored.values())
        is_older = kind_of == b"kept-scans" and version.isdigit() and int(version) < VERSION
        raise (OlderVersionError if is_older else ValueError)(f"it is not of version {VERSION}")
    if not schema.equals(schema_of(kind)):
        raise ValueError("its columns are not those of its version")
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    columns = [group.column(number) for group in groups for number in range(group.num_columns)]
    if (
        metadata.num_rows > _MOST_ROWS
        or sum(column.num_values for column in columns) > _MOST_VALUES
        or sum(column.total_uncompressed_size for column in columns) > _MOST_FILE_BYTES
    ):
        raise ValueError("it holds more than a task writes into one file")
    if any("DICTIONARY" in encoding for column in columns for encoding in column.encodings):
        # Its size in memory is known only when it is there.
        raise ValueError("its columns are encoded with dictionaries: a task writes none")
    table = file.read(use_threads=False)
    table.validate(full=True)
    column = column_of(kind)
    return [value for batch in table.to_batches() for value in column.decode(batch.to_struct_array())]


def _held_bytes(scanned: ScannedSegment) -> int:
    """Return about how much memory the results of a segment take besides a fixed part."""
    held_bytes = sum(map(len, scanned.small.values()))
    if scanned.result is not None:
        held_bytes += len(scanned.result.sequences.rows)
        for piece in scanned.result.pieces:
            held_bytes += piece.scan.producers.nbytes + piece.scan.txn_events.nbytes
    return held_bytes
