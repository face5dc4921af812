"""The first three passes of a load: pending deletions, interrupted cleanings and splits, finished swaps.

Kafka: LogLoader.removeTempFilesAndCollectSwapFiles, LogLoader.load.
"""

from __future__ import annotations

from recovery.load.log_reader import LogReader
from recovery.load.model import RemovalKind
from recovery.load.tree import PartitionTree
from segfmt.errors import FileNameError
from segfmt.filenames import (
    LOG_SUFFIX,
    SWAP_SUFFIX,
    FileKind,
    file_kind,
    log_name,
    offset_index_name,
    read_offset,
)
from segfmt.java_text import LONG_MAX
from segfmt.offset_index import preallocated_bytes, view_offset_index


def settle_leftovers(tree: PartitionTree, reader: LogReader, *, segment_index_bytes: int) -> None:
    """Drop `.deleted` and `.cleaned` files, drop or finish the `.swap` files.

    Args:
        segment_index_bytes: size of an index that Kafka makes if a `.swap` has none.

    Raises:
        FileNameError: a leftover has no offset in its name, which stops the broker.
        PartitionRefusedError: the end of a `.log.swap` cannot be found, which stops it, too.
    """
    _finish_swaps(tree, reader, _remove_temporary_files(tree), segment_index_bytes)


def _remove_temporary_files(tree: PartitionTree) -> list[str]:
    """Drop `.deleted`, `.cleaned` and unfinished `.swap` files; return the `.swap` files that are left."""
    kinds = {name: file_kind(name) for name in tree.names()}
    cleaned = [name for name, kind in kinds.items() if kind is FileKind.CLEANED]
    swaps = [name for name, kind in kinds.items() if kind is FileKind.SWAP]
    for name, kind in kinds.items():
        if kind is FileKind.DELETED:
            tree.remove(name, RemovalKind.PENDING_DELETION)
    first_cleaned = min(map(read_offset, cleaned), default=LONG_MAX)
    unfinished = [name for name in swaps if read_offset(name) >= first_cleaned]
    for name in [*unfinished, *cleaned]:
        tree.remove(name, RemovalKind.LEFTOVER)
    return [name for name in swaps if name not in unfinished]


def _finish_swaps(tree: PartitionTree, reader: LogReader, swaps: list[str], segment_index_bytes: int) -> None:
    """Let the `.swap` files take the place of the segments between the first and the last of them."""
    logs = [name for name in swaps if name.removesuffix(SWAP_SUFFIX).endswith(LOG_SUFFIX)]
    if logs:
        first = min(map(read_offset, logs))
        end = max(_swap_end_offset(tree, reader, read_offset(name), segment_index_bytes) for name in logs)
        for name in tree.names():
            if not name.endswith(SWAP_SUFFIX) and _is_numbered_between(name, first, end):
                tree.remove(name, RemovalKind.COMPACTED)
    for name in tree.names():
        if name.endswith(SWAP_SUFFIX):
            tree.rename(name, name.removesuffix(SWAP_SUFFIX))


def _swap_end_offset(
    tree: PartitionTree, reader: LogReader, base_offset: int, segment_index_bytes: int
) -> int:
    log, index = log_name(base_offset, SWAP_SUFFIX), offset_index_name(base_offset, SWAP_SUFFIX)
    if log not in tree:
        tree.put(log, b"")
    entries = view_offset_index(tree.read(index) if index in tree else b"")
    if index not in tree:  # Kafka maps a new one, at full size and all zeros, and does not trim it
        tree.put(index, b"", size_bytes=preallocated_bytes(segment_index_bytes))
    return reader.walk_to_end(log, base_offset, entries)


def _is_numbered_between(name: str, first: int, end: int) -> bool:
    try:
        return first <= read_offset(name) < end
    except FileNameError:
        return False
