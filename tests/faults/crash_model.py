"""What a power loss may leave of a run's calls: a model of a disk behind a cache.

A file's bytes are safe once the file was synced, a name once its folder was. Of the rest nothing is promised: of
a file's unsynced writes and cuts none, some, or parts of them may be there, at any byte or sector, or zeros of
the right length; of the unsynced changes of names any, in order or not. A rename is one change: both names or
neither. (The model is that of ALICE: what POSIX promises, and not what one file system happens to do.)
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.shim import Call, Op

SECTOR_BYTES = 512

Folder = dict[str, int]
"""name -> inode"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Naming:
    """Names that change together."""

    folders: frozenset[int]
    changes: tuple[tuple[int, str, int | None], ...]  # folder, name, inode or None for gone


@dataclass(slots=True, kw_only=True)
class _File:
    """A file's bytes: the safe ones, and what was done since."""

    safe: bytes
    edits: list[tuple[int, bytes | None]] = field(
        default_factory=list
    )  # position, data; None: cut or grown to it


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """What is there after a crash: inodes are those of the run."""

    root: int
    folders: dict[int, Folder]
    files: dict[int, bytes]


class CachedDisk:
    """Folders and files as calls change them, and how much of it is safe."""

    def __init__(self, root: Path) -> None:
        self._root_path = os.fspath(root)
        self._root = os.stat(root).st_ino
        self._safe: dict[int, Folder] = {}
        self._files: dict[int, _File] = {}
        for folder, folder_names, file_names in os.walk(root):
            entries: Folder = {}
            for name in (*folder_names, *file_names):
                path = os.path.join(folder, name)
                entries[name] = os.lstat(path).st_ino
                if name in file_names:
                    self._files[entries[name]] = _File(safe=Path(path).read_bytes())
            self._safe[os.stat(folder).st_ino] = entries
        self._now = {inode: dict(entries) for inode, entries in self._safe.items()}
        self._namings: list[_Naming] = []

    def follow(self, calls: Iterable[Call]) -> None:
        """Let *calls* happen."""
        for call in calls:
            if not call.error and call.result >= 0:
                self._follow(call)

    def _follow(self, call: Call) -> None:
        match call.op:
            case Op.CREATE | Op.OPEN_WRITE:
                if call.is_created:
                    self._files[call.inode] = _File(safe=b"")
                    self._rename([(call.path, call.inode)])
                elif call.is_truncated and call.inode in self._files:
                    self._files[call.inode].edits.append((0, None))
            case Op.WRITE:
                self._files[call.inode].edits.append((call.offset, call.data))
            case Op.TRUNCATE:
                self._files[call.inode].edits.append((call.length, None))
            case Op.SYNC:
                self._sync(call.inode)
            case Op.SYNC_ALL:
                for inode in (*self._files, *self._safe):
                    self._sync(inode)
            case Op.MKDIR:
                self._safe[call.inode], self._now[call.inode] = {}, {}
                self._rename([(call.path, call.inode)])
            case Op.RENAME:
                self._rename([(call.path, None), (call.target, call.inode)])
            case Op.LINK:
                self._rename([(call.target, call.inode)])
            case Op.UNLINK | Op.RMDIR:
                self._rename([(call.path, None)])
            case Op.ALLOCATE | Op.COPY:
                raise ValueError(f"the model knows no {call}")

    def _sync(self, inode: int) -> None:
        if inode in self._files:
            file = self._files[inode]
            file.safe, file.edits = _edited(file.safe, file.edits), []
            return
        for naming in [naming for naming in self._namings if inode in naming.folders]:
            _apply(self._safe, naming)
            self._namings.remove(naming)

    def _rename(self, changes: list[tuple[str, int | None]]) -> None:
        found = [(self._folder_of(path), os.path.basename(path), inode) for path, inode in changes]
        naming = _Naming(folders=frozenset(folder for folder, _, _ in found), changes=tuple(found))
        self._namings.append(naming)
        _apply(self._now, naming)

    def _folder_of(self, path: str) -> int:
        inode = self._root
        for name in os.path.relpath(os.path.dirname(path), self._root_path).split("/"):
            inode = inode if name == "." else self._now[inode][name]
        return inode

    # -- crashes ---------------------------------------------------------------------------------------------

    @property
    def has_unsafe(self) -> bool:
        """Whether a crash now could lose anything."""
        return bool(self._namings) or any(file.edits for file in self._files.values())

    def crash(self, variant: int, rng: random.Random) -> Disk:
        """Return one of the states that a crash may leave: the first ones are the extremes, the rest is drawn."""
        keeps_naming, data_of = _VARIANTS[min(variant, len(_VARIANTS) - 1)]
        folders = {inode: dict(entries) for inode, entries in self._safe.items()}
        count = keeps_naming(len(self._namings), rng)
        for naming, is_kept in zip(self._namings, count, strict=True):
            if is_kept:
                _apply(folders, naming)
        files = {
            inode: data_of(file, rng) if file.edits else file.safe for inode, file in self._files.items()
        }
        return Disk(root=self._root, folders=folders, files=files)


