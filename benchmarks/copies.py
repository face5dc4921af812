"""Copies of a crashed broker's log dirs that share the bytes of their logs.

The `.log` files of generated partitions are hard links: all sides read the same page cache, which remembers
how a file was written, and copying gigabytes for each run is spared. All other files are copies. Who gets a
copy must not change its logs, and `LogFiles` tells whether somebody did.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.generate import TOPIC, log_files

_THREADS = 2
"""Making and removing files is work of the kernel, which does it side by side in several folders."""
_COPIED_AT_ONCE_BYTES = 16 << 20


def copy_log_dirs(log_dirs: Sequence[Path], into: Path, *, trash: Path) -> tuple[Path, ...]:
    """Make *into* hold copies of *log_dirs*, and bring them to disk.

    What is there already from an earlier copy is written over, and what else is there goes to *trash*:
    nothing is deleted, for ext4 makes new files slowly where many have been deleted a minute ago.

    Args:
        log_dirs: what to copy.
        into: folder, made when missing.
        trash: folder on the same file system, to be deleted by the caller when nothing is measured any more.
    """
    into.mkdir(parents=True, exist_ok=True)
    trash.mkdir(parents=True, exist_ok=True)
    copies = tuple(into / log_dir.name for log_dir in log_dirs)
    bin_ = _Trash(trash)
    for entry in list(os.scandir(into)):
        if into / entry.name not in copies:
            bin_.take(entry.path)
    folders = [
        (folder, os.path.normpath(os.path.join(copy, os.path.relpath(folder, log_dir))))
        for log_dir, copy in zip(log_dirs, copies, strict=True)
        for folder, _, _ in os.walk(log_dir)
    ]
    for _, copy_folder in folders:
        os.makedirs(copy_folder, exist_ok=True)
    with ThreadPoolExecutor(max_workers=_THREADS) as pool:
        for _ in pool.map(lambda pair: _copy_files(*pair, bin_), folders):
            pass
    os.sync()
    return copies


def remove_tree(place: Path) -> None:
    """Remove a folder and all that is in it, as fast as the file system does it."""
    folders = [folder for folder, _, _ in os.walk(place, topdown=False)]
    with ThreadPoolExecutor(max_workers=_THREADS) as pool:
        for _ in pool.map(_remove_files, folders):
            pass
    for folder in folders:
        os.rmdir(folder)


class LogFiles:
    """The `.log` files of some log dirs, as they were when this was made."""

    def __init__(self, log_dirs: Sequence[Path]) -> None:
        self.by_dir = [log_files([log_dir]) for log_dir in log_dirs]
        self._stats = self._look()

    def are_untouched(self) -> bool:
        """Whether no file has been written to, cut or replaced."""
        return self._look() == self._stats

    def _look(self) -> list[tuple[int, int, int]]:
        stats = [path.stat() for files in self.by_dir for path in files]
        return [(stat.st_ino, stat.st_size, stat.st_mtime_ns) for stat in stats]


def tree_without_logs(log_dir: Path) -> dict[str, bytes]:
    """Return every file below *log_dir* by its path in it; of generated logs the identity, not the bytes."""
    tree = {}
    for path in sorted(log_dir.rglob("*")):
        if path.is_file():
            stat = path.stat()
            identity = f"inode {stat.st_ino}, {stat.st_size} bytes, {stat.st_mtime_ns}".encode()
            tree[str(path.relative_to(log_dir))] = identity if _is_shared(path) else path.read_bytes()
    return tree


def _is_shared(path: Path) -> bool:
    return path.suffix == ".log" and path.parent.name.startswith(f"{TOPIC}-")


class _Trash:
    """A folder that takes what is in the way."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._numbers = itertools.count(len(os.listdir(place)))

    def take(self, path: str) -> None:
        os.rename(path, self._place / f"{next(self._numbers)}-{os.path.basename(path)}")


def _copy_files(folder: str, copy: str, trash: _Trash) -> None:
    """Copy the files of *folder*, not its folders; hard links of generated logs."""
    is_generated = os.path.basename(folder).startswith(f"{TOPIC}-")
    with os.scandir(folder) as entries:
        wanted = {entry.name: entry for entry in entries}
    with os.scandir(copy) as entries:
        found = {entry.name: entry for entry in entries}
    for name, entry in found.items():
        if name not in wanted or wanted[name].is_dir() != entry.is_dir(follow_symlinks=False):
            trash.take(entry.path)
    for name, entry in wanted.items():
        target = os.path.join(copy, name)
        if entry.is_dir():
            os.makedirs(target, exist_ok=True)
        elif is_generated and name.endswith(".log"):
            if name in found and found[name].inode() != entry.inode():
                trash.take(target)
            if not os.path.exists(target):
                os.link(entry.path, target)
        else:
            _copy_file(entry.path, target)


def _copy_file(source: str, target: str) -> None:
    old = os.open(source, os.O_RDONLY)
    try:
        stat = os.fstat(old)
        # No O_TRUNC: ext4 flushes a file that was truncated to nothing when it is closed.
        new = os.open(target, os.O_WRONLY | os.O_CREAT, stat.st_mode & 0o777)
        try:
            ranges = list(_data_ranges(old, stat))
            first_hole = ranges[0][1] if ranges and ranges[0][0] == 0 else 0
            if os.fstat(new).st_size > first_hole:
                os.ftruncate(new, first_hole)
            for start, end in ranges:
                position = start
                while position < end:
                    data = os.pread(old, min(end - position, _COPIED_AT_ONCE_BYTES), position)
                    if not data:
                        raise OSError(f"{source}: shorter than its {stat.st_size} bytes: who writes to it?")
                    position += os.pwrite(new, data, position)
            if os.fstat(new).st_size != stat.st_size:
                os.ftruncate(new, stat.st_size)
        finally:
            os.close(new)
    finally:
        os.close(old)


def _data_ranges(descriptor: int, stat: os.stat_result) -> Iterator[tuple[int, int]]:
    """Yield the parts of a file that are no holes: preallocated indexes are hardly anything else."""
    size_bytes = stat.st_size
    if size_bytes <= stat.st_blocks * 512:
        yield 0, size_bytes
        return
    position = 0
    while position < size_bytes:
        try:
            start = os.lseek(descriptor, position, os.SEEK_DATA)
        except OSError:  # nothing but a hole up to the end
            return
        position = os.lseek(descriptor, start, os.SEEK_HOLE)
        yield start, position


def _remove_files(folder: str) -> None:
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.path)
