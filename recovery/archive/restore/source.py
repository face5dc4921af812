"""What of a partition is restored from an archive: its segments in order, its leader epochs, and what is missing.

Where the metadata topic is known (`--metadata`), a broker's lineage decides; else names do, as for reading records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise

from recovery.archive.copy.account import CopiedFolder, CopyAccounts
from recovery.archive.copy.comparison import differences, needed_checkpoints, needed_files
from recovery.archive.copy.earlier import kept_before
from recovery.archive.copy.listing import PARTIAL_SUFFIX
from recovery.archive.copy.manifest import MANIFEST_KEY
from recovery.archive.layouts.layout import ArchivedFiles, Layout
from recovery.archive.layouts.walk import UnlistedPrefix, Walked, walk
from recovery.archive.records.broker_view import BrokerView, RemoteLog
from recovery.archive.records.read_request import PlannedSegments
from recovery.archive.records.segment_choice import choose_segments
from recovery.archive.remote.log_dir_copy import LogDirCopy, read_log_dir_copy
from recovery.archive.restore.log_end import (
    RECOVER_COPY,
    SourceSegment,
    measured,
    missing_end,
    uncommitted_end,
    zeros_left_out,
)
from recovery.archive.stores.archived import ArchivedSegment, PartitionPrefix, PartKind, StoredObject
from recovery.archive.stores.segment_table import ObjectTable
from recovery.archive.stores.store import Store
from recovery.check.folder_files import MOST_SMALL_FILE_BYTES
from recovery.check.rules.indexes import without_preallocated
from recovery.errors import error_text
from recovery.logdir.choice import PartitionChoice
from segfmt.checkpoint import LeaderEpochEntry, read_leader_epoch_checkpoint
from segfmt.errors import FormatError, MissingKeyError
from segfmt.filenames import (
    CLEANER_OFFSET_CHECKPOINT,
    CLUSTER_METADATA_TOPIC,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    LOG_SUFFIX,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    SWAP_SUFFIX,
    FileKind,
    FolderState,
    file_kind,
    log_name,
    read_folder_name,
    time_index_name,
)
from segfmt.kafka_uuid import format_uuid
from segfmt.partition_metadata import read_partition_metadata
from segfmt.remote_log_metadata import TOPIC as METADATA_TOPIC
from segfmt.remote_log_metadata import RemoteSegment
from segfmt.time_index import view_time_index

_BY_NAMES_ALONE = (
    "by the names in the archive alone, a first or last segment that is missing does not show. "
    "Remedy: give log dirs with --metadata"
)
_NOT_WHOLE = "archive copy has not copied all of it. Remedy: start that again; if its source is gone, "
READABLE = "Remedy: see that this user can read it, and start again"
REBUILT = "Remedy: archive recover rebuilds it"
_OTHER_METADATA = (
    f"Remedy: give another replica of {METADATA_TOPIC} with --metadata, or leave that out: then names tell which "
    "segments count"
)
_RIGHT_KEY = "Remedy: give the key that the plugin had by this id with --aiven-key"
_SOUND = "Remedy: put its objects there from another copy of the archive"
_SOUND_SEGMENTS = "Remedy: put the segments that have them there from another copy of the archive"
CHANGED_REMEDY = (
    "Remedy: copy it again (archive copy --restart); or, if the copy was recovered or changed on purpose, move "
    f"{MANIFEST_KEY} away while this one is restored (--partition): then what is there is taken as it is"
)
_GONE = (
    "its log had gone from its log dir when that was copied last, and its indexes had not. Remedy: put it back there, "
    f"and copy again; or, if an earlier copy has left it at the output, move {MANIFEST_KEY} away while this one is "
    "restored (--partition): then what is there is taken as it is"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePartition:
    """A partition that is restored, or not.

    Attributes:
        segments: ascending.
        topic_id: as the archive has it; empty if it does not say.
        epochs: leader epochs of the log.
        log_start_offset: None if not known: the log begins with its first segment.
        end_offset: of its last record, None if not known.
        snapshots_before: of producers at the beginning of the first segment or before, as a part in remote storage
            has left them.
        gaps: offsets that no segment has, a sentence each; a compacted log may have some. What may have them follows.
        warnings: what the restored log will lack.
        reasons: why it cannot be restored; a sentence each.
    """

    where: PartitionPrefix
    layout: Layout
    topic_id: str = ""
    segments: Sequence[SourceSegment] = ()
    epochs: Sequence[LeaderEpochEntry] = ()
    log_start_offset: int | None = None
    end_offset: int | None = None
    snapshots_before: Sequence[StoredObject] = ()
    gaps: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Topic and number, as a folder is named."""
        return f"{self.where.topic}-{self.where.partition}"

    @property
    def size_bytes(self) -> int:
        """Bytes of all logs."""
        return sum(segment.log_bytes for segment in self.segments)

    @property
    def first_offset(self) -> int:
        """Where the log begins in a broker's log dir."""
        base = self.segments[0].segment.base_offset if self.segments else 0
        return max(base, self.log_start_offset or 0)


