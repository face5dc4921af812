"""Which transactions of a partition were aborted, according to its transaction indexes.

An entry is in the index of the segment that holds the marker, which may come long after the records.

Kafka: TransactionIndex.collectAbortedTxns, LocalLog.collectAbortedTransactions, CompletedFetch.isBatchAborted.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

from native.batch_headers import HeaderRows
from segfmt import byte_layout
from segfmt.errors import FormatError
from segfmt.transaction_index import ENTRY_BYTES, Entries, check_transaction_index, view_transaction_index

_TXN_DTYPE = np.dtype([("producer_id", "<i8"), ("first_offset", "<i8"), ("last_offset", "<i8")])


def are_transactional(rows: HeaderRows) -> npt.NDArray[np.bool_]:
    """Return which batches are of a transaction, markers included. Bool, shape (n,)."""
    is_of_txn = rows["attributes"] & byte_layout.TRANSACTIONAL_MASK != 0
    flags: npt.NDArray[np.bool_] = is_of_txn & (rows["magic"] >= byte_layout.MAGIC_V2)
    return flags


class AbortedTxns:
    """Aborted transactions, each from its first offset to its marker.

    Attributes:
        entries: of transaction indexes, in any order; one may occur twice.
    """

    def __init__(self, entries: Entries) -> None:
        self.entries = entries
        fields = np.zeros(len(entries), _TXN_DTYPE)
        for name in _TXN_DTYPE.names or ():
            fields[name] = entries[name]
        native = np.unique(fields)
        self._first_offsets = native["first_offset"]
        self._last_offsets = native["last_offset"]
        producers, starts = np.unique(native["producer_id"], return_index=True)
        bounds = [*starts.tolist(), len(native)]
        self._ranges = dict(zip(producers.tolist(), itertools.pairwise(bounds), strict=True))

    def __len__(self) -> int:
        return len(self._first_offsets)

    def are_in(self, rows: HeaderRows) -> npt.NDArray[np.bool_]:
        """Return for each batch whether its transaction was aborted; never true for markers. Bool, shape (n,)."""
        is_aborted = np.zeros(len(rows), np.bool_)
        is_data = are_transactional(rows) & (rows["attributes"] & byte_layout.CONTROL_MASK == 0)
        if not len(self) or not is_data.any():
            return is_aborted
        for producer_id in np.unique(rows["producer_id"][is_data]).tolist():
            if producer_id not in self._ranges:
                continue
            start, end = self._ranges[producer_id]
            rows_of_producer = np.flatnonzero(is_data & (rows["producer_id"] == producer_id))
            # The last transaction that begins at or before the batch's end is the one it may be in.
            at = (
                np.searchsorted(
                    self._first_offsets[start:end], rows["last_offset"][rows_of_producer], side="right"
                )
                - 1
            )
            is_in = (at >= 0) & (
                rows["base_offset"][rows_of_producer] <= self._last_offsets[start:end][np.maximum(at, 0)]
            )
            is_aborted[rows_of_producer] = is_in
        return is_aborted

    def span_markers(self, rows: HeaderRows) -> npt.NDArray[np.bool_]:
        """Return for each batch whether it is a marker and a transaction of its producer goes on after it.

        That cannot be: a marker ends what its producer has begun. Bool, shape (n,).
        """
        spans = np.zeros(len(rows), np.bool_)
        is_marker = are_transactional(rows) & (rows["attributes"] & byte_layout.CONTROL_MASK != 0)
        if not len(self) or not is_marker.any():
            return spans
        for producer_id in np.unique(rows["producer_id"][is_marker]).tolist():
            if producer_id not in self._ranges:
                continue
            start, end = self._ranges[producer_id]
            markers = np.flatnonzero(is_marker & (rows["producer_id"] == producer_id))
            offsets = rows["base_offset"][markers]
            at = np.searchsorted(self._first_offsets[start:end], offsets, side="right") - 1
            highest = np.maximum.accumulate(self._last_offsets[start:end])
            spans[markers] = (at >= 0) & (highest[np.maximum(at, 0)] > offsets)
        return spans


NONE = AbortedTxns(np.empty(0, byte_layout.ABORTED_TXN_DTYPE))


def collect_aborted(
    indexes: Iterable[tuple[int, Callable[[], bytes]]],
    *,
    start_offset: int,
    end_offset: int | None,
    known: bytes = b"",
) -> AbortedTxns:
    """Return the aborted transactions that reach into a range of offsets.

    Args:
        indexes: base offset of a segment and a function that returns its transaction index (empty without one), in the
            order of the segments, from the one that holds *start_offset*. Read only as far as needed.
        start_offset: where the range begins.
        end_offset: of the range, exclusive; None for the end of the log.
        known: further entries, from another source.

    Raises:
        FormatError: an index is malformed.

    Kafka: LocalLog.collectAbortedTransactions: the search ends at an entry whose last stable offset is not below the
    end.
    """
    parts = [view_transaction_index(known)]
    for base_offset, read in indexes:
        data = read()
        if not data:
            continue
        if len(data) % ENTRY_BYTES:
            raise FormatError(f"{len(data)} bytes are not a multiple of {ENTRY_BYTES}", position=len(data))
        check_transaction_index(data, base_offset, is_low_byte_read=True)
        entries = view_transaction_index(data)
        is_last = np.zeros(len(entries), np.bool_)
        is_within = entries["last_offset"] >= start_offset
        if end_offset is not None:
            is_last = entries["last_stable_offset"] >= end_offset
            is_within &= entries["first_offset"] < end_offset
        if is_last.any():
            is_within[int(np.argmax(is_last)) + 1 :] = False
        parts.append(entries[is_within])
        if is_last.any():
            break
    return AbortedTxns(np.concatenate(parts))
