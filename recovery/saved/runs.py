"""What lies in quarantine: the runs of a log dir, what each of them saved, and whether it is still there.

It only reads. A run's folder is known by its name, the start of the run in UTC; a manifest says what is in it.
No link is followed below the folder of all runs.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from recovery.logdir.quarantine_place import JOURNALS, run_order, started_ms_of
from recovery.plan.manifest import MOST_DEPTH, Manifest, StoredEntry, StoredLog, is_segment, read_manifest
from recovery.read.file_system import (
    is_file,
    is_there,
    name_of,
    naming,
    open_file,
    open_link,
    opened_folder,
    target_of,
)
from recovery.watch.tally import Tally
from recovery.write.digest import content_problem
from recovery.write.moved_contents import differences
from recovery.write.quarantine import MANIFEST, lines_of

_STORED_NAME: Final = re.compile(r"(.+?)(?:\.from-(\d+))?(?:~\d+)?", re.DOTALL)
_BLOCK_BYTES: Final = 512  # of st_blocks


class FoundFile(NamedTuple):
    """A file below a run's folder, as it is on disk."""

    path: str
    """Relative to the run's folder."""
    is_regular: bool
    size_bytes: int
    disk_bytes: int
    link_count: int
    inode: tuple[int, int]
    """Device and inode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineRun:
    """One run's folder.

    Attributes:
        root: the folder of all runs.
        name: name of the run's folder.
        started_ms: ms since 1970, from the name.
        files: everything below the folder that is not a folder.
        empty_folders: the empty folders below it, by path relative to it.
    """

    root: str
    name: str
    started_ms: int
    manifest: Manifest
    files: tuple[FoundFile, ...]
    empty_folders: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """The path of the run's folder."""
        return os.path.join(self.root, self.name)

    @property
    def counted(self) -> tuple[StoredEntry, ...]:
        """The entries of a kind that this version knows."""
        return tuple(entry for entry in self.manifest.entries if entry.is_counted)

    @property
    def saved(self) -> tuple[StoredEntry, ...]:
        """Those of them that cannot be rebuilt from the log."""
        return tuple(entry for entry in self.counted if not entry.is_derived)

    @property
    def moved(self) -> tuple[StoredEntry, ...]:
        """What a repair has moved here."""
        return tuple(entry for entry in self.saved if entry.is_moved)

    def files_of(self, entry: StoredEntry) -> tuple[FoundFile, ...]:
        """Return what is there of *entry*: all that is below it if it is a folder."""
        return tuple(
            file
            for file in self.files
            if file.path == entry.stored or file.path.startswith(f"{entry.stored}/")
        )

    @property
    def logs(self) -> tuple[StoredLog, ...]:
        """What left the logs, by partition, the largest first."""
        parts_by_partition: dict[str, list[StoredEntry]] = {}
        for entry in self.saved:
            if entry.is_log and not entry.is_moved:
                parts_by_partition.setdefault(entry.partition, []).append(entry)
        logs = (
            StoredLog(partition=partition, parts=tuple(parts))
            for partition, parts in parts_by_partition.items()
        )
        return tuple(sorted(logs, key=lambda log: (-log.size_bytes, log.partition)))

    @property
    def size_bytes(self) -> int:
        """The sum of the sizes of all files."""
        return sum(file.size_bytes for file in self.files)


class Releases:
    """Counts the space that removing files frees: a file's space is freed with the last of its names."""

    def __init__(self) -> None:
        self._removed_names: Counter[tuple[int, int]] = Counter()

    def release(self, file: FoundFile) -> int:
        """Return the bytes on disk that are freed if *file* is removed, too."""
        self._removed_names[file.inode] += 1
        return file.disk_bytes if self._removed_names[file.inode] == file.link_count else 0


def exclusive_bytes(run: QuarantineRun) -> int:
    """Return the bytes on disk that purging *run* alone frees."""
    releases = Releases()
    return sum(releases.release(file) for file in run.files)


def list_runs(root: str) -> list[QuarantineRun]:
    """Return the runs in the folder *root*, the oldest first; none if it is missing.

    Raises:
        OSError: it cannot be read.
    """
    try:
        with opened_folder(root) as root_descriptor:
            names = sorted(name for name in os.listdir(root_descriptor) if started_ms_of(name) is not None)
            return [run for name in names if (run := _read_run(root, root_descriptor, name)) is not None]
    except (FileNotFoundError, NotADirectoryError):
        return []


