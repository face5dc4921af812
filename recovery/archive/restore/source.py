"""What of a partition is restored from an archive: its segments in order, its leader epochs, and what is missing.

Where the metadata topic is known (`--metadata`), a broker's lineage decides; else names do, as for reading records.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise

from recovery.archive.layouts.layout import ArchivedFiles, Layout
from recovery.archive.layouts.walk import UnlistedPrefix, Walked, walk
from recovery.archive.records.broker_view import BrokerView
from recovery.archive.records.segment_choice import choose_segments
from recovery.archive.remote.log_dir_copy import read_log_dir_copy
from recovery.archive.stores.archived import ArchivedSegment, PartitionPrefix, PartKind
from recovery.archive.stores.store import Store
from recovery.check.folder_files import MOST_SMALL_FILE_BYTES
from recovery.logdir.choice import PartitionChoice
from segfmt.checkpoint import LeaderEpochEntry, read_leader_epoch_checkpoint
from segfmt.errors import FormatError
from segfmt.filenames import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    PARTITION_METADATA,
    FolderState,
    read_folder_name,
    time_index_name,
)
from segfmt.kafka_uuid import format_uuid
from segfmt.partition_metadata import read_partition_metadata
from segfmt.remote_log_metadata import RemoteSegment

_TIME_ENTRY = struct.Struct(">qi")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSegment:
    """A segment that is restored.

    Attributes:
        until_offset: its batches from here on are left to the next segment; None: all are its own.
        end_offset: of its last record, None if only the log says.
        log_bytes: of its log.
        max_timestamp_ms: of its records, None if not known.
    """

    segment: ArchivedSegment
    until_offset: int | None
    end_offset: int | None
    log_bytes: int
    max_timestamp_ms: int | None

    @property
    def overlaps_next(self) -> bool:
        """Whether it has records from the next segment on, which are left to that one."""
        return (
            self.end_offset is not None
            and self.until_offset is not None
            and self.end_offset >= self.until_offset
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePartition:
    """A partition that is restored, or not.

    Attributes:
        segments: ascending.
        topic_id: as the archive has it; empty if it does not say.
        epochs: leader epochs of the log.
        log_start_offset: None if not known: the log begins with its first segment.
        reasons: why it cannot be restored; a sentence each.
    """

    where: PartitionPrefix
    layout: Layout
    topic_id: str = ""
    segments: Sequence[SourceSegment] = ()
    epochs: Sequence[LeaderEpochEntry] = ()
    log_start_offset: int | None = None
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
    store: Store, layout: Layout, is_chosen: PartitionChoice, broker: BrokerView | None
) -> Iterator[SourcePartition]:
    """Yield the chosen partitions of an archive; those that are there twice, with the reason for each.

    Raises:
        OSError: the archive cannot be listed.
    """
    found = []
    for walked in walk(store, layout, is_chosen=is_chosen):
        if isinstance(walked, UnlistedPrefix):
            raise OSError(f"{walked.prefix}: cannot be listed: {walked.error}")
        if isinstance(walked, Walked):
            found.append(walked)
    names: dict[tuple[str, int], list[str]] = {}
    for walked in found:
        where = walked.partition.where
        if _is_current(where, layout):
            names.setdefault((where.topic, where.partition), []).append(where.prefix)
    for walked in found:
        where = walked.partition.where
        if not _is_current(where, layout):
            continue
        twins = names[where.topic, where.partition]
        if len(twins) > 1:
            reason = (
                f"the archive has it {len(twins)} times: {', '.join(twins)}. Remedy: name the folder of the log "
                "dir that is meant as the archive"
            )
            yield SourcePartition(where=where, layout=layout, reasons=(reason,))
        else:
            yield _partition(store, layout, walked, broker)


def _is_current(where: PartitionPrefix, layout: Layout) -> bool:
    """Return whether a folder is a log's, and not one of a move, or a stray one."""
    return layout.is_tiered or read_folder_name(where.folder).state is FolderState.CURRENT


def _partition(store: Store, layout: Layout, walked: Walked, broker: BrokerView | None) -> SourcePartition:
    where = walked.partition.where
    remote = None if broker is None or not layout.is_tiered else broker.remote_log(where)
    reasons = []
    if broker is not None and layout.is_tiered:
        hiding = broker.hiding(where)
        if hiding is not None:
            reasons.append(f"what became of its segments is not known: {hiding.file}: {hiding.detail}")
    lineage = None if remote is None else remote.segments
    planned = choose_segments(walked.partition, layout, lineage)
    segments = []
    for row, segment in enumerate(planned.segments):
        told = None if lineage is None else lineage.get(segment.segment_id)
        try:
            segments.append(_segment(store, layout, segment, planned.end_offsets[row], told))
        except (OSError, FormatError) as error:
            reasons.append(f"segment {segment.base_offset}: {error}")
    if remote is not None and remote.cut_off is not None:
        reasons.append(f"segment {remote.cut_off[0].start_offset}: {remote.cut_off[1]}")
    if not reasons:
        reasons += _gaps(segments) if layout.is_tiered else []
    epochs: Sequence[LeaderEpochEntry] = ()
    start = None
    if segments and not reasons:
        try:
            epochs = _epochs(store, layout, where, segments[-1].segment)
        except (OSError, FormatError) as error:
            reasons.append(f"its leader epochs: {error}")
        start = _log_start(store, layout, walked, broker)
    return SourcePartition(
        where=where,
        layout=layout,
        topic_id=where.topic_id or _topic_id(store, where),
        segments=segments,
        epochs=epochs,
        log_start_offset=start,
        reasons=tuple(reasons),
    )


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
) -> SourceSegment:
    if PartKind.LOG not in segment.parts:
        raise FormatError("its log is not in the archive")
    if layout.last_part is not None and layout.last_part not in segment.parts:
        raise FormatError(f"it has no {layout.last_part.noun}, so it is not complete")
    files = layout.files(store, segment)
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
    )


def _max_timestamp_ms(files: ArchivedFiles, segment: ArchivedSegment) -> int | None:
    """Return the last timestamp in a segment's index, None without one."""
    with suppress(OSError, FormatError):
        data, _ = files.read_index(time_index_name(segment.base_offset), lambda _size: None)
        entries = [
            entry for entry in _TIME_ENTRY.iter_unpack(data[: len(data) // 12 * 12]) if entry != (0, 0)
        ]
        return max((timestamp for timestamp, _ in entries), default=None)
    return None


def _gaps(segments: Sequence[SourceSegment]) -> list[str]:
    return [
        f"offsets {one.end_offset + 1} to {after.segment.base_offset - 1} are in no segment of the archive"
        for one, after in pairwise(segments)
        if one.end_offset is not None and one.end_offset + 1 < after.segment.base_offset
    ]


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


def _log_start(store: Store, layout: Layout, walked: Walked, broker: BrokerView | None) -> int | None:
    where = walked.partition.where
    if not layout.is_tiered:
        beside = [stored for stored in walked.siblings if stored.name == LOG_START_OFFSET_CHECKPOINT]
        return read_log_dir_copy(store, beside).offset(LOG_START_OFFSET_CHECKPOINT, where)
    return None if broker is None else broker.log_start(where)[0]
