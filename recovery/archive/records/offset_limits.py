"""Where reading begins or ends in each partition, in the terms of Spark's Kafka source.

Kafka: ListOffsetsRequest.EARLIEST_TIMESTAMP, LATEST_TIMESTAMP.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from recovery.archive.stores.archived import PartitionPrefix
from recovery.errors import UsageError

EARLIEST: Final = -2
LATEST: Final = -1

TopicPartition = tuple[str, int]
Incarnation = tuple[str, int, str]
"""Topic, partition and topic id."""


def meant_id(known: Mapping[str, object], topic_id: str) -> str | None:
    """Return by which of the *known* ids a partition's topic was read before; None if it was not.

    An id that is not known, because `partition.metadata` is lost, is that of the topic that was read before.
    """
    if topic_id in known:
        return topic_id
    if "" in known:
        return ""
    return next(iter(known)) if not topic_id and len(known) == 1 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetLimits:
    """A start or an end for each partition.

    Attributes:
        option: the option that gives them, for messages.
        everywhere: the value for all partitions; None if *by_partition* has them.
        by_partition: a value for each partition that is read.
        by_incarnation: the same of a stream, by topic id within topic and partition: offsets that the archive has had.
            An empty id is one that was not known.
        otherwise: the value for all other partitions.
        are_times: values are ms since the epoch, and stand for the first offset whose record is not older; otherwise
            they are offsets, or EARLIEST or LATEST.
        needs_match: where are_times: a partition without such a record is an error; otherwise its end is meant.
    """

    option: str
    everywhere: int | None = None
    by_partition: Mapping[TopicPartition, int] = field(default_factory=dict)
    by_incarnation: Mapping[TopicPartition, Mapping[str, int]] = field(default_factory=dict)
    otherwise: int | None = None
    are_times: bool = False
    needs_match: bool = False

    def values(self) -> set[int]:
        """Return all values."""
        everywhere = set() if self.everywhere is None else {self.everywhere}
        return everywhere | set(self.by_partition.values())

    def of(self, where: PartitionPrefix, topic_id: str = "") -> int:
        """Return the value for a partition of a topic with this id.

        Raises:
            UsageError: it has none.
        """
        if self.everywhere is not None:
            return self.everywhere
        key = where.topic, where.partition
        by_id = self.by_incarnation.get(key, {})
        known_id = meant_id(by_id, topic_id)
        if known_id is not None:
            return by_id[known_id]
        value = self.by_partition.get(key, self.otherwise)
        if value is not None:
            return value
        raise UsageError(
            f"{self.option}: {where.topic}-{where.partition} is read and not named: name all partitions"
            + ("" if self.are_times else " (-2 is the earliest offset, -1 the latest)")
        )

    def refuse_unknown(self, is_read: Callable[[TopicPartition], bool], place: str) -> None:
        """Refuse values for partitions that are not read.

        Raises:
            UsageError: there is one.
        """
        for topic, partition in sorted(self.by_partition):
            if not is_read((topic, partition)):
                raise UsageError(
                    f"{self.option}: {topic}-{partition} is not among the partitions that are read from {place}: leave "
                    "it out, or subscribe to it"
                )
