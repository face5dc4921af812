"""The result of scanning one segment: arrays and integers, picklable, small whatever the segment's size.

Nothing here depends on what precedes the segment; the fold joins scans in base-offset order.
"""

from __future__ import annotations

import enum
from typing import Annotated, Final, NamedTuple

import numpy as np
import numpy.typing as npt


class Stop(enum.IntEnum):
    """Why a scan ended; what `stop_detail` holds is in parentheses.

    For the first ones (END .. CRC_MISMATCH and INVALID_CONTROL) Kafka's recovery continues after the loop:
    it cuts the log at `valid_bytes` and closes the indexes. The others end it with an exception.
    """

    END = 0
    """17 bytes or fewer are left (0, 0)."""
    TORN = 1
    """The batch reaches beyond the file (its length field, the bytes present after that field)."""
    BAD_LENGTH = 2
    """The length field is impossible (its value, the least possible). Kafka: CorruptRecordException."""
    CRC_MISMATCH = 3
    """(the stored checksum, the computed one). Kafka: CorruptRecordException."""
    INVALID_CONTROL = 4
    """An undecodable control batch: it is kept, what follows it is cut (producer id, base offset).
    Kafka: InvalidRecordException."""
    OFFSET_OVERFLOW = 5
    """The last offset has no relative offset (last offset, base offset of the segment).
    Kafka: LogSegmentOffsetOverflowException."""
    INDEX_FULL = 6
    """(entries, the most allowed). Kafka: IllegalArgumentException from OffsetIndex.append."""
    INVALID_OFFSET = 7
    """The offset index does not ascend (the offset, the last one in the index). Kafka:
    InvalidOffsetException."""
    TIME_INDEX_FULL = 8
    """(entries, the most allowed; the last slot is reserved for the end). Kafka:
    IllegalArgumentException."""
    TIME_INDEX_INVALID_OFFSET = 9
    """The time index does not ascend (the offset of the greatest timestamp, the last one in the index).
    `stop_position` is the batch with that timestamp; at an index point or at the very end. Kafka:
    InvalidOffsetException."""
    INVALID_TXN = 10
    """A batch outside a transaction while its producer has one open (producer id, base offset).
    Kafka: InvalidTxnStateException."""
    CONTROL_FATAL = 11
    """A control batch that ends Kafka (producer id, base offset)."""
    SHORT_HEADER = 12
    """Only without CRC check: a record batch's header reaches beyond the file (total bytes, bytes present).
    Kafka: KafkaException(EOFException) from FileChannelRecordBatch.loadBatchHeader."""
    CONTROL_PAUSED = 13
    """A control batch needs the caller's decision (producer id, base offset)."""


class ControlKind(enum.IntEnum):
    """The kind of a control batch that the kernel leaves to its caller."""

    MARKER = 1
    """An end-of-transaction marker."""
    NOTHING = 2
    """No records: Kafka makes an empty entry for an unknown producer and changes nothing else."""
    INVALID = 3
    """Kafka: InvalidRecordException; the batch is kept, what follows it is cut."""
    FATAL = 4
    """It ends Kafka (unknown control type, null key or value, short value, unknown codec)."""


class TxnEventKind(enum.IntEnum):
    """What a row of `RawScan.txn_events` stands for."""

    BEGIN = 1
    """First transactional data batch of the producer since the segment's start or its last marker."""
    NON_TRANSACTIONAL = 2
    """First data batch outside a transaction, before any BEGIN or MARKER of the producer in this segment:
    fatal if the producer came into the segment with an open transaction."""
    INVALID_TXN = 3
    """Data batch outside a transaction while one is open by a BEGIN of this segment; the scan stops there."""
    MARKER = 4
    """End-of-transaction marker."""
    ABORTED = 5
    """A settled transaction that was aborted, in the order of its marker: `offset` is where it begins, `last_offset`
    the base offset of its marker."""


