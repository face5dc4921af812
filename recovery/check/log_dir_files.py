"""The files of a log dir itself, read and checked by themselves: checkpoints, marker, meta.properties."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass, field

from recovery.check.finding import Finding, Rule, unreadable
from recovery.logdir.checkpoints import OFFSET_CHECKPOINTS
from recovery.logdir.identity import lacks
from recovery.logdir.listing import is_log_name, no_folder, other_kind
from recovery.logdir.marker import marker_doubt
from recovery.logdir.node_files import node_faults
from recovery.read.file_system import is_folder, is_link, open_file
from segfmt.checkpoint import read_offset_checkpoint
from segfmt.errors import FileNameError, FormatError
from segfmt.filenames import (
    CLEAN_SHUTDOWN_FILE,
    CLUSTER_METADATA_FOLDER,
    CLUSTER_METADATA_TOPIC,
    META_PROPERTIES,
    REMOTE_INDEX_CACHE_FOLDER,
    REPLICATION_OFFSET_CHECKPOINT,
    FolderState,
    PartitionFolder,
    read_folder_name,
)
from segfmt.meta_properties import MetaProperties, read_meta_properties

_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


@dataclass(slots=True, kw_only=True)
class LogDirFiles:
    """The files and folders of a log dir, and what the files say.

    Attributes:
        offsets: the lines of each offset checkpoint, by file name; none if it is missing or malformed.
        folders: the folders of partitions, in the order of their names.
        skipped: folders that are not read: they await deletion, or are the cache of remote indexes.
        meta: meta.properties, None if it is missing or malformed.
        sizes: bytes of the files that were read, by name.
        marked_ns: when `replication-offset-checkpoint` was written, ns since the epoch; None without it.
    """

    log_dir: str
    had_clean_shutdown: bool = False
    offsets: dict[str, dict[tuple[str, int], int]] = field(default_factory=dict)
    folders: list[PartitionFolder] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    meta: MetaProperties | None = None
    findings: list[Finding] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    marked_ns: int | None = None

    def offset(self, checkpoint: str, folder: PartitionFolder) -> int | None:
        """Return the offset of a partition in *checkpoint*, None without a line."""
        return self.offsets.get(checkpoint, {}).get((folder.topic, folder.partition))


def read_log_dir(log_dir: str, *, take: Callable[[int], None] = lambda _: None) -> LogDirFiles:
    """Return what lies in *log_dir*; checkpoints are read before the folders are listed.

    Args:
        log_dir: absolute path.
        take: called with the number of bytes before they are read.

    Raises:
        OSError: it cannot be listed.
    """
    files = LogDirFiles(log_dir=log_dir)
    for name in OFFSET_CHECKPOINTS:
        data = _read(files, name, take)
        if data is None:
            continue
        try:
            files.offsets[name] = read_offset_checkpoint(data)
        except FormatError as error:
            _add(files, name, "checkpoint", str(error), error.position or None)
    _read_marker(files, take)
    data = _read(files, META_PROPERTIES, take)
    try:
        if data is not None:
            files.meta = read_meta_properties(data)
            if files.meta.missing_keys:
                _add(files, META_PROPERTIES, "meta-properties", lacks(files.meta))
    except FormatError as error:
        _add(files, META_PROPERTIES, "meta-properties", str(error))
    _list_folders(files)
    if any(folder.name == CLUSTER_METADATA_FOLDER for folder in files.folders):
        for fault in node_faults(log_dir):
            if fault.rule == "epoch-checkpoint":
                continue  # found with the rest of the folder
            files.sizes.setdefault(fault.file, 0)
            _add(files, fault.file, fault.rule, fault.detail)
    if data is None and META_PROPERTIES not in files.sizes:
        _add(files, META_PROPERTIES, "meta-properties", "the file is missing: a broker does not start")
    return files


def _read_marker(files: LogDirFiles, take: Callable[[int], None]) -> None:
    data = _read(files, CLEAN_SHUTDOWN_FILE, take)
    files.had_clean_shutdown = CLEAN_SHUTDOWN_FILE in files.sizes
    if data is None:
        return
    if not data:
        detail = "it is empty, as brokers up to 3.6 leave it"
        _add(files, CLEAN_SHUTDOWN_FILE, "marker", detail, is_note=True)
    elif (doubt := marker_doubt(data)) is not None:
        _add(files, CLEAN_SHUTDOWN_FILE, "marker", doubt)


def _list_folders(files: LogDirFiles) -> None:
    for entry in sorted(os.scandir(files.log_dir), key=lambda entry: entry.name):
        try:
            if not is_folder(entry.path):
                _judge_other(files, entry)
                continue
        except OSError as error:
            files.findings.append(unreadable(entry.name, error))
            continue
        if entry.name == REMOTE_INDEX_CACHE_FOLDER:
            files.skipped.append(entry.name)
            continue
        if entry.name == CLEAN_SHUTDOWN_FILE:
            continue  # judged as the marker that it is to a broker
        try:
            folder = read_folder_name(entry.name)
        except FileNameError as error:
            _add(files, entry.name, "foreign-folder", f"{error} ({error.kafka} stops the broker)")
            continue
        _judge_name(files, folder)
        is_other_metadata = folder.topic == CLUSTER_METADATA_TOPIC and folder.state is not FolderState.CURRENT
        if folder.state is FolderState.DELETE or is_other_metadata:
            files.skipped.append(entry.name)
        else:
            files.folders.append(folder)


def _judge_other(files: LogDirFiles, entry: os.DirEntry[str]) -> None:
    """Find what has the name of a log's folder and is none."""
    if is_log_name(entry.name):
        detail = no_folder(entry.name, entry.path).detail
        _add(files, entry.name, "file-type", detail, is_note=not entry.is_symlink())


