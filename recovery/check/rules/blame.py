"""Which file is to blame when a log and what was derived from it contradict each other. Pure.

If the log itself shows that it is not what it was (it is cut, has gaps, is not what the metadata says), the files that
were derived from it tell of the log as it was. They are sound, and evidence, so what they say becomes a note.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from recovery.check.finding import Finding, Rule
from segfmt.filenames import FileKind, file_kind

_FAULTS_OF_A_LOG: frozenset[Rule] = frozenset(
    {
        "batch-length",
        "cut-end",
        "empty-log",
        "metadata",
        "object-size",
        "offset-gap",
        "offset-order",
        "offset-range",
        "torn-batch",
        "trailing-bytes",
    }
)
"""By these a log is not the one that the files next to it were derived from."""
_CONTRADICTIONS: frozenset[Rule] = frozenset(
    {"index-entry", "transaction-index-entry", "snapshot-content", "epoch-content"}
)
"""By these a derived file, well-formed by itself, and its log do not belong together."""
_INDEXES = frozenset({FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX})


def is_of_another_log(findings: Iterable[Finding]) -> bool:
    """Return whether, by the *findings* about it, a log is not the one that the files next to it were derived from."""
    return any(finding.severity == "damage" and finding.rule in _FAULTS_OF_A_LOG for finding in findings)


def is_contradiction(finding: Finding) -> bool:
    """Return whether a finding about a derived file says that it and its log do not belong together."""
    return finding.severity == "damage" and finding.rule in _CONTRADICTIONS


def excused(finding: Finding, why: str) -> Finding:
    """Return a finding about a file as a note that says *why* it is not to blame, if it contradicts a log."""
    if not is_contradiction(finding):
        return finding
    return replace(finding.as_note(), detail=f"{finding.detail}; {why}")


def blame_logs(findings: list[Finding]) -> list[Finding]:
    """Return the findings about one folder, with no index blamed for the damage of its log."""
    by_log: dict[str, list[Finding]] = {}
    for finding in findings:
        if file_kind(finding.file) is FileKind.LOG:
            by_log.setdefault(_stem(finding.file), []).append(finding)
    damaged = {stem for stem, own in by_log.items() if is_of_another_log(own)}
    return [
        excused(finding, "the log is damaged, not this file")
        if file_kind(finding.file) in _INDEXES and _stem(finding.file) in damaged
        else finding
        for finding in findings
    ]


def _stem(file: str) -> str:
    return file.partition(".")[0]
