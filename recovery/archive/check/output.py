"""Where the results of a run go: one prefix, whose content does not depend on which task or attempt wrote it.

    scans/<id>.parquet                          results of segments, which the next run need not read again
    scans/<id>.keys                             the digests of these segments, and the size of the former
    verdicts/<run>/objects/part-<n>.parquet     one row for each object
    verdicts/<run>/partitions/part-<n>.parquet  one row for each partition
    verdicts/<run>/summary.json                the report of the run
    recovered/<key>                            what was rebuilt, where the original would be
    quarantine/<run>/<key>                     what was replaced in place

Objects are written whole or not at all. Two attempts of one task write the same bytes by the same names; those of the
first one stay.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

from recovery.archive.check.scan_rows import (
    HEAD_OFFSET,
    ScanRow,
    batches_to_rows,
    rows_to_batches,
    scan_schema,
)
from recovery.archive.check.scanned import DIGEST_BYTES
from recovery.archive.layouts.layout import Layout
from recovery.archive.stores.archived import ArchivedSegment, PartKind, StoredObject
from recovery.archive.stores.store import Store

SCANS, VERDICTS, RECOVERED, QUARANTINE = "scans/", "verdicts/", "recovered/", "quarantine/"
_MOST_SCAN_BYTES = 1 << 31


class RebuiltOutput:
    """Writes rebuilt parts into the output.

    Args:
        output: the store of the run's results.
        layout: of the archive.
    """

    def __init__(self, output: Store, layout: Layout) -> None:
        self._output = output
        self._layout = layout

    def __call__(self, segment: ArchivedSegment, kind: PartKind, data: bytes) -> StoredObject:
        """Write a part of a segment."""
        key = RECOVERED + key_of(segment, kind, self._layout)
        if not self._output.create(key, data) and not holds(self._output, key, data):
            self._output.replace(key, data)  # left by an earlier run, when the segment was another one
        return StoredObject(key=key, size_bytes=len(data))


class InPlace:
    """Writes rebuilt parts into the archive; what they replace goes to quarantine first.

    Args:
        archive: the store of the archive.
        output: the store of the run's results, with the quarantine.
        layout: of the archive.
        run: name of this run.
    """

    def __init__(self, archive: Store, output: Store, layout: Layout, run: str) -> None:
        self._archive = archive
        self._output = output
        self._layout = layout
        self._run = run

    def __call__(self, segment: ArchivedSegment, kind: PartKind, data: bytes) -> StoredObject:
        """Write a part of a segment."""
        key = key_of(segment, kind, self._layout)
        if holds(self._archive, key, data):
            return StoredObject(key=key, size_bytes=len(data))  # an earlier attempt got this far
        if not self._archive.create(key, data):
            size = self._archive.stat(key).size_bytes
            before = self._archive.read(key, most_bytes=size)
            self._output.create(f"{QUARANTINE}{self._run}/{key}", before)
            self._archive.replace(key, data)
        return StoredObject(key=key, size_bytes=len(data))


def key_of(segment: ArchivedSegment, kind: PartKind, layout: Layout) -> str:
    """Return the key of a part, whether it exists or not."""
    stored = segment.parts.get(kind)
    if stored is not None:
        return stored.key
    folder = next(iter(segment.parts.values())).key.rpartition("/")[0]
    name = layout.name_of(segment, kind)
    return f"{folder}/{name}" if folder else name


def holds(store: Store, key: str, data: bytes) -> bool:
    """Return whether an object exists and has these bytes."""
    try:
        return store.read(key, most_bytes=len(data) + 1) == data
    except FileNotFoundError:
        return False


def keep_scans(output: Store, rows: Iterable[ScanRow]) -> Iterator[ScanRow]:
    """Write *rows*, which are those of one task, and yield them without their results."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    kept: list[ScanRow] = []
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, scan_schema(), compression="none") as writer:

        def noted() -> Iterator[ScanRow]:
            for row in rows:
                kept.append(row._replace(pickled=b""))
                yield row

        for batch in rows_to_batches(noted()):
            writer.write_batch(batch)
    digests = b"".join(row.digest for row in kept if row.base_offset != HEAD_OFFSET)
    name, data = _name_of(kept), bytes(sink.getvalue())
    scans = f"{SCANS}{name}.parquet"
    if not output.create(scans, data) and output.stat(scans).size_bytes != len(data):
        output.replace(scans, data)  # an earlier one was cut
    keys = f"{SCANS}{name}.keys"  # last: with it the scans count
    sized = digests + len(data).to_bytes(DIGEST_BYTES, "big")
    if not output.create(keys, sized):
        output.replace(keys, sized)
    yield from kept


def _name_of(rows: Iterable[ScanRow]) -> str:
    """Return a name for the segments of *rows*, the same for each attempt."""
    identity = hashlib.blake2b(digest_size=16)
    for row in rows:
        identity.update(row.digest + row.prefix.encode("utf-8", "surrogateescape"))
    return identity.hexdigest()


def kept_digests(output: Store) -> Iterator[tuple[str, bytes]]:
    """Yield the key of each file of scans and the digests of its segments, back to back.

    A file that is not as long as it was written is left out: its segments are scanned again.
    """
    try:
        objects = output.list_level(SCANS).objects
    except FileNotFoundError:
        return
    sizes = {stored.key: stored.size_bytes for stored in objects}
    for key, size in sorted(sizes.items()):
        if not key.endswith(".keys") or size % DIGEST_BYTES or not size:
            continue
        scans, sized = f"{key.removesuffix('.keys')}.parquet", output.read(key, most_bytes=size)
        if sizes.get(scans) == int.from_bytes(sized[-DIGEST_BYTES:], "big"):
            yield scans, sized[:-DIGEST_BYTES]


def read_scans(output: Store, key: str) -> Iterator[ScanRow]:
    """Yield the rows of one file of scans."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = pq.ParquetFile(pa.BufferReader(output.read(key, most_bytes=_MOST_SCAN_BYTES)))
    yield from batches_to_rows(file.iter_batches(batch_size=256))