def _judge_name(files: LogDirFiles, folder: PartitionFolder) -> None:
    """Find names that a broker reads but never gives. Kafka: Topic.validate, LocalLog.logDirName."""
    stem = folder.name if folder.state is FolderState.CURRENT else folder.name.rpartition(".")[0]
    if not _TOPIC_NAME.fullmatch(folder.topic) or folder.topic in (".", ".."):
        _add(files, folder.name, "foreign-folder", f"no topic can have the name {folder.topic!r}")
    elif folder.partition < 0 or stem != f"{folder.topic}-{folder.partition}":
        detail = (
            f"a broker takes it for partition {folder.partition} of {folder.topic}, but never gives this name"
        )
        _add(files, folder.name, "foreign-folder", detail)
    elif folder.topic == CLUSTER_METADATA_TOPIC and folder.name != CLUSTER_METADATA_FOLDER:
        _add(files, folder.name, "foreign-folder", "a broker ignores it", is_note=True)


def _read(files: LogDirFiles, name: str, take: Callable[[int], None]) -> bytes | None:
    """Return the bytes of a file of the log dir; None if it is missing or cannot be read."""
    path = os.path.join(files.log_dir, name)
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):  # reading a FIFO would never end
            files.sizes[name] = 0
            rule: Rule = "marker" if name == CLEAN_SHUTDOWN_FILE else "file-type"
            _add(files, name, rule, f"a {other_kind(path)} where a file is needed")
            return None
        take(status.st_size)
        with open(path, "rb", opener=open_file) as file:
            data = file.read(64 << 20)
        if name == REPLICATION_OFFSET_CHECKPOINT:
            files.marked_ns = status.st_mtime_ns
    except FileNotFoundError:
        if is_link(path):
            files.sizes[name] = 0
            _add(files, name, "file-type", "a dangling link where a file is needed")
        return None
    except OSError as error:
        files.sizes[name] = 0
        files.findings.append(unreadable(name, error))
        return None
    files.sizes[name] = len(data)
    return data


def _add(
    files: LogDirFiles,
    name: str,
    rule: Rule,
    detail: str,
    position: int | None = None,
    *,
    is_note: bool = False,
) -> None:
    files.findings.append(
        Finding(
            file=name,
            position=position,
            rule=rule,
            detail=detail,
            severity="note" if is_note else "damage",
        )
    )
