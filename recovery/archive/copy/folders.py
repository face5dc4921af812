"""Which folder at the output is whose: a log dir keeps its own wherever it is mounted, by its `directory.id`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress

from recovery.archive.copy.listing import partition_of
from recovery.archive.copy.manifest import MANIFEST_KEY
from recovery.archive.stores.store import Store
from recovery.archive.stores.stores import open_store
from recovery.check.folder_files import MOST_SMALL_FILE_BYTES
from recovery.errors import UsageError
from segfmt.errors import FormatError
from segfmt.filenames import META_PROPERTIES
from segfmt.kafka_uuid import format_uuid
from segfmt.meta_properties import MetaProperties, read_meta_properties

_ANOTHER_OUTPUT = "Remedy: choose another output"


def choose_folders(log_dirs: Sequence[str], known: Mapping[str, str], output: Store) -> Mapping[str, str]:
    """Return a name for each log dir at the output: that of earlier runs, else its own, with a number if that is taken.

    A log dir is known by its `directory.id`, else by its path.

    Args:
        known: the log dirs of earlier runs by folder.

    Raises:
        UsageError: the output has log dirs of another broker; or one that may be the same, by another path; or a log
            dir's own name is that of another one, which is not copied now.
    """
    ours = {log_dir: _properties_of(open_store(log_dir), "") for log_dir in log_dirs}
    theirs = {folder: _properties_of(output, f"{folder}/") for folder in known}
    _refuse_another_broker(ours, theirs, output.url)
    taken = _known_folders(ours, theirs, known)
    known = {**known, **{folder: log_dir for log_dir, folder in taken.items()}}
    for log_dir in log_dirs:
        if log_dir in taken:
            continue
        for folder in sorted(known.keys() - taken.values()):
            if not (_directory_id(ours[log_dir]) and _directory_id(theirs[folder])):
                _refuse_same_partitions(log_dir, folder, known[folder], output)
        taken[log_dir] = _new_folder(
            log_dir, log_dirs, {**known, **{taken[one]: one for one in taken}}, output
        )
    return {log_dir: taken[log_dir] for log_dir in log_dirs}


def _known_folders(
    ours: Mapping[str, MetaProperties | None],
    theirs: Mapping[str, MetaProperties | None],
    known: Mapping[str, str],
) -> dict[str, str]:
    """Return the folders of log dirs that earlier runs have copied."""
    by_id = {number: folder for folder in known if (number := _directory_id(theirs[folder]))}
    by_path = {os.path.realpath(log_dir): folder for folder, log_dir in known.items()}
    taken: dict[str, str] = {}
    for log_dir, own in ours.items():
        folder = by_id.get(_directory_id(own))
        if folder is not None and folder not in taken.values():
            taken[log_dir] = folder
    for log_dir in ours:
        folder = by_path.get(os.path.realpath(log_dir))
        if log_dir not in taken and folder is not None and folder not in taken.values():
            taken[log_dir] = folder
    return taken


def _new_folder(log_dir: str, log_dirs: Sequence[str], known: Mapping[str, str], output: Store) -> str:
    name = base = _folder_name(os.path.basename(log_dir.rstrip("/"))) or "log-dir"
    if known.get(base, log_dir) not in log_dirs:
        raise UsageError(
            f"{output.url}/{base}: the copy of another log dir, {known[base]}. {_ANOTHER_OUTPUT}"
        )
    number = 1
    while name in known or name == MANIFEST_KEY:
        number += 1
        name = f"{base}.{number}"
    return name


def _folder_name(name: str) -> str:
    """Return *name*, or one that is not that of a partition: who reads the copy could take it for one."""
    return f"{name}.log-dir" if partition_of(name) else name


def _refuse_another_broker(
    ours: Mapping[str, MetaProperties | None], theirs: Mapping[str, MetaProperties | None], url: str
) -> None:
    for log_dir, own in ours.items():
        for folder, other in theirs.items():
            whose, of_copy = _broker(own), _broker(other)
            if whose and of_copy and whose != of_copy:
                raise UsageError(
                    f"{url}/{folder}: the copy of a log dir of {of_copy}, by {META_PROPERTIES}, and {log_dir} is of "
                    f"{whose}. {_ANOTHER_OUTPUT}"
                )


def _refuse_same_partitions(log_dir: str, folder: str, copied: str, output: Store) -> None:
    """Raise UsageError if a folder of a log dir that is not copied now has partitions of *log_dir*.

    It may be the same one, mounted elsewhere; without a `directory.id`, as before 3.7, that is not known.
    """
    there, found = [], []
    with suppress(OSError):
        there = [one.split("/")[-2] for one in output.list_level(f"{folder}/").prefixes]
        found = os.listdir(log_dir)
    shared = sorted(
        name for name in {*there} & {*found} if partition_of(name) and not name.startswith("__cluster")
    )
    if shared:
        raise UsageError(
            f"{log_dir}: {output.url}/{folder}, the copy of {copied}, has partitions of it, such as {shared[0]}, and "
            f"no directory.id tells whether it is the same log dir. Remedy: if it is, mount it there, or make "
            f"{copied} a link to it; else choose another output"
        )


def _directory_id(properties: MetaProperties | None) -> str:
    if properties is None or properties.directory_id is None:
        return ""
    return format_uuid(properties.directory_id)


def _broker(properties: MetaProperties | None) -> str:
    """Return whose log dir it is, in words; empty if *properties* do not say."""
    if properties is None or properties.cluster_id is None or properties.node_id is None:
        return ""
    return f"node {properties.node_id} of cluster {properties.cluster_id}"


def log_dir_text(data: bytes) -> str:
    """Return which log dir it is, by its meta.properties, in words; empty if they do not say."""
    properties = _read(data)
    if properties is None or (properties.node_id is None and properties.cluster_id is None):
        return ""  # such as one of zeros, after a loss of power
    number = _directory_id(properties)
    return f"node {properties.node_id} of cluster {properties.cluster_id}" + (
        f", directory.id {number}" if number else ""
    )


def properties_at(store: Store, prefix: str) -> bytes:
    """Return the meta.properties below *prefix*, empty if there is none, or it cannot be read."""
    with suppress(OSError):
        return store.read(prefix + META_PROPERTIES, most_bytes=MOST_SMALL_FILE_BYTES)
    return b""


def _properties_of(store: Store, prefix: str) -> MetaProperties | None:
    return _read(properties_at(store, prefix))


def _read(data: bytes) -> MetaProperties | None:
    with suppress(FormatError):
        return read_meta_properties(data) if data else None
    return None
