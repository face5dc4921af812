"""How a partition ended, as a value that the journal can keep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from recovery.engine.report import PartitionReport
from recovery.errors import JournalError
from recovery.load.model import Cut, Hole, LogBounds, PartitionTask


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionResult:
    """How a partition ended; if it has no bounds, it was refused."""

    task: PartitionTask
    bounds: LogBounds | None
    report: PartitionReport
    is_changed: bool

    def to_json(self) -> dict[str, Any]:
        """Return all but the task as a JSON object."""
        return {
            "bounds": None if self.bounds is None else _fields(self.bounds),
            "report": {
                **_fields(self.report),
                "cuts": [_fields(cut) for cut in self.report.cuts],
                "holes": [_fields(hole) for hole in self.report.holes],
                "problems": [asdict(problem) for problem in self.report.problems],
            },
            "isChanged": self.is_changed,
        }

    @classmethod
    def from_json(cls, task: PartitionTask, document: Mapping[str, Any]) -> PartitionResult:
        """Return the result of *task* from a JSON object made by `to_json`.

        Raises:
            JournalError: it was not made by `to_json`.
        """
        try:
            return cls._from_json(task, document)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise JournalError(
                f"{task.folder}: not a result of this tool ({type(error).__name__}: {error}). Remedy: "
                "begin anew with --restart"
            ) from error

    @classmethod
    def _from_json(cls, task: PartitionTask, document: Mapping[str, Any]) -> PartitionResult:
        bounds, report = document["bounds"], document["report"]
        if not all(isinstance(path, str) for path in report["quarantined"]):
            raise ValueError("what is in quarantine has no path")
        for cut in report["cuts"]:
            if any(type(cut[name]) is not int for name in ("position", "size_bytes", "batch_count")):
                raise ValueError("a cut of no size")
        fields: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in report.items()
        }
        fields["cuts"] = tuple(Cut(**cut) for cut in report["cuts"])
        hash(fields["cuts"])  # a TypeError if a value is not one that a cut can have
        fields["holes"] = tuple(Hole(**hole) for hole in report.get("holes", ()))
        return cls(
            task=task,
            bounds=None if bounds is None else LogBounds(**bounds),
            report=PartitionReport(**fields),
            is_changed=document["isChanged"],
        )


def _fields(value: LogBounds | PartitionReport | Cut | Hole) -> dict[str, Any]:
    """Return the fields by name, without copies; `asdict` makes them, and takes as long as a small segment."""
    return {name: getattr(value, name) for name in value.__dataclass_fields__}
