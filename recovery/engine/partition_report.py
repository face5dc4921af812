"""What a partition's recovery comes to, for the report."""

from __future__ import annotations

from recovery.engine.report import PartitionReport, Status
from recovery.errors import PartitionRefusedError
from recovery.load.model import PartitionOutcome, PartitionTask, RemovalKind
from recovery.plan.actions import PartitionPlan, RemoveFile, SaveFile, action_words
from segfmt.filenames import LOG_SUFFIX


def report_of(
    task: PartitionTask, outcome: PartitionOutcome, plan: PartitionPlan, saved: list[str], *, duration_ms: int
) -> PartitionReport:
    """Return the report of a partition that could be loaded.

    Args:
        saved: the paths that hold what is lost from the log.
    """
    is_recovered = not (task.had_clean_shutdown or task.is_delete_folder) and outcome.recovered_segments > 0
    status: Status = "unchanged"
    if any(not cut.is_preallocated for cut in outcome.cuts):
        status = "truncated"
    elif is_recovered or not plan.is_empty:
        status = "recovered"
    pending = [
        action.size_bytes
        for action in plan.actions
        if isinstance(action, RemoveFile) and action.kind is RemovalKind.PENDING_DELETION
    ]
    return PartitionReport(
        log_dir=task.log_dir,
        folder=task.folder,
        topic=task.topic_partition.topic,
        partition=task.topic_partition.partition,
        status=status,
        segment_count=outcome.segment_count,
        scanned_bytes=outcome.scanned_bytes,
        recovered_segments=outcome.recovered_segments,
        recovered_bytes=outcome.recovered_bytes,
        log_start_offset=outcome.log_start_offset,
        log_end_offset=outcome.log_end_offset,
        cuts=outcome.cuts,
        holes=outcome.holes,
        actions=tuple(action_words(action) for action in plan.actions),
        to_quarantine=tuple(
            save.name if isinstance(save, SaveFile) else f"{save.name} from byte {save.position}"
            for save in plan.saves
            if not save.is_derived
        ),
        quarantined=tuple(saved),
        reasons=tuple(dict.fromkeys(cut.reason for cut in outcome.cuts)),
        warnings=outcome.warnings,
        pending_deletion_count=len(pending),
        pending_deletion_bytes=sum(pending),
        duration_ms=duration_ms,
    )


def report_of_refused(
    task: PartitionTask, refusal: PartitionRefusedError, *, duration_ms: int
) -> PartitionReport:
    """Return the report of a partition that a broker would not load."""
    return PartitionReport(
        log_dir=task.log_dir,
        folder=task.folder,
        topic=task.topic_partition.topic,
        partition=task.topic_partition.partition,
        status="refused",
        segment_count=sum(name.endswith(LOG_SUFFIX) for name in task.files),
        reasons=tuple(map(str, refusal.problems)),
        problems=refusal.problems,
        duration_ms=duration_ms,
    )
