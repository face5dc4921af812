"""What a verify has found: one verdict per file, a summary, the exit code, and the two ways of printing them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from recovery.alike_lines import alike_lines
from recovery.broker.starting_release import StartingRelease
from recovery.check.finding import SEVERITIES, FileVerdict, badness
from recovery.printable import printable
from recovery.problem import Note
from recovery.quantity import bytes_text, count_text


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirVerdicts:
    """What was found in one log dir.

    Attributes:
        is_live: whether a broker or a recovery held its lock.
        error: why it could not be listed, None if it could.
        skipped: folders that were not read.
        partition_count, segment_count, batch_count: what was read.
        files: verdicts by path.
    """

    log_dir: str
    is_live: bool = False
    had_clean_shutdown: bool = False
    error: str | None = None
    skipped: tuple[str, ...] = ()
    partition_count: int = 0
    segment_count: int = 0
    batch_count: int = 0
    files: tuple[FileVerdict, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the object of this log dir in the JSON report."""
        return {
            "logDir": self.log_dir,
            "live": self.is_live,
            "hadCleanShutdown": self.had_clean_shutdown,
            "error": self.error,
            "skipped": list(self.skipped),
            "partitions": self.partition_count,
            "segments": self.segment_count,
            "batches": self.batch_count,
            "files": [file.to_json() for file in self.files],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """What `verify` has found.

    Attributes:
        is_deep: whether records were opened.
        release: of the broker that will start, and how it is known.
        signal_number: the signal that ended the run early, or 0.
        notes: what was assumed, ignored or missing in the whole run.
    """

    log_dirs: tuple[LogDirVerdicts, ...]
    is_deep: bool
    duration_ms: int
    release: StartingRelease = field(default_factory=StartingRelease)
    signal_number: int = 0
    notes: tuple[Note, ...] = ()

    @property
    def files(self) -> Iterator[FileVerdict]:
        """All verdicts."""
        for log_dir in self.log_dirs:
            yield from log_dir.files

    @property
    def damaged(self) -> list[FileVerdict]:
        """The files with damage."""
        return [file for file in self.files if file.is_valid is False]

    @property
    def unchecked(self) -> list[FileVerdict]:
        """The files that could not be read, wholly or in part."""
        return [
            file for file in self.files if any(finding.severity == "unchecked" for finding in file.findings)
        ]

    @property
    def exit_code(self) -> int:
        """129, 130 or 143, 1, 4, 2 or 0: the first that applies; see docs/reference/exit-codes.md."""
        if self.signal_number:
            return 128 + self.signal_number
        errors = [log_dir for log_dir in self.log_dirs if log_dir.error is not None]
        if errors and len(errors) == len(self.log_dirs):
            return 1
        if errors or self.unchecked:
            return 4
        return 2 if self.damaged else 0

    @property
    def checked_bytes(self) -> int:
        """Bytes of all files that were checked."""
        return sum(file.checked_bytes for file in self.files)

    def to_json(self) -> str:
        """Return the report as JSON."""
        rules = Counter(
            finding.rule for file in self.files for finding in file.findings if finding.severity == "damage"
        )
        report = {
            "version": 1,
            "deep": self.is_deep,
            "release": self.release.to_json(),
            "exitCode": self.exit_code,
            "durationMs": self.duration_ms,
            "summary": {
                "files": sum(1 for _ in self.files),
                "damaged": len(self.damaged),
                "notChecked": len(self.unchecked),
                "bytesChecked": self.checked_bytes,
                "rules": dict(sorted(rules.items())),
            },
            "notes": [note.to_json() for note in self.notes],
            "logDirs": [log_dir.to_json() for log_dir in self.log_dirs],
        }
        return json.dumps(report, indent=2)

    def to_text(self, verbosity: int = 0) -> str:
        """Return the report for people: what is damaged, what could not be read, notes and a summary.

        Args:
            verbosity: -1: damage and what could not be read alone; 0: the worst first, and what is the same of many
                files, or too long for a screen, is counted; 1: all are there.
        """
        lines = [
            f"NOT CHECKED {printable(log_dir.log_dir)}: {printable(log_dir.error)}"
            for log_dir in self.log_dirs
            if log_dir.error is not None
        ]
        told = [
            (finding, line)
            for file in self.files
            for finding, line in zip(file.findings, file.lines(), strict=True)
        ]
        told.sort(key=lambda one: badness(one[0].severity, one[0].rule))
        for severity in SEVERITIES if verbosity >= 0 else SEVERITIES[:-1]:
            of_severity = (
                ((finding.rule, finding.detail), line)
                for finding, line in told
                if finding.severity == severity
            )
            lines += alike_lines(of_severity, "file", is_each=verbosity > 0)
        notes = (note.text for note in self.notes if note.is_told_always or verbosity >= 0)
        lines += [f"note: {printable(text)}" for text in notes]
        if verbosity >= 0:
            lines += self._summary()
        return "\n".join(lines)

    def _summary(self) -> list[str]:
        lines = []
        for log_dir in self.log_dirs:
            if log_dir.error is not None:
                continue
            state = "locked by a broker or a recovery" if log_dir.is_live else "stopped"
            if not log_dir.is_live:
                state += " cleanly" if log_dir.had_clean_shutdown else ", not cleanly"
            lines.append(
                f"{printable(log_dir.log_dir)} ({state}): {count_text(log_dir.partition_count, 'partition')}, "
                f"{count_text(log_dir.segment_count, 'segment')}, "
                f"{count_text(log_dir.batch_count, 'batch', 'batches')}"
            )
        count = sum(1 for _ in self.files)
        how = " deeply" if self.is_deep else ""
        checked = f"{count_text(count, 'file')}, {bytes_text(self.checked_bytes)} checked{how}"
        error_count = sum(log_dir.error is not None for log_dir in self.log_dirs)
        outcome = f"{len(self.damaged):,} damaged, {len(self.unchecked):,} not checked"
        if error_count:
            outcome += f", and {count_text(error_count, 'log dir')} not checked at all"
        end = "interrupted" if self.signal_number else outcome
        if error_count < len(self.log_dirs):
            lines.append(f"checked {self.release}")
        lines.append(f"{checked} in {self.duration_ms / 1000:.1f} s: {end}")
        return lines
