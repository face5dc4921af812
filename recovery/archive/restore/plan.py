"""What is to be done with each archived partition, before a byte is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from recovery.archive.restore.options import RestoreOptions
from recovery.archive.restore.report import Mode, RestoredPartition
from recovery.archive.restore.same_log import has_last_batch
from recovery.archive.restore.source import SourcePartition, SourceSegment
from recovery.archive.restore.target import ExistingLog, Target, with_remedy
from recovery.archive.stores.store import Store
from recovery.broker.assignments import Assignment
from recovery.broker.log_retention import LogRetention
from recovery.errors import AS_BROKERS_USER, error_text
from segfmt.errors import FileNameError
from segfmt.filenames import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    log_name,
    read_offset,
    snapshot_name,
)
from segfmt.kafka_uuid import format_uuid, read_uuid

_TAKE_OUT = "take that line out, and one off the number of lines at the top,"
_DERIVED_SHARE = 200
"""Indexes take one byte for so many of a log, at most, unless their interval is below Kafka's default."""
_SEGMENT_BYTES = 24 << 10
"""For the small files of a segment, each in blocks of its own, and for their lines in journal and manifest."""
_PARTITION_BYTES = 64 << 10
"""For the small files of a partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRestore:
    """A partition that is to be restored.

    Attributes:
        is_renumbered: whether its batches get another leader epoch.
        highest_epoch: of the cluster, above which no batch's may be that is kept; None if any may.
        next_offset: with `--aux`: where its empty local log begins.
        remote_start_offset: where the whole log begins if a part before the first segment is in remote storage.
        retained: see `RestoredPartition`.
    """

    source: SourcePartition
    topic_id: UUID
    log_dir: str
    mode: Mode
    is_renumbered: bool
    highest_epoch: int | None
    next_offset: int | None
    remote_start_offset: int | None
    retained: tuple[int, int] | None
    warnings: tuple[str, ...]

    @property
    def log_start_offset(self) -> int:
        """Where the whole log begins, its part in remote storage included."""
        return self.source.first_offset if self.remote_start_offset is None else self.remote_start_offset

    @property
    def needed_bytes(self) -> int:
        """Bytes on disk, at most."""
        if self.mode == "aux":
            return _PARTITION_BYTES
        size_bytes = self.source.size_bytes
        derived_bytes = size_bytes // _DERIVED_SHARE + _SEGMENT_BYTES * len(self.source.segments)
        return size_bytes + derived_bytes + _PARTITION_BYTES

    def result(self) -> RestoredPartition:
        """Return the report on it once it is restored, or would be."""
        where, segments = self.source.where, self.source.segments
        last = segments[-1] if segments else None
        end = None if last is None or last.end_offset is None else last.end_offset + 1
        return RestoredPartition(
            topic=where.topic,
            partition=where.partition,
            topic_id=format_uuid(self.topic_id),
            mode=self.mode,
            status="restored",
            log_dir=self.log_dir,
            segments=len(segments) if self.mode == "full" else 1,
            size_bytes=self.source.size_bytes if self.mode == "full" else 0,
            log_start_offset=self.log_start_offset,
            log_end_offset=end if self.next_offset is None else self.next_offset,
            leader_epochs="renumbered" if self.is_renumbered else "kept",
            retained=self.retained,
            warnings=self.warnings,
        )


def refused(source: SourcePartition, mode: Mode, reasons: Iterable[str]) -> RestoredPartition:
    """Return the report on a partition that is left alone."""
    return RestoredPartition(
        topic=source.where.topic,
        partition=source.where.partition,
        topic_id=source.where.topic_id,
        mode=mode,
        status="refused",
        reasons=tuple(reasons),
    )


class Planner:
    """Decides about partitions, one after another: each that is placed counts for the next.

    Args:
        store: the archive.
        target: the broker.
        options: of the run.
        retention_of: the retention of a topic, None if its settings are not known.
        now_ms: the clock by which that is judged.
    """

    def __init__(
        self,
        store: Store,
        target: Target,
        options: RestoreOptions,
        retention_of: Callable[[str], LogRetention | None],
        now_ms: int,
    ) -> None:
        self._store = store
        self._target = target
        self._options = options
        self._retention_of = retention_of
        self._now_ms = now_ms
        self._mode: Mode = "aux" if options.is_aux else "full"

    def plan(self, source: SourcePartition) -> PlannedRestore | RestoredPartition:
        """Return what is to be done, or the report on a partition that is left alone."""
        try:
            return self._plan(source)
        except ValueError as error:
            return refused(source, self._mode, [str(error)])
        except OSError as error:
            return refused(source, self._mode, [error_text(with_remedy(error))])

    def _plan(self, source: SourcePartition) -> PlannedRestore | RestoredPartition:
        if source.reasons:
            return refused(source, self._mode, source.reasons)
        topic_id = self._topic_id(source)
        source = self._with_log_start(source, topic_id)
        assignment = self._assignment(source, topic_id)
        offline_dir = self._target.offline_dir_of(source.name)
        if offline_dir is not None:
            raise ValueError(f"its folder is in {offline_dir}, which is offline. Remedy: bring that back")
        existing = self._target.existing(source.name)
        in_the_way = self._target.in_the_way(source.name)
        if in_the_way is not None:
            raise ValueError(f"{in_the_way}: not a folder. Remedy: move it out of the log dir")
        if len(existing) > 1:
            raise ValueError(
                f"it is in {' and '.join(one.log_dir for one in existing)} already. Remedy: move all but one of the "
                "folders out of the log dirs"
            )
        next_offset = self._next_offset(source, topic_id) if self._options.is_aux else None
        is_renumbered, warnings = self._leader_epochs(source, assignment)
        remote_start, more = self._remote_start(source, topic_id)
        warnings += [*source.warnings, *more, *self._other_leaders(assignment)]
        if source.gaps and not self._target.facts.settings_of(source.where.topic).is_compacted:
            raise ValueError(
                f"{'; '.join(source.gaps)}. Remedy: look for the segments where the copy came from; if the log was "
                f"compacted, give --topic-config with cleanup.policy=compact for {source.where.topic}"
            )
        if remote_start is not None and is_renumbered:
            raise ValueError(
                "a part of it is in remote storage, where batches keep their leader epochs, and those of the others "
                "would be renumbered. Remedy: --leader-epochs keep"
            )
        planned = PlannedRestore(
            source=source,
            topic_id=topic_id,
            log_dir="",
            mode=self._mode,
            is_renumbered=is_renumbered,
            highest_epoch=None
            if assignment is None or self._options.leader_epochs != "auto"
            else assignment.leader_epoch,
            next_offset=next_offset,
            remote_start_offset=remote_start,
            retained=(0, 0) if self._options.is_aux else self._retained(source),
            warnings=tuple(warnings),
        )
        if existing and self._is_there(planned, existing[0]):
            return _unchanged(planned, existing[0])
        if existing and not existing[0].is_empty:
            raise ValueError(_has_records(planned, existing[0]))
        if existing and (reason := _goes_back(planned, existing[0])) is not None:
            raise ValueError(reason)
        log_dir = self._place(source, existing, assignment)
        more_warnings = (*self._unknown_retention(planned), *self._gone(planned))
        return replace(planned, log_dir=log_dir, warnings=(*planned.warnings, *more_warnings))

    def _place(
        self, source: SourcePartition, existing: Sequence[ExistingLog], assignment: Assignment | None
    ) -> str:
        """Return the log dir for a partition, of which there is at most an empty folder, that can leave its place."""
        moving = self._target.being_moved(source.where.topic, source.where.partition)
        if moving is not None:
            raise ValueError(
                f"{moving}: a broker was moving it there, and goes on with that. Remedy: move that folder out of "
                "the log dir"
            )
        log_dir = self._target.place(existing, assignment, ignore_cordon=self._options.ignore_cordon)
        if existing and not self._target.is_kept_by_rename(log_dir, source.name):
            raise ValueError(
                f"{log_dir}/{source.name}: an empty folder, which goes to quarantine, and a folder cannot be moved to "
                "another file system. Remedy: leave --quarantine-dir out, or choose a folder on the log dir's disk"
            )
        if existing and not self._target.may_move(log_dir, source.name):
            raise ValueError(
                f"{log_dir}/{source.name}: an empty folder, which goes to quarantine, and this user may not move it. "
                f"Remedy: {AS_BROKERS_USER}"
            )
        return log_dir

    def wanted_id(self, topic: str) -> str | None:
        """Return the id that *topic* is restored under, None if it is not known."""
        known, given = self._target.topic_id(topic), self._options.topic_ids.get(topic)
        if known is None and given is not None:
            known = read_uuid(given)
        return None if known is None else format_uuid(known)

    def _topic_id(self, source: SourcePartition) -> UUID:
        topic = source.where.topic
        known = self._target.topic_id(topic)
        given = self._options.topic_ids.get(topic)
        told = None if given is None else read_uuid(given)
        if self._target.metadata is not None:
            if known is None:
                raise ValueError(
                    "the cluster does not know the topic, so a broker would call the folder stray. Remedy: create the "
                    "topic first, with as many partitions, and stop the broker again"
                )
            if told not in (None, known):
                raise ValueError(
                    f"--topic-id {topic}={given}: in this cluster it is {format_uuid(known)}. Remedy: leave it out"
                )
            return known
        if told is None:
            raise ValueError(
                f"no metadata log in the log dirs says which id the topic has. Remedy: give --topic-id {topic}=ID"
            )
        return told

    def _with_log_start(self, source: SourcePartition, topic_id: UUID) -> SourcePartition:
        """Return *source* with the log start that this broker's checkpoints know of the same topic."""
        where = source.where
        known = self._target.log_start(where.topic, where.partition)
        if known is None or source.topic_id != format_uuid(topic_id) or known <= source.first_offset:
            return source
        if source.end_offset is not None and known > source.end_offset + 1:
            raise ValueError(
                f"{LOG_START_OFFSET_CHECKPOINT} of this broker says that it begins at offset {known}, and the archive "
                f"ends at {source.end_offset}. Remedy: {_TAKE_OUT} if the archive's records are to come back"
            )
        kept = [one for one in source.segments if one.until_offset is None or one.until_offset > known]
        if not kept:
            return source
        left_out = (
            f"offsets {source.first_offset} to {known - 1} are left out: this broker's {LOG_START_OFFSET_CHECKPOINT} "
            "says that they were deleted"
        )
        if self._options.is_aux:
            left_out += f", so a broker deletes them from remote storage. Remedy: {_TAKE_OUT} to keep them"
        return replace(source, segments=kept, log_start_offset=known, warnings=(*source.warnings, left_out))

    def _assignment(self, source: SourcePartition, topic_id: UUID) -> Assignment | None:
        if self._target.metadata is None:
            return None
        assignment = self._target.assignment(topic_id, source.where.partition)
        if assignment is None:
            raise ValueError(
                "the topic has no partition of this number in the cluster. Remedy: add partitions first"
            )
        if self._target.node_id not in assignment.replicas:
            replicas = ", ".join(map(str, assignment.replicas))
            raise ValueError(
                f"it is not assigned to broker {self._target.node_id}, which would call the folder stray, but to "
                f"{replicas}. Remedy: restore it there"
            )
        return assignment

    def _other_leaders(self, assignment: Assignment | None) -> list[str]:
        """Return a warning if another broker may lead without what is restored here: a follower cuts its log down.

        Kafka: AbstractFetcherThread.maybeTruncate.
        """
        node_id = self._target.node_id
        in_sync = () if assignment is None or self._options.is_aux else assignment.in_sync
        others = [str(one) for one in in_sync if one != node_id]
        if not others:
            return []
        brokers = f"{'broker' if len(others) == 1 else 'brokers'} {', '.join(others)}"
        alone = (
            f", or start broker {node_id} first, and the others once it leads" if node_id in in_sync else ""
        )
        return [
            f"in sync in the cluster: {brokers}. One that leads without these records makes broker {node_id} cut them "
            f"off. Remedy: restore it there, too, before any of them is started{alone}"
        ]

    def _leader_epochs(
        self, source: SourcePartition, assignment: Assignment | None
    ) -> tuple[bool, list[str]]:
        """Return whether the batches are renumbered, and warnings."""
        highest = max((entry.epoch for entry in source.epochs), default=None)
        present = None if assignment is None else assignment.leader_epoch
        is_lower = highest is not None and highest > 0 and (present is None or present < highest)
        if (
            highest is None
            and present is None
            and source.size_bytes
            and self._options.leader_epochs == "auto"
        ):
            return not self._options.is_aux, []  # neither side is known, and 0 is right in any cluster
        if self._options.is_aux:
            if is_lower and present is not None:
                raise ValueError(
                    f"its archived leader epochs go up to {highest}, and the cluster's is {present}: it is another "
                    "topic, or the metadata log is not complete"
                )
            return False, []
        match self._options.leader_epochs:
            case "renumber":
                return True, []
            case "keep" if is_lower:
                return False, [
                    f"leader epochs up to {highest} are kept although the cluster's is "
                    f"{'not known' if present is None else present}: followers pass over such batches, and never "
                    "come in sync"
                ]
            case "auto" if is_lower:
                return True, []
        return False, []

    def _remote_start(self, source: SourcePartition, topic_id: UUID) -> tuple[int | None, list[str]]:
        """Return where a log begins whose first part is in remote storage, None for any other; and warnings.

        A broker deletes remote segments below the log start, so it must not be taken for that of the local part.

        Raises:
            ValueError: it is not known.
        """
        if source.layout.is_tiered or not source.segments:
            return None, []
        where, base = source.where, source.segments[0].segment.base_offset
        start = source.log_start_offset
        is_same = source.topic_id == format_uuid(topic_id)
        if is_same and self._target.facts.settings_of(where.topic).remote_log_enabled:
            known = self._target.log_start(where.topic, where.partition)
            start = max((one for one in (start, known) if one is not None), default=None)
            if start is None and base:
                raise ValueError(
                    "it is tiered, and where its whole log begins is not known, below which a broker deletes what is "
                    "in remote storage. Remedy: name a copy of the whole log dir as the archive, which has "
                    "log-start-offset-checkpoint"
                )
            return (start if start is not None and start < base else None), []
        if start is not None and start < base:
            return None, [
                f"offsets {start} to {base - 1} are not in the archive: they are in remote storage if the log was "
                "tiered, and else missing"
            ]
        return None, []

    def _next_offset(self, source: SourcePartition, topic_id: UUID) -> int:
        """Return where an empty local log begins behind the archived one."""
        if not source.layout.is_tiered:
            raise ValueError("--aux is for archives of tiered storage. Remedy: leave it out")
        if source.where.topic_id != format_uuid(topic_id):
            raise ValueError(
                f"its id in the archive is {source.where.topic_id}, and in the cluster {format_uuid(topic_id)}: "
                "brokers find remote segments by it. Remedy: restore it in full, without --aux"
            )
        if not source.segments:
            raise ValueError("nothing of it is archived. Remedy: leave it out with --topic or --partition")
        end = source.segments[-1].end_offset
        if end is None:
            raise ValueError(
                "where its last segment ends is not known. Remedy: give log dirs with __remote_log_metadata with "
                "--metadata"
            )
        return end + 1

    def _unknown_retention(self, planned: PlannedRestore) -> Iterator[str]:
        """Yield a warning if it is not known what a broker deletes at its first check."""
        if planned.retained is None:
            topic = planned.source.where.topic
            why = (
                "no metadata log was found"
                if self._retention_of(topic) is None
                else "a segment does not tell its last timestamp"
            )
            yield (
                f"what retention deletes at the broker's first check is not known: {why}. Remedy: see that the topic's "
                "retention.ms keeps the records"
            )

    def _gone(self, planned: PlannedRestore) -> Iterator[str]:
        """Yield a warning if this broker's log of the same topic had more than is restored."""
        source, last = planned.source, planned.source.end_offset
        told = self._target.told_end(source.where.topic, source.where.partition)
        if last is None or told is None or source.topic_id != format_uuid(planned.topic_id):
            return
        if told.end_offset > last + 1:
            yield (
                f"this broker's log had offsets {last + 1} to {told.end_offset - 1}, by {told.witness}, and they are "
                "not in the archive. Remedy: where another replica has them, let that lead instead"
            )

    def _is_there(self, planned: PlannedRestore, existing: ExistingLog) -> bool:
        """Return whether a log has all that would be restored."""
        return _is_alike(planned, existing) and (
            planned.mode == "aux" or has_last_batch(self._store, planned.source, existing.path)
        )

    def _retained(self, source: SourcePartition) -> tuple[int, int] | None:
        retention = self._retention_of(source.where.topic)
        return None if retention is None else breached(source.segments, retention, self._now_ms)


