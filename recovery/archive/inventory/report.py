"""The results of `archive inventory`: segments by status and topic, and what is wrong, as text, JSON and rows."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from recovery.archive.inventory.entry import InventoryEntry, PartitionInventory
from recovery.archive.layouts.walk import UnlistedPrefix
from recovery.archive.stores.archived import PartitionPrefix
from recovery.check.finding import Finding
from recovery.printable import printable
from recovery.quantity import bytes_text, count_text

if TYPE_CHECKING:
    import pyarrow as pa

MOST_FINDINGS = 10_000
"""In a report; further ones are only counted."""


_MOST_NOTES = 20


@dataclass(slots=True, kw_only=True)
class TopicInventory:
    """The segments of one topic.

    Attributes:
        statuses, places: counts of segments.
        size_bytes: of the objects that are there.
    """

    partitions: int = 0
    segments: int = 0
    size_bytes: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    places: Counter[str] = field(default_factory=Counter)

    def add(self, inventory: PartitionInventory) -> None:
        """Count one partition."""
        self.partitions += 1
        self.segments += len(inventory.entries)
        self.size_bytes += sum(entry.size_bytes for entry in inventory.entries)
        self.statuses.update(entry.status.value for entry in inventory.entries)
        self.places.update(entry.place.value for entry in inventory.entries)

    def to_json(self) -> dict[str, Any]:
        """Return the counts as a JSON object."""
        return {
            "partitions": self.partitions,
            "segments": self.segments,
            "sizeBytes": self.size_bytes,
            "statuses": dict(sorted(self.statuses.items())),
            "places": dict(sorted(self.places.items())),
        }


@dataclass(slots=True, kw_only=True)
class InventoryReport:
    """The result of an inventory.

    Attributes:
        has_metadata: whether a metadata topic was available.
        topics: counts by topic and its id.
        findings: prefix and finding; not all if there are very many.
        left_out: how many findings are not among them.
        rules: findings by rule and severity.
        notes: on what was not looked at.
        output: where the rows of segments are; None if they were not kept.
    """

    url: str
    layout: str
    has_metadata: bool = False
    topics: dict[tuple[str, str], TopicInventory] = field(default_factory=dict)
    findings: list[tuple[str, Finding]] = field(default_factory=list)
    left_out: int = 0
    rules: Counter[tuple[str, str]] = field(default_factory=Counter)
    unlisted: list[UnlistedPrefix] = field(default_factory=list)
    notes: tuple[str, ...] = ()
    output: str | None = None
    duration_ms: int = 0

    def add(self, where: PartitionPrefix, inventory: PartitionInventory) -> None:
        """Count one partition."""
        self.topics.setdefault((where.topic, where.topic_id), TopicInventory()).add(inventory)
        self.add_findings(where.prefix, inventory.findings)

    def add_findings(self, prefix: str, findings: tuple[Finding, ...]) -> None:
        """Count what is wrong below a prefix."""
        for finding in findings:
            self.rules[finding.severity, finding.rule] += 1
            if len(self.findings) < MOST_FINDINGS:
                self.findings.append((prefix, finding))
            else:
                self.left_out += 1

    @property
    def exit_code(self) -> int:
        """4, 2 or 0: the first that applies; see docs/reference/exit-codes.md."""
        if self.unlisted or any(severity == "unchecked" for severity, _ in self.rules):
            return 4
        return 2 if any(severity == "damage" for severity, _ in self.rules) else 0

    def to_json(self) -> str:
        """Return the report as one JSON object."""
        fields = {
            "version": 1,
            "command": "archive inventory",
            "archive": self.url,
            "layout": self.layout,
            "exitCode": self.exit_code,
            "durationMs": self.duration_ms,
            "metadata": self.has_metadata,
            "notes": [{"level": "info", "text": text} for text in self.notes],
            "output": self.output,
            "topics": [
                {"topic": topic, "topicId": topic_id} | topic_inventory.to_json()
                for (topic, topic_id), topic_inventory in sorted(self.topics.items())
            ],
            "rules": [
                {"rule": rule, "severity": severity, "count": count}
                for (severity, rule), count in sorted(self.rules.items())
            ],
            "unlisted": [{"prefix": unlisted.prefix, "error": unlisted.error} for unlisted in self.unlisted],
            "findings": [
                {
                    "key": prefix + finding.file,
                    "rule": finding.rule,
                    "severity": finding.severity,
                    "detail": finding.detail,
                    "remedy": finding.remedy,
                }
                for prefix, finding in self.findings
            ],
            "findingsLeftOut": self.left_out,
        }
        return json.dumps(fields, indent=2, ensure_ascii=False)

    def to_text(self, verbosity: int = 0) -> str:
        """Return the report for a person, problems first.

        Args:
            verbosity: -1: problems alone; 1: each note.
        """
        labels = {"damage": "WRONG", "unchecked": "NOT CHECKED", "note": "note"}
        notes = [
            prefix_and_finding
            for prefix_and_finding in self.findings
            if prefix_and_finding[1].severity == "note"
        ]
        shown = [
            prefix_and_finding
            for prefix_and_finding in self.findings
            if prefix_and_finding[1].severity != "note"
        ]
        if verbosity >= 0:
            shown += notes if verbosity > 0 else notes[:_MOST_NOTES]
        lines = [
            f"{labels[finding.severity]} {printable(prefix + finding.file)}: {finding.rule}: "
            f"{printable(finding.detail)}."
            + (f" Remedy: {finding.remedy}." if finding.severity == "damage" else "")
            for prefix, finding in shown
        ]
        if verbosity == 0 and len(notes) > _MOST_NOTES:
            lines.append(f"... and {len(notes) - _MOST_NOTES:,} more notes (-v lists them)")
        lines += [
            f"NOT LISTED {printable(unlisted.prefix)}: {printable(unlisted.error)}"
            for unlisted in self.unlisted
        ]
        if self.left_out:
            lines.append(f"... and {self.left_out:,} more findings")
        if verbosity < 0:
            return "\n".join(lines)
        for (topic, topic_id), inventory in sorted(self.topics.items()):
            statuses = ", ".join(
                f"{count:,} {status}" for status, count in sorted(inventory.statuses.items())
            )
            name = f"{printable(topic)} {topic_id}".rstrip()
            lines.append(
                f"{name}: {count_text(inventory.partitions, 'partition')}, "
                f"{count_text(inventory.segments, 'segment')} ({statuses or 'none'}), "
                f"{bytes_text(inventory.size_bytes)}"
            )
        lines += [f"note: {printable(text)}" for text in self.notes]
        total = sum(inventory.segments for inventory in self.topics.values())
        size = sum(inventory.size_bytes for inventory in self.topics.values())
        basis = (
            "compared with the metadata topic"
            if self.has_metadata
            else "by names alone (--metadata compares more)"
        )
        lines.append(
            f"{printable(self.url)} ({self.layout}): {count_text(total, 'segment')}, {bytes_text(size)}, {basis}, "
            f"in {self.duration_ms / 1000:.1f} s"
        )
        if self.output is not None:
            lines.append(f"rows of all segments: {printable(self.output)}")
        return "\n".join(lines)


def segment_row(where: PartitionPrefix, entry: InventoryEntry) -> dict[str, Any]:
    """Return the row of one segment."""
    return {
        "topic": where.topic,
        "partition": where.partition,
        "topic_id": where.topic_id,
        "prefix": where.prefix,
        "base_offset": entry.base_offset,
        "end_offset": entry.end_offset,
        "segment_id": entry.segment_id,
        "status": entry.status.value,
        "place": entry.place.value,
        "objects": sorted(kind.value for kind in entry.present),
        "size_bytes": entry.size_bytes,
        "leader_epochs": [
            {"epoch": line.epoch, "start_offset": line.start_offset} for line in entry.leader_epochs
        ],
    }


def segment_schema() -> pa.Schema:
    """Return the Arrow schema of the rows of segments."""
    import pyarrow as pa

    epoch = pa.struct([("epoch", pa.int32()), ("start_offset", pa.int64())])
    return pa.schema(
        [
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("topic_id", pa.string()),
            ("prefix", pa.string()),
            ("base_offset", pa.int64()),
            ("end_offset", pa.int64()),
            ("segment_id", pa.string()),
            ("status", pa.string()),
            ("place", pa.string()),
            ("objects", pa.list_(pa.string())),
            ("size_bytes", pa.int64()),
            ("leader_epochs", pa.list_(epoch)),
        ]
    )
