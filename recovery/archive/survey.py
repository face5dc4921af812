"""What is to be read of an archive: its partitions one after the other, each with its head and its segments' work."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from recovery.archive.archived import (
    ArchivedPartition,
    ArchivedSegment,
    PartitionPrefix,
    PartKind,
    StoredObject,
)
from recovery.archive.inventory import RULES_OF_READING, take_inventory
from recovery.archive.inventory_entry import PartitionInventory, SegmentStatus
from recovery.archive.layout import Layout
from recovery.archive.log_dir_copy import LogDirCopy, read_log_dir_copy
from recovery.archive.scanned import PartitionHead, ScanOptions, SegmentWork
from recovery.archive.store import Store
from recovery.archive.walk import Walked, walk
from recovery.config import BrokerConfig
from recovery.folder_files import FolderFiles
from recovery.model import LogSettings
from recovery.partition_facts import PartitionFacts
from recovery.partition_scrub import PartitionScrub
from recovery.segment_task import SegmentTask
from recovery.topic_configs import TopicConfigs
from segfmt.filenames import KRAFT_SNAPSHOT_SUFFIX, LOG_SUFFIX, SWAP_SUFFIX, log_name
from segfmt.remote_log_metadata import RemoteSegment
from segfmt.value_class import dataclass

NO_TOPIC_CONFIGS = TopicConfigs(broker=BrokerConfig.from_layers(()), records={}, overrides={})
RemoteSegments = Callable[[PartitionPrefix], Mapping[str, RemoteSegment]]
"""Returns what the metadata topic says of a partition's segments, by their ids."""
Judge = Callable[[ArchivedPartition, Layout], PartitionInventory]
"""Takes the inventory of one partition."""
Unlisted = Callable[[], Iterable[tuple[PartitionPrefix, PartitionInventory]]]
"""Returns the partitions that should be there, and are not."""
_UNFINISHED = frozenset({SegmentStatus.COPY_STARTED, SegmentStatus.DELETE_STARTED, SegmentStatus.DELETED})


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyedPartition:
    """One partition: what is known of it in front, and what is to be read."""

    head: PartitionHead
    works: tuple[SegmentWork, ...]

    @property
    def log_bytes(self) -> int:
        """Bytes of its logs."""
        return sum(work.segment.log_bytes for work in self.works)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnlistedPrefix:
    """A prefix that could not be listed."""

    prefix: str
    error: str


def survey(
    store: Store,
    layout: Layout,
    options: ScanOptions,
    *,
    is_chosen: Callable[[PartitionPrefix], bool] = lambda _: True,
    topic_configs: TopicConfigs = NO_TOPIC_CONFIGS,
    remote_segments: RemoteSegments = lambda _: {},
    judge: Judge = take_inventory,
    missing: Unlisted = tuple,
) -> Iterator[SurveyedPartition | UnlistedPrefix]:
    """Yield what lies in *store*, partition by partition, in the order of prefixes.

    Raises:
        OSError: the archive itself cannot be listed.
    """
    parent, copy = "", LogDirCopy()
    is_first = True
    for found in walk(store, layout, is_chosen=is_chosen):
        if found.partition is None:
            yield UnlistedPrefix(prefix=found.prefix, error=found.error)
            continue
        if is_first or found.parent != parent:
            parent, is_first = found.parent, False
            copy = LogDirCopy() if layout.has_own_epochs else read_log_dir_copy(store, found.siblings)
        yield _surveyed(found, layout, options, copy, topic_configs, remote_segments, judge)
    for where, inventory in missing():
        placed = replace(where, prefix=f"{where.folder}-{where.topic_id}/")
        facts = LogDirCopy().facts(where, is_deep=False, is_tiered=True, now_ms=options.now_ms)
        head = PartitionHead(
            archived=ArchivedPartition(where=placed, segments=()), facts=facts, findings=inventory.findings
        )
        yield SurveyedPartition(head=head, works=())


