"""From the account of a change to the actions that take it back. Pure: nothing is touched here.

Each file is followed through the actions: one that was renamed gets its name back, one that was cut gets its tail, one
that is gone comes back from quarantine, and what the recovery has made is removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from recovery.errors import JournalError, UnsafeError
from recovery.load.model import FileStat, RemovalKind
from recovery.plan.actions import Action, AppendPart, RemoveFile, RenameFile, RestoreFile, WriteFile
from recovery.plan.commit import Commit, plain_name, read_state
from recovery.plan.manifest import Contents, Digest, read_contents, read_digest, read_link
from segfmt.filenames import DELETED_SUFFIX


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A file in quarantine.

    Attributes:
        stored: its name, in the run's folder for the same partition.
        position: where its bytes began in the original file; 0 for a whole file.
        digest: None if the manifest gives none, or if it is not a regular file.
        contents: of what is not a regular file; None if the manifest does not list them.
        link: where it leads, if it is a link that stood in the place of a file; None for anything else.
    """

    stored: str
    is_tail: bool
    position: int
    size_bytes: int
    digest: Digest | None
    contents: Contents | None = None
    link: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a run did to one folder.

    Attributes:
        after: the files that it left.
        saved: what it took out, by name.
        is_new_folder: whether it made the folder.
    """

    commit: Commit
    after: Mapping[str, FileStat]
    saved: Mapping[str, Saved]
    is_new_folder: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """A file or folder that `--repair` has moved away.

    Attributes:
        folder: of the partition, or `actions.LOG_DIR_ITSELF`.
        saved: where it is now.
    """

    folder: str
    name: str
    saved: Saved


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAccount:
    """What the manifest of a run says.

    Attributes:
        changes, moves: in order.
        unused: what was saved for a change that was never made, with folder and name: the run was killed before.
    """

    changes: list[Change]
    moves: list[Moved]
    unused: tuple[tuple[str, str, Saved], ...]


def read_account(entries: Iterable[Mapping[str, Any]], run: str) -> RunAccount:
    """Return what the lines of a manifest say.

    Anybody who may write into quarantine may have written them: a name that leads out of its folder is an error.

    Args:
        run: its name in errors.

    Raises:
        UnsafeError: a line that no run has written.
    """
    try:
        return _read_account(entries)
    except (KeyError, TypeError, ValueError, AttributeError, JournalError) as error:
        raise UnsafeError(
            f"{run}: a line of the manifest is not of this tool ({type(error).__name__}: {error}). Nothing was changed"
        ) from error


def _read_account(entries: Iterable[Mapping[str, Any]]) -> RunAccount:
    changes: list[Change] = []
    moves: list[Moved] = []
    saved: dict[str, dict[str, Saved]] = {}
    unused: list[tuple[str, str, Saved]] = []
    for entry in entries:
        folder = plain_name(entry["partition"])
        if entry["kind"] == "change":
            after = {plain_name(name): read_state(state) for name, state in entry["after"].items()}
            commit = Commit.from_json(entry["commit"])
            if commit.folder != folder:
                raise ValueError(f"a change of {commit.folder!r} among those of {folder!r}")
            saved_here = saved.pop(folder, {})
            fitting = {name: file for name, file in saved_here.items() if _fits(commit, name, file)}
            is_new = entry.get("is_new_folder") is True
            changes.append(Change(commit=commit, after=after, saved=fitting, is_new_folder=is_new))
            unused += [(folder, name, file) for name, file in saved_here.items() if name not in fitting]
        elif entry["kind"] == "moved":
            moves.append(Moved(folder=folder, name=plain_name(entry["file"]), saved=_saved(entry, folder)))
        elif entry["kind"] in ("file", "tail"):
            name, saved_here = plain_name(entry["file"]), saved.setdefault(folder, {})
            if name in saved_here:  # by a run that was killed, and again by the one that resumed it
                unused.append((folder, name, saved_here[name]))
            saved_here[name] = _saved(entry, folder)
        else:
            raise ValueError(f"{entry['kind']!r} is not a kind of line")
    unused += [(folder, name, file) for folder, files in saved.items() for name, file in files.items()]
    return RunAccount(changes=changes, moves=moves, unused=tuple(unused))


def _fits(commit: Commit, name: str, saved: Saved) -> bool:
    """Whether *saved* is what *commit* took out by that name, and not from an earlier attempt without a commit."""
    before = commit.before.get(name)
    if saved.link is not None:
        return not saved.is_tail
    if before is None:
        return not saved.is_tail and name.endswith(DELETED_SUFFIX)  # a pending deletion that was kept
    return saved.position + saved.size_bytes == before.size_bytes


def _saved(entry: Mapping[str, Any], folder: str) -> Saved:
    """Return what a line says was saved from the partition *folder*: it is in the run's folder of that name."""
    stored_folder, name = entry["stored"].split("/")
    if stored_folder != folder:
        raise ValueError(f"saved from {folder!r} in {stored_folder!r}")
    position, size_bytes = entry["position"], entry["size_bytes"]
    if not all(type(number) is int and number >= 0 for number in (position, size_bytes)):
        raise ValueError(f"{position!r} and {size_bytes!r} are not a position and a size")
    return Saved(
        stored=plain_name(name),
        is_tail=entry["kind"] == "tail",
        position=position,
        size_bytes=size_bytes,
        digest=read_digest(entry),
        contents=read_contents(entry),
        link=read_link(entry),
    )


