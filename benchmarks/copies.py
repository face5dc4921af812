"""Copies of a crashed broker's log dirs that share the bytes of their logs.

The `.log` files of generated partitions are hard links: all sides read the same page cache, which remembers
how a file was written, and copying gigabytes for each run is spared. All other files are copies. Who gets a
copy must not change its logs, and `LogFiles` tells whether somebody did.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.generate import TOPIC, log_files


def copy_log_dirs(log_dirs: Sequence[Path], into: Path) -> tuple[Path, ...]:
    """Copy *log_dirs* below *into*, which must not be there, and bring the copies to disk."""
    copies = []
    for log_dir in log_dirs:
        copy = into / log_dir.name
        shutil.copytree(log_dir, copy, copy_function=_copy_or_link)
        copies.append(copy)
    os.sync()
    return tuple(copies)


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


def _copy_or_link(source: str, target: str) -> None:
    path = Path(source)
    if _is_shared(path):
        os.link(source, target)
        return
    with open(source, "rb") as old, open(target, "wb") as new:
        size_bytes = os.fstat(old.fileno()).st_size
        for start, end in _data_ranges(old.fileno(), size_bytes):
            os.pwrite(new.fileno(), os.pread(old.fileno(), end - start, start), start)
        new.truncate(size_bytes)
    shutil.copystat(source, target)


def _data_ranges(descriptor: int, size_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of a file that are no holes: preallocated indexes are hardly anything else."""
    position = 0
    while position < size_bytes:
        try:
            start = os.lseek(descriptor, position, os.SEEK_DATA)
        except OSError:  # nothing but a hole up to the end
            return
        position = os.lseek(descriptor, start, os.SEEK_HOLE)
        yield start, position