def find_partitions(
    store: Store,
    layout: Layout,
    is_chosen: PartitionChoice,
    broker: BrokerView | None,
    accounts: CopyAccounts | None,
    topic_id_of: Callable[[str], str | None],
) -> Iterator[SourcePartition]:
    """Yield the chosen partitions of an archive, each once; what cannot be restored with the reasons.

    Args:
        accounts: what copies say of the folders; None for tiered storage.
        topic_id_of: the id that a topic is restored under, None if not known: tiered storage may also have what is left
            of a deleted topic of that name.

    Raises:
        UsageError: the manifest of a copy cannot be understood.
        OSError: the archive cannot be listed, or a folder in which there may be partitions.
    """
    found: list[_Found] = []
    seen = set()
    on_level = (lambda _prefix, _level: None) if accounts is None else accounts.look_at
    for walked in walk(store, layout, is_chosen=is_chosen, on_level=on_level):
        if isinstance(walked, UnlistedPrefix):
            unlisted = layout.partition_at(walked.prefix.rstrip("/"))
            reason = f"{walked.prefix}: cannot be listed: {walked.error}. {READABLE}"
            if unlisted is None:  # there may be partitions in it
                raise OSError(reason)
            seen.add(walked.prefix)
            yield SourcePartition(where=unlisted, layout=layout, reasons=(reason,))
        if isinstance(walked, Walked):
            where = walked.partition.where
            seen.add(where.prefix)
            if _is_current(where, layout):
                copied = None if accounts is None else accounts.folder(where.prefix)
                found.append(_Found(where, walked, copied))
    if accounts is not None:
        absent = [(prefix, _NOT_WHOLE + RECOVER_COPY) for prefix in accounts.unfinished()]
        absent += [
            (prefix, f"it was copied, and is not there. {CHANGED_REMEDY}") for prefix in accounts.present()
        ]
        for prefix, reason in sorted(dict(reversed(absent)).items()):
            folder = layout.partition_at(prefix.rstrip("/")) if prefix not in seen else None
            if folder is not None and _is_current(folder, layout) and is_chosen(folder):
                found.append(_Found(folder, None, accounts.folder(prefix), reason))
    by_partition: dict[tuple[str, int], list[_Found]] = {}
    for one in found:
        by_partition.setdefault((one.where.topic, one.where.partition), []).append(one)
    for twins in by_partition.values():
        rank = min(one.rank for one in twins)
        best = [one for one in twins if one.rank == rank]
        topic_id = topic_id_of(best[0].where.topic)
        own = [one for one in best if one.where.topic_id and one.where.topic_id == topic_id]
        # Where there are folders, those of deleted topics stay behind their segments
        filled = [one for one in best if layout.is_tiered and one.has_segments]
        yield _restorable(store, layout, own or filled or best, broker)


@dataclass(frozen=True, slots=True)
class _Found:
    """A folder of a partition: one that is there, or one that is not and should be, for a reason."""

    where: PartitionPrefix
    walked: Walked | None
    copied: CopiedFolder | None
    reason: str = ""

    @property
    def has_segments(self) -> bool:
        """Whether anything of a segment is in it."""
        return self.walked is not None and len(self.walked.partition.segments) > 0

    @property
    def rank(self) -> int:
        """What there is now, before what was not copied whole, before what had gone from its log dir."""
        if self.copied is None:
            return 0
        return 2 if self.copied.is_gone else int(not self.copied.is_whole or self.walked is None)


