"""What a kept scan may say: what no scan results in is refused, before the fold, a kernel or a writer goes by it.

A row stands for the segment that its digest is of, with all its objects: the fold takes it only for a segment that the
run's own survey has found, object for object. Its counts fit the size of the log, its offsets fit each other, and a log
that was not read, or not to its end, comes with a finding that says why.

That the results are the right ones cannot be seen here: whoever may write into the output decides what the next run
takes for known.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import numpy as np

from native.crc32c import crc32c_of_bytes
from native.producer_sequences import BREAK_DTYPE, MOST_BREAKS, SequenceBreak, Sequences
from native.raw_scan import RawScan
from recovery.archive.check.logs.sound_logs import SoundLogs
from recovery.archive.check.scanned import (
    DIGEST_BYTES,
    SEGMENT_DIGEST_BYTES,
    ScannedSegment,
    segment_digests,
)
from recovery.archive.stores.archived import ArchivedSegment, PartKind
from recovery.archive.stores.segment_table import FURTHER_SNAPSHOT, LETTERS, SegmentTable
from recovery.check.segment import LARGE_BATCH_BYTES
from recovery.check.task import SegmentResult, Tail
from segfmt.aiven_chunks import MAX_BYTES
from segfmt.byte_layout import LOG_OVERHEAD_BYTES, MIN_MESSAGE_BYTES
from segfmt.checkpoint import read_leader_epoch_checkpoint
from segfmt.filenames import log_name, offset_index_name, read_offset, time_index_name
from segfmt.java_text import LONG_MAX
from segfmt.producer_snapshot import read_producer_snapshot

_LEAST_BATCH_BYTES = LOG_OVERHEAD_BYTES + MIN_MESSAGE_BYTES
_LETTERS = frozenset({*LETTERS.values(), FURTHER_SNAPSHOT})


def refuse_scanned(prefix: str, digest: bytes, scanned: ScannedSegment) -> None:
    """Refuse what no scan of a segment below *prefix* results in.

    Raises:
        ValueError: this is such; with what is wrong.
        FormatError: a small file that the scan has found to be sound is malformed.
    """
    _refuse_unless(len(digest) == DIGEST_BYTES, f"a digest of {len(digest)} bytes")
    _refuse_segment(prefix, scanned.segment)
    _refuse_others(digest, SegmentTable.of(prefix, [scanned.segment]))
    most_bytes = MAX_BYTES if PartKind.MANIFEST in scanned.segment.parts else scanned.segment.log_bytes
    _refuse_unless(0 <= scanned.log_bytes <= most_bytes, f"a log of {scanned.log_bytes} bytes")
    if scanned.result is None:
        _refuse_unless(bool(scanned.findings), "a log that was not read, and no finding that says why")
    else:
        _refuse_task(scanned.segment, scanned.result)
        _refuse_result(scanned.result, scanned.log_bytes)
    _refuse_unless(scanned.end_offset == _end_offset(scanned.result), f"the end {scanned.end_offset}")
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
    _refuse_table(prefix, logs.segments)
    _refuse_others(logs.digests, logs.segments)
    _refuse_sound(logs)


def _refuse_sound(logs: SoundLogs) -> None:
    """Refuse counts and offsets that sound logs cannot have."""
    segments, log_bytes = logs.segments, logs.log_bytes
    manifest = LETTERS[PartKind.MANIFEST]
    most_bytes = [
        MAX_BYTES if manifest in shape else listed
        for shape, listed in zip(segments.shapes(), segments.part_bytes(PartKind.LOG), strict=True)
    ]
    is_possible = (log_bytes >= 0) & (log_bytes <= most_bytes)
    is_possible &= (logs.batch_counts >= 0) & (logs.batch_counts <= log_bytes // _LEAST_BATCH_BYTES)
    _refuse_unless(bool(is_possible.all()), "counts that do not fit the size of a log")
    is_empty = logs.batch_counts == 0
    is_possible = ~is_empty | (log_bytes == 0) | (log_bytes > LARGE_BATCH_BYTES)
    _refuse_unless(bool(is_possible.all()), "a sound log without a batch")
    first, last = logs.first_offsets, logs.last_offsets
    nexts = np.array([LONG_MAX if one is None else one for one in segments.next_base_offsets], np.int64)
    is_ordered = (last >= segments.base_offsets) & (last >= first) & (last <= nexts)
    is_ordered &= (first == -1) | (first >= segments.base_offsets)
    is_without = (first == -1) & (last == -1)
    _refuse_unless(bool(np.where(is_empty, is_without, is_ordered).all()), "offsets that do not fit a log")


def _refuse_others(digests: bytes, segments: SegmentTable) -> None:
    """Refuse segments that *digests* are not of."""
    for row, own in enumerate(segment_digests(segments)):
        start = row * DIGEST_BYTES
        is_own = digests[start : start + SEGMENT_DIGEST_BYTES] == own
        _refuse_unless(is_own, "another segment than the one that its digest is of")


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
        _refuse_unless("\0" not in stored.key + stored.version, "a NUL in a name")
    _refuse_unless("\0" not in segment.segment_id + segment.other_file, "a NUL in a name")
    if not segment.segment_id and PartKind.SNAPSHOT in segment.parts:
        read_offset(segment.parts[PartKind.SNAPSHOT].name)


def _refuse_task(segment: ArchivedSegment, result: SegmentResult) -> None:
    task = result.task
    if segment.other_file:
        _refuse_unless(task.log == segment.other_file, "a result of another file")
    else:
        is_same = (task.base_offset, task.log) == (segment.base_offset, log_name(segment.base_offset))
        _refuse_unless(is_same, "a result of another segment")


def _refuse_result(result: SegmentResult, log_bytes: int) -> None:
    """Refuse a result that no log of *log_bytes* has."""
    task = result.task
    indexes = {offset_index_name(task.base_offset), time_index_name(task.base_offset)}
    _refuse_unless(result.agreements.keys() == indexes, "agreements of other files than the two indexes")
    _refuse_unless(result.checked_bytes.keys() <= {task.log, *indexes}, "bytes of other files")
    _refuse_counts(result.checked_bytes.values(), max(log_bytes, MAX_BYTES))
    _refuse_unless(result.checked_bytes.get(task.log) == log_bytes, "a log of which other bytes were read")
    most_batches = log_bytes // _LEAST_BATCH_BYTES
    _refuse_counts([result.batch_count], most_batches)
    is_empty = result.batch_count == 0
    _refuse_unless(is_empty == (result.last_offset is None), "batches without a last offset")
    _refuse_unless(not is_empty or result.first_offset is None, "a first offset without a batch")
    _refuse_epoch_runs(result, log_bytes)
    if task.tail is not Tail.LIVE and not result.findings:
        _refuse_unless(result.is_whole, "a log not read to its end, and no finding that says why")
        has_batches = not is_empty or log_bytes == 0 or log_bytes > LARGE_BATCH_BYTES
        _refuse_unless(has_batches, "a log without a batch, and no finding that says why")
        _refuse_disorder(result)
    _refuse_sequences(result.sequences, most_batches)
    for piece in result.pieces:
        _refuse_scan(piece.scan, log_bytes)


def _refuse_epoch_runs(result: SegmentResult, log_bytes: int) -> None:
    """Refuse leader epochs that are not those of all batches but the legacy ones."""
    runs = result.epoch_runs
    _refuse_counts([run.position for run in runs], log_bytes)
    _refuse_counts([result.legacy_count], result.batch_count)
    has_epochs = result.legacy_count < result.batch_count
    _refuse_unless(bool(runs) == has_epochs, "leader epochs of other batches than there are")
    _refuse_unless(
        all(one.epoch != other.epoch and one.position < other.position for one, other in pairwise(runs)),
        "leader epochs that do not follow each other",
    )


def _refuse_disorder(result: SegmentResult) -> None:
    """Refuse offsets that are not in order, without a finding about them."""
    task, last = result.task, result.last_offset
    if last is None:
        return
    ends = [task.base_offset, *([] if result.first_offset is None else [result.first_offset]), last]
    is_ordered = ends == sorted(ends) and (task.next_base_offset is None or last < task.next_base_offset)
    _refuse_unless(is_ordered, f"offsets from {result.first_offset} to {last}")
    for run in result.epoch_runs:
        is_ordered = task.base_offset <= run.first_offset <= run.last_offset <= last
        _refuse_unless(is_ordered, f"an epoch of offsets from {run.first_offset} to {run.last_offset}")
    if not result.legacy_count and result.first_offset is not None:
        _refuse_unless(
            result.epoch_runs[0].first_offset == result.first_offset, "no leader epoch of its first batch"
        )


def _end_offset(result: SegmentResult | None) -> int | None:
    """Return the offset after the last batch, None if that is not known."""
    if result is None or not result.is_whole:
        return None
    return result.task.base_offset if result.last_offset is None else min(result.last_offset + 1, LONG_MAX)


def _refuse_sequences(sequences: Sequences, most_batches: int) -> None:
    breaks = np.frombuffer(sequences.breaks, BREAK_DTYPE)
    kept_count = min(sequences.break_count, MOST_BREAKS)
    _refuse_counts([sequences.break_count, sequences.batch_count], most_batches)
    _refuse_unless(len(breaks) == kept_count, "breaks that are not counted")
    _refuse_unless(set(breaks["kind"].tolist()) <= set(SequenceBreak), "an unknown kind of break")


def _refuse_scan(scan: RawScan, log_bytes: int) -> None:
    rows = scan.txn_events["producer"]
    is_inside = bool(((rows >= 0) & (rows < len(scan.producers))).all())
    _refuse_unless(is_inside, "an event of a producer that is not there")
    _refuse_counts([scan.valid_bytes], log_bytes)
    _refuse_counts([scan.batch_count, scan.settled_txn_count], log_bytes // _LEAST_BATCH_BYTES)


def _refuse_counts(counts: Iterable[int], most: int = LONG_MAX) -> None:
    for count in counts:
        _refuse_unless(0 <= count <= most, f"a count of {count}")


def _refuse_unless(is_right: bool, what: str) -> None:
    if not is_right:
        raise ValueError(f"it holds {what}")
