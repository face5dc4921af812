"""What is counted over an archive: associative, so that tasks count for themselves and the driver adds up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from recovery.archive.check.partition_fold import PartitionVerdict

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
class Tally:
    """Counts of one part of an archive, or of all of it.

    Attributes:
        valid, damaged, unchecked: objects.
        rebuilt: objects made anew.
        unsettled: damaged objects that nothing was made for.
        rules: findings by rule, notes aside.
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

    def add(self, verdict: PartitionVerdict) -> None:
        """Count one partition."""
        self.partitions += 1
        self.segments += verdict.segment_count
        self.batches += verdict.batch_count
        self.log_bytes += verdict.log_bytes
        sound = sum(map(len, verdict.sound))
        self.objects += sound
        self.valid += sound
        for one in verdict.objects:
            is_valid = one.verdict.is_valid
            self.objects += 1
            self.valid += is_valid is True
            self.damaged += is_valid is False
            self.unchecked += is_valid is None
            self.rebuilt += one.rebuilt is not None
            self.unsettled += is_valid is False and one.rebuilt is None
            self.rules.update(found.rule for found in one.verdict.findings if found.severity != "note")

    def merge(self, other: Tally) -> None:
        """Count what *other* has counted."""
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.rules.update(other.rules)

    def to_json(self) -> dict[str, Any]:
        """Return the counts as a JSON object."""
        counts: dict[str, Any] = {_camel(name): getattr(self, name) for name in _COUNTS}
        return counts | {"rules": dict(sorted(self.rules.items()))}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Tally:
        """Return the counts that `to_json` has written."""
        counts = {name: int(found[_camel(name)]) for name in _COUNTS}
        return cls(**counts, rules=Counter(found["rules"]))


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)