def _restorable(
    store: Store, layout: Layout, folders: Sequence[_Found], broker: BrokerView | None
) -> SourcePartition:
    """Return what is restored of a partition that is in *folders*; of more than one, nothing."""
    one = folders[0]
    if len(folders) > 1:
        meant = "one" if layout.is_tiered else "folder of the log dir"
        reason = (
            f"the archive has it {len(folders)} times: {', '.join(folder.where.prefix for folder in folders)}. Remedy: "
            f"name the {meant} that is meant as the archive"
        )
        return SourcePartition(where=one.where, layout=layout, reasons=(reason,))
    if one.walked is None:
        return SourcePartition(where=one.where, layout=layout, reasons=(one.reason,))
    if one.copied is not None and not one.copied.is_whole:
        return SourcePartition(where=one.where, layout=layout, reasons=(_not_whole(one.walked),))
    return _partition(store, layout, one.walked, broker, one.copied)


def _not_whole(walked: Walked) -> str:
    parts = [name for name in walked.partition.others.names if name.endswith(PARTIAL_SUFFIX)]
    if not parts:
        return _NOT_WHOLE + RECOVER_COPY
    others = " (and the others likewise)" if parts[1:] else ""
    return (
        f"{_NOT_WHOLE}rename {parts[0]}, what could be read of that file, to "
        f"{parts[0].removesuffix(PARTIAL_SUFFIX)} if that is not there{others}, {RECOVER_COPY}"
    )


def _is_current(where: PartitionPrefix, layout: Layout) -> bool:
    """Return whether a folder is a log's of a topic, and not one of a move, a stray one, or the cluster's own."""
    if layout.is_tiered:
        return True
    is_of_topic = where.topic != CLUSTER_METADATA_TOPIC
    return is_of_topic and read_folder_name(where.folder).state is FolderState.CURRENT


def _partition(
    store: Store, layout: Layout, walked: Walked, broker: BrokerView | None, copied: CopiedFolder | None
) -> SourcePartition:
    where = walked.partition.where
    objects: Sequence[StoredObject] = ()
    left_out = list(_left_out(walked.partition.others.names))
    if not layout.is_tiered:
        objects, walked = _as_copied(store, layout, walked, copied)
    remote = None if broker is None or not layout.is_tiered else broker.remote_log(where)
    reasons = _wrong_files(store, copied, objects, walked)
    if broker is not None and layout.is_tiered:
        reasons += _by_metadata(broker, where, remote)
    lineage = None if remote is None else remote.segments
    planned = choose_segments(walked.partition, layout, lineage)
    segments, unusable = _segments(store, layout, planned, lineage, copied)
    reasons += unusable
    gaps: list[str] = []
    warnings: list[str] = []
    end = None
    start = None
    if not reasons:
        segments, ends = measured(store, layout, segments)
        end = ends[-1] if ends else None
        if layout.is_tiered:
            start = None if broker is None else broker.log_start(where)[0]
            reasons += [f"{gap}. {_SOUND_SEGMENTS}" for gap in _gaps(segments, ends)]
            if remote is None:
                warnings.append(_BY_NAMES_ALONE)
        else:
            copy = read_log_dir_copy(store, walked.siblings)
            start = copy.offset(LOG_START_OFFSET_CHECKPOINT, where)
            if copy.offset(CLEANER_OFFSET_CHECKPOINT, where) is None:
                gaps = _gaps(segments, ends)
            reasons += [*_overlaps(segments, ends), *missing_end(store, objects, copy, where, ends)]
            reasons += _unknown_start(copy)
            warnings += _of_log_dir(walked, copied)
            warnings += _unknown_end(copy)
            warnings += zeros_left_out(segments)
            warnings += uncommitted_end(copy, where, ends)
    for texts in [reasons] if reasons else [warnings, *([gaps] if gaps else [])]:
        texts += left_out  # beside gaps, too, as they may be what it lacks
    epochs: Sequence[LeaderEpochEntry] = ()
    if segments and not reasons:
        try:
            epochs = _epochs(store, layout, where, segments[-1].segment)
        except (OSError, FormatError) as error:
            name = (
                layout.name_of(segments[-1].segment, PartKind.LEADER_EPOCHS)
                if layout.is_tiered
                else LEADER_EPOCH_CHECKPOINT
            )
            remedy = _remedy(error) if layout.is_tiered else _WITHOUT_EPOCHS
            reasons.append(f"{name}: {error_text(error)}. {remedy}")
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


