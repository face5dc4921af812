"""The outcome of `archive retention`, as values, JSON and text."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from recovery.archive.tiering.partition_state import PartitionState
from recovery.archive.tiering.retention import Deletion, Expiry, Retention, expire, never_deleted
from recovery.printable import printable
from recovery.quantity import bytes_text, count_text
from segfmt.kafka_uuid import format_uuid

VERSION = 1
_FIXED_IN = "4.3.2"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetainedPartition:
    """What brokers will delete of a partition; all figures but the name are None if that cannot be known.

    Attributes:
        retention: its settings.
        now: what its leader deletes, if it runs.
        at_next_start: what a broker before 4.3.2 deletes when it has been started anew, if it comes to look at
            retention before it has found out what is copied.
        never_deleted_bytes: of segments that no look at retention will delete, as long as the log's epochs stay.
    """

    topic: str
    topic_id: str
    partition: int
    retention: Retention | None = None
    log_start_offset: int | None = None
    now: Expiry | None = None
    at_next_start: Expiry | None = None
    never_deleted_bytes: int | None = None

    @property
    def in_retention(self) -> list[Deletion]:
        """What is deleted at the next start alone: without right."""
        if self.now is None or self.at_next_start is None:
            return []
        rightly = {deletion.segment.segment_id for deletion in self.now.deletions}
        return [one for one in self.at_next_start.deletions if one.segment.segment_id not in rightly]

    @property
    def in_retention_bytes(self) -> int:
        """Bytes of what is deleted without right."""
        return sum(one.segment.size_bytes for one in self.in_retention)


def retained(state: PartitionState, *, now_ms: int) -> RetainedPartition:
    """Return what brokers will delete of a partition at *now_ms*."""
    topic_id = format_uuid(state.topic_id)
    if state.cache is None or state.log is None or state.retention is None:
        return RetainedPartition(topic=state.topic, topic_id=topic_id, partition=state.partition)
    retention = Retention(state.retention.retention_ms, state.retention.retention_bytes)
    return RetainedPartition(
        topic=state.topic,
        topic_id=topic_id,
        partition=state.partition,
        retention=retention,
        log_start_offset=state.log.log_start_offset,
        now=expire(state.cache, state.log, retention, now_ms=now_ms),
        at_next_start=expire(state.cache, state.log, retention, now_ms=now_ms, knows_what_is_copied=False),
        never_deleted_bytes=sum(one.size_bytes for one in never_deleted(state.cache, state.log)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionReport:
    """What `archive retention` found.

    Attributes:
        now_ms: the clock by which retention was judged.
        partitions: by name.
        warnings: what is not known, and why.
    """

    now_ms: int
    duration_ms: int
    partitions: tuple[RetainedPartition, ...]
    warnings: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """4 if a partition is not known, 2 if one loses data that is in retention, else 0."""
        if any(one.now is None for one in self.partitions):
            return 4
        return 2 if any(one.in_retention_bytes for one in self.partitions) else 0

    def to_json(self) -> str:
        """Return the report as one JSON object."""
        return json.dumps(
            {
                "version": VERSION,
                "command": "archive retention",
                "exitCode": self.exit_code,
                "nowMs": self.now_ms,
                "durationMs": self.duration_ms,
                "warnings": list(self.warnings),
                "partitions": [_partition(one) for one in self.partitions],
            },
            indent=2,
            ensure_ascii=False,
        )

    def to_text(self) -> str:
        """Return the report for a person: what is lost without right first."""
        lines = [f"WARNING: {printable(text)}" for text in self.warnings]
        lines += [_loss(one) for one in self.partitions if one.in_retention]
        for one in self.partitions:
            lines.append(f"{printable(one.topic)}-{one.partition}: {_words(one)}")
        known = [one.now for one in self.partitions if one.now is not None]
        count = sum(len(expiry.deletions) for expiry in known)
        size_bytes = sum(expiry.size_bytes for expiry in known)
        lines.append(
            f"{count_text(len(self.partitions), 'tiered partition')}: {count_text(count, 'segment')}, "
            f"{bytes_text(size_bytes)}, to be deleted. "
            "Nothing was deleted."
        )
        return "\n".join(lines)


def _partition(one: RetainedPartition) -> dict[str, Any]:
    retention, now, start = one.retention, one.now, one.at_next_start
    return {
        "topic": one.topic,
        "topicId": one.topic_id,
        "partition": one.partition,
        "retentionMs": None if retention is None else retention.time_ms,
        "retentionBytes": None if retention is None else retention.size_bytes,
        "logStartOffset": one.log_start_offset,
        "newLogStartOffset": None if now is None else now.log_start_offset,
        "deletions": None if now is None else _deletions(now.deletions),
        "atNextStart": None
        if start is None
        else {
            "newLogStartOffset": start.log_start_offset,
            "deletions": _deletions(start.deletions),
            "inRetentionBytes": one.in_retention_bytes,
        },
        "neverDeletedBytes": one.never_deleted_bytes,
    }


def _deletions(deletions: Iterable[Deletion]) -> list[dict[str, Any]]:
    return [
        {
            "segmentId": format_uuid(segment.segment_id),
            "startOffset": segment.start_offset,
            "endOffset": segment.end_offset,
            "sizeBytes": segment.size_bytes,
            "maxTimestampMs": segment.max_timestamp_ms,
            "reason": reason.value,
        }
        for segment, reason in deletions
    ]


def _loss(one: RetainedPartition) -> str:
    assert one.retention is not None
    segments = one.in_retention
    first = min(deletion.segment.start_offset for deletion in segments)
    last = max(deletion.segment.end_offset for deletion in segments)
    return (
        f"LOSS {printable(one.topic)}-{one.partition}: a broker before {_FIXED_IN} may delete "
        f"{count_text(len(segments), 'segment')} in retention when it starts, {bytes_text(one.in_retention_bytes)}, "
        f"offsets {first} to {last}: until it knows what is copied it counts local segments twice (KAFKA-20732). "
        f"Remedy: before the start, raise retention.bytes of the topic, {one.retention.size_bytes} now, by the bytes "
        "of its local log, and put it back once the broker has copied a segment; or start "
        f"{_FIXED_IN} or a later version"
    )


def _words(one: RetainedPartition) -> str:
    if one.now is None or one.retention is None:
        return "not known"
    kept = (
        f"retention.ms={one.retention.time_ms}, retention.bytes={one.retention.size_bytes}; the log begins at "
        f"{one.log_start_offset}"
    )
    if not one.now.deletions:
        return f"nothing to be deleted; {kept}"
    reasons = [deletion.reason for deletion in one.now.deletions]
    counts = ", ".join(f"{reasons.count(reason)} by {reason.value}" for reason in dict.fromkeys(reasons))
    return f"to be deleted: {counts}, {bytes_text(one.now.size_bytes)}; {kept}, and at {one.now.log_start_offset} then"
