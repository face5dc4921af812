"""The outcome of `archive metrics`, as values, JSON and text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from recovery.archive.tiering.figures import SUMMED, TieringFigures
from recovery.printable import printable
from recovery.quantity import bytes_text, count_text

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TieredPartition:
    """The figures of a partition."""

    topic: str
    topic_id: str
    partition: int
    figures: TieringFigures


@dataclass(frozen=True, slots=True, kw_only=True)
class TieredTopic:
    """The sums of a topic."""

    topic: str
    topic_id: str
    figures: TieringFigures


@dataclass(frozen=True, slots=True, kw_only=True)
class TieringReport:
    """What `archive metrics` found.

    Attributes:
        now_ms: the clock by which retention was judged.
        topics, partitions: by name.
        warnings: what is not known, and why.
    """

    now_ms: int
    duration_ms: int
    topics: tuple[TieredTopic, ...]
    partitions: tuple[TieredPartition, ...]
    warnings: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """4 if a figure is not known, else 0."""
        return 4 if any(None in _values(one.figures).values() for one in self.partitions) else 0

    def to_json(self) -> str:
        """Return the report as one JSON object."""
        return json.dumps(
            {
                "version": VERSION,
                "command": "archive metrics",
                "exitCode": self.exit_code,
                "nowMs": self.now_ms,
                "durationMs": self.duration_ms,
                "warnings": list(self.warnings),
                "topics": [
                    {"topic": one.topic, "topicId": one.topic_id}
                    | {key: value for key, value in _values(one.figures).items() if key in _TOPIC_KEYS}
                    for one in self.topics
                ],
                "partitions": [
                    {"topic": one.topic, "topicId": one.topic_id, "partition": one.partition}
                    | _values(one.figures)
                    for one in self.partitions
                ],
            },
            indent=2,
            ensure_ascii=False,
        )

    def to_text(self) -> str:
        """Return the report for a person."""
        lines = [f"WARNING: {printable(text)}" for text in self.warnings]
        lines += [f"{printable(one.topic)}-{one.partition}: {_words(one.figures)}" for one in self.partitions]
        topics = {one.topic for one in self.topics}
        lines.append(
            f"{count_text(len(self.partitions), 'tiered partition')} of {count_text(len(topics), 'topic')}, "
            f"in {self.duration_ms / 1000:.1f} s"
        )
        return "\n".join(lines)


def _key(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(part.capitalize() for part in others)


_KEYS: Mapping[str, str] = {one.name: _key(one.name) for one in fields(TieringFigures)}
_TOPIC_KEYS = frozenset(_KEYS[name] for name in (*SUMMED, "copy_disabled"))


def _values(figures: TieringFigures) -> dict[str, Any]:
    values = {key: getattr(figures, name) for name, key in _KEYS.items()}
    by_epoch = figures.remote_log_size_by_epoch
    if by_epoch is not None:
        values["remoteLogSizeByEpoch"] = {str(epoch): size_bytes for epoch, size_bytes in by_epoch.items()}
    return values


def _words(figures: TieringFigures) -> str:
    remote = (
        f"{_count(figures.remote_log_metadata_count)} remote segments, {_size(figures.remote_log_size_bytes)}"
    )
    copying = (
        "copying disabled"
        if figures.copy_disabled
        else f"to copy: {_count(figures.remote_copy_lag_segments)}, {_size(figures.remote_copy_lag_bytes)}"
    )
    deleting = (
        f"to delete: {_count(figures.remote_delete_lag_segments)}, {_size(figures.remote_delete_lag_bytes)}"
    )
    local = f"on this disk alone: {_count(figures.local_only_segments)}, {_size(figures.local_only_bytes)}"
    offsets = (
        f"offsets {_count(figures.log_start_offset)} to {_count(figures.log_end_offset)}, "
        f"copied to {_count(figures.highest_copied_offset)}, local from {_count(figures.local_log_start_offset)}"
    )
    return "; ".join((remote, copying, deleting, local, offsets))


def _count(value: int | None) -> str:
    return "unknown" if value is None else str(value)


def _size(value: int | None) -> str:
    return "unknown" if value is None else bytes_text(value)
