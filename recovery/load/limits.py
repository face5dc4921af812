"""Sizes at which a broker stops: a log longer than it can address, an active index longer than it may map."""

from __future__ import annotations

from recovery.errors import PartitionRefusedError

MAX_LOG_BYTES = 2**31 - 1


def refuse_large_log(name: str, size_bytes: int) -> None:
    """Raise PartitionRefusedError if a broker cannot open a log of this size. Kafka: FileRecords."""
    if size_bytes > MAX_LOG_BYTES:
        raise PartitionRefusedError(
            file=name,
            position=MAX_LOG_BYTES,
            rule="segment-size",
            detail=f"a segment larger than {MAX_LOG_BYTES} bytes stops the broker (KafkaException)",
            remedy="restore the partition from another replica, or split the segment with a tool that rewrites batches",
        )


def refuse_large_index(name: str, size_bytes: int, entry_bytes: int, *, segment_index_bytes: int) -> None:
    """Raise PartitionRefusedError if a broker cannot map an active index of this size. Kafka: AbstractIndex.resize."""
    limit = segment_index_bytes // entry_bytes * entry_bytes
    size_bytes = size_bytes // entry_bytes * entry_bytes
    if size_bytes > limit:
        raise PartitionRefusedError(
            file=name,
            position=limit,
            rule="index-size",
            detail=f"the active index has {size_bytes} bytes, segment.index.bytes allows {limit} "
            "(IllegalArgumentException stops the broker)",
            remedy="raise segment.index.bytes of the topic, or move the index away: it is rebuilt",
        )
