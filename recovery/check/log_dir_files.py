"""The files of a log dir itself, read and checked by themselves: checkpoints, marker, meta.properties."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass, field

from recovery.check.finding import Finding, Rule
from recovery.logdir.listing import other_kind
from recovery.read.file_system import is_folder, is_link, open_file
from segfmt.checkpoint import read_offset_checkpoint
from segfmt.clean_shutdown import read_clean_shutdown
from segfmt.errors import FileNameError, FormatError
from segfmt.filenames import (
    CLEAN_SHUTDOWN_FILE,
    CLEANER_OFFSET_CHECKPOINT,
    CLUSTER_METADATA_FOLDER,
    CLUSTER_METADATA_TOPIC,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
    REMOTE_INDEX_CACHE_FOLDER,
    REPLICATION_OFFSET_CHECKPOINT,
    FolderState,
    PartitionFolder,
    read_folder_name,
)
from segfmt.meta_properties import MetaProperties, read_meta_properties

OFFSET_CHECKPOINTS = (
    RECOVERY_POINT_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    CLEANER_OFFSET_CHECKPOINT,
)

_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


@dataclass(slots=True, kw_only=True)
class LogDirFiles:
    """What a log dir says of itself.

    Attributes:
        offsets: the lines of each offset checkpoint, by file name; none where it is missing or malformed.
        folders: of partitions, in the order of their names.
        skipped: folders that are not read: they wait for their deletion, or are the cache of remote indexes.
        meta: meta.properties, None where it is missing or malformed.
        sizes: of the files that were read.
    """

    log_dir: str
    had_clean_shutdown: bool = False
    offsets: dict[str, dict[tuple[str, int], int]] = field(default_factory=dict)
    folders: list[PartitionFolder] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    meta: MetaProperties | None = None
    findings: list[Finding] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)

    def offset(self, checkpoint: str, folder: PartitionFolder) -> int | None:
        """Return the line of a partition in *checkpoint*, None without one."""
        return self.offsets.get(checkpoint, {}).get((folder.topic, folder.partition))


def read_log_dir(log_dir: str, *, take: Callable[[int], None] = lambda _: None) -> LogDirFiles:
    """Return what lies in *log_dir*; checkpoints come before the folders are listed.

    Args:
        log_dir: absolute path.
        take: asked before so many bytes are read.

    Raises:
        OSError: it cannot be listed.
    """
    found = LogDirFiles(log_dir=log_dir)
    for name in OFFSET_CHECKPOINTS:
        data = _read(found, name, take)
        if data is None:
            continue
        try:
            found.offsets[name] = read_offset_checkpoint(data)
        except FormatError as error:
            _add(found, name, "checkpoint", str(error), error.position or None)
    _read_marker(found, take)
    data = _read(found, META_PROPERTIES, take)
    try:
        if data is not None:
            found.meta = read_meta_properties(data)
    except FormatError as error:
        _add(found, META_PROPERTIES, "meta-properties", str(error))
    _list_folders(found)
    if data is None and META_PROPERTIES not in found.sizes:
        _add(found, META_PROPERTIES, "meta-properties", "the file is missing: a broker does not start")
    return found


def _read_marker(found: LogDirFiles, take: Callable[[int], None]) -> None:
    data = _read(found, CLEAN_SHUTDOWN_FILE, take)
    found.had_clean_shutdown = CLEAN_SHUTDOWN_FILE in found.sizes
    if data is None:
        return
    if not data:
        words = "it is empty, as brokers up to 3.6 leave it"
        _add(found, CLEAN_SHUTDOWN_FILE, "marker", words, is_note=True)
    elif read_clean_shutdown(data) is None or b'"version"' not in data:
        _add(
            found,
            CLEAN_SHUTDOWN_FILE,
            "marker",
            "it names no version or no broker epoch: no broker writes that",
        )


def _list_folders(found: LogDirFiles) -> None:
    for entry in sorted(os.scandir(found.log_dir), key=lambda entry: entry.name):
        try:
            if not is_folder(entry.path):
                _judge_link(found, entry)
                continue
        except OSError as error:
            found.findings.append(_unreadable(entry.name, error))
            continue
        if entry.name == REMOTE_INDEX_CACHE_FOLDER:
            found.skipped.append(entry.name)
            continue
        try:
            folder = read_folder_name(entry.name)
        except FileNameError as error:
            _add(found, entry.name, "foreign-folder", f"{error} ({error.kafka} stops the broker)")
            continue
        _judge_name(found, folder)
        is_other_metadata = folder.topic == CLUSTER_METADATA_TOPIC and folder.state is not FolderState.CURRENT
        if folder.state is FolderState.DELETE or is_other_metadata:
            found.skipped.append(entry.name)
        else:
            found.folders.append(folder)


def _judge_link(found: LogDirFiles, entry: os.DirEntry[str]) -> None:
    """Find a link with the name of a log that leads to no folder: a broker passes it over without a word."""
    if not entry.is_symlink():
        return
    with contextlib.suppress(FileNameError):
        read_folder_name(entry.name)
        words = f"a {other_kind(entry.path) or 'link to a file'} where a partition's folder is needed"
        _add(found, entry.name, "file-type", f"{words}: a broker passes it over")


def _judge_name(found: LogDirFiles, folder: PartitionFolder) -> None:
    """Find names that a broker reads, and never gives. Kafka: Topic.validate, LocalLog.logDirName."""
    stem = folder.name if folder.state is FolderState.CURRENT else folder.name.rpartition(".")[0]
    if not _TOPIC_NAME.fullmatch(folder.topic) or folder.topic in (".", ".."):
        _add(found, folder.name, "foreign-folder", f"no topic can be called {folder.topic!r}")
    elif folder.partition < 0 or stem != f"{folder.topic}-{folder.partition}":
        words = (
            f"a broker takes it for partition {folder.partition} of {folder.topic}, and never gives this name"
        )
        _add(found, folder.name, "foreign-folder", words)
    elif folder.topic == CLUSTER_METADATA_TOPIC and folder.name != CLUSTER_METADATA_FOLDER:
        _add(found, folder.name, "foreign-folder", "a broker passes it over", is_note=True)


def _read(found: LogDirFiles, name: str, take: Callable[[int], None]) -> bytes | None:
    """Return the bytes of a file of the log dir; None where it is missing or cannot be read."""
    path = os.path.join(found.log_dir, name)
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):  # a FIFO would never end
            found.sizes[name] = 0
            _add(found, name, "file-type", f"a {other_kind(path)} where a file is needed")
            return None
        take(status.st_size)
        with open(path, "rb", opener=open_file) as file:
            data = file.read(64 << 20)
    except FileNotFoundError:
        if is_link(path):
            found.sizes[name] = 0
            _add(found, name, "file-type", "a dangling link where a file is needed")
        return None
    except OSError as error:
        found.sizes[name] = 0
        found.findings.append(_unreadable(name, error))
        return None
    found.sizes[name] = len(data)
    return data


def _unreadable(name: str, error: OSError) -> Finding:
    return Finding(file=name, position=None, rule="unreadable", detail=str(error), severity="unchecked")


def _add(
    found: LogDirFiles,
    name: str,
    rule: Rule,
    detail: str,
    position: int | None = None,
    *,
    is_note: bool = False,
) -> None:
    found.findings.append(
        Finding(
            file=name,
            position=position,
            rule=rule,
            detail=detail,
            severity="note" if is_note else "damage",
        )
    )
