"""A tiered partition as it was found: what is known of its remote part, its local part, and its settings.

Each of the three may be unknown, with the reason why; nothing is guessed in its place.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from recovery.archive.copy.account import CopiedFolder
from recovery.archive.inventory.log_starts import local_partition
from recovery.archive.inventory.own_span import read_own_span
from recovery.archive.layouts.plain_layout import PlainLayout
from recovery.archive.remote.lineage import truncate_from_start
from recovery.archive.remote.log_dir_copy import LogDirCopy
from recovery.archive.remote.remote_cache import RemoteLogCache
from recovery.archive.remote.replicas import Replica
from recovery.archive.remote.told_ends import ToldEnd, ends_by_checkpoints, ends_by_files, furthest
from recovery.archive.stores.archived import ArchivedSegment, PartitionPrefix, PartKind
from recovery.archive.tiering.options import ALL_LOG_DIRS
from recovery.archive.tiering.tiered_log import LocalSegment, TieredLog
from recovery.broker.log_retention import LogRetention
from recovery.read.batch_probe import is_zero_range
from segfmt.filenames import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    log_name,
)
from segfmt.remote_log_metadata import TOPIC, RemoteSegmentState

_OF_ONE_MOMENT = "Remedy: copy the log dir while its broker is down"
_REMEDY = f"Remedy: {ALL_LOG_DIRS}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """A tiered partition.

    Attributes:
        topic_id: of its topic.
        cache: what brokers know of its remote segments; None if that is not known.
        log: its local part; None if no replica was found, or it cannot be read.
        retention: its settings; None if they are not known.
        is_deleted: whether its topic was deleted, or made anew under another id: it has no log, and nobody deletes what
            is left of it.
        unknown: why what is None is not known.
    """

    topic: str
    topic_id: UUID
    partition: int
    cache: RemoteLogCache | None
    log: TieredLog | None
    retention: LogRetention | None
    is_deleted: bool = False
    unknown: tuple[str, ...] = ()

    @property
    def is_disabled(self) -> bool:
        """Whether remote storage is disabled for its topic: brokers copy nothing, and delete nothing that is left.

        Kafka: RemoteLogManager.stopPartitions.
        """
        return self.retention is not None and self.retention.is_tiered is False

    @property
    def own_cache(self) -> RemoteLogCache | None:
        """The remote segments that its leader takes for a part of the log."""
        return RemoteLogCache() if self.is_disabled else self.cache

    @property
    def name(self) -> str:
        """As its folder is called."""
        return f"{self.topic}-{self.partition}"


def why_copy_is_in_part(place: str, copied: CopiedFolder | None) -> str:
    """Return why the folder at *place*, which `archive copy` has made, does not have all of the log; else empty."""
    remedy = "Remedy: copy it again, or give the log dir itself with --metadata"
    if copied is not None and not copied.is_whole:
        return f"{place}: archive copy has not copied all of it. {remedy}"
    if copied is not None and copied.is_gone:
        return f"{place}: it had gone from its log dir when that was copied last. {_REMEDY}"
    return ""


def read_tiered_log(
    replica: Replica, where: PartitionPrefix, gone: Container[str] = (), *, is_tiered: bool = True
) -> tuple[TieredLog | None, str]:
    """Return the local part of a partition, and why it is None.

    Where the log begins is said by the checkpoint alone, and without a line there it is 0, or for a log that is not
    tiered its first segment. Leader epochs before it are none of the log's: a broker removes them from its file a
    little later.

    Args:
        replica: of the partition.
        where: the partition.
        gone: names of files that a copy has kept, and the log dir has no more.
        is_tiered: False if remote storage is known to be disabled for it: then brokers write no line for a log that
            begins with its first segment.

    Kafka: LogManager.checkpointLogStartOffsetsInDir, LogLoader.load with remote storage, LogSegment.readNextOffset.
    """
    if replica.log_start_fault is not None:
        return None, f"{replica.log_start_fault.file}: {replica.log_start_fault.detail}. {_OF_ONE_MOMENT}"
    listed = [
        segment
        for segment in local_partition(replica, where).segments
        if not segment.other_file
        and PartKind.LOG in segment.parts
        and log_name(segment.base_offset) not in gone
    ]
    segments = [
        LocalSegment(segment.base_offset, segment.parts[PartKind.LOG].size_bytes) for segment in listed[:-1]
    ]
    log_start_offset = replica.log_start_offset or 0
    if replica.log_start_offset is None and listed and not is_tiered:
        log_start_offset = listed[0].base_offset
    end = _read_end(replica, listed[-1]) if listed else _End(log_start_offset, 0)
    if end is None:
        log = f"{replica.store.url}/{listed[-1].parts[PartKind.LOG].key}"
        return (
            None,
            f"{log}: where the log ends cannot be read. Remedy: recover the log dir, or copy the folder whole",
        )
    segments.append(LocalSegment(listed[-1].base_offset if listed else log_start_offset, end.size_bytes))
    log_end_offset = end.offset
    if log_start_offset > log_end_offset:
        checkpoint = f"{replica.store.url}/{LOG_START_OFFSET_CHECKPOINT}"
        return (
            None,
            f"{checkpoint}: the log begins at {log_start_offset}, and ends at {log_end_offset}. {_OF_ONE_MOMENT}",
        )
    return TieredLog(
        segments=segments,
        epochs=truncate_from_start(replica.epochs, log_start_offset),
        log_start_offset=log_start_offset,
        log_end_offset=log_end_offset,
        is_cut_off=end.is_cut_off,
    ), ""


def told_ends(
    replica: Replica, where: PartitionPrefix, copy: LogDirCopy, gone: Container[str] = ()
) -> Sequence[ToldEnd]:
    """Return how far the log must reach by what lies beside it.

    Beside a broker at work it has to be asked before the log is read. A log that was closed ends at its recovery point;
    the high watermark stays above that where a recovery has cut the log, or of a deleted topic of the same name.

    Args:
        replica: of the partition.
        where: the partition.
        copy: the checkpoints of the replica's log dir.
        gone: names of files that a copy has kept, and the log dir has no more.
    """
    listed = replica.store.list_level(replica.prefix).objects
    closed_at = copy.offset(RECOVERY_POINT_CHECKPOINT, where) if copy.had_clean_shutdown else None
    checkpoints = ends_by_checkpoints(replica.store, copy, where.topic, where.partition)
    return (
        *(one for one in checkpoints if closed_at is None or one.end_offset <= closed_at),
        *ends_by_files(replica.store, [one for one in listed if one.name not in gone]),
    )


def why_bounds_are_unknown(log: TieredLog, replica: Replica, ends: Iterable[ToldEnd]) -> str:
    """Return why *log*, as it was read from *replica*, does not begin or end where it seems to; else empty.

    Args:
        log: the local part.
        replica: of the partition.
        ends: by what lies beside it.
    """
    first = log.segments[0].base_offset
    if replica.log_start_offset is None and log.log_start_offset < first:
        return (
            f"{replica.store.url}/{LOG_START_OFFSET_CHECKPOINT}: it has no line for this log, whose first segment "
            f"begins at {first}: where the log begins is not known. {_OF_ONE_MOMENT}; if that was killed before it "
            "wrote the line, let it run for a minute"
        )
    told = furthest(ends, is_cut_off=log.is_cut_off)
    if told is not None and told.end_offset > log.log_end_offset:
        is_late = told.is_high_watermark
        or_late = ", or a topic of its name was deleted just before, and that line is its" if is_late else ""
        return (
            f"{replica.url}: the log ends at {log.log_end_offset}, and "
            f"{told.witness} tells of offset {told.end_offset - 1}: its end is missing{or_late}. Remedy: "
            f"{'beside a broker at work, ask again; else ' if is_late else ''}recover the log dir, or copy it whole "
            "while its broker is down"
        )
    return ""


def why_log_is_behind(log: TieredLog, cache: RemoteLogCache, place: str) -> str:
    """Return why *log*, of the replica at *place*, cannot be the leader's: more than it has was copied; else empty.

    Segments of epochs that the log has no more, because an unclean election has cut them off, tell nothing.
    """
    finished = [
        one for one in cache.segments.values() if one.state is RemoteSegmentState.COPY_SEGMENT_FINISHED
    ]
    if cache.segments and not log.epochs:
        return (
            f"{place}/{LEADER_EPOCH_CHECKPOINT}: it has no leader epochs, or is missing or malformed, and segments "
            f"were copied. Remedy: copy the folder whole, or {ALL_LOG_DIRS}"
        )
    if not finished:
        return ""
    last = log.epochs[-1].epoch
    latest = max(one.leader_epochs[-1].epoch for one in finished)
    if latest > last:
        return (
            f"{place}: it ends in leader epoch {last}, and segments of epoch {latest} were copied. {_REMEDY}"
        )
    highest = cache.highest_offset(last)
    if highest is not None and highest >= log.log_end_offset:
        return f"{place}: it ends at offset {log.log_end_offset}, and offset {highest} was copied. {_REMEDY}"
    return ""


def why_cache_is_behind(log: TieredLog, cache: RemoteLogCache, place: str) -> str:
    """Return why *cache* cannot be all that was copied; else empty.

    A broker deletes a local segment only when it was copied, so what lies between the start of the log and its first
    local segment has been copied, and nothing in *cache* says so.
    """
    known = (cache.highest_offset(line.epoch) for line in log.epochs)
    highest = max((offset for offset in known if offset is not None), default=-1)
    first = log.segments[0].base_offset
    if first <= max(highest + 1, log.log_start_offset):
        return ""
    return (
        f"{place}: its first local segment begins at {first}, and the records of {TOPIC} end with the copy of offset "
        f"{highest}: they are older than the log, or not all were copied. Remedy: beside brokers at work, ask again; "
        f"else {ALL_LOG_DIRS}, copied at one moment"
    )


class _End(NamedTuple):
    """Where an active segment ends.

    Attributes:
        offset: after the last record.
        size_bytes: up to there; what a broker has preallocated behind it is no part of the segment's size.
        is_cut_off: whether what is behind it is anything else than that.
    """

    offset: int
    size_bytes: int
    is_cut_off: bool = False


def _read_end(replica: Replica, active: ArchivedSegment) -> _End | None:
    stored = active.parts[PartKind.LOG]
    span = read_own_span(replica.store, PlainLayout(), active)
    position = None if span is None else span.end_position
    # Up to where it was when listed: a broker at work appends
    if span is not None and position is not None and position >= stored.size_bytes:
        return _End(span.end_offset + 1, position)
    try:
        with closing(replica.store.open(stored.key)) as log:
            if span is None or position is None:
                return _End(active.base_offset, 0) if is_zero_range(log, 0, log.end_position) else None
            is_whole = is_zero_range(log, position, stored.size_bytes)
            return _End(span.end_offset + 1, position, is_cut_off=not is_whole)
    except OSError:
        return None
