"""Where transactions begin and end in a scan, and what no transaction allows.

Kafka: ProducerAppendInfo, ProducerStateManager.completeTxn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from native.raw_scan import RawScan, TxnEventKind

_EVENT_FIELDS = ("kind", "producer", "offset", "position", "marker_type", "oldest_other_offset")
# Plain integers: comparing with an enum's member costs more than all the rest that is done for an event.
_BEGIN, _NON_TRANSACTIONAL = int(TxnEventKind.BEGIN), int(TxnEventKind.NON_TRANSACTIONAL)


class InvalidTxnStateError(Exception):
    """A producer does what no transaction allows; the text names what Kafka throws for it."""

    def __init__(self, producer_id: int, position: int, what: str) -> None:
        super().__init__(f"producer {producer_id} {what}")
        self.producer_id = producer_id
        self.position = position

    @classmethod
    def of_write(cls, producer_id: int, position: int) -> InvalidTxnStateError:
        """It wrote without a transaction while its transaction was open. Kafka: ProducerAppendInfo.appendDataBatch."""
        what = "writes outside its open transaction (InvalidTxnStateException stops the broker)"
        return cls(producer_id, position, what)

    @classmethod
    def of_end(cls, producer_id: int, position: int, first_offset: int) -> InvalidTxnStateError:
        """It ends a transaction that nobody has open. Kafka: ProducerStateManager.completeTxn."""
        what = f"ends a transaction that began at offset {first_offset}, where none is open"
        return cls(producer_id, position, f"{what} (IllegalArgumentException stops the broker)")


class TxnEnd(NamedTuple):
    """A marker that ends a transaction.

    Attributes:
        first_offset: where the transaction began, by the producer's own account.
        position: of the marker in the scanned bytes.
        marker_type: CONTROL_TYPE_ABORT or CONTROL_TYPE_COMMIT.
        oldest_other_offset: where the first transaction begins that is open beside it and that the scan has settled;
            -1 without one.
    """

    producer_id: int
    first_offset: int
    marker_offset: int
    position: int
    marker_type: int
    oldest_other_offset: int


def follow_transactions(
    scan: RawScan,
    producer_ids: list[int],
    open_txns: dict[int, int],
    begin: Callable[[int, int], object],
    complete: Callable[[TxnEnd], object],
) -> None:
    """Tell of the transactions that begin and end in *scan*, in log order.

    Args:
        producer_ids: by their places in the scan.
        open_txns: first offsets by producer id, -1 for none; brought to what is open at the end of the scan.
        begin: called with the producer's place and the first offset.
        complete: called with each end of a transaction that is open; markers without one are passed over.

    Raises:
        InvalidTxnStateError: a producer writes outside its open transaction.
    """
    # Column by column: lists of integers are made much faster than lists of rows.
    columns = (scan.txn_events[name].tolist() for name in _EVENT_FIELDS)
    for kind, index, offset, position, marker_type, oldest_other in zip(*columns, strict=True):
        producer_id = producer_ids[index]
        first_offset = open_txns.get(producer_id, -1)
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
