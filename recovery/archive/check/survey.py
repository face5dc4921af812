"""What is to be read of an archive: its partitions one after another, each with its head and its segments' work."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from recovery.archive.check.scanned import PartitionHead, PartitionWork, ScanOptions
from recovery.archive.copy.findings import CopyFindings
from recovery.archive.inventory.entry import LineagePlace, SegmentStatus
from recovery.archive.inventory.expectations import Expectations
from recovery.archive.inventory.inventory import RULES_OF_READING
from recovery.archive.inventory.missing_folders import find_missing_folders
from recovery.archive.layouts.layout import Layout
from recovery.archive.layouts.walk import OtherLayout, UnlistedPrefix, Walked, walk
from recovery.archive.remote.copied_settings import CopiedSettings, read_copied_settings
from recovery.archive.remote.log_dir_copy import LogDirCopy, read_log_dir_copy
from recovery.archive.stores.archived import (
    ArchivedSegment,
    PartitionPrefix,
    PartKind,
    StoredObject,
    is_temporary,
)
from recovery.archive.stores.segment_table import ArchivedPartition, ObjectTable, SegmentTable
from recovery.archive.stores.store import Store
from recovery.broker.config import BrokerConfig
from recovery.broker.topic_configs import TopicConfigs
from recovery.check.tasks import unflushed_from
from segfmt.errors import FileNameError
from segfmt.filenames import KRAFT_SNAPSHOT_SUFFIX, LOG_SUFFIX, SWAP_SUFFIX, read_offset
from segfmt.remote_log_metadata import RemoteSegment

NO_TOPIC_CONFIGS = TopicConfigs(broker=BrokerConfig.from_layers(()), records={}, overrides={})
_UNREAD = frozenset(
    {
        SegmentStatus.COPY_STARTED,
        SegmentStatus.DELETE_STARTED,
        SegmentStatus.DELETED,
        SegmentStatus.ORPHAN,
    }
)
"""What no broker reads, now or ever: faults in it are notes."""
_CUT_OFF = frozenset({LineagePlace.OUTSIDE, LineagePlace.SUPERSEDED})
"""Places of finished segments that are no part of the log any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyedPartition:
    """One partition: what is known of it beforehand, and what is to be read.

    Attributes:
        removed: keys of temporary files that a run in place had left when it was killed.
        note: for the report, about the log dir that was copied; empty if there is none.
    """

    head: PartitionHead
    works: PartitionWork
    removed: Sequence[str] = ()
    note: str = ""


def survey(
    store: Store,
    layout: Layout,
    options: ScanOptions,
    *,
    expected: Expectations | None = None,
    is_chosen: Callable[[PartitionPrefix], bool] = lambda _: True,
    topic_configs: TopicConfigs = NO_TOPIC_CONFIGS,
    others: Sequence[Layout] = (),
    copies: CopyFindings | None = None,
) -> Iterator[SurveyedPartition | UnlistedPrefix | OtherLayout]:
    """Yield the partitions in *store* in the order of prefixes.

    Args:
        store: the archive.
        layout: its layout.
        options: how its segments will be scanned.
        expected: what brokers know of it; None: nothing.
        is_chosen: whether a partition is to be read.
        topic_configs: settings of topics; they take precedence over those of a copied metadata log.
        others: layouts whose partitions are named.
        copies: what copies in the archive say, with which the partitions are compared; None: nothing.

    Raises:
        OSError: the archive itself cannot be listed.
    """
    expected = Expectations() if expected is None else expected
    copies = CopyFindings(store) if copies is None else copies
    parent, copy, settings = "", LogDirCopy(), CopiedSettings(topic_configs, None)
    is_first = True
    for walked in walk(store, layout, is_chosen=is_chosen, others=others, on_level=copies.look_at):
        if isinstance(walked, UnlistedPrefix):
            copies.see_unlisted(walked.prefix)
        if not isinstance(walked, Walked):
            yield walked
            continue
        if is_first or walked.parent != parent:
            parent, is_first = walked.parent, False
            if not layout.is_tiered:
                copy = read_log_dir_copy(store, walked.siblings)
                changed = copies.own_files(walked.partition.where, parent, walked.siblings)
                missing = find_missing_folders(copy, walked, is_chosen, copies.folder)
                copy = replace(copy, findings=(*copy.findings, *changed, *missing))
                settings = read_copied_settings(store, parent, topic_configs)
        removed: Sequence[str] = ()
        if options.is_in_place:
            walked, removed = _swept(store, walked)
        known_configs = settings.of(walked.partition.where.topic)
        surveyed = _surveyed(store, walked, layout, options, copy, known_configs, expected)
        surveyed = replace(surveyed, removed=removed, note=settings.note)
        if not layout.is_tiered:
            surveyed = replace(surveyed, head=_compared(surveyed.head, walked, options, copies))
        settings.note = ""  # said with the first partition of the log dir
        if copy.findings and not options.is_logs_only:
            head = surveyed.head
            surveyed = replace(surveyed, head=replace(head, findings=(*copy.findings, *head.findings)))
            copy = replace(copy, findings=())  # said with the first partition of the log dir
        yield surveyed


def missing_partitions(
    layout: Layout,
    options: ScanOptions,
    *,
    expected: Expectations,
    is_chosen: Callable[[PartitionPrefix], bool] = lambda _: True,
    topic_configs: TopicConfigs = NO_TOPIC_CONFIGS,
) -> Iterator[SurveyedPartition]:
    """Yield the partitions that are *expected* and that no survey has come by; the arguments are those of `survey`."""
    for where, inventory in expected.unlisted(layout, is_chosen=is_chosen):
        facts = LogDirCopy().facts(where, is_deep=False, is_tiered=True, now_ms=options.now_ms)
        head = PartitionHead(
            archived=ArchivedPartition(where=where),
            facts=facts,
            settings=topic_configs.settings_of(where.topic),
            findings=inventory.findings,
        )
        works = PartitionWork(prefix=where.prefix, facts=facts)
        yield SurveyedPartition(head=head, works=works)


