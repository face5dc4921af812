"""Room for what a run writes: what each plan needs, and whether that is free, before anything is touched.

A broker that runs out of space during recovery empties the segment that it is working on. Here a partition that does
not fit is refused, and partitions that are worked on at the same time do not count on the same free bytes.
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import NamedTuple

from recovery.load.model import RemovalKind
from recovery.plan.actions import CopyPart, PartitionPlan, RemoveFile, SaveFile, TruncateFile, WriteFile
from recovery.problem import Problem
from recovery.read.file_system import nearest
from recovery.write.space_share import NOTHING_PROMISED, Promised, SpaceShare

_WAIT_S = 0.2
_SPARE_BYTES = 32 << 10
"""Kept free, once and for each log dir: for checkpoints, the hand-off, the journal's head, cuts not yet reported."""
_BYTES_PER_PARTITION = 4 << 10  # the least that a journal and a manifest say of a partition, with its report
_BYTES_PER_SAVE, _BYTES_PER_ACTION, _BYTES_PER_FILE = 1024, 512, 320


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceNeed:
    """The space that carrying out a plan takes, in whole blocks.

    Attributes:
        written_bytes: in the log dir, before any space is freed by replacing or cutting.
        copied_bytes: in quarantine, for copies of what cannot be a hard link.
        entered_bytes: in manifest and journal, also in quarantine, at most; part of it before any space is freed.
        linked_bytes: in quarantine, for copies of all else, if that is on another file system.
        returned_bytes: freed once all is done.
    """

    written_bytes: int = 0
    copied_bytes: int = 0
    entered_bytes: int = 0
    linked_bytes: int = 0
    returned_bytes: int = 0