def _by_metadata(broker: BrokerView, where: PartitionPrefix, remote: RemoteLog | None) -> Iterator[str]:
    """Yield why a tiered log cannot be restored, by the metadata topic."""
    hiding = broker.hiding(where)
    if hiding is not None:
        yield f"what became of its segments is not known: {hiding.file}: {hiding.detail}. {_OTHER_METADATA}"
    if remote is not None and remote.cut_off is not None:
        segment, why = remote.cut_off
        yield (
            f"segment {segment.start_offset}: {why}. Remedy: let its leader go on copying, or restore it from a copy "
            "of that leader's log dir"
        )


def _remedy(error: OSError | FormatError) -> str:
    """Return what helps where a small file of a segment in tiered storage cannot be read."""
    if isinstance(error, MissingKeyError):
        return _RIGHT_KEY
    return READABLE if isinstance(error, OSError) and not isinstance(error, FileNotFoundError) else REBUILT


def _segments(
    store: Store,
    layout: Layout,
    planned: PlannedSegments,
    lineage: Mapping[str, RemoteSegment] | None,
    copied: CopiedFolder | None,
) -> tuple[list[SourceSegment], list[str]]:
    """Return the segments that can be restored, and why others cannot."""
    segments: list[SourceSegment] = []
    reasons: list[str] = []
    # brokers before 4.0 do not say whether there are aborted transactions
    says_aborted = lineage is not None and any(one.has_no_transactions for one in lineage.values())
    for row, segment in enumerate(planned.segments):
        told = None if lineage is None else lineage.get(segment.segment_id)
        try:
            one = _segment(store, layout, segment, planned.end_offsets[row], told, copied)
            has_aborted = says_aborted and told is not None and not told.has_no_transactions
            segments.append(replace(one, has_aborted=has_aborted))
        except (OSError, FormatError) as error:
            text = error_text(error)
            remedy = "" if "Remedy: " in text else f". {READABLE if isinstance(error, OSError) else _SOUND}"
            reasons.append(f"segment {segment.base_offset}: {text}{remedy}")
    return segments, reasons


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


def _wrong_files(
    store: Store, copied: CopiedFolder | None, objects: Sequence[StoredObject], walked: Walked
) -> list[str]:
    """Return what is not as it was copied, and what a broker would change before it loads the log."""
    swaps = [one.name for one in objects if one.name.endswith(LOG_SUFFIX + SWAP_SUFFIX)]
    return [
        *([] if copied is None else _unlike(store, copied, objects, walked)),
        *(
            f"{name}: a compaction was cut short, which a broker finishes when it starts. Remedy: {RECOVER_COPY}"
            for name in swaps[:1]
        ),
    ]


def _topic_id(store: Store, where: PartitionPrefix) -> str:
    """Return the topic's id by the file in a copied folder, empty without a sound one."""
    with suppress(OSError, FormatError):
        data = store.read(where.prefix + PARTITION_METADATA, most_bytes=MOST_SMALL_FILE_BYTES)
        return format_uuid(read_partition_metadata(data).topic_id)
    return ""


