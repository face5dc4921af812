"""How large the remote part of a log is, by what a broker knows of its segments (KIP-852). Pure.

Sizes are those of the `.log` files, as brokers count them; indexes are not in them.
"""

from __future__ import annotations

from collections.abc import Sequence

from recovery.archive.remote.lineage import filter_epochs, is_within_leader_epochs
from recovery.archive.remote.remote_cache import RemoteLogCache
from segfmt.checkpoint import LeaderEpochEntry
from segfmt.remote_log_metadata import RemoteSegmentState

_HELD = frozenset({RemoteSegmentState.COPY_SEGMENT_FINISHED, RemoteSegmentState.DELETE_SEGMENT_STARTED})


def remote_log_size(cache: RemoteLogCache, leader_epoch: int) -> int:
    """Return the bytes of all segments that have records of *leader_epoch*, whatever their state.

    A segment of several epochs counts in each of them, and copies of the same offsets count each.

    Kafka: TopicBasedRemoteLogMetadataManager.remoteLogSize.
    """
    return sum(segment.size_bytes for segment in cache.listed(leader_epoch))


def lineage_size(cache: RemoteLogCache, epochs: Sequence[LeaderEpochEntry], log_end_offset: int) -> int:
    """Return the bytes of the finished segments that belong to the log, each counted once.

    Args:
        cache: what the broker knows of the segments.
        epochs: of the log, as in its checkpoint.
        log_end_offset: the offset after the log's last record.

    Kafka: RemoteLogManager.RLMExpirationTask.buildRetentionSizeData.
    """
    epochs = filter_epochs(epochs)
    finished = {
        segment.segment_id: segment
        for entry in epochs
        for segment in cache.listed(entry.epoch)
        if segment.state is RemoteSegmentState.COPY_SEGMENT_FINISHED
    }
    return sum(
        segment.size_bytes
        for segment in finished.values()
        if is_within_leader_epochs(segment, log_end_offset, epochs)
    )


def held_size(cache: RemoteLogCache) -> int:
    """Return the bytes of all segments that are in remote storage, or partly: finished ones, and deletions begun.

    Kafka: the gauge RemoteLogSizeBytes.
    """
    return sum(segment.size_bytes for segment in cache.segments.values() if segment.state in _HELD)
