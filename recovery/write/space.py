"""Room for what a run writes: what each plan needs, and whether it is there, before anything is touched.

A broker that runs out of space while it recovers empties the segment in hand. Here a partition that does not fit is
refused, and those that are worked on side by side do not count on the same free bytes.
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from recovery.load.model import RemovalKind
from recovery.plan.actions import CopyPart, PartitionPlan, RemoveFile, SaveFile, TruncateFile, WriteFile
from recovery.problem import Problem
from recovery.read.file_system import nearest
from recovery.write.space_share import NOTHING_PROMISED, Promised, SpaceShare

_WAIT_S = 0.2
_SPARE_BYTES = 32 << 10
"""Never promised, once and for each log dir: checkpoints, the hand-off, the head of the journal, cuts not yet told."""
_BYTES_PER_PARTITION = 4 << 10  # what a journal and a manifest say of a partition at least, with its report
_BYTES_PER_SAVE, _BYTES_PER_ACTION, _BYTES_PER_FILE = 1024, 512, 320


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceNeed:
    """What carrying out a plan takes, whole blocks counted.

    Attributes:
        written_bytes: in the log dir, before anything that is replaced or cut gives its space back.
        copied_bytes: in quarantine, of what cannot be a hard link.
        entered_bytes: there, too, in manifest and journal, at most; part of it before anything gives space back.
        linked_bytes: in quarantine where that is on another file system: of the rest, copied there, too.
        returned_bytes: given back when all is done.
    """

    written_bytes: int = 0
    copied_bytes: int = 0
    entered_bytes: int = 0
    linked_bytes: int = 0
    returned_bytes: int = 0


def need_of(plan: PartitionPlan, *, file_count: int = 0, block_bytes: int = 4096) -> SpaceNeed:
    """Return what carrying out *plan* takes. Zeros at the end of a file that is made are a hole.

    Args:
        file_count: of the files in the folder: each is entered.
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
            written -= blocks(action.size_bytes)  # these go first of all
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
    """Return how long the lines of manifest and journal are over a partition, at most: about half of it is usual."""
    counted = _BYTES_PER_SAVE * len(plan.saves) + _BYTES_PER_ACTION * len(plan.actions)
    return _BYTES_PER_PARTITION + counted + _BYTES_PER_FILE * file_count


@dataclass(slots=True)
class _FileSystem:
    """What is promised on one file system."""

    reserved_bytes: int = 0
    spent_bytes: int = 0  # in a dry run, which frees and fills nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """Which file systems a partition and its quarantine are on."""

    block_bytes: int
    device: int
    far_device: int


