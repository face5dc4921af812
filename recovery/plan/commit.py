"""The point of no return of one folder: what it was, what is to be done to it, and what is ready for that.

A plan is carried out in three steps: new files are staged under temporary names, a `Commit` is entered in the journal,
the actions are published. After a kill before the commit, the folder is as it was. After a kill later on, the next run
does the actions that are not done yet: the names in the folder show which ones those are (`pending`).

`explain` tells whether a folder is in a state that this commit can have left, or whether somebody else was at work.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from recovery.errors import JournalError
from recovery.load.model import FileStat, RemovalKind
from recovery.plan.actions import (
    LOG_DIR_ITSELF,
    TEMPORARY_SUFFIX,
    Action,
    AppendPart,
    CopyPart,
    LinkFile,
    RemoveFile,
    RenameFile,
    RestoreFile,
    TruncateFile,
    WriteFile,
)
from segfmt.filenames import DELETED_SUFFIX, is_written_to

_ANY = -1
_NUMBERS = -(1 << 63), (1 << 64) - 1
_SIZES = 0, 1 << 62
_ACTIONS: dict[str, type[Any]] = {
    action.__name__: action
    for action in (
        RemoveFile,
        RenameFile,
        LinkFile,
        CopyPart,
        AppendPart,
        TruncateFile,
        WriteFile,
        RestoreFile,
    )
}
State = tuple[int, int, int]
"""What a file is identified by: inode, size in bytes, mtime in ns; -1 for any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A plan that is to be carried out whatever happens.

    No action removes what an earlier one has put there.

    Attributes:
        folder: name of the partition's folder; `actions.LOG_DIR_ITSELF` for the log dir's own files.
        before: the files as they were, by name.
        staged: the files that are ready under their temporary names, by final name.
        actions: in order.
        contents: digests of the parts that stay of those files of `before` that the actions move, link or cut; taken
            if inodes do not tell which file is which.
    """

    folder: str
    before: Mapping[str, FileStat]
    staged: Mapping[str, FileStat]
    actions: tuple[Action, ...]
    contents: Mapping[str, str] = field(default_factory=dict)

    def explain(self, files: Mapping[str, FileStat], *, by_inode: bool = True) -> str | None:
        """Return the name of a file in *files* that no step of this commit can have left, None if there is none.

        A `.deleted` file may be gone: quarantine has it. A file that is still to be cut must not have been touched:
        somebody may have repaired it.

        Args:
            files: the files that are in the folder now.
            by_inode: whether files are identified by their inodes there.
        """
        return self._left_by_others(files, by_inode) or self._touched(files, by_inode)

    def has_left(self, files: Mapping[str, FileStat]) -> bool:
        """Return whether some step of this commit can have left *files*, which may lie on another disk by now."""
        return self._left_by_others(files, by_inode=False) is None

    def _left_by_others(self, files: Mapping[str, FileStat], by_inode: bool) -> str | None:
        for name, made in self.staged.items():
            candidates = (files.get(name), files.get(name + TEMPORARY_SUFFIX))
            if not any(stat is not None and _is(stat, _state(made), by_inode) for stat in candidates):
                return name
        allowed = self._simulated()[0]
        for name in self.concerned(files.keys() | allowed.keys()):
            states = allowed.get(name, {None})
            stat = files.get(name)
            if stat is None:
                if None not in states and not name.endswith(DELETED_SUFFIX):
                    return name
            elif not any(state is not None and _is(stat, state, by_inode) for state in states):
                return name
        return None

    def _touched(self, files: Mapping[str, FileStat], by_inode: bool) -> str | None:
        """Return the name of a file that is still to be cut and was touched since the commit."""
        origins = self.origins()
        for action in self.actions:
            if isinstance(action, TruncateFile) and origins.get(action.name) == action.name:
                before, now = self.before[action.name], files.get(action.name)
                if (
                    now is not None
                    and _is(now, _state(before), by_inode)
                    and before.ctime_ns not in (0, now.ctime_ns)
                ):
                    return action.name
        return None

    def contradiction(self, files: Mapping[str, FileStat], *, by_inode: bool = True) -> str | None:
        """Return the name of a file that is not in *files* as all actions leave it, None if there is none.

        Some of the log dir's own files are not subject to any commit.

        Args:
            by_inode: as of `explain`.
        """
        last = self._simulated()[1]
        names = last.keys() | (self.before.keys() if self.folder == LOG_DIR_ITSELF else files.keys())
        for name in self.concerned(names):
            stat, state = files.get(name), last.get(name)
            if stat is None:
                if state is not None and not name.endswith(DELETED_SUFFIX):
                    return name
            elif state is None or not _is(stat, state, by_inode):
                return name
        return None

    def concerned(self, names: Iterable[str]) -> list[str]:
        """Return those of *names* that this commit is about, in order.

        That excludes unfinished staged files and, in a log's folder, what a load does not write to, unless an action
        names it: a link to a segment, or a second name of it, changes with the segment.
        """
        touched = self.made | {
            action.name if isinstance(action, RemoveFile) else action.old
            for action in self.actions
            if isinstance(action, RemoveFile | RenameFile | LinkFile)
        }
        return sorted(
            name
            for name in names
            if not (name.endswith(TEMPORARY_SUFFIX) and name not in self.before)
            and (self.folder == LOG_DIR_ITSELF or name in touched or is_written_to(name))
        )

    def pending(self, names: Collection[str]) -> tuple[Action, ...]:
        """Return the actions that are not done, in order, by the *names* that are in the folder.

        What an action removes is there until it is done, or until a later one has put another file in its place. Names
        show that on any file system, and whichever of them a power failure has preserved.
        """
        left: list[Action] = []
        replaced: set[str] = set()  # names under which an action that is done has put a file
        for action in reversed(self.actions):
            if not self._is_done(action, names, replaced):
                left.append(action)
            elif (made := _made_by(action)) is not None:
                replaced.add(made)
        return tuple(reversed(left))

    def _is_done(self, action: Action, names: Collection[str], replaced: Collection[str]) -> bool:
        match action:
            case RemoveFile(name=name) | RenameFile(old=name):
                return name not in names or name in replaced
            case LinkFile(old=old, new=new):
                return old in replaced or (new in names and new not in self.before)
            case TruncateFile(name=name) | AppendPart(name=name):  # harmless when repeated
                return name in replaced
            case WriteFile(name=name) | CopyPart(name=name) | RestoreFile(name=name):
                return name + TEMPORARY_SUFFIX not in names

    def done(self, files: Mapping[str, FileStat]) -> tuple[Action, ...]:
        """Return the actions that are done, in order, if *files* is what some step of this commit has left."""
        pending = {id(action) for action in self.pending(files.keys())}
        return tuple(
            action
            for action in self.actions
            if id(action) not in pending
            or (
                isinstance(action, TruncateFile)
                and action.name in files
                and files[action.name].size_bytes == action.size_bytes
            )
        )

    def origins(self) -> dict[str, str]:
        """Return the first name of each file of `before` that stays, by its final name."""
        first = {name: name for name in self.before}
        for action in self.actions:
            match action:
                case (
                    RemoveFile(name=name)
                    | WriteFile(name=name)
                    | CopyPart(name=name)
                    | RestoreFile(name=name)
                ):
                    first.pop(name, None)
                case RenameFile(old=old, new=new):
                    first[new] = first.pop(old)
                case LinkFile(old=old, new=new):
                    first[new] = first[old]
        return first

    @property
    def made(self) -> frozenset[str]:
        """The names under which the actions put a file."""
        return frozenset(
            action.new if isinstance(action, RenameFile | LinkFile) else action.name
            for action in self.actions
            if not isinstance(action, RemoveFile)
        )

    def _simulated(self) -> tuple[dict[str, set[State | None]], dict[str, State]]:
        """Return the states that each name goes through (None: not there), and the final ones."""
        now: dict[str, State] = {name: _state(stat) for name, stat in self.before.items()}
        seen: dict[str, set[State | None]] = {name: {state} for name, state in now.items()}

        def become(name: str, state: State | None) -> None:
            seen.setdefault(name, {None}).add(state)
            if state is None:
                now.pop(name, None)
            else:
                now[name] = state

        for action in self.actions:
            match action:
                case RemoveFile(name=name):
                    become(name, None)
                case RenameFile(old=old, new=new):
                    state = now.get(old)
                    become(old, None)
                    become(new, state)
                case LinkFile(old=old, new=new):
                    become(new, now.get(old))
                case TruncateFile(name=name, size_bytes=size_bytes):
                    inode, _, _ = now[name]
                    become(name, (inode, size_bytes, _ANY))
                case AppendPart(name=name, position=position, size_bytes=size_bytes, mtime_ns=mtime_ns):
                    inode, _, _ = now[name]
                    become(name, (inode, _ANY, _ANY))  # done in part
                    become(name, (inode, position + size_bytes, mtime_ns))
                case WriteFile(name=name) | CopyPart(name=name) | RestoreFile(name=name):
                    become(name, _state(self.staged[name]))
        return seen, now

    def to_json(self) -> dict[str, Any]:
        """Return this commit as a JSON object."""
        return {
            "folder": self.folder,
            "before": {name: (*_state(stat), stat.ctime_ns) for name, stat in self.before.items()},
            "staged": {name: _state(stat) for name, stat in self.staged.items()},
            "actions": [_action_to_json(action) for action in self.actions],
            **({"contents": dict(self.contents)} if self.contents else {}),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Commit:
        """Return the commit in a JSON object that `to_json` has made.

        Raises:
            JournalError: it is not such an object. Anybody who may write into quarantine may have written it, so a name
                that leads out of its folder is an error.
        """
        try:
            commit = cls(
                folder=plain_name(document["folder"]),
                before={plain_name(name): read_state(state) for name, state in document["before"].items()},
                staged={plain_name(name): read_state(state) for name, state in document["staged"].items()},
                actions=tuple(_action_from_json(action) for action in document["actions"]),
                contents={
                    plain_name(name): str(digest) for name, digest in document.get("contents", {}).items()
                },
            )
            commit._simulated()  # fails unless each action has the file that it works on
            commit.origins()
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise JournalError(
                f"not a commit of this tool ({type(error).__name__}: {error}). Nothing was changed. Remedy: "
                "begin anew with --restart"
            ) from error
        return commit


def plain_name(name: object) -> str:
    """Return *name* if it is a plain file name.

    Raises:
        ValueError: it leads out of its folder.
    """
    if not isinstance(name, str) or name in ("", ".", "..") or "/" in name or "\0" in name:
        raise ValueError(f"{name!r} is not a plain file name")
    return name


def _made_by(action: Action) -> str | None:
    """Return the name under which *action* puts a file that did not have it before."""
    match action:
        case RenameFile(new=name) | LinkFile(new=name):
            return name
        case WriteFile(name=name) | CopyPart(name=name) | RestoreFile(name=name):
            return name
    return None


def _whole_number(value: object, bounds: tuple[int, int]) -> int:
    if type(value) is not int or not bounds[0] <= value <= bounds[1]:
        raise ValueError(f"{value!r} is not a size, position, inode or time")
    return value


def _action_to_json(action: Action) -> dict[str, Any]:
    fields = {
        name: getattr(action, name) for name in action.__dataclass_fields__ if name != "data"
    }  # it is staged
    if isinstance(action, RemoveFile):
        fields["kind"] = action.kind.value
    return {"action": type(action).__name__, **fields}


def _action_from_json(document: Mapping[str, Any]) -> Action:
    fields = dict(document)
    kind = _ACTIONS[fields.pop("action")]
    for key in ("name", "old", "new", "source"):
        if key in fields and not (kind is AppendPart and key == "source" and fields[key] is None):
            plain_name(fields[key])
    for key, bounds in (("position", _SIZES), ("size_bytes", _SIZES), ("mtime_ns", _NUMBERS)):
        is_left_open = kind is WriteFile and key == "mtime_ns" and fields.get(key) is None
        if key in fields and not is_left_open:
            _whole_number(fields[key], bounds)
    if kind is RemoveFile:
        fields["kind"] = RemovalKind(fields["kind"])
    if kind is WriteFile:
        fields["data"] = b""
    action: Action = kind(**fields)
    return action


def _state(stat: FileStat) -> State:
    return stat.inode, stat.size_bytes, stat.mtime_ns


def read_state(state: Iterable[object]) -> FileStat:
    """Return the file that a state in JSON describes. Raises TypeError or ValueError if it is not a state."""
    inode, size_bytes, mtime_ns, *more = (_whole_number(value, _NUMBERS) for value in state)
    return FileStat(inode=inode, size_bytes=size_bytes, mtime_ns=mtime_ns, ctime_ns=more[0] if more else 0)


def _is(stat: FileStat, state: State, by_inode: bool) -> bool:
    pairs = zip(_state(stat), state, strict=True)
    next(pairs) if not by_inode else None
    return all(expected in (_ANY, actual) for actual, expected in pairs)
