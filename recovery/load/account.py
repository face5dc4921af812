"""The account of what left the live log: the files at the start, compared with the tree that is left.

Every byte of a live or pending segment that no live segment has afterwards is looked at, however it went: cut,
deleted, replaced by a `.swap`, overwritten by a split, dropped as a leftover. A batch of it is lost unless

* its offsets are below the log start, so that they were deleted before;
* a live segment holds it: the same batch or, if it was replaced, one of the same offsets;
* the file that replaced its file holds it at the same position, even beyond the next base, where nobody looks for it;
* a compaction has superseded it (`recovery/load/compaction.py`).

Bytes that cannot be followed because of damage are lost as well. If nothing left the log, no file is read.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from recovery.load.compaction import AbortedTxns, find_superseded, most_records
from recovery.load.holes import find_disorder, look_for_holes
from recovery.load.log_reader import LogReader
from recovery.load.model import Cut, CutCause, Hole, Original, PartitionTask, RemovalKind
from recovery.load.segment_recovery import Departure, SegmentRecovery
from recovery.load.segments import SegmentMap
from recovery.load.tree import PartitionTree
from recovery.quantity import count_text, listed_text
from segfmt.filenames import (
    CLEANED_SUFFIX,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    TXN_INDEX_SUFFIX,
    FileKind,
    file_kind,
    read_offset,
)
from segfmt.java_text import LONG_MAX

_SEGMENT_SUFFIXES = (LOG_SUFFIX, LOG_SUFFIX + SWAP_SUFFIX, LOG_SUFFIX + CLEANED_SUFFIX)
_CAUSES = {
    None: CutCause("unreferenced", "no longer in any segment"),
    RemovalKind.COMPACTED: CutCause("replaced", "replaced by a segment that does not hold these offsets"),
    RemovalKind.LEFTOVER: CutCause(
        "leftover", "in an unfinished .swap or .cleaned alone, which a broker drops"
    ),
}
_PREALLOCATED = CutCause("preallocated", "zeros of a preallocated file")
_MOST_OPEN_TXNS = 20
_POSITION, _SIZE, _BASE, _LAST, _CRC = range(5)
_OFFSETS = (_BASE, _LAST)
_POSITION_AND_BATCH = (_POSITION, _BASE, _LAST, _CRC)
_MIX = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93], np.uint64)

Rows = npt.NDArray[np.int64]
"""Batches by their headers: position, bytes, base offset, last offset, CRC; shape (n, 5)."""


OpenTxn = tuple[int, int, int]
"""First offset, producer id, epoch."""


class Stock(NamedTuple):
    """What `take_stock` finds."""

    cuts: tuple[Cut, ...]
    holes: tuple[Hole, ...]
    warnings: tuple[str, ...]


def take_stock(
    task: PartitionTask,
    tree: PartitionTree,
    segments: SegmentMap,
    reader: LogReader,
    recovery: SegmentRecovery,
    open_txns: Sequence[OpenTxn],
    orphaned_indexes: Iterable[str],
) -> Stock:
    """Return what has left the live log, and which offsets are missing from what was read, once the load is done.

    Args:
        recovery: knows what was cut and deleted, as it happened.
        open_txns: the transactions that are open at the log's end, ascending.
        orphaned_indexes: index files without a log.
    """
    account = _Account(task, tree, segments, reader, recovery)
    cuts = account.cuts()
    warnings = account.warnings
    if any(not cut.is_preallocated for cut in cuts):
        warnings += _advice_on_open_txns(task, open_txns)
    holes, doubts = look_for_holes(
        task,
        segments.values(),
        reader.spans_of,
        lambda segment: not tree.size_bytes(segment.log),
        cuts,
        orphaned_indexes,
    )
    return Stock(cuts, holes, (*warnings, *doubts, *find_disorder(segments.values())))


@dataclass(slots=True, kw_only=True)
class _Gone:
    """Bytes that left, batch by batch. `is_lost` is bool, shape (n,)."""

    departure: Departure
    rows: Rows
    end_position: int
    is_lost: npt.NDArray[np.bool_]


class _Account:
    """What one load has taken out of the live log. `warnings` report what is neither a cut nor a deletion."""

    def __init__(
        self,
        task: PartitionTask,
        tree: PartitionTree,
        segments: SegmentMap,
        reader: LogReader,
        recovery: SegmentRecovery,
    ) -> None:
        self._task = task
        self._nodes = tree.nodes
        self._removed = tree.removed
        self._segments = segments
        self._reader = reader
        self._departures = recovery.departures
        self._start_offset = -LONG_MAX if recovery.dropped_end_offset is not None else task.log_start_offset
        self._live_ranges: list[tuple[int, int, Original]] | None = None
        self._live_rows: dict[Original, Rows] = {}
        self.warnings: list[str] = []

    def cuts(self) -> tuple[Cut, ...]:
        """Return what is lost: the cuts and deletions as they happened, then what left the log in other ways."""
        noted = [self._cut_of_noted(departure) for departure in self._departures]
        if self._task.is_delete_folder:  # all of it is on its way out
            return tuple(cut for cut in noted if cut is not None)
        gone = [self._look_into(departure) for departure in self._unnoted()]
        self._drop_reported(gone)
        self._drop_superseded(gone)
        other_cuts = [cut for lost in gone if (cut := _cut_of(lost, self._reader)) is not None]
        self._warn_of(other_cuts)
        return tuple(cut for cut in (*noted, *other_cuts) if cut is not None)

    # -- cuts and deletions ---------------------------------------------------------------------------------

    def _cut_of_noted(self, departure: Departure) -> Cut | None:
        """Return the cut of *departure*; its batches are looked at only if some of them may not be lost."""
        part = departure.part
        batch_count, last_offset, end_position = self._reader.count_batches(part, departure.base_offset)
        first = departure.base_offset if departure.may_repeat else departure.first_offset
        begin = next(self._reader.spans(part), None) if batch_count else None
        if last_offset < first or (begin is not None and begin.base_offset < first):
            first = -LONG_MAX  # it holds offsets that it should not
        if batch_count and (first < self._start_offset or self._live_parts(first, last_offset)):
            rows, rows_end = self._read(part)
            is_lost = self._is_lost(rows, departure.first_offset, has_same_bytes=True)
            if not is_lost.all():
                gone = _Gone(departure=departure, rows=rows, end_position=rows_end, is_lost=is_lost)
                cut = _cut_of(gone, self._reader)
                if cut is None:
                    location = f"{part.file} from byte {part.origin_position:,}"
                    why_harmless = "other segments have these batches, or they are below the log start"
                    self.warnings.append(
                        f"{location}: {part.size_bytes:,} bytes cut: {departure.cause.reason}; {why_harmless}"
                    )
                    return None
                is_scattered = cut.size_bytes < part.size_bytes
                return replace(cut, position=part.origin_position, is_scattered=is_scattered)
        position = part.origin_position
        rest = part.after(end_position)
        has_zeros = rest.size_bytes > 0 and self._reader.is_zero(rest)
        has_preallocated = has_zeros and position + end_position > 0 and self._task.settings.preallocate
        is_preallocated = has_preallocated and not end_position
        cause = _PREALLOCATED if is_preallocated else departure.cause
        return Cut(
            file=part.file,
            base_offset=departure.base_offset,
            position=position,
            size_bytes=end_position if has_preallocated and end_position else part.size_bytes,
            batch_count=batch_count,
            rule=cause.rule,
            reason=cause.reason,
            is_preallocated=is_preallocated,
            first_offset=departure.first_offset,
            last_offset=last_offset,
            is_followed=has_zeros or not rest.size_bytes,
        )

    # -- what left in other ways ----------------------------------------------------------------------------

    def _unnoted(self) -> Iterator[Departure]:
        """Yield what is in no live segment although it was neither cut nor deleted."""
        kept: dict[str, list[tuple[int, int]]] = {}
        parts = [
            node
            for name, node in self._nodes.items()
            if isinstance(node, Original) and file_kind(name) is FileKind.LOG
        ]
        for part in (*parts, *(departure.part for departure in self._departures)):
            begin = part.origin_position
            kept.setdefault(part.file, []).append((begin, begin + part.size_bytes))
        for file, stat in self._task.files.items():
            if not file.endswith(_SEGMENT_SUFFIXES):
                continue
            for begin, end in _uncovered(stat.size_bytes, kept.get(file, ())):
                part = Original(file=file, size_bytes=end - begin, origin_position=begin)
                kind = self._removed.get(file)
                yield Departure(part, read_offset(file), _cause_of(kind), read_offset(file))

    def _look_into(self, departure: Departure) -> _Gone:
        part = departure.part
        rows, end_position = self._read(part)
        is_leftover = self._removed.get(part.file) is RemovalKind.LEFTOVER
        rest = part.after(end_position)
        if is_leftover or (rest.size_bytes and self._reader.is_zero(rest)):
            end_position = part.size_bytes  # an unfinished write, or none
        is_lost = self._is_lost(rows, departure.first_offset, has_same_bytes=False)
        if is_lost.any():
            is_lost &= ~self._stays(rows, part.file)
        return _Gone(departure=departure, rows=rows, end_position=end_position, is_lost=is_lost)

    def _stays(self, rows: Rows, file: str) -> npt.NDArray[np.bool_]:
        """Return which of *rows* are still at their old position in the live log of that name, bool, shape (n,)."""
        node = self._nodes.get(file.partition(".")[0] + LOG_SUFFIX)
        if not isinstance(node, Original):
            return np.zeros(len(rows), np.bool_)
        return np.isin(_keys(rows, _POSITION_AND_BATCH), _keys(self._rows_of_live(node), _POSITION_AND_BATCH))

    def _drop_reported(self, gone: list[_Gone]) -> None:
        """Take out batches that another file took over and that were then cut or deleted with that file."""
        for departure in self._departures:
            overlapping = [
                lost
                for lost in gone
                if lost.is_lost.any() and lost.rows[:, _LAST].max() >= departure.base_offset
            ]
            if overlapping:
                reported = _keys(self._read(departure.part)[0], _OFFSETS)
                for lost in overlapping:
                    lost.is_lost &= ~np.isin(_keys(lost.rows, _OFFSETS), reported)

    def _drop_superseded(self, gone: list[_Gone]) -> None:
        """Take batches that a compaction was right to remove out of what is lost."""
        is_compacted = self._task.settings.is_compacted
        replaced = [lost for lost in gone if lost.is_lost.any()]
        if is_compacted is False or not replaced:
            return
        first_offset = min(int(lost.rows[lost.is_lost, _BASE].min()) for lost in replaced)
        batches = [list(_batches_of(lost)) for lost in replaced]
        superseded = find_superseded(
            [[batch for batch, _ in file_batches] for file_batches in batches],
            record_bound=sum(
                most_records(batch, offset_count, self._reader)
                for batch, offset_count in chain.from_iterable(batches)
            ),
            live=[part for _, part in self._live_parts(first_offset, LONG_MAX)],
            first_offset=first_offset,
            reader=self._reader,
            aborted=self._aborted_txns(),
            is_certain=is_compacted is True,
        )
        for lost, is_superseded in zip(replaced, superseded, strict=True):
            lost.is_lost[np.flatnonzero(lost.is_lost)[is_superseded]] = False

    def _aborted_txns(self) -> AbortedTxns:
        """Return what the transaction indexes say: those of the start and the present ones, also of a `.swap`."""
        contents: dict[Original, bytes] = {}
        now = [node for name, node in self._nodes.items() if name.endswith(TXN_INDEX_SUFFIX)]
        before = [
            Original(file=file, size_bytes=stat.size_bytes)
            for file, stat in self._task.files.items()
            if file.endswith(TXN_INDEX_SUFFIX)
        ]
        for part in (*before, *now):
            if isinstance(part, Original) and part not in contents:
                contents[part] = self._reader.read_part(part)
        made = [bytes(node.data) for node in now if not isinstance(node, Original)]
        return AbortedTxns([*contents.values(), *made])

    def _warn_of(self, cuts: list[Cut]) -> None:
        for reason in dict.fromkeys(cut.reason for cut in cuts):
            lost = [cut for cut in cuts if cut.reason == reason]
            files = lost[0].file if len(lost) == 1 else f"{lost[0].file} and {len(lost) - 1} more"
            count, size_bytes = sum(cut.batch_count for cut in lost), sum(cut.size_bytes for cut in lost)
            self.warnings.append(f"{files}: {count:,} batches, {size_bytes:,} bytes leave the log: {reason}")

    # -- what is live ---------------------------------------------------------------------------------------

    def _is_lost(self, rows: Rows, first_offset: int, *, has_same_bytes: bool) -> npt.NDArray[np.bool_]:
        """Return which of *rows* no live segment holds any longer, bool, shape (n,).

        Args:
            first_offset: the lowest that the first of them can have. Offsets that do not ascend are damage, and do not
                count as below the log start.
            has_same_bytes: whether only the same batch counts, by its checksum, and not another with its offsets.
        """
        base, last = rows[:, _BASE], rows[:, _LAST]
        ascends = (base >= np.append(first_offset, last[:-1] + 1)[: len(base)]) & (base <= last)
        is_lost = ~(ascends & (last < self._start_offset))
        if is_lost.any():
            columns = (*_OFFSETS, _CRC) if has_same_bytes else _OFFSETS
            keys = _keys(rows, columns)
            lost = rows[is_lost]
            for end_offset, part in self._live_parts(int(lost[:, _BASE].min()), int(lost[:, _LAST].max())):
                is_lost &= ~np.isin(keys, _keys(self._served_rows(part, end_offset), columns))
        return is_lost

    def _live_parts(self, first_offset: int, last_offset: int) -> list[tuple[int, Original]]:
        """Return the live segments that may hold one of the offsets, ascending, each with its last offset at most.

        That is below the next base: a broker does not look in this segment for what lies beyond.
        """
        if self._live_ranges is None:
            self._live_ranges = list(self._find_live())
        return [
            (end, part)
            for base, end, part in self._live_ranges
            if base <= last_offset and end >= first_offset
        ]

    def _find_live(self) -> Iterator[tuple[int, int, Original]]:
        segments = self._segments.values()
        nexts = [*(segment.base_offset for segment in segments[1:]), LONG_MAX]
        for segment, next_base in zip(segments, nexts, strict=False):
            node, scan, base, end = self._nodes[segment.log], segment.scan, segment.base_offset, next_base - 1
            # After a gap the last batch need not have the highest offset.
            if scan is not None and not scan.gap_count:
                end = min(end, scan.last_offset)
            # No recovery looks into this one, and every fetch that has found nothing before ends up in it.
            if base == LONG_MAX:
                base, end = -LONG_MAX, LONG_MAX
            if isinstance(node, Original) and node.size_bytes:
                yield base, end, node

    def _served_rows(self, part: Original, end_offset: int) -> Rows:
        """Return the batches of a live segment up to *end_offset*: nobody looks for them beyond it."""
        rows = self._rows_of_live(part)
        return rows[rows[:, _BASE] <= end_offset]

    def _rows_of_live(self, part: Original) -> Rows:
        """Return the batches of a live segment; the latest result is kept, since one segment may replace several."""
        if part not in self._live_rows:
            self._live_rows = {part: self._read(part)[0]}
        return self._live_rows[part]

    def _read(self, part: Original) -> tuple[Rows, int]:
        """Return the batches of *part*, and where they end."""
        flat = array("q")
        for span in self._reader.spans(part):
            flat.extend((span.position, span.size_bytes, span.base_offset, span.last_offset, span.crc))
        rows = np.frombuffer(flat, np.int64).reshape(-1, 5) if flat else np.empty((0, 5), np.int64)
        return rows, int(rows[-1, _POSITION] + rows[-1, _SIZE]) if len(rows) else 0


def _cut_of(gone: _Gone, reader: LogReader) -> Cut | None:
    """Return what is lost of *gone* as a cut, None if nothing is."""
    part, lost = gone.departure.part, gone.rows[gone.is_lost]
    rest_bytes = part.size_bytes - gone.end_position
    if not len(lost) and not rest_bytes:
        return None
    position = int(lost[0, _POSITION]) if len(lost) else gone.end_position
    size_bytes = int(lost[:, _SIZE].sum()) + rest_bytes
    first = next(reader.opened_spans(part.after(position)), None) if len(lost) else None
    first_offset = int(lost[:, _BASE].min()) if len(lost) else -1
    return Cut(
        file=part.file,
        base_offset=gone.departure.base_offset,
        position=part.origin_position + position,
        size_bytes=size_bytes,
        batch_count=len(lost),
        rule=gone.departure.cause.rule,
        reason=gone.departure.cause.reason,
        first_offset=first_offset if first is None else min(first_offset, first.base_offset),
        last_offset=int(lost[-1, _LAST]) if len(lost) else -1,
        is_scattered=size_bytes < part.size_bytes - position,
        is_followed=not rest_bytes or reader.is_zero(part.after(gone.end_position)),
    )


def _cause_of(kind: RemovalKind | None) -> CutCause:
    return _CAUSES.get(kind) or CutCause("unreferenced", "" if kind is None else kind.value)


def _batches_of(gone: _Gone) -> Iterator[tuple[Original, int]]:
    """Yield the lost batches of *gone*, each with the number of offsets that it spans."""
    part = gone.departure.part
    for position, size_bytes, base, last, _ in gone.rows[gone.is_lost].tolist():
        yield (
            Original(file=part.file, size_bytes=size_bytes, origin_position=part.origin_position + position),
            last - base + 1,
        )


def _keys(rows: Rows, columns: tuple[int, ...]) -> npt.NDArray[np.uint64]:
    """Return one number for each row, equal for rows whose *columns* are equal, uint64, shape (n,)."""
    keys = np.zeros(len(rows), np.uint64)
    for column, factor in zip(columns, _MIX, strict=False):
        keys = (keys ^ (keys >> np.uint64(29)) ^ rows[:, column].astype(np.uint64)) * factor
    return keys


def _uncovered(size_bytes: int, ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the stretches of a file of *size_bytes* that are in none of *ranges*."""
    position = 0
    for begin, end in sorted(ranges):
        if begin > position:
            yield position, begin
        position = max(position, end)
    if position < size_bytes:
        yield position, size_bytes


def _advice_on_open_txns(task: PartitionTask, open_txns: Sequence[OpenTxn]) -> Iterator[str]:
    """Yield what to do about the transactions that are open at the cut: their ends may be in what was cut."""
    if not open_txns:
        return
    named = [
        f"{first_offset} (producer {producer_id}, epoch {epoch})"
        for first_offset, producer_id, epoch in open_txns
    ]
    partition = task.topic_partition
    yield (
        f"{count_text(len(open_txns), 'transaction')} open, from offset {listed_text(named, _MOST_OPEN_TXNS)} on. "
        "If the end of one was in what was cut, nobody ends it, and consumers of committed records stop there. If "
        "kafka-transactions.sh find-hanging names it: kafka-transactions.sh --bootstrap-server HOST:PORT abort "
        f"--topic {partition.topic} --partition {partition.partition} "
        f"--start-offset {open_txns[0][0] if len(open_txns) == 1 else 'OFFSET'}"
    )
