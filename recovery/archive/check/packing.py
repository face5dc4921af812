"""Segments packed into tasks: neighbours together, each task some seconds of work.

Neighbours share a partition, so a task reads few prefixes, and its description stays short. With three or more tasks
per core, tasks of about the same size need no cleverer packing: a core that is done takes the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from recovery.archive.check.scanned import PartitionWork
from recovery.archive.check.survey_spool import SpooledPartition
from recovery.archive.stores.archived import PartKind

MOST_SEGMENTS = 5_000
"""In one task: small segments cost a time of their own, not that of their bytes."""
SEGMENT_BYTES = 256 << 10
"""What a segment costs besides its bytes, in bytes that could be read in that time."""
LOG_BYTES = 32 << 10
"""The same if only logs are checked."""


@dataclass(slots=True, kw_only=True)
class PackedTask:
    """The work of one task.

    Attributes:
        heads: pickled heads of the partitions that begin here.
        works: the work on neighbouring segments of each partition.
        segment_count, log_bytes: of these segments.
        begun: prefix, segments and bytes of logs of the partitions that begin here.
        ended: prefixes of the partitions whose last segment is here.
    """

    heads: list[bytes] = field(default_factory=list)
    works: list[PartitionWork] = field(default_factory=list)
    segment_count: int = 0
    log_bytes: int = 0
    begun: list[tuple[str, int, int]] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)

    def take(self, works: PartitionWork, *, is_last: bool) -> None:
        """Add the work on further segments; with the last ones their partition ends."""
        if len(works):
            self.works.append(works)
        self.segment_count += len(works)
        self.log_bytes += sum(works.segments.part_bytes(PartKind.LOG))
        if is_last:
            self.ended.append(works.prefix)


def pack(
    partitions: Iterable[SpooledPartition], *, task_bytes: int, segment_bytes: int = SEGMENT_BYTES
) -> Iterator[PackedTask]:
    """Yield the tasks for *partitions*, in their order.

    Args:
        partitions: in the order of their prefixes.
        task_bytes: about how much a task is to cost.
        segment_bytes: what a segment costs besides its bytes.
    """
    most_segments = MOST_SEGMENTS * SEGMENT_BYTES // segment_bytes
    task, cost_bytes = PackedTask(), 0
    for head, works in partitions:
        sizes = works.segments.part_bytes(PartKind.LOG)
        task.heads.append(head)
        task.begun.append((works.prefix, len(works), sum(sizes)))
        start = 0
        for end, size_bytes in enumerate(sizes, 1):
            cost_bytes += size_bytes + segment_bytes
            if cost_bytes >= task_bytes or task.segment_count + end - start >= most_segments:
                task.take(works.between(start, end), is_last=end == len(works))
                yield task
                task, cost_bytes, start = PackedTask(), 0, end
        if start < len(works) or not sizes:
            task.take(works.between(start, len(works)), is_last=True)
    if task.begun or task.works:
        yield task
