"""The transactions that are open at the end of an archived partition: at the first of them is the last stable offset.

The snapshot at the end of the last segment says which are open. If it is missing or malformed, the one before it is
taken and the batches after that are read. A transaction whose end may be in what is damaged or missing there is not
taken for open: nothing is said at all.

Kafka: ProducerStateManager.firstUnstableOffset, UnifiedLog.lastStableOffset.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

from native.batch_headers import HeaderRows
from recovery.archive.layouts.layout import Layout
from recovery.archive.layouts.log_windows import BatchWindow
from recovery.archive.records.read_request import PlannedSegments
from recovery.archive.records.run_files import opened_windows, snapshot_begins
from recovery.archive.stores.archived import ArchivedSegment, PartKind
from recovery.archive.stores.store import Store
from recovery.check.finding import REMEDIES
from recovery.errors import DamagedSegmentError, UsageError
from segfmt import byte_layout

MOST_SCANNED_BYTES = 4 << 30
"""Of logs after the last snapshot, which the driver itself reads."""


class OpenTransactions:
    """Where the open transaction of each producer begins.

    Attributes:
        begins: first offset of the open transaction of each producer.
        end_offset: up to which the state is known; None after a snapshot, until batches are taken in.
    """

    def __init__(self) -> None:
        self.begins: dict[int, int] = {}
        self.end_offset: int | None = None
        self._passed: dict[tuple[int, int], str] = {}

    def first_offset(self) -> int | None:
        """Return the lowest of their first offsets, None without one.

        Raises:
            DamagedSegmentError: that transaction may have ended in what is damaged or missing.
        """
        if not self.begins:
            return None
        first = min(self.begins.items(), key=lambda item: item[1])
        self.check(dict([first]))
        return first[1]

    def check(self, begins: Mapping[int, int]) -> None:
        """Refuse transactions whose ends may be in what is damaged or missing.

        Raises:
            DamagedSegmentError: one of *begins* is such a transaction.
        """
        for producer_id, begin in begins.items():
            if place := self._passed.get((producer_id, begin)):
                raise DamagedSegmentError(
                    f"{place}: transaction-state: damage hides how the transaction of producer {producer_id} ended, "
                    f"which begins at offset {begin}, and no producer snapshot says it. Remedy: "
                    f"{REMEDIES['transaction-state']}, or read with isolation=read_uncommitted and without `aborted`"
                )

    def read_snapshot(self, store: Store, layout: Layout, segment: ArchivedSegment) -> bool:
        """Take over the state in a segment's snapshot; return False without a sound one."""
        begins = snapshot_begins(store, layout, segment)
        if begins is not None:
            self.begins = begins
        return begins is not None

    def take(self, rows: HeaderRows, place: str) -> None:
        """Take in sound batches (HEADER_ROW_DTYPE, in order), of the log called *place*."""
        ends = np.maximum.accumulate(rows["last_offset"] + 1)
        before = np.concatenate([[ends[0] if self.end_offset is None else self.end_offset], ends[:-1]])
        gaps = np.flatnonzero(rows["base_offset"] > before).tolist()
        for start, end in zip([0, *gaps], [*gaps, len(rows)], strict=True):
            if start in gaps:
                self.pass_damage(f"{place}: before offset {rows['base_offset'][start]}")
            self._take(rows[start:end])
        self.end_offset = max(int(before[0]), int(ends[-1]))

    def pass_damage(self, place: str) -> None:
        """Note that batches are damaged or missing at *place*, among them perhaps the ends of what is open."""
        for transaction in self.begins.items():
            self._passed.setdefault(transaction, place)

    def _take(self, rows: HeaderRows) -> None:
        of_txns = (rows["magic"] >= byte_layout.MAGIC_V2) & (
            rows["attributes"] & byte_layout.TRANSACTIONAL_MASK != 0
        )
        rows = rows[of_txns]
        is_marker = rows["attributes"] & byte_layout.CONTROL_MASK != 0
        for producer_id in np.unique(rows["producer_id"]).tolist():
            is_own = rows["producer_id"] == producer_id
            markers = np.flatnonzero(is_own & is_marker)
            start = int(markers[-1]) + 1 if len(markers) else 0
            if len(markers):
                self.begins.pop(producer_id, None)
            data = np.flatnonzero(is_own[start:] & ~is_marker[start:])
            if len(data):
                self.begins.setdefault(producer_id, int(rows["base_offset"][start + int(data[0])]))


