"""The producers of one partition as rows of a snapshot: what Kafka keeps of each, changed by whole columns.

A segment names a hundred producers or a hundred thousand; whatever is done to them costs some calls of numpy. Rows are
moved by `take` and as plain bytes: a structured copy goes field by field, which takes ten times as long.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from segfmt.byte_layout import NO_SEQUENCE, PRODUCER_ENTRY_DTYPE
from segfmt.java_hash_map import java_hash_map_order
from segfmt.producer_snapshot import Entries

_NO_BATCH = {"last_sequence": NO_SEQUENCE, "last_offset": -1, "offset_delta": 0}
_TXN = "current_txn_first_offset"
_NO_ENTRIES = np.empty(0, PRODUCER_ENTRY_DTYPE)
_NEW_ENTRY = np.array([(0, -1, NO_SEQUENCE, -1, 0, -1, -1, -1)], PRODUCER_ENTRY_DTYPE)
_ROW_OF_BYTES = np.dtype((np.void, PRODUCER_ENTRY_DTYPE.itemsize))


class ProducerTable:
    """The entries of producers, in the order in which they first appeared.

    Args:
        entries: PRODUCER_ENTRY_DTYPE, shape (n,); the table's own from now on. If a producer is in it twice, the
            last entry counts, at the place of the first.

    Kafka: the HashMap of ProducerStateEntry in ProducerStateManager.
    """

    def __init__(self, entries: Entries | None = None) -> None:
        self._entries = _NO_ENTRIES if entries is None else entries
        producer_ids = self._entries["producer_id"].tolist()
        self._rows = dict(zip(producer_ids, range(len(producer_ids)), strict=True))
        if len(self._rows) < len(producer_ids):
            self._entries = self._entries.take(list(self._rows.values()))
            self._rows = dict(zip(self._rows, range(len(self._rows)), strict=True))

    def __len__(self) -> int:
        return len(self._rows)

    def open_txns(self, producer_ids: list[int]) -> dict[int, int]:
        """Return the first offsets of the open transactions, -1 for none, of those *producer_ids* that are known."""
        rows = self._rows
        known_ids = [producer_id for producer_id in producer_ids if producer_id in rows]
        if not known_ids:
            return {}
        first_offsets = self._entries[_TXN][[rows[producer_id] for producer_id in known_ids]]
        return dict(zip(known_ids, first_offsets.tolist(), strict=True))

    def all_open_txns(self) -> list[tuple[int, int, int]]:
        """Return (first offset, producer id, epoch) of all open transactions, ascending."""
        rows = self._entries[self._entries[_TXN] >= 0]
        return sorted(
            zip(rows[_TXN].tolist(), rows["producer_id"].tolist(), rows["epoch"].tolist(), strict=True)
        )

    def take(
        self, rows: npt.NDArray[np.void], open_txns: Mapping[int, int], *, keeps_batches_on_return: bool
    ) -> None:
        """Bring producers to their state after a scan.

        An epoch change empties the retained batches. While recovering, Kafka compares batch by batch; while
        replaying, only the last epoch of the read with the one before it (*keeps_batches_on_return*).

        Args:
            rows: native.raw_scan.PRODUCER_DTYPE, shape (n,), in the order in which new ones appear; not modified.
            open_txns: first offsets of the transactions that are open after the scan, by producer id.

        Kafka: ProducerStateEntry.update, ProducerStateEntry.addBatch.
        """
        producer_ids = rows["producer_id"].tolist()
        self._add(producer_ids)
        has_event = rows["has_data"] | rows["has_marker"]
        if not has_event.all():  # an emptied control batch makes its producer known and changes nothing
            rows = rows.take(has_event.nonzero()[0])
            producer_ids = rows["producer_id"].tolist()
        table_rows = np.array([self._rows[producer_id] for producer_id in producer_ids], np.intp)
        entries = self._entries.take(table_rows)
        if keeps_batches_on_return:
            is_cleared = rows["epoch"] != entries["epoch"]
        else:
            is_cleared = (rows["first_epoch"] != entries["epoch"]) | rows["cleared"]
        has_batch = rows["has_data"] & ~rows["cleared"]
        for name, nothing in _NO_BATCH.items():
            entries[name] = np.where(has_batch, rows[name], np.where(is_cleared, nothing, entries[name]))
        entries["epoch"] = rows["epoch"]
        entries["timestamp_ms"] = rows["timestamp_ms"]
        np.copyto(entries["coordinator_epoch"], rows["coordinator_epoch"], where=rows["has_marker"])
        entries[_TXN] = [open_txns.get(producer_id, -1) for producer_id in producer_ids]
        self._entries[table_rows] = entries

    def in_map_order(self) -> Entries:
        """Return the entries, PRODUCER_ENTRY_DTYPE, shape (n,), in the order in which Kafka's map gives them."""
        producer_ids: npt.NDArray[np.int64] = self._entries["producer_id"].astype(np.int64)
        return self._entries.take(java_hash_map_order(producer_ids))

    def _add(self, producer_ids: list[int]) -> None:
        rows = self._rows
        new = [producer_id for producer_id in producer_ids if producer_id not in rows]
        if new:
            rows.update(zip(new, range(len(rows), len(rows) + len(new)), strict=True))
            added = _NEW_ENTRY.repeat(len(new))
            added["producer_id"] = new
            both = np.concatenate((self._entries.view(_ROW_OF_BYTES), added.view(_ROW_OF_BYTES)))
            self._entries = both.view(PRODUCER_ENTRY_DTYPE)
