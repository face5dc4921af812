"""What is known of a partition besides its files. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFacts:
    """What is known of a partition besides its files.

    Attributes:
        is_live: whether a broker holds the log dir.
        had_clean_shutdown: whether the marker is there.
        recovery_point, log_start_offset, high_watermark: offsets from the checkpoints' lines, None without a line.
        marked_ns: when the line of the high watermark was written, ns since the epoch; None where it need not be of
            this log as it is now: of a copy, or of another log of the partition.
        topic_id: that of the topic in the metadata log, None if unknown.
        is_topic_gone: whether a metadata log was read, and has no topic of this name.
        is_contiguous: whether no record is ever compacted away, so that a gap in the offsets is damage.
        is_metadata_log: whether it is `__cluster_metadata-0`, which no checkpoint and no marker concerns.
        is_preallocated: whether new logs get their full size at once.
        segment_index_bytes: `segment.index.bytes` of the topic, None if unknown.
        index_interval_bytes: `index.interval.bytes` of the topic, None if unknown.
        expiration_ms: `producer.id.expiration.ms`.
        is_archived: whether it is a copy without checkpoints, which counts as flushed.
    """

    path: str
    folder: str
    topic: str
    partition: int
    is_live: bool
    had_clean_shutdown: bool
    recovery_point: int | None
    log_start_offset: int | None
    high_watermark: int | None
    is_contiguous: bool
    marked_ns: int | None = None
    topic_id: UUID | None = None
    is_topic_gone: bool = False
    is_metadata_log: bool = False
    is_preallocated: bool = False
    segment_index_bytes: int | None = None
    index_interval_bytes: int | None = None
    is_deep: bool = False
    now_ms: int = 0
    expiration_ms: int = 86_400_000
    is_archived: bool = False