def _surveyed(
    found: Walked,
    layout: Layout,
    options: ScanOptions,
    copy: LogDirCopy,
    topic_configs: TopicConfigs,
    remote_segments: RemoteSegments,
    judge: Judge,
) -> SurveyedPartition:
    assert found.partition is not None
    archived = found.partition
    facts = copy.facts(
        archived.where, is_deep=options.is_deep, is_tiered=layout.has_own_epochs, now_ms=options.now_ms
    )
    topic = archived.where.topic
    settings = topic_configs.settings_of(topic)
    config = topic_configs.config_of(topic)
    facts = replace(
        facts,
        is_contiguous=facts.is_contiguous and "compact" not in config.cleanup_policy,
        is_preallocated=config.preallocate,
        segment_index_bytes=config.segment_index_bytes if topic in topic_configs.overrides else None,
    )
    if layout.has_own_epochs:
        works = _tiered_works(archived, facts, settings, remote_segments(archived.where))
    else:
        works = _plain_works(archived, facts, settings)
    digests = b"".join(map(options.digest, works))
    kept = replace(archived, segments=()) if layout.has_own_epochs else archived
    inventory = judge(archived, layout)
    head = PartitionHead(
        archived=kept,
        facts=facts,
        findings=tuple(found for found in inventory.findings if found.rule not in RULES_OF_READING),
        unfinished=frozenset(
            (one.base_offset, one.segment_id) for one in inventory.entries if one.status in _UNFINISHED
        ),
        gone=tuple((one.start_offset, one.end_offset) for one in inventory.gone),
        digests=digests,
    )
    return SurveyedPartition(head=head, works=works)


def _tiered_works(
    archived: ArchivedPartition,
    facts: PartitionFacts,
    settings: LogSettings,
    remote: Mapping[str, RemoteSegment],
) -> tuple[SegmentWork, ...]:
    return tuple(
        SegmentWork(
            segment=segment,
            task=SegmentTask(
                folder=facts.path,
                base_offset=segment.base_offset,
                log=log_name(segment.base_offset),
                next_base_offset=None,
                is_deep=facts.is_deep,
            ),
            settings=settings,
            remote=remote.get(segment.segment_id),
        )
        for segment in archived.segments
    )


def _plain_works(
    archived: ArchivedPartition, facts: PartitionFacts, settings: LogSettings
) -> tuple[SegmentWork, ...]:
    """Return the works of a folder: the tasks that the local engine would make of it."""
    others = {one.name: one for one in archived.others}
    segments = {segment.base_offset: segment for segment in archived.segments}
    snapshots = [
        *(offset for segment in archived.segments for offset in segment.snapshots),
        *(_end_of(segment) for segment in archived.segments if PartKind.SNAPSHOT in segment.parts),
    ]
    files = FolderFiles(
        base_offsets=sorted(segments),
        snapshots=dict.fromkeys(snapshots, b""),
        swaps=[name for name in others if name.endswith(LOG_SUFFIX + SWAP_SUFFIX)],
        kraft_snapshots=[
            name for name in others if facts.is_metadata_log and name.endswith(KRAFT_SNAPSHOT_SUFFIX)
        ],
    )
    return tuple(
        SegmentWork(
            segment=segments[task.base_offset] if task.has_indexes else _other(task, others[task.log]),
            task=task,
            settings=settings,
        )
        for task in PartitionScrub(facts, files).tasks()
    )


def _end_of(segment: ArchivedSegment) -> int:
    """Return the offset of the snapshot at a plain segment's end."""
    name = segment.parts[PartKind.SNAPSHOT].name
    return int(name.partition(".")[0])


def _other(task: SegmentTask, found: StoredObject) -> ArchivedSegment:
    return ArchivedSegment(base_offset=task.base_offset, segment_id=task.log, parts={PartKind.LOG: found})