def need_of(plan: PartitionPlan, *, file_count: int = 0, block_bytes: int = 4096) -> SpaceNeed:
    """Return what carrying out *plan* takes. Zeros at the end of a new file are a hole.

    Args:
        file_count: number of files in the folder: each is entered.
    """

    def blocks(size_bytes: int) -> int:
        return -(-size_bytes // block_bytes) * block_bytes

    written = copied = linked = returned = 0
    kept = {save.name for save in plan.saves}
    for save in plan.saves:
        is_linked = isinstance(save, SaveFile) and not save.is_cut
        copied += 0 if is_linked else blocks(save.size_bytes)
        linked += blocks(save.size_bytes) if is_linked else 0
    for action in plan.actions:
        if isinstance(action, WriteFile):
            written += blocks(len(action.data))
        elif isinstance(action, CopyPart):
            written += blocks(action.size_bytes)
        elif (
            isinstance(action, RemoveFile)
            and action.kind is RemovalKind.PENDING_DELETION
            and action.name not in kept
        ):
            written -= blocks(action.size_bytes)  # these are removed first of all
    tails = {save.name: save.size_bytes for save in plan.saves if not isinstance(save, SaveFile)}
    for action in plan.actions:
        if isinstance(action, TruncateFile):
            returned += tails.get(action.name, 0) // block_bytes * block_bytes
    return SpaceNeed(
        written_bytes=written,
        copied_bytes=copied,
        entered_bytes=_entered_bytes(plan, file_count) + (block_bytes if plan.saves else 0),  # and a folder
        linked_bytes=linked,
        returned_bytes=returned,
    )


def _entered_bytes(plan: PartitionPlan, file_count: int) -> int:
    """Return how long the lines of manifest and journal about a partition are at most: about twice the usual."""
    counted = _BYTES_PER_SAVE * len(plan.saves) + _BYTES_PER_ACTION * len(plan.actions)
    return _BYTES_PER_PARTITION + counted + _BYTES_PER_FILE * file_count


@dataclass(slots=True)
class _FileSystem:
    """What is reserved and spent on one file system."""

    reserved_bytes: int = 0
    spent_bytes: int = 0  # in a dry run, which frees and fills nothing


class QuarantineRoom(NamedTuple):
    """What is needed at most in a quarantine on another file system, and was free there before; bytes."""

    needed_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """Which file systems a partition and its quarantine are on."""

    block_bytes: int
    device: int
    far_device: int


class SpaceLedger:
    """Who may write how much, over all log dirs of a run. Thread-safe.

    Args:
        dry_run: whether nothing is written: then the space that a partition would take counts as spent.
        log_dir_count: how many log dirs are worked on, including those of other processes.
        check_stop: raises if the run is to end.
        share: connects ledgers in other processes; None if this process writes all log dirs.
    """

    def __init__(
        self,
        *,
        dry_run: bool,
        log_dir_count: int = 1,
        check_stop: Callable[[], None] = lambda: None,
        share: SpaceShare | None = None,
    ) -> None:
        self._dry_run = dry_run
        self._spare_bytes = _SPARE_BYTES * (1 + log_dir_count)
        self._check_stop = check_stop
        self._share = share
        self._changed = threading.Condition()
        self._systems: defaultdict[int, _FileSystem] = defaultdict(_FileSystem)
        self._needed: dict[str, int] = {}
        self._in_quarantine: dict[str, QuarantineRoom] = {}
        self._layouts: dict[tuple[int, str], _Layout] = {}
        self._held: dict[
            str, list[tuple[int, int, int]]
        ] = {}  # by partition: device, bytes needed, bytes that are freed again

    def reserve(
        self,
        partition: str,
        plan: PartitionPlan,
        *,
        log_dir: str,
        quarantine: str,
        file_count: int = 0,
        before_waiting: Callable[[], None] = lambda: None,
    ) -> tuple[Problem, ...]:
        """Set space aside for *plan*, until `release`; return the problems if that cannot be done.

        Waits for partitions that are being written if the space that they free may be enough.

        Args:
            partition: path of the folder.
            quarantine: path of its quarantine, which need not exist yet.
            file_count: number of files in the folder.
            before_waiting: has everything released that the caller has reserved for other partitions; called once,
                before the first wait. Otherwise callers could wait for each other, or for themselves, for ever.
        """
        needs = self._needs(plan, partition, quarantine, file_count)
        is_on_log_dirs = needs[0][0] == os.stat(log_dir).st_dev
        has_let_go = False
        while True:
            with self._changed:
                problems = self._try_to_hold(partition, needs)
                if problems is not None:
                    if is_on_log_dirs:
                        self._needed[log_dir] = self._needed.get(log_dir, self._spare_bytes) + needs[0][2]
                    for _, path, needed, _ in needs[1:]:
                        self._note_quarantine(log_dir, path, needed)
                    return problems
                if has_let_go:
                    self._check_stop()
                    self._changed.wait(timeout=_WAIT_S)
            if not has_let_go:  # once is enough: a caller that waits reserves nothing else
                before_waiting()
                has_let_go = True

    def _note_quarantine(self, log_dir: str, path: str, needed: int) -> None:
        before = self._in_quarantine.get(log_dir) or QuarantineRoom(self._spare_bytes, free_bytes(path))
        self._in_quarantine[log_dir] = QuarantineRoom(before.needed_bytes + needed, before.free_bytes)

    def _try_to_hold(
        self, partition: str, needs: list[tuple[int, str, int, int]]
    ) -> tuple[Problem, ...] | None:
        """Set space aside if there is enough; return why there never can be, None if others may make room."""
        with self._exclusively():
            short = [
                (path, needed + self._spare_bytes, free)
                for device, path, needed, _ in needs
                if needed and needed + self._spare_bytes > (free := self._free_bytes(device, path))
            ]
            if not short:
                self._hold(partition, needs)
            elif any(self._is_reserved(device) for device, *_ in needs):
                return None
        return tuple(
            _too_little(path, needed, free, is_alone=len(needs) > 1)
            if path == partition
            else _too_little_beside(path, needed, free)
            for path, needed, free in short
        )

    def _hold(self, partition: str, needs: Iterable[tuple[int, str, int, int]]) -> None:
        self._held[partition] = [(device, needed, returned) for device, _, needed, returned in needs]
        for device, needed, _ in self._held[partition]:
            self._systems[device].reserved_bytes += needed
            self._tell_others(device)

    def _exclusively(self) -> AbstractContextManager[object]:
        """Let no other process reserve anything during the `with` block."""
        return nullcontext() if self._share is None else self._share.exclusively()

    def _is_reserved(self, device: int) -> bool:
        is_reserved_by_others = self._share is not None and self._share.others(device).reserved_bytes > 0
        return is_reserved_by_others or self._systems[device].reserved_bytes > 0

    def _tell_others(self, device: int) -> None:
        if self._share is not None:
            system = self._systems[device]
            self._share.publish(device, Promised(system.reserved_bytes, system.spent_bytes))

    def release(self, partition: str) -> None:
        """Release what was set aside for *partition*, if anything was: it is written by now, or never will be."""
        with self._changed:
            for device, needed, returned in self._held.pop(partition, ()):
                system = self._systems[device]
                system.reserved_bytes -= needed
                system.spent_bytes += needed - returned if self._dry_run else 0
                self._tell_others(device)
            self._changed.notify_all()

    def needed_bytes(self, log_dir: str) -> int:
        """Return how many bytes all plans so far, refused ones too, need at most on the file system of *log_dir*."""
        with self._changed:
            return self._needed.get(log_dir, 0)

    def quarantine_room(self, log_dir: str) -> QuarantineRoom:
        """Return the same for the quarantine of *log_dir*; nothing needed if it is on the same file system."""
        with self._changed:
            return self._in_quarantine.get(log_dir, QuarantineRoom(0, 0))

    def _needs(
        self, plan: PartitionPlan, partition: str, quarantine: str, file_count: int
    ) -> list[tuple[int, str, int, int]]:
        """Return (device, a path on it, bytes needed, bytes that are freed again) for each file system.

        A folder may be on another file system than its log dir: mounted there, or named by a link.
        """
        device = os.stat(partition).st_dev
        layout = self._layouts.get((device, quarantine))
        # A quarantine that does not exist yet will be on the device of the folder above it
        if layout is None:
            layout = self._layouts[device, quarantine] = _Layout(
                block_bytes=_block_bytes(partition),
                device=device,
                far_device=os.stat(nearest(quarantine)).st_dev,
            )
        need = need_of(plan, file_count=file_count, block_bytes=layout.block_bytes)
        is_one = layout.device == layout.far_device
        written = need.written_bytes + (need.copied_bytes if is_one else 0)
        freed = need.returned_bytes + max(-written, 0)
        if is_one:
            return [(device, partition, max(written, 0) + need.entered_bytes, freed)]
        saved = need.copied_bytes + need.linked_bytes + need.entered_bytes
        return [
            (device, partition, max(written, 0), freed),
            (layout.far_device, nearest(quarantine), saved, 0),
        ]

    def _free_bytes(self, device: int, path: str) -> int:
        system = self._systems[device]
        by_others = NOTHING_PROMISED if self._share is None else self._share.others(device)
        own = system.reserved_bytes + system.spent_bytes
        return free_bytes(path) - own - by_others.reserved_bytes - by_others.spent_bytes


def free_bytes(path: str) -> int:
    """Return how many bytes this user may still write on the file system of *path*.

    Raises:
        OSError: statvfs(3) failed.
    """
    status = os.statvfs(path)
    return status.f_frsize * (status.f_bfree if os.geteuid() == 0 else status.f_bavail)


def _block_bytes(path: str) -> int:
    return os.statvfs(path).f_frsize or 4096


def _too_little(path: str, needed: int, free: int, *, is_alone: bool) -> Problem:
    """Return the problem of a log dir's file system; *is_alone*: quarantine lies on another one."""
    what = "indexes and snapshots" if is_alone else "indexes, snapshots and quarantine"
    return Problem(
        file=path,
        rule="space",
        detail=f"needs {needed:,} bytes for {what}, {max(free, 0):,} free (a 4.x broker that meets a full disk "
        "empties the segment that it recovers)",
        remedy="make room on this file system"
        + ("" if is_alone else ", or put quarantine on another one (--quarantine-dir)"),
    )


def _too_little_beside(path: str, needed: int, free: int) -> Problem:
    """Return the problem of quarantine with a file system of its own, which the log dir's says nothing of."""
    return Problem(
        file=path,
        rule="space",
        detail=f"quarantine needs {needed:,} bytes on the file system of {path}, {max(free, 0):,} free",
        remedy="make room there, or put quarantine on another one (--quarantine-dir)",
    )
