"""File systems for a test: mounted by root, gone with the test."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path


@contextmanager
def tmpfs(place: Path, *, size: str = "512m") -> Iterator[Path]:
    """A file system in memory, mounted on *place*, which is made."""
    place.mkdir(parents=True)
    with mounting(place, "tmpfs", f"size={size}"):
        yield place


@contextmanager
def bind(folder: Path, place: Path) -> Iterator[Path]:
    """The folder *folder* under the name *place* as well, which is there."""
    _run("mount", "--bind", str(folder), str(place))
    try:
        yield place
    finally:
        _run("umount", str(place))


@contextmanager
def read_only(place: Path) -> Iterator[Path]:
    """The folder *place*, mounted upon itself so that nobody can write there."""
    with bind(place, place):
        _run("mount", "-o", "remount,ro,bind", str(place))
        yield place


@contextmanager
def overlay(place: Path, lower: Path) -> Iterator[Path]:
    """An overlay over a copy of *lower*, mounted below *place*: what one mounts to try something on a snapshot.

    Lower and upper layer are on two file systems, and options are the default ones: a file that is written to, linked
    or renamed is copied up, and has another inode from then on.
    """
    with ExitStack() as stack:
        below = stack.enter_context(tmpfs(place / "lower-fs"))
        above = stack.enter_context(tmpfs(place / "upper-fs"))
        copied = below / "lower"
        shutil.copytree(lower, copied, symlinks=True)
        for name in ("upper", "work"):
            (above / name).mkdir()
        merged = place / "merged"
        merged.mkdir()
        options = f"lowerdir={copied},upperdir={above / 'upper'},workdir={above / 'work'}"
        yield stack.enter_context(mounting(merged, "overlay", options))


@contextmanager
def failing_disk(place: Path) -> Iterator[tuple[Path, Path]]:
    """A file system whose disk can be made to fail, and a file that makes it: fill it until there is no space left.

    The disk is a file with holes on a small file system; once that is full, no hole can be written back.
    """
    with tmpfs(place / "disk-fs", size="48m") as below:
        disk = below / "disk"
        with disk.open("wb") as file:
            file.truncate(256 << 20)
        _run("mkfs.ext4", "-q", "-E", "lazy_itable_init=1,nodiscard", str(disk))
        mounted = place / "disk"
        mounted.mkdir()
        _run("mount", "-o", "loop", str(disk), str(mounted))
        filler = below / "filler"
        try:
            yield mounted, filler
        finally:
            filler.unlink(missing_ok=True)
            _run("umount", str(mounted))


@contextmanager
def mounting(place: Path, kind: str, options: str) -> Iterator[Path]:
    """A file system of *kind* on *place*, which is there."""
    _run("mount", "-t", kind, "-o", options, kind, str(place))
    try:
        yield place
    finally:
        # A JVM lets go of files that it has deleted when it likes.
        _run("umount", "--lazy", str(place))


def unmount_what_killed_runs_left(runs: Path) -> None:
    """Unmount what lies below a run in pytest's folder *runs* whose process is gone: pytest could not delete it."""
    # Fields of a line: proc_pid_mountinfo(5). A file system above another comes after it.
    for line in reversed(Path("/proc/self/mountinfo").read_text().splitlines()):
        place = Path(line.split()[4].encode().decode("unicode_escape"))
        if place.is_relative_to(runs) and not _goes_on(runs / place.relative_to(runs).parts[0]):
            _run("umount", "--lazy", str(place))


def _goes_on(run: Path) -> bool:
    lock = run / ".lock"
    return lock.exists() and Path("/proc", lock.read_text()).exists()


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
