"""Segments packed into tasks: neighbours together, each task some seconds of work.

Neighbours share a partition, so a task reads few prefixes, and what describes a task stays short. With three tasks or
more a core, tasks of nearly one size need no cleverer packing: whoever is done takes the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from recovery.archive.scanned import PartitionHead, SegmentWork
from recovery.archive.survey import SurveyedPartition
from segfmt.value_class import dataclass

MOST_SEGMENTS = 5_000
"""In one task: small segments cost their own time, not that of their bytes."""
SEGMENT_BYTES = 256 << 10
"""What a segment costs beside its bytes, as bytes that could be read in that time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedTask:
    """What one task is to do.

    Attributes:
        heads: of the partitions that begin here.
        works: segments, each with the prefix of its partition.
        log_bytes: of these segments.
        begun: prefix, segments and bytes of logs of the partitions that begin here.
        ended: prefixes of the partitions whose last segment is here.
    """

    heads: tuple[PartitionHead, ...]
    works: tuple[tuple[str, SegmentWork], ...]
    log_bytes: int
    begun: tuple[tuple[str, int, int], ...]
    ended: tuple[str, ...]


def pack(partitions: Iterable[SurveyedPartition], *, task_bytes: int) -> Iterator[PackedTask]:
    """Yield the tasks for *partitions*, in their order.

    Args:
        partitions: heads, and what is to be read of them.
        task_bytes: how much a task is to read, about.
    """
    task = _Task()
    for partition in partitions:
        prefix = partition.head.where.prefix
        task.begin(partition)
        for place, work in enumerate(partition.works, 1):
            task.add(prefix, work)
            if place == len(partition.works):
                task.ended.append(prefix)
            if task.cost >= task_bytes or len(task.works) >= MOST_SEGMENTS:
                yield task.packed()
                task = _Task()
        if not partition.works:
            task.ended.append(prefix)
    if task.heads or task.works:
        yield task.packed()


class _Task:
    """A task that is being filled."""

    def __init__(self) -> None:
        self.heads: list[PartitionHead] = []
        self.works: list[tuple[str, SegmentWork]] = []
        self.begun: list[tuple[str, int, int]] = []
        self.ended: list[str] = []
        self.log_bytes = self.cost = 0

    def begin(self, partition: SurveyedPartition) -> None:
        self.heads.append(partition.head)
        self.begun.append((partition.head.where.prefix, len(partition.works), partition.log_bytes))
        self.cost += SEGMENT_BYTES

    def add(self, prefix: str, work: SegmentWork) -> None:
        self.works.append((prefix, work))
        self.log_bytes += work.segment.log_bytes
        self.cost += work.segment.log_bytes + SEGMENT_BYTES

    def packed(self) -> PackedTask:
        return PackedTask(
            heads=tuple(self.heads),
            works=tuple(self.works),
            log_bytes=self.log_bytes,
            begun=tuple(self.begun),
            ended=tuple(self.ended),
        )
