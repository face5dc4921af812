"""Where logs begin by the checkpoints of copied log dirs."""

from __future__ import annotations

from recovery.archive.records.batch_heads import Fault
from recovery.archive.records.planned_faults import PlannedFault
from recovery.archive.remote.log_dir_copy import LogDirCopy
from recovery.archive.stores.archived import PartitionPrefix
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
    finding = log_dir.fault(LOG_START_OFFSET_CHECKPOINT)
    if finding is not None:
        return None, PlannedFault(prefix + finding.file, Fault(finding.rule, finding.detail))
    return log_dir.offset(LOG_START_OFFSET_CHECKPOINT, where), None
