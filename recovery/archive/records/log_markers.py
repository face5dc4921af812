"""Transactions as the log itself shows them: from a producer's first batch to the marker that ends it.

Kafka: ProducerAppendInfo.append, appendEndTxnMarker.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from native.batch_headers import HeaderRows
from segfmt import byte_layout
from segfmt.control_record import read_end_transaction_marker
from segfmt.errors import FormatError
from segfmt.transaction_index import Entries

_KEY_BYTES_VARINT = 8
"""Of the four bytes of a marker's key: version and type."""
_TYPE_POSITION = byte_layout.RECORDS_POSITION + 7
"""In a batch with one uncompressed marker, as every broker writes it."""


class TransactionWalk:
    """Goes through the batches of consecutive segments, and notes what was aborted.

    Attributes:
        begins: first offset of the open transaction of each producer, as far as it was seen.
        ended: the producers of which a marker was seen, and no batch of theirs was missed since.
        end_offset: after the last batch.
    """

    def __init__(self) -> None:
        self.begins: dict[int, int] = {}
        self.ended: set[int] = set()
        self.end_offset = 0

    def skip(self) -> None:
        """Note that batches are passed over, so that nothing is known of what is open."""
        self.begins.clear()
        self.ended.clear()

    def take(self, octets: npt.NDArray[np.uint8], origin: int, rows: HeaderRows) -> Entries:
        """Return the transactions that end in *rows* by an abort, ABORTED_TXN_DTYPE, without last stable offset.

        The first offset is -1 for a marker whose transaction has no batch here, or began before what was seen.

        Args:
            octets: uint8, shape (n,): a part of a log that holds all of *rows*.
            origin: position of its first byte in the log.
            rows: HEADER_ROW_DTYPE, in order, with right checksums.
        """
        attributes = rows["attributes"]
        self.end_offset = max(self.end_offset, int(rows["last_offset"][-1]) + 1)
        of_txns = (rows["magic"] >= byte_layout.MAGIC_V2) & (attributes & byte_layout.TRANSACTIONAL_MASK != 0)
        if not of_txns.any():
            return np.empty(0, byte_layout.ABORTED_TXN_DTYPE)
        rows = rows[of_txns]
        rows = rows[np.argsort(rows["producer_id"], kind="stable")]
        producer_ids, offsets = rows["producer_id"], rows["base_offset"]
        is_marker = rows["attributes"] & byte_layout.CONTROL_MASK != 0
        is_new_producer = np.diff(producer_ids, prepend=producer_ids[0] - 1) != 0
        is_start = is_new_producer.copy()
        is_start[1:] |= is_marker[:-1]
        starts = np.flatnonzero(is_start)
        start_of = starts[np.cumsum(is_start) - 1]
        found = []
        for number in np.flatnonzero(is_marker).tolist():
            if not _is_abort(octets, origin, rows[number]):
                continue
            start, producer_id = int(start_of[number]), int(producer_ids[number])
            begin = self.begins.get(producer_id) if is_new_producer[start] else None
            if begin is None and start < number:
                begin = int(offsets[start])
            found.append((0, producer_id, -1 if begin is None else begin, int(offsets[number]), 0))
        self._go_on(producer_ids, offsets, is_marker, np.flatnonzero(is_new_producer), start_of)
        return np.array(found, byte_layout.ABORTED_TXN_DTYPE)

    def _go_on(
        self,
        producer_ids: npt.NDArray[np.int64],
        offsets: npt.NDArray[np.int64],
        is_marker: npt.NDArray[np.bool_],
        firsts: npt.NDArray[np.int64],
        start_of: npt.NDArray[np.int64],
    ) -> None:
        """Note the transactions that are open after the rows, which are grouped by producer from *firsts* on."""
        lasts = np.append(firsts[1:], len(producer_ids)) - 1
        for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
            producer_id, start = int(producer_ids[first]), int(start_of[last])
            if is_marker[last] or start > first:
                self.begins.pop(producer_id, None)
                self.ended.add(producer_id)
            if not is_marker[last]:
                self.begins.setdefault(producer_id, int(offsets[start]))


def _is_abort(octets: npt.NDArray[np.uint8], origin: int, row: np.void) -> bool:
    """Return whether a control batch aborts its transaction."""
    start = int(row["position"]) - origin
    head = octets[start + byte_layout.RECORDS_POSITION : start + _TYPE_POSITION + 2].tolist()
    size, _, timestamp_delta, offset_delta, key_bytes = head[:5]
    if size < 0x80 and not timestamp_delta and not offset_delta and key_bytes == _KEY_BYTES_VARINT:
        return bool(head[-2] << 8 | head[-1] == byte_layout.CONTROL_TYPE_ABORT)
    try:
        marker = read_end_transaction_marker(octets[start : start + int(row["size_bytes"])].tobytes(), 0)
    except FormatError:
        return False
    return marker is not None and marker.is_abort
