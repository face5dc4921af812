"""Partitions that are written to disk together.

Each partition, however small, has to wait for the disk as often: for what is staged and saved, for the commit, for
the names. In a log dir of ten thousand small partitions these waits are most of the work. So partitions in which
nothing is cut or renamed are staged one after another, and then share each wait: one for all that was staged and
saved, one for all commits, one for each step of publishing. Each goes through the same states as it would alone.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from recovery.engine.outcomes import PartitionResult
from recovery.engine.resume import RunJournal
from recovery.load.model import FileStat, RemovalKind
from recovery.plan.actions import PartitionPlan, RemoveFile, WriteFile
from recovery.plan.commit import Commit
from recovery.write.apply import publish_staged, stage, unstage
from recovery.write.quarantine import Quarantine

_MOST_PARTITIONS = 64
_MOST_READ_BYTES = 32 << 20
_MOST_MADE_BYTES = 4 << 20
_MOST_S = 1.0
"""A kill loses the work on a group that is not committed."""


@dataclass(slots=True, kw_only=True)
class _Staged:
    """Staged partitions, by path of the folder, and what must be on disk before they are committed."""

    commits: dict[str, tuple[Commit, PartitionResult]] = field(default_factory=dict)
    unsynced: list[str] = field(default_factory=list)
    read_bytes: int = 0
    made_bytes: int = 0
    begun_s: float = field(default_factory=time.monotonic)


class CommitGroup:
    """The partitions of one thread that are staged but not committed."""

    def __init__(self, quarantine: Quarantine, journal: RunJournal) -> None:
        self._quarantine = quarantine
        self._journal = journal
        self._staged = _Staged()

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of the folders that wait."""
        return tuple(self._staged.commits)

    @property
    def is_full(self) -> bool:
        """Whether enough waits to be committed."""
        staged = self._staged
        return bool(staged.commits) and (
            len(staged.commits) >= _MOST_PARTITIONS
            or staged.read_bytes >= _MOST_READ_BYTES
            or staged.made_bytes >= _MOST_MADE_BYTES
            or time.monotonic() - staged.begun_s >= _MOST_S
        )

    def split_off(self) -> CommitGroup:
        """Return a new group with all that waits, which another thread may finish; nothing waits here then.

        A partition in progress is still staged in this one, whatever is committed meanwhile to make room for it.
        """
        group = CommitGroup(self._quarantine, self._journal)
        group._staged, self._staged = self._staged, group._staged
        return group

    def stage(
        self,
        path: str,
        plan: PartitionPlan,
        files: Mapping[str, FileStat],
        result: Callable[[list[str]], PartitionResult],
    ) -> None:
        """Save and stage what *plan* does in the folder *path*, or note that there is nothing to do.

        Args:
            files: what lies there, without what an earlier run has staged.
            result: returns how the partition ended, given the paths that hold what was cut from the log.
        """
        if not self._staged.commits:
            self._staged = _Staged()
        if plan.is_empty:
            commit, saved = Commit(folder=plan.folder, before=files, staged={}, actions=()), []
        else:
            saved = self._quarantine.save(path, plan)
            commit = stage(
                path,
                plan.folder,
                files,
                plan.actions,
                bring_to_disk=self._staged.unsynced.extend,
                is_tidy=True,
            )
        partition_result = result(saved)
        self._staged.commits[path] = commit, partition_result
        self._staged.read_bytes += partition_result.report.scanned_bytes
        self._staged.made_bytes += sum(
            len(action.data) for action in plan.actions if isinstance(action, WriteFile)
        )

    def finish(self) -> list[PartitionResult]:
        """Commit and publish what waits; return how it ended.

        Raises:
            OSError: up to the commit everything is as it was; after it, the next run finishes the rest.
        """
        staged, self._staged = self._staged, _Staged()
        changed = {path: commit for path, (commit, _) in staged.commits.items() if commit.actions}
        try:
            if changed:
                self._quarantine.sync(staged.unsynced)
        except BaseException:
            _unstage_all(changed)
            raise
        if staged.commits:
            self._journal.commit(staged.commits.values())  # even if it fails, it may count
        files_by_path = publish_staged(changed)
        self._quarantine.note_changes((commit, files_by_path[path]) for path, commit in changed.items())
        return [result for _, result in staged.commits.values()]


def may_share(plan: PartitionPlan) -> bool:
    """Whether *plan* can be committed with others: it only makes files and removes derived ones."""
    return all(
        isinstance(action, WriteFile)
        or (isinstance(action, RemoveFile) and action.kind is RemovalKind.DERIVED)
        for action in plan.actions
    )


def _unstage_all(folders: Iterable[str]) -> None:
    for folder in folders:
        with contextlib.suppress(OSError):
            unstage(folder)
