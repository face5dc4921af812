"""The producers of one partition: who wrote last, in which epoch, with which transaction open.

A pure twin of Kafka's producer state manager, fed with scans instead of batches. A scan holds one row a
producer and the transaction events in log order, so the cost here follows producers and transactions, never
batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

import numpy as np
import numpy.typing as npt

from native.crc32c import crc32c_of_bytes
from native.raw_scan import RawScan
from recovery.load.producer_table import ProducerTable
from recovery.load.transactions import InvalidTxnStateError, SettledAborts, TxnEnd, follow_transactions
from segfmt.byte_layout import ABORTED_TXN_DTYPE, CONTROL_TYPE_ABORT
from segfmt.errors import CorruptSnapshotError
from segfmt.java_hash_map import computed_hash_map_order
from segfmt.java_text import LONG_MAX
from segfmt.producer_snapshot import Entries, as_loaded, encode_producer_snapshot, read_producer_snapshot


class SnapshotFiles(Protocol):
    """The `.snapshot` files of a partition's folder, by map end offset."""

    def list_snapshots(self) -> dict[int, str]:
        """Return file names by offset."""
        ...

    def read_snapshot(self, name: str) -> bytes:
        """Return the bytes of a file."""
        ...

    def write_snapshot(self, offset: int, data: bytes) -> str:
        """Write the snapshot for *offset*; return the file's name."""
        ...

    def delete_snapshot(self, name: str) -> None:
        """Delete a file if it is there."""
        ...


