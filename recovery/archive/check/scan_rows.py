"""The rows between map and fold: one for each partition's head, one for each segment, sorted by prefix and offset.

prefix, base_offset, segment_id    the sort key; the head of a partition comes first, at -1. A file next to the
                                   segments that is read like one has its name in place of an id
digest                             of the segment's objects; of a head, the run that it belongs to. Indexes that were
                                   rebuilt are at -1 as well, with that run and REBUILT
log_bytes                          of the segment's log
value                              the results; with an output they are in a file there (`kept_scans`) until the fold

If only logs are checked, neighbouring sound ones share one row: that of the first one, with the digests of all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from recovery.archive.check.logs.log_fold import LogFold
from recovery.archive.check.logs.log_scan import LogScan
from recovery.archive.check.logs.sound_logs import SoundLogs
from recovery.archive.check.packing import PackedTask
from recovery.archive.check.partition_fold import PartitionFold
from recovery.archive.check.rebuild import Rebuilding, RebuiltIndexes, Write
from recovery.archive.check.scanned import DIGEST_BYTES, PartitionHead, PartitionWork, ScannedSegment
from recovery.archive.check.segment_map import SegmentMap
from recovery.archive.check.stored_folder import scan_folder
from recovery.archive.check.survey_spool import head_of
from recovery.archive.check.verdict import PartitionVerdict
from recovery.archive.layouts.layout import Layout, PartitionLayouts
from recovery.archive.stores.store import Store
from recovery.check.finding import Finding
from recovery.check.folder_files import FolderFiles
from recovery.check.task import Piece

HEAD_OFFSET = -1
REBUILT = b" rebuilt"


class ScanRow(NamedTuple):
    """One row.

    Attributes:
        value: of a head, with the small files of a plain copy's folder; of a segment, or of sound logs; what was
            rebuilt. None if it is in the output.
    """

    prefix: str
    base_offset: int
    id_or_file: str
    digest: bytes
    log_bytes: int
    value: Any = None


def head_row(head: PartitionHead, folder: FolderFiles | None, *, run: bytes) -> ScanRow:
    """Return the row of a partition's head."""
    return ScanRow(head.where.prefix, HEAD_OFFSET, "", run, 0, (head, folder))


def segment_row(prefix: str, scanned: ScannedSegment, digest: bytes) -> ScanRow:
    """Return the row of a segment."""
    segment = scanned.segment
    id_or_file = segment.segment_id or segment.other_file
    return ScanRow(prefix, segment.base_offset, id_or_file, digest, scanned.log_bytes, scanned)


def logs_row(prefix: str, logs: SoundLogs) -> ScanRow:
    """Return the row of neighbouring sound logs."""
    segments = logs.segments
    log_bytes = int(logs.log_bytes.sum())
    return ScanRow(prefix, segments.base_offsets[0], segments.segment_ids[0], logs.digests, log_bytes, logs)


def rebuilt_row(prefix: str, indexes: RebuiltIndexes, *, run: bytes) -> ScanRow:
    """Return the row that tells the fold what was decided for a segment, and which of its indexes are rebuilt."""
    return ScanRow(prefix, HEAD_OFFSET, "", run + REBUILT, 0, indexes)


def scan_task(
    task: PackedTask,
    store: Store,
    layouts: PartitionLayouts,
    *,
    run: bytes,
    is_logs_only: bool = False,
) -> Iterator[ScanRow]:
    """Do one task of the map: yield the rows of its heads and segments."""
    for spooled in task.heads:
        head = head_of(spooled)
        is_tiered = layouts.at(head.where.prefix).is_tiered
        folder = None if is_tiered or is_logs_only else scan_folder(store, head)
        yield head_row(head, folder, run=run)
    logs: dict[str, LogScan] = {}
    segment_maps: dict[str, SegmentMap] = {}
    for works in task.works:
        layout = layouts.at(works.prefix)
        if is_logs_only:
            yield from _log_rows(works, logs.setdefault(layout.name, LogScan(store, layout)))
            continue
        segments = segment_maps.setdefault(layout.name, SegmentMap(store, layout))
        for work in works:
            yield segment_row(works.prefix, _needed(segments.scan(work)), work.digest)


