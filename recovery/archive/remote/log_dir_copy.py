"""A copy of a log dir's own files, as far as they were copied: its checkpoints and its clean-shutdown marker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from recovery.archive.remote.replicas import topic_id_of
from recovery.archive.stores.archived import PartitionPrefix, StoredObject
from recovery.archive.stores.store import Store
from recovery.check.facts import PartitionFacts
from recovery.check.finding import Finding, unreadable
from recovery.check.folder_files import MOST_SMALL_FILE_BYTES
from recovery.logdir.checkpoints import OFFSET_CHECKPOINTS
from segfmt.checkpoint import read_offset_checkpoint
from segfmt.errors import FormatError
from segfmt.filenames import (
    CLEAN_SHUTDOWN_FILE,
    CLEANER_OFFSET_CHECKPOINT,
    CLUSTER_METADATA_TOPIC,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
)

_COMPACTED_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirCopy:
    """The files of a log dir next to its folders.

    Attributes:
        offsets: the lines of each offset checkpoint, by file name; none if it is missing or malformed.
        findings: about the checkpoints themselves.
        hides_recovery_points: whether there are some, and they could not be read.
    """

    had_clean_shutdown: bool = False
    offsets: dict[str, dict[tuple[str, int], int]] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    hides_recovery_points: bool = False

    def facts(self, where: PartitionPrefix, *, is_deep: bool, is_tiered: bool, now_ms: int) -> PartitionFacts:
        """Return what is known of a partition below it.

        Without a recovery-point checkpoint, as in a copy of folders alone, everything counts as flushed; if it could
        not be read, nothing does, lest a tail that any crash leaves be called damage.
        """
        is_flushed = self.had_clean_shutdown or not self.hides_recovery_points
        was_cleaned = self.offset(CLEANER_OFFSET_CHECKPOINT, where) is not None
        return PartitionFacts(
            path=where.prefix.rstrip("/"),
            folder=where.folder,
            topic=where.topic,
            partition=where.partition,
            is_live=False,
            had_clean_shutdown=self.had_clean_shutdown,
            recovery_point=self.offset(RECOVERY_POINT_CHECKPOINT, where),
            log_start_offset=self.offset(LOG_START_OFFSET_CHECKPOINT, where),
            high_watermark=self.offset(REPLICATION_OFFSET_CHECKPOINT, where),
            is_contiguous=is_tiered or (where.topic not in _COMPACTED_TOPICS and not was_cleaned),
            topic_id=topic_id_of(where) if is_tiered else None,
            is_metadata_log=where.topic == CLUSTER_METADATA_TOPIC,
            is_deep=is_deep,
            now_ms=now_ms,
            is_archived=RECOVERY_POINT_CHECKPOINT not in self.offsets and is_flushed,
        )

    def offset(self, checkpoint: str, where: PartitionPrefix) -> int | None:
        """Return what the checkpoint of this name says of a partition, None if it has no line for it."""
        return self.offsets.get(checkpoint, {}).get((where.topic, where.partition))

    def fault(self, checkpoint: str) -> Finding | None:
        """Return why the checkpoint of this name says nothing, None if it can be read, or is missing."""
        return next((finding for finding in self.findings if finding.file == checkpoint), None)


def read_log_dir_copy(store: Store, objects: Sequence[StoredObject]) -> LogDirCopy:
    """Return what the *objects* next to the partitions' folders say."""
    by_name = {stored.name: stored for stored in objects}
    offsets = {}
    findings: list[Finding] = []
    for name in OFFSET_CHECKPOINTS:
        if name not in by_name:
            continue
        try:
            data = store.read(by_name[name].key, most_bytes=MOST_SMALL_FILE_BYTES)
            offsets[name] = read_offset_checkpoint(data)
        except FormatError as error:
            at = error.position or None
            findings.append(Finding(file=name, position=at, rule="checkpoint", detail=str(error)))
        except OSError as error:
            findings.append(unreadable(name, error))
    unread = {finding.file for finding in findings if finding.rule == "unreadable"}
    return LogDirCopy(
        had_clean_shutdown=CLEAN_SHUTDOWN_FILE in by_name,
        offsets=offsets,
        findings=tuple(findings),
        hides_recovery_points=RECOVERY_POINT_CHECKPOINT in unread,
    )
