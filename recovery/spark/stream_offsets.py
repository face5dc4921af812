"""The offsets in the checkpoint of a stream, as JSON: `{topic: {topic id: {partition: {"first": 0, "next": 115}}}}`.

A micro-batch lies between two of them. The first offset of a partition is part of both, because Spark asks again where
a query begins when it runs the first batch again, and the archive has changed by then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Self

from recovery.archive.records.offset_limits import Incarnation, OffsetLimits, TopicPartition, meant_id
from recovery.errors import UsageError

_CHECKPOINT = "the checkpoint"
Json = dict[str, dict[str, dict[str, dict[str, int]]]]


class Covered(NamedTuple):
    """What a stream has read of a partition.

    Attributes:
        first: where it has begun.
        next: the offset after the last; None before the first micro-batch.
    """

    first: int
    next: int | None = None

    @property
    def begin(self) -> int:
        """Where the stream goes on."""
        return self.first if self.next is None else self.next


class StreamOffsets:
    """What a stream has read, by topic, partition and topic id. An id that is not known is empty."""

    def __init__(self) -> None:
        self._by_partition: dict[TopicPartition, dict[str, Covered]] = {}
        self._ids: dict[str, set[str]] = {}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Return the offsets in a checkpoint.

        Raises:
            UsageError: they are those of another source.
        """
        found = cls()
        try:
            for topic, by_id in document.items():
                for topic_id, by_partition in by_id.items():
                    for partition, covered in by_partition.items():
                        found[topic, int(partition), topic_id] = Covered(**covered)
        except (AttributeError, TypeError, ValueError) as error:
            raise UsageError(
                "the checkpoint has offsets of another source, or of another version of this one: use a checkpoint "
                "folder of its own for the query; startingOffsets says where it begins"
            ) from error
        return found

    def to_json(self) -> Json:
        """Return them for the checkpoint."""
        document: Json = {}
        for (topic, partition, topic_id), covered in sorted(self.items()):
            fields = {name: offset for name, offset in covered._asdict().items() if offset is not None}
            document.setdefault(topic, {}).setdefault(topic_id, {})[str(partition)] = fields
        return document

    def __len__(self) -> int:
        """Return of how many partitions there is anything."""
        return len(self._by_partition)

    def __setitem__(self, key: Incarnation, covered: Covered) -> None:
        """Note what is read; an id that was not known before is known from now on."""
        topic, partition, topic_id = key
        by_id = self._by_partition.setdefault((topic, partition), {})
        if topic_id:
            by_id.pop("", None)
        by_id[topic_id] = covered
        self._ids.setdefault(topic, set()).add(topic_id)

    def items(self) -> Iterator[tuple[Incarnation, Covered]]:
        """Yield all."""
        for (topic, partition), by_id in self._by_partition.items():
            for topic_id, covered in by_id.items():
                yield (topic, partition, topic_id), covered

    def ids(self, topic: str) -> set[str]:
        """Return the known ids of a topic."""
        return self._ids.get(topic, set()) - {""}

    def has_partition(self, key: Incarnation) -> bool:
        """Return whether anything was read of the partition, by whatever id of its topic."""
        return key[:2] in self._by_partition

    def same(self, key: Incarnation) -> Incarnation:
        """Return *key* with the id that the partition's topic is known by."""
        topic, partition, topic_id = key
        return (
            topic,
            partition,
            topic_id or meant_id(self._by_partition.get((topic, partition), {}), "") or "",
        )

    def of(self, key: Incarnation) -> Covered | None:
        """Return what was read of a partition; None if nothing was."""
        by_id = self._by_partition.get(key[:2], {})
        topic_id = meant_id(by_id, key[2])
        return None if topic_id is None else by_id[topic_id]


def limits(offsets: Mapping[Incarnation, int], *, otherwise: int) -> OffsetLimits:
    """Return the limits of a plan: an offset for each partition in *offsets*, and *otherwise* for all others."""
    by_incarnation: dict[TopicPartition, dict[str, int]] = {}
    for (topic, partition, topic_id), offset in offsets.items():
        by_incarnation.setdefault((topic, partition), {})[topic_id] = offset
    return OffsetLimits(option=_CHECKPOINT, by_incarnation=by_incarnation, otherwise=otherwise)
