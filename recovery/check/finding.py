"""What a verify reports of a file: findings with rule and position, one verdict per file. Values only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from recovery.errors import reason_text
from recovery.logdir.checkpoints import WITHOUT_CHECKPOINT
from recovery.printable import printable
from recovery.problem import FIND_FOLDER_REMEDY, LOST_FOUND, LOST_FOUND_REMEDY

Severity = Literal["damage", "unchecked", "note"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)
"""The worst first."""

_RESTORE = "copy the partition from another replica, or restore the file from a backup"
_NEXT_RECOVERY = "none by hand: `recover`, or the broker's own recovery, cuts it"
_REBUILD = (
    "stop the broker, remove the .index of this segment, and run `recover`: all of its indexes are rebuilt"
)

_AS_COPIED = (
    "put it back as it was copied, or copy it again (`archive copy --restart`); if it was changed on purpose, move "
    "kafka-log-recovery-copy.jsonl away: what is there is then taken as it is"
)

Rule = Literal[
    "checksum",
    "batch-length",
    "torn-batch",
    "trailing-bytes",
    "lying-marker",
    "unclean-tail",
    "magic",
    "codec",
    "record-count",
    "producer-fields",
    "offset-range",
    "offset-order",
    "offset-gap",
    "segment-overlap",
    "cut-end",
    "late-end",
    "no-segment",
    "missing-log",
    "leader-epoch",
    "control-record",
    "transaction-state",
    "sequence-gap",
    "producer-epoch",
    "record",
    "compression",
    "too-large",
    "segment-size",
    "missing-index",
    "orphan-index",
    "index-size",
    "index-entry",
    "index-order",
    "index-sparse",
    "malformed-entry",
    "transaction-index-entry",
    "transaction-index-missing",
    "snapshot",
    "snapshot-content",
    "missing-snapshot",
    "epoch-checkpoint",
    "epoch-content",
    "missing-epochs",
    "topic-id",
    "swap",
    "leftover",
    "missing-object",
    "metadata",
    "manifest",
    "missing-key",
    "object-size",
    "chunk",
    "empty-log",
    "missing-segment",
    "missing-folder",
    "missing-file",
    "changed-file",
    "copy-in-part",
    "archive-gap",
    "orphan",
    "not-compared",
    "interrupted-copy",
    "unfinished-delete",
    "undeleted",
    "below-log-start",
    "outside-lineage",
    "duplicate",
    "metadata-topic",
    "overlap",
    "checkpoint",
    "recovery-point",
    "log-start",
    "high-watermark",
    "marker",
    "meta-properties",
    "bootstrap-checkpoint",
    "quorum-state",
    "another-node",
    "foreign-folder",
    "foreign-file",
    "file-type",
    "duplicate-folder",
    "duplicate-partition",
    "unreadable",
    "changing",
]
"""What a file can go against. Each rule has its remedy here; verify.md and archive.md (docs/reference) list them."""

REMEDIES: dict[Rule, str] = {
    # logs
    "checksum": _RESTORE,
    "batch-length": _RESTORE,
    "torn-batch": _RESTORE,
    "trailing-bytes": _RESTORE,
    "lying-marker": "run `recover --force`, which ignores the marker and cuts the log after its last whole batch. "
    "A broker that starts on it moves the log end back and uses offsets twice",
    "unclean-tail": _NEXT_RECOVERY,
    "magic": _RESTORE,
    "codec": _RESTORE,
    "record-count": _RESTORE,
    "producer-fields": _RESTORE,
    "offset-range": _RESTORE,
    "offset-order": _RESTORE,
    "offset-gap": _RESTORE,
    "segment-overlap": "if the next segment does not belong there (often it is an empty one), stop the broker and move "
    "it away; else copy the partition from another replica, or restore the file from a backup",
    "cut-end": _RESTORE,
    "late-end": _RESTORE,
    "no-segment": _RESTORE,
    "missing-log": FIND_FOLDER_REMEDY,
    "leader-epoch": _RESTORE,
    "control-record": _RESTORE,
    "transaction-state": _RESTORE,
    "sequence-gap": "none by itself: compare the log with another replica, or with what the producer has sent",
    "producer-epoch": "none by itself: compare the log with another replica, or with what the producer has sent",
    "record": _RESTORE,
    "compression": _RESTORE,
    "too-large": "none: the batch was not opened, so that memory stays bounded",
    "segment-size": "none by `recover`, which refuses it as a broker does: copy the partition from another replica, or "
    "split the segment with a tool that rewrites batches",
    # the files next to them
    "missing-index": "run `recover` with the broker stopped, or let the broker rebuild it at its next start",
    "orphan-index": "look for its .log first; a broker removes the file at its next start",
    "index-size": _REBUILD,
    "index-entry": _REBUILD,
    "index-order": _REBUILD,
    "index-sparse": "none needed: lookups are slower, or use the time of the file",
    "malformed-entry": _REBUILD,
    "transaction-index-entry": _REBUILD,
    "transaction-index-missing": _REBUILD,
    "snapshot": "stop the broker and remove the file: producers are read from the snapshot before, and the log",
    "snapshot-content": "stop the broker and remove the file: producers are read from the snapshot before, and the log",
    "missing-snapshot": "remove the clean-shutdown marker: the broker then reads producers from the log",
    "epoch-checkpoint": "copy the partition from another replica",
    "epoch-content": "copy the partition from another replica",
    "missing-epochs": "copy the partition from another replica",
    "topic-id": "write two lines into the file, `version: 0` and `topic_id: ID`, with the id that kafka-topics "
    "--describe shows",
    "swap": "stop the broker and move it out of the folder: the segment that is there stays",
    "leftover": "none needed: the broker finishes or removes it at its next start",
    # archives
    "missing-object": "restore the object from another copy of the archive, or from a replica's log dir; "
    "`archive recover` rebuilds all but logs",
    "metadata": "compare with the brokers' view; what the log itself says was checked separately",
    "manifest": "restore the object from a backup: without it the segment cannot be read",
    "missing-key": "give the RSA key with --aiven-key",
    "object-size": _RESTORE,
    "chunk": "restore the segment from a backup",
    "empty-log": _RESTORE,
    "missing-segment": "restore its objects from a backup: a consumer gets an error at these offsets",
    "missing-folder": "copy the folder as well (start `archive copy` again, if it made the copy); if it is not to be "
    "there, choose the others with --topic, or, without a manifest, take the line out of the copied checkpoint",
    "missing-file": _AS_COPIED,
    "changed-file": _AS_COPIED,
    "copy-in-part": "start `archive copy` again; if its source is gone, docs/archives/copy.md says what can be had. "
    "If the copy was recovered or changed on purpose: move its manifest away",
    "archive-gap": "copy these offsets from a replica that has them, or from a backup",
    "orphan": "no broker reads it: compare with the brokers, then delete its objects by hand",
    "not-compared": "give --metadata the log dirs of all brokers that have partitions of __remote_log_metadata, or "
    "copies that are newer than the archive",
    "interrupted-copy": "none: brokers copy the segment again under another id, and retention deletes what is left",
    "unfinished-delete": "none: a broker resumes it",
    "undeleted": "no broker reads it: delete its objects by hand",
    "below-log-start": "none: a broker deletes it",
    "outside-lineage": "none: a broker deletes it once its epochs are below the log's",
    "duplicate": "none: after a change of leader two brokers may archive the same offsets",
    "metadata-topic": "restore the log of __remote_log_metadata from another replica, then take the inventory again",
    "overlap": "none: after a change of leader two brokers may archive the same offsets",
    # the log dir
    "checkpoint": "move the file away with the broker stopped: recovery then begins at the first segment",
    "recovery-point": "what was flushed beyond the log end is lost: copy the partition from another replica",
    "log-start": "correct the line: the broker would drop every segment of the log",
    "high-watermark": "compare with the other replicas: acknowledged records may be missing",
    "marker": "to a broker any marker says that the log dir was shut down cleanly; where that is in doubt, "
    "`recover --force` ignores it",
    "meta-properties": "restore it from a backup; recover -n tells how to write it again",
    "bootstrap-checkpoint": "copy the file from another node, or remove it: only a new cluster needs it",
    "quorum-state": "restore the file from a backup, or remove it: a controller forgets its vote with it",
    "another-node": "this is the log dir of another node, or a copy: check the mounts and the configuration",
    "foreign-folder": "move it out of the log dir",
    "foreign-file": "move it out of the partition's folder",
    "file-type": "put the file itself in its place, or move away what is there",
    "duplicate-folder": "decide whose log it is, and move the link out of the log dirs: there is one folder",
    "duplicate-partition": "decide which one is right, and move the other out of the log dirs",
    "unreadable": "let this user read it; after an I/O error, look at its disk (dmesg). Everything else was checked",
    "changing": "verify it again: it changed each time it was read",
}
"""What to do, by rule."""

_OF_RECORDS = frozenset(
    {rule for rule, remedy in REMEDIES.items() if remedy == _RESTORE}
    | {
        "lying-marker",
        "missing-log",
        "missing-object",
        "manifest",
        "chunk",
        "missing-segment",
        "missing-folder",
        "archive-gap",
    }
)
"""Rules by which records are lost, or may be."""

OF_COPIES: frozenset[Rule] = frozenset({"missing-file", "changed-file"})
"""Rules by which a file is not the one that was copied; by itself, and beside its log, it may be sound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is not as it should be.

    Attributes:
        file: name in the partition's folder, or in the log dir.
        position: byte position in the file, None for the whole file.
        detail: what is wrong, as text.
        severity: damage; unchecked (could not be read); note (worth knowing, no damage).
        is_flushed: False for what lies past the recovery point of a log dir that was not shut down cleanly.
    """

    file: str
    position: int | None
    rule: Rule
    detail: str
    severity: Severity = "damage"
    is_flushed: bool = True

    @property
    def remedy(self) -> str:
        """What the operator can do."""
        if self.file == LOST_FOUND:
            return LOST_FOUND_REMEDY
        effect = WITHOUT_CHECKPOINT.get(self.file)
        if self.rule == "checkpoint" and effect is not None:
            return f"move the file away with the broker stopped: {effect}"
        return REMEDIES[self.rule]

    @property
    def identity(self) -> tuple[str, int | None, Rule]:
        """What two looks must agree on for a finding to be the same."""
        return self.file, self.position, self.rule

    def as_note(self) -> Finding:
        """Return this finding as a note."""
        return replace(self, severity="note")

    def to_json(self) -> dict[str, Any]:
        """Return the object of this finding in the JSON report."""
        return {
            "rule": self.rule,
            "severity": self.severity,
            "position": self.position,
            "detail": self.detail,
            "remedy": self.remedy,
            "flushed": self.is_flushed,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class FileVerdict:
    """What was found out about one file.

    Attributes:
        path: absolute.
        kind: log, index, timeindex, txnindex, snapshot, leader-epoch-checkpoint, partition.metadata, ...
        checked_bytes: how much of it was read.
    """

    path: str
    kind: str
    checked_bytes: int
    findings: tuple[Finding, ...] = ()

    @property
    def is_valid(self) -> bool | None:
        """True without damage; None if it could not be checked."""
        severities = {finding.severity for finding in self.findings}
        if "damage" in severities:
            return False
        return None if "unchecked" in severities else True

    @property
    def first(self) -> Finding | None:
        """The worst finding; of several, the first by position."""
        return min(
            self.findings,
            key=lambda finding: (
                SEVERITIES.index(finding.severity),
                -1 if finding.position is None else finding.position,
            ),
            default=None,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the verdict in the JSON report."""
        first = self.first
        return {
            "path": self.path,
            "kind": self.kind,
            "valid": self.is_valid,
            "firstBadPosition": None if first is None else first.position,
            "rule": None if first is None else first.rule,
            "detail": None if first is None else first.detail,
            "remedy": None if first is None else first.remedy,
            "bytesChecked": self.checked_bytes,
            "findings": [finding.to_json() for finding in self.findings],
        }

    def lines(self) -> list[str]:
        """Return a line for each finding, with the file's path."""
        return [finding_line(self.path, finding.to_json()) for finding in self.findings]


