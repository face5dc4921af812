"""What a kept scan may say: what no scan results in is refused, before the fold, a kernel or a writer goes by it.

That the results are the right ones cannot be seen here: whoever may write into the output decides what the next run
takes for known.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from native.crc32c import crc32c_of_bytes
from native.producer_sequences import BREAK_DTYPE, MOST_BREAKS, SequenceBreak, Sequences
from native.raw_scan import RawScan
from recovery.archive.check.logs.sound_logs import SoundLogs
from recovery.archive.check.scanned import DIGEST_BYTES, ScannedSegment
from recovery.archive.stores.archived import ArchivedSegment, PartKind
from recovery.archive.stores.segment_table import FURTHER_SNAPSHOT, LETTERS, SegmentTable
from recovery.check.task import SegmentResult
from segfmt.checkpoint import read_leader_epoch_checkpoint
from segfmt.filenames import log_name, read_offset
from segfmt.producer_snapshot import read_producer_snapshot

_LETTERS = frozenset({*LETTERS.values(), FURTHER_SNAPSHOT})


def refuse_scanned(prefix: str, digest: bytes, scanned: ScannedSegment) -> None:
    """Refuse what no scan of a segment below *prefix* results in.

    Raises:
        ValueError: this is such; with what is wrong.
        FormatError: a small file that the scan has found to be sound is malformed.
    """
    _refuse_unless(len(digest) == DIGEST_BYTES, f"a digest of {len(digest)} bytes")
    _refuse_segment(prefix, scanned.segment)
    _refuse_counts([scanned.log_bytes])
    if scanned.result is not None:
        _refuse_result(scanned.segment, scanned.result)
    for kind, data in scanned.small.items():
        if kind is PartKind.SNAPSHOT:
            read_producer_snapshot(data, crc32c=crc32c_of_bytes)
        elif kind is PartKind.LEADER_EPOCHS:
            read_leader_epoch_checkpoint(data)


def refuse_logs(prefix: str, logs: SoundLogs) -> None:
    """Refuse what no check of logs below *prefix* results in.

    Raises:
        ValueError: this is such; with what is wrong.
    """
    count = len(logs.segments)
    columns = (logs.log_bytes, logs.first_offsets, logs.last_offsets, logs.batch_counts)
    lengths = {*map(len, columns), len(logs.has_compacted), len(logs.digests) // DIGEST_BYTES}
    is_whole = lengths == {count} and len(logs.digests) % DIGEST_BYTES == 0
    _refuse_unless(is_whole and count > 0, "columns of different lengths")
    for column in (logs.log_bytes, logs.batch_counts):
        _refuse_counts([int(column.min())])
    _refuse_table(prefix, logs.segments)


def _refuse_table(prefix: str, segments: SegmentTable) -> None:
    """Refuse segments whose columns do not fit together."""
    objects, count = segments.objects, len(segments)
    lengths = {*map(len, (segments.segment_ids, segments.next_base_offsets, segments.ends))}
    _refuse_unless(lengths == {count}, "columns of different lengths")
    _refuse_unless(len(segments.other_files) in (0, count), "columns of different lengths")
    lengths = {*map(len, (objects.names, objects.sizes_bytes, objects.versions, segments.kinds))}
    _refuse_unless(lengths == {segments.ends[-1]}, "columns of different lengths")
    _refuse_unless(
        list(segments.ends) == sorted(segments.ends) and segments.ends[0] >= 0, "ends out of order"
    )
    _refuse_unless(set(segments.kinds) <= _LETTERS, "an unknown kind of object")
    _refuse_unless(objects.prefix == prefix, "an object of another partition")
    for segment in segments:
        _refuse_segment(prefix, segment)
        _refuse_unless(PartKind.LOG in segment.parts, "a sound log that is not there")


def _refuse_segment(prefix: str, segment: ArchivedSegment) -> None:
    for stored in (*segment.parts.values(), *segment.snapshots.values()):
        _refuse_counts([stored.size_bytes])
        name = stored.key.removeprefix(prefix)
        is_below = stored.key.startswith(prefix) and name not in ("", ".", "..")
        # A part is written where its key says.
        _refuse_unless(is_below and "/" not in name, f"an object of another partition, {stored.key}")
    if not segment.segment_id and PartKind.SNAPSHOT in segment.parts:
        read_offset(segment.parts[PartKind.SNAPSHOT].name)


def _refuse_result(segment: ArchivedSegment, result: SegmentResult) -> None:
    task = result.task
    if segment.other_file:
        _refuse_unless(task.log == segment.other_file, "a result of another file")
    else:
        is_same = (task.base_offset, task.log) == (segment.base_offset, log_name(segment.base_offset))
        _refuse_unless(is_same, "a result of another segment")
    _refuse_counts([result.batch_count, *result.checked_bytes.values()])
    _refuse_sequences(result.sequences)
    for piece in result.pieces:
        _refuse_scan(piece.scan)


def _refuse_sequences(sequences: Sequences) -> None:
    breaks = np.frombuffer(sequences.breaks, BREAK_DTYPE)
    kept_count = min(sequences.break_count, MOST_BREAKS)
    _refuse_counts([sequences.break_count, sequences.batch_count])
    _refuse_unless(len(breaks) == kept_count, "breaks that are not counted")
    _refuse_unless(set(breaks["kind"].tolist()) <= set(SequenceBreak), "an unknown kind of break")


def _refuse_scan(scan: RawScan) -> None:
    rows = scan.txn_events["producer"]
    is_inside = bool(((rows >= 0) & (rows < len(scan.producers))).all())
    _refuse_unless(is_inside, "an event of a producer that is not there")
    _refuse_counts([scan.valid_bytes, scan.batch_count, scan.settled_txn_count])


def _refuse_counts(counts: Iterable[int]) -> None:
    for count in counts:
        _refuse_unless(count >= 0, f"a count of {count}")


def _refuse_unless(is_right: bool, what: str) -> None:
    if not is_right:
        raise ValueError(f"it holds {what}")
