"""What of a partition is restored from a copied log dir: what is as it was copied, and what tells where it ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise

from recovery.archive.copy.account import CopiedFolder
from recovery.archive.copy.comparison import differences, needed_files
from recovery.archive.copy.earlier import kept_before
from recovery.archive.copy.listing import PARTIAL_SUFFIX
from recovery.archive.copy.manifest import MANIFEST_KEY
from recovery.archive.layouts.layout import Layout
from recovery.archive.layouts.walk import Walked
from recovery.archive.records.segment_choice import choose_segments
from recovery.archive.remote.log_dir_copy import LogDirCopy
from recovery.archive.restore.copied_log_dirs import CopiedLogDirs
from recovery.archive.restore.log_end import (
    RECOVER_COPY,
    measured,
    missing_end,
    uncommitted_end,
    zeros_left_out,
)
from recovery.archive.restore.source import READABLE, SourcePartition, SourceSegment
from recovery.archive.restore.source_segments import gaps_between, source_segments
from recovery.archive.stores.archived import PartitionPrefix, StoredObject
from recovery.archive.stores.segment_table import ObjectTable
from recovery.archive.stores.store import Store
from recovery.check.folder_files import MOST_SMALL_FILE_BYTES
from recovery.errors import error_text
from segfmt.checkpoint import LeaderEpochEntry, read_leader_epoch_checkpoint
from segfmt.errors import FormatError
from segfmt.filenames import (
    CLEANER_OFFSET_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    LOG_SUFFIX,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    SWAP_SUFFIX,
    FileKind,
    file_kind,
)
from segfmt.kafka_uuid import format_uuid
from segfmt.partition_metadata import read_partition_metadata

CHANGED_REMEDY = (
    "Remedy: copy it again (archive copy --restart); or, if the copy was recovered or changed on purpose, move "
    f"{MANIFEST_KEY} away while this one is restored (--partition): then what is there is taken as it is"
)
_WITHOUT_EPOCHS = (
    f"Remedy: move {LEADER_EPOCH_CHECKPOINT} away, and {MANIFEST_KEY} if there is one, while this one is restored "
    "(--partition): then its leader epochs are those of its batches"
)
_WITHOUT_START = (
    f"Remedy: copy the log dir again; or move {LOG_START_OFFSET_CHECKPOINT} away, and {MANIFEST_KEY} if there is one: "
    "then the log begins with its first segment, and records that were deleted (kafka-delete-records) may come back"
)
_UNTOLD = {
    RECOVERY_POINT_CHECKPOINT: "a missing end of the log may not show",
    REPLICATION_OFFSET_CHECKPOINT: "a missing end of the log may not show",
    CLEANER_OFFSET_CHECKPOINT: "whether the log was compacted is not known",
}
"""What the checkpoints of a log dir tell of a log, but for its start."""


def copied_partition(
    store: Store, layout: Layout, walked: Walked, copied: CopiedFolder | None, log_dirs: CopiedLogDirs
) -> SourcePartition:
    """Return what is restored of a partition in the folder *walked*, or why it is not."""
    where = walked.partition.where
    left_out = list(_left_out(walked.partition.others.names))
    objects, walked = _as_copied(store, layout, walked, copied)
    segments, unusable = source_segments(
        store, layout, choose_segments(walked.partition, layout, None), None, copied
    )
    unlike = [] if copied is None else _unlike(store, copied, objects, walked, log_dirs)
    reasons = [*unlike, *_unfinished_compaction(objects), *unusable]
    gaps: list[str] = []
    warnings: list[str] = []
    end = None
    start = None
    epochs: Sequence[LeaderEpochEntry] = ()
    if not reasons:
        segments, ends = measured(store, layout, segments)
        end = ends[-1] if ends else None
        copy = log_dirs.of(walked)
        start = copy.offset(LOG_START_OFFSET_CHECKPOINT, where)
        if copy.offset(CLEANER_OFFSET_CHECKPOINT, where) is None:
            gaps = gaps_between(segments, ends)
        reasons += [*_overlaps(segments, ends), *missing_end(store, objects, copy, where, ends)]
        reasons += _unknown_start(copy)
        warnings += _of_log_dir(walked, copied)
        warnings += _unknown_end(copy)
        warnings += zeros_left_out(segments)
        warnings += uncommitted_end(copy, where, ends)
    for texts in [reasons] if reasons else [warnings, *([gaps] if gaps else [])]:
        texts += left_out  # beside gaps, too, as they may be what it lacks
    if segments and not reasons:
        epochs, unread = _epochs(store, where)
        reasons += unread
    return SourcePartition(
        where=where,
        layout=layout,
        topic_id=where.topic_id or _topic_id(store, where),
        segments=segments,
        epochs=epochs,
        log_start_offset=start if segments else None,
        end_offset=end,
        snapshots_before=[one for one in walked.partition.others if file_kind(one.name) is FileKind.SNAPSHOT],
        gaps=tuple(gaps),
        warnings=tuple(warnings),
        reasons=tuple(reasons),
    )


def _left_out(names: Sequence[str]) -> Iterator[str]:
    """Yield what a copy has kept of files of which it has no whole, or another one, for the first of each kind."""
    for part in [name for name in names if name.endswith(LOG_SUFFIX + PARTIAL_SUFFIX)][:1]:
        yield (
            f"{part}, what could be read of that file when it was copied, is left out. Remedy: rename it to "
            f"{part.removesuffix(PARTIAL_SUFFIX)} first, if that is not there"
        )
    for earlier in kept_before(names, ())[:1]:
        yield (
            f"{earlier}, of a file that then lost bytes or changed them, is left out. Remedy: if that is the sound "
            f"copy, put it in the place of the later one, and move {MANIFEST_KEY} away while this one is restored "
            "(--partition)"
        )


def _as_copied(
    store: Store, layout: Layout, walked: Walked, copied: CopiedFolder | None
) -> tuple[Sequence[StoredObject], Walked]:
    """Return the files in the folder of a log, and it, without what the copy does not name."""
    where = walked.partition.where
    listed = list(store.list_level(where.prefix).objects)
    objects = [one for one in listed if copied is None or not copied.files or one.name in copied.files]
    if len(objects) == len(listed):
        return listed, walked
    table = ObjectTable.of_rows(where.prefix, [(one.name, one.size_bytes, one.version) for one in objects])
    return objects, replace(walked, partition=layout.partition(where, table))


def _unfinished_compaction(objects: Sequence[StoredObject]) -> list[str]:
    """Return what a broker would change before it loads the log."""
    swaps = [one.name for one in objects if one.name.endswith(LOG_SUFFIX + SWAP_SUFFIX)]
    return [
        f"{name}: a compaction was cut short, which a broker finishes when it starts. Remedy: {RECOVER_COPY}"
        for name in swaps[:1]
    ]


def _unlike(
    store: Store,
    copied: CopiedFolder,
    objects: Sequence[StoredObject],
    walked: Walked,
    log_dirs: CopiedLogDirs,
) -> list[str]:
    """Return what is not as it was copied; indexes do not matter, they are made anew. Logs are read when fetched."""
    found = list(differences(needed_files(copied), objects, store=store))
    # Else what is beside it is not looked at, or not its own
    if walked.partition.where.prefix and not copied.is_gone:
        found += log_dirs.differences(walked, copied)
    texts = [f"{one.name} {one.text}" for one in found]
    return [f"{'; '.join(texts)}. {CHANGED_REMEDY}"] if texts else []


def _overlaps(segments: Sequence[SourceSegment], ends: Sequence[int | None]) -> list[str]:
    """Return why the segments of a copied log are not those of one log: no broker has any that overlap."""
    return [
        f"segment {one.segment.base_offset} ends at offset {end}, and the next one begins at "
        f"{after.segment.base_offset}: they are not of one log. Remedy: copy the log dir to another output, or move "
        "what is of an older log away"
        for end, (one, after) in zip(ends, pairwise(segments), strict=False)
        if end is not None and end >= after.segment.base_offset
    ]


def _unknown_start(copy: LogDirCopy) -> list[str]:
    """Return why it is not known where the logs of a copied log dir begin.

    Differs: LogManager.loadLogs resets the start to the first segment, which brings deleted records back.
    """
    fault = copy.fault(LOG_START_OFFSET_CHECKPOINT)
    if fault is None:
        return []
    remedy = READABLE if fault.rule == "unreadable" else _WITHOUT_START
    return [f"{fault.file}: {fault.detail}, so where the log begins is not known. {remedy}"]


def _unknown_end(copy: LogDirCopy) -> list[str]:
    """Return what the other checkpoints of a copied log dir do not tell, because they cannot be read."""
    return [
        f"{one.file}: {one.detail}, so {_UNTOLD[one.file]}" for one in copy.findings if one.file in _UNTOLD
    ]


def _of_log_dir(walked: Walked, copied: CopiedFolder | None) -> list[str]:
    """Return what is not known without the files of the log dir that a log is from."""
    found = []
    if copied is not None and copied.is_gone:
        found.append(
            "it had gone from its log dir when that was copied last, so records that were deleted "
            "(kafka-delete-records) may come back"
        )
    if copied is not None and not copied.is_named:
        found.append("the manifest of the copy does not name it, so what is missing of it does not show")
    if copied is not None and not copied.is_log_dir_whole:
        found.append("not all of its log dir was copied when it was copied last")
    if not walked.partition.where.prefix:
        found.append(
            "the files of its log dir are not looked at, so records that were deleted (kafka-delete-records) may come "
            "back. Remedy: name the log dir as the archive, and the partition with --partition"
        )
    elif (
        copied is not None
        and not copied.is_log_dir_whole
        and LOG_START_OFFSET_CHECKPOINT not in copied.own_files
    ):
        found.append(
            f"{LOG_START_OFFSET_CHECKPOINT} is not in the copy, so records that were deleted (kafka-delete-records) "
            "may come back"
        )
    return found


def _topic_id(store: Store, where: PartitionPrefix) -> str:
    """Return the topic's id by the file in a copied folder, empty without a sound one."""
    with suppress(OSError, FormatError):
        data = store.read(where.prefix + PARTITION_METADATA, most_bytes=MOST_SMALL_FILE_BYTES)
        return format_uuid(read_partition_metadata(data).topic_id)
    return ""


def _epochs(store: Store, where: PartitionPrefix) -> tuple[Sequence[LeaderEpochEntry], list[str]]:
    """Return the leader epochs of the log, none without the file, and why they cannot be read."""
    try:
        data = store.read(where.prefix + LEADER_EPOCH_CHECKPOINT, most_bytes=MOST_SMALL_FILE_BYTES)
        return read_leader_epoch_checkpoint(data), []
    except FileNotFoundError:
        return (), []
    except (OSError, FormatError) as error:
        return (), [f"{LEADER_EPOCH_CHECKPOINT}: {error_text(error)}. {_WITHOUT_EPOCHS}"]
