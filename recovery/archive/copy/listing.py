"""The files of a log dir that are to be copied, and what is in the way of that. Links are followed, as by a broker."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from recovery.archive.copy.manifest import MANIFEST_KEY, FileFigures
from recovery.archive.copy.report import UncopiedFile
from recovery.archive.stores.archived import PartitionPrefix
from recovery.logdir.checkpoints import OFFSET_CHECKPOINTS, known_offsets
from recovery.logdir.choice import PartitionChoice
from recovery.logdir.quarantine_place import INSIDE_FOLDER
from recovery.plan.actions import TEMPORARY_SUFFIX
from recovery.read.file_system import is_folder
from recovery.stop_request import StopRequest
from recovery.write.move_in import STAGE_FOLDER
from recovery.write.undo_notice import UNDO_NOTICE
from segfmt.errors import FileNameError
from segfmt.filenames import CLEANER_OFFSET_CHECKPOINT, LOCK_FILE, read_folder_name

_UNMOUNTED_LOG_DIR = "Remedy: see that its file system is mounted"
_UNMOUNTED = "Remedy: see that what it leads to is mounted, or remove it"
PARTIAL_SUFFIX = ".partial"
"""Of the copy of a file that could only be read up to some position."""
_LEFT_OUT = frozenset({LOCK_FILE, INSIDE_FOLDER, STAGE_FOLDER, UNDO_NOTICE, MANIFEST_KEY})
"""Of a log dir: its lock, and what only this tool has there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFile:
    """A file to be copied.

    Attributes:
        log_dir: that it is in.
        key: at the output.
        part_key: of its beginning, if the rest cannot be read; no file has that name.
        partition: the folder of the partition that it is in, empty for others.
        is_cleaned: whether the log cleaner has been at that partition: it writes segments anew, and smaller.
        figures: None if it cannot be looked at.
    """

    path: str
    log_dir: str
    key: str
    part_key: str
    partition: str
    is_cleaned: bool
    figures: FileFigures | None

    @property
    def size_bytes(self) -> int:
        """How large it is, as far as is known."""
        return 0 if self.figures is None else self.figures.size_bytes


@dataclass(slots=True, kw_only=True)
class FoundFiles:
    """What is in a log dir.

    Attributes:
        files: those of the log dir itself first, which are small and say most; then by key.
        warnings: what is not copied although all can be read.
    """

    files: list[FoundFile] = field(default_factory=list)
    failed: list[UncopiedFile] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def find_files(log_dir: str, folder: str, is_chosen: PartitionChoice, stop: StopRequest) -> FoundFiles:
    """Return the files of *log_dir*, which is *folder* at the output.

    One that is not there, or is no broker's, has failed itself.

    Raises:
        InterruptedRecoveryError: *stop* was asked for.
    """
    if is_missing(log_dir):
        error = FileNotFoundError(errno.ENOENT, f"no such log dir. {_UNMOUNTED_LOG_DIR}")
        return FoundFiles(failed=[UncopiedFile.of(log_dir, error)])
    finder = _Finder(log_dir, folder, is_chosen, stop)
    files = list(finder.below(log_dir, "", ""))
    finder.found.files = sorted(files, key=lambda one: (bool(one.partition), one.key))
    if not finder.found.failed and not _has_been_a_brokers(log_dir):
        text = f"no log dir of a broker: it has neither logs nor checkpoints. {_UNMOUNTED_LOG_DIR}"
        finder.found.failed.append(UncopiedFile.of(log_dir, OSError(errno.ENOENT, text)))
    return finder.found


def is_missing(log_dir: str) -> bool:
    """Return whether it is certain that there is no folder; one that cannot be looked at is locked and listed."""
    with suppress(OSError):
        return not is_folder(log_dir)
    return False


def _has_been_a_brokers(log_dir: str) -> bool:
    """Return whether it has logs or checkpoints, or cannot be listed; a disk may have left meta.properties alone."""
    with suppress(OSError):
        return any(partition_of(name) or name in OFFSET_CHECKPOINTS for name in os.listdir(log_dir))
    return True