def run_names(root: str, *, with_manifest: bool = True) -> list[str]:
    """Return the names of the runs in the folder *root* that have a manifest, or of those without, the oldest first.

    Raises:
        OSError: it cannot be read.
    """
    try:
        names = os.listdir(root)
    except (FileNotFoundError, NotADirectoryError):
        return []
    runs = (name for name in names if is_file(os.path.join(root, name, MANIFEST)) == with_manifest)
    return sorted((name for name in runs if started_ms_of(name) is not None), key=run_order)


def check_run(run: QuarantineRun, tally: Tally | None = None) -> list[str]:
    """Return what is missing or not as the manifest says, as text; reads every byte of the run.

    Args:
        tally: counts the files.

    Raises:
        OSError: a read failed.
    """
    tally = tally or Tally()
    problems = list(run.manifest.problems)
    if run.manifest.has_torn_end and not is_unfinished(run):
        problems.append("the last line of the manifest is cut off, and no run or undo is to be resumed")
    with opened_folder(run.root) as root, opened_folder(run.name, at=root) as folder:
        for entry in run.counted:
            problems += _problems_of(run, folder, entry)
            tally.add()
    return problems


def is_unfinished(run: QuarantineRun) -> bool:
    """Return whether a recovery or an `undo` is at work where *run* lies, or was interrupted there."""
    return any(is_there(os.path.join(run.root, name)) for name in JOURNALS)


def missing_files(run: QuarantineRun) -> list[str]:
    """Return what was saved and is no longer there, by path below *run*, as far as that shows without reading it."""
    paths = {file.path for file in run.files} | {*run.empty_folders}
    for path in [*paths]:
        while path := path.rpartition("/")[0]:
            paths.add(path)
    return [
        entry.stored
        for entry in run.counted
        if entry.stored not in paths and not _is_still_in_place(run, entry)
    ]


def unnamed_segments(run: QuarantineRun) -> list[str]:
    """Return the parts of logs in the folder of *run* that no line of its manifest names, by path below it.

    Either a run was killed before it entered them, and the log dir still has them, or a line was lost. Copies that were
    begun before a kill and made again later do not count, nor do the contents of a folder that was moved and listed.
    """
    named = {origin_of(entry.stored) for entry in run.manifest.entries}
    listed = tuple(f"{entry.stored}/" for entry in run.manifest.entries if entry.contents is not None)
    unnamed = (
        file.path
        for file in run.files
        if file.is_regular and not file.path.startswith(listed) and origin_of(file.path) not in named
    )
    return sorted(path for path in unnamed if is_segment(origin_of(path)[1]))


def origin_of(stored: str) -> tuple[str, str, int | None]:
    """Return where the file *stored* of a run comes from.

    Returns:
        The partition's folder, the file's name, and the position of the first byte in it; None for all of it.
    """
    folder, _, name = stored.rpartition("/")
    match = _STORED_NAME.fullmatch(name)
    assert match is not None
    return folder, match[1], None if match[2] is None else int(match[2])


@contextlib.contextmanager
def opened_stored(run: int, stored: str, *, is_link: bool = False) -> Iterator[int]:
    """Open the regular file at the path *stored* below the folder *run*; no link is followed.

    Args:
        is_link: whether a link itself is to be opened instead.

    Raises:
        OSError: it cannot be opened; EINVAL or ELOOP: it is not a regular file, or no link.
    """
    *folders, name = stored.split("/")
    with contextlib.ExitStack() as stack:
        for folder in folders:
            run = stack.enter_context(opened_folder(folder, at=run))
        descriptor = (
            open_link(name, at=run) if is_link else open_file(name, os.O_RDONLY | os.O_NOFOLLOW, at=run)
        )
        stack.callback(os.close, descriptor)
        yield descriptor


def link_problem(descriptor: int, link: str) -> str | None:
    """Return what is wrong with an open link that is to lead to *link*, as text; None if nothing."""
    found = target_of(descriptor)
    return None if found == link else f"leads to {found} instead of {link}"


def walk_files(root: int, name: str) -> Iterator[tuple[FoundFile, int]]:
    """Yield everything but folders below the folder *name* in the folder *root*, each with its folder, open.

    A folder's own files come after all that is below it. No link is followed.
    """
    for path, descriptor, entries in walk_folders(root, name):
        for file in _files_of(name, path, entries):
            yield file, descriptor


def _files_of(name: str, path: str, entries: Mapping[str, os.stat_result]) -> Iterator[FoundFile]:
    """Yield everything but folders in the folder *path* below the folder *name*."""
    for entry, file_stat in entries.items():
        if not stat.S_ISDIR(file_stat.st_mode):
            yield _found_file(os.path.join(path, entry).removeprefix(f"{name}/"), file_stat)


