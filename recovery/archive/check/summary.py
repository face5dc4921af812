"""Counts over an archive: associative, so that tasks count by themselves and the driver adds up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from recovery.archive.check.verdict import PartitionVerdict, by_object, validity
from recovery.check.finding import Finding, findings_by_file

_COUNTS = (
    "partitions",
    "segments",
    "batches",
    "objects",
    "log_bytes",
    "valid",
    "damaged",
    "unchecked",
    "rebuilt",
    "unsettled",
)


@dataclass(slots=True, kw_only=True)
class Summary:
    """Counts of one part of an archive, or of all of it.

    Attributes:
        valid, damaged, unchecked: objects.
        rebuilt: rebuilt objects, and rebuilt parts of objects.
        unsettled: damaged objects that were not rebuilt.
        rules: findings by rule, without notes.
        notes: notes by rule.
    """

    partitions: int = 0
    segments: int = 0
    batches: int = 0
    objects: int = 0
    log_bytes: int = 0
    valid: int = 0
    damaged: int = 0
    unchecked: int = 0
    rebuilt: int = 0
    unsettled: int = 0
    rules: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)

    def add(self, verdict: PartitionVerdict) -> None:
        """Count one partition."""
        self.partitions += 1
        self.segments += verdict.segment_count
        self.batches += verdict.batch_count
        self.log_bytes += verdict.log_bytes
        sound = sum(map(len, verdict.sound))
        self.objects += sound
        self.valid += sound
        for parts in by_object(verdict.objects):
            is_valid = validity(parts)
            self.objects += 1
            self.valid += is_valid is True
            self.damaged += is_valid is False
            self.unchecked += is_valid is None
            self.unsettled += any(judged.is_unsettled for judged in parts)
            for judged in parts:
                self.rebuilt += judged.rebuilt is not None
                self._count(judged.verdict.findings)

    def add_places(self, findings: Iterable[Finding]) -> None:
        """Count findings on what no partition has; each place with one that is not a note counts as an object."""
        for own in findings_by_file(findings).values():
            severities = {finding.severity for finding in own}
            is_damaged = "damage" in severities
            self.objects += severities != {"note"}
            self.damaged += is_damaged
            self.unsettled += is_damaged
            self.unchecked += not is_damaged and "unchecked" in severities
            self._count(own)

    def _count(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            (self.notes if finding.severity == "note" else self.rules)[finding.rule] += 1

    def merge(self, other: Summary) -> None:
        """Add the counts of *other*."""
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.rules.update(other.rules)
        self.notes.update(other.notes)

    def to_json(self) -> dict[str, Any]:
        """Return the counts as a JSON object."""
        counts: dict[str, Any] = {_camel(name): getattr(self, name) for name in _COUNTS}
        return counts | {
            "rules": dict(sorted(self.rules.items())),
            "notes": dict(sorted(self.notes.items())),
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Summary:
        """Return the counts that `to_json` has written."""
        counts = {name: int(fields[_camel(name)]) for name in _COUNTS}
        return cls(**counts, rules=Counter(fields["rules"]), notes=Counter(fields["notes"]))


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