def _logs(planned: PlannedRestore) -> dict[str, int]:
    """Return the sizes of the logs that a restored folder has, at most, by name."""
    if planned.next_offset is not None:
        return {log_name(planned.next_offset): 0}
    return {log_name(one.segment.base_offset): one.log_bytes for one in planned.source.segments}


def _is_alike(planned: PlannedRestore, existing: ExistingLog) -> bool:
    """Return whether a log may have all that would be restored, by its topic, and the names and sizes of its segments.

    A broker may have gone on in the last one, and in others, and may not have deleted yet what is below the log start.
    """
    logs = _logs(planned)
    if existing.topic_id != planned.topic_id or not logs:
        return False
    if planned.next_offset is not None and existing.is_empty:
        # What makes it more than the empty log of any broker
        return existing.names >= {LEADER_EPOCH_CHECKPOINT, snapshot_name(planned.next_offset), *logs}
    last = max(logs)
    cut_short = {log_name(one.segment.base_offset) for one in planned.source.segments if one.overlaps_next}
    return (
        all(
            existing.logs.get(name) == size_bytes
            or (name in cut_short and 0 < existing.logs.get(name, 0) < size_bytes)
            for name, size_bytes in logs.items()
            if name != last
        )
        and existing.logs.get(last, -1) >= logs[last]
        and all(name in logs or not min(logs) < name < last for name in existing.logs)
    )


