"""Where the log of a partition ends in a log dir, by its last batches, to which the offset index leads.

Replicas roll their segments at different offsets, so neither names nor sizes of segments tell which reaches furthest.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from recovery.archive.remote.log_batches import read_batches
from recovery.archive.stores.archived import StoredObject
from recovery.archive.stores.store import Store
from recovery.check.folder_files import MOST_SMALL_FILE_BYTES
from recovery.check.rules.indexes import without_preallocated
from segfmt import byte_layout
from segfmt.entry_view import view_entries
from segfmt.errors import FileNameError
from segfmt.filenames import FileKind, file_kind, read_offset


def read_log_end(store: Store, objects: Sequence[StoredObject]) -> int:
    """Return the offset after the last sound batch, 0 without a log.

    Args:
        store: the log dir, or the folder itself.
        objects: of the partition's folder.
    """
    logs, indexes = _by_offset(objects, FileKind.LOG), _by_offset(objects, FileKind.OFFSET_INDEX)
    if not logs:
        return 0
    base_offset = max(logs)
    index = indexes.get(base_offset)
    try:
        with closing(store.open(logs[base_offset].key)) as log:
            position = 0 if index is None else _last_position(store, index)
            for start in (position if 0 < position < log.end_position else 0, 0):
                batches = read_batches(log, lambda _: None, position=start)
                end = max((batch.last_offset + 1 for batch in batches), default=None)
                if end is not None:
                    return end
    except OSError:
        pass  # whoever reads the log says why
    return base_offset


def _by_offset(objects: Sequence[StoredObject], kind: FileKind) -> dict[int, StoredObject]:
    found = {}
    for stored in objects:
        try:
            if file_kind(stored.name) is kind:
                found[read_offset(stored.name)] = stored
        except FileNameError:
            continue
    return found


def _last_position(store: Store, index: StoredObject) -> int:
    """Return where the last entry of an offset index points."""
    data = store.read(index.key, most_bytes=MOST_SMALL_FILE_BYTES)
    entries = without_preallocated(view_entries(data, byte_layout.OFFSET_INDEX_DTYPE))
    return max(entries["position"].tolist(), default=0)
