"""The figures of tiered partitions, as KIP-963 names them, and their sums by topic.

A figure that cannot be known is None, and so is the sum of a topic with such a partition. None is ever negative.

Kafka: RemoteLogManager, BrokerTopicMetrics. Differs: a broker's gauges are of live leaders, follow a copy or a look at
retention that has ended, and stand still while these fail. Here each is of the moment of reading.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from recovery.archive.remote.remote_cache import RemoteLogCache
from recovery.archive.remote_size import held_size, lineage_size, remote_log_size
from recovery.archive.tiering.partition_state import PartitionState
from recovery.archive.tiering.retention import Retention, expire
from recovery.archive.tiering.tiered_log import NOTHING_COPIED, TieredLog
from segfmt.remote_log_metadata import RemoteSegmentState

_STARTED, _FINISHED, _DELETING, _ = RemoteSegmentState
_SUMMED = {"summed": True}
_OF_ARCHIVE = {"summed": True, "of_archive": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class TieringFigures:
    """The figures of a partition or, where they can be summed, of a topic.

    Attributes:
        remote_copy_lag_bytes, remote_copy_lag_segments: closed local segments that are not copied, or in part; 0 if
            copying is disabled. A segment of one record that was copied last counts, as it does in a broker.
        copy_disabled: whether nothing more is copied.
        remote_delete_lag_bytes, remote_delete_lag_segments: what retention has to delete now, and deletions begun.
        remote_log_size_bytes: of `.log` files, finished or with a deletion begun.
        remote_log_metadata_count: segments that brokers know of, in any state but deleted.
        remote_log_size_computation_time_ms: how long `lineage_size_bytes` took to compute here.
        lineage_size_bytes: of the finished segments that belong to the log, each once.
        remote_log_size_by_epoch: as `remote_log_size`.
        copy_requests, delete_requests: begun, over the life of the metadata topic.
        copy_unfinished, delete_unfinished: of these, not finished.
        local_only_bytes, local_only_segments: what is gone if the disk is: segments that are not copied, or in part,
            and the active one.
        highest_copied_offset: -1 if nothing of the log is copied.
        archived_segments, archived_log_bytes: logs that lie in the archive, known or not, as large as they lie there.
            These and the following are None without an archive.
        missing_segments, missing_bytes: finished, and their log does not lie there; bytes as brokers know them.
        incomplete_segments: finished, and their log lies there, but not all other objects.
        wrong_size_segments: finished, and what lies there is not as large as it was when it was copied.
        orphan_segments, orphan_bytes: objects of segments that brokers do not know.
        undeleted_segments, undeleted_bytes: objects of segments whose deletion is finished.
        uncompared_segments: that may be orphans, or newer than what was read of the metadata topic.
    """

    remote_copy_lag_bytes: int | None = field(default=None, metadata=_SUMMED)
    remote_copy_lag_segments: int | None = field(default=None, metadata=_SUMMED)
    copy_disabled: bool | None = None
    remote_delete_lag_bytes: int | None = field(default=None, metadata=_SUMMED)
    remote_delete_lag_segments: int | None = field(default=None, metadata=_SUMMED)
    remote_log_size_bytes: int | None = field(default=None, metadata=_SUMMED)
    remote_log_metadata_count: int | None = field(default=None, metadata=_SUMMED)
    remote_log_size_computation_time_ms: int | None = field(default=None, metadata=_SUMMED)
    lineage_size_bytes: int | None = field(default=None, metadata=_SUMMED)
    remote_log_size_by_epoch: Mapping[int, int] | None = None
    copy_requests: int | None = field(default=None, metadata=_SUMMED)
    copy_unfinished: int | None = field(default=None, metadata=_SUMMED)
    delete_requests: int | None = field(default=None, metadata=_SUMMED)
    delete_unfinished: int | None = field(default=None, metadata=_SUMMED)
    local_only_bytes: int | None = field(default=None, metadata=_SUMMED)
    local_only_segments: int | None = field(default=None, metadata=_SUMMED)
    highest_copied_offset: int | None = None
    log_start_offset: int | None = None
    local_log_start_offset: int | None = None
    log_end_offset: int | None = None
    archived_segments: int | None = field(default=None, metadata=_OF_ARCHIVE)
    archived_log_bytes: int | None = field(default=None, metadata=_OF_ARCHIVE)
    missing_segments: int | None = field(default=None, metadata=_OF_ARCHIVE)
    missing_bytes: int | None = field(default=None, metadata=_OF_ARCHIVE)
    incomplete_segments: int | None = field(default=None, metadata=_OF_ARCHIVE)
    wrong_size_segments: int | None = field(default=None, metadata=_OF_ARCHIVE)
    orphan_segments: int | None = field(default=None, metadata=_OF_ARCHIVE)
    orphan_bytes: int | None = field(default=None, metadata=_OF_ARCHIVE)
    undeleted_segments: int | None = field(default=None, metadata=_OF_ARCHIVE)
    undeleted_bytes: int | None = field(default=None, metadata=_OF_ARCHIVE)
    uncompared_segments: int | None = field(default=None, metadata=_OF_ARCHIVE)


SUMMED: tuple[str, ...] = tuple(one.name for one in fields(TieringFigures) if one.metadata)
"""Figures of a topic: the sums of its partitions'."""
OF_ARCHIVE: tuple[str, ...] = tuple(
    one.name for one in fields(TieringFigures) if "of_archive" in one.metadata
)
"""Those that an archive is listed for."""