def walk_folders(
    root: int, name: str, *, depth: int = 0
) -> Iterator[tuple[str, int, dict[str, os.stat_result]]]:
    """Yield the path of each folder below *name*, and last that of *name*, with the folder, open, and its entries.

    What lies deeper than `MOST_DEPTH` folders is skipped. `os.fwalk` would name a descriptor's number in its errors.
    """
    with opened_folder(name, at=root) as folder:
        entries = {entry: os.lstat(entry, dir_fd=folder) for entry in sorted(os.listdir(folder))}
        for entry, file_stat in entries.items():
            if stat.S_ISDIR(file_stat.st_mode) and depth < MOST_DEPTH:
                for path, below, entries_below in walk_folders(folder, entry, depth=depth + 1):
                    yield os.path.join(name, path), below, entries_below
        yield name, folder, entries


def read_run(root: str, name: str) -> QuarantineRun | None:
    """Return the run in the folder *name* of the folder *root*, None if there is none.

    Raises:
        OSError: it cannot be read.
    """
    with opened_folder(root) as descriptor:
        return _read_run(root, descriptor, name)


def _read_run(root: str, root_descriptor: int, name: str) -> QuarantineRun | None:
    try:
        with opened_folder(name, at=root_descriptor) as folder:
            manifest = _manifest_of(folder)
    except (NotADirectoryError, FileNotFoundError):
        return None
    started_ms = started_ms_of(name)
    assert started_ms is not None
    walked = [(path, entries) for path, _, entries in walk_folders(root_descriptor, name)]
    return QuarantineRun(
        root=root,
        name=name,
        started_ms=started_ms,
        manifest=manifest,
        files=tuple(file for path, entries in walked for file in _files_of(name, path, entries)),
        empty_folders=tuple(
            path.removeprefix(f"{name}/") for path, entries in walked if not entries and path != name
        ),
    )


def _found_file(path: str, file_stat: os.stat_result) -> FoundFile:
    return FoundFile(
        path=path,
        is_regular=stat.S_ISREG(file_stat.st_mode),
        size_bytes=file_stat.st_size,
        disk_bytes=file_stat.st_blocks * _BLOCK_BYTES,
        link_count=file_stat.st_nlink,
        inode=(file_stat.st_dev, file_stat.st_ino),
    )


def _manifest_of(folder: int) -> Manifest:
    """Return the manifest of a run, an empty one if it is missing or not a regular file."""
    try:
        descriptor = open_file(MANIFEST, os.O_RDONLY | os.O_NOFOLLOW, at=folder)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP, errno.EINVAL):
            return read_manifest(())
        error.filename = os.path.join(name_of(folder), MANIFEST)
        raise
    return read_manifest(lines_of(descriptor, name_of(descriptor)))


def _problems_of(run: QuarantineRun, folder: int, entry: StoredEntry) -> list[str]:
    """Return what is wrong with what *entry* stands for, and with its contents; *folder* is the run's, open."""
    if entry.contents is None:
        problem = _check_entry(folder, entry)
    else:
        try:
            found_differences = differences(folder, entry.stored, entry.contents)
        except (FileNotFoundError, NotADirectoryError):
            problem = "missing"
        else:
            return [
                f"{os.path.join(entry.stored, difference.path).rstrip('/')}: {difference.problem}"
                for difference in found_differences
            ]
    return [] if problem is None or _is_still_in_place(run, entry) else [f"{entry.stored}: {problem}"]


def _check_entry(folder: int, entry: StoredEntry) -> str | None:
    """Return what is wrong with what *entry* stands for."""
    try:
        with (
            naming(os.path.join(name_of(folder), entry.stored)),
            opened_stored(folder, entry.stored, is_link=entry.link is not None) as descriptor,
        ):
            if entry.link is not None:
                return link_problem(descriptor, entry.link)
            return content_problem(descriptor, entry.size_bytes, entry.digest)
    except (FileNotFoundError, NotADirectoryError):
        return "missing"
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ELOOP):
            raise
        if entry.link is not None:
            return "not a link"
        return None if entry.digest is None else "not a regular file"


def _is_still_in_place(run: QuarantineRun, entry: StoredEntry) -> bool:
    """Whether *entry* was to be moved here and is still where it was: the run was killed before the move."""
    log_dir = run.manifest.log_dir
    if entry.kind != "moved" or log_dir is None:
        return False
    paths = (os.path.join(log_dir, entry.partition, entry.file), os.path.join(log_dir, entry.file))
    return any(is_there(path) for path in paths)
