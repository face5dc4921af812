"""The outcome of `archive retention`, as values, JSON and text. It names each segment, so JSON is made in parts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from recovery.archive.remote_size import held_size
from recovery.archive.tiering.deletion_table import DeletionTable
from recovery.archive.tiering.partition_state import PartitionState
from recovery.archive.tiering.partition_warning import warning_lines
from recovery.archive.tiering.retention import OF_LOG, Expiry, Retention, expire, never_deleted
from recovery.archive.tiering.tiered_log import TieredLog
from recovery.printable import printable
from recovery.quantity import bytes_text, count_text
from segfmt.java_text import LONG_MAX
from segfmt.kafka_uuid import format_uuid

VERSION = 1
_FIXED_IN = "4.3.2"
_NOTHING: Final = DeletionTable.of(())
_ROWS_IN_A_PART: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Foretold:
    """What one look at retention does.

    Attributes:
        deletions: in their order.
        log_start_offset: where the log begins afterwards.
    """

    deletions: DeletionTable
    log_start_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RetainedPartition:
    """What brokers will delete of a partition; None is what cannot be known.

    Attributes:
        is_deleted: whether its topic was deleted: then no broker deletes what is left of it.
        retention: its settings.
        is_copy_disabled: whether nothing more is copied: then a broker never finds out what is copied.
        now: what its leader deletes, if it runs.
        at_next_start: what a broker before 4.3.2 deletes when it has been started anew, if it comes to look at
            retention before it has found out what is copied.
        in_retention: what is deleted at the next start alone: without right.
        safe_retention_bytes: the `retention.bytes` with which nothing of that would be, which is the present one if
            that does; -1 if there is no limit.
        never_deleted_bytes: of segments that no look at retention will delete, as long as the log's epochs stay.
    """

    topic: str
    topic_id: str
    partition: int
    is_deleted: bool = False
    retention: Retention | None = None
    is_copy_disabled: bool | None = None
    log_start_offset: int | None = None
    now: Foretold | None = None
    at_next_start: Foretold | None = None
    in_retention: DeletionTable = _NOTHING
    safe_retention_bytes: int | None = None
    never_deleted_bytes: int | None = None


def retained(state: PartitionState, *, now_ms: int) -> RetainedPartition:
    """Return what brokers will delete of a partition at *now_ms*."""
    topic_id = format_uuid(state.topic_id)
    if state.is_deleted:
        return RetainedPartition(
            topic=state.topic,
            topic_id=topic_id,
            partition=state.partition,
            is_deleted=True,
            never_deleted_bytes=None if state.cache is None else held_size(state.cache),
        )
    log, settings = state.log, state.retention
    known = RetainedPartition(
        topic=state.topic,
        topic_id=topic_id,
        partition=state.partition,
        retention=None if settings is None else Retention(settings.retention_ms, settings.retention_bytes),
        is_copy_disabled=None if settings is None else settings.is_copy_disabled or state.is_disabled,
        log_start_offset=None if log is None else log.log_start_offset,
    )
    cache, retention = state.own_cache, known.retention
    if state.cache is None or cache is None or log is None or retention is None:
        return known
    rightly = expire(cache, log, retention, now_ms=now_ms)
    anew = expire(cache, log, retention, now_ms=now_ms, knows_what_is_copied=False)
    now = _foretold(rightly)
    # Mostly the same segments: then they are held once
    at_next_start = now if anew == rightly else _foretold(anew)
    in_retention = _NOTHING if at_next_start is now else _in_retention(rightly, anew)
    return replace(
        known,
        now=now,
        at_next_start=at_next_start,
        in_retention=in_retention,
        safe_retention_bytes=_safe_bytes(retention, log) if len(in_retention) else retention.size_bytes,
        never_deleted_bytes=held_size(state.cache)
        if state.is_disabled
        else sum(one.size_bytes for one in never_deleted(cache, log, rightly)),
    )


def _in_retention(rightly: Expiry, anew: Expiry) -> DeletionTable:
    """Return what is deleted of the log at a start alone; what else is deleted then is no part of it."""
    of_log = DeletionTable.of([one for one in anew.deletions if one.reason in OF_LOG])
    return of_log.without(rightly.deletions)


def _safe_bytes(retention: Retention, log: TieredLog) -> int:
    return min(retention.size_bytes + log.size_bytes, LONG_MAX)


def _foretold(expiry: Expiry) -> Foretold:
    return Foretold(deletions=DeletionTable.of(expiry.deletions), log_start_offset=expiry.log_start_offset)


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
        if any(one.now is None and not one.is_deleted for one in self.partitions):
            return 4
        return 2 if any(len(one.in_retention) for one in self.partitions) else 0

    def to_json(self) -> str:
        """Return the report as one JSON object."""
        return "".join(self.json_parts())

    def json_parts(self) -> Iterator[str]:
        """Yield the same in parts of bounded size."""
        head = {
            "version": VERSION,
            "command": "archive retention",
            "exitCode": self.exit_code,
            "nowMs": self.now_ms,
            "durationMs": self.duration_ms,
            "warnings": list(self.warnings),
        }
        yield _opened(head, "") + ',\n  "partitions": ['
        for number, one in enumerate(self.partitions):
            yield ",\n    " if number else "\n    "
            yield from _partition(one)
        yield "\n  ]\n}" if self.partitions else "]\n}"

    def to_text(self, verbosity: int = 0) -> str:
        """Return the report for a person: what is lost without right first, then where something is deleted.

        Args:
            verbosity: -1: what is lost without right alone; 1: each partition.
        """
        lines = list(warning_lines(self.warnings, verbosity))
        lines += self._losses()
        if verbosity < 0:
            return "\n".join(lines)
        lines += [
            f"{printable(one.topic)}-{one.partition}: {_words(one)}"
            for one in self.partitions
            if verbosity > 0 or one.now is None or len(one.now.deletions)
        ]
        known = [one.now for one in self.partitions if one.now is not None]
        count = sum(len(foretold.deletions) for foretold in known)
        size_bytes = sum(foretold.deletions.size_bytes for foretold in known)
        lines.append(
            f"{count_text(len(self.partitions), 'tiered partition')}: {count_text(count, 'segment')}, "
            f"{bytes_text(size_bytes)}, to be deleted{self._of_known(len(known))}. Nothing was deleted."
        )
        return "\n".join(lines)

    def _losses(self) -> Iterator[str]:
        """Yield what is lost without right, with a remedy for all partitions of a topic, whose setting it is."""
        losing = [one for one in self.partitions if len(one.in_retention)]
        safe_bytes: dict[str, int] = {}
        for one in losing:
            assert one.safe_retention_bytes is not None
            safe_bytes[one.topic] = max(safe_bytes.get(one.topic, 0), one.safe_retention_bytes)
        return (_loss(one, safe_bytes[one.topic]) for one in losing)

    def _of_known(self, known_count: int) -> str:
        """Return of how many partitions the sums are, if some are not known; empty if all are."""
        unknown_count = sum(one.now is None and not one.is_deleted for one in self.partitions)
        return f" of {known_count:,} of them ({unknown_count:,} not known)" if unknown_count else ""


def _partition(one: RetainedPartition) -> Iterator[str]:
    """Yield the JSON object of a partition, as it stands within the report."""
    retention, now, start = one.retention, one.now, one.at_next_start
    fields = {
        "topic": one.topic,
        "topicId": one.topic_id,
        "topicDeleted": one.is_deleted,
        "partition": one.partition,
        "retentionMs": None if retention is None else retention.time_ms,
        "retentionBytes": None if retention is None else retention.size_bytes,
        "copyDisabled": one.is_copy_disabled,
        "logStartOffset": one.log_start_offset,
        "newLogStartOffset": None if now is None else now.log_start_offset,
    }
    yield _opened(fields, " " * 4) + ',\n      "deletions": '
    yield from _deletions(now, " " * 6)
    yield ',\n      "atNextStart": '
    if start is None:
        yield "null"
    else:
        yield _opened({"newLogStartOffset": start.log_start_offset}, " " * 6) + ',\n        "deletions": '
        yield from _deletions(start, " " * 8)
        yield (
            f',\n        "inRetentionBytes": {one.in_retention.size_bytes}'
            f',\n        "safeRetentionBytes": {one.safe_retention_bytes}\n      }}'
        )
    yield f',\n      "neverDeletedBytes": {json.dumps(one.never_deleted_bytes)}\n    }}'


def _opened(fields: dict[str, Any], indent: str) -> str:
    """Return the JSON object of *fields* without its last line."""
    text = json.dumps(fields, indent=2, ensure_ascii=False).removesuffix("\n}")
    return text.replace("\n", f"\n{indent}")


def _deletions(foretold: Foretold | None, indent: str) -> Iterator[str]:
    """Yield the JSON array of the segments that are deleted: numbers, ids and reasons, of which none needs escapes."""
    if foretold is None:
        yield "null"
        return
    if not len(foretold.deletions):
        yield "[]"
        return
    field = f"\n{indent}    "
    for start in range(0, len(foretold.deletions), _ROWS_IN_A_PART):
        rows = [
            f'\n{indent}  {{{field}"segmentId": "{format_uuid(one.segment_id)}",'
            f'{field}"startOffset": {one.start_offset},'
            f'{field}"endOffset": {one.end_offset},'
            f'{field}"sizeBytes": {one.size_bytes},'
            f'{field}"maxTimestampMs": {one.max_timestamp_ms},'
            f'{field}"reason": "{one.reason.value}"\n{indent}  }}'
            for one in foretold.deletions[start : start + _ROWS_IN_A_PART]
        ]
        yield ("," if start else "[") + ",".join(rows)
    yield f"\n{indent}]"


def _loss(one: RetainedPartition, safe_bytes: int) -> str:
    assert one.retention is not None
    segments = one.in_retention
    first = min(segment.start_offset for segment in segments)
    last = max(segment.end_offset for segment in segments)
    may, until, back = "may delete", "until it has looked at what is copied", "then"
    with_local = ""
    if one.is_copy_disabled:
        may, until, back = (
            "deletes",
            "as long as copying is disabled",
            "when it is enabled again, and that is done",
        )
        # Kafka: LogConfig.validateRetentionConfigsWhenRemoteCopyDisabled
        with_local = " (and local.retention.bytes, if that is set, to the same at once)"
    return (
        f"LOSS {printable(one.topic)}-{one.partition}: a broker before {_FIXED_IN} {may} "
        f"{count_text(len(segments), 'segment')} in retention when it starts, {bytes_text(segments.size_bytes)}, "
        f"offsets {first} to {last}: {until} it counts local segments twice (KAFKA-20732). "
        f"Remedy: before the start, raise retention.bytes of the topic from {one.retention.size_bytes} to "
        f"{safe_bytes}{with_local}, and put it back {back}; or start {_FIXED_IN} or a later version"
    )


def _words(one: RetainedPartition) -> str:
    if one.is_deleted:
        return "the topic was deleted: no broker deletes what is left of it"
    if one.now is None or one.retention is None:
        return "not known"
    kept = (
        f"retention.ms={one.retention.time_ms}, retention.bytes={one.retention.size_bytes}; the log begins at "
        f"{one.log_start_offset}"
    )
    deletions = one.now.deletions
    if not len(deletions):
        return f"nothing to be deleted; {kept}"
    counts = ", ".join(f"{count:,} by {reason.value}" for reason, count in deletions.counts().items())
    size = bytes_text(deletions.size_bytes)
    moved = one.now.log_start_offset != one.log_start_offset
    then = f", and at {one.now.log_start_offset} then" if moved else ""
    return f"to be deleted: {counts}, {size}; {kept}{then}"
