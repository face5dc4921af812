"""Whether the entries of a segment's indexes are possible, not whether they are those of a rebuilt file.

What a live broker writes depends on how batches came in: at most one entry per batch from 4.1.1 on, one per append
before. So an entry of `.index` may stand for an append of several batches: its position is where the append begins,
its offset the last one of the append. An entry of `.timeindex` says that no timestamp up to its offset is greater.

Pure: entries and header rows in, findings out.

Kafka: OffsetIndex.append, TimeIndex.maybeAppend, LogSegment.append.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from native.batch_headers import HeaderRows
from recovery.check.finding import Finding, Rule, Severity
from segfmt import byte_layout

Entries = npt.NDArray[np.void]
_ZEROS = bytes(64 << 10)

_DEFAULT_INTERVAL_BYTES = 4096
"""Kafka: log.index.interval.bytes."""
_FETCH_BYTES = 1 << 20
"""Kafka: replica.fetch.max.bytes."""
_LATEST_MS = 253_402_300_799_999
"""The last millisecond of the year 9999."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexAgreement:
    """How far an index agrees with the log next to it.

    Attributes:
        is_beyond: whether an entry points past the end of the log.
        contradicts: whether an entry, as far as they ascend, is of no batch in the log. An index that has nothing in
            common with the log, and is out of order or has impossible entries, is noise, and contradicts nothing.
        step_bytes: of a sound offset index: the most from an entry, or the start, to a later batch without one, where
            another entry follows: `index.interval.bytes` was no less.
        rest_bytes: of an offset index: those from the last entry to the last batch, less the largest batch.
    """

    is_beyond: bool
    contradicts: bool
    step_bytes: int = 0
    rest_bytes: int = 0