class ProducerState:
    """Producers, open transactions and snapshots up to an offset.

    Args:
        now_ms: the clock by which producers expire.
        expiration_ms: how long one is remembered.
        most_snapshot_entries: that a snapshot may have to be loaded; None for any number.

    Kafka: ProducerStateManager.
    """

    def __init__(
        self,
        files: SnapshotFiles,
        *,
        now_ms: int,
        expiration_ms: int,
        most_snapshot_entries: int | None = None,
    ) -> None:
        self._files = files
        self._most_snapshot_entries = most_snapshot_entries
        self._now_ms = now_ms
        self._expiration_ms = expiration_ms
        self._producers = ProducerTable()
        self._ongoing: dict[int, int] = {}  # first offset -> producer id
        self._unreplicated: set[int] = set()  # first offsets of transactions that a replay has seen completed
        self._snapshots = files.list_snapshots()
        self.map_end_offset = 0
        self._last_snapshot_offset = 0
        self._open_after_scan: dict[int, int] = {}

    @property
    def has_snapshots(self) -> bool:
        """Whether any snapshot file is known."""
        return bool(self._snapshots)

    @property
    def is_empty(self) -> bool:
        """Whether no producer is known."""
        return not len(self._producers)

    @property
    def producer_count(self) -> int:
        """How many producers are known."""
        return len(self._producers)

    def open_transactions(self) -> list[tuple[int, int, int]]:
        """Return (first offset, producer id, epoch) of the transactions that are open, ascending."""
        return self._producers.all_open_txns()

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the first transaction begins that is open, or was completed in what was replayed.

        Kafka: ProducerStateManager.firstUnstableOffset.
        """
        return min((*self._ongoing, *self._unreplicated), default=None)

    # -- snapshots ------------------------------------------------------------------------------------------

    def take_snapshot(self) -> None:
        """Write a snapshot at the map's end, unless the last one is already there.

        Kafka: ProducerStateManager.takeSnapshot.
        """
        if self.map_end_offset <= self._last_snapshot_offset:
            return
        data = encode_producer_snapshot(self._producers.in_map_order(), crc32c=crc32c_of_bytes)
        self._snapshots[self.map_end_offset] = self._files.write_snapshot(self.map_end_offset, data)
        self._last_snapshot_offset = self.map_end_offset

    def truncate_and_reload(self, log_start_offset: int, log_end_offset: int) -> None:
        """Drop the snapshots outside the log and load the newest that is left.

        Kafka: ProducerStateManager.truncateAndReload.
        """
        outside = [
            offset for offset in self._snapshots if offset > log_end_offset or offset <= log_start_offset
        ]
        for offset in sorted(outside):
            self._delete_snapshot(offset)
        if log_end_offset != self.map_end_offset:
            self._forget_producers()
            self._load_newest_snapshot(log_start_offset)
        else:
            self.map_end_offset = max(self.map_end_offset, log_start_offset)
            self._last_snapshot_offset = max(self._snapshots, default=log_start_offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Forget all producers and delete all known snapshots.

        Kafka: ProducerStateManager.truncateFullyAndStartAt.
        """
        self._forget_producers()
        for snapshot_offset in sorted(self._snapshots):
            self._delete_snapshot(snapshot_offset)
        self._last_snapshot_offset = 0
        self.map_end_offset = offset

    def remove_stray_snapshots(self, base_offsets: Iterable[int]) -> None:
        """List the snapshots again and delete those at offsets where no segment begins.

        The largest of them stays if it is above the last segment.

        Kafka: ProducerStateManager.removeStraySnapshots.
        """
        bases = set(base_offsets)
        self._snapshots = self._files.list_snapshots()
        stray = [offset for offset in sorted(self._snapshots) if offset not in bases]
        if not stray:
            return
        for offset in stray[:-1]:
            self._delete_snapshot(offset)
        if bases and stray[-1] < max(bases):
            self._delete_snapshot(stray[-1])

    def forget_snapshot(self, offset: int) -> str | None:
        """Forget the snapshot at *offset* and return its name.

        Kafka: ProducerStateManager.removeAndMarkSnapshotForDeletion.
        """
        return self._snapshots.pop(offset, None)

    def _forget_producers(self) -> None:
        if len(self._producers):
            self._producers = ProducerTable()
        self._ongoing.clear()
        self._unreplicated.clear()

    def _delete_snapshot(self, offset: int) -> None:
        self._files.delete_snapshot(self._snapshots.pop(offset))

    def _load_newest_snapshot(self, log_start_offset: int) -> None:
        while self._snapshots:
            offset = max(self._snapshots)
            try:
                entries = read_producer_snapshot(
                    self._files.read_snapshot(self._snapshots[offset]),
                    crc32c=crc32c_of_bytes,
                    most_entries=self._most_snapshot_entries,
                )
            except CorruptSnapshotError:
                self._delete_snapshot(offset)
                continue
            self._take_loaded(as_loaded(entries))
            self._last_snapshot_offset = self.map_end_offset = offset
            return
        self._last_snapshot_offset = self.map_end_offset = log_start_offset

    def _take_loaded(self, entries: Entries) -> None:
        """Take over the entries of a snapshot, except those of expired producers.

        Kafka: ProducerStateManager.isProducerExpired.
        """
        is_open = entries["current_txn_first_offset"] >= 0
        # As Java's longs: from a timestamp far below 0 the difference overflows, and nothing has expired.
        age_ms = self._now_ms - entries["timestamp_ms"].astype(np.int64)
        is_kept = is_open | (age_ms < self._expiration_ms)
        self._producers = ProducerTable(entries.take(is_kept.nonzero()[0]))
        open_entries = entries.take(is_open.nonzero()[0])
        first_offsets, producer_ids = open_entries["current_txn_first_offset"], open_entries["producer_id"]
        self._ongoing.update(zip(first_offsets.tolist(), producer_ids.tolist(), strict=True))

    # -- scans ----------------------------------------------------------------------------------------------

    def depends_on_settled(self, scan: RawScan, *, is_replayed: bool) -> bool:
        """Return whether *scan* has left out transactions that matter here: two may begin at the same offset.

        Open transactions are identified by their first offsets alone. This is very rare: a segment has to repeat
        batches that were there before.

        Args:
            is_replayed: whether the scan is for `replay`, in which all transactions of the scan are open at once.
        """
        if not scan.settled_txn_count:
            return False
        if is_replayed and not scan.txns_in_order:
            return True
        first, last = scan.first_settled_offset, scan.last_settled_offset
        return any(first <= offset <= last for offset in self._ongoing)

    def recover(self, scan: RawScan) -> npt.NDArray[np.void]:
        """Take in the scan of a segment that is being recovered; it must not `depends_on_settled`.

        Returns:
            The transactions aborted in it, ABORTED_TXN_DTYPE, shape (n,), in log order.

        Raises:
            InvalidTxnStateError: the broker would halt.

        Kafka: LogSegment.updateProducerState, batch by batch.
        """
        aborted: list[tuple[int, int, int, int, int]] = []

        def begin(index: int, offset: int) -> None:
            self._ongoing[offset] = producer_ids[index]

        def complete(end: TxnEnd) -> None:
            if end.marker_type == CONTROL_TYPE_ABORT:
                still_open = [
                    first_offset
                    for first_offset, producer_id in self._ongoing.items()
                    if producer_id != end.producer_id
                ]
                if end.oldest_other_offset >= 0:
                    still_open.append(end.oldest_other_offset)
                last_stable_offset = min(still_open, default=end.marker_offset + 1)
                aborted.append((0, end.producer_id, end.first_offset, end.marker_offset, last_stable_offset))
                positions.append(end.position)
            self._close(end)

        positions: list[int] = []
        settled = SettledAborts(scan, self._ongoing)
        producer_ids = scan.producers["producer_id"].tolist()
        self._follow_transactions(scan, producer_ids, begin, complete, settled.reach)
        settled.reach(LONG_MAX)
        self._producers.take(scan.producers, self._open_after_scan, keeps_batches_on_return=False)
        if scan.producer_end_offset >= 0:
            self.map_end_offset = scan.producer_end_offset
        return settled.merged(np.array(aborted, dtype=ABORTED_TXN_DTYPE), positions)

    def replay(self, scan: RawScan, *, is_last_followed: Callable[[], bool] = lambda: True) -> None:
        """Take in the scan of a segment that is only read; it must not `depends_on_settled`. The map's end stays.

        Kafka collects what it reads in a temporary HashMap by computeIfAbsent, and then puts it into its own map in the
        order of iteration. Transactions end only after all of the read have begun: of two that begin at one offset,
        only one ends.

        Args:
            is_last_followed: whether a batch with a producer comes after the first one of the last new producer in
                the scan; called only when the order depends on it, which is very rare.

        Kafka: UnifiedLog.loadProducersFromRecords.
        """
        producer_ids = scan.producers["producer_id"].tolist()
        begins: list[list[int]] = [[] for _ in producer_ids]
        ends: list[TxnEnd] = []
        self._follow_transactions(
            scan, producer_ids, lambda index, offset: begins[index].append(offset), ends.append
        )
        order = _replay_order(scan, is_last_followed)
        self._producers.take(scan.producers.take(order), self._open_after_scan, keeps_batches_on_return=True)
        for row in order.tolist():
            self._ongoing.update(dict.fromkeys(begins[row], producer_ids[row]))
        for end in ends:
            self._close(end)
            self._unreplicated.add(end.first_offset)
        if scan.settled_txn_count:
            self._unreplicated.add(scan.first_settled_offset)  # only the lowest of them is ever asked for

    def _close(self, end: TxnEnd) -> None:
        """Close a transaction, whichever producer began it there. Kafka: ProducerStateManager.completeTxn."""
        if self._ongoing.pop(end.first_offset, None) is None:
            raise InvalidTxnStateError.of_end(end.producer_id, end.position, end.first_offset)

    def _follow_transactions(
        self,
        scan: RawScan,
        producer_ids: list[int],
        begin: Callable[[int, int], object],
        complete: Callable[[TxnEnd], object],
        reach: Callable[[int], object] = lambda _: None,
    ) -> None:
        open_txns = self._producers.open_txns(producer_ids)
        follow_transactions(scan, producer_ids, open_txns, begin, complete, reach)
        self._open_after_scan = open_txns


def _replay_order(scan: RawScan, is_last_followed: Callable[[], bool]) -> npt.NDArray[np.intp]:
    """Return the order, intp, shape (n,), in which the producers of a read come out of Kafka's temporary map."""
    producer_ids: npt.NDArray[np.int64] = scan.producers["producer_id"].astype(np.int64)
    order = computed_hash_map_order(producer_ids, is_followed=True)
    unfollowed_order = computed_hash_map_order(producer_ids, is_followed=False)
    return order if np.array_equal(order, unfollowed_order) or is_last_followed() else unfollowed_order
