"""What can be done to a partition's folder, and what is saved before that: the parts that a plan is made of.

An action is a value: `apply` carries it out, `commit` follows names and inodes through it, reports describe it.
"""

from __future__ import annotations

from dataclasses import dataclass

from recovery.load.model import Blob, RemovalKind
from segfmt.filenames import CLEAN_SHUTDOWN_FILE, FileKind, file_kind

TEMPORARY_SUFFIX = ".recovery-tmp"
LOG_DIR_ITSELF = "log-dir"
"""Stands for the log dir's own files in place of a partition's folder; no such folder can have this name."""

INDEX_KINDS = frozenset({FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX})
DERIVED_KINDS = INDEX_KINDS | {FileKind.SNAPSHOT}
_LEFTOVER_SUFFIXES = (".deleted", ".cleaned", ".swap")


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveFile:
    """Put a file into quarantine, by a hard link or a synced copy.

    Attributes:
        is_cut: whether the file itself is cut afterwards; a hard link would be cut with it.
        is_derived: whether the log rebuilds it, so that nothing is lost; `undo` puts it back.
        first_offset, last_offset: of the batches that are lost with it; -1 if not known.
        rule: of the cut or the problem, empty if there is none.
    """

    name: str
    size_bytes: int
    reason: str
    is_cut: bool = False
    is_derived: bool = False
    first_offset: int = -1
    last_offset: int = -1
    rule: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveTail:
    """Copy the bytes of a file from *position* on into quarantine.

    Attributes:
        is_derived, first_offset, last_offset, rule: as of `SaveFile`.
    """

    name: str
    position: int
    size_bytes: int
    reason: str
    is_derived: bool = False
    first_offset: int = -1
    last_offset: int = -1
    rule: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveFile:
    """Unlink a file."""

    name: str
    size_bytes: int
    kind: RemovalKind


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameFile:
    """Give a file another name; a file that had that name is gone."""

    old: str
    new: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkFile:
    """Give a file a second name."""

    old: str
    new: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyPart:
    """Write a whole file: a copy of *size_bytes* of *source* from *position* on.

    Attributes:
        source: by its first name, since the copy is staged before any file is renamed.
    """

    source: str
    name: str
    position: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncateFile:
    """Cut a file to *size_bytes*."""

    name: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteFile:
    """Write a whole file: *data*, followed by zeros up to *size_bytes*.

    Attributes:
        mtime_ns: its modification time afterwards; None for the present time.
    """

    name: str
    data: Blob
    size_bytes: int
    mtime_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreFile:
    """Put a file back from quarantine, by a hard link or a copy.

    Attributes:
        source: its name there, in the run's folder for the same partition.
    """

    source: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendPart:
    """Append a tail that was cut off to its file again.

    Attributes:
        source: name of the tail in quarantine, as of `RestoreFile`; None if it was nothing but zeros.
        position: where it belongs.
        mtime_ns: the file's modification time before the cut.
    """

    source: str | None
    name: str
    position: int
    size_bytes: int
    mtime_ns: int


Save = SaveFile | SaveTail
Action = RemoveFile | RenameFile | LinkFile | CopyPart | TruncateFile | WriteFile | RestoreFile | AppendPart


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlan:
    """What to do in one partition's folder.

    Attributes:
        saves: what goes into quarantine, all of it before the first action.
        actions: in order.
    """

    folder: str
    saves: tuple[Save, ...]
    actions: tuple[Action, ...]

    @property
    def is_empty(self) -> bool:
        """Whether the folder is already as it should be."""
        return not self.saves and not self.actions


def is_derived(name: str) -> bool:
    """Whether *name* is an index or a snapshot, in any stage of its life: the log rebuilds it."""
    for suffix in _LEFTOVER_SUFFIXES:
        name = name.removesuffix(suffix)
    return file_kind(name) in DERIVED_KINDS


def seals_segment(name: str) -> bool:
    """Whether *name*, once it is there, tells a broker that what it belongs to is sound."""
    return file_kind(name) in (FileKind.OFFSET_INDEX, FileKind.TXN_INDEX) or name == CLEAN_SHUTDOWN_FILE


def action_words(action: Action) -> str:
    """Return an action as one line of the report."""
    match action:
        case RenameFile(old=old, new=new):
            return f"rename {old} to {new}"
        case RemoveFile(name=name, size_bytes=size_bytes, kind=kind):
            return f"remove {name} ({size_bytes:,} bytes, {kind.value})"
        case LinkFile(old=old, new=new):
            return f"link {old} to {new}"
        case CopyPart(source=source, name=name, position=position, size_bytes=size_bytes):
            return f"copy {size_bytes:,} bytes of {source} from byte {position:,} to {name}"
        case TruncateFile(name=name, size_bytes=size_bytes):
            return f"truncate {name} to {size_bytes:,} bytes"
        case RestoreFile(source=source, name=name):
            return f"restore {name} from {source} in quarantine"
        case AppendPart(source=source, name=name, position=position, size_bytes=size_bytes):
            origin = "zeros" if source is None else f"from {source} in quarantine"
            return f"append {size_bytes:,} bytes to {name} at byte {position:,}, {origin}"
    return f"write {action.name} ({action.size_bytes:,} bytes)"