def finding_line(path: str, document: Mapping[str, Any]) -> str:
    """Return the line that reports a finding.

    Args:
        path: the path of the file or object.
        document: what `Finding.to_json` returns; a missing "flushed" means true.
    """
    at = "" if document["position"] is None else f" at byte {document['position']:,}"
    label = {"damage": "DAMAGED", "unchecked": "NOT CHECKED", "note": "note"}[document["severity"]]
    flushed = "" if document.get("flushed", True) else " (not flushed yet)"
    remedy = "" if document["severity"] == "note" else f" Remedy: {document['remedy']}."
    return f"{label} {printable(path)}{at}: {document['rule']}{flushed}: {printable(document['detail'])}.{remedy}"


def unreadable(file: str, error: OSError) -> Finding:
    """Return the finding of a file that could not be read."""
    return Finding(
        file=file, position=None, rule="unreadable", detail=reason_text(error), severity="unchecked"
    )


def badness(severity: Severity, rule: Rule) -> tuple[int, bool]:
    """Return a key to sort by, the worst first: records that only a copy brings back before what can be rebuilt."""
    return SEVERITIES.index(severity), rule not in _OF_RECORDS


def findings_by_file(findings: Iterable[Finding]) -> dict[str, list[Finding]]:
    """Return *findings* by the name of their file, in order of position."""
    grouped: dict[str, list[Finding]] = {}
    for finding in findings:
        grouped.setdefault(finding.file, []).append(finding)
    for file_findings in grouped.values():
        file_findings.sort(key=lambda finding: -1 if finding.position is None else finding.position)
    return grouped