def _has_records(planned: PlannedRestore, existing: ExistingLog) -> str:
    """Return why nothing takes the place of a log that is there."""
    name = planned.source.name
    remedy = "Remedy: move that folder out of the log dir if the archive's log is to take its place"
    if existing.topic_id in (None, planned.topic_id):
        return f"{existing.log_dir}/{name} has records. {remedy}"
    return (
        f"{existing.log_dir}/{name} has records, and is of the topic id {format_uuid(existing.topic_id)}; what is "
        f"restored would be of {format_uuid(planned.topic_id)}. {remedy}"
    )


def _offset(name: str) -> int:
    """Return where a segment begins by the name of its log; 0 for one that no broker has written."""
    try:
        return read_offset(name)
    except FileNameError:
        return 0


def _goes_back(planned: PlannedRestore, existing: ExistingLog) -> str | None:
    """Return why an empty log is not replaced by one that ends before it: offsets would be used a second time."""
    name, end = planned.source.name, planned.next_offset
    if end is None and planned.source.end_offset is not None:
        end = planned.source.end_offset + 1
    begin = max(map(_offset, existing.logs), default=0)
    if end is None or begin <= end or existing.topic_id not in (None, planned.topic_id):
        return None
    return (
        f"{existing.log_dir}/{name} is empty, and its next offset is {begin}; restored it would be {end}, and offsets "
        f"up to {begin - 1} would be used a second time. Remedy: move that folder out of the log dir if they may be"
    )


