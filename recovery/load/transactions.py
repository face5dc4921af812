"""Where transactions begin and end in a scan, and what violates their rules.

Kafka: ProducerAppendInfo, ProducerStateManager.completeTxn.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from native.raw_scan import RawScan, TxnEventKind
from segfmt.byte_layout import ABORTED_TXN_DTYPE
from segfmt.java_text import LONG_MAX

_EVENT_FIELDS = ("kind", "producer", "offset", "position", "marker_type", "oldest_other_offset")
# Plain integers: a comparison with an enum's member costs more than all else that is done for an event.
_BEGIN, _NON_TRANSACTIONAL = int(TxnEventKind.BEGIN), int(TxnEventKind.NON_TRANSACTIONAL)
_ABORTED = int(TxnEventKind.ABORTED)


class InvalidTxnStateError(Exception):
    """A producer violates the rules of transactions; the text names what Kafka throws for it."""

    def __init__(self, producer_id: int, position: int, what: str) -> None:
        super().__init__(f"producer {producer_id} {what}")
        self.producer_id = producer_id
        self.position = position

    @classmethod
    def of_write(cls, producer_id: int, position: int) -> InvalidTxnStateError:
        """A write outside the open transaction of its producer. Kafka: ProducerAppendInfo.appendDataBatch."""
        what = "writes outside its open transaction (InvalidTxnStateException stops the broker)"
        return cls(producer_id, position, what)

    @classmethod
    def of_end(cls, producer_id: int, position: int, first_offset: int) -> InvalidTxnStateError:
        """The end of a transaction that no producer has open. Kafka: ProducerStateManager.completeTxn."""
        what = f"ends a transaction that began at offset {first_offset}, where none is open"
        return cls(producer_id, position, f"{what} (IllegalArgumentException stops the broker)")


class TxnEnd(NamedTuple):
    """A marker that ends a transaction.

    Attributes:
        first_offset: where the transaction began, according to the state of the producer.
        position: of the marker in the scanned bytes.
        marker_type: CONTROL_TYPE_ABORT or CONTROL_TYPE_COMMIT.
        oldest_other_offset: where the first of the other transactions begins that are open then and that the scan has
            settled; -1 without one.
    """

    producer_id: int
    first_offset: int
    marker_offset: int
    position: int
    marker_type: int
    oldest_other_offset: int


class SettledAborts:
    """The aborted transactions that a scan has settled, combined with those that were open at the same time.

    The last stable offset at an abort depends on the transactions that others had open then: those that the scan has
    settled itself, which it states, and those of the fold. The latter change only at events, so all that were aborted
    between two events are updated at once.

    Args:
        scan: the scan that has settled them.
        ongoing: first offsets of open transactions, with their producers; read anew each time.
    """

    def __init__(self, scan: RawScan, ongoing: dict[int, int]) -> None:
        events = scan.txn_events.take((scan.txn_events["kind"] == _ABORTED).nonzero()[0])
        self._ongoing = ongoing
        self._reached = 0
        self._positions: list[int] = events["position"].tolist()
        self._producer_ids = scan.producers["producer_id"][events["producer"]]
        oldest_others = events["oldest_other_offset"]
        self._stable_offsets = np.where(oldest_others >= 0, oldest_others, LONG_MAX)
        self._first_offsets, self._marker_offsets = events["offset"], events["last_offset"]

    def reach(self, position: int) -> None:
        """Take into account what is open now for all that were aborted before *position*."""
        begin, end = self._reached, bisect_left(self._positions, position, self._reached)
        self._reached = end
        if begin == end or not self._ongoing:
            return
        least = min(self._ongoing)
        owner = self._ongoing[least]
        least_of_others = min(
            (offset for offset, producer_id in self._ongoing.items() if producer_id != owner),
            default=LONG_MAX,
        )
        bounds = np.where(self._producer_ids[begin:end] == owner, least_of_others, least)
        self._stable_offsets[begin:end] = np.minimum(self._stable_offsets[begin:end], bounds)

    def merged(self, aborted: npt.NDArray[np.void], positions: list[int]) -> npt.NDArray[np.void]:
        """Return these and *aborted*, ABORTED_TXN_DTYPE, whose markers are at *positions*, in the order of the log."""
        if not self._positions:
            return aborted
        rows = np.zeros(len(self._positions), ABORTED_TXN_DTYPE)
        rows["producer_id"], rows["first_offset"] = self._producer_ids, self._first_offsets
        rows["last_offset"] = self._marker_offsets
        is_alone = self._stable_offsets == LONG_MAX
        rows["last_stable_offset"] = np.where(is_alone, self._marker_offsets + 1, self._stable_offsets)
        if not len(aborted):
            return rows
        order = np.argsort(np.array(self._positions + positions, np.int64), kind="stable")
        return np.concatenate((rows, aborted))[order]


def follow_transactions(
    scan: RawScan,
    producer_ids: list[int],
    open_txns: dict[int, int],
    begin: Callable[[int, int], object],
    complete: Callable[[TxnEnd], object],
    reach: Callable[[int], object] = lambda _: None,
) -> None:
    """Report the transactions that begin and end in *scan*, in log order, except settled ones.

    Args:
        producer_ids: by their rows in the scan.
        open_txns: first offsets by producer id, -1 for none; updated to what is open at the end of the scan.
        begin: called with the producer's row and the first offset.
        complete: called with each end of an open transaction; markers without one are ignored.
        reach: called with the position of each event before it is reported.

    Raises:
        InvalidTxnStateError: a producer writes outside its open transaction.
    """
    # Column by column: lists of integers are made much faster than lists of rows.
    events = scan.txn_events
    # Most producers are idempotent and have no transaction: what they write outside of one does not matter.
    kinds = events["kind"]
    is_relevant = kinds != _NON_TRANSACTIONAL
    open_ids = {producer_id for producer_id, first_offset in open_txns.items() if first_offset >= 0}
    if open_ids:
        is_open = np.array([producer_id in open_ids for producer_id in producer_ids], np.bool_)
        is_relevant |= is_open[events["producer"]]
    events = events.take((is_relevant & (kinds != _ABORTED)).nonzero()[0])
    if not len(events):
        return
    columns = (events[name].tolist() for name in _EVENT_FIELDS)
    for kind, index, offset, position, marker_type, oldest_other in zip(*columns, strict=True):
        producer_id = producer_ids[index]
        first_offset = open_txns.get(producer_id, -1)
        reach(position)
        if kind == _BEGIN:
            if first_offset < 0:
                open_txns[producer_id] = offset
                begin(index, offset)
        elif kind == _NON_TRANSACTIONAL:
            if first_offset >= 0:
                raise InvalidTxnStateError.of_write(producer_id, position)
        elif first_offset >= 0:
            complete(TxnEnd(producer_id, first_offset, offset, position, marker_type, oldest_other))
            open_txns[producer_id] = -1
