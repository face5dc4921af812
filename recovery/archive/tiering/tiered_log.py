"""The local part of a tiered log, and how far a broker takes it to be copied. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

from recovery.archive.remote.lineage import truncate_from_start
from recovery.archive.remote.remote_cache import RemoteLogCache
from segfmt.checkpoint import LeaderEpochEntry

NOTHING_COPIED = -1
"""The highest offset in remote storage of a log of which nothing is. Kafka: UnifiedLog.highestOffsetInRemoteStorage."""


class LocalSegment(NamedTuple):
    """A segment in a log dir; bytes of its `.log`."""

    base_offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TieredLog:
    """A replica of a tiered partition, as its leader would load it.

    Attributes:
        segments: ascending; the last one is the active segment, as large as its batches.
        epochs: of its checkpoint, ascending, from the log start on.
        log_start_offset: of the whole log, its remote part included.
        log_end_offset: the offset after the last record.
        is_cut_off: whether something behind its last batch is neither a batch nor preallocated.
    """

    segments: Sequence[LocalSegment]
    epochs: Sequence[LeaderEpochEntry]
    log_start_offset: int
    log_end_offset: int
    is_cut_off: bool = False

    @property
    def local_log_start_offset(self) -> int:
        """Where its local part begins."""
        return max(self.segments[0].base_offset, self.log_start_offset)

    @property
    def size_bytes(self) -> int:
        """Bytes of all local segments."""
        return sum(segment.size_bytes for segment in self.segments)

    def as_led(self, cache: RemoteLogCache) -> Self:
        """Return it as a leader that copies has it: it begins with the first segment that is left.

        A broker that was killed may not have written down yet where the log begins since the last deletions.

        Kafka: RemoteLogManager.findLogStartOffset, RLMCopyTask.maybeUpdateLogStartOffsetOnBecomingLeader.
        """
        left = (segment.start_offset for entry in self.epochs for segment in cache.listed(entry.epoch))
        start = next(left, self.local_log_start_offset)
        if start <= self.log_start_offset:
            return self
        return replace(self, log_start_offset=start, epochs=truncate_from_start(self.epochs, start))

    def highest_copied_offset(self, cache: RemoteLogCache) -> int:
        """Return the last offset of the log that is in remote storage, or `NOTHING_COPIED`.

        Kafka: RemoteLogManager.findHighestRemoteOffset.
        """
        if not self.epochs:
            return NOTHING_COPIED
        ends = [entry.start_offset for entry in self.epochs[1:]] + [self.log_end_offset]
        for entry, end_offset in zip(reversed(self.epochs), reversed(ends), strict=True):
            highest = cache.highest_offset(entry.epoch)
            if highest is not None:
                return min(highest, end_offset - 1)
        return NOTHING_COPIED

    def only_local(self, highest_copied_offset: int) -> Sequence[LocalSegment]:
        """Return the segments that a broker counts as not copied, the active one among them.

        A copied segment of a single record counts, too, while it is the last one that was copied.

        Kafka: UnifiedLog.onlyLocalLogSegmentsSize.
        """
        return [segment for segment in self.segments if segment.base_offset >= highest_copied_offset]

    def not_whole_remote(self, highest_copied_offset: int) -> Sequence[LocalSegment]:
        """Return the segments of which something is not copied, and the active one.

        One may begin before what is copied ends: the leader that had copied it has rolled at another offset.
        """
        ends = [segment.base_offset for segment in self.segments[1:]]
        return [
            *(
                segment
                for segment, end_offset in zip(self.segments, ends, strict=False)
                if end_offset - 1 > highest_copied_offset
            ),
            self.segments[-1],
        ]
