"""How far a log must have reached, by what lies beside it: checkpoints, indexes, snapshots and leader epochs.

None of these is ever ahead of the log, so a log that ends before one of them has lost its end; but for an index with
room for more entries, in which a truncation leaves those behind the new end. Beside a live broker they have to be read
before the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from recovery.archive.remote.log_dir_copy import LogDirCopy
from recovery.archive.stores.archived import StoredObject
from recovery.archive.stores.store import Store
from recovery.check.folder_files import MOST_SMALL_FILE_BYTES
from recovery.check.rules.indexes import without_preallocated
from segfmt import byte_layout
from segfmt.checkpoint import read_leader_epoch_checkpoint
from segfmt.entry_view import view_entries
from segfmt.errors import FileNameError, FormatError
from segfmt.filenames import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    FileKind,
    file_kind,
    read_offset,
)

_CHECKPOINTS = (RECOVERY_POINT_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT)
_INDEXES = {
    FileKind.OFFSET_INDEX: (byte_layout.OFFSET_INDEX_DTYPE, "position"),
    FileKind.TIME_INDEX: (byte_layout.TIME_INDEX_DTYPE, "timestamp_ms"),
}


class ToldEnd(NamedTuple):
    """What a file says of a log's end.

    Attributes:
        end_offset: the log had the offset before it.
        witness: URL of the file.
        is_doubtful: whether the log may have been truncated since. Kafka: OffsetIndex.truncateToEntries zeroes nothing.
    """

    end_offset: int
    witness: str
    is_doubtful: bool = False

    @property
    def is_high_watermark(self) -> bool:
        """Whether it may be of a deleted topic: of the other checkpoints brokers take such lines out at once."""
        return self.witness.endswith(f"/{REPLICATION_OFFSET_CHECKPOINT}")


def furthest(told: Iterable[ToldEnd], *, is_cut_off: bool) -> ToldEnd | None:
    """Return the furthest end that counts, None without one; of equal ones, not that of the high watermark.

    Args:
        told: of one log.
        is_cut_off: whether something behind its last batch is none. A truncation leaves whole batches.
    """
    return max(
        (one for one in told if is_cut_off or not one.is_doubtful),
        key=lambda one: (one.end_offset, not one.is_high_watermark),
        default=None,
    )


def ends_by_checkpoints(store: Store, copy: LogDirCopy, topic: str, partition: int) -> Iterator[ToldEnd]:
    """Yield what the checkpoints of the log dir at *store* say of a partition."""
    for name in _CHECKPOINTS:
        offset = copy.offsets.get(name, {}).get((topic, partition))
        if offset is not None:
            yield ToldEnd(offset, f"{store.url}/{name}")


def ends_by_files(store: Store, objects: Sequence[StoredObject]) -> Iterator[ToldEnd]:
    """Yield what the files of a partition's folder say of its log's end; malformed ones say nothing.

    Args:
        store: the log dir, or the folder itself.
        objects: of the folder.
    """
    offsets = {}
    for stored in objects:
        with suppress(FileNameError):
            offsets[stored] = file_kind(stored.name), read_offset(stored.name)
    bases = {base for kind, base in offsets.values() if kind is FileKind.LOG}
    last_base = max(bases, default=0)
    for stored, (kind, offset) in offsets.items():
        witness = f"{store.url}/{stored.key}"
        if kind is FileKind.SNAPSHOT:
            yield ToldEnd(offset, witness)
        elif kind in _INDEXES and offset >= last_base:
            if offset not in bases:  # there was a log, and a broker makes none before it has a batch for it
                yield ToldEnd(offset + 1, witness)
            yield from _end_by_index(store, stored, kind, offset, witness)
    for stored in objects:
        if stored.name == LEADER_EPOCH_CHECKPOINT:
            with suppress(OSError, FormatError):
                lines = read_leader_epoch_checkpoint(_read(store, stored))
                yield from (ToldEnd(line.start_offset, f"{store.url}/{stored.key}") for line in lines[-1:])


def _end_by_index(
    store: Store, stored: StoredObject, kind: FileKind, base_offset: int, witness: str
) -> Iterator[ToldEnd]:
    """Yield where the last entry of an index points; nothing if its entries do not ascend."""
    dtype, value = _INDEXES[kind]
    with suppress(OSError):
        whole = view_entries(_read(store, stored), dtype)
        entries = without_preallocated(whole)
        columns = [entries[name].astype(np.int64) for name in ("relative_offset", value)]
        if len(entries) and all((np.diff(column, prepend=0) >= 0).all() for column in columns):
            is_open = len(entries) < len(whole)
            yield ToldEnd(base_offset + int(columns[0][-1]) + 1, witness, is_doubtful=is_open)


def _read(store: Store, stored: StoredObject) -> bytes:
    return store.read(stored.key, most_bytes=MOST_SMALL_FILE_BYTES)
