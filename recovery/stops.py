"""What a scan's stop means: a cut, or a partition that the broker cannot load either.

One table of words, so that the report, the log lines and the refusals say the same.
"""

from __future__ import annotations

from native.raw_scan import RawScan, Stop
from recovery.errors import PartitionRefusedError

CUTTING_STOPS = frozenset({Stop.END, Stop.TORN, Stop.BAD_LENGTH, Stop.CRC_MISMATCH, Stop.INVALID_CONTROL})
OUT_OF_ORDER_STOPS = frozenset({Stop.INVALID_OFFSET, Stop.TIME_INDEX_INVALID_OFFSET})

_CUT_REASONS = {
    Stop.END: "too few bytes for a batch at the end",
    Stop.TORN: "the last batch is torn",
    Stop.BAD_LENGTH: "a batch length that cannot be",
    Stop.CRC_MISMATCH: "a batch whose CRC does not match",
    Stop.INVALID_CONTROL: "a control batch that does not parse",
    Stop.INVALID_OFFSET: "a batch whose offset is out of order",
    Stop.TIME_INDEX_INVALID_OFFSET: "a batch whose offset is out of order",
}

_REFUSALS = {
    Stop.BAD_LENGTH: (
        "a batch length that cannot be, behind the last index entry (CorruptRecordException stops the broker)",
        "run recover --force, which ignores the clean-shutdown marker: the tail is then cut",
    ),
    Stop.SHORT_HEADER: (
        "a batch shorter than its header (KafkaException stops the broker)",
        "run recover --force, which ignores the clean-shutdown marker: the tail is then cut",
    ),
    Stop.INVALID_OFFSET: (
        "a batch whose offset is out of order, in a segment without an index (InvalidOffsetException stops the broker)",
        "restore the partition from another replica",
    ),
    Stop.TIME_INDEX_INVALID_OFFSET: (
        "a batch whose offset is out of order, in a segment without an index (InvalidOffsetException stops the broker)",
        "restore the partition from another replica",
    ),
    Stop.INDEX_FULL: (
        "more index entries than segment.index.bytes holds (IllegalArgumentException stops the broker at every start)",
        "raise segment.index.bytes or index.interval.bytes of the topic",
    ),
    Stop.TIME_INDEX_FULL: (
        "more time index entries than segment.index.bytes holds "
        "(IllegalArgumentException stops the broker at every start)",
        "raise segment.index.bytes or index.interval.bytes of the topic",
    ),
    Stop.INVALID_TXN: (
        "a producer writes outside its open transaction (InvalidTxnStateException stops the broker)",
        "restore the partition from another replica",
    ),
    Stop.INVALID_CONTROL: (
        "a control batch that does not parse (InvalidRecordException stops the broker at every start)",
        "restore the partition from another replica",
    ),
    Stop.CONTROL_FATAL: (
        "a control batch with a good CRC and no sense: the broker stops at it at every start",
        "restore the partition from another replica",
    ),
}


def cut_reason(scan: RawScan) -> str:
    """Return in words why the bytes behind a stop are cut."""
    return _CUT_REASONS[scan.stop]


def refusal_of_stop(
    file: str, base_offset: int, scan: RawScan, *, while_loading: bool
) -> PartitionRefusedError:
    """Return the refusal for a stop from which the broker does not recover."""
    rule, remedy = _REFUSALS.get(
        scan.stop, (f"{scan.stop.name} (segment {base_offset})", "restore the partition from another replica")
    )
    when = " while the log is loaded" if while_loading else ""
    return PartitionRefusedError(file=file, position=scan.stop_position, rule=rule + when, remedy=remedy)
