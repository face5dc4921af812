"""What a leader's next look at retention deletes of the remote part of a log. Pure.

A broker goes through the epochs of the log, oldest first, and in each through the segments that were announced with it.
It deletes what ends before the log start, what is older than `retention.ms`, and what is too much for
`retention.bytes`, and stops at the first segment of the log that may stay. Segments that are no part of the log it
passes over; those of epochs before the log's first, as it begins by then, it deletes in the end.

Kafka: RemoteLogManager.RLMExpirationTask.cleanupExpiredRemoteLogSegments. Differs: a deletion that was begun counts
once, not once for each of its epochs.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from recovery.archive.remote.lineage import filter_epochs, is_within_leader_epochs, truncate_from_start
from recovery.archive.remote.remote_cache import RemoteLogCache
from recovery.archive.remote_size import lineage_size
from recovery.archive.tiering.tiered_log import NOTHING_COPIED, TieredLog
from segfmt.checkpoint import LeaderEpochEntry
from segfmt.remote_log_metadata import RemoteSegment, RemoteSegmentState

_STARTED, _FINISHED, _DELETING, _ = RemoteSegmentState


class DeletionReason(enum.StrEnum):
    """Why a broker deletes a segment."""

    TIME = "time"
    SIZE = "size"
    LOG_START = "log-start"
    UNFINISHED_DELETE = "unfinished-delete"
    UNREFERENCED = "unreferenced"


OF_LOG = frozenset({DeletionReason.TIME, DeletionReason.SIZE})
"""Why a segment of the log itself is deleted."""


class Deletion(NamedTuple):
    """A segment that will be deleted."""

    segment: RemoteSegment
    reason: DeletionReason


class Retention(NamedTuple):
    """How much of a log is to be kept; -1: without limit. Kafka: retention.ms, retention.bytes."""

    time_ms: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Expiry:
    """What one look at retention does.

    Attributes:
        deletions: in their order.
        log_start_offset: where the log begins afterwards.
    """

    deletions: tuple[Deletion, ...]
    log_start_offset: int

    @property
    def size_bytes(self) -> int:
        """Bytes of the segments that are deleted."""
        return sum(deletion.segment.size_bytes for deletion in self.deletions)


def expire(
    cache: RemoteLogCache,
    log: TieredLog,
    retention: Retention,
    *,
    now_ms: int,
    knows_what_is_copied: bool = True,
) -> Expiry:
    """Return what the leader of *log* deletes of its remote part, at *now_ms*.

    Args:
        cache: what the leader knows of the segments.
        knows_what_is_copied: False for a broker before 4.3.2 that has just loaded the log: until its first copy has
            begun it takes everything for local, and so counts twice what is in both places.
    """
    run = _Run(cache, log, retention, now_ms=now_ms, knows_what_is_copied=knows_what_is_copied)
    return run.expiry() if cache.segments else Expiry(deletions=(), log_start_offset=log.log_start_offset)


def never_deleted(cache: RemoteLogCache, log: TieredLog, expiry: Expiry) -> list[RemoteSegment]:
    """Return the segments that are no part of the log, and that its leader passes over as long as its epochs stay.

    Args:
        cache: what the leader knows of the segments.
        log: of the partition.
        expiry: what its next look at retention does.
    """
    epochs = filter_epochs(log.epochs)
    if not epochs:
        return []
    deleted = {deletion.segment.segment_id for deletion in expiry.deletions}
    looked_through = {entry.epoch for entry in epochs}

    def is_passed_over(segment: RemoteSegment) -> bool:
        if looked_through.isdisjoint(entry.epoch for entry in segment.leader_epochs):
            return True
        return not (
            segment.state is _DELETING
            or is_within_leader_epochs(segment, log.log_end_offset, epochs)
            or _ends_before_start(segment, log.log_start_offset, epochs)
        )

    return [one for one in cache.segments.values() if one.segment_id not in deleted and is_passed_over(one)]


class _Run:
    """One look at retention.

    Attributes:
        excess_bytes: how much the log is too large for `retention.bytes`, less what was chosen so far.
    """

    def __init__(
        self,
        cache: RemoteLogCache,
        log: TieredLog,
        retention: Retention,
        *,
        now_ms: int,
        knows_what_is_copied: bool,
    ) -> None:
        self._cache = cache
        self._log = log
        self._epochs = filter_epochs(log.epochs)
        until_ms = now_ms - retention.time_ms
        self._until_ms = until_ms if retention.time_ms > -1 and until_ms >= 0 else None
        copied = log.highest_copied_offset(cache) if knows_what_is_copied else NOTHING_COPIED
        only_local_bytes = sum(segment.size_bytes for segment in log.only_local(copied))
        self._excess_bytes = self._excess(retention.size_bytes, only_local_bytes)
        self._chosen: dict[UUID, Deletion] = {}
        self._log_start_offset = log.log_start_offset

    def expiry(self) -> Expiry:
        """Return what is deleted."""
        for segment in self._candidates():
            reason = self._judge(segment)
            if reason is not None:
                self._chosen[segment.segment_id] = Deletion(segment, reason)
            elif is_within_leader_epochs(segment, self._log.log_end_offset, self._epochs):
                break
        if self._log.epochs:
            self._choose_unreferenced(self._first_epoch())
        return Expiry(deletions=tuple(self._chosen.values()), log_start_offset=self._log_start_offset)

    def _candidates(self) -> Iterator[RemoteSegment]:
        for entry in self._epochs:
            for segment in self._cache.listed(entry.epoch):
                if segment.segment_id not in self._chosen:
                    yield segment

    def _judge(self, segment: RemoteSegment) -> DeletionReason | None:
        """Return why *segment* is deleted, None if it is not."""
        if segment.state is _DELETING:
            return DeletionReason.UNFINISHED_DELETE
        if _ends_before_start(segment, self._log.log_start_offset, self._epochs):
            return DeletionReason.LOG_START
        if not is_within_leader_epochs(segment, self._log.log_end_offset, self._epochs):
            return None
        if self._until_ms is not None and segment.max_timestamp_ms < self._until_ms:
            reason = DeletionReason.TIME
        elif 0 < self._excess_bytes >= segment.size_bytes:
            reason = DeletionReason.SIZE
        else:
            return None
        self._excess_bytes = max(self._excess_bytes - segment.size_bytes, 0)
        self._log_start_offset = max(self._log_start_offset, segment.end_offset + 1)
        return reason

    def _first_epoch(self) -> int:
        """Return the first leader epoch of the log once its start has moved.

        Kafka: UnifiedLog.maybeIncrementLogStartOffset.
        """
        epochs = self._log.epochs
        if self._log_start_offset > self._log.log_start_offset:
            epochs = truncate_from_start(epochs, self._log_start_offset)
        return epochs[0].epoch

    def _choose_unreferenced(self, first_epoch: int) -> None:
        """Choose what lies in epochs before the log's first one alone."""
        own_epochs = {entry.epoch for one in self._cache.segments.values() for entry in one.leader_epochs}
        for epoch in sorted(own_epochs):
            if epoch >= first_epoch:
                break
            for segment in self._cache.listed(epoch):
                if _is_before(segment, first_epoch):
                    reason = (
                        DeletionReason.UNFINISHED_DELETE
                        if segment.state is _DELETING
                        else DeletionReason.UNREFERENCED
                    )
                    self._chosen.setdefault(segment.segment_id, Deletion(segment, reason))

    def _excess(self, most_bytes: int, only_local_bytes: int) -> int:
        finished_bytes = sum(
            one.size_bytes for one in self._cache.segments.values() if one.state is _FINISHED
        )
        if most_bytes < 0 or only_local_bytes + finished_bytes <= most_bytes:
            return 0
        remote_bytes = lineage_size(self._cache, self._log.epochs, self._log.log_end_offset)
        return max(only_local_bytes + remote_bytes - most_bytes, 0)


def _ends_before_start(
    segment: RemoteSegment, log_start_offset: int, epochs: Sequence[LeaderEpochEntry]
) -> bool:
    """Kafka: RemoteLogRetentionHandler.isSegmentBreachByLogStartOffset."""
    return (
        bool(epochs)
        and segment.leader_epochs[-1].epoch <= epochs[0].epoch
        and segment.end_offset < log_start_offset
    )


def _is_before(segment: RemoteSegment, epoch: int) -> bool:
    """Return whether all epochs of *segment* are before *epoch*.

    Kafka: RemoteLogRetentionHandler.deleteLogSegmentsDueToLeaderEpochCacheTruncation.
    """
    return segment.leader_epochs[-1].epoch < epoch
