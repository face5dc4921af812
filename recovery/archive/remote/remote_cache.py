"""What a broker knows of the remote segments of one partition: the records of `__remote_log_metadata`, played in order.

Pure. Each leader epoch has a map from start offset to the finished segment that a fetch of that epoch reads; a segment
with several epochs is in several maps. A copy that is finished later replaces earlier ones from its start on, if it
reaches as far. Segments in no map are unreferenced: copies that were begun, deletions that were begun, and copies that
were replaced.

Kafka: RemoteLogMetadataCache, RemoteLogLeaderEpochState, RemoteLogSegmentState.isValidTransition. Differs: segments
whose deletion is finished are remembered, in `deleted`, so that their remaining objects can be told from others; a
record that Kafka drops, or throws an exception for, is a `DroppedRecord`.
"""

from __future__ import annotations

import enum
from bisect import bisect_left, bisect_right, insort
from dataclasses import replace
from uuid import UUID

from segfmt.remote_log_metadata import (
    RemoteLogMetadata,
    RemotePartitionDelete,
    RemotePartitionDeleteState,
    RemoteSegment,
    RemoteSegmentState,
    RemoteSegmentUpdate,
)

_STARTED = RemoteSegmentState.COPY_SEGMENT_STARTED
_FINISHED = RemoteSegmentState.COPY_SEGMENT_FINISHED
_DELETING = RemoteSegmentState.DELETE_SEGMENT_STARTED
_DELETED = RemoteSegmentState.DELETE_SEGMENT_FINISHED

_NEXT_STATES = {
    None: {_STARTED},
    _STARTED: {_STARTED, _FINISHED, _DELETING},
    _FINISHED: {_FINISHED, _DELETING},
    _DELETING: {_DELETING, _DELETED},
}


class DroppedRecord(enum.Enum):
    """Why a record changes nothing; the value is the explanation."""

    NOT_STARTED = "a segment is announced in a state other than COPY_SEGMENT_STARTED"
    STARTED_AGAIN = "an update to COPY_SEGMENT_STARTED"
    UNKNOWN_SEGMENT = "an update of a segment that was never announced, or is deleted"
    INVALID_TRANSITION = "a state that cannot follow the one the segment is in"
    SNAPSHOT = "a snapshot record, which belongs to no topic"


class _EpochSegments:
    """The segments of one leader epoch."""

    def __init__(self) -> None:
        self.id_by_start: dict[int, UUID] = {}
        self.starts: list[int] = []
        self.unreferenced: set[UUID] = set()
        self.highest_offset: int | None = None

    def finish(self, start_offset: int, segment_id: UUID, end_offset: int) -> None:
        """Take in a finished copy of the epoch's offsets from *start_offset* to *end_offset*."""
        highest = self.highest_offset
        while (
            self.starts and self.starts[-1] >= start_offset and highest is not None and highest <= end_offset
        ):
            self.unreferenced.add(self.id_by_start.pop(self.starts.pop()))
        if start_offset not in self.id_by_start:
            insort(self.starts, start_offset)
        self.id_by_start[start_offset] = segment_id
        self.unreferenced.discard(segment_id)
        if highest is None or end_offset > highest:
            self.highest_offset = end_offset

    def begin_deletion(self, start_offset: int, segment_id: UUID) -> None:
        if self.id_by_start.get(start_offset) == segment_id:
            del self.id_by_start[start_offset]
            del self.starts[bisect_left(self.starts, start_offset)]
        self.unreferenced.add(segment_id)