PRODUCER_DTYPE: Final = np.dtype(
    [
        ("producer_id", "<i8"),
        ("last_offset", "<i8"),  # of the last data batch; -1 without one
        (
            "timestamp_ms",
            "<i8",
        ),  # of the last event: data: the batch's maxTimestamp; marker: the record's; else -1
        ("data_timestamp_ms", "<i8"),  # of the last data batch; -1 without one
        ("last_sequence", "<i4"),  # of the last data batch; -1 without one
        ("offset_delta", "<i4"),  # of the last data batch; 0 without one
        ("coordinator_epoch", "<i4"),  # of the last marker; -1 without one
        ("first_epoch", "<i2"),  # of the first event; -1 without one
        ("epoch", "<i2"),  # of the last event; -1 without one
        ("has_data", "?"),
        ("has_marker", "?"),
        (
            "cleared",
            "?",
        ),  # the epoch changed between two events after the last data batch (or anywhere, without data)
    ]
)
"""One producer, in order of first appearance. An event is a data batch or a marker. A row with neither
has_data nor has_marker comes from a control batch without records: an entry for a producer that has none,
otherwise nothing."""

TXN_EVENT_DTYPE: Final = np.dtype(
    [
        ("kind", "u1"),  # TxnEventKind
        ("producer", "<i4"),  # row in `producers`
        ("offset", "<i8"),  # the batch's base offset
        ("last_offset", "<i8"),
        ("position", "<i8"),  # of the batch in the file
        ("marker_type", "i1"),  # 0 abort, 1 commit; -1 unless MARKER or ABORTED
        ("coordinator_epoch", "<i4"),  # -1 unless MARKER or ABORTED
        ("epoch", "<i2"),  # the batch's producer epoch
        # MARKER, ABORTED: where the first of the other transactions begins that are open at that point and may be
        # settled later; -1 without one
        ("oldest_other_offset", "<i8"),
    ]
)

TIME_INDEX_ROW_DTYPE: Final = np.dtype([("timestamp_ms", "<i8"), ("relative_offset", "<i4")])


class RawScan(NamedTuple):
    """The scan of one segment.

    `valid_bytes` is Kafka's counter at the end of its loop: after the last whole batch; after the batch
    itself for INVALID_CONTROL, INVALID_TXN, CONTROL_FATAL and CONTROL_PAUSED; at the batch for the stops of
    the index rules.
    """

    stop: Stop
    valid_bytes: int
    stop_position: int
    """Position of the batch that stopped the scan (for END and TORN, of the first byte that is in no batch)."""
    stop_detail: tuple[int, int]
    batch_count: int
    """Batches before `valid_bytes`."""
    legacy_batch_count: int
    """Those of them with magic below 2."""
    last_offset: int
    """Of the last of these batches; -1 without one."""
    max_timestamp_ms: int
    """-1 without one, as Kafka's TimeIndex.lastEntry of an empty index."""
    max_timestamp_offset: int
    """Last offset of the batch with it; the segment's base offset without one."""
    offset_index: Annotated[npt.NDArray[np.int32], "(2,)<i4"]
    """int32, shape (n, 2): relative offset, position."""
    time_index: Annotated[npt.NDArray[np.void], TIME_INDEX_ROW_DTYPE]
    """TIME_INDEX_ROW_DTYPE, shape (n,); with the final entry if Kafka gets to write it."""
    epochs: Annotated[npt.NDArray[np.int64], "(2,)<i8"]
    """int64, shape (n, 2): leader epoch (>= 0, ascending), base offset of its first batch (negative: Kafka
    fails if the epoch is above its cache's)."""
    epoch_positions: npt.NDArray[np.int64]
    """int64, shape (n,): position of that batch."""
    producers: Annotated[npt.NDArray[np.void], PRODUCER_DTYPE]
    """PRODUCER_DTYPE, shape (n,)."""
    txn_events: Annotated[npt.NDArray[np.void], TXN_EVENT_DTYPE]
    """TXN_EVENT_DTYPE, shape (n,), in log order. Left out are:

    * markers that end nothing: their producer has had a marker before in this segment, and no batch in a
      transaction since;
    * the events of *settled* transactions: begun after a marker of their producer in this segment, and ended in it.
      Whatever was open before the segment, they leave no trace, as long as no two of them begin at the same offset.
      Those that were aborted have one event each."""
    producer_end_offset: int
    """lastOffset + 1 of the last record batch that Kafka's producer state took in; -1 without one."""
    txns_in_order: bool = True
    """Whether each transaction of this segment begins at a higher offset than all before it. From the first one that
    does not, none is settled."""
    settled_txn_count: int = 0
    first_settled_offset: int = -1
    """The lowest offset at which a settled transaction begins; -1 without one."""
    last_settled_offset: int = -1
    """The highest one."""
    gap_count: int = 0
    """Batches of magic 2 whose base offset is above the one after the batch before them."""
