"""Whether the broker's user may use a file, judged by owner, group and mode.

The owner of a log dir is assumed to be the user that its broker runs as; if the recovery points, which a broker writes
every minute, belong to somebody else who is not root, it is that user. A file that this user cannot open takes the log
dir offline, even if root can read it here.
"""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import stat
from dataclasses import dataclass

from recovery.errors import AS_BROKERS_USER
from recovery.printable import shell_word
from recovery.read.file_system import look_at, naming, read_whole
from segfmt.filenames import RECOVERY_POINT_CHECKPOINT

_CAP_CHOWN = 1
"""Linux: CAP_CHOWN, the lowest bit of a set of capabilities."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerUser:
    """The user that a broker runs as.

    Attributes:
        uid: 0 is root, who may do everything.
        gid: the group of the files that show who this user is.
        gids: that group, and those that the user is known to be in.
    """

    uid: int
    gid: int
    gids: frozenset[int]

    def lacks(self, status: os.stat_result, rights: str) -> str:
        """Return those of *rights*, letters of `rwx`, that this user does not have on what *status* describes."""
        if self.uid == 0:
            return ""
        shift = 6 if status.st_uid == self.uid else 3 if status.st_gid in self.gids else 0
        bits = status.st_mode >> shift
        return "".join(right for right in rights if not bits & {"r": 4, "w": 2, "x": 1}[right])

    @property
    def owner(self) -> str:
        """This user and its group, as chown(1) takes them."""
        return f"{self.name}:{_group_name(self.gid)}"

    @property
    def name(self) -> str:
        """The user's name, or number if it has no name here."""
        return user_name(self.uid)


def broker_user(log_dir: str) -> BrokerUser:
    """Return the user to whom the broker of *log_dir* belongs.

    Raises:
        OSError: there is no such dir, or it cannot be looked at.
    """
    status = os.stat(log_dir)
    written = look_at(os.path.join(log_dir, RECOVERY_POINT_CHECKPOINT))
    if written is not None and written.st_uid != 0:
        status = written
    return _user(status.st_uid, status.st_gid)


def own_user() -> BrokerUser:
    """Return the user that this process runs as, judged in the same way."""
    return _user(os.geteuid(), os.getegid())


def _user(uid: int, gid: int) -> BrokerUser:
    gids = {gid}
    try:
        entry = pwd.getpwuid(uid)
        gids.update(os.getgrouplist(entry.pw_name, entry.pw_gid))
    except (KeyError, OSError):
        pass  # a container knows its users by number
    return BrokerUser(uid=uid, gid=gid, gids=frozenset(gids))


def user_name(uid: int) -> str:
    """Return the name of a user, or its number if it has no name here."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _group_name(gid: int) -> str:
    """Return the name of a group, or its number if it has no name here."""
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def may_give_away() -> bool:
    """Return whether this process may give a file to another user: root may, unless it lacks that capability."""
    try:
        lines = read_whole("/proc/self/status").split(b"\n")
        held = next(line for line in lines if line.startswith(b"CapEff:"))
    except (OSError, StopIteration):
        return os.geteuid() == 0
    return bool(int(held.split()[1], 16) & _CAP_CHOWN)


def access_remedy(path: str) -> str:
    """Return what helps where this user may not use *path*: its owner can take the rights, others cannot.

    It is about the nearest folder above that can be looked at, if *path* itself cannot.
    """
    while True:
        try:
            status = os.stat(path)
        except OSError:
            if (above := os.path.dirname(path)) == path:
                return AS_BROKERS_USER
            path = above
            continue
        return f"chmod u+rwX {shell_word(path)}" if status.st_uid == os.geteuid() != 0 else AS_BROKERS_USER


def mode_words(status: os.stat_result) -> str:
    """Return owner, group and mode as text: `root:root -rw-r--r--`."""
    return f"{user_name(status.st_uid)}:{_group_name(status.st_gid)} {stat.filemode(status.st_mode)}"


def give_to_owner_of(log_dir: str, path: str, descriptor: int) -> None:
    """Give our open file *path* to the owner of *log_dir*: a broker must be able to open it.

    A file that is not ours, or that has another name as well, is left alone, and so is the target of a link: with the
    rights of root, somebody else's link could give away any file.

    Raises:
        OSError: one of them cannot be looked at.
    """
    with naming(path):
        status = os.fstat(descriptor)
        if status.st_nlink == 1 and os.path.samestat(status, os.lstat(path)):
            give(descriptor, os.stat(log_dir))


def give(descriptor: int, owner: os.stat_result) -> None:
    """Give an open file to the owner and group of *owner*, if it is ours and this user may."""
    status = os.fstat(descriptor)
    if status.st_uid == os.geteuid() and (status.st_uid, status.st_gid) != (owner.st_uid, owner.st_gid):
        with contextlib.suppress(PermissionError):
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
