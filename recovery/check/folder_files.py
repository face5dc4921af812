"""The files of one partition's folder: their names, and the small ones read and checked by themselves."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

from native.crc32c import crc32c_of_bytes
from recovery.check.finding import Finding, Rule, Severity
from recovery.load.model import FileStat
from recovery.logdir.listing import file_stat, is_of_type, other_kind
from recovery.read.file_system import is_there, open_file
from segfmt import byte_layout
from segfmt.checkpoint import LeaderEpochEntry, read_leader_epoch_checkpoint
from segfmt.errors import FileNameError, FormatError
from segfmt.filenames import (
    DELETED_SUFFIX,
    KRAFT_SNAPSHOT_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    PARTITION_METADATA,
    SWAP_SUFFIX,
    FileKind,
    file_kind,
    is_written_to,
    log_name,
    read_offset,
    snapshot_name,
)
from segfmt.partition_metadata import read_partition_metadata
from segfmt.producer_snapshot import MOST_ENTRIES, read_producer_snapshot

MOST_SMALL_FILE_BYTES = 32 << 20

_INDEX_KINDS = frozenset({FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX})


@dataclass(slots=True, kw_only=True)
class FolderFiles:
    """What lies in a folder.

    Attributes:
        names: regular files with size and identity.
        base_offsets: of the segments, ascending.
        swaps: names of `.log.swap` files, which a broker puts in place of segments at its next start.
        kraft_snapshots: names of the metadata log's snapshots.
        snapshots: bytes of the sound producer snapshots, by offset.
        transaction_indexes: bytes, by base offset.
        topic_id: that in partition.metadata, None if the file is missing or malformed.
        epochs: lines of leader-epoch-checkpoint, none without the file; None if it is malformed.
        findings: what is wrong with each small file by itself.
    """

    names: dict[str, FileStat] = field(default_factory=dict)
    base_offsets: list[int] = field(default_factory=list)
    swaps: list[str] = field(default_factory=list)
    kraft_snapshots: list[str] = field(default_factory=list)
    snapshots: dict[int, bytes] = field(default_factory=dict)
    transaction_indexes: dict[int, bytes] = field(default_factory=dict)
    topic_id: UUID | None = None
    epochs: tuple[LeaderEpochEntry, ...] | None = ()
    findings: list[Finding] = field(default_factory=list)
    checked_bytes: dict[str, int] = field(default_factory=dict)


class Folder(Protocol):
    """A partition's folder, here or in an archive."""

    def list(self) -> tuple[dict[str, FileStat], dict[str, str]]:
        """Return the regular files, and descriptions of what is a link or not a file.

        Raises:
            OSError: it cannot be listed.
        """
        ...

    def read(self, name: str, most_bytes: int) -> bytes:
        """Return the first bytes of a file.

        Raises:
            OSError: it cannot be read.
        """
        ...


