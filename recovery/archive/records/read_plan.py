"""Reading records, first half: which partitions are read, and which task reads which of their segments."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import suppress

from recovery.archive.layouts.layout import Layout
from recovery.archive.layouts.layouts import OtherLayouts, all_but
from recovery.archive.layouts.walk import OtherLayout, UnlistedPrefix, Walked, walk
from recovery.archive.records.broker_view import BrokerView
from recovery.archive.records.incarnations import Incarnations
from recovery.archive.records.offset_limits import Incarnation
from recovery.archive.records.offset_range import lost_partitions
from recovery.archive.records.planned_partition import PlannedPartition
from recovery.archive.records.read_request import ReadRequest, SegmentRun
from recovery.archive.records.record_schema import Include
from recovery.archive.stores.archived import PartitionPrefix
from recovery.archive.stores.store import Store
from recovery.archive.stores.stores import open_store
from recovery.check.folder_files import MOST_SMALL_FILE_BYTES
from recovery.errors import UsageError
from recovery.write.quarantine import MANIFEST
from segfmt.errors import FormatError
from segfmt.filenames import PARTITION_METADATA
from segfmt.kafka_uuid import format_uuid
from segfmt.partition_metadata import read_partition_metadata

_QUARANTINE = "a quarantine folder of this tool has what was cut from a log or replaced, not the log"


def plan_reads(
    store: Store,
    layout: Layout,
    request: ReadRequest,
    broker: BrokerView | None = None,
    *,
    on_seen: Callable[[PartitionPrefix], None] = lambda _: None,
    on_note: Callable[[str], None] = lambda _: None,
) -> Iterator[tuple[SegmentRun, ...]]:
    """Yield the tasks that read what is requested: runs of about `task_bytes` and at most `task_segments`.

    By names alone the last segment of a partition goes with the one before it, and makes its task one larger.

    Args:
        store: the archive.
        layout: its layout.
        request: what to read.
        broker: what the log dirs show, None if they are not available.
        on_seen: called for each partition that exists, requested or not.
        on_note: called with what a user should know of what is there and not read.

    Raises:
        OSError: the archive, or a requested prefix, cannot be listed.
        UsageError: several topics of one name, see `Incarnations`, perhaps after all tasks were yielded; or offsets
            that the archive does not have, see `OffsetLookup`.
        UsageError: there is nothing but a quarantine folder.
        UsageError, FormatError: see `open_transactions`.
        UsageError: the archive is of tiered storage, and the log dirs have no partition of the metadata topic.
        DamagedSegmentError: what is requested is not compared (`find_uncompared`), and damage fails the query.
    """
    selection = request.selection
    runs: list[SegmentRun] = []
    planned: list[Incarnation] = []
    left_bytes, left_segments = selection.task_bytes, selection.task_segments
    for partition in planned_partitions(store, layout, request, broker, on_seen=on_seen, on_note=on_note):
        runs += partition.fault_runs()
        planned.append((partition.where.topic, partition.where.partition, partition.topic_id))
        rows: list[int] = []
        for row, size_bytes in partition.wanted():
            is_full = size_bytes > left_bytes or left_segments <= 0
            if is_full and (runs or rows) and not (rows and partition.may_end_earlier(row)):
                runs += partition.runs(rows)
                yield tuple(runs)
                runs, rows = [], []
                left_bytes, left_segments = selection.task_bytes, selection.task_segments
            rows.append(row)
            left_bytes -= size_bytes
            left_segments -= 1
        runs += partition.runs(rows)
    for line in lost_partitions(request, planned):
        on_note(line)
    if runs:
        yield tuple(runs)


def planned_partitions(
    store: Store,
    layout: Layout,
    request: ReadRequest,
    broker: BrokerView | None,
    *,
    on_seen: Callable[[PartitionPrefix], None],
    on_note: Callable[[str], None],
) -> Iterator[PlannedPartition]:
    """Yield the partitions that are requested; arguments and errors are those of `plan_reads`."""
    selection = request.selection
    quarantined, has_others = "", False
    named = selection.topics or frozenset(topic for topic, _ in selection.assigned or ())
    incarnations = Incarnations(
        selection.topic_ids, is_listing=request.options.include is Include.BATCHES, named=named
    )

    def is_wanted(where: PartitionPrefix) -> bool:
        on_seen(where)
        return selection.has(where)

    if broker is not None and layout.is_tiered:
        broker.require_metadata_topic()
    others = OtherLayouts()
    for walked in walk(store, layout, is_chosen=is_wanted, others=all_but(layout)):
        if isinstance(walked, UnlistedPrefix):
            raise OSError(errno.EIO, f"{walked.prefix}: cannot be listed: {walked.error}")
        if isinstance(walked, OtherLayout):
            others.note(walked)
            continue
        if _is_quarantined(store, layout, walked):
            quarantined = f"{store.url}/{walked.partition.where.prefix}"
            on_note(f"{quarantined}: left out: {_QUARANTINE}")
            continue
        has_others = True
        where = walked.partition.where
        topic_id = where.topic_id or _topic_id_at(store, where)
        live = frozenset() if broker is None else broker.topic_ids(where.topic)
        if incarnations.takes(where, topic_id, walked.partition.segments, live):
            partition = PlannedPartition(store, layout, request, walked, broker, topic_id)
            for line in filter(None, (partition.unread_line, partition.lost_line)):
                on_note(line)
            yield partition
    for note in (*incarnations.check(), *others.notes([layout.name])):
        on_note(note)
    if quarantined and not has_others:
        raise UsageError(
            f"{quarantined}: {_QUARANTINE}. Read the log dir; `undo` puts back what was cut from it"
        )


def _is_quarantined(store: Store, layout: Layout, walked: Walked) -> bool:
    """Return whether a folder is one of quarantine: parts of a log, the rest of which is in the log dir."""
    if layout.is_tiered:
        return False
    siblings = walked.siblings
    if not walked.partition.where.prefix:  # the partition's folder is all that is read
        with suppress(OSError):
            siblings = open_store(store.url.rstrip("/").rpartition("/")[0]).list_level("").objects
    return any(stored.name == MANIFEST for stored in siblings)


def _topic_id_at(store: Store, where: PartitionPrefix) -> str:
    """Return the topic's id by the file in a partition's folder, empty without a sound one."""
    try:
        metadata = store.read(where.prefix + PARTITION_METADATA, most_bytes=MOST_SMALL_FILE_BYTES)
        return format_uuid(read_partition_metadata(metadata).topic_id)
    except (FileNotFoundError, FormatError):
        return ""
