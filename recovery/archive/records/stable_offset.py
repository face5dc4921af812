"""The last stable offset of an archived partition: where the first transaction that is open at its end begins.

The snapshot at the end of the last segment says which are open. If it is missing or malformed, the one before it is
taken and the batches after that are read.

Kafka: ProducerStateManager.firstUnstableOffset, UnifiedLog.lastStableOffset.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from native.batch_headers import HeaderRows
from native.crc32c import crc32c_of_bytes
from recovery.archive.layouts.layout import ArchivedFiles, Layout
from recovery.archive.layouts.log_windows import BatchWindow, LogWindows
from recovery.archive.stores.archived import ArchivedSegment, PartKind
from recovery.archive.stores.store import Store
from recovery.errors import UsageError
from segfmt import byte_layout
from segfmt.errors import FormatError
from segfmt.filenames import log_name
from segfmt.producer_snapshot import read_producer_snapshot

MOST_SCANNED_BYTES = 4 << 30
"""Of logs after the last snapshot, which the driver itself reads."""


def last_stable_offset(
    store: Store, layout: Layout, segments: Sequence[ArchivedSegment], where: str
) -> int | None:
    """Return the last stable offset, None if no transaction is open.

    Args:
        store: the archive, or a log dir.
        layout: its layout.
        segments: of the partition, in order, without those that others replace.
        where: the partition's name, for messages.

    Raises:
        UsageError: for want of snapshots, too much would have to be read.
        FormatError, OSError: a segment cannot be read.
    """
    transactions = OpenTransactions()
    scanned: list[ArchivedSegment] = []
    from_offset: int | None = None
    for segment in reversed(segments):
        is_closed = layout.is_tiered or segment.next_base_offset is not None
        if is_closed and transactions.read_snapshot(layout.files(store, segment)):
            break
        scanned.append(segment)
        if not is_closed and transactions.read_snapshot(layout.files(store, segment)):
            from_offset = _offset_of(segment)  # the end of an active segment is after its snapshots
            break
    if sum(segment.log_bytes for segment in scanned) > MOST_SCANNED_BYTES:
        raise UsageError(
            f"{where}: {len(scanned)} segments have no producer snapshot, and which transactions are open would have "
            "to be found in their logs: rebuild the snapshots by `archive recover`, or read with "
            "isolation=read_uncommitted"
        )
    for segment in reversed(scanned):
        log = layout.files(store, segment).open(log_name(segment.base_offset))
        try:
            for window in LogWindows(log, base_offset=segment.base_offset, is_last=True):
                if isinstance(window, BatchWindow):
                    rows = window.rows[window.is_valid]
                    transactions.take(
                        rows if from_offset is None else rows[rows["base_offset"] >= from_offset]
                    )
        finally:
            log.close()
    return transactions.first_offset


class OpenTransactions:
    """Where the open transaction of each producer begins."""

    def __init__(self) -> None:
        self._begins: dict[int, int] = {}

    @property
    def first_offset(self) -> int | None:
        """The lowest of their first offsets, None without one."""
        return min(self._begins.values(), default=None)

    def read_snapshot(self, files: ArchivedFiles) -> bool:
        """Take over the state in a segment's snapshot; return False without a sound one."""
        try:
            entries = read_producer_snapshot(files.read_part(PartKind.SNAPSHOT), crc32c=crc32c_of_bytes)
        except (FileNotFoundError, FormatError):
            return False
        is_open = entries["current_txn_first_offset"] >= 0
        self._begins = dict(
            zip(
                entries["producer_id"][is_open].tolist(),
                entries["current_txn_first_offset"][is_open].tolist(),
                strict=True,
            )
        )
        return True

    def take(self, rows: HeaderRows) -> None:
        """Take in batches (HEADER_ROW_DTYPE, in order)."""
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
                self._begins.pop(producer_id, None)
            data = np.flatnonzero(is_own[start:] & ~is_marker[start:])
            if len(data):
                self._begins.setdefault(producer_id, int(rows["base_offset"][start + int(data[0])]))


def _offset_of(segment: ArchivedSegment) -> int:
    """Return the offset of the snapshot that goes with a plain segment."""
    return int(segment.parts[PartKind.SNAPSHOT].name.partition(".")[0])
