"""What became of a recovery that was watched, or how far it is, and the two ways of printing it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from recovery.printable import printable
from recovery.quantity import bytes_text, count_text, duration_text
from recovery.watch.figures import GaugeValues, LogDirValues
from recovery.watch.text import progress_text

Outcome = Literal["over", "incomplete", "running", "none", "interrupted"]
"""The recovery is over; it ended, or the source did, before all was recovered; it goes on; none was seen; a
signal came."""

_WORDS: dict[Outcome, str] = {
    "over": "the recovery is over",
    "incomplete": "ended, but not all is recovered",
    "running": "recovering",
    "none": "no recovery seen",
    "interrupted": "interrupted",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchReport:
    """What a watch has seen.

    Attributes:
        source: a path, "standard input", a URL.
        outcome: of the last recovery that was seen.
        values: its figures at the end.
        restarts: how often the broker was started again meanwhile.
        exit_code: see docs/reference/exit-codes.md.
    """

    source: str
    outcome: Outcome
    values: GaugeValues
    restarts: int
    exit_code: int

    def to_text(self) -> str:
        """Return the report for people."""
        return "\n".join(map(printable, self._lines()))

    def to_json(self) -> str:
        """Return the report as one JSON object."""
        values = self.values
        return json.dumps(
            {
                "version": 1,
                "command": "watch",
                "exitCode": self.exit_code,
                "source": self.source,
                "outcome": self.outcome,
                "restarts": self.restarts,
                "startedMs": values.started_ms,
                "durationMs": round(values.elapsed_seconds * 1000),
                "etaSeconds": None if values.eta_seconds is None else round(values.eta_seconds, 3),
                "logDirs": [_json_of(log_dir) for log_dir in values.log_dirs],
            }
        )

    def _lines(self) -> Iterator[str]:
        for log_dir in self.values.log_dirs:
            yield f"{log_dir.log_dir}: {_dir_text(log_dir)}"
        line = f"{self.source}: {_WORDS[self.outcome]}"
        if self.values.started_ms is not None:
            line += (
                f", {duration_text(self.values.elapsed_seconds)} so far"
                if self.outcome == "running"
                else (f" after {duration_text(self.values.elapsed_seconds)}")
            )
            line += f": {progress_text(self.values)}"
        yield line


def _dir_text(values: LogDirValues) -> str:
    parts = [f"{values.finished_logs:,} of {values.log_count:,} logs"]
    if values.recovered_segments:
        parts.append(f"{count_text(values.recovered_segments, 'segment')} recovered")
    if values.bytes_total:
        parts.append(f"{bytes_text(values.remaining_bytes)} of {bytes_text(values.bytes_total)} left")
    if values.partitions.get("truncated"):
        parts.append(f"{count_text(values.partitions['truncated'], 'log')} cut")
    if values.partitions.get("failed"):
        parts.append(f"{count_text(values.partitions['failed'], 'log')} failed")
    if values.partitions.get("refused"):
        parts.append(f"{count_text(values.partitions['refused'], 'log')} refused")
    if values.is_offline:
        parts.append("offline")
    elif values.had_clean_shutdown:
        parts.append("nothing to recover after a clean shutdown")
    return ", ".join(parts)


def _json_of(values: LogDirValues) -> dict[str, Any]:
    return {
        "logDir": values.log_dir,
        "hadCleanShutdown": values.had_clean_shutdown,
        "logs": values.log_count,
        "finishedLogs": values.finished_logs,
        "failedLogs": values.partitions.get("failed", 0),
        "refusedLogs": values.partitions.get("refused", 0),
        "truncatedLogs": values.partitions.get("truncated", 0),
        "segments": values.known("segment_count"),
        "recoveredSegments": values.recovered_segments,
        "bytes": values.known("bytes_total"),
        "remainingBytes": values.known("remaining_bytes"),
        "truncatedBytes": values.known("truncated_bytes"),
        "finished": values.is_finished,
        "offline": values.is_offline,
    }
