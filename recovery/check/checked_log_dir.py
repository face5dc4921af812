"""One log dir during a verify: what was found so far, and its part of the report."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from recovery.check.finding import FileVerdict, Finding, Rule, findings_by_file
from recovery.check.log_dir_files import LogDirFiles
from recovery.check.report import LogDirVerdicts
from recovery.logdir.duplicates import folder_id
from recovery.logdir.identity import contradictions
from recovery.read.file_system import is_link
from segfmt.filenames import SNAPSHOT_SUFFIX, FileKind, PartitionFolder, file_kind


@dataclass(slots=True, kw_only=True)
class CheckedLogDir:
    """A log dir being checked."""

    log_dir: str
    is_live: bool
    files: LogDirFiles
    verdicts: list[FileVerdict] = field(default_factory=list)
    log_dir_findings: list[Finding] = field(default_factory=list)
    finished_count: int = 0
    segment_count: int = 0
    batch_count: int = 0
    error: str | None = None
    partitions: list[PartitionFolder] = field(default_factory=list)

    def report(self) -> LogDirVerdicts:
        """Return what was found in the dir."""
        by_file = findings_by_file(self.log_dir_findings)
        own_verdicts = [
            FileVerdict(
                path=os.path.join(self.log_dir, name),
                kind=name if name in self.files.sizes else "folder",
                checked_bytes=self.files.sizes.get(name, 0),
                findings=tuple(by_file.get(name, ())),
            )
            for name in sorted({*self.files.sizes, *by_file})
        ]
        return LogDirVerdicts(
            log_dir=self.log_dir,
            is_live=self.is_live,
            had_clean_shutdown=self.files.had_clean_shutdown,
            error=self.error,
            skipped=tuple(self.files.skipped),
            partition_count=self.finished_count,
            segment_count=self.segment_count,
            batch_count=self.batch_count,
            files=tuple(sorted([*own_verdicts, *self.verdicts], key=lambda verdict: verdict.path)),
        )


def find_contradictions(dirs: Sequence[CheckedLogDir], *, node_id: int | None) -> None:
    """Find contradictions between log dirs: of the cluster, the node, their ids, a partition or folder in two places.

    Args:
        node_id: that of the configuration, None if it has none.
    """
    metas = {
        checked_dir.log_dir: checked_dir.files.meta
        for checked_dir in dirs
        if checked_dir.files.meta is not None
    }
    findings = {checked_dir.log_dir: checked_dir.log_dir_findings for checked_dir in dirs}
    for log_dir, problem in contradictions(metas, node_id=node_id):
        findings[log_dir].append(
            Finding(file=problem.file, position=None, rule="another-node", detail=problem.detail)
        )
    folders = [
        (checked_dir, folder, os.path.join(checked_dir.log_dir, folder.name))
        for checked_dir in dirs
        for folder in checked_dir.files.folders
    ]
    # Of a folder and a link to it, the link is one too many
    folders.sort(key=lambda one: is_link(one[2]))
    paths_by_id = {folder_id(checked_dir.log_dir): checked_dir.log_dir for checked_dir in dirs}
    paths_by_log: dict[tuple[str, int, str], str] = {}
    for checked_dir, folder, path in folders:
        rule: Rule = "duplicate-folder"
        first_path = path if (key := folder_id(path)) is None else paths_by_id.setdefault(key, path)
        if first_path == path:
            rule = "duplicate-partition"
            first_path = paths_by_log.setdefault((folder.topic, folder.partition, folder.state.value), path)
        if first_path != path and not checked_dir.is_live:
            what = "folder is" if rule == "duplicate-folder" else "partition lies in"
            checked_dir.log_dir_findings.append(
                Finding(file=folder.name, position=None, rule=rule, detail=f"the same {what} {first_path}")
            )


def log_sizes(log_dir: str, folder: str) -> list[int]:
    """Return the sizes of the segments in a folder, in bytes; none if it cannot be listed."""
    try:
        with os.scandir(os.path.join(log_dir, folder)) as entries:
            return [
                entry.stat().st_size
                for entry in entries
                if file_kind(entry.name) is FileKind.LOG and entry.is_file()
            ]
    except OSError:
        return []  # reported when the folder is opened


def kind_of(name: str) -> str:
    """Return the kind of a file by its name, as verdicts give it."""
    kind = file_kind(name)
    if kind is FileKind.OTHER:
        return name
    return SNAPSHOT_SUFFIX[1:] if kind is FileKind.SNAPSHOT else kind.value
