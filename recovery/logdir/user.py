"""Whether the broker's user may use a file, judged by owner, group and mode.

The owner of a log dir is taken for the user that its broker runs as; where the recovery points, which a broker writes
every minute, belong to somebody else who is not root, it is that one. What this user cannot open takes the log dir
offline, however well root reads it here.
"""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import stat
from dataclasses import dataclass

from recovery.read.file_system import look_at, naming, read_whole
from segfmt.filenames import RECOVERY_POINT_CHECKPOINT

_CAP_CHOWN = 1
"""Linux: the lowest bit of a set of capabilities."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerUser:
    """The user that a broker runs as.

    Attributes:
        uid: root may do everything.
        gid: the group of the files that tell of this user.
        gids: that one, and those that the user is known to be in.
    """

    uid: int
    gid: int
    gids: frozenset[int]

    def lacks(self, found: os.stat_result, rights: str) -> str:
        """Return those of *rights*, letters of `rwx`, that this user has not on what *found* describes."""
        if self.uid == 0:
            return ""
        shift = 6 if found.st_uid == self.uid else 3 if found.st_gid in self.gids else 0
        bits = found.st_mode >> shift
        return "".join(right for right in rights if not bits & {"r": 4, "w": 2, "x": 1}[right])

    @property
    def chown(self) -> str:
        """The command, without a path, that gives a file to this user."""
        return f"chown {self.name}:{_group_name(self.gid)}"

    @property
    def name(self) -> str:
        """The user's name, or number where it has none here."""
        return user_name(self.uid)


def broker_user(log_dir: str) -> BrokerUser:
    """Return the user to whom the broker of *log_dir* belongs.

    Raises:
        OSError: there is no such dir, or it cannot be looked at.
    """
    found = os.stat(log_dir)
    written = look_at(os.path.join(log_dir, RECOVERY_POINT_CHECKPOINT))
    if written is not None and written.st_uid != 0:
        found = written
    return _user(found.st_uid, found.st_gid)


def own_user() -> BrokerUser:
    """Return the user that this process runs as, judged in the same way."""
    return _user(os.geteuid(), os.getegid())


def _user(uid: int, gid: int) -> BrokerUser:
    gids = {gid}
    try:
        found = pwd.getpwuid(uid)
        gids.update(os.getgrouplist(found.pw_name, found.pw_gid))
    except (KeyError, OSError):
        pass  # a container knows its users by number
    return BrokerUser(uid=uid, gid=gid, gids=frozenset(gids))


def user_name(uid: int) -> str:
    """Return the name of a user, or its number where it has none here."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _group_name(gid: int) -> str:
    """Return the name of a group, or its number where it has none here."""
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def may_give_away() -> bool:
    """Return whether this process may give a file to another user: root may, unless that capability was taken away."""
    try:
        lines = read_whole("/proc/self/status").split(b"\n")
        held = next(line for line in lines if line.startswith(b"CapEff:"))
    except (OSError, StopIteration):
        return os.geteuid() == 0
    return bool(int(held.split()[1], 16) & _CAP_CHOWN)


def mode_words(found: os.stat_result) -> str:
    """Return owner, group and mode in words: `root:root -rw-r--r--`."""
    return f"{user_name(found.st_uid)}:{_group_name(found.st_gid)} {stat.filemode(found.st_mode)}"


def give_to_owner_of(log_dir: str, path: str, descriptor: int) -> None:
    """Give the open file *path* of ours to the owner of *log_dir*: a broker must be able to open it.

    A file that is not ours, or that has another name as well, is left alone, and so is what a link leads to: with the
    rights of root, somebody else's link could give away any file.

    Raises:
        OSError: one of them cannot be looked at.
    """
    with naming(path):
        found = os.fstat(descriptor)
        if found.st_nlink == 1 and os.path.samestat(found, os.lstat(path)):
            give(descriptor, os.stat(log_dir))


def give(descriptor: int, owner: os.stat_result) -> None:
    """Give what is open to the owner and group of *owner*, where it is ours and this user may."""
    found = os.fstat(descriptor)
    if found.st_uid == os.geteuid() and (found.st_uid, found.st_gid) != (owner.st_uid, owner.st_gid):
        with contextlib.suppress(PermissionError):
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
