"""The split of a segment that holds offsets too far from its base offset for the indexes.

Kafka copies the batches into new segments, each named by its first batch, and renames the old one to
`.deleted` if it is loaded already. It does so only if the last batch is among those that do not fit; a single
batch in the middle that does not fit stops the broker.

Kafka: LogLoader.retryOnOffsetOverflow, LocalLog.splitOverflowedSegment.
"""

from __future__ import annotations

from native.raw_scan import RawScan, Stop
from recovery.errors import PartitionRefusedError
from recovery.load.log_reader import LogReader
from recovery.load.model import Original
from recovery.load.segment_recovery import SegmentOverflowedError, index_entries
from recovery.load.segments import Segment, SegmentMap
from recovery.load.tree import PartitionTree
from segfmt.byte_layout import MAGIC_V2
from segfmt.errors import FormatError
from segfmt.filenames import CLEANED_SUFFIX, DELETED_SUFFIX, SWAP_SUFFIX
from segfmt.offset_index import preallocated_bytes as offset_index_bytes
from segfmt.time_index import encode_time_index
from segfmt.time_index import preallocated_bytes as time_index_bytes
from segfmt.transaction_index import encode_transaction_index

MAX_RELATIVE_OFFSET = 2**31 - 1


def split_segment(
    overflow: SegmentOverflowedError,
    tree: PartitionTree,
    segments: SegmentMap,
    reader: LogReader,
    *,
    segment_index_bytes: int,
) -> bool:
    """Replace the overflowed segment by new ones in *tree* and *segments*.

    A file that has the name of a new segment is overwritten. The old segment becomes `.deleted` if it is in
    *segments*; one that is split while it is loaded is not, and stays unless it is overwritten: a broker then
    has its batches twice. If a new one begins before the old one, another that begins where the old one did is removed
    from *segments* together with it (LocalLog.replaceSegments), and is found again at the next start.

    Returns:
        Whether the snapshot at the base offset of the old segment stays: a new one begins there, or the old one
        was not among *segments*.

    Raises:
        PartitionRefusedError: the broker would halt.
    """
    segment = overflow.segment
    _leave_unfinished_indexes(tree, segment, overflow.scan, segment_index_bytes)
    _check_overflow(reader, segment, overflow.scan)
    parts = _parts(reader, segment)
    if len(overflow.aborted) or segment.txn_index in tree:
        tree.put(segment.txn_index, encode_transaction_index(overflow.aborted))
    was_loaded = segment.base_offset in segments.base_offsets
    if was_loaded:
        for name in (segment.log, segment.offset_index, segment.time_index, segment.txn_index):
            if name in tree:
                tree.rename(name, name + DELETED_SUFFIX)
        segments.remove(segment)
    for base_offset, part in parts.items():
        made = Segment(base_offset=base_offset, opened_indexes=set(), is_split=True, appends_txns=True)
        _require_temporary_names(tree, made)
        scan = reader.index_scan(part, base_offset)
        if scan.stop is not Stop.END:
            raise _refusal(segment, f"its batches cannot be indexed again ({scan.stop.name})")
        tree.put_part(made.log, part)
        tree.put(made.offset_index, index_entries(scan).tobytes())
        tree.put(made.time_index, encode_time_index(scan.time_index))
        if not was_loaded or base_offset != segment.base_offset or base_offset == min(parts):
            segments.add(made)
    return segment.base_offset in parts or not was_loaded


def _require_temporary_names(tree: PartitionTree, made: Segment) -> None:
    """Refuse the partition if something other than a file has a temporary name of a new segment.

    Differs: if that is a link or an empty folder, a broker replaces it.

    Kafka: LogSegment.open, LocalLog.replaceSegments.
    """
    for name in (made.log, made.offset_index, made.time_index):
        for suffix in (CLEANED_SUFFIX, SWAP_SUFFIX):
            tree.require_file(name + suffix)


def _leave_unfinished_indexes(
    tree: PartitionTree, segment: Segment, scan: RawScan, segment_index_bytes: int
) -> None:
    """Leave the indexes as the interrupted recovery does: at full size, new entries over the old ones.

    Kafka: AbstractIndex.reset keeps the bytes of a mapped file; only a finished recovery trims it.
    """
    for name, entries, size_bytes in (
        (segment.offset_index, index_entries(scan).tobytes(), offset_index_bytes(segment_index_bytes)),
        (segment.time_index, encode_time_index(scan.time_index), time_index_bytes(segment_index_bytes)),
    ):
        old = tree.read(name)[:size_bytes] if name in tree else b""
        tree.put(name, entries + old[len(entries) :], size_bytes=size_bytes)


def _check_overflow(reader: LogReader, segment: Segment, scan: RawScan) -> None:
    """Refuse the partition if a batch overflows but not the segment's end. Kafka: LogSegment.hasOverflow."""
    next_offset = reader.walk_to_end(segment.log, segment.base_offset, index_entries(scan))
    if next_offset <= segment.base_offset or next_offset - 1 - segment.base_offset <= MAX_RELATIVE_OFFSET:
        raise PartitionRefusedError(
            file=segment.log,
            position=scan.stop_position,
            rule="offset-overflow",
            detail=f"offset {scan.stop_detail[0]} does not fit the segment, but its last offset does, so the broker "
            "does not split it (IllegalArgumentException stops it at every start)",
            remedy="restore the partition from another replica",
        )


def _parts(reader: LogReader, segment: Segment) -> dict[int, Original]:
    """Return the parts of the segment by new base offset, each as long as its offsets fit its index."""
    whole = reader.part(segment.log)
    starts: list[tuple[int, int]] = []  # base offset, position
    end_position = 0
    try:
        for span in reader.batches(segment.log):
            if not 0 <= span.magic <= MAGIC_V2:
                raise _refusal(
                    segment, f"magic {span.magic} at byte {span.position} (CorruptRecordException)"
                )
            if not starts or not _fits(span.last_offset, starts[-1][0]):
                first_offset = reader.base_offset_at(segment.log, span.position)
                if not _fits(span.last_offset, first_offset):
                    raise _refusal(segment, f"a batch at byte {span.position} ends before it begins")
                if any(first_offset == base_offset for base_offset, _ in starts):
                    raise _refusal(segment, f"two new segments would begin at offset {first_offset}")
                starts.append((first_offset, span.position))
            end_position = span.position + span.size_bytes
    except FormatError as error:
        raise _refusal(segment, str(error)) from error
    if end_position != whole.size_bytes:
        raise _refusal(segment, f"its last batch, at byte {end_position}, is torn (NoSuchElementException)")
    ends = [*(position for _, position in starts[1:]), whole.size_bytes]
    return {
        base_offset: Original(
            file=whole.file, size_bytes=end - position, origin_position=whole.origin_position + position
        )
        for (base_offset, position), end in zip(starts, ends, strict=True)
    }


def _fits(offset: int, base_offset: int) -> bool:
    return 0 <= offset - base_offset <= MAX_RELATIVE_OFFSET


def _refusal(segment: Segment, why: str) -> PartitionRefusedError:
    return PartitionRefusedError(
        file=segment.log,
        position=None,
        rule="offset-overflow",
        detail=f"the segment's offsets overflow its index and it cannot be split: {why}; the broker stops",
        remedy="restore the partition from another replica",
    )
