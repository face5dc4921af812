"""Power losses: the run is stopped at a call, the disk put into a state that a crash may leave, the run repeated.

A point is `kill-before@17/3`: stopped there, variant 3 of what the disk has kept.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterable
from pathlib import Path

from tests.brokers import Oracle
from tests.faults.bench import StateBench
from tests.faults.crash_model import VARIANT_COUNT, CachedDisk, Disk
from tests.faults.kills import BrokerEnd, broker_problems
from tests.faults.shim import Action, Call, Fault, Op

_BARRIERS = frozenset({Op.SYNC, Op.SYNC_ALL, Op.RENAME, Op.LINK, Op.UNLINK, Op.TRUNCATE})


def crash_points(calls: Iterable[Call], *, draws: int = 3) -> list[tuple[Fault, int]]:
    """Before each sync, and after each change that a later step may rely on: all extremes and *draws* drawn ones."""
    points = []
    for call in calls:
        if call.op in _BARRIERS and not call.error:
            action = Action.KILL_BEFORE if call.op in (Op.SYNC, Op.SYNC_ALL) else Action.KILL_AFTER
            points += [
                (Fault(action=action, at=call.number), variant) for variant in range(VARIANT_COUNT + draws)
            ]
    return points


def parse_point(point: str) -> tuple[Fault, int]:
    """Return the point that is called *point*."""
    fault, _, variant = point.rpartition("/")
    return Fault.parse(fault), int(variant)


def crash(bench: StateBench, fault: Fault, variant: int, *, command: str = "recover") -> str | None:
    """Leave on the bench what a crash at *fault* may leave; return words for the call, None where all was safe.

    Args:
        command: what is stopped: a recovery, or the `undo` of one.
    """
    bench.fresh()
    if command == "undo":
        bench.run()
    disk = CachedDisk(bench.work)
    pool = _Pool(bench.work.with_name("pool"))
    pool.keep_all(bench.work)
    ended = bench.run(fault, command=command, trace=True, with_data=True)
    if not ended.is_killed:
        return None
    calls = bench.last_calls()
    disk.follow(calls)
    if not disk.has_unsafe:
        return None
    pool.keep_all(bench.work)
    _put(disk.crash(variant, random.Random(f"{bench.state.name} {fault} {variant}")), bench.work, pool)
    pool.drop()
    bench.changed()
    return ended.hit


def check_crash(bench: StateBench, fault: Fault, variant: int) -> list[str] | None:
    """Crash, look, run once more, look again, take all back; return what is wrong, None where nothing was unsafe."""
    hit = crash(bench, fault, variant)
    if hit is None:
        return None
    problems = (
        bench.losses() or bench.rerun_problems(bench.over(), is_crash=True) or bench.all_undone_problems()
    )
    return [f"crashed at {hit}, variant {variant}: {problem}" for problem in problems]


def check_crash_broker(
    bench: StateBench, fault: Fault, variant: int, oracle: Oracle, untouched: BrokerEnd
) -> list[str] | None:
    """Crash and start a broker; return what is wrong with the tree that it reaches."""
    hit = crash(bench, fault, variant)
    if hit is None:
        return None
    problems = broker_problems(bench, oracle, untouched)
    return [f"crashed at {hit}, variant {variant}: {problem}" for problem in problems]


class _Pool:
    """A second name for each file, so that one that was unlinked comes back as itself."""

    def __init__(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        self._folder = folder
        self._first: dict[int, os.stat_result] = {}

    def path(self, inode: int) -> Path:
        return self._folder / str(inode)

    def keep_all(self, root: Path) -> None:
        for folder, _, names in os.walk(root):
            for name in names:
                path = os.path.join(folder, name)
                found = os.lstat(path)
                kept = self.path(found.st_ino)
                if not kept.exists():
                    os.link(path, kept, follow_symlinks=False)
                    self._first[found.st_ino] = found

    def times_of(self, inode: int, size_bytes: int) -> tuple[int, int]:
        """When a file was used and changed last: a change that is lost, of its size, takes its time with it."""
        first, last = self._first[inode], self.path(inode).stat()
        found = first if size_bytes == first.st_size else last
        return found.st_atime_ns, found.st_mtime_ns

    def drop(self) -> None:
        shutil.rmtree(self._folder)


def _put(disk: Disk, root: Path, pool: _Pool) -> None:
    """Make *root* what *disk* is, keeping inodes and times of what is there."""
    for folder, _, names in os.walk(root):
        for name in names:
            os.unlink(os.path.join(folder, name))
    _put_folder(disk, disk.root, root, pool)
    for folder, _, _ in os.walk(root, topdown=False):
        if folder not in _folders_of(disk, disk.root, str(root)):
            os.rmdir(folder)


def _put_folder(disk: Disk, inode: int, path: Path, pool: _Pool) -> None:
    path.mkdir(exist_ok=True)
    for name, child in disk.folders[inode].items():
        if child in disk.folders:
            _put_folder(disk, child, path / name, pool)
            continue
        kept = pool.path(child)
        if not kept.exists():
            kept.write_bytes(disk.files[child])
        elif kept.read_bytes() != disk.files[child]:
            times = pool.times_of(child, len(disk.files[child]))
            with kept.open("r+b") as file:
                file.truncate(0)
                file.write(disk.files[child])
            os.utime(kept, ns=times)
        os.link(kept, path / name)


def _folders_of(disk: Disk, inode: int, path: str) -> set[str]:
    found = {path}
    for name, child in disk.folders[inode].items():
        if child in disk.folders:
            found |= _folders_of(disk, child, f"{path}/{name}")
    return found