class LocalFolder:
    """A folder of a file system.

    Args:
        path: the path of the folder.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def list(self) -> tuple[dict[str, FileStat], dict[str, str]]:
        """Return the regular files, and descriptions of what is a link or not a file."""
        return list_folder(self._path)

    def read(self, name: str, most_bytes: int) -> bytes:
        """Return the first bytes of a file."""
        with open(os.path.join(self._path, name), "rb", opener=open_file) as file:
            return file.read(most_bytes)


def list_folder(path: str) -> tuple[dict[str, FileStat], dict[str, str]]:
    """Return the regular files of a folder, links to them included, and descriptions of what is a link or not a file.

    Raises:
        OSError: it cannot be listed.
    """
    files: dict[str, FileStat] = {}
    other_types: dict[str, str] = {}
    with os.scandir(path) as entries:
        for entry in entries:
            try:
                if is_of_type(entry, os.DirEntry.is_file):
                    files[entry.name] = file_stat(entry.stat())
                    if entry.is_symlink():
                        other_types[entry.name] = "link, through which a broker writes outside of the log dir"
                elif is_there(entry.path):
                    other_types[entry.name] = f"{other_kind(entry.path)} where a file is needed"
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ELOOP):
                    raise
                continue  # a live broker has removed it, or it is a circular link
    return files, other_types


def read_folder(
    folder: Folder,
    *,
    is_live: bool,
    is_metadata_log: bool = False,
    is_archived: bool = False,
    take: Callable[[int], None] = lambda _: None,
) -> FolderFiles:
    """Return what lies in *folder*; files that cannot be read are findings.

    Args:
        folder: the partition's.
        is_live: whether a broker may add, rename and remove files meanwhile.
        is_metadata_log: whether the partition is `__cluster_metadata-0`.
        is_archived: whether it is a copy, perhaps of a cluster whose topics had no ids.
        take: called with the number of bytes before they are read.

    Raises:
        OSError: the folder cannot be listed.
    """
    reader = _FolderReader(
        folder, is_live=is_live, is_metadata_log=is_metadata_log, is_archived=is_archived, take=take
    )
    return reader.read()


_LABELS = re.compile(rb"version:.*\r?\ntopic_id:")


class _FolderReader:
    def __init__(
        self,
        folder: Folder,
        *,
        is_live: bool,
        is_metadata_log: bool,
        is_archived: bool,
        take: Callable[[int], None],
    ) -> None:
        self._folder = folder
        self._is_live = is_live
        self._is_metadata_log = is_metadata_log
        self._is_archived = is_archived
        self._take = take
        self._files = FolderFiles()

    def read(self) -> FolderFiles:
        files = self._files
        files.names, other_types = self._folder.list()
        self._judge_types(other_types)
        kinds = {name: file_kind(name) for name in files.names}
        for name, kind in sorted(kinds.items()):
            if kind is FileKind.OTHER:
                if self._is_metadata_log and name.endswith(KRAFT_SNAPSHOT_SUFFIX):
                    files.kraft_snapshots.append(name)
                continue
            if kind is FileKind.DELETED:  # a broker removes it, whatever its name is
                self._add_leftover(name)
                continue
            try:
                offset = read_offset(name)
            except FileNameError as error:
                self._find(name, "foreign-file", f"{error} ({error.kafka} stops the broker)")
                continue
            if kind is FileKind.LOG:
                self._add_log(name, offset)
            elif kind is FileKind.SNAPSHOT:
                self._add_snapshot(name, offset)
            elif kind in (FileKind.CLEANED, FileKind.SWAP):
                self._add_leftover(name)
        files.base_offsets.sort()
        for name, kind in sorted(kinds.items()):
            if kind in _INDEX_KINDS:
                self._add_index(name, kind)
        self._read_epochs()
        self._read_metadata()
        return files

    def _judge_types(self, other_types: Mapping[str, str]) -> None:
        for name, description in sorted(other_types.items()):
            if is_written_to(name) or name == f"{LEADER_EPOCH_CHECKPOINT}.tmp":
                self._find(name, "file-type", f"a {description}")
            elif file_kind(name) is FileKind.DELETED and name not in self._files.names and not self._is_live:
                self._find(name, "leftover", f"a {description}", severity="note")

    def _add_log(self, name: str, offset: int) -> None:
        if name == log_name(offset):
            self._files.base_offsets.append(offset)
        else:
            self._find(name, "foreign-file", f"a broker reads {log_name(offset)} instead")

    def _add_snapshot(self, name: str, offset: int) -> None:
        data = self._bytes(name)
        if data is None:
            return
        try:
            count = len(read_producer_snapshot(data, crc32c=crc32c_of_bytes))
        except FormatError as error:
            self._find(name, "snapshot", str(error), error.position)
            return
        if count > MOST_ENTRIES:
            detail = f"{count} producers; a broker of 4.4 or later discards it at its start, and reads the log instead"
            self._find(name, "snapshot", detail, severity="note")
        if name == snapshot_name(offset):
            self._files.snapshots[offset] = data

    def _add_leftover(self, name: str) -> None:
        if self._is_live:
            return
        if name.endswith(LOG_SUFFIX + SWAP_SUFFIX):
            self._files.swaps.append(name)
        detail = (
            "waits for its deletion"
            if name.endswith(DELETED_SUFFIX)
            else "left by an interrupted cleaning or split"
        )
        self._files.findings.append(
            Finding(file=name, position=None, rule="leftover", detail=detail, severity="note")
        )

    def _add_index(self, name: str, kind: FileKind) -> None:
        try:
            base = read_offset(name)
        except FileNameError:
            return
        if base not in self._files.base_offsets:
            self._find(name, "orphan-index", f"there is no {log_name(base)}")
            return
        if kind is not FileKind.TXN_INDEX:
            return
        data = self._bytes(name)
        if data is None:
            return
        self._files.transaction_indexes[base] = data
        entry_bytes = byte_layout.ABORTED_TXN_DTYPE.itemsize
        if len(data) % entry_bytes:
            position = len(data) // entry_bytes * entry_bytes
            self._find(name, "index-size", f"{len(data)} bytes are not a multiple of {entry_bytes}", position)

    def _read_epochs(self) -> None:
        if LEADER_EPOCH_CHECKPOINT not in self._files.names:
            return
        data = self._bytes(LEADER_EPOCH_CHECKPOINT)
        try:
            self._files.epochs = None if data is None else read_leader_epoch_checkpoint(data)
        except FormatError as error:
            self._files.epochs = None
            self._find(LEADER_EPOCH_CHECKPOINT, "epoch-checkpoint", str(error), error.position or None)

    def _read_metadata(self) -> None:
        if self._is_metadata_log:
            return
        if PARTITION_METADATA not in self._files.names:
            if any(finding.file == PARTITION_METADATA for finding in self._files.findings):
                return
            detail = "the file is missing: a broker calls the log stray"
            if self._is_archived:
                detail += "; clusters before 2.8 had none"
            severity: Severity = "note" if self._is_archived else "damage"
            self._find(PARTITION_METADATA, "topic-id", detail, severity=severity)
            return
        data = self._bytes(PARTITION_METADATA)
        try:
            if data is not None:
                self._files.topic_id = read_partition_metadata(data).topic_id
                if not _LABELS.match(data):
                    self._find(
                        PARTITION_METADATA, "topic-id", "the labels are not those that a broker writes"
                    )
        except FormatError as error:
            self._find(PARTITION_METADATA, "topic-id", str(error), error.position or None)

    def _bytes(self, name: str) -> bytes | None:
        """Return the bytes of a small file; None, and add a finding, if they cannot be read."""
        size = self._files.names[name].size_bytes
        try:
            self._take(min(size, MOST_SMALL_FILE_BYTES))
            data = self._folder.read(name, MOST_SMALL_FILE_BYTES + 1)
        except OSError as error:
            self._find(name, "unreadable", str(error.strerror), severity="unchecked")
            return None
        self._files.checked_bytes[name] = len(data)
        if len(data) > MOST_SMALL_FILE_BYTES:
            self._find(name, "unreadable", f"larger than {MOST_SMALL_FILE_BYTES} bytes", severity="unchecked")
            return None
        return data

    def _find(
        self,
        name: str,
        rule: Rule,
        detail: str,
        position: int | None = None,
        *,
        severity: Severity = "damage",
    ) -> None:
        self._files.findings.append(
            Finding(
                file=name,
                position=position,
                rule=rule,
                detail=detail,
                severity=severity,
            )
        )
