"""Segments packed into tasks: neighbours together, each task some seconds of work.

Neighbours share a partition, so a task reads few prefixes, and what describes a task stays short. With three tasks or
more a core, tasks of nearly one size need no cleverer packing: whoever is done takes the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from recovery.archive.survey_spool import Chunk
from segfmt.value_class import dataclass

MOST_SEGMENTS = 5_000
"""In one task: small segments cost their own time, not that of their bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedTask:
    """What one task is to do.

    Attributes:
        heads: records of the heads of partitions that begin here.
        works: prefixes of partitions, and records of neighbouring segments' works.
        segment_count, log_bytes: of these segments.
        begun: prefix, segments and bytes of logs of the partitions that begin here.
        ended: prefixes of the partitions whose last segment is here.
    """

    heads: tuple[bytes, ...]
    works: tuple[tuple[str, bytes], ...]
    segment_count: int
    log_bytes: int
    begun: tuple[tuple[str, int, int], ...]
    ended: tuple[str, ...]


def pack(chunks: Iterable[Chunk], *, task_bytes: int) -> Iterator[PackedTask]:
    """Yield the tasks for *chunks*, in their order.

    Args:
        chunks: of partitions, in the order of these.
        task_bytes: how much a task is to read, about.
    """
    task: list[Chunk] = []
    cost_bytes = segment_count = 0
    for chunk in chunks:
        task.append(chunk)
        cost_bytes += chunk.cost_bytes
        segment_count += chunk.segment_count
        if cost_bytes >= task_bytes or segment_count >= MOST_SEGMENTS:
            yield _packed(task)
            task, cost_bytes, segment_count = [], 0, 0
    if task:
        yield _packed(task)


def _packed(chunks: list[Chunk]) -> PackedTask:
    first = [chunk for chunk in chunks if chunk.head]
    return PackedTask(
        heads=tuple(chunk.head for chunk in first),
        works=tuple((chunk.prefix, chunk.works) for chunk in chunks if chunk.segment_count),
        segment_count=sum(chunk.segment_count for chunk in chunks),
        log_bytes=sum(chunk.log_bytes for chunk in chunks),
        begun=tuple((chunk.prefix, *chunk.partition) for chunk in first),
        ended=tuple(chunk.prefix for chunk in chunks if chunk.is_last),
    )