def _unchanged(planned: PlannedRestore, existing: ExistingLog) -> RestoredPartition:
    """Return the report on a log that is there; where it ends is not known if it has gone on."""
    expected, logs = planned.result(), _logs(planned)
    last = max(logs)
    has_gone_on = max(existing.logs) > last or existing.logs[last] > logs[last]
    end, last_offset = expected.log_end_offset, planned.source.end_offset
    if end is None and planned.mode == "full" and last_offset is not None:
        end = last_offset + 1
    return replace(
        expected,
        log_dir=existing.log_dir,
        status="unchanged",
        segments=len(existing.logs),
        size_bytes=sum(existing.logs.values()),
        log_end_offset=None if has_gone_on else end,
        leader_epochs=None,  # an earlier run's business
        retained=None,
    )


def breached(
    segments: Sequence[SourceSegment], retention: LogRetention, now_ms: int
) -> tuple[int, int] | None:
    """Return how many segments, and bytes, a broker deletes at its first check; None if a timestamp is not known.

    Kafka: UnifiedLog.deleteOldSegments, deleteRetentionSizeBreachedSegments, deleteRetentionMsBreachedSegments.
    """
    if not retention.is_expiring:
        return 0, 0
    count = 0
    if retention.retention_bytes >= 0:
        excess = sum(one.log_bytes for one in segments) - retention.retention_bytes
        while count < len(segments) and 0 < segments[count].log_bytes <= excess:
            excess -= segments[count].log_bytes
            count += 1
    if retention.retention_ms >= 0:
        while count < len(segments) and segments[count].log_bytes:
            timestamp = segments[count].max_timestamp_ms
            if timestamp is None:
                return None
            if now_ms - timestamp <= retention.retention_ms:
                break
            count += 1
    return count, sum(one.log_bytes for one in segments[:count])