def _apply(folders: dict[int, Folder], naming: _Naming) -> None:
    for folder, name, inode in naming.changes:
        if inode is None:
            folders[folder].pop(name, None)
        else:
            folders[folder][name] = inode


def _edited(data: bytes, edits: Iterable[tuple[int, bytes | None]]) -> bytes:
    edited = bytearray(data)
    for position, written in edits:
        if written is None:
            edited = edited[:position] + bytes(max(0, position - len(edited)))
        else:
            edited += bytes(max(0, position - len(edited)))
            edited[position : position + len(written)] = written
    return bytes(edited)


# -- what is kept of unsynced bytes ----------------------------------------------------------------------------


def _no_edit(file: _File, _rng: random.Random) -> bytes:
    return file.safe


def _every_edit(file: _File, _rng: random.Random) -> bytes:
    return _edited(file.safe, file.edits)


def _zeros(file: _File, _rng: random.Random) -> bytes:
    """The length is there, the new bytes are not."""
    return _edited(file.safe, [(at, data if data is None else bytes(len(data))) for at, data in file.edits])


def _torn(unit_bytes: int) -> Callable[[_File, random.Random], bytes]:
    def torn(file: _File, rng: random.Random) -> bytes:
        """The first edits, the last of them up to a multiple of *unit_bytes*."""
        count = rng.randrange(len(file.edits))
        edits = file.edits[:count]
        position, data = file.edits[count]
        if data:
            edits.append((position, data[: rng.randrange(len(data) // unit_bytes + 1) * unit_bytes]))
        return _edited(file.safe, edits)

    return torn


def _some_sectors(file: _File, rng: random.Random) -> bytes:
    """Every sector for itself: old or new."""
    new = _edited(file.safe, file.edits)
    old = file.safe[: len(new)].ljust(len(new), b"\0")
    return b"".join(
        (old if rng.random() < 0.5 else new)[start : start + SECTOR_BYTES]
        for start in range(0, len(new), SECTOR_BYTES)
    )


def _any_edits(file: _File, rng: random.Random) -> bytes:
    kinds = (_no_edit, _every_edit, _zeros, _torn(1), _torn(SECTOR_BYTES), _some_sectors)
    return rng.choice(kinds)(file, rng)


# -- what is kept of unsynced names ----------------------------------------------------------------------------


def _no_name(count: int, _rng: random.Random) -> list[bool]:
    return [False] * count


def _every_name(count: int, _rng: random.Random) -> list[bool]:
    return [True] * count


def _first_names(count: int, rng: random.Random) -> list[bool]:
    kept = rng.randint(0, count)
    return [number < kept for number in range(count)]


def _any_names(count: int, rng: random.Random) -> list[bool]:
    return [rng.random() < 0.5 for _ in range(count)]


def _last_name(count: int, _rng: random.Random) -> list[bool]:
    return [number == count - 1 for number in range(count)]


_VARIANTS: tuple[
    tuple[Callable[[int, random.Random], list[bool]], Callable[[_File, random.Random], bytes]], ...
] = (
    (_no_name, _no_edit),
    (_every_name, _no_edit),
    (_every_name, _zeros),
    (_no_name, _every_edit),
    (_last_name, _every_edit),
    (_last_name, _no_edit),
    (_first_names, _any_edits),
    (_any_names, _any_edits),
)
VARIANT_COUNT = len(_VARIANTS)
