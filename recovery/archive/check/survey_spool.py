"""Surveyed partitions, kept on disk until they are needed, so that the driver's memory does not grow with them.

The file has no name, so nobody else can write into it.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterator
from types import TracebackType
from typing import NamedTuple, Self

from recovery.archive.check.scanned import PartitionHead, PartitionWork
from recovery.archive.check.survey import SurveyedPartition
from recovery.archive.stores.archived import PartKind

_LENGTH_BYTES = 8


class SpooledPartition(NamedTuple):
    """One partition of the survey.

    Attributes:
        head: its head, pickled, as it goes into a task.
        works: what is to be read.
    """

    head: bytes
    works: PartitionWork


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
        self.partition_count += 1
        self.segment_count += len(partition.works)
        self.log_bytes += sum(partition.works.segments.part_bytes(PartKind.LOG))
        for pickled in (spooled_head(partition.head), pickle.dumps(partition.works, protocol=5)):
            self._file.write(len(pickled).to_bytes(_LENGTH_BYTES, "big"))
            self._file.write(pickled)

    def __iter__(self) -> Iterator[SpooledPartition]:
        self._file.seek(0)
        while head := self._next():
            yield SpooledPartition(head, pickle.loads(self._next()))

    def _next(self) -> bytes:
        """Return the next pickle, empty at the end."""
        return self._file.read(int.from_bytes(self._file.read(_LENGTH_BYTES), "big"))


def spooled_head(head: PartitionHead) -> bytes:
    """Return a head as it goes into a task."""
    return pickle.dumps(head, protocol=5)


def head_of(spooled: bytes) -> PartitionHead:
    """Return the head that `spooled_head` was given."""
    head: PartitionHead = pickle.loads(spooled)
    return head
