"""One segment read from end to end and checked: its batches, their records, its offset and time index.

Everything is read into windows that each thread owns. Indexes are read before the log, so that in a live broker's log
the entries point to what is then read.

A batch whose checksum is wrong is skipped if a sound one is found after it, by its own length or by an index entry; the
checks continue there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from native.batch_headers import HEADER_ROW_DTYPE, HeaderRows, HeaderWalk, WalkEnd, walk_headers
from native.crc32c import crc32c_of_bytes
from native.raw_scan import RawScan, Stop
from native.segment_scan import SegmentScanner
from recovery.check.finding import Finding, Rule
from recovery.check.rules.batches import BatchChecks
from recovery.check.rules.indexes import (
    OffsetIndexChecks,
    TimeIndexChecks,
    size_findings,
    without_preallocated,
)
from recovery.check.rules.records import RecordChecks
from recovery.check.rules.sequences import fold_of
from recovery.check.segment_files import SegmentFiles
from recovery.check.task import Piece, Reading, SegmentResult, SegmentTask, Tail
from recovery.errors import reason_text
from recovery.load.limits import MAX_LOG_BYTES
from recovery.read.batch_probe import BatchSearch, has_right_crc, is_zero_range
from recovery.read.windows import Window, Windows, feed, thread_buffer
from segfmt import byte_layout
from segfmt.filenames import KRAFT_SNAPSHOT_SUFFIX, offset_index_name, time_index_name
from segfmt.metadata_log import is_snapshot_footer
from segfmt.offset_index import view_offset_index
from segfmt.time_index import view_time_index

LARGE_BATCH_BYTES = 64 << 20
"""Of a longer batch only the CRC is checked, piece by piece."""
_SKIPPED_STOPS = frozenset({Stop.INVALID_CONTROL, Stop.INVALID_TXN, Stop.CONTROL_FATAL, Stop.OFFSET_OVERFLOW})
_MOVES_LOG_END: frozenset[Rule] = frozenset({"torn-batch", "trailing-bytes", "batch-length"})
"""What a broker sees at the end of a log that it does not recover: it reads lengths there, and no CRC."""


def check_segment(task: SegmentTask, reading: Reading, files: SegmentFiles) -> SegmentResult:
    """Read and check one segment, whose *files* are in a folder or in an archive.

    Raises:
        OSError: the log or an index cannot be opened. A later error is a finding.
    """
    return _SegmentCheck(task, reading, files).run()


class _SegmentCheck:
    def __init__(self, task: SegmentTask, reading: Reading, files: SegmentFiles) -> None:
        self._task = task
        self._files = files
        self._reading = reading
        self._result = SegmentResult(task=task)
        self._batches = BatchChecks(
            file=task.log,
            base_offset=task.base_offset,
            next_base_offset=task.next_base_offset,
            is_metadata_log=task.is_metadata_log,
            sequences=fold_of(task),
        )
        self._records = RecordChecks(task.log, reading.one_at_a_time) if task.is_deep else None
        self._scanner: SegmentScanner | None = None
        self._snapshot_offsets = list(task.snapshot_offsets)
        self._end = 0
        self._is_kraft_snapshot = task.is_metadata_log and task.log.endswith(KRAFT_SNAPSHOT_SUFFIX)
        self._last_batch: bytes | None = None

    def run(self) -> SegmentResult:
        task, result = self._task, self._result
        self._index = OffsetIndexChecks(
            offset_index_name(task.base_offset), task.base_offset, self._entries(is_time=False)
        )
        self._time_index = TimeIndexChecks(
            time_index_name(task.base_offset), task.base_offset, self._entries(is_time=True)
        )
        self._log = self._files.open(task.log)
        self._end = self._log.end_position
        self._windows = Windows(
            self._log,
            name=task.log,
            most_batch_bytes=LARGE_BATCH_BYTES,
            limit=self._reading.limit,
            buffer=thread_buffer(),
        )
        self._sound = BatchSearch(self._log, most_batch_bytes=LARGE_BATCH_BYTES)
        try:
            self._read_batches()
            self._log.leave(self._end)
        except (OSError, MemoryError) as error:  # what was read until then counts
            self._end_piece(is_broken=True)
            result.is_whole = False
            self._find(
                self._windows.position,
                "unreadable",
                reason_text(error) or "too little memory",
                is_unchecked=True,
            )
        finally:
            self._log.close()
        result.checked_bytes[task.log] = self._end
        if self._end > MAX_LOG_BYTES:
            detail = f"{self._end:,} bytes; more than {MAX_LOG_BYTES:,} stop a broker (KafkaException)"
            self._find(None, "segment-size", detail)
        self._judge_kraft_snapshot()
        result.findings += self._batches.findings
        self._index.finish(self._end, is_whole=result.is_whole)
        self._time_index.finish(is_whole=result.is_whole)
        self._judge_ends()
        result.findings += [*self._index.findings, *self._time_index.findings]
        result.agreements = {index.file: index.agreement for index in (self._index, self._time_index)}
        if self._records is not None:
            result.findings += self._records.findings
        result.findings = [replace(finding, is_flushed=task.is_flushed) for finding in result.findings]
        gaps = self._batches.gaps if self._records is None else [*self._batches.gaps, *self._records.gaps]
        result.gaps = [replace(finding, is_flushed=task.is_flushed) for finding in gaps]
        result.epoch_runs = self._batches.epoch_runs
        if self._batches.sequences is not None:
            result.sequences = self._batches.sequences.result()
        result.has_compacted = self._batches.has_compacted
        result.first_offset, result.last_offset = self._batches.first_offset, self._batches.last_offset
        result.batch_count, result.legacy_count = self._batches.batch_count, self._batches.legacy_count
        result.max_timestamp_ms = self._batches.max_timestamp_ms
        return result

    # -- indexes ---------------------------------------------------------------------------------------------

    def _entries(self, *, is_time: bool) -> npt.NDArray[np.void]:
        """Return the entries of an index file, none if it is missing."""
        task = self._task
        name = time_index_name(task.base_offset) if is_time else offset_index_name(task.base_offset)
        data = b""
        if task.has_indexes:
            data, size = self._read_index(name)
            entry_bytes = (
                byte_layout.TIME_INDEX_DTYPE if is_time else byte_layout.OFFSET_INDEX_DTYPE
            ).itemsize
            self._result.findings += size_findings(name, size, entry_bytes)
        entries = view_time_index(data) if is_time else view_offset_index(data)
        return without_preallocated(entries) if task.may_be_preallocated else entries

    def _read_index(self, name: str) -> tuple[bytes, int]:
        """Return the bytes of an index and its size; nothing if it is missing, which is judged elsewhere."""
        try:
            data, size = self._files.read_index(name, self._reading.limit.take)
        except FileNotFoundError:
            return b"", 0
        except OSError as error:
            self._find(None, "unreadable", reason_text(error), file=name, is_unchecked=True)
            return b"", 0
        self._result.checked_bytes[name] = len(data)
        if size > len(data) and not self._task.may_be_preallocated:
            self._find(None, "index-size", f"{size} bytes, of which only {len(data)} were read", file=name)
        return data, size

    def _judge_ends(self) -> None:
        """Find indexes of a closed segment that end too early."""
        task, result = self._task, self._result
        is_closed = task.is_tiered or task.tail is Tail.CLOSED
        if not (is_closed and task.has_indexes and result.is_whole):
            return
        if any(finding.file == task.log for finding in result.findings):
            return
        if task.is_tiered and self._index.file in result.checked_bytes:
            self._index.judge_end(task.index_interval_bytes)  # a cleaner makes an entry for many batches
        is_empty = not len(self._time_index.entries)
        if self._time_index.file in result.checked_bytes and (task.is_tiered or task.is_flushed or is_empty):
            self._time_index.judge_end(may_be_empty=not task.is_tiered)

    def _judge_kraft_snapshot(self) -> None:
        """Find a snapshot of the metadata log that was cut between two batches, or emptied."""
        result = self._result
        if not self._is_kraft_snapshot or not result.is_whole or result.findings:
            return
        if self._last_batch is None or not is_snapshot_footer(self._last_batch, crc32c=crc32c_of_bytes):
            self._find(self._end, "cut-end", "a snapshot that ends without a footer: its end is lost")

    # -- the log ---------------------------------------------------------------------------------------------

    def _read_batches(self) -> None:
        for window in self._windows:
            self._reading.on_bytes(0)
            next_position = self._take_large(window) if window.large_bytes else self._take_window(window)
            if next_position is None:
                return
            self._windows.position = next_position
        self._end_piece()

    def _take_window(self, window: Window) -> int | None:
        """Check the whole batches of *window*; return the position to continue at, or None."""
        walk = walk_headers(window.octets, position=window.position, end_position=self._end)
        damage = self._take(window, walk.rows)
        if damage is not None:
            return damage.next_position
        if walk.end in (WalkEnd.NEED_BYTES, WalkEnd.FULL) or walk.position == self._end:
            return walk.position
        self._end_piece()
        return self._judge_end(walk)

    def _take(self, window: Window, rows: HeaderRows) -> _Damage | None:
        """Check the batches of *rows*; return the damage at which this ended, None if all are sound."""
        start = 0
        while start < len(rows):
            part = rows[start:]
            is_at_snapshot = False
            if self._snapshot_offsets:
                reaches = part["base_offset"] >= self._snapshot_offsets[0]
                if reaches.any():
                    part, is_at_snapshot = part[: int(np.argmax(reaches))], True
            damage = self._scan(window, part)
            if damage is not None:
                return damage
            start += len(part)
            if is_at_snapshot:
                self._end_piece(snapshot_offset=self._snapshot_offsets.pop(0))
        return None

    def _scan(self, window: Window, part: HeaderRows) -> _Damage | None:
        """Scan the batches of *part*, which lie in *window*; return the damage at which this ended, if any."""
        while len(part):
            first = int(part["position"][0])
            end = int(part["position"][-1] + part["size_bytes"][-1])
            scanner = self._open_scanner(first)
            while not scanner.finished and scanner.position < end:  # it pauses at some control batches
                feed(scanner, window, end)
            scan = scanner.result() if scanner.finished else None
            if scan is None or scan.stop is Stop.END:
                self._check(window, part)
                return None
            good = part[part["position"] < scan.valid_bytes]
            if scan.stop in _SKIPPED_STOPS:
                skipped = int(np.searchsorted(part["position"], scan.stop_position))
                self._check(window, part[: skipped + 1])
                self._find_skipped(scan)
                self._end_piece(is_broken=True)
                part = part[skipped + 1 :]
                continue
            self._check(window, good)
            self._end_piece(is_broken=True)
            rows_after = part[len(good) :]
            return _Damage(self._pass_over(scan.stop_position, _stop_text(scan), "checksum", rows_after))
        return None

    def _check(self, window: Window, good: HeaderRows) -> None:
        if not len(good):
            return
        first = int(good["position"][0])
        end = int(good["position"][-1] + good["size_bytes"][-1])
        self._batches.take(good)
        self._index.take(good, end)
        self._time_index.take(good)
        if self._records is not None:
            self._records.take(window.between(first, end), good)
        if self._is_kraft_snapshot:
            self._last_batch = bytes(window.between(int(good["position"][-1]), end))
        self._reading.on_bytes(end - first)

    def _find_skipped(self, scan: RawScan) -> None:
        if scan.stop is Stop.OFFSET_OVERFLOW:
            return  # that its offsets are out of range is reported already
        rule, detail = _skipped_text(scan)
        self._find(scan.stop_position, rule, detail)

    # -- pieces ----------------------------------------------------------------------------------------------

    def _open_scanner(self, position: int) -> SegmentScanner:
        if self._scanner is None:
            self._scanner = SegmentScanner(
                base_offset=self._task.base_offset,
                size_bytes=self._end,
                start_position=position,
                build_index=False,
                settles_txns=False,
            )
        return self._scanner

    def _end_piece(self, *, snapshot_offset: int | None = None, is_broken: bool = False) -> None:
        """Close the scan at a snapshot, before bytes that are skipped, or at the end."""
        scanner, self._scanner = self._scanner, None
        if scanner is None:
            scanner = SegmentScanner(base_offset=0, size_bytes=0, build_index=False)  # an empty piece
        elif not scanner.finished:
            scanner.end_here()
        scan = scanner.result()
        self._result.pieces.append(Piece(scan=scan, snapshot_offset=snapshot_offset, is_broken=is_broken))

    # -- damage ----------------------------------------------------------------------------------------------

    def _judge_end(self, walk: HeaderWalk) -> int | None:
        """Judge the end of the walk; return the position to continue at, or None."""
        if walk.end is WalkEnd.END:
            left_bytes = self._end - walk.position
            self._find_tail(
                walk.position, f"{left_bytes} bytes that are not a batch", "trailing-bytes", is_short=True
            )
            return None
        if walk.end is WalkEnd.TORN:
            detail = f"the batch reaches beyond the end of the file, {self._end}"
            return self._pass_over(walk.position, detail, "torn-batch", walk.rows[:0])
        return self._pass_over(walk.position, "an impossible batch length", "batch-length", walk.rows[:0])

    def _pass_over(self, position: int, detail: str, rule: Rule, rows_after: HeaderRows) -> int | None:
        """Note damage at *position*; return the position of the next sound batch, or None."""
        next_position = self._sound.find(
            position,
            rows_after,
            lambda: self._index.entries["position"],
            base_offset=max(self._task.base_offset, self._batches.last_offset or 0),
        )
        if next_position is None:
            self._find_tail(position, detail, rule)
            self._result.is_whole = False
            self._reading.on_bytes(self._end - position)
            return None
        self._find(position, rule, f"{detail}; sound batches follow at byte {next_position:,}")
        self._skip(next_position)
        self._reading.on_bytes(next_position - position)
        if self._result.pieces and not self._result.pieces[-1].is_broken:
            self._result.pieces[-1] = replace(self._result.pieces[-1], is_broken=True)
        return next_position

    def _skip(self, position: int) -> None:
        self._batches.skip()
        self._index.skip(position)
        self._time_index.skip()
        if self._records is not None:
            self._records.skip()

    def _find_tail(self, position: int, detail: str, rule: Rule, *, is_short: bool = False) -> None:
        """Note damage with nothing sound after it, by what it means at this end of the log."""
        tail = self._task.tail
        if tail is not Tail.LIVE and self._end > MAX_LOG_BYTES:
            tail = Tail.CLOSED  # no recovery cuts what a broker does not open
        left_bytes = self._end - position
        is_zero = tail is not Tail.CLOSED and is_zero_range(self._log, position, self._end)
        if tail is Tail.LIVE and (is_zero or rule in ("torn-batch", "trailing-bytes")):
            return
        if tail in (Tail.LIVE, Tail.CLOSED) or (tail is Tail.LYING and rule not in _MOVES_LOG_END):
            self._find(position, rule, detail)
            return
        if is_zero:
            detail = f"{left_bytes:,} bytes of zeros"
        is_note = tail is Tail.UNCLEAN and is_zero and self._task.is_preallocated
        not_judged = "" if is_short else f"; the log ends here, {left_bytes:,} bytes before the file"
        self._find(position, tail.value, f"{detail}{not_judged}", is_note=is_note)

    def _take_large(self, window: Window) -> int | None:
        """Check the CRC of a batch that is too large for a window; return the position to continue at, or None."""
        position, size_bytes = window.position, window.large_bytes
        self._end_piece(is_broken=True)
        if has_right_crc(self._log, position, size_bytes, self._reading.limit.take):
            self._skip(position + size_bytes)
            if self._task.is_deep:
                self._find(position, "too-large", f"a batch of {size_bytes} bytes", is_unchecked=True)
            self._reading.on_bytes(size_bytes)
            return position + size_bytes
        return self._pass_over(position, "checksum mismatch", "checksum", np.empty(0, HEADER_ROW_DTYPE))

    def _find(
        self,
        position: int | None,
        rule: Rule,
        detail: str,
        *,
        file: str | None = None,
        is_note: bool = False,
        is_unchecked: bool = False,
    ) -> None:
        self._result.findings.append(
            Finding(
                file=self._task.log if file is None else file,
                position=position,
                rule=rule,
                detail=detail,
                severity="note" if is_note else "unchecked" if is_unchecked else "damage",
            )
        )


class _Damage(NamedTuple):
    """Damage at which the check of a window ended.

    Attributes:
        next_position: of the next sound batch, at which the check continues; None if there is none.
    """

    next_position: int | None


def _stop_text(scan: RawScan) -> str:
    """Return why a scan stopped, as text."""
    first, second = scan.stop_detail
    if scan.stop is Stop.CRC_MISMATCH:
        return f"checksum {first:#010x} stored, {second:#010x} computed"
    return f"{scan.stop.name.lower().replace('_', ' ')} ({first}, {second})"


def _skipped_text(scan: RawScan) -> tuple[Rule, str]:
    """Return rule and text for a batch that is read but skipped: INVALID_TXN, INVALID_CONTROL or CONTROL_FATAL."""
    rule: Rule = "transaction-state" if scan.stop is Stop.INVALID_TXN else "control-record"
    detail = {
        Stop.INVALID_TXN: "a batch outside a transaction while its producer has one open",
        Stop.INVALID_CONTROL: "a control batch that cannot be read: a recovery cuts the log after it",
        Stop.CONTROL_FATAL: "a control batch that stops a broker",
    }[scan.stop]
    return rule, f"{detail} (producer {scan.stop_detail[0]}, base offset {scan.stop_detail[1]})"
