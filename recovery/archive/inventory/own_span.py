"""Where a segment ends, and in which leader epoch, by what is archived of it: for segments that no metadata knows."""

from __future__ import annotations

from contextlib import closing
from typing import NamedTuple

import numpy as np

from recovery.archive.layouts.layout import ArchivedFiles, Layout
from recovery.archive.layouts.log_windows import BatchWindow, LogWindows
from recovery.archive.stores.archived import ArchivedSegment, PartKind
from recovery.archive.stores.store import Store
from segfmt.errors import FormatError
from segfmt.filenames import log_name, offset_index_name
from segfmt.offset_index import view_offset_index


class OwnSpan(NamedTuple):
    """What a segment says of itself.

    Attributes:
        end_offset: of its last record.
        last_epoch: leader epoch of that record.
        end_position: in the log, behind that record's batch; None by a manifest.
    """

    end_offset: int
    last_epoch: int
    end_position: int | None = None


def read_own_span(store: Store, layout: Layout, segment: ArchivedSegment) -> OwnSpan | None:
    """Return the end of a segment by its manifest or its last batches, to which the offset index leads.

    None if it cannot be read.
    """
    try:
        files = layout.files(store, segment)
        described = files.described()
        if described is not None:
            return OwnSpan(described.end_offset, described.leader_epochs[-1].epoch)
        return _by_log(files, segment)
    except (FormatError, OSError):
        return None


def last_batch_position(files: ArchivedFiles, segment: ArchivedSegment) -> int | None:
    """Return where the last sound batch of a segment's log begins, None without one.

    Raises:
        FormatError, OSError: the log or its offset index cannot be read.
    """
    row = _last_row(files, segment)
    return None if row is None else int(row["position"])


def _by_log(files: ArchivedFiles, segment: ArchivedSegment) -> OwnSpan | None:
    row = _last_row(files, segment)
    if row is None:
        return None
    end_position = int(row["position"]) + int(row["size_bytes"])
    return OwnSpan(int(row["last_offset"]), int(row["leader_epoch"]), end_position)


def _last_row(files: ArchivedFiles, segment: ArchivedSegment) -> np.void | None:
    """Return the header of the last sound batch, one of HEADER_ROW_DTYPE; None without one."""
    with closing(files.open(log_name(segment.base_offset))) as log:
        for position in (_last_position(files, segment), 0):
            last: np.void | None = None
            for window in LogWindows(log, base_offset=segment.base_offset, position=position):
                if isinstance(window, BatchWindow) and window.is_valid.any():
                    last = window.rows[window.is_valid][-1]
            if last is not None:
                return last
    return None


def _last_position(files: ArchivedFiles, segment: ArchivedSegment) -> int:
    """Return where the last entry of the offset index points, 0 if that is not in the log."""
    if PartKind.OFFSET_INDEX not in segment.parts:
        return 0
    data, _ = files.read_index(offset_index_name(segment.base_offset), lambda _: None)
    position = int(view_offset_index(data)["position"].max(initial=0))
    return position if 0 <= position < files.log_bytes() else 0
