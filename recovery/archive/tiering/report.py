"""The outcome of `archive metrics`, as values, JSON and text."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from recovery.archive.tiering.archive_survey import Archive
from recovery.archive.tiering.figures import OF_ARCHIVE, SUMMED, TieringFigures
from recovery.archive.tiering.partition_warning import warning_lines
from recovery.printable import printable
from recovery.quantity import bytes_text, count_text

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TieredPartition:
    """The figures of a partition.

    Attributes:
        is_deleted: as of its topic.
    """

    topic: str
    topic_id: str
    partition: int
    is_deleted: bool = False
    figures: TieringFigures


@dataclass(frozen=True, slots=True, kw_only=True)
class TieredTopic:
    """The sums of a topic.

    Attributes:
        is_deleted: whether it was deleted, or made anew under another id.
    """

    topic: str
    topic_id: str
    is_deleted: bool = False
    figures: TieringFigures


@dataclass(frozen=True, slots=True, kw_only=True)
class TieringReport:
    """What `archive metrics` found.

    Attributes:
        now_ms: the clock by which retention was judged.
        topics, partitions: by name.
        archive: what was listed; None: nothing was to be.
        warnings: what is not known, and why.
    """

    now_ms: int
    duration_ms: int
    topics: tuple[TieredTopic, ...]
    partitions: tuple[TieredPartition, ...]
    archive: Archive | None = None
    warnings: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """4 if a figure is not known, else 0: what is missing in the archive is a figure, too."""
        return 4 if any(self._is_unknown(one) for one in self.partitions) else 0

    def _is_unknown(self, one: TieredPartition) -> bool:
        """Return whether a figure of a partition is not known that it could have: a deleted one has no log."""
        names = _OF_DELETED if one.is_deleted else _OF_LOG
        if self.archive is not None:
            names = (*names, *OF_ARCHIVE)
        return any(getattr(one.figures, name) is None for name in names)

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
                "archive": None if self.archive is None else _archive(self.archive),
                "topics": [
                    {"topic": one.topic, "topicId": one.topic_id, "topicDeleted": one.is_deleted}
                    | {key: value for key, value in _values(one.figures).items() if key in _TOPIC_KEYS}
                    for one in self.topics
                ],
                "partitions": [
                    {
                        "topic": one.topic,
                        "topicId": one.topic_id,
                        "topicDeleted": one.is_deleted,
                        "partition": one.partition,
                    }
                    | _values(one.figures)
                    for one in self.partitions
                ],
            },
            indent=2,
            ensure_ascii=False,
        )

    def to_text(self, verbosity: int = 0) -> str:
        """Return the report for a person: what is missing first, then the sums of topics.

        Args:
            verbosity: -1: what is missing alone; 1: each partition, too.
        """
        lines = list(warning_lines(self.warnings, verbosity))
        if self.archive is not None:
            lines += [text for one in self.partitions for text in _losses(one, self.archive)]
        if verbosity < 0:
            return "\n".join(lines)
        if verbosity > 0:
            lines += [
                self._line(f"{one.topic}-{one.partition}", one, offsets=_offsets(one.figures))
                for one in self.partitions
            ]
        partition_counts = Counter((one.topic, one.topic_id) for one in self.partitions)
        lines += [
            self._line(
                f"{one.topic} ({count_text(partition_counts[one.topic, one.topic_id], 'partition')})", one
            )
            for one in self.topics
        ]
        if self.archive is not None and self.archive.other_partitions:
            lines.append(_others(self.archive))
        topics = {one.topic for one in self.topics}
        lines.append(
            f"{count_text(len(self.partitions), 'tiered partition')} of {count_text(len(topics), 'topic')}, "
            f"in {self.duration_ms / 1000:.1f} s"
        )
        return "\n".join(lines)

    def _line(self, name: str, one: TieredPartition | TieredTopic, *, offsets: str | None = None) -> str:
        words = (
            [_left(one.figures)] if one.is_deleted else [_sums(one.figures), *([offsets] if offsets else [])]
        )
        if self.archive is not None:
            words.append(_found(one.figures))
        return f"{printable(name)}: {'; '.join(words)}"


_OF_LOG = tuple(one.name for one in fields(TieringFigures) if one.name not in OF_ARCHIVE)
_OF_DELETED = ("remote_log_size_bytes",)


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


def _remote(figures: TieringFigures) -> str:
    return (
        f"{_count(figures.remote_log_metadata_count)} remote segments, {_size(figures.remote_log_size_bytes)}"
    )


def _left(figures: TieringFigures) -> str:
    return f"{_remote(figures)}, left of a deleted topic"


def _sums(figures: TieringFigures) -> str:
    copying = (
        "copying disabled"
        if figures.copy_disabled
        else f"to copy: {_count(figures.remote_copy_lag_segments)}, {_size(figures.remote_copy_lag_bytes)}"
    )
    deleting = (
        f"to delete: {_count(figures.remote_delete_lag_segments)}, {_size(figures.remote_delete_lag_bytes)}"
    )
    local = f"on this disk alone: {_count(figures.local_only_segments)}, {_size(figures.local_only_bytes)}"
    return "; ".join((_remote(figures), copying, deleting, local))


def _offsets(figures: TieringFigures) -> str:
    return (
        f"offsets {_offset(figures.log_start_offset)} to {_offset(figures.log_end_offset)}, "
        f"copied to {_offset(figures.highest_copied_offset)}, local from {_offset(figures.local_log_start_offset)}"
    )


def _archive(archive: Archive) -> dict[str, Any]:
    return {
        "url": archive.url,
        "layout": archive.layout,
        "otherPartitions": archive.other_partitions,
        "otherSegments": archive.other_segments,
        "otherLogBytes": archive.other_log_bytes,
    }


def _losses(one: TieredPartition, archive: Archive) -> Iterator[str]:
    """Yield what of finished segments is not in the archive; of a deleted topic nothing need be."""
    if one.is_deleted:
        return
    name, figures, place = f"{printable(one.topic)}-{one.partition}", one.figures, printable(archive.url)
    remedy = f"`archive inventory {place} --metadata ...` names them"
    if figures.missing_segments:
        yield (
            f"MISSING {name}: {count_text(figures.missing_segments, 'finished segment')}, "
            f"{_size(figures.missing_bytes)}, not in {place}: {remedy}"
        )
    if figures.incomplete_segments:
        yield (
            f"MISSING {name}: {count_text(figures.incomplete_segments, 'finished segment')} without indexes or other "
            f"objects in {place}: {remedy}"
        )
    if figures.wrong_size_segments:
        yield (
            f"DAMAGED {name}: {count_text(figures.wrong_size_segments, 'finished segment')} in {place} not as large as "
            "when copied: archive verify says what of them is sound"
        )


def _found(figures: TieringFigures) -> str:
    texts = [f"in the archive: {_count(figures.archived_segments)}, {_size(figures.archived_log_bytes)}"]
    if figures.missing_segments is None:
        texts.append("what is missing there is unknown")
    if figures.orphan_segments:
        texts.append(f"orphans: {figures.orphan_segments:,}, {_size(figures.orphan_bytes)}")
    if figures.undeleted_segments:
        texts.append(f"left by deletions: {figures.undeleted_segments:,}, {_size(figures.undeleted_bytes)}")
    if figures.uncompared_segments:
        texts.append(f"not compared: {figures.uncompared_segments:,}")
    return "; ".join(texts)


def _others(archive: Archive) -> str:
    return (
        f"{printable(archive.url)} also has {count_text(archive.other_partitions, 'partition')} of deleted topics "
        f"or other clusters: {count_text(archive.other_segments, 'segment')}, {bytes_text(archive.other_log_bytes)}"
    )


def _count(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"


def _offset(value: int | None) -> str:
    return "unknown" if value is None else str(value)


def _size(value: int | None) -> str:
    return "unknown" if value is None else bytes_text(value)