def _swept(store: Store, walked: Walked) -> tuple[Walked, Sequence[str]]:
    """Remove temporary files that a killed run in place has left; return the partition without them, and their keys."""
    others = walked.partition.others
    kept, removed = [], []
    for row, name in enumerate(others.names):
        if is_temporary(name):
            with suppress(OSError):  # it stays, with its note
                store.remove(others.prefix + name)
                removed.append(others.prefix + name)
                continue
        kept.append(row)
    if not removed:
        return walked, ()
    return replace(walked, partition=replace(walked.partition, others=others.take(kept))), removed


def _surveyed(
    store: Store,
    walked: Walked,
    layout: Layout,
    options: ScanOptions,
    copy: LogDirCopy,
    topic_configs: TopicConfigs,
    expected: Expectations,
) -> SurveyedPartition:
    archived = walked.partition
    facts = copy.facts(
        archived.where, is_deep=options.is_deep, is_tiered=layout.is_tiered, now_ms=options.now_ms
    )
    topic = archived.where.topic
    config = topic_configs.config_of(topic)
    facts = replace(
        facts,
        is_contiguous=facts.is_contiguous and "compact" not in config.cleanup_policy,
        is_preallocated=config.preallocate,
        expiration_ms=topic_configs.broker.producer_id_expiration_ms,
        segment_index_bytes=config.segment_index_bytes if topic in topic_configs.overrides else None,
        index_interval_bytes=config.index_interval_bytes if topic in topic_configs.overrides else None,
    )
    segments = archived.segments
    remote: Mapping[str, RemoteSegment] = {}
    if layout.is_tiered:
        remote = expected.remote_segments(archived.where)
    else:
        segments = _with_others(archived, is_metadata_log=facts.is_metadata_log)
    if options.is_logs_only:
        segments = segments.only(layout.objects_of(PartKind.LOG))
    first_unflushed = None if layout.is_tiered else unflushed_from(facts, archived.segments.base_offsets)
    digests = options.digests(segments, facts, remote=remote, unflushed_from=first_unflushed)
    inventory = expected.judge(archived, layout, store)
    head = PartitionHead(
        archived=_kept(archived, layout, options),
        facts=facts,
        settings=topic_configs.settings_of(topic),
        findings=tuple(finding for finding in inventory.findings if finding.rule not in RULES_OF_READING),
        unfinished=frozenset(
            entry.key for entry in inventory.entries if entry.status in _UNREAD and not entry.twin_id
        ),
        twins={entry.key: (entry.base_offset, entry.twin_id) for entry in inventory.entries if entry.twin_id},
        gone=tuple((offsets.start_offset, offsets.end_offset) for offsets in inventory.gone),
        cut_off=frozenset(
            (entry.base_offset, entry.segment_id) for entry in inventory.entries if entry.place in _CUT_OFF
        ),
        digests=digests,
    )
    works = PartitionWork(
        prefix=archived.where.prefix,
        facts=facts,
        unflushed_from=first_unflushed,
        segments=segments,
        digests=digests,
        remote=remote,
    )
    return SurveyedPartition(head=head, works=works)


def _compared(
    head: PartitionHead, walked: Walked, options: ScanOptions, copies: CopyFindings
) -> PartitionHead:
    """Return the head of a partition with what is not as it was copied, and what its small files should be."""
    found = copies.see(walked.partition, is_logs_only=options.is_logs_only)
    digests = {} if options.is_logs_only else copies.digests(walked.partition)
    return replace(head, findings=(*head.findings, *found), copied_sha256=digests)


def _kept(archived: ArchivedPartition, layout: Layout, options: ScanOptions) -> ArchivedPartition:
    """Return what the fold has to know of a partition's objects before its segments."""
    if layout.is_tiered:
        return replace(archived, segments=SegmentTable())
    if not options.is_logs_only:
        return archived
    # From the files of an offset the fold sees whether a segment is missing there.
    snapshots = archived.segments.further_snapshots()
    other_objects = (
        ObjectTable.of(archived.where.prefix, [*archived.others, *snapshots])
        if snapshots
        else archived.others
    )
    return replace(archived, segments=SegmentTable(), others=other_objects)


def _with_others(archived: ArchivedPartition, *, is_metadata_log: bool) -> SegmentTable:
    """Return the segments of a folder, and after them the files that are read like closed segments.

    These are segments that a broker would put in place of others, and the metadata log's snapshots.
    """
    swaps, snapshots = [], []
    for stored in archived.others:
        if stored.name.endswith(LOG_SUFFIX + SWAP_SUFFIX):
            try:
                base_offset = read_offset(stored.name)
            except FileNameError:
                continue  # the fold reports it
            swaps.append(_other(base_offset, stored))
        elif is_metadata_log and stored.name.endswith(KRAFT_SNAPSHOT_SUFFIX):
            snapshots.append(_other(0, stored))
    other_segments = [*swaps, *snapshots]
    if not other_segments:
        return archived.segments
    return SegmentTable.of(archived.where.prefix, [*archived.segments, *other_segments])


def _other(base_offset: int, log: StoredObject) -> ArchivedSegment:
    return ArchivedSegment(base_offset=base_offset, other_file=log.name, parts={PartKind.LOG: log})
