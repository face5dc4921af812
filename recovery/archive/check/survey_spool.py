"""Surveyed partitions, kept on disk until they are needed, so that the driver's memory does not grow with them."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterator
from typing import NamedTuple

from recovery.archive.check.scanned import PartitionHead, PartitionWork
from recovery.archive.check.survey import SurveyedPartition
from recovery.archive.check.unnamed_file import UnnamedFile
from recovery.archive.stores.archived import PartKind

_SIZES = struct.Struct("<qq")
"""Before each partition: the bytes of its head, and those of what is to be read."""


class SpooledPartition(NamedTuple):
    """One partition of the survey.

    Attributes:
        head: its head, pickled, as it goes into a task.
        works: what is to be read.
    """

    head: bytes
    works: PartitionWork


class SurveySpool(UnnamedFile):
    """Surveyed partitions, in their order.

    Attributes:
        partition_count, segment_count, log_bytes: of all of them.
    """

    def __init__(self) -> None:
        super().__init__("what was listed waits")
        self.partition_count = 0
        self.segment_count = 0
        self.log_bytes = 0

    def add(self, partition: SurveyedPartition) -> None:
        """Keep one more partition.

        Raises:
            OSError: there is no room for it.
        """
        self.partition_count += 1
        self.segment_count += len(partition.works)
        self.log_bytes += sum(partition.works.segments.part_bytes(PartKind.LOG))
        head, works = spooled_head(partition.head), pickle.dumps(partition.works, protocol=5)
        self.append(_SIZES.pack(len(head), len(works)) + head + works)

    def __iter__(self) -> Iterator[SpooledPartition]:
        position = 0
        while position < self.size_bytes:
            head_bytes, works_bytes = _SIZES.unpack(self.read(position, _SIZES.size))
            position += _SIZES.size
            head = self.read(position, head_bytes)
            works = pickle.loads(self.read(position + head_bytes, works_bytes))
            position += head_bytes + works_bytes
            yield SpooledPartition(head, works)


def spooled_head(head: PartitionHead) -> bytes:
    """Return a head as it goes into a task."""
    return pickle.dumps(head, protocol=5)


def head_of(spooled: bytes) -> PartitionHead:
    """Return the head that `spooled_head` was given."""
    head: PartitionHead = pickle.loads(spooled)
    return head