class _Finder:
    def __init__(self, log_dir: str, folder: str, is_chosen: PartitionChoice, stop: StopRequest) -> None:
        self._log_dir = log_dir
        self._folder = folder
        self._is_chosen = is_chosen
        self._stop = stop
        self._cleaned = _cleaned_partitions(log_dir)
        self._above: list[tuple[int, int]] = []
        self.found = FoundFiles()

    def below(self, path: str, prefix: str, partition: str) -> Iterator[FoundFile]:
        """Yield the files below the folder *path*, whose keys begin with *prefix* in the log dir's folder."""
        self._stop.check()
        try:
            status = os.stat(path)
            with os.scandir(path) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            self._note(path, error)
            return
        place = (status.st_dev, status.st_ino)
        if place in self._above:
            self.found.warnings.append(f"{path}: a link to a folder that it is in, and left out")
            return
        self._above.append(place)
        names = {entry.name for entry in found}
        for entry in found:
            if (prefix or entry.name not in _LEFT_OUT) and not entry.name.endswith(TEMPORARY_SUFFIX):
                yield from self._of_entry(entry, prefix, partition, names)
        self._above.pop()

    def _of_entry(
        self, entry: os.DirEntry[str], prefix: str, partition: str, names: set[str]
    ) -> Iterator[FoundFile]:
        try:
            if entry.is_dir():
                if prefix or _is_wanted(entry.name, self._is_chosen):
                    inner = partition if prefix else partition_of(entry.name)
                    yield from self.below(entry.path, f"{prefix}{entry.name}/", inner)
                return
            is_file = entry.is_file()
        except OSError as error:
            self._note(entry.path, error)
            return
        if is_file:
            part_name = entry.name + PARTIAL_SUFFIX
            while part_name in names:
                part_name += PARTIAL_SUFFIX
            place = f"{self._folder}/{prefix}"
            yield FoundFile(
                path=entry.path,
                log_dir=self._log_dir,
                key=place + entry.name,
                part_key=place + part_name,
                partition=partition,
                is_cleaned=partition in self._cleaned,
                figures=_figures_of(entry),
            )
        elif _leads_somewhere(entry.path):
            self.found.warnings.append(f"{entry.path}: not a file, and left out")
        elif entry.is_symlink():
            self._note(entry.path, FileNotFoundError(errno.ENOENT, f"a link to nothing. {_UNMOUNTED}"))
        else:
            self._note(entry.path, FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)))

    def _note(self, path: str, error: OSError) -> None:
        """Note what cannot be listed or looked at."""
        self.found.failed.append(UncopiedFile.of(path, error))


def _cleaned_partitions(log_dir: str) -> frozenset[str]:
    """Return the folders of partitions that the log cleaner has a checkpoint of."""
    lines = known_offsets(log_dir, CLEANER_OFFSET_CHECKPOINT)
    return frozenset(f"{topic}-{partition}" for topic, partition in lines)


def _leads_somewhere(path: str) -> bool:
    """Return whether a thing that is no file has not gone since it was listed, and is no link to nothing."""
    try:
        os.stat(path)
    except FileNotFoundError:
        return False
    except OSError:
        pass
    return True


def _figures_of(entry: os.DirEntry[str]) -> FileFigures | None:
    try:
        return FileFigures.of(entry.stat())
    except OSError:  # who opens it gets the error
        return None


def partition_of(folder: str) -> str:
    """Return *folder* if it has the name of a partition's, else nothing."""
    try:
        read_folder_name(folder)
    except FileNameError:
        return ""
    return folder


def is_wanted_key(key: str, is_chosen: PartitionChoice) -> bool:
    """Return whether a key at the output is of a file that is copied, if it is in the log dir."""
    _, _, path = key.partition("/")
    folder, separator, _ = path.partition("/")
    return not separator or _is_wanted(folder, is_chosen)


def _is_wanted(folder: str, is_chosen: PartitionChoice) -> bool:
    """Return whether a folder of a log dir is copied: with a choice only the folders of partitions that are chosen."""
    try:
        name = read_folder_name(folder)
    except FileNameError:
        return is_chosen.is_everything
    where = PartitionPrefix(prefix=f"{folder}/", topic=name.topic, partition=name.partition, folder=folder)
    return is_chosen(where)
