"""Whether a log is that of its segment, where its size or its first batch make that doubtful.

Each batch of an exchanged log is sound by itself. The offset index is what the segment knows of its own log: its
entries lead to batches, by position and last offset, and those of another log are hardly ever where they say.
"""

from __future__ import annotations

from typing import Final

from native.batch_headers import HeaderRows
from recovery.archive.layouts.holed_log import ChunkError
from recovery.archive.layouts.layout import ArchivedFiles
from recovery.archive.layouts.log_windows import BatchWindow, LogWindows
from segfmt import byte_layout
from segfmt.filenames import log_name, offset_index_name
from segfmt.offset_index import view_offset_index

_MOST_ENTRIES: Final = 8
"""Of an index that are compared; one that fits is enough."""


def begins_elsewhere(base_offset: int, rows: HeaderRows) -> bool:
    """Return whether the first of a log's batches does not begin at the base offset of the segment."""
    is_v2 = rows["magic"][0] >= byte_layout.MAGIC_V2
    return bool(rows["position"][0] == 0 and is_v2 and rows["base_offset"][0] != base_offset)


def is_foreign(files: ArchivedFiles, base_offset: int) -> bool:
    """Return whether a log has none of the batches of which the offset index of its segment has entries.

    False where that cannot be compared: there is no index, or no entry of it is within the log.

    Raises:
        OSError: the log or its index cannot be read.
    """
    try:
        data, _ = files.read_index(offset_index_name(base_offset), lambda _: None)
    except (FileNotFoundError, ChunkError):
        return False
    entries = view_offset_index(data)
    log = files.open(log_name(base_offset))
    try:
        entries = entries[(entries["position"] > 0) & (entries["position"] < log.end_position)]
        every = -(-len(entries) // _MOST_ENTRIES) or 1
        for entry in entries[::every]:
            position, relative = int(entry["position"]), int(entry["relative_offset"])
            windows = LogWindows(log, base_offset=base_offset, is_last=True, position=position)
            window = next(iter(windows), None)
            if isinstance(window, BatchWindow) and _fits(window, position, base_offset + relative):
                return False
    finally:
        log.close()
    return len(entries) > 0


def _fits(window: BatchWindow, position: int, last_offset: int) -> bool:
    row = window.rows[0]
    return bool(window.is_valid[0] and row["position"] == position and row["last_offset"] == last_offset)
