"""Warnings about partitions: by name for programs; for people those with the same text together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Self

from recovery.printable import printable
from recovery.quantity import partitions_text

_MOST_NAMED = 3
"""Partitions that a line about several names, unless each is asked for."""


class PartitionWarning(str):
    """What is not known of a partition, or to be done about it: its name, a colon, and the text.

    Args:
        name: `topic-partition`.
        text: the rest.
    """

    __slots__ = ("name", "text")

    name: str
    text: str

    def __new__(cls, name: str, text: str) -> Self:
        """Make the whole of both."""
        made = super().__new__(cls, f"{name}: {text}")
        made.name, made.text = name, text
        return made


def warning_lines(warnings: Iterable[str], verbosity: int) -> Iterator[str]:
    """Yield a line for each text, however many partitions it is about; from verbosity 1 on all of them are named."""
    names: dict[str, list[str]] = {}
    for warning in warnings:
        if isinstance(warning, PartitionWarning):
            names.setdefault(warning.text, []).append(warning.name)
        else:
            names.setdefault(warning, [])
    most = None if verbosity > 0 else _MOST_NAMED
    for text, of_it in names.items():
        about = f"{partitions_text(sorted(of_it, key=_topic_and_number), most)}: " if of_it else ""
        yield f"WARNING: {printable(about + text)}"


def _topic_and_number(name: str) -> tuple[str, int]:
    topic, _, number = name.rpartition("-")
    return topic, int(number)
