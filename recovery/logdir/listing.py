"""What lies in one folder of a log dir, and which files of it the broker's user could not use.

Names, types, sizes, owners and modes; a file is opened only if it may not be read, to get the error.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from recovery.errors import error_text, reason_text
from recovery.load.model import FileStat
from recovery.logdir.user import BrokerUser, broker_user, mode_words, user_name
from recovery.plan.actions import TEMPORARY_SUFFIX
from recovery.printable import shell_word
from recovery.problem import LOST_FOUND, LOST_FOUND_REMEDY, Problem, Repair
from recovery.read.file_system import is_link, is_read_only, is_there, open_file
from segfmt.errors import FileNameError
from segfmt.filenames import (
    CLUSTER_METADATA_TOPIC,
    LOCK_FILE,
    FileKind,
    FolderState,
    file_kind,
    is_written_to,
    read_folder_name,
)

_WHITE_SPACE = re.compile(r"[ \t\n\x0b\f\r]")
_REMOVE_FOLDER = "move it out of the log dir"
_REMOVE_ROOTS_FOLDER = f"{_REMOVE_FOLDER} (recover --repair leaves it, as root owns it)"
_OPENED_FOR_WRITING = frozenset(
    {FileKind.LOG, FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX}
)


@dataclass(slots=True, kw_only=True)
class FolderContents:
    """What lies in a partition's folder; see `PartitionTask`."""

    files: dict[str, FileStat] = field(default_factory=dict)
    others: dict[str, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    unreadable: set[str] = field(default_factory=set)

    def drop(self, name: str) -> None:
        """Forget the file *name*."""
        self.files.pop(name, None)
        self.others.pop(name, None)
        self.unreadable.discard(name)
        self.problems = [problem for problem in self.problems if problem.file != name]


def look_into(
    folder: str, user: BrokerUser | None = None, *, gives_away: bool = True, may_vanish: bool = False
) -> FolderContents:
    """Return the regular files of a partition's folder, links to such files included, and what else is there.

    Args:
        user: the broker's; a file that it may not use is a problem.
        gives_away: whether this process may give files to others; if not, a file that is not its own is a problem.
        may_vanish: whether a file that is deleted or renamed meanwhile is left out: a broker may be at work there.

    Raises:
        OSError: something cannot be looked at. FileNotFoundError: the folder is gone.

    Kafka: LogLoader.removeTempFilesAndCollectSwapFiles.
    """
    contents = FolderContents()
    folder_status = os.stat(folder)
    user = broker_user(os.path.dirname(folder)) if user is None else user
    if lacking := user.lacks(folder_status, "rwx"):
        contents.problems.append(
            access_problem(os.path.basename(folder), folder, folder_status, lacking, user)
        )
    if is_read_only(folder) and not is_read_only(os.path.dirname(folder)):
        contents.problems.append(_read_only(os.path.basename(folder), "IOException on a file that is opened"))
    ignores_owner = gives_away or not os.access(folder, os.W_OK)  # who may only read changes nothing
    if not ignores_owner:
        contents.problems += owner_problems(os.path.basename(folder), folder_status)
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            try:
                _look_at(entry, contents, user, ignores_owner=ignores_owner)
            except FileNotFoundError:
                if not may_vanish:
                    raise
                contents.drop(entry.name)
    # The remedy may be to change the owner
    if any(problem.rule == "access" for problem in contents.problems):
        contents.problems = [problem for problem in contents.problems if problem.rule != "owner"]
    return contents


def _look_at(
    entry: os.DirEntry[str], contents: FolderContents, user: BrokerUser, *, ignores_owner: bool
) -> None:
    """Add an entry of a partition's folder to its *contents*."""
    if not is_of_type(entry, os.DirEntry.is_file):
        kind = contents.others[entry.name] = other_kind(entry.path) or "file"
        if kind == "folder" and entry.name.endswith(TEMPORARY_SUFFIX):
            contents.problems.append(_in_the_way(entry.name))
        return
    if entry.is_symlink() and is_written_to(entry.name):
        contents.problems.append(_link(entry.name))
    status = entry.stat()
    contents.files[entry.name] = file_stat(status)
    rights = "rw" if file_kind(entry.name) in _OPENED_FOR_WRITING else "r"
    lacking = user.lacks(status, rights)
    if lacking:
        contents.problems.append(access_problem(entry.name, entry.path, status, lacking, user))
    if not ignores_owner and is_written_to(entry.name) and file_kind(entry.name) is not FileKind.LOG:
        contents.problems += owner_problems(entry.name, status)
    if (denial := _read_denial(entry.path)) is not None:
        contents.unreadable.add(entry.name)
        if not lacking:
            contents.problems.append(unreadable(entry.name, denial))


def _in_the_way(name: str) -> Problem:
    return Problem(
        file=name,
        rule="file-type",
        detail="a folder with the name of one of recover's temporary files",
        remedy="move it away",
        repair=Repair(names=(name,)),
    )


def list_files(folder: str) -> dict[str, FileStat]:
    """Return the regular files in *folder*, and links to such files."""
    with os.scandir(folder) as entries:
        return {
            entry.name: file_stat(entry.stat()) for entry in entries if is_of_type(entry, os.DirEntry.is_file)
        }


def file_stat(status: os.stat_result) -> FileStat:
    """Return the part of *status* that tasks, commits and journals keep."""
    return FileStat(
        size_bytes=status.st_size,
        mtime_ns=status.st_mtime_ns,
        inode=status.st_ino,
        ctime_ns=status.st_ctime_ns,
    )


def _link(name: str) -> Problem:
    """Return the problem that a file is a link. Differs: a broker writes through it, wherever it leads."""
    return Problem(
        file=name,
        rule="file-type",
        detail="a link, through which a broker writes outside of the log dir",
        remedy="put the file itself in its place",
    )


def is_of_type(entry: os.DirEntry[str], test: Callable[[os.DirEntry[str]], bool]) -> bool:
    """Return whether *entry* passes *test*; a link in a loop passes none, as in Java."""
    try:
        return test(entry)
    except OSError as error:
        if error.errno == errno.ELOOP:
            return False
        raise


def _read_only(path: str, error: str) -> Problem:
    return Problem(
        file=path,
        rule="read-only",
        detail=f"the file system is mounted read-only ({error} takes the log dir offline)",
        remedy="find out why (dmesg: an I/O error may have done it), check the file system, mount it read-write",
    )


def mount_problems(log_dir: str) -> Iterator[Problem]:
    """Yield the reasons why nothing at all can be written in *log_dir*. Kafka: LogManager.lockLogDirs."""
    if is_read_only(log_dir):
        yield _read_only(log_dir, "IOException on .lock")
    lock = os.path.join(log_dir, LOCK_FILE)
    kind = other_kind(lock) if is_there(lock) else None
    if kind not in (None, "dangling link"):
        yield Problem(
            file=LOCK_FILE,
            rule="file-type",
            detail=f"a {kind} where the broker's lock must be (IOException takes the log dir offline)",
            remedy="move it away",
        )


def other_kind(path: str) -> str | None:
    """Return the kind of what is at *path*, None if it is a regular file or a link to one.

    Raises:
        OSError: it cannot be determined.
    """
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return "dangling link"
    except OSError as error:
        if error.errno == errno.ELOOP:
            return "link that leads nowhere"  # a loop
        raise
    if stat.S_ISREG(mode):
        return None
    kinds = ((stat.S_ISDIR, "folder"), (stat.S_ISFIFO, "pipe"), (stat.S_ISSOCK, "socket"))
    return next((kind for is_kind, kind in kinds if is_kind(mode)), "device")


def foreign_folder(name: str, error: FileNameError, may_move: bool) -> Problem:
    """Return the problem that the folder *name* is not a broker's; *may_move*: whether it can be moved away."""
    remedy = _REMOVE_FOLDER if may_move else _REMOVE_ROOTS_FOLDER
    if name == LOST_FOUND:
        remedy = LOST_FOUND_REMEDY
    return Problem(
        file=name,
        rule="foreign-folder",
        detail=f"{error} ({error.kafka} stops the broker)",
        remedy=remedy,
        repair=Repair(names=(name,)) if may_move else None,
    )


def is_log_name(name: str) -> bool:
    """Return whether *name* is that of a log's folder, as a broker makes it: the next one of this name fails."""
    try:
        folder = read_folder_name(name)
    except FileNameError:
        return False
    return folder.state is FolderState.CURRENT and folder.topic != CLUSTER_METADATA_TOPIC


def is_of_log(folder: str) -> bool:
    """Return whether *folder* has the name of a log's, in any stage of its life."""
    try:
        read_folder_name(folder)
    except FileNameError:
        return False
    return True


def no_folder(name: str, path: str) -> Problem:
    """Return the problem that what has the name of a log's folder is none: a link that leads to no folder, a file.

    Kafka: LogManager.loadLogs passes it over, createLogDirectory fails at it.
    """
    kind = other_kind(path) or ("link to a file" if is_link(path) else "file")
    return Problem(
        file=name,
        rule="file-type",
        detail=f"a {kind} with the name of a log's folder: a broker passes it over, and goes offline with the log dir "
        "when it makes this log (FileAlreadyExistsException)",
        remedy="mount the file system that it leads to, or remove the link if the log is lost"
        if is_link(path)
        else "move it out of the log dir",
        repair=None if is_link(path) else Repair(names=(name,)),
    )


def unwritable_folder(name: str, may_move: bool) -> Problem:
    """Return the problem that no line of a checkpoint can hold the folder *name*; *may_move*: as above."""
    return Problem(
        file=name,
        rule="topic-name",
        detail="no topic can have this name (a broker writes a checkpoint with it that takes the log dir "
        "offline at its next start)",
        remedy=_REMOVE_FOLDER if may_move else _REMOVE_ROOTS_FOLDER,
        repair=Repair(names=(name,)) if may_move else None,
    )


def fits_checkpoint(topic: str) -> bool:
    """Whether a line of a checkpoint can hold *topic*: fields are separated by white space, text is UTF-8."""
    try:
        topic.encode()
    except UnicodeEncodeError:
        return False
    return _WHITE_SPACE.search(topic) is None


def access_problem(name: str, path: str, status: os.stat_result, lacking: str, user: BrokerUser) -> Problem:
    """Return the problem that *user* does not have the rights *lacking*, of `rwx`, on *path*."""
    participles = {"r": "read", "w": "written", "x": "entered"}
    *first, last = (participles[right] for right in lacking)
    denied = f"{', '.join(first)} or {last}" if first else last
    is_users = status.st_uid == user.uid
    return Problem(
        file=name,
        rule="access",
        detail=f"may not be {denied} by {user.name}, the broker's user: {mode_words(status)} "
        "(IOException takes the log dir offline)",
        remedy=f"{f'chmod u+{lacking}' if is_users else f'chown {user.owner}'} {shell_word(path)}",
        remedy_below="chmod -R u+rwX" if is_users else f"chown -R {user.owner}",
    )


def folder_problem(name: str, path: str, denial: PermissionError, user: BrokerUser) -> Problem:
    """Return the problem that this process may not read the folder *path*, whether or not *user* may.

    Raises:
        OSError: it cannot be looked at.
    """
    status = os.stat(path)
    lacking = user.lacks(status, "rwx")
    return access_problem(name, path, status, lacking, user) if lacking else unreadable(name, denial)


def owner_problems(name: str, status: os.stat_result) -> Iterator[Problem]:
    """Yield the problem that new files in place of *name*, or in it, could not be given to its owner."""
    if status.st_uid != os.geteuid():
        owner = user_name(status.st_uid)
        yield Problem(
            file=name,
            rule="owner",
            detail=f"belongs to {owner}, and recover runs as {user_name(os.geteuid())}, who may write there but not "
            "give a file to another user",
            remedy="run recover as root" if status.st_uid == 0 else f"run recover as {owner}, or as root",
        )


def _read_denial(path: str) -> PermissionError | None:
    """Return why this process may not read the file *path*; NFS and containers may deny that even to root.

    Raises:
        OSError: it cannot be determined.
    """
    if os.access(path, os.R_OK):
        return None
    try:
        os.close(open_file(path))  # access(2) says no whatever goes wrong
    except PermissionError as error:
        return error
    return None


def unreadable(name: str, denial: PermissionError) -> Problem:
    """Return the problem that this process may not read the file *name*, though the broker's user may."""
    is_named = denial.filename is None or os.fsdecode(denial.filename).endswith(f"/{name}")
    why = reason_text(denial) if is_named else error_text(denial)  # of a folder: what is in it
    return Problem(
        file=name,
        rule="access",
        detail=f"may not be read by the user that recover runs as ({why})",
        remedy="run recover as the broker's user, or as root with all its capabilities",
    )
