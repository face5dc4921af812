"""Where quarantine lies: beside a log dir, inside it, or where the operator wants it.

A sibling of the log dir is on the same file system in most set-ups. If it is not (the log dir is a mount point), or
if the parent folder may not be written, quarantine lies inside, in a folder that a broker ignores because its name
parses as a log of `__cluster_metadata`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote

from recovery.logdir.user import own_user
from recovery.problem import Problem
from recovery.read.file_system import (
    OddFileError,
    is_folder,
    is_link,
    is_read_only,
    is_there,
    mount_of,
    nearest,
)

JOURNALS = JOURNAL, UNDO_JOURNAL = "journal", "undo"
"""The files of an interrupted recovery and of an interrupted undo, in the folder of all runs."""
SIBLING_SUFFIX = ".quarantine"
INSIDE_FOLDER = "__cluster_metadata-0.quarantine-stray"
_OURS_INSIDE = re.compile(r"__cluster_metadata-0\.[a-z]+-stray")
"""A broker ignores it: LogManager.loadLogs skips every folder whose topic parses as __cluster_metadata."""
_RUN_NAME: Final = re.compile(r"(\d{8}T\d{6}Z)(?:-\d+)?")


def quarantine_root(log_dir: str, quarantine_dir: str | None) -> str:
    """Return the folder of all runs on *log_dir*: its own one in *quarantine_dir*, or the default one.

    If a run was interrupted, it is the one that that run used, even if another would be chosen now.

    Raises:
        OddFileError: something else has its name.
        OSError: its location cannot be determined.
    """
    roots = quarantine_roots(log_dir, quarantine_dir)
    begun = (root for root in roots if any(is_there(os.path.join(root, journal)) for journal in JOURNALS))
    root = next(begun, None) or (default_root(log_dir) if quarantine_dir is None else roots[0])
    if is_there(root) and not is_folder(root):
        raise OddFileError(errno.ENOTDIR, "not a folder, but quarantine belongs there", root)
    return root


def quarantine_roots(log_dir: str, quarantine_dir: str | None) -> tuple[str, ...]:
    """Return where quarantine of *log_dir* may lie: in *quarantine_dir*; without that, beside it and inside it.

    A log dir may be named by a link, and have been named by another one before: its real path comes first.

    Raises:
        OddFileError: one of them is a link that neither root nor this user has made: it may lead anywhere.
        OSError: one of them cannot be looked at, or is a link that leads nowhere: its file system is not mounted.
    """
    roots = possible_roots(log_dir, quarantine_dir)
    for root in roots:
        if is_link(root) and os.lstat(root).st_uid not in (0, os.geteuid()):
            raise OddFileError(errno.ELOOP, "a link of another user, which is not followed", root)
        if is_link(root) and not is_there(os.path.realpath(root)):
            remedy = "mount the file system of quarantine, or remove the link"
            raise OSError(errno.EIO, f"a link that leads nowhere. Remedy: {remedy}", root)
    return roots


def possible_roots(log_dir: str, quarantine_dir: str | None) -> tuple[str, ...]:
    """Return the same paths as `quarantine_roots`, without checking what is there."""
    paths = dict.fromkeys((os.path.realpath(log_dir), log_dir.rstrip("/") or "/"))
    if quarantine_dir is not None:  # no two log dirs have the same folder
        return tuple(
            os.path.join(quarantine_dir, quote(os.fsencode(path.strip("/")), safe="")) for path in paths
        )
    beside = tuple(path + SIBLING_SUFFIX for path in paths if path != "/")
    return (*beside, os.path.join(log_dir, INSIDE_FOLDER))


def places_of(log_dirs: Iterable[str], quarantine_dir: str | None) -> Iterator[str]:
    """Yield the folders below which a run may write: log dirs, their quarantine, folders on other file systems."""
    for log_dir in log_dirs:
        yield log_dir
        yield from possible_roots(log_dir, quarantine_dir)
        with contextlib.suppress(OSError):  # the log dir goes offline
            yield from _far_folders(log_dir)


def _far_folders(log_dir: str) -> Iterator[str]:
    """Yield the folders of *log_dir* that are on another file system, by a link or mounted there."""
    device = os.stat(log_dir).st_dev
    with os.scandir(log_dir) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                status = entry.stat()
                if stat.S_ISDIR(status.st_mode) and status.st_dev != device:
                    yield entry.path


def default_root(log_dir: str) -> str:
    """Return where quarantine lies unless the operator says otherwise: beside *log_dir*, else inside it.

    Raises:
        OSError: the mount of one of them cannot be determined.
    """
    real = os.path.realpath(log_dir)
    parent = os.path.dirname(real)
    # access(2) says no if it cannot look; then the place inside is taken, which is just as good.
    if parent != real and mount_of(parent) == mount_of(real) and os.access(parent, os.W_OK):
        return real + SIBLING_SUFFIX
    return os.path.join(log_dir, INSIDE_FOLDER)


def write_problem(log_dir: str, quarantine_dir: str | None) -> Problem | None:
    """Return why this user cannot save anything from *log_dir*, although it can write there; None if it can.

    Raises:
        OSError: it cannot be determined.
    """
    root = quarantine_root(log_dir, quarantine_dir)
    folder = nearest(root)
    if os.access(folder, os.W_OK | os.X_OK) or not os.access(log_dir, os.W_OK):
        return None
    is_frozen = is_read_only(folder)
    # access(2) says no whatever goes wrong, even for an I/O error; that is reported when something is written.
    if not (is_frozen or own_user().lacks(os.stat(folder), "wx")):
        return None
    why = (
        "it lies on a file system that is mounted read-only" if is_frozen else "this user may not write there"
    )
    return Problem(
        file=folder,
        rule="quarantine-place",
        detail=f"what is replaced or cut could not be kept in quarantine: {why}",
        remedy="choose another place with --quarantine-dir, "
        + ("or mount it read-write" if is_frozen else "or give the folder to the log dir's owner (chown)"),
    )


def is_far(root: str, path: str) -> bool:
    """Return whether *path* is on another file system than quarantine in *root*: a folder cannot be renamed to there.

    Raises:
        OSError: the mount of one of them cannot be determined.
    """
    return mount_of(nearest(root)) != mount_of(path)


def run_order(name: str) -> tuple[str, int]:
    """Return what the runs of a log dir are sorted by: their time, and a number if two have the same time."""
    stamp, _, number = name.partition("-")
    return stamp, int(number or 0)


def started_ms_of(name: str) -> int | None:
    """Return when the run began whose folder is *name*, ms since 1970; None if it is not that of a run."""
    match = _RUN_NAME.fullmatch(name)
    if match is None:
        return None
    try:
        started = datetime.strptime(match[1], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        return None
    return int(started.timestamp()) * 1000


def is_ours(name: str) -> bool:
    """Return whether a folder of this name, in a log dir or beside it, holds what this tool has set aside."""
    return name.endswith(SIBLING_SUFFIX) or _OURS_INSIDE.fullmatch(name) is not None


def given_place(log_dir: str, run_folder: str) -> str | None:
    """Return the folder that was given for the quarantine of a run, None if it lies where it does by default."""
    root = os.path.dirname(run_folder)
    return None if root in possible_roots(log_dir, None) else os.path.dirname(root)