def figures_of(state: PartitionState, *, now_ms: int) -> TieringFigures:
    """Return the figures of a partition at *now_ms*, by which retention is judged."""
    known: dict[str, Any] = {}
    if state.retention is not None:
        known["copy_disabled"] = state.retention.is_copy_disabled or state.is_disabled
    if state.log is not None:
        known |= {
            "log_start_offset": state.log.log_start_offset,
            "local_log_start_offset": state.log.local_log_start_offset,
            "log_end_offset": state.log.log_end_offset,
        }
    if state.cache is not None:
        known |= _remote(state.cache)
    if state.own_cache is not None and state.log is not None:
        known |= _copied(known.get("copy_disabled"), state.own_cache, state.log)
        if state.retention is not None:
            retention = Retention(state.retention.retention_ms, state.retention.retention_bytes)
            expiry = expire(state.own_cache, state.log, retention, now_ms=now_ms)
            known |= {
                "remote_delete_lag_bytes": expiry.size_bytes,
                "remote_delete_lag_segments": len(expiry.deletions),
            }
    return TieringFigures(**known)


def sum_of(partitions: Iterable[TieringFigures]) -> TieringFigures:
    """Return the sums of *partitions*; None where any of them is."""
    partitions = list(partitions)
    sums: dict[str, Any] = {}
    for name in SUMMED:
        values = [getattr(one, name) for one in partitions]
        sums[name] = None if None in values else sum(values)
    disabled = {one.copy_disabled for one in partitions}
    return TieringFigures(**sums, copy_disabled=disabled.pop() if len(disabled) == 1 else None)


def _remote(cache: RemoteLogCache) -> dict[str, Any]:
    states = [segment.state for segment in cache.segments.values()]
    return {
        "remote_log_size_bytes": held_size(cache),
        "remote_log_metadata_count": len(states),
        "remote_log_size_by_epoch": {epoch: remote_log_size(cache, epoch) for epoch in cache.leader_epochs},
        "copy_requests": len(states) + len(cache.deleted),
        "copy_unfinished": states.count(_STARTED),
        "delete_requests": states.count(_DELETING) + len(cache.deleted),
        "delete_unfinished": states.count(_DELETING),
    }


def _copied(is_copy_disabled: bool | None, cache: RemoteLogCache, log: TieredLog) -> dict[str, Any]:
    started_s = time.perf_counter()
    size_bytes = lineage_size(cache, log.epochs, log.log_end_offset)
    took_ms = round((time.perf_counter() - started_s) * 1000)
    highest = log.highest_copied_offset(cache)
    local_only = log.not_whole_remote(highest)
    # A broker's gauge has no segment that begins before the end of what is copied, and copies it all the same
    waiting = sorted({*log.only_local(highest)[:-1], *local_only[:-1]})
    if is_copy_disabled:
        waiting = []
    known = {
        "lineage_size_bytes": size_bytes,
        "remote_log_size_computation_time_ms": took_ms,
        "highest_copied_offset": max(highest, NOTHING_COPIED),
        "local_only_bytes": sum(one.size_bytes for one in local_only),
        "local_only_segments": len(local_only),
    }
    if is_copy_disabled is not None or not waiting:
        known |= {
            "remote_copy_lag_bytes": sum(one.size_bytes for one in waiting),
            "remote_copy_lag_segments": len(waiting),
        }
    return known