def open_transactions(store: Store, layout: Layout, planned: PlannedSegments, where: str) -> OpenTransactions:
    """Return the transactions that are open after the last of *planned*.

    Args:
        store: the archive.
        layout: its layout.
        planned: of the partition, those that should be there included.
        where: the partition's name, for messages.

    Raises:
        UsageError: for want of snapshots, too much would have to be read.
        FormatError, OSError: a segment cannot be read.
    """
    transactions = OpenTransactions()
    scanned: list[ArchivedSegment] = []
    from_offset: int | None = None
    for number in reversed(range(len(planned))):
        segment = planned[number].segment
        is_closed = layout.is_tiered or segment.next_base_offset is not None
        has_snapshot = transactions.read_snapshot(store, layout, segment)
        if is_closed and has_snapshot:
            break
        scanned.append(segment)
        if has_snapshot:
            from_offset = _offset_of(segment)  # the end of an active segment is after its snapshots
            break
    if sum(segment.log_bytes for segment in scanned) > MOST_SCANNED_BYTES:
        raise UsageError(
            f"{where}: {len(scanned)} segments have no producer snapshot, and which transactions are open would have "
            "to be found in their logs: rebuild the snapshots by `archive recover`, or read with "
            "isolation=read_uncommitted"
        )
    for segment in reversed(scanned):
        if transactions.end_offset is None:
            transactions.end_offset = segment.base_offset if from_offset is None else from_offset
        is_last = segment is scanned[0] and not layout.is_tiered
        name = _name_of(store, layout, segment)
        for _, rows in sound_batches(store, layout, segment, transactions, is_last=is_last):
            own = rows if from_offset is None else rows[rows["base_offset"] >= from_offset]
            if len(own):
                transactions.take(own, name)
    end, told = transactions.end_offset, planned[len(planned) - 1].told
    if end is not None and told is not None and end <= told.end_offset:
        transactions.pass_damage(f"{_name_of(store, layout, scanned[0])}: offset {end}")
    return transactions


def sound_batches(
    store: Store,
    layout: Layout,
    segment: ArchivedSegment,
    transactions: OpenTransactions,
    *,
    is_last: bool,
) -> Iterator[tuple[npt.NDArray[np.uint8], HeaderRows]]:
    """Yield the sound batches of a log, and the bytes from the first of them on; note damage at its end."""
    name = _name_of(store, layout, segment)
    if PartKind.LOG not in segment.parts:
        transactions.pass_damage(f"{name}: the log is missing")
        return
    if not segment.log_bytes:
        return
    damage = ""
    files = layout.files(store, segment)
    with opened_windows(files, segment.base_offset, is_last=is_last) as windows:
        for window in windows:
            if not isinstance(window, BatchWindow):
                damage = f"{name}: byte {window.position}" if window.is_damage else damage
                continue
            sound = np.flatnonzero(window.is_valid)
            if len(sound):
                rows = window.rows[sound]
                yield window.octets[int(rows["position"][0] - window.rows["position"][0]) :], rows
                damage = ""
            bad = np.flatnonzero(~window.is_valid)
            if len(bad) and (not len(sound) or bad[-1] > sound[-1]):
                damage = f"{name}: byte {window.rows['position'][bad[-1]]}"
    if damage:
        transactions.pass_damage(damage)


def archived_end(store: Store, layout: Layout, planned: PlannedSegments) -> int:
    """Return the offset after the last of *planned*, as its description or its log says.

    Raises:
        FormatError, OSError: the segment cannot be read.
    """
    last = planned[len(planned) - 1]
    segment = last.segment
    if last.told is not None:
        return last.told.end_offset + 1
    if PartKind.LOG not in segment.parts:
        return segment.base_offset
    described = layout.files(store, segment).described()
    if described is not None:
        return described.end_offset + 1
    batches = sound_batches(store, layout, segment, OpenTransactions(), is_last=True)
    return max((int(rows["last_offset"].max()) + 1 for _, rows in batches), default=segment.base_offset)


def _name_of(store: Store, layout: Layout, segment: ArchivedSegment) -> str:
    stored = segment.parts.get(PartKind.LOG) or next(iter(segment.parts.values()), None)
    key = layout.name_of(segment, PartKind.LOG) if stored is None else stored.key
    return f"{store.url}/{key}"


def _offset_of(segment: ArchivedSegment) -> int:
    """Return the offset of the snapshot that goes with a plain segment."""
    return int(segment.parts[PartKind.SNAPSHOT].name.partition(".")[0])
