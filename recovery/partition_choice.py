"""Which partitions a run is for: `--topic` and `--partition`."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol


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


def choice(topics: Collection[str], partitions: Collection[str]) -> Callable[[Partition], bool]:
    """Return whether a partition is chosen: by its topic, or as `<topic>-<partition>`; all are without either."""

    def is_chosen(one: Partition) -> bool:
        if not topics and not partitions:
            return True
        return one.topic in topics or f"{one.topic}-{one.partition}" in partitions

    return is_chosen
