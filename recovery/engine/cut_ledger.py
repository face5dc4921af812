"""Losses not reported yet: what a run has cut or found missing, until a report that says so has been printed.

A run that is killed, or whose report nobody gets, has cut all the same, and the next one finds a sound log. So each
cut is entered in a file of the log dir before it is made, and removed once a run over the log dir has ended and its
report was read. The file is in the log dir and not in quarantine, because the next run may have another quarantine
and no journal. A broker ignores it: LogManager.loadLogs looks only at folders.

    {"version": 1, "partition": "orders-3", "time_ms": 1795267859045, "quarantine": "/data/...", "cuts": [...]}
    {"version": 1, "partition": "orders-3", "is_made": true}

The second line says that the cut was made. Without it, the kill came before or just after the cut, and files that are
still the same, by inode and length, were not cut. Missing offsets (`"holes"`) are entered before the hand-over, after
which the next run reads nothing and would not find them. So is what `--repair` moves away (`"moved"`), which the next
run does not see either.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from threading import Lock
from typing import Any, Final

from recovery.engine.report import (
    CUT_LEDGER,
    EarlierCut,
    EarlierMove,
    FileBefore,
    LogDirReport,
    PartitionReport,
    RecoveryReport,
)
from recovery.errors import LogDirLockedError
from recovery.load.model import Cut, Hole
from recovery.logdir.user import give_to_owner_of
from recovery.logdir.work_lock import WorkLocks
from recovery.plan.actions import TEMPORARY_SUFFIX
from recovery.plan.commit import plain_name
from recovery.read.file_system import is_same, is_there, keeps_inodes, look_at, naming, open_file
from recovery.write.durable import end_of_lines, opened, remove_file, sync, write_fully, write_new
from segfmt.filenames import SWAP_SUFFIX

_VERSION: Final = 1
_MOST_BYTES: Final = 64 << 20
_LATEST_MS: Final = 253_402_300_799_999
"""The end of the year 9999."""
_CUT_FIELDS: Final = {
    "file": str,
    "base_offset": int,
    "position": int,
    "size_bytes": int,
    "batch_count": int,
    "rule": str,
    "reason": str,
    "first_offset": int,
    "last_offset": int,
    "is_scattered": bool,
    "is_followed": bool,
}
_CUT_OF_EARLIER_VERSIONS: Final = {"is_scattered": False, "is_followed": False, "rule": "unknown"}
_HOLE_OF_EARLIER_VERSIONS: Final = {"is_hidden": False, "is_at_end": False}
_BEGINNING: Final = json.dumps({"version": _VERSION})[:-1].encode()
"""Of each line."""
_UNREADABLE: Final = EarlierCut(partition="", time_ms=0, quarantine=None, cuts=(), is_made=True)
_HOLE_FIELDS: Final = {
    "first_offset": int,
    "last_offset": int,
    "before": str,
    "position": int,
    "is_hidden": bool,
    "is_at_end": bool,
}


class CutLedger:
    """The file of one log dir. Thread-safe."""

    def __init__(self, log_dir: str) -> None:
        self._log_dir = log_dir
        self._path = os.path.join(log_dir, CUT_LEDGER)
        self._lock = Lock()
        self._entered: set[tuple[str, str | None, Cut]] | None = None  # once `add` has read the file

    def entries(self) -> tuple[EarlierCut, ...]:
        """Return what is in the file; lines that are not this tool's stand for a cut of which nothing is known.

        A torn last line of its own comes from a run that was killed before it cut anything.

        Raises:
            OSError: it cannot be read.
        """
        return _entries(self._read())

    def settle(self, *, dry_run: bool = False) -> tuple[EarlierCut, ...]:
        """Remove what was entered but not cut before a kill, and return what is left.

        The files tell these apart only until the next run cuts anything.

        Raises:
            OSError: it cannot be read or written, or a file cannot be looked at.
        """
        with self._lock:
            data = self._read()
            entries, entered = _entries(data), _moves(data)
            moves = tuple(move._replace(is_made=True) for move in self._made_of(entered))
            settled = tuple(replace(entry, is_made=True) for entry in _made(self._log_dir, entries))
            if not dry_run and (settled != entries or not settled or moves != entered):
                self._write(settled, moves)
        return settled

    def moves(self) -> tuple[EarlierMove, ...]:
        """Return what repairs have moved away, in their order; not what a kill has left in its place.

        Raises:
            OSError: it cannot be read, or the place of a move cannot be looked at.
        """
        return self._made_of(_moves(self._read()))

    def _made_of(self, entered: Iterable[EarlierMove]) -> tuple[EarlierMove, ...]:
        return tuple(
            move for move in entered if move.is_made or not is_there(os.path.join(self._log_dir, move.path))
        )

    def add_move(self, path: str, reason: str, quarantine: str) -> None:
        """Enter, durably, that *path* of the log dir is about to be moved into the folder of runs *quarantine*.

        Raises:
            OSError: it cannot be written; nothing may be moved then.
        """
        move = EarlierMove(path, reason, time.time_ns() // 1_000_000, quarantine)
        with self._lock:
            self._append(_move_line(move))

    def note_moved(self, path: str) -> None:
        """Enter that *path* was moved; without this, what is at *path* shows it.

        Raises:
            OSError: it cannot be written.
        """
        with self._lock:
            self._append(_to_line({"moved": path, "is_made": True}), is_waited_for=False)

    def forget_moves(self, paths: Collection[str]) -> None:
        """Remove the entries of what was moved away from *paths*, durably: it was moved back, or reported.

        Raises:
            OSError: it cannot be written; they may be reported again.
        """
        with self._lock:
            moves = self.moves()
            kept = [move for move in moves if move.path not in paths]
            if len(kept) < len(moves):
                self._write(self.entries(), kept)

    def add(self, report: PartitionReport) -> None:
        """Enter what a partition's recovery is about to cut, durably, unless it has been entered.

        Raises:
            OSError: it cannot be written; nothing may be cut then.
        """
        if not report.losses:
            return
        folder, quarantine = report.folder, _run_folder(report)
        with self._lock:
            if self._entered is None:
                self._entered = {
                    (entry.partition, entry.quarantine, cut) for entry in self.entries() for cut in entry.cuts
                }
            cuts = tuple(cut for cut in report.losses if (folder, quarantine, cut) not in self._entered)
            if cuts:
                before = _files_of(cuts, os.path.join(self._log_dir, folder))
                self._append(_line(_entry(folder, quarantine, cuts=cuts, before=before)))
                self._entered.update((folder, quarantine, cut) for cut in cuts)

    def add_holes(self, reports: Iterable[PartitionReport], quarantine: str | None) -> None:
        """Enter what is missing in partitions of a log dir that is about to be handed over, unless it has been entered.

        Args:
            quarantine: the folder of this run, None if it saved nothing; an `undo` removes the run's entries by it.

        Raises:
            OSError: it cannot be written; the log dir may not be handed over then.
        """
        with self._lock:
            entered = {(entry.partition, hole) for entry in self.entries() for hole in entry.holes}
            for report in reports:
                holes = tuple(hole for hole in report.holes if (report.folder, hole) not in entered)
                if holes:
                    self._append(_line(_entry(report.folder, quarantine, holes=holes)))

    def note_made(self, report: PartitionReport) -> None:
        """Enter that what a partition's recovery was about to cut has been cut.

        It need not be on disk when this returns: without it, the files show the cut.

        Raises:
            OSError: it cannot be written.
        """
        if report.losses:
            with self._lock:
                self._append(_to_line({"partition": report.folder, "is_made": True}), is_waited_for=False)

    def forget(self, gone: Iterable[EarlierCut]) -> None:
        """Remove entries, durably, and the file with the last of them.

        Raises:
            OSError: it cannot be written; they may be reported again.
        """
        with self._lock:
            entries, forgotten = self.entries(), set(gone)
            kept = [entry for entry in entries if entry not in forgotten]
            if len(kept) < len(entries) or not kept:
                self._write(kept, self.moves())

    def _write(self, entries: Collection[EarlierCut], moves: Collection[EarlierMove]) -> None:
        """Write this to the file; if there is nothing, remove it, and any half-made copy that a kill has left."""
        self._entered = None
        temporary = self._path + TEMPORARY_SUFFIX
        if entries or moves:
            lines = [*map(_line, entries), *(_move_line(move._replace(is_made=True)) for move in moves)]
            write_new(temporary, b"".join(lines), like=self._path)
            sync(temporary)
            os.rename(temporary, self._path)
            sync(self._log_dir)
        elif is_there(self._path) or is_there(temporary):
            remove_file(self._path)
            remove_file(temporary)
            sync(self._log_dir)

    def _append(self, line: bytes, *, is_waited_for: bool = True) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
        with opened(self._path, flags, 0o640) as descriptor:
            size_bytes = os.fstat(descriptor).st_size
            if size_bytes == 0:
                give_to_owner_of(self._log_dir, self._path, descriptor)
            whole_bytes = end_of_lines(descriptor, size_bytes)
            if whole_bytes < size_bytes:  # a kill may have torn the last line
                os.ftruncate(descriptor, whole_bytes)
            write_fully(descriptor, line)
            if is_waited_for:
                os.fsync(descriptor)
        if size_bytes == 0:
            sync(self._log_dir)

    def _read(self) -> bytes:
        try:
            descriptor = open_file(self._path, os.O_RDONLY | os.O_NOFOLLOW)
        except FileNotFoundError:
            return b""
        with naming(self._path), open(descriptor, "rb") as file:
            return file.read(_MOST_BYTES)


def untold(entries: Collection[EarlierCut], partitions: Iterable[PartitionReport]) -> tuple[EarlierCut, ...]:
    """Return the losses in *entries* that the reports of this run do not mention.

    A run that resumes one that was killed also reports what that one has cut. A run with a quarantine of its own has
    made its cuts itself, even one that equals an earlier one: a broker ran in between.
    """
    reports = {report.folder: report for report in partitions}

    def is_untold(entry: EarlierCut, loss: Cut | Hole) -> bool:
        report = reports.get(entry.partition)
        if report is None:
            return True
        if isinstance(loss, Hole):
            return loss not in report.holes
        return loss not in report.cuts or not _is_same_run(entry.quarantine, _run_folder(report))

    return _each_with(entries, is_untold)


def _run_folder(report: PartitionReport) -> str | None:
    """Return the folder of the run that has saved what was cut from a partition, None if nothing was saved."""
    return os.path.dirname(os.path.dirname(report.quarantined[0])) if report.quarantined else None


def _is_same_run(folder: str | None, other_folder: str | None) -> bool:
    return folder == other_folder or (
        folder is not None and other_folder is not None and is_same(folder, other_folder)
    )


def _made(log_dir: str, entries: Collection[EarlierCut]) -> tuple[EarlierCut, ...]:
    """Return the losses in *entries* that are real: what was cut, and what was missing.

    Raises:
        OSError: a file cannot be looked at.
    """
    return _each_with(entries, lambda entry, loss: entry.is_made or not _is_as_before(log_dir, entry, loss))


def _each_with(
    entries: Collection[EarlierCut], keeps: Callable[[EarlierCut, Cut | Hole], bool]
) -> tuple[EarlierCut, ...]:
    """Return *entries* with only the losses kept, without those that lose all of them; an entry of no loss stays."""
    reduced = (
        replace(
            entry,
            cuts=tuple(cut for cut in entry.cuts if keeps(entry, cut)),
            holes=tuple(hole for hole in entry.holes if keeps(entry, hole)),
        )
        for entry in entries
    )
    return tuple(
        entry
        for entry, before in zip(reduced, entries, strict=True)
        if entry.cuts or entry.holes or not (before.cuts or before.holes)
    )


def _is_as_before(log_dir: str, entry: EarlierCut, loss: Cut | Hole) -> bool:
    """Whether the file is there as it was before the cut: a `.swap` may be live under its new name."""
    if isinstance(loss, Hole):
        return False
    file_before = {before.file: before for before in entry.before}.get(loss.file)
    if file_before is None:
        if loss.is_scattered:
            return False  # from a version that did not enter it
        file_before = FileBefore(loss.file, loss.position + loss.size_bytes)
    names = {loss.file, loss.file.removesuffix(SWAP_SUFFIX)}
    stats = (look_at(os.path.join(log_dir, entry.partition, name)) for name in names)
    return any(
        stat is not None
        and stat.st_size == file_before.size_bytes
        and file_before.inode in (None, stat.st_ino)
        for stat in stats
    )


def _files_of(cuts: Collection[Cut], folder: str) -> tuple[FileBefore, ...]:
    """Return the files that are about to be cut, as they are now."""
    has_inodes = keeps_inodes(folder)
    stats = {cut.file: look_at(os.path.join(folder, cut.file)) for cut in cuts}
    return tuple(
        FileBefore(file, stat.st_size, stat.st_ino if has_inodes else None)
        for file, stat in stats.items()
        if stat is not None
    )


def untold_in(log_dir: str) -> tuple[EarlierCut, ...]:
    """Return what the ledger of a log dir holds, as far as it can be read: the dir is going offline anyway."""
    with contextlib.suppress(OSError):
        return CutLedger(log_dir).settle(dry_run=True)
    return ()


def cuts_of_run(log_dir: str, run_folder: str | None) -> dict[str, tuple[Cut, ...]]:
    """Return what the run with the folder *run_folder* in quarantine has cut, by partition, as `untold_in`."""
    cuts: dict[str, tuple[Cut, ...]] = {}
    for entry in untold_in(log_dir) if run_folder is not None else ():
        if _is_same_run(entry.quarantine, run_folder):
            cuts[entry.partition] = (*cuts.get(entry.partition, ()), *entry.cuts)
    return cuts


def acknowledge(report: RecoveryReport, *, is_locked: bool = False) -> None:
    """Note that *report* has been read: the cuts in log dirs whose recovery has ended need not be reported again.

    If another process is at work there by now, or nothing can be written, they are reported once more.

    Args:
        is_locked: whether the caller holds the log dirs.
    """
    if report.dry_run or report.signal_exit_code is not None:
        return
    for log_dir in report.log_dirs:
        if log_dir.status in ("unchanged", "recovered", "partial"):
            lock = contextlib.nullcontext() if is_locked else WorkLocks((log_dir.log_dir,))
            with contextlib.suppress(OSError, LogDirLockedError), lock:
                _forget_told(log_dir)


def _forget_told(report: LogDirReport) -> None:
    ledger = CutLedger(report.log_dir)
    entries = ledger.entries()
    reported = {_key(entry) for entry in report.earlier_cuts}
    unreported = {
        _key(entry) for entry in _made(report.log_dir, untold(entries, report.partitions))
    } - reported
    told = {*report.repairs, *(note.text for note in report.notes)}
    ledger.forget_moves([move.path for move in ledger.moves() if told & {str(move), move.line}])
    ledger.forget(entry for entry in entries if _key(entry) not in unreported)


def _key(entry: EarlierCut) -> tuple[str, int, str | None]:
    return entry.partition, entry.time_ms, entry.quarantine


def forget_run(log_dir: str, root: str, run: str) -> None:
    """Forget the losses of the run *run* whose quarantine is in the folder *root*: they have been taken back.

    Two runs with quarantine in two places may have begun in the same second.
    """
    ledger = CutLedger(log_dir)
    ledger.forget(
        entry for entry in ledger.entries() if entry.quarantine and _is_of(entry.quarantine, root, run)
    )


def _is_of(quarantine: str, root: str, run: str) -> bool:
    """Whether *quarantine* is the folder *run* in *root*, by whatever name, or one that was moved to *root* since."""
    parent, name = os.path.split(quarantine)
    return name == run and (parent == root or is_same(parent, root) or not is_there(parent))


def _entry(
    folder: str,
    quarantine: str | None,
    *,
    cuts: tuple[Cut, ...] = (),
    holes: tuple[Hole, ...] = (),
    before: tuple[FileBefore, ...] = (),
) -> EarlierCut:
    """Return an entry with the present time."""
    return EarlierCut(
        partition=folder,
        time_ms=time.time_ns() // 1_000_000,
        quarantine=quarantine,
        cuts=cuts,
        holes=holes,
        is_made=not cuts,
        before=before,
    )


def _line(entry: EarlierCut) -> bytes:
    return _to_line(
        {
            "partition": entry.partition,
            "time_ms": entry.time_ms,
            "quarantine": entry.quarantine,
            "cuts": [{name: getattr(cut, name) for name in _CUT_FIELDS} for cut in entry.cuts],
            "holes": [{name: getattr(hole, name) for name in _HOLE_FIELDS} for hole in entry.holes],
            "is_made": entry.is_made,
            "before": [list(before) for before in entry.before],
        }
    )


def _move_line(move: EarlierMove) -> bytes:
    return _to_line(
        {
            "moved": move.path,
            "reason": move.reason,
            "time_ms": move.time_ms,
            "quarantine": move.quarantine,
            "is_made": move.is_made,
        }
    )


def _moves(data: bytes) -> tuple[EarlierMove, ...]:
    """Return what is entered as moved; an unreadable line counts as a cut, not as a move."""
    moves: list[EarlierMove] = []
    for line in data.split(b"\n")[:-1]:
        with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
            document = json.loads(line)
            path, is_made = _read_path(document["moved"]), document["is_made"] is True
            if "time_ms" in document:
                moves.append(_read_move(path, document))
            elif is_made:
                moves = [move._replace(is_made=True) if move.path == path else move for move in moves]
    return tuple(moves)


def _read_move(path: str, document: Mapping[str, Any]) -> EarlierMove:
    reason, quarantine = document["reason"], document["quarantine"]
    if not (isinstance(reason, str) and isinstance(quarantine, str)):
        raise TypeError
    return EarlierMove(path, reason, _read_time(document["time_ms"]), quarantine, document["is_made"] is True)


def _read_path(path: object) -> str:
    """Return *path*, which is a file or folder of the log dir, or a file in a folder of it."""
    if not isinstance(path, str) or path.count("/") > 1:
        raise TypeError
    return "/".join(map(plain_name, path.split("/")))


def _read_time(time_ms: object) -> int:
    if type(time_ms) is not int:
        raise TypeError
    if not 0 <= time_ms <= _LATEST_MS:
        raise ValueError(f"{time_ms} ms is not a valid time")
    return time_ms


def _to_line(document: Mapping[str, Any]) -> bytes:
    return json.dumps({"version": _VERSION, **document}).encode() + b"\n"


def _entries(data: bytes) -> tuple[EarlierCut, ...]:
    *lines, torn = data.split(b"\n")
    entries: list[EarlierCut] = []
    places: dict[str, list[int]] = {}  # of those that nothing says are made, by partition
    has_unreadable = not _is_begun(torn)
    for line in lines:
        try:
            document = json.loads(line)
            if "moved" in document:
                _read_path(document["moved"])
                continue
            partition = plain_name(document["partition"])
            if "cuts" in document:
                places.setdefault(partition, []).append(len(entries))
                entries.append(_read_entry(partition, document))
            elif document["is_made"]:
                for place in places.pop(partition, ()):
                    entries[place] = replace(entries[place], is_made=True)
        except (ValueError, KeyError, TypeError, RecursionError):
            has_unreadable = True
    return (*entries, _UNREADABLE) if has_unreadable else tuple(entries)


def _is_begun(torn: bytes) -> bool:
    """Return whether *torn* is as much of a line as a kill lets this tool write, or zeros in place of it."""
    begun = torn.rstrip(b"\0")[: len(_BEGINNING)]
    return _BEGINNING.startswith(begun)


def _read_entry(partition: str, document: Mapping[str, Any]) -> EarlierCut:
    time_ms, quarantine = _read_time(document["time_ms"]), document["quarantine"]
    if not isinstance(quarantine, str | None):
        raise TypeError
    cuts = [_read_loss(_CUT_OF_EARLIER_VERSIONS | cut, _CUT_FIELDS, "file") for cut in document["cuts"]]
    holes = [
        _read_loss(_HOLE_OF_EARLIER_VERSIONS | hole, _HOLE_FIELDS, "before")
        for hole in document.get("holes", ())
    ]
    return EarlierCut(
        partition=partition,
        time_ms=time_ms,
        quarantine=quarantine,
        cuts=tuple(Cut(**cut) for cut in cuts),
        holes=tuple(Hole(**hole) for hole in holes),
        is_made=document.get("is_made") is True,
        before=tuple(_read_before(*fields) for fields in document.get("before", ())),
    )


def _read_before(file: str, size_bytes: int, inode: int | None) -> FileBefore:
    return FileBefore(plain_name(file), int(size_bytes), None if inode is None else int(inode))


def _read_loss(
    document: Mapping[str, Any], fields: Mapping[str, Callable[[Any], Any]], file: str
) -> dict[str, Any]:
    """Return the *fields* of a cut or a hole; the field called *file* is a file name."""
    values = {name: kind(document[name]) for name, kind in fields.items()}
    plain_name(values[file])
    if min(values.get("position", 0), values.get("size_bytes", 0), values.get("batch_count", 0)) < 0:
        raise ValueError(f"{values} is not a loss")
    return values
