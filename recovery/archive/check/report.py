"""The results of `archive verify` and `archive recover`: counts, bad objects, exit code, as text and JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from recovery.alike_lines import alike_lines
from recovery.archive.check.summary import Summary
from recovery.archive.check.unended_runs import UnendedRun
from recovery.archive.check.verdict_rows import badness_of, lines_of
from recovery.archive.layouts.walk import UnlistedPrefix
from recovery.check.finding import Finding, finding_line
from recovery.printable import printable
from recovery.problem import Note
from recovery.quantity import bytes_text, count_text


@dataclass(slots=True, kw_only=True)
class ArchiveReport:
    """The result of one run over an archive.

    Attributes:
        command: verify or recover.
        summary: all counts.
        objects: rows of objects that are not sound, or were rebuilt; not all if there are very many.
        left_out: how many of them are not among `objects`.
        noted: rows of sound objects with notes, of which `summary.notes` has the number.
        known_segments: segments that an earlier run has read and that have not changed.
        metadata_findings: what is wrong with the metadata topic itself, with checkpoints of its log dirs, with copies
            as such; counted in `summary`.
        unlisted: prefixes that could not be listed.
        output: where the results are; None if they were not kept.
        quarantine: where the objects are that were replaced in place; None if nothing is replaced.
        has_begun_rebuilding: whether an object may have been rebuilt.
        saved_objects: how many objects an interrupted run has copied to `quarantine` before it replaced them.
        unended_runs: earlier runs with this output that replaced objects and did not end.
        signal_number: of the signal that ended the run early, 0 without one.
        is_logs_only: whether only the logs were checked.
        notes: on settings that were ignored or replaced.
    """

    command: str
    url: str
    layout: str
    summary: Summary = field(default_factory=Summary)
    objects: list[dict[str, Any]] = field(default_factory=list)
    left_out: int = 0
    noted: list[dict[str, Any]] = field(default_factory=list)
    known_segments: int = 0
    metadata_findings: tuple[Finding, ...] = ()
    unlisted: list[UnlistedPrefix] = field(default_factory=list)
    output: str | None = None
    quarantine: str | None = None
    has_begun_rebuilding: bool = False
    saved_objects: int = 0
    unended_runs: tuple[UnendedRun, ...] = ()
    run: str = ""
    duration_ms: int = 0
    signal_number: int = 0
    is_logs_only: bool = False
    notes: tuple[Note, ...] = ()

    @property
    def exit_code(self) -> int:
        """129, 130 or 143, 4, 2 or 0: the first that applies; see docs/reference/exit-codes.md."""
        if self.signal_number:
            return 128 + self.signal_number
        if self.unlisted or self.summary.unchecked:
            return 4
        left = self.summary.unsettled if self.command == "recover" else self.summary.damaged
        return 2 if left else 0

    def to_json(self) -> str:
        """Return the report as one JSON object."""
        fields = {
            "version": 1,
            "command": f"archive {self.command}",
            "archive": self.url,
            "layout": self.layout,
            "exitCode": self.exit_code,
            "durationMs": self.duration_ms,
            "run": self.run,
            "output": self.output,
            "quarantine": self.quarantine,
            "savedObjects": self.saved_objects,
            "unendedRuns": [unended.to_json() for unended in self.unended_runs],
            "logsOnly": self.is_logs_only,
            "knownSegments": self.known_segments,
            "summary": self.summary.to_json(),
            "notes": [note.to_json() for note in self.notes],
            "metadataFindings": [
                {"place": finding.file} | finding.to_json() for finding in self.metadata_findings
            ],
            "unlisted": [{"prefix": unlisted.prefix, "error": unlisted.error} for unlisted in self.unlisted],
            "objects": list(map(_camel_cased, self.objects)),
            "objectsLeftOut": self.left_out,
            "noted": list(map(_camel_cased, self.noted)),
        }
        return json.dumps(fields, indent=2, ensure_ascii=False)

    def to_text(self, verbosity: int = 0) -> str:
        """Return the report for a person, problems first.

        Args:
            verbosity: -1: problems alone; 0: the worst first, and what is the same of many objects, or too long for a
                screen, is counted; 1: all are there.
        """
        if self.signal_number:
            notes = [f"note: {printable(note.text)}" for note in self.notes]
            return "\n".join([self._interrupted_line(), *notes, *self._unended_lines()])
        summary = self.summary
        is_each = verbosity > 0
        lines = alike_lines(lines_of(sorted(self.objects, key=badness_of)), "object", is_each=is_each)
        lines += [
            finding_line(finding.file, finding.to_json()) for finding in self._of_metadata(is_note=False)
        ]
        lines += [
            f"NOT LISTED {printable(unlisted.prefix)}: {printable(unlisted.error)}"
            for unlisted in self.unlisted
        ]
        if self.left_out:
            where = (
                f"; all of them are in {self.output}/verdicts" if self.output else "; --output keeps them all"
            )
            lines.append(f"... and {self.left_out:,} more objects{where}")
        if verbosity < 0:
            lines += [f"note: {printable(note.text)}" for note in self.notes if note.is_told_always]
            return "\n".join(lines)
        reused = f", {self.known_segments:,} of them known from an earlier run" if self.known_segments else ""
        lines.append(
            f"{printable(self.url)} ({self.layout}): {count_text(summary.partitions, 'partition')}, "
            f"{count_text(summary.segments, 'segment')}{reused}, {count_text(summary.batches, 'batch', 'batches')}, "
            f"{bytes_text(summary.log_bytes)} of logs in {self.duration_ms / 1000:.1f} s"
        )
        rebuilt = f", {summary.rebuilt:,} rebuilt" if self.command == "recover" else ""
        kind = "logs (nothing else was checked)" if self.is_logs_only else "objects"
        lines.append(
            f"{summary.objects:,} {kind}: {summary.valid:,} sound, {summary.damaged:,} damaged, "
            f"{summary.unchecked:,} not checked{rebuilt}"
        )
        if summary.rules:
            lines.append(f"by rule: {_counts_text(summary.rules)}")
        if summary.notes:
            lines.append(f"notes: {_counts_text(summary.notes)}")
        lines += alike_lines(lines_of(self.noted), "object", is_each=is_each)
        lines += [
            finding_line(finding.file, finding.to_json()) for finding in self._of_metadata(is_note=True)
        ]
        lines += [f"note: {printable(note.text)}" for note in self.notes]
        lines += self._unended_lines()
        if self.quarantine is not None and summary.rebuilt:
            lines.append(f"objects that were replaced: {printable(self.quarantine)}")
        if self.output is not None:
            lines.append(f"results: {printable(self.output)} (run {self.run})")
        return "\n".join(lines)

    def _of_metadata(self, *, is_note: bool) -> list[Finding]:
        return [finding for finding in self.metadata_findings if (finding.severity == "note") == is_note]

    def _interrupted_line(self) -> str:
        line = f"INTERRUPTED by signal {self.signal_number}: nothing is judged yet"
        if self.output is not None:
            line += f"; the same command resumes from {printable(self.output)}"
        if self.quarantine is None:
            return line
        if not self.has_begun_rebuilding:
            return f"{line}; nothing was replaced or added in the archive"
        return (
            f"{line}; objects that it copied to {printable(self.quarantine)} before replacing them in the archive: "
            f"{self.saved_objects}; it may also have added objects that were missing"
        )

    def _unended_lines(self) -> list[str]:
        return [f"note: {printable(unended.text)}" for unended in self.unended_runs]


def _camel_cased(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of verdicts with names as in the other JSON reports; its findings have names of one word."""
    return {re.sub("_(.)", lambda part: part[1].upper(), name): value for name, value in row.items()}


def _counts_text(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{rule} {count:,}" for rule, count in sorted(counts.items()))
