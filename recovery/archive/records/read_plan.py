"""Reading records, first half: which partitions are read, and which task reads which of their segments."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from recovery.archive.layouts.layout import Layout
from recovery.archive.records.broker_view import BrokerView
from recovery.archive.records.offset_limits import Incarnation
from recovery.archive.records.offset_range import lost_partitions
from recovery.archive.records.partition_plans import planned_partitions
from recovery.archive.records.read_request import ReadRequest, SegmentRun
from recovery.archive.stores.archived import PartitionPrefix
from recovery.archive.stores.store import Store


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
            if is_full and (runs or rows):
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