def without_preallocated(entries: Entries) -> Entries:
    """Return *entries* without the zeros after the last one."""
    data = entries.tobytes()
    end = len(data)
    while data.endswith(_ZEROS, 0, end):  # rstrip alone takes ten times as long
        end -= len(_ZEROS)
    used_bytes = len(data[:end].rstrip(b"\0"))
    return entries[: -(-used_bytes // entries.itemsize)]


def size_findings(file: str, size_bytes: int, entry_bytes: int) -> list[Finding]:
    """Return what is wrong with the length of an index."""
    if size_bytes % entry_bytes == 0:
        return []
    detail = f"{size_bytes} bytes are not a multiple of {entry_bytes}"
    return [
        Finding(file=file, position=size_bytes // entry_bytes * entry_bytes, rule="index-size", detail=detail)
    ]


def _ascending(values: npt.NDArray[np.int64], *, strictly: bool) -> int:
    """Return how many of *values* ascend from the first on."""
    steps = np.diff(values)
    wrong = np.flatnonzero(steps <= 0 if strictly else steps < 0)
    return int(wrong[0]) + 1 if wrong.size else len(values)


@dataclass(slots=True)
class _IndexChecks:
    """What the checks of both indexes share: entries that ascend, and the progress through them.

    Attributes:
        file: the index's name.
        entries: of the dtype of the index, without preallocated zeros.
        _offsets: int64, of the entries that can be judged.
        _values: int64, what an entry says of its offset: a position, or a timestamp.
        _next: the first entry that was not checked yet.
        _has_agreed: whether an entry agrees with the log.
        _is_wrong: whether one does not.
        is_beyond: whether an entry points past the end of the log.
    """

    VALUE: ClassVar[str]
    """The field other than the offset."""
    LEAST_VALUE: ClassVar[int]
    HAS_EACH_OFFSET_ONCE: ClassVar[bool]
    DTYPE: ClassVar[np.dtype[np.void]]

    file: str
    base_offset: int
    entries: Entries
    findings: list[Finding] = field(default_factory=list)
    _offsets: npt.NDArray[np.int64] = field(init=False)
    _values: npt.NDArray[np.int64] = field(init=False)
    _next: int = 0
    _has_agreed: bool = False
    _is_wrong: bool = False
    is_beyond: bool = False

    def __post_init__(self) -> None:
        """Check the entries by themselves."""
        self._offsets = self.entries["relative_offset"].astype(np.int64) + self.base_offset
        self._values = self.entries[self.VALUE].astype(np.int64)
        count = min(
            _ascending(self._values, strictly=True),
            _ascending(self._offsets, strictly=self.HAS_EACH_OFFSET_ONCE),
        )
        if count < len(self.entries):
            self._add(
                count, "index-order", f"entry {count} ({self._text(count)}) is not above the one before"
            )
            self._keep(count)
        if count and (self._values[0] < self.LEAST_VALUE or self._offsets[0] < self.base_offset):
            self._add(0, "index-entry", self._text(0))
            self._keep(0)

    @property
    def agreement(self) -> IndexAgreement:
        """How far the index agrees with the log."""
        is_noise = self._is_noise
        return IndexAgreement(
            is_beyond=self.is_beyond and not is_noise,
            contradicts=self._is_wrong and not is_noise,
            step_bytes=self._step_bytes,
            rest_bytes=self._rest_bytes,
        )

    @property
    def _step_bytes(self) -> int:
        return 0

    @property
    def _rest_bytes(self) -> int:
        return 0

    @property
    def _is_noise(self) -> bool:
        """Whether no broker has written the index, so that it says nothing about its log."""
        is_malformed = len(self._values) < len(self.entries) or not any(self.entries.tobytes())
        return not self._has_agreed and (is_malformed or self._is_impossible)

    @property
    def _is_impossible(self) -> bool:
        """Whether an entry says what no log holds."""
        return False

    def _named(self) -> list[Finding]:
        """Return the findings; those about entries that no broker has written have a rule of their own."""
        if self._is_noise:
            self.findings = [
                replace(finding, rule="malformed-entry") if finding.rule == "index-entry" else finding
                for finding in self.findings
            ]
        return self.findings

    def _text(self, entry: int) -> str:
        return f"offset {self._offsets[entry]}, {self.VALUE.removesuffix('_ms')} {self._values[entry]}"

    def _keep(self, count: int) -> None:
        """Judge no more than the first *count* entries."""
        self._offsets, self._values = self._offsets[:count], self._values[:count]

    def _add(self, entry: int, rule: Rule, detail: str, severity: Severity = "damage") -> None:
        position = entry * self.DTYPE.itemsize
        self.findings.append(
            Finding(file=self.file, position=position, rule=rule, detail=detail, severity=severity)
        )


@dataclass(slots=True)
class OffsetIndexChecks(_IndexChecks):
    """`.index` against the batches of its segment, chunk by chunk."""

    VALUE = "position"
    LEAST_VALUE = 1  # an entry comes after bytes that are not indexed, so never for the first batch
    HAS_EACH_OFFSET_ONCE = True
    DTYPE = byte_layout.OFFSET_INDEX_DTYPE

    _open: list[int] = field(default_factory=list)
    _last_position: int = 0
    _largest_bytes: int = 0
    _unindexed_bytes: int = 0

    @property
    def _step_bytes(self) -> int:
        return 0 if self.findings else self._unindexed_bytes

    @property
    def _rest_bytes(self) -> int:
        last_position = int(self._values[-1]) if len(self._values) else 0
        return max(0, self._last_position - last_position - self._largest_bytes)

    def take(self, rows: HeaderRows, end_position: int) -> None:
        """Check the entries that point into *rows*, which end at *end_position* of the log."""
        position_before = self._last_position
        if len(rows):
            self._last_position = int(rows["position"][-1])
            self._largest_bytes = max(self._largest_bytes, int(rows["size_bytes"].max()))
        first = self._next
        self._next = int(np.searchsorted(self._values, end_position))
        lasts = rows["last_offset"]
        if self._open:
            self._close(lasts, rows)
        count = self._next - first
        if not count or not len(rows):
            return
        rows_at = np.searchsorted(rows["position"], self._values[first : self._next])
        row_numbers = np.minimum(rows_at, len(rows) - 1)
        before = np.where(row_numbers > 0, rows["position"][row_numbers - 1], position_before)
        entries_before = np.concatenate(
            (self._values[first - 1 : first] if first else [0], self._values[first : self._next - 1])
        )
        self._unindexed_bytes = max(self._unindexed_bytes, int((before - entries_before).max()))
        offsets = self._offsets[first : self._next]
        is_start = (rows_at < len(rows)) & (rows["position"][row_numbers] == self._values[first : self._next])
        self._has_agreed |= bool((is_start & (offsets == lasts[row_numbers])).any())
        self._is_wrong |= not is_start.all()
        for bad in np.flatnonzero(~is_start)[:1]:
            self._add(
                first + int(bad), "index-entry", f"position {self._values[first + bad]} is inside a batch"
            )
        mismatches = np.flatnonzero(is_start & (offsets != lasts[row_numbers]))
        for mismatch in mismatches.tolist():  # an append of several batches, or damage
            entry, last = first + mismatch, lasts[row_numbers[mismatch]]
            if offsets[mismatch] < last:
                self._is_wrong = True
                self._add(
                    entry,
                    "index-entry",
                    f"offset {offsets[mismatch]}, the batch at {self._values[entry]} ends at {last}",
                )
            else:
                self._open.append(entry)
        self._close(lasts, rows)

    def skip(self, position: int) -> None:
        """Skip the entries before *position*: the log is damaged there."""
        self._next = max(self._next, int(np.searchsorted(self._values, position)))
        self._open = []

    def finish(self, end_position: int, *, is_whole: bool) -> list[Finding]:
        """Return the findings; *is_whole*: the log was read up to *end_position*, where it ends."""
        if is_whole:
            for entry in self._open:
                self._is_wrong = True
                self._add(entry, "index-entry", f"no batch ends at offset {self._offsets[entry]}")
            self.is_beyond = self._next < len(self._values)
            if self.is_beyond:
                self._is_wrong = True
                self._add(
                    self._next,
                    "index-entry",
                    f"position {self._values[self._next]} is past the end of the log, {end_position}",
                )
        return self._named()

    def judge_end(self, interval_bytes: int | None) -> None:
        """Find that entries are missing at the end of the index of a closed segment, which was read whole.

        A broker makes an entry with the first append after so many bytes without one. Brokers before 4.1.1 make one
        for all batches of an append, which for a follower is what one fetch gave it.

        Args:
            interval_bytes: `index.interval.bytes`; None if it is not known: the index itself then shows it, or else
                only a long log without entries is damage.
        """
        if self.findings:
            return
        known_bytes = _DEFAULT_INTERVAL_BYTES if interval_bytes is None else interval_bytes
        steps = np.diff(self._values, prepend=0)
        longest_bytes = 2 * int(steps.max()) if len(steps) else 0
        bound_bytes = max(known_bytes + self._largest_bytes, longest_bytes)
        left_bytes = self._last_position - (int(self._values[-1]) if len(self._values) else 0)
        if left_bytes <= bound_bytes:
            return
        is_sure = interval_bytes is not None or left_bytes > _FETCH_BYTES
        detail = f"no entry for the last {left_bytes} bytes, at most {bound_bytes} are expected: it was cut"
        self._add(len(self._values), "index-sparse", detail, "damage" if is_sure else "note")

    def _close(self, lasts: npt.NDArray[np.int64], rows: HeaderRows) -> None:
        """Look for the batches at which the open appends end."""
        still_open = []
        for entry in self._open:
            offset = self._offsets[entry]
            row_number = int(np.searchsorted(lasts, offset))
            if row_number == len(lasts):
                still_open.append(entry)
                continue
            following = self._values[entry + 1] if entry + 1 < len(self._values) else None
            if lasts[row_number] != offset or (
                following is not None and rows["position"][row_number] >= following
            ):
                self._is_wrong = True
                self._add(
                    entry,
                    "index-entry",
                    f"offset {offset} is not the last of an append at {self._values[entry]}",
                )
            else:
                self._has_agreed = True
        self._open = still_open


@dataclass(slots=True)
class TimeIndexChecks(_IndexChecks):
    """`.timeindex` against the batches of its segment, chunk by chunk."""

    VALUE = "timestamp_ms"
    LEAST_VALUE = 0
    HAS_EACH_OFFSET_ONCE = False
    DTYPE = byte_layout.TIME_INDEX_DTYPE

    _max_ms: int = byte_layout.NO_TIMESTAMP_MS
    _last_offset: int = -1

    @property
    def _is_impossible(self) -> bool:
        """Whether an entry is of a year that no batch of the log is of, past 9999."""
        return bool((self._values > _LATEST_MS).any()) and self._max_ms <= _LATEST_MS

    def take(self, rows: HeaderRows) -> None:
        """Check the entries whose offsets lie in *rows*."""
        if not len(rows):
            return
        lasts = np.maximum.accumulate(rows["last_offset"])
        greatest = np.maximum(np.maximum.accumulate(rows["max_timestamp_ms"]), self._max_ms)
        first, self._next = self._next, int(np.searchsorted(self._offsets, lasts[-1], side="right"))
        self._next = max(first, self._next)
        self._max_ms, self._last_offset = int(greatest[-1]), int(lasts[-1])
        offsets = self._offsets[first : self._next]
        if not len(offsets):
            return
        row_numbers = np.searchsorted(lasts, offsets)
        wrong = np.flatnonzero(greatest[row_numbers] != self._values[first : self._next])
        self._has_agreed |= len(wrong) < len(offsets)
        self._is_wrong |= bool(wrong.size)
        if wrong.size and not self.findings:
            entry = first + int(wrong[0])
            self._add(
                entry,
                "index-entry",
                f"timestamp {self._values[entry]} at offset {self._offsets[entry]}, the greatest up to there is "
                f"{greatest[row_numbers[wrong[0]]]}",
            )

    def judge_end(self, *, may_be_empty: bool) -> None:
        """Find that the last entry is not of the greatest timestamp, in the index of a closed segment, read whole.

        Args:
            may_be_empty: in a folder a broker makes an empty index in place of one that it does not find.

        Kafka: LogSegment.onBecomeInactiveSegment.
        """
        last_ms = int(self._values[-1]) if len(self._values) else byte_layout.NO_TIMESTAMP_MS
        if self.findings or last_ms >= self._max_ms:
            return
        if may_be_empty and not len(self._values):
            self._add(0, "index-sparse", "the index has no entry, although batches have timestamps", "note")
        else:
            detail = f"its last entry is of timestamp {last_ms}, the greatest of the log is {self._max_ms}: it was cut"
            self._add(len(self._values), "index-sparse", detail)

    def skip(self) -> None:
        """Judge nothing after this: a part of the log is damaged, and its timestamps are unknown."""
        self._keep(self._next)

    def finish(self, *, is_whole: bool) -> list[Finding]:
        """Return the findings; *is_whole*: the log was read to its end."""
        self.is_beyond = is_whole and self._next < len(self._offsets)
        if self.is_beyond:
            self._is_wrong = True
            self._add(
                self._next,
                "index-entry",
                f"offset {self._offsets[self._next]} is past the end of the log, {self._last_offset}",
            )
        return self._named()