def plan_undo(change: Change, files: Mapping[str, FileStat]) -> tuple[Action, ...]:
    """Return the actions that take *change* back, in order.

    Args:
        files: the files that are there now, by name, as the change has left them.

    Raises:
        UnsafeError: a file is neither there nor in quarantine.
    """
    present_names: dict[str, str] = {}  # of the files that stayed, by first name
    for last, first in change.commit.origins().items():
        if last in files and (last == first or first not in present_names):
            present_names[first] = last
    renames: dict[str, str] = {}
    restored: list[RestoreFile | WriteFile] = []
    appended: list[AppendPart] = []
    kept: set[str] = set()
    before = change.commit.before
    for name in change.commit.concerned(before):
        stat, present, saved = before[name], present_names.get(name), change.saved.get(name)
        is_whole = saved is not None and not saved.is_tail
        if present is not None and not (is_whole and files[present].size_bytes < stat.size_bytes):
            kept.add(present)
            if present != name:
                renames[present] = name
            if files[present].size_bytes > stat.size_bytes:
                raise UnsafeError(
                    f"{change.commit.folder}/{present}: {files[present].size_bytes:,} bytes, and it had "
                    f"{stat.size_bytes:,} before the recovery"
                )
            if files[present].size_bytes < stat.size_bytes:
                appended.append(_append(change.commit.folder, name, stat, files[present].size_bytes, saved))
        elif saved is not None and is_whole:
            restored.append(RestoreFile(source=saved.stored, name=name))
        elif not stat.size_bytes:
            restored.append(WriteFile(name=name, data=b"", size_bytes=0, mtime_ns=stat.mtime_ns))
        elif not name.endswith(DELETED_SUFFIX):  # one is the broker's pending deletion, and need not be kept
            raise UnsafeError(f"{change.commit.folder}/{name}: neither there nor in quarantine")
    restored += [  # pending deletions that were kept
        RestoreFile(source=saved.stored, name=name)
        for name, saved in change.saved.items()
        if name not in before and not saved.is_tail
    ]
    taken = {*kept, *renames.values(), *(action.name for action in restored)}
    removals = [
        RemoveFile(name=name, size_bytes=files[name].size_bytes, kind=RemovalKind.DERIVED)
        for name in sorted(change.commit.made & files.keys() - taken)
    ]
    return (*removals, *_in_order(renames), *restored, *appended)


def _append(folder: str, name: str, stat: FileStat, size_bytes: int, tail: Saved | None) -> AppendPart:
    """Return how the file *name*, of *size_bytes* now, gets its end back; what was not saved was zeros.

    Raises:
        UnsafeError: what was saved does not begin where the file ends.
    """
    if tail is not None and tail.position != size_bytes:
        raise UnsafeError(
            f"{folder}/{name}: ends at {size_bytes:,}, and what was cut from it began at {tail.position:,}"
        )
    return AppendPart(
        source=None if tail is None else tail.stored,
        name=name,
        position=size_bytes,
        size_bytes=stat.size_bytes - size_bytes,
        mtime_ns=stat.mtime_ns,
    )


def sizes_of_whole(commit: Commit) -> dict[str, int]:
    """Return the sizes of the files that a commit of an `undo` puts back whole, by name."""
    renamed = {
        action.new: commit.before[action.old].size_bytes
        for action in commit.actions
        if isinstance(action, RenameFile) and action.old.endswith(DELETED_SUFFIX)
    }
    return renamed | {name: stat.size_bytes for name, stat in commit.staged.items()}


def _in_order(renames: Mapping[str, str]) -> list[RenameFile]:
    """Return the renames so that none takes the place of a file that has yet to be renamed."""
    left, ordered = dict(renames), []
    while left:
        old = next(old for old, new in left.items() if new not in left)
        ordered.append(RenameFile(old=old, new=left.pop(old)))
    return ordered
