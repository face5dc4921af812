"""What was surveyed, kept on disk until it is worked on: the driver's memory does not grow with the archive.

Neighbouring segments are pickled together, once: as they are here they go into tasks, whatever else these hold.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterator
from types import TracebackType
from typing import NamedTuple, Self

from recovery.archive.record import encode_record
from recovery.archive.scanned import SegmentWork
from recovery.archive.survey import SurveyedPartition

SEGMENT_BYTES = 256 << 10
"""What a segment costs beside its bytes, as bytes that could be read in that time."""
CHUNK_BYTES = 4 << 20
"""What the segments of a chunk cost together, about."""
_LENGTH_BYTES = 8


class Chunk(NamedTuple):
    """Some neighbouring segments of a partition.

    Attributes:
        prefix: of the partition.
        head: record of the partition's head, in the first of its chunks; empty in others.
        works: record of the `SegmentWork`s.
        partition: segments and bytes of logs of the whole partition.
        is_last: whether no further chunk of the partition follows.
    """

    prefix: str
    head: bytes
    works: bytes
    segment_count: int
    log_bytes: int
    partition: tuple[int, int]
    is_last: bool

    @property
    def cost_bytes(self) -> int:
        """What it takes to read it, as bytes."""
        return self.log_bytes + self.segment_count * SEGMENT_BYTES


class SurveySpool:
    """Surveyed partitions in a temporary file, in their order.

    Attributes:
        partition_count, segment_count, log_bytes: of all of them.
    """

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="kafka-log-recovery-")  # noqa: SIM115 - closed on exit
        self.partition_count = 0
        self.segment_count = 0
        self.log_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def add(self, partition: SurveyedPartition) -> None:
        """Keep one more partition."""
        share = len(partition.works), partition.log_bytes
        self.partition_count += 1
        self.segment_count += share[0]
        self.log_bytes += share[1]
        head = encode_record(partition.head)
        chunks = list(_chunks(partition.works)) or [()]
        for place, works in enumerate(chunks, 1):
            chunk = Chunk(
                prefix=partition.head.where.prefix,
                head=head,
                works=encode_record(works),
                segment_count=len(works),
                log_bytes=sum(work.segment.log_bytes for work in works),
                partition=share,
                is_last=place == len(chunks),
            )
            head = b""
            record = pickle.dumps(tuple(chunk), protocol=5)
            self._file.write(len(record).to_bytes(_LENGTH_BYTES, "big"))
            self._file.write(record)

    def __iter__(self) -> Iterator[Chunk]:
        self._file.seek(0)
        while head := self._file.read(_LENGTH_BYTES):
            yield Chunk(*pickle.loads(self._file.read(int.from_bytes(head, "big"))))


def _chunks(works: tuple[SegmentWork, ...]) -> Iterator[tuple[SegmentWork, ...]]:
    """Yield the works of a partition, cut into chunks."""
    start = cost = 0
    for place, work in enumerate(works, 1):
        cost += work.segment.log_bytes + SEGMENT_BYTES
        if cost >= CHUNK_BYTES:
            yield works[start:place]
            start, cost = place, 0
    if start < len(works):
        yield works[start:]
