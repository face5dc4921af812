"""Which partitions a run is for: `--topic` and `--partition`, and the error if there is no such partition."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Protocol

from recovery.errors import UsageError
from recovery.misspelling import question, similar_names
from recovery.quantity import listed_text
from recovery.several import several
from segfmt.filenames import CLUSTER_METADATA_TOPIC

_NAMED = 5
"""How many names a message lists; the others are counted."""
_PARTITION = re.compile(r"(.+)-([0-9]+)", re.DOTALL)


class Partition(Protocol):
    """What has a topic and a partition number: a folder here, a prefix in an archive."""

    @property
    def topic(self) -> str:
        """Its topic."""
        ...

    @property
    def partition(self) -> int:
        """Its number."""
        ...


class SeenPartitions:
    """The partitions that exist, in little memory: topics with their lowest and highest partition."""

    def __init__(self) -> None:
        self._ranges: dict[str, tuple[int, int]] = {}

    def note(self, partition: Partition) -> None:
        """Note a partition that exists, chosen or not."""
        lowest, highest = self._ranges.get(partition.topic, (partition.partition, partition.partition))
        self._ranges[partition.topic] = min(lowest, partition.partition), max(highest, partition.partition)

    def refuse(self, option: str, name: str, place: str) -> None:
        """Refuse *name* because nothing at *place* has it, and say what comes near it.

        Args:
            option: the option as the user gave it, with the name.
            name: that of a topic, or `<topic>-<partition>`.

        Raises:
            UsageError: in any case.
        """
        match = _PARTITION.fullmatch(name)
        flag = option.partition(" ")[0]
        if flag.startswith("--") and "," in name:
            each = (f"{flag} {part.strip()}" for part in name.split(",") if part.strip())
            existing = f"several are given as {' '.join(each)}"
        elif match is not None and match[1] in self._ranges:
            lowest, highest = self._ranges[match[1]]
            existing = f"topic {match[1]} has partitions from {lowest} to {highest}"
            if flag == "--topic" and lowest <= int(match[2]) <= highest:
                existing += question([f"--partition {name}"])
        elif (name if match is None else match[1]) == CLUSTER_METADATA_TOPIC:
            existing = "the metadata log is left alone: a broker looks after it itself"
        else:
            existing = self._near(name if match is None else match[1])
        raise UsageError(f"{option}: not found in {place}; {existing}")

    def _near(self, topic: str) -> str:
        """Return text that names topics similar to *topic*, or those that exist."""
        if not self._ranges:
            return "there are no partitions"
        by_small_letters: dict[str, list[str]] = {}
        for name in self._ranges:
            by_small_letters.setdefault(name.lower(), []).append(name)
        near = similar_names(topic.lower(), by_small_letters, most=_NAMED)
        if near:
            names = [name for small in near for name in by_small_letters[small]]
            return f"topics with similar names: {', '.join(names)}"
        return f"existing topics: {listed_text(sorted(self._ranges), _NAMED)}"


class SelectedPartitions:
    """What the data source's options `topic` and `partition` select, and whether it exists.

    Args:
        topics, numbers: None for all.
        pairs: partitions of topics by `assign`, none without it.
        option: the one that names topics.
    """

    def __init__(
        self,
        topics: Collection[str] | None,
        numbers: Collection[int] | None,
        *,
        pairs: Collection[tuple[str, int]] = (),
        option: str = "topic",
    ) -> None:
        self._option = option
        self._missing_pairs = set(pairs)
        self._topics = None if topics is None else frozenset(topics)
        self._missing_topics = set(topics or ())
        self._missing_numbers = set(numbers or ())
        self._seen = SeenPartitions()

    def note(self, partition: Partition) -> None:
        """Note a partition that exists, selected or not."""
        self._seen.note(partition)
        self._missing_topics.discard(partition.topic)
        self._missing_pairs.discard((partition.topic, partition.partition))
        if self._topics is None or partition.topic in self._topics:
            self._missing_numbers.discard(partition.partition)

    def refuse_missing(self, place: str) -> None:
        """Refuse a selection of what does not exist.

        Raises:
            UsageError: a topic, or a partition of the topics, that was not seen.
        """
        for topic in sorted(self._missing_topics):
            self._seen.refuse(f"{self._option}={topic}", topic, place)
        for topic, number in sorted(self._missing_pairs):
            self._seen.refuse(f"assign={topic}-{number}", f"{topic}-{number}", place)
        for number in sorted(self._missing_numbers):
            raise UsageError(f"partition={number}: none of the topics that are read has it in {place}")


class PartitionChoice:
    """What `--topic` and `--partition` choose; without either, all partitions.

    Args:
        topics: all partitions of these are chosen.
        partitions: and these, as `<topic>-<partition>`.

    Raises:
        UsageError: one of *partitions* has no number; an argument of another type.
    """

    def __init__(self, topics: Collection[str] = (), partitions: Collection[str] = ()) -> None:
        topics, partitions = several("topics", topics), several("partitions", partitions)
        if "" in topics:
            raise UsageError(
                "--topic: the name is empty. Remedy: name a topic; is a variable of the shell empty?"
            )
        for name in partitions:
            if not _PARTITION.fullmatch(name):
                raise UsageError(f"--partition {name or 'without a name'}: expected TOPIC-N, as orders-3")
        self._topics = frozenset(topics)
        self._partitions = frozenset(partitions)
        self._missing = {("--topic", name) for name in topics} | {
            ("--partition", name) for name in partitions
        }
        self._seen = SeenPartitions()

    def __call__(self, partition: Partition) -> bool:
        """Return whether a partition is chosen. Must be called for each one that exists."""
        if not self._topics and not self._partitions:
            return True
        self._seen.note(partition)
        name = f"{partition.topic}-{partition.partition}"
        self._missing -= {("--topic", partition.topic), ("--partition", name)}
        return partition.topic in self._topics or name in self._partitions

    @property
    def is_everything(self) -> bool:
        """Whether neither topics nor partitions were named."""
        return not self._topics and not self._partitions

    def refuse_missing(self, place: str) -> None:
        """Refuse a choice of what does not exist: finding nothing must not look like finding no damage.

        Args:
            place: where the partitions were looked for.

        Raises:
            UsageError: a topic or partition that was named was not seen.
        """
        for option, name in sorted(self._missing):
            self._seen.refuse(f"{option} {name}", name, place)
