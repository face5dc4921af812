"""`--repair`: what keeps a broker from loading a log or a log dir is moved to quarantine if that costs no batch.

It happens under the locks, before the inventory that the recovery uses. Each move is on disk before the next one; after
a kill in between, the next run finds what is left to move. Nothing is deleted, no `.log` with an offset in its name is
touched, and no choice is made between two copies of a partition.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial

from recovery.engine.cut_ledger import CutLedger
from recovery.engine.report import move_text
from recovery.errors import LogDirOfflineError, PartitionRefusedError
from recovery.load.model import PartitionTask
from recovery.load.preflight import fold_checked, notes_of, problems_of, reads_segments
from recovery.logdir.inventory import LogDirInventory
from recovery.logdir.quarantine_place import is_far
from recovery.plan.actions import LOG_DIR_ITSELF
from recovery.problem import Problem
from recovery.read.file_system import is_file, is_link
from recovery.read.partition_files import PartitionFiles
from recovery.write.quarantine import Quarantine

_OWNER_REMEDY = "run recover as its owner, or as root, or move it away by hand"
_STAYS_REMEDIES = {
    errno.EXDEV: "leave --quarantine-dir out, or choose a folder on the log dir's file system, or move it away by hand",
    errno.EBUSY: "unmount it",
    errno.EPERM: _OWNER_REMEDY,
    errno.EACCES: _OWNER_REMEDY,
}
"""What helps, by the errno of what cannot be moved, which stays; any other one takes the log dir offline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A file or folder to be moved away.

    Attributes:
        path: relative to the log dir.
        rule, reason: of its problem, as an identifier and as text.
    """

    path: str
    rule: str
    reason: str

    @property
    def folder(self) -> str:
        """Its folder in quarantine."""
        return os.path.dirname(self.path) or LOG_DIR_ITSELF

    def __str__(self) -> str:
        return move_text(self.path, self.reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repaired:
    """A log dir after its repair; in a dry run, as it would be.

    Attributes:
        lines: what was moved, or would be.
        left: what could be moved away but is not, and why.
        error: what takes the log dir offline, though *lines* were moved; the inventory is that from before, then.
    """

    inventory: LogDirInventory
    lines: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    error: LogDirOfflineError | None = None


def repair_log_dir(
    inventory: LogDirInventory,
    relist: Callable[[Collection[str]], LogDirInventory],
    quarantine: Quarantine,
    *,
    dry_run: bool,
) -> Repaired:
    """Move away what `repairs_of` returns, and return what lies in the log dir then.

    Args:
        relist: returns what lies in the log dir, without the paths given to it, of which nothing is missed.
    """
    moves, left = repairs_of(inventory)
    if not moves:
        return Repaired(inventory=inventory, left=tuple(left))
    lines: list[str] = []
    moved_paths: list[str] = []
    done = partial(Repaired, inventory=inventory)
    ledger = CutLedger(inventory.log_dir)
    for move in moves:
        path = os.path.join(inventory.log_dir, move.path)
        try:
            _refuse_far_folder(path, quarantine)
            if not dry_run:
                ledger.add_move(move.path, move.reason, quarantine.root)
                quarantine.move_away(path, folder=move.folder, rule=move.rule, reason=move.reason)
                ledger.note_moved(move.path)
        except OSError as error:
            remedy = _STAYS_REMEDIES.get(error.errno or 0)
            if remedy is None:
                offline = LogDirOfflineError(inventory.log_dir, error)
                return done(lines=tuple(lines), left=tuple(left), error=offline)
            left.append(
                f"--repair leaves {move.path}, which cannot be moved to quarantine: {error.strerror}. Remedy: {remedy}"
            )
            continue
        lines.append(str(move))
        moved_paths.append(move.path)
    try:
        relisted = relist(moved_paths)
    except LogDirOfflineError as offline:
        return done(lines=tuple(lines), left=tuple(left), error=offline)
    return done(inventory=relisted, lines=tuple(lines), left=tuple(left))


def repairs_of(inventory: LogDirInventory) -> tuple[list[Move], list[str]]:
    """Return what can safely be moved away, in order, and what is left although it could be, as text.

    A partition or log dir that has other problems, which a repair cannot solve, is left alone.
    """
    if any(problem.repair is None for problem in inventory.problems):
        return [], _left(inventory.problems)
    moves, left = _moves((*inventory.problems, *inventory.blockers, *inventory.notes)), []
    for refused in inventory.refused:
        moves += _moves(refused.refusal.problems)
    for task in inventory.tasks:
        path = os.path.join(inventory.log_dir, task.folder)
        problems = _problems_of(task, path)
        if all(problem.repair is not None for problem in problems):
            found = _moves((*problems, *notes_of(task)), folder=task.folder)
            if found and is_link(path):  # these files may be anybody's
                left.append(
                    f"--repair leaves {', '.join(move.path for move in found)}, as {task.folder} is a link out of the "
                    f"log dir. Remedy: move them away by hand, or remove the link if {os.path.realpath(path)} is not "
                    "this log's"
                )
            else:
                moves += found
        else:
            left += _left(problems, folder=task.folder)
    moves_by_path: dict[str, Move] = {}
    for move in moves:
        moves_by_path.setdefault(move.path, move)
    return [*moves_by_path.values()], left


def _left(problems: Collection[Problem], *, folder: str = "") -> list[str]:
    """Return why nothing is moved away for *problems*, of which a repair solves some; nothing if it solves none."""
    solved = [problem for problem in problems if problem.repair is not None]
    others = [problem for problem in problems if problem.repair is None]
    if not solved:
        return []
    return [
        f"--repair leaves {_names(solved, folder)}, as it cannot solve the other problems, of "
        f"{_names(others, folder)}. Remedy: solve those, then start it again"
    ]


def _names(problems: Iterable[Problem], folder: str) -> str:
    return ", ".join(dict.fromkeys(os.path.join(folder, problem.file) for problem in problems))


def _problems_of(task: PartitionTask, path: str) -> tuple[Problem, ...]:
    """Return the problems of a partition; of one whose segments a repair lets be read, as that would leave it."""
    files = PartitionFiles(path, task.settings)
    try:
        problems = problems_of(task, files)
        if reads_segments(problems):
            fold_checked(task, files)  # it raises, having problems
    except PartitionRefusedError as refusal:
        problems = refusal.problems
    finally:
        files.close()
    return problems


def _moves(problems: Iterable[Problem], *, folder: str = "") -> list[Move]:
    return [
        Move(path=os.path.join(folder, name), rule=problem.rule, reason=problem.detail)
        for problem in problems
        if problem.repair is not None
        for name in problem.repair.names
    ]


def _refuse_far_folder(path: str, quarantine: Quarantine) -> None:
    """Refuse what is not a regular file if quarantine is on another file system: it would have to be copied.

    Raises:
        OSError: EXDEV.
    """
    if is_file(path):
        return
    if is_far(quarantine.root, path):
        raise OSError(errno.EXDEV, "a folder cannot be moved to another file system", path)
