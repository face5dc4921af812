"""Which partitions a run is for: `--topic` and `--partition`, and what is said where there is no such thing."""

from __future__ import annotations

import re
from collections.abc import Collection
from difflib import get_close_matches
from typing import Protocol

from recovery.errors import UsageError

_NAMED = 5
"""Names in a message; of the others the number is said."""
_PARTITION = re.compile(r"(.+)-[0-9]+", re.DOTALL)


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
    """What there is, in little memory: topics with their lowest and highest partition."""

    def __init__(self) -> None:
        self._ranges: dict[str, tuple[int, int]] = {}

    def note(self, one: Partition) -> None:
        """Take one partition that is there, chosen or not."""
        lowest, highest = self._ranges.get(one.topic, (one.partition, one.partition))
        self._ranges[one.topic] = min(lowest, one.partition), max(highest, one.partition)

    def refuse(self, option: str, name: str, place: str) -> None:
        """Say that nothing at *place* is what *name* says, and what comes near it.

        Args:
            option: the user's words, with the name.
            name: of a topic, or `<topic>-<partition>`.

        Raises:
            UsageError: in any case.
        """
        match = _PARTITION.fullmatch(name)
        if match is not None and match[1] in self._ranges:
            lowest, highest = self._ranges[match[1]]
            known = f"topic {match[1]} has partitions from {lowest} to {highest}"
        else:
            known = self._near(name if match is None else match[1])
        raise UsageError(f"{option}: there is no such thing in {place}; {known}")

    def _near(self, topic: str) -> str:
        """Return words for the topics that are called nearly like *topic*, or for those there are."""
        if not self._ranges:
            return "there is no partition at all"
        near = get_close_matches(topic, self._ranges, n=_NAMED)
        if near:
            return f"topics with similar names: {', '.join(near)}"
        names = sorted(self._ranges)
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        return f"topics there are: {', '.join(names[:_NAMED])}{more}"


class SelectedPartitions:
    """What the data source's options `topic` and `partition` select, and whether it is there.

    Args:
        topics, numbers: None for all.
    """

    def __init__(self, topics: Collection[str] | None, numbers: Collection[int] | None) -> None:
        self._topics = None if topics is None else frozenset(topics)
        self._missing_topics = set(topics or ())
        self._missing_numbers = set(numbers or ())
        self._seen = SeenPartitions()

    def note(self, one: Partition) -> None:
        """Take one partition that is there, selected or not."""
        self._seen.note(one)
        self._missing_topics.discard(one.topic)
        if self._topics is None or one.topic in self._topics:
            self._missing_numbers.discard(one.partition)

    def refuse_missing(self, place: str) -> None:
        """Refuse a selection of what is not there.

        Raises:
            UsageError: a topic, or a partition of the topics, that was not seen.
        """
        for topic in sorted(self._missing_topics):
            self._seen.refuse(f"topic={topic}", topic, place)
        for number in sorted(self._missing_numbers):
            raise UsageError(f"partition={number}: none of the topics that are read has it in {place}")


class PartitionChoice:
    """What `--topic` and `--partition` choose: all partitions without either.

    Args:
        topics: all partitions of these are chosen.
        partitions: and these, as `<topic>-<partition>`.

    Raises:
        UsageError: one of *partitions* has no number.
    """

    def __init__(self, topics: Collection[str] = (), partitions: Collection[str] = ()) -> None:
        for name in partitions:
            if not _PARTITION.fullmatch(name):
                raise UsageError(f"--partition {name}: expected TOPIC-N, as orders-3")
        self._topics = frozenset(topics)
        self._partitions = frozenset(partitions)
        self._missing = {("--topic", name) for name in topics} | {
            ("--partition", name) for name in partitions
        }
        self._seen = SeenPartitions()

    def __call__(self, one: Partition) -> bool:
        """Return whether a partition is chosen. To be asked of each one that is there."""
        if not self._topics and not self._partitions:
            return True
        self._seen.note(one)
        name = f"{one.topic}-{one.partition}"
        self._missing -= {("--topic", one.topic), ("--partition", name)}
        return one.topic in self._topics or name in self._partitions

    def refuse_missing(self, place: str) -> None:
        """Refuse a choice of what is not there: nobody is to take nothing for sound.

        Args:
            place: where all partitions were looked at.

        Raises:
            UsageError: a topic or partition that was named was not seen.
        """
        for option, name in sorted(self._missing):
            self._seen.refuse(f"{option} {name}", name, place)
