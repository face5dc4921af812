"""What a run has saved, opened for an `undo`: only as the manifest says, whoever else may write there."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from stat import S_ISREG

from recovery.errors import UnsafeError
from recovery.load.model import FileStat
from recovery.logdir.user import broker_user
from recovery.plan.manifest import FILE, Contents
from recovery.plan.undo_plan import Moved, Saved
from recovery.printable import shell_line
from recovery.read.file_system import is_there, look_at, naming, opened_folder
from recovery.saved.runs import link_problem, opened_stored
from recovery.write.digest import content_problem, look_into
from recovery.write.moved_contents import differences


class SavedFiles:
    """The files of one run.

    Args:
        root: the folder of all runs.
        run: name of the run's folder.
    """

    def __init__(self, log_dir: str, root: str, run: str) -> None:
        self._user = broker_user(log_dir)
        self._root = root
        self._run = run

    def path(self, folder: str, stored: str) -> str:
        """Return the path of the file *stored* of the partition *folder*."""
        return os.path.join(self._root, self._run, folder, stored)

    @contextlib.contextmanager
    def opened(self, folder: str, saved: Saved) -> Iterator[int]:
        """Open a saved file, or a saved link itself, after checking that it is as the manifest says.

        No link is followed, and what the broker's user may not read is not read on that user's behalf.

        Raises:
            OSError: it cannot be opened, or is not as the manifest says.
        """
        path = self.path(folder, saved.stored)
        with (
            naming(path),
            opened_folder(self._root) as root,
            opened_folder(self._run, at=root) as run,
            opened_stored(run, f"{folder}/{saved.stored}", is_link=saved.link is not None) as descriptor,
        ):
            if saved.link is not None:
                problem = link_problem(descriptor, saved.link)
            else:
                problem = content_problem(descriptor, saved.size_bytes, saved.digest)
            if problem is not None:
                raise OSError(errno.EIO, problem, path)
            if saved.link is None and self._user.lacks(os.fstat(descriptor), "r"):
                raise OSError(errno.EACCES, f"not readable by {self._user.name}, the broker's user", path)
            yield descriptor

    def check(self, folder: str, saved: Saved) -> None:
        """Refuse a file that is not as the manifest says, or of which it does not say enough.

        Raises:
            UnsafeError: nothing was changed.
        """
        path = self.path(folder, saved.stored)
        if saved.digest is None and saved.link is None:
            raise UnsafeError(
                f"{path}: the manifest has no SHA-256 of it, as an earlier version wrote none for indexes. "
                "Nothing was changed. Remedy: undo with the version that made the recovery"
            )
        try:
            with self.opened(folder, saved):
                pass
        except OSError as error:
            remedy = "see quarantine list --verify"
            if error.errno == errno.EACCES:
                remedy = f"{shell_line(['chown', self._user.name, path])}, then undo again"
            raise UnsafeError(f"{path}: {error.strerror}. Nothing was changed. Remedy: {remedy}") from error

    def check_moved(self, move: Moved, destination: str, *, may_be_gone: bool) -> None:
        """Refuse what a repair has moved away if a file of it is missing or changed; files added to it move as well.

        Args:
            destination: the path that it is moved back to.
            may_be_gone: whether it need not be here: it was not moved, or has been put back already.

        Raises:
            UnsafeError: nothing was changed.
        """
        path, saved = self.path(move.folder, move.saved.stored), move.saved
        if may_be_gone and not is_there(path):
            return
        if saved.contents is None:  # a single file, or a folder moved by an earlier version
            if saved.digest is not None and is_there(path):
                self.check(move.folder, saved)
            return
        try:
            problems = self._problems(move.folder, saved.stored, saved.contents)
        except OSError as error:
            problems = [f"{error.filename or path}: {error.strerror}"]
        if problems:
            and_more = f" and {len(problems) - 3} more" if len(problems) > 3 else ""
            raise UnsafeError(
                f"{'; '.join(problems[:3])}{and_more}. Nothing was changed. Remedy: see quarantine list --verify; "
                f"put back what was there, or move {path} by hand to {destination} if it is to be there as it is, "
                "then undo again"
            )

    def _problems(self, folder: str, stored: str, contents: Contents) -> list[str]:
        """Return what is wrong with the files of a folder that was moved as a whole."""
        path = self.path(folder, stored)
        with opened_folder(self._root) as root, opened_folder(self._run, at=root) as run:
            try:
                found_differences = differences(run, f"{folder}/{stored}", contents)
            except (FileNotFoundError, NotADirectoryError):
                has_files = any(content.kind == FILE for content in contents.values())
                return [f"{path}: missing"] if has_files else []
        return [
            f"{os.path.join(path, difference.path)}: {difference.problem}"
            for difference in found_differences
            if difference.is_loss
        ]


def check_target(path: str, link: str, before: FileStat | None) -> None:
    """Refuse to put back the link *path*, which leads to *link*, if what it leads to has changed or is gone.

    Args:
        before: what it led to before the recovery; None if that is not known.

    Raises:
        UnsafeError: nothing was changed.
        OSError: it cannot be determined.
    """
    target = os.path.join(os.path.dirname(path), link)
    status = look_at(target)
    if status is None or not S_ISREG(status.st_mode):
        problem = "is no file any more"
    elif before is not None and (status.st_size, status.st_mtime_ns) != (before.size_bytes, before.mtime_ns):
        problem = "has changed since"
    else:
        return
    raise UnsafeError(
        f"{path}: was a link to {target} before the recovery, which {problem}. Nothing was changed. Remedy: put that "
        "back as it was, its time included, then undo again"
    )


def is_same_file(saved: Saved, path: str) -> bool:
    """Return whether the file *path*, of the same size, has the saved bytes; True if these have no digest.

    Raises:
        OSError: the file cannot be read.
    """
    return saved.digest is None or look_into(path, may_skip_zeros=False)[1] == saved.digest