class RemoteLogCache:
    """The remote segments of one partition.

    Attributes:
        segments: all but those whose deletion is finished, by their ids.
        deleted: those whose deletion is finished.
    """

    def __init__(self) -> None:
        self.segments: dict[UUID, RemoteSegment] = {}
        self.deleted: dict[UUID, RemoteSegment] = {}
        self._epochs: dict[int, _EpochSegments] = {}

    def apply(self, record: RemoteLogMetadata) -> DroppedRecord | None:
        """Take in the next record; return why if it changes nothing.

        Kafka: RemotePartitionMetadataStore, RemoteLogMetadataCache.addCopyInProgressSegment,
        updateRemoteLogSegmentMetadata.
        """
        if isinstance(record, RemotePartitionDelete):
            if record.state is RemotePartitionDeleteState.DELETE_PARTITION_FINISHED:
                self.deleted |= {
                    segment_id: replace(segment, state=_DELETED)
                    for segment_id, segment in self.segments.items()
                }
                self.segments, self._epochs = {}, {}
            return None
        if isinstance(record, RemoteSegmentUpdate):
            return self._update(record)
        if record.owner is None:
            return DroppedRecord.SNAPSHOT
        return self._announce(record)

    @property
    def leader_epochs(self) -> list[int]:
        """All leader epochs that a segment was ever announced with, ascending."""
        return sorted(self._epochs)

    def referenced(self, epoch: int) -> list[RemoteSegment]:
        """Return the segments that fetches of *epoch* read, in the order of their start offsets in it."""
        of_epoch = self._epochs.get(epoch)
        return (
            []
            if of_epoch is None
            else [self.segments[of_epoch.id_by_start[start]] for start in of_epoch.starts]
        )

    def unreferenced(self, epoch: int) -> set[UUID]:
        """Return the ids of the segments of *epoch* that no fetch reads."""
        of_epoch = self._epochs.get(epoch)
        return set() if of_epoch is None else set(of_epoch.unreferenced)

    def listed(self, epoch: int) -> list[RemoteSegment]:
        """Return all segments of *epoch*, referenced or not, by their start offsets.

        Kafka: listRemoteLogSegments. Differs: Kafka has those that begin at one offset in any order.
        """
        of_epoch = self._epochs.get(epoch)
        if of_epoch is None:
            return []
        unreferenced = [
            self.segments[segment_id]
            for segment_id in sorted(of_epoch.unreferenced, key=lambda one: one.bytes)
        ]
        return sorted((*self.referenced(epoch), *unreferenced), key=lambda segment: segment.start_offset)

    def highest_offset(self, epoch: int) -> int | None:
        """Return the last offset of *epoch* in any segment ever finished. Kafka: highestOffsetForEpoch."""
        of_epoch = self._epochs.get(epoch)
        return None if of_epoch is None else of_epoch.highest_offset

    def find(self, epoch: int, offset: int) -> RemoteSegment | None:
        """Return the segment that a fetch of *offset* in *epoch* reads. Kafka: remoteLogSegmentMetadata."""
        of_epoch = self._epochs.get(epoch)
        count = 0 if of_epoch is None else bisect_right(of_epoch.starts, offset)
        if of_epoch is None or count == 0:
            return None
        segment = self.segments[of_epoch.id_by_start[of_epoch.starts[count - 1]]]
        return segment if offset <= end_in_epoch(segment, epoch) else None

    def next_start(self, epoch: int, offset: int) -> int | None:
        """Return where the first segment after *offset* begins in *epoch*."""
        of_epoch = self._epochs.get(epoch)
        if of_epoch is None:
            return None
        count = bisect_right(of_epoch.starts, offset)
        return of_epoch.starts[count] if count < len(of_epoch.starts) else None

    def _announce(self, segment: RemoteSegment) -> DroppedRecord | None:
        if segment.state is not _STARTED:
            return DroppedRecord.NOT_STARTED
        announced = self.segments.get(segment.segment_id)
        if _STARTED not in _NEXT_STATES[None if announced is None else announced.state]:
            return DroppedRecord.INVALID_TRANSITION
        for epoch, _ in segment.leader_epochs:
            self._epochs.setdefault(epoch, _EpochSegments()).unreferenced.add(segment.segment_id)
        self.segments[segment.segment_id] = segment
        self.deleted.pop(segment.segment_id, None)
        return None

    def _update(self, update: RemoteSegmentUpdate) -> DroppedRecord | None:
        announced = self.segments.get(update.segment_id)
        if announced is None:
            return DroppedRecord.UNKNOWN_SEGMENT
        if update.state not in _NEXT_STATES[announced.state]:
            return DroppedRecord.INVALID_TRANSITION
        if update.state is _STARTED:
            return DroppedRecord.STARTED_AGAIN
        segment = replace(
            announced,
            broker_id=update.broker_id,
            event_timestamp_ms=update.event_timestamp_ms,
            custom_metadata=update.custom_metadata,
            state=update.state,
        )
        for epoch, start_offset in segment.leader_epochs:
            of_epoch = self._epochs.setdefault(epoch, _EpochSegments())
            if segment.state is _FINISHED:
                of_epoch.finish(start_offset, segment.segment_id, end_in_epoch(segment, epoch))
            elif segment.state is _DELETING:
                of_epoch.begin_deletion(start_offset, segment.segment_id)
            else:
                of_epoch.unreferenced.discard(segment.segment_id)
        if segment.state is _DELETED:
            del self.segments[segment.segment_id]
            self.deleted[segment.segment_id] = segment
        else:
            self.segments[segment.segment_id] = segment
        return None


def end_in_epoch(segment: RemoteSegment, epoch: int) -> int:
    """Return the last offset of *segment* in *epoch*."""
    later_starts = [start for number, start in segment.leader_epochs if number > epoch]
    return later_starts[0] - 1 if later_starts else segment.end_offset
