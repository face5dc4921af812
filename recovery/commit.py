"""The point of no return of one folder: what it was, what is to be done to it, and what lies ready for that.

A plan is carried out in three steps: what it makes is staged beside its place, a `Commit` is entered in the journal,
the actions are published. Killed before the commit, the folder is as it was. Killed behind it, the actions that are
not done yet are done: each file is known by its inode, so that it shows which ones those are.

`explain` tells whether a folder is in a state that this commit can have left, or whether somebody else was at work.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recovery.actions import (
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
from recovery.errors import JournalError
from recovery.model import FileStat, RemovalKind
from segfmt.filenames import DELETED_SUFFIX
from segfmt.value_class import dataclass

_ANY = -1
_ACTIONS: dict[str, type[Any]] = {
    one.__name__: one
    for one in (
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
"""What a file is known by: inode, size in bytes, mtime in ns; -1 for any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A plan that is to be carried out whatever happens.

    Attributes:
        folder: name of the partition's folder; the log dir's own files have `actions.LOG_DIR_ITSELF`.
        before: the files as they were, by name.
        staged: what lies ready under its temporary name, by last name.
        actions: in order.
    """

    folder: str
    before: Mapping[str, FileStat]
    staged: Mapping[str, FileStat]
    actions: tuple[Action, ...]

    def explain(self, found: Mapping[str, FileStat]) -> str | None:
        """Return the name of a file in *found* that no step of this commit can have left, None where there is none.

        A `.deleted` file may be gone: quarantine has it.
        """
        for name, made in self.staged.items():
            if made not in (found.get(name), found.get(name + TEMPORARY_SUFFIX)):
                return name
        allowed = self._allowed()
        for name in sorted(found.keys() | allowed.keys()):
            if name.endswith(TEMPORARY_SUFFIX) and name not in self.before:
                continue
            states = allowed.get(name, {None})
            stat = found.get(name)
            if stat is None:
                if None not in states and not name.endswith(DELETED_SUFFIX):
                    return name
            elif not any(state is not None and _is(stat, state) for state in states):
                return name
        return None

    def is_published(self, found: Mapping[str, FileStat]) -> bool:
        """Return whether *found* is the folder with all actions done."""
        last = self._simulated()[1]
        names = {name for name in found if not (name.endswith(TEMPORARY_SUFFIX) and name not in self.before)}
        return names <= last.keys() and all(
            (name in found and _is(found[name], state))
            or (name not in found and name.endswith(DELETED_SUFFIX))
            for name, state in last.items()
        )

    def published_files(self) -> dict[str, FileStat] | None:
        """Return the folder with all actions done; None where the disk alone knows."""
        last = self._simulated()[1]
        known = {name: _stat(state) for name, state in last.items() if _ANY not in state}
        return known if len(known) == len(last) else None

    @property
    def made(self) -> frozenset[str]:
        """The names under which the actions put a file."""
        return frozenset(
            action.new if isinstance(action, RenameFile | LinkFile) else action.name
            for action in self.actions
            if not isinstance(action, RemoveFile)
        )

    def _allowed(self) -> dict[str, set[State | None]]:
        return self._simulated()[0]

    def _simulated(self) -> tuple[dict[str, set[State | None]], dict[str, State]]:
        """Return the states that each name goes through (None: not there), and the last ones."""
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
                case AppendPart(name=name):
                    inode, _, _ = now[name]
                    become(name, (inode, _ANY, _ANY))
                case WriteFile(name=name) | CopyPart(name=name) | RestoreFile(name=name):
                    become(name, _state(self.staged[name]))
        return seen, now

    def to_json(self) -> dict[str, Any]:
        """Return this commit as a JSON object."""
        return {
            "folder": self.folder,
            "before": {name: _state(stat) for name, stat in self.before.items()},
            "staged": {name: _state(stat) for name, stat in self.staged.items()},
            "actions": [_action_to_json(action) for action in self.actions],
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Commit:
        """Return the commit in a JSON object that `to_json` has made.

        Raises:
            JournalError: it has not. Whoever may write into quarantine may have written it, so no name in it leads out
                of its folder.
        """
        try:
            commit = cls(
                folder=plain_name(document["folder"]),
                before={plain_name(name): _stat(state) for name, state in document["before"].items()},
                staged={plain_name(name): _stat(state) for name, state in document["staged"].items()},
                actions=tuple(_action_from_json(action) for action in document["actions"]),
            )
            commit.explain({})
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise JournalError(
                f"not a commit of this tool ({type(error).__name__}: {error}). Nothing was changed. Remedy: "
                "begin anew with --restart"
            ) from error
        return commit


def plain_name(name: object) -> str:
    """Return *name* if it is that of a file in a folder.

    Raises:
        ValueError: it leads elsewhere.
    """
    if not isinstance(name, str) or name in ("", ".", "..") or "/" in name or "\0" in name:
        raise ValueError(f"{name!r} is no name of a file in a folder")
    return name


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
    for key in ("name", "old", "new"):
        if key in fields:
            plain_name(fields[key])
    if kind is CopyPart:
        plain_name(fields["source"])
    if kind is RemoveFile:
        fields["kind"] = RemovalKind(fields["kind"])
    if kind is WriteFile:
        fields["data"] = b""
    action: Action = kind(**fields)
    return action


def _state(stat: FileStat) -> State:
    return stat.inode, stat.size_bytes, stat.mtime_ns


def _stat(state: State) -> FileStat:
    inode, size_bytes, mtime_ns = state
    return FileStat(inode=inode, size_bytes=size_bytes, mtime_ns=mtime_ns)


def _is(stat: FileStat, state: State) -> bool:
    return all(wanted in (_ANY, found) for found, wanted in zip(_state(stat), state, strict=True))