class SpaceLedger:
    """Who may write how much, over all log dirs of a run. Thread-safe.

    Args:
        dry_run: what one partition would write is not there for the next one.
        log_dir_count: how many log dirs are worked on, by others as well.
        check_stop: raises where the run is to end.
        share: with ledgers in other processes; None where all log dirs are written by this one.
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
        self._layouts: dict[tuple[int, str], _Layout] = {}
        self._held: dict[
            str, list[tuple[int, int, int]]
        ] = {}  # by partition: device, bytes, bytes that come back

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
        """Set space aside for *plan*, until `release`; return why that cannot be.

        Waits for partitions that are being written, where what they give back may do.

        Args:
            partition: path of the folder.
            quarantine: where that is, or will be.
            file_count: of the files in the folder.
            before_waiting: releases all that whoever asks has reserved for others, or sees to it; called once, before
                the first wait. Two that waited for each other's, or one for its own, would wait for ever.
        """
        places = self._places(plan, partition, quarantine, file_count)
        is_on_log_dirs = places[0][0] == os.stat(log_dir).st_dev
        has_let_go = False
        while True:
            with self._changed:
                problems = self._try_to_hold(partition, places)
                if problems is not None:
                    if not problems and is_on_log_dirs:
                        self._needed[log_dir] = self._needed.get(log_dir, self._spare_bytes) + places[0][2]
                    return problems
                if has_let_go:
                    self._check_stop()
                    self._changed.wait(timeout=_WAIT_S)
            if not has_let_go:  # once will do: whoever waits takes nothing else
                before_waiting()
                has_let_go = True

    def _try_to_hold(
        self, partition: str, places: list[tuple[int, str, int, int]]
    ) -> tuple[Problem, ...] | None:
        """Set space aside where there is enough; return why that can never be, None where others may make room."""
        with self._exclusively():
            short = [
                (path, needed + self._spare_bytes, free)
                for device, path, needed, _ in places
                if needed and needed + self._spare_bytes > (free := self._free_bytes(device, path))
            ]
            if not short:
                self._hold(partition, places)
            elif any(self._is_reserved(device) for device, *_ in places):
                return None
        return tuple(_too_little(path, needed, free) for path, needed, free in short)

    def _hold(self, partition: str, places: Iterable[tuple[int, str, int, int]]) -> None:
        self._held[partition] = [(device, needed, returned) for device, _, needed, returned in places]
        for device, needed, _ in self._held[partition]:
            self._systems[device].reserved_bytes += needed
            self._tell_others(device)

    def _exclusively(self) -> AbstractContextManager[object]:
        """Let no other process reserve anything in the block."""
        return nullcontext() if self._share is None else self._share.exclusively()

    def _is_reserved(self, device: int) -> bool:
        others = self._share is not None and self._share.others(device).reserved_bytes > 0
        return others or self._systems[device].reserved_bytes > 0

    def _tell_others(self, device: int) -> None:
        if self._share is not None:
            system = self._systems[device]
            self._share.publish(device, Promised(system.reserved_bytes, system.spent_bytes))

    def release(self, partition: str) -> None:
        """Give back what was set aside for *partition*, if anything was: it is written now, or never will be."""
        with self._changed:
            for device, needed, returned in self._held.pop(partition, ()):
                system = self._systems[device]
                system.reserved_bytes -= needed
                system.spent_bytes += needed - returned if self._dry_run else 0
                self._tell_others(device)
            self._changed.notify_all()

    def needed_bytes(self, log_dir: str) -> int:
        """Return how many bytes all plans so far need on the file system of *log_dir*, one after another, at most."""
        with self._changed:
            return self._needed.get(log_dir, 0)

    def _places(
        self, plan: PartitionPlan, partition: str, quarantine: str, file_count: int
    ) -> list[tuple[int, str, int, int]]:
        """Return (device, a path on it, bytes needed, bytes that come back) for each file system.

        A folder may be on another file system than its log dir: mounted there, or named by a link.
        """
        device = os.stat(partition).st_dev
        known = self._layouts.get((device, quarantine))
        if known is None:  # where quarantine is to be is on the device of what is above it
            known = self._layouts[device, quarantine] = _Layout(
                block_bytes=_block_bytes(partition),
                device=device,
                far_device=os.stat(nearest(quarantine)).st_dev,
            )
        need = need_of(plan, file_count=file_count, block_bytes=known.block_bytes)
        is_one = known.device == known.far_device
        written = need.written_bytes + (need.copied_bytes if is_one else 0)
        given = need.returned_bytes + max(-written, 0)
        if is_one:
            return [(device, partition, max(written, 0) + need.entered_bytes, given)]
        saved = need.copied_bytes + need.linked_bytes + need.entered_bytes
        return [
            (device, partition, max(written, 0), given),
            (known.far_device, nearest(quarantine), saved, 0),
        ]

    def _free_bytes(self, device: int, path: str) -> int:
        system = self._systems[device]
        others = NOTHING_PROMISED if self._share is None else self._share.others(device)
        own = system.reserved_bytes + system.spent_bytes
        return free_bytes(path) - own - others.reserved_bytes - others.spent_bytes


def free_bytes(path: str) -> int:
    """Return how many bytes this user may still write on the file system of *path*.

    Raises:
        OSError: the path cannot be asked.
    """
    found = os.statvfs(path)
    return found.f_frsize * (found.f_bfree if os.geteuid() == 0 else found.f_bavail)


def _block_bytes(path: str) -> int:
    return os.statvfs(path).f_frsize or 4096


def _too_little(path: str, needed: int, free: int) -> Problem:
    return Problem(
        file=path,
        rule=f"needs {needed} bytes for indexes, snapshots and quarantine, {max(free, 0)} free (a 4.x broker that "
        "meets a full disk empties the segment that it recovers)",
        remedy="make room on this file system, or have quarantine on another one (--quarantine-dir)",
    )
