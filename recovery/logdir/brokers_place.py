"""Places that are a broker's: log dirs and partitions' folders. What a user names to be written to lies in none.

In a log dir a broker takes each folder for a log, and does not start if it is none; and a file that is replaced or
appended to may be a segment.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from recovery.errors import UsageError
from recovery.read.file_system import is_file, nearest
from segfmt.errors import FileNameError
from segfmt.filenames import (
    CLEAN_SHUTDOWN_FILE,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    FileKind,
    file_kind,
    log_name,
    read_folder_name,
    read_offset,
)

BROKER_TRACES = frozenset(
    {
        META_PROPERTIES,
        RECOVERY_POINT_CHECKPOINT,
        LOG_START_OFFSET_CHECKPOINT,
        REPLICATION_OFFSET_CHECKPOINT,
        CLEAN_SHUTDOWN_FILE,
    }
)
"""Each of them shows that a broker has opened the log dir."""


@dataclass(frozen=True, slots=True)
class BrokersPlace:
    """A folder that is a broker's.

    Attributes:
        path: of the folder.
        is_log_dir: whether it is a log dir, else it is a partition's folder.
    """

    path: str
    is_log_dir: bool

    def __str__(self) -> str:
        return f"the log dir {self.path}" if self.is_log_dir else f"the partition's folder {self.path}"


def brokers_place_of(path: str, log_dirs: Iterable[str] = ()) -> BrokersPlace | None:
    """Return in which folder of a broker *path* lies, or would lie; None if in none.

    Args:
        path: need not exist yet; it is where it leads to.
        log_dirs: folders that are log dirs, whatever is in them; others are known by what is in them.

    Raises:
        OSError: it cannot be determined.
    """
    for log_dir in log_dirs:
        if is_inside(path, log_dir):
            return BrokersPlace(log_dir, is_log_dir=True)
    for above in _upwards(path):
        if any(is_file(os.path.join(above, name)) for name in BROKER_TRACES):
            return BrokersPlace(above, is_log_dir=True)
        if _is_partitions_folder(above):
            return BrokersPlace(above, is_log_dir=False)
    return None


def refuse_brokers_place(
    named: str,
    path: str,
    log_dirs: Iterable[str] = (),
    *,
    kind: Literal["file", "folder"] = "folder",
    remedy: str = "",
) -> None:
    """Refuse a place that a user has named to be written to, and that is a broker's.

    Args:
        named: the option and what it names, for the error.
        path: where that is.
        log_dirs: as of `brokers_place_of`.
        kind: what is written there.
        remedy: what else can be done than to name another one.

    Raises:
        UsageError: it is a broker's.
        OSError: that cannot be determined.
    """
    place = brokers_place_of(path, log_dirs)
    if place is None:
        return
    why = "where nothing but the files of a broker belongs"
    if place.is_log_dir and kind == "folder":
        why = "where a broker takes folders for logs"
    raise UsageError(f"{named}: inside {place}, {why}. Remedy: choose a {kind} outside of it{remedy}")


def is_inside(path: str, folder: str) -> bool:
    """Return whether *path*, which need not exist yet, is *folder* or lies below it, by whatever names and mounts."""
    with suppress(OSError):
        folder_status = os.stat(folder)
        return any(os.path.samestat(os.stat(above), folder_status) for above in _upwards(path))
    return False


def _upwards(path: str) -> Iterator[str]:
    """Yield the real path of *path*, or of what there is of it, and then all folders above."""
    above = nearest(os.path.realpath(path))
    yield above
    while above != (above := os.path.dirname(above)):
        yield above


def _is_partitions_folder(path: str) -> bool:
    with suppress(FileNameError, OSError):  # a folder above that may not be listed
        read_folder_name(os.path.basename(path))
        return any(map(_is_partitions_file, os.listdir(path)))
    return False


def _is_partitions_file(name: str) -> bool:
    if name in (LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA):
        return True
    with suppress(FileNameError):
        return file_kind(name) is FileKind.LOG and name == log_name(read_offset(name))
    return False