def _segment(
    store: Store,
    layout: Layout,
    segment: ArchivedSegment,
    next_offset: int | None,
    told: RemoteSegment | None,
    copied: CopiedFolder | None,
) -> SourceSegment:
    if PartKind.LOG not in segment.parts:
        has_gone = copied is not None and log_name(segment.base_offset) in copied.gone
        raise FormatError(_GONE if has_gone else f"its log is not in the archive. {_SOUND}")
    if layout.last_part is not None and layout.last_part not in segment.parts:
        raise FormatError(f"it has no {layout.last_part.noun}, so it is not complete. {_SOUND}")
    files = layout.files(store, segment)
    for name, what in _wrong_sizes(layout, segment, files, told):
        raise FormatError(f"{name} is not complete: {what}. {_SOUND}")
    described = told or files.described()
    end = None if described is None else described.end_offset
    return SourceSegment(
        segment=segment,
        until_offset=next_offset,
        end_offset=end,
        log_bytes=files.log_bytes(),
        max_timestamp_ms=_max_timestamp_ms(files, segment)
        if described is None
        else described.max_timestamp_ms,
        sha256=None if copied is None else copied.sha256(log_name(segment.base_offset)),
    )


def _wrong_sizes(
    layout: Layout, segment: ArchivedSegment, files: ArchivedFiles, told: RemoteSegment | None
) -> Iterator[tuple[str, str]]:
    """Yield which objects of a segment in tiered storage do not have the size that they must have, and what tells."""
    for kind, what in files.contradictions():
        yield layout.name_of(segment, kind), what
    name = layout.name_of(segment, PartKind.LOG)
    if told is not None and layout.has_plain_logs and segment.log_bytes != told.size_bytes:
        yield name, f"{segment.log_bytes:,} bytes, the metadata topic says {told.size_bytes:,}"
    elif layout.is_tiered and not segment.log_bytes:
        yield name, "0 bytes, and no broker archives an empty log"


def _max_timestamp_ms(files: ArchivedFiles, segment: ArchivedSegment) -> int | None:
    """Return the last timestamp in a segment's index, None without one."""
    with suppress(OSError, FormatError):
        data, _ = files.read_index(time_index_name(segment.base_offset), lambda _size: None)
        entries = without_preallocated(view_time_index(data))
        return int(entries["timestamp_ms"].max()) if len(entries) else None
    return None


def _gaps(segments: Sequence[SourceSegment], ends: Sequence[int | None]) -> list[str]:
    return [
        f"offsets {end + 1} to {after.segment.base_offset - 1} are in no segment of the archive"
        for end, (_, after) in zip(ends, pairwise(segments), strict=False)
        if end is not None and end + 1 < after.segment.base_offset
    ]


def _overlaps(segments: Sequence[SourceSegment], ends: Sequence[int | None]) -> list[str]:
    """Return why the segments of a copied log are not those of one log: no broker has any that overlap."""
    return [
        f"segment {one.segment.base_offset} ends at offset {end}, and the next one begins at "
        f"{after.segment.base_offset}: they are not of one log. Remedy: copy the log dir to another output, or move "
        "what is of an older log away"
        for end, (one, after) in zip(ends, pairwise(segments), strict=False)
        if end is not None and end >= after.segment.base_offset
    ]


def _unlike(store: Store, copied: CopiedFolder, objects: Sequence[StoredObject], walked: Walked) -> list[str]:
    """Return what is not as it was copied; indexes do not matter, they are made anew. Logs are read when fetched."""
    found = list(differences(needed_files(copied), objects, store=store))
    if (
        walked.partition.where.prefix and not copied.is_gone
    ):  # else what is beside it is not looked at, or not its own
        found += differences(needed_checkpoints(copied), walked.siblings, store=store)
    texts = [f"{one.name} {one.text}" for one in found]
    return [f"{'; '.join(texts)}. {CHANGED_REMEDY}"] if texts else []


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


def _epochs(
    store: Store, layout: Layout, where: PartitionPrefix, last: ArchivedSegment
) -> Sequence[LeaderEpochEntry]:
    if layout.is_tiered:
        return read_leader_epoch_checkpoint(layout.files(store, last).read_part(PartKind.LEADER_EPOCHS))
    try:
        data = store.read(where.prefix + LEADER_EPOCH_CHECKPOINT, most_bytes=MOST_SMALL_FILE_BYTES)
    except FileNotFoundError:
        return ()
    return read_leader_epoch_checkpoint(data)
