"""Whether a log that is there is the archived one, of which names and sizes tell nothing if it has one segment."""

from __future__ import annotations

import os
from contextlib import closing

import numpy as np

from recovery.archive.inventory.own_span import last_batch_position
from recovery.archive.restore.source import SourcePartition, SourceSegment
from recovery.archive.stores.store import Store
from recovery.read.file_system import open_file, read_at
from segfmt import byte_layout
from segfmt.errors import FormatError
from segfmt.filenames import log_name

_EPOCH = slice(
    byte_layout.PARTITION_LEADER_EPOCH_POSITION,
    byte_layout.PARTITION_LEADER_EPOCH_POSITION + 4,
)


def has_last_batch(store: Store, source: SourcePartition, folder: str) -> bool:
    """Return whether the log in *folder* has the last archived batch where the archive has it.

    Then it has those before it, too: logs that agree on an offset do up to there. What cannot be read is not the same.
    """
    last = next((one for one in reversed(source.segments) if one.log_bytes), None)
    if last is None:
        return True
    try:
        position, archived = _last_header(store, source, last)
        with open(
            os.path.join(folder, log_name(last.segment.base_offset)), "rb", buffering=0, opener=open_file
        ) as log:
            present = read_at(log.fileno(), position, len(archived))
    except (FormatError, OSError):
        return False
    return bool(archived) and _without_epoch(archived) == _without_epoch(present)


def _last_header(store: Store, source: SourcePartition, last: SourceSegment) -> tuple[int, bytes]:
    """Return where the last batch of a segment begins, and its first bytes; none if there is no sound batch."""
    files = source.layout.files(store, last.segment)
    position = last_batch_position(files, last.segment)
    if position is None:
        return 0, b""
    header = np.zeros(byte_layout.RECORD_BATCH_OVERHEAD_BYTES, np.uint8)
    with closing(files.open(log_name(last.segment.base_offset))) as log:
        return position, header[: log.read_at(header, position)].tobytes()


def _without_epoch(header: bytes) -> bytes:
    """Return *header* without the leader epoch, which a restore may have changed, and no checksum covers."""
    magic = header[byte_layout.MAGIC_POSITION : byte_layout.MAGIC_POSITION + 1]
    if not magic or magic[0] < byte_layout.MAGIC_V2:  # such a message has none
        return header
    return header[: _EPOCH.start] + header[_EPOCH.stop :]
