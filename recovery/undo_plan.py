"""From the account of a change to the actions that take it back. Pure: nothing is touched here.

Each file is followed through the actions: one that was renamed gets its name back, one that was cut its tail, one that
is gone comes back out of quarantine, and what the recovery has made goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from recovery.actions import (
    Action,
    AppendPart,
    RemoveFile,
    RenameFile,
    RestoreFile,
    WriteFile,
)
from recovery.commit import Commit, plain_name
from recovery.errors import UnsafeError
from recovery.model import FileStat, RemovalKind
from segfmt.value_class import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A file in quarantine.

    Attributes:
        path: where it is.
        position: where its bytes begin in the file that it was; a whole file begins at 0.
        sha256: hex; None for a derived file.
    """

    path: str
    is_tail: bool
    position: int
    size_bytes: int
    sha256: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a run did to one folder.

    Attributes:
        after: the files that it left.
        saved: what it took out, by name.
    """

    commit: Commit
    after: Mapping[str, FileStat]
    saved: Mapping[str, Saved]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """A file or folder that `--repair` has moved away.

    Attributes:
        folder: of the partition, or `actions.LOG_DIR_ITSELF`.
        path: where it is now.
    """

    folder: str
    name: str
    path: str


def read_account(entries: Iterable[Mapping[str, Any]], run: str) -> tuple[list[Change], list[Moved]]:
    """Return the changes and the moves in the lines of a manifest, in order.

    Args:
        run: path of the run's folder.

    Raises:
        UnsafeError: a line that no run has written.
    """
    try:
        return _read_account(entries, run)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UnsafeError(
            f"{run}: a line of the manifest is not of this tool ({type(error).__name__}: {error}). Nothing was changed"
        ) from error


def _read_account(entries: Iterable[Mapping[str, Any]], run: str) -> tuple[list[Change], list[Moved]]:
    changes: list[Change] = []
    moves: list[Moved] = []
    saved: dict[str, dict[str, Saved]] = {}
    for entry in entries:
        folder = plain_name(entry["partition"])
        if entry["kind"] == "change":
            after = {
                name: FileStat(inode=inode, size_bytes=size_bytes, mtime_ns=mtime_ns)
                for name, (inode, size_bytes, mtime_ns) in entry["after"].items()
            }
            commit = Commit.from_json(entry["commit"])
            changes.append(Change(commit=commit, after=after, saved=saved.pop(folder, {})))
        elif entry["kind"] == "moved":
            moves.append(Moved(folder=folder, name=plain_name(entry["file"]), path=_stored(entry, run)))
        else:
            saved.setdefault(folder, {})[plain_name(entry["file"])] = Saved(
                path=_stored(entry, run),
                is_tail=entry["kind"] == "tail",
                position=entry["position"],
                size_bytes=entry["size_bytes"],
                sha256=entry["sha256"],
            )
    return changes, moves


def _stored(entry: Mapping[str, Any], run: str) -> str:
    """Return the path of what is saved: in the run's folder, in that of its partition."""
    folder, name = entry["stored"].split("/")
    return f"{run}/{plain_name(folder)}/{plain_name(name)}"


def plan_undo(change: Change, found: Mapping[str, FileStat]) -> tuple[Action, ...]:
    """Return what takes *change* back, in order.

    Args:
        found: the files that are there now: by name what the change has left.

    Raises:
        UnsafeError: a file is neither there nor in quarantine.
    """
    place_of: dict[str, str] = {}  # of a file that stayed, by its first name
    for last, first in change.commit.origins().items():
        if last in found and (last == first or first not in place_of):
            place_of[first] = last
    renames: dict[str, str] = {}
    restored: list[RestoreFile | WriteFile] = []
    appended: list[AppendPart] = []
    kept: set[str] = set()
    for name, stat in change.commit.before.items():
        place, saved = place_of.get(name), change.saved.get(name)
        is_whole = saved is not None and not saved.is_tail
        if place is not None and not (is_whole and found[place].size_bytes < stat.size_bytes):
            kept.add(place)
            if place != name:
                renames[place] = name
            if found[place].size_bytes < stat.size_bytes:
                appended.append(_append(name, stat, found[place].size_bytes, saved))
        elif saved is not None and is_whole:
            restored.append(RestoreFile(source=saved.path, name=name))
        elif not stat.size_bytes:
            restored.append(WriteFile(name=name, data=b"", size_bytes=0, mtime_ns=stat.mtime_ns))
        else:
            raise UnsafeError(
                f"{change.commit.folder}/{name}: neither there nor in quarantine. Nothing was changed. "
                "Remedy: none in this tool; quarantine was changed by somebody else"
            )
    restored += [  # pending deletions that were kept
        RestoreFile(source=saved.path, name=name)
        for name, saved in change.saved.items()
        if name not in change.commit.before and not saved.is_tail
    ]
    taken = {*kept, *renames.values(), *(action.name for action in restored)}
    removals = [
        RemoveFile(name=name, size_bytes=found[name].size_bytes, kind=RemovalKind.DERIVED)
        for name in sorted(change.commit.made & found.keys() - taken)
    ]
    return (*removals, *_in_order(renames), *restored, *appended)


def _append(name: str, stat: FileStat, size_bytes: int, tail: Saved | None) -> AppendPart:
    return AppendPart(
        source=tail.path if tail is not None and tail.is_tail and tail.position == size_bytes else None,
        name=name,
        position=size_bytes,
        size_bytes=stat.size_bytes - size_bytes,
        mtime_ns=stat.mtime_ns,
    )


def _in_order(renames: Mapping[str, str]) -> list[RenameFile]:
    """Return the renames so that none takes the place of a file that has yet to be renamed."""
    left, ordered = dict(renames), []
    while left:
        old = next(old for old, new in left.items() if new not in left)
        ordered.append(RenameFile(old=old, new=left.pop(old)))
    return ordered