def _log_rows(works: PartitionWork, logs: LogScan) -> Iterator[ScanRow]:
    """Yield the rows of neighbouring segments of which only the logs are read."""
    for scanned in logs.scan(works):
        if isinstance(scanned, SoundLogs):
            yield logs_row(works.prefix, scanned)
        else:
            yield segment_row(works.prefix, *scanned)


def _needed(scanned: ScannedSegment) -> ScannedSegment:
    """Return *scanned* without what the fold does not need."""
    if scanned.result is not None and not any(map(_is_needed, scanned.result.pieces)):
        scanned.result.pieces = []
    return scanned


def _is_needed(piece: Piece) -> bool:
    """Return whether the fold needs a piece: most segments have few producers, many none."""
    return piece.is_broken or piece.snapshot_offset is not None or len(piece.scan.producers) > 0


def fold_rows(
    rows: Iterable[ScanRow],
    layouts: PartitionLayouts,
    *,
    run: bytes,
    write: Write | None = None,
    is_logs_only: bool = False,
) -> Iterator[PartitionVerdict]:
    """Fold sorted *rows*: yield the verdict of each partition.

    Rows of other runs' heads, and of segments that no longer exist, are skipped; a segment without a row is reported.

    Args:
        rows: sorted by prefix and offset; their values are changed.
        layouts: of the archive's partitions.
        run: the run whose heads count.
        write: writes what is rebuilt; None: nothing is.
        is_logs_only: whether only logs were checked.
    """
    current: _Folding | None = None
    for row in rows:
        if current is None or row.prefix != current.prefix:
            if current is not None:
                yield from current.finish()
            current = _Folding(row.prefix, layouts.at(row.prefix), run, write, is_logs_only=is_logs_only)
        current.take(row)
    if current is not None:
        yield from current.finish()


class _Folding:
    """One partition while its rows come in."""

    def __init__(
        self, prefix: str, layout: Layout, run: bytes, write: Write | None, *, is_logs_only: bool
    ) -> None:
        self.prefix = prefix
        self._layout = layout
        self._run = run
        self._rebuilding = None if write is None else Rebuilding(write=write)
        self._is_logs_only = is_logs_only
        self._fold: PartitionFold | LogFold | None = None
        self._wanted: set[bytes] = set()

    def take(self, row: ScanRow) -> None:
        if row.base_offset == HEAD_OFFSET:
            if row.digest == self._run and self._fold is None:
                self._begin(*row.value)
            elif row.digest == self._run + REBUILT and self._rebuilding is not None:
                self._rebuilding.indexes[row.value.key] = row.value
            return
        if self._fold is None:
            return
        digests = _cut(row.digest)
        current = [number for number, digest in enumerate(digests) if digest in self._wanted]
        if not current:
            return
        self._wanted.difference_update(digests)
        scanned: ScannedSegment | SoundLogs = row.value
        if isinstance(scanned, ScannedSegment):
            self._fold.take(scanned)
        elif isinstance(self._fold, LogFold):
            self._fold.take_sound(scanned.take(current))

    def _begin(self, head: PartitionHead, folder: FolderFiles | None) -> None:
        if self._is_logs_only:
            self._fold = LogFold(head, self._layout)
        else:
            self._fold = PartitionFold(head, self._layout, folder=folder, rebuilding=self._rebuilding)
        self._wanted = set(_cut(head.digests))

    def finish(self) -> Iterator[PartitionVerdict]:
        if self._fold is None:
            return  # a partition that no longer exists
        if self._wanted:
            detail = (
                f"{len(self._wanted)} segments were not checked: their tasks were lost, or another run with the same "
                "output has removed what was kept of them, as they were replaced or deleted meanwhile: run it again"
            )
            self._fold.add(
                Finding(file="", position=None, rule="unreadable", detail=detail, severity="unchecked")
            )
        yield self._fold.finish()


def _cut(digests: bytes) -> list[bytes]:
    """Return the digests that are back to back in *digests*."""
    return [digests[at : at + DIGEST_BYTES] for at in range(0, len(digests), DIGEST_BYTES)]
