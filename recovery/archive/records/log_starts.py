"""Where logs begin by the checkpoints of log dirs, as far as these can be right: never after a log's end."""

from __future__ import annotations

from collections.abc import Sequence

from recovery.archive.layouts.layout import Layout
from recovery.archive.layouts.log_windows import BatchWindow
from recovery.archive.records.batch_heads import Fault
from recovery.archive.records.planned_faults import PlannedFault
from recovery.archive.records.run_files import opened_windows
from recovery.archive.remote.log_dir_copy import LogDirCopy
from recovery.archive.stores.archived import ArchivedSegment, PartitionPrefix, PartKind
from recovery.archive.stores.store import Store
from segfmt.filenames import LOG_START_OFFSET_CHECKPOINT


def copied_log_start(
    prefix: str, log_dir: LogDirCopy, where: PartitionPrefix
) -> tuple[int | None, PlannedFault | None]:
    """Return where a partition begins by the checkpoint of a copied log dir, None if not known; and its fault.

    Args:
        prefix: URL of the log dir, with its `/`.
        log_dir: its checkpoints.
        where: the partition.
    """
    for finding in log_dir.findings:
        if finding.file == LOG_START_OFFSET_CHECKPOINT:
            return None, PlannedFault(prefix + finding.file, Fault(finding.rule, finding.detail))
    return log_dir.offset(LOG_START_OFFSET_CHECKPOINT, where), None


def judge_log_start(
    store: Store,
    layout: Layout,
    segments: Sequence[ArchivedSegment],
    where: PartitionPrefix,
    start_offset: int,
) -> PlannedFault | None:
    """Return what is wrong with a log start offset; nothing if the log reaches it.

    Args:
        store: the log dir, or a copy of it.
        layout: of its folders.
        segments: of the partition, ascending.
        where: the partition, below the log dir.
        start_offset: by the checkpoint.
    """
    if not segments or 0 <= start_offset <= segments[-1].base_offset:
        return None
    end_offset = _end_offset(store, layout, segments[-1])
    if 0 <= start_offset <= end_offset:
        return None
    detail = f"{where.topic}-{where.partition}: log start offset {start_offset}, the log ends at {end_offset}"
    folder = where.prefix.rstrip("/").rpartition("/")[0]
    name = "/".join(filter(None, (store.url, folder, LOG_START_OFFSET_CHECKPOINT)))
    return PlannedFault(name, Fault("log-start", detail))


def _end_offset(store: Store, layout: Layout, segment: ArchivedSegment) -> int:
    """Return the offset after the last batch of a segment, its base offset without any."""
    end_offset = segment.base_offset
    if PartKind.LOG not in segment.parts:
        return end_offset
    with opened_windows(layout.files(store, segment), segment.base_offset, is_last=True) as windows:
        for window in windows:
            if isinstance(window, BatchWindow):
                ends = window.rows["last_offset"][window.is_valid]
                end_offset = max(end_offset, int(ends.max(initial=-1)) + 1)
    return end_offset
