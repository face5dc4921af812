"""How a partition, or its log dir, ended: its part of the report, and the event for observers."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from recovery.engine.cut_ledger import cuts_of_run
from recovery.engine.loss import loss_text
from recovery.engine.report import LogDirReport, PartitionReport, Status
from recovery.engine.segment_news import ReadSoFar
from recovery.errors import PartitionRefusedError, error_text
from recovery.load.model import Cut, LogBounds, PartitionOutcome, PartitionTask, RemovalKind
from recovery.logdir.inventory import LogDirInventory
from recovery.plan.actions import PartitionPlan, RemoveFile, SaveFile, action_words
from recovery.read.file_system import is_there
from recovery.watch.events import PartitionFinished
from segfmt.filenames import DELETED_SUFFIX, LOG_SUFFIX


def report_of(
    task: PartitionTask, outcome: PartitionOutcome, plan: PartitionPlan, saved: list[str], *, duration_ms: int
) -> PartitionReport:
    """Return the report of a partition that could be loaded.

    Args:
        saved: the paths that hold what was cut from the log.
    """
    is_recovered = task.is_recovered and outcome.recovered_segments > 0
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
    task: PartitionTask, refusal: PartitionRefusedError, read_so_far: ReadSoFar, *, duration_ms: int
) -> PartitionReport:
    """Return the report of a partition that a broker would not load."""
    return PartitionReport(
        log_dir=task.log_dir,
        folder=task.folder,
        topic=task.topic_partition.topic,
        partition=task.topic_partition.partition,
        status="refused",
        segment_count=sum(name.endswith(LOG_SUFFIX) for name in task.files),
        scanned_bytes=read_so_far.scanned_bytes,
        recovered_segments=read_so_far.recovered_segments,
        recovered_bytes=read_so_far.recovered_bytes,
        reasons=tuple(map(str, refusal.problems)),
        problems=refusal.problems,
        duration_ms=duration_ms,
    )


def log_dir_report(inventory: LogDirInventory, **fields: Any) -> LogDirReport:  # noqa: ANN401 - handed on
    """Return the report of a log dir: what is always known of it, and *fields*."""
    return LogDirReport(
        log_dir=inventory.log_dir,
        had_clean_shutdown=inventory.had_marker,
        passed_over=inventory.passed_over,
        not_chosen=inventory.left_out,
        problems=inventory.blockers,
        warnings=tuple(map(str, inventory.notes)),
        **fields,
    )


def refused_reports(inventory: LogDirInventory) -> list[PartitionReport]:
    """Return the reports of the folders that were refused before anything was read."""
    return [
        PartitionReport(
            log_dir=inventory.log_dir,
            folder=refused.folder,
            status="refused",
            reasons=tuple(map(str, refused.refusal.problems)),
            problems=refused.refusal.problems,
        )
        for refused in inventory.refused
    ]


def failed_reports(
    inventory: LogDirInventory,
    finished: Collection[str],
    error: OSError,
    read_so_far: Mapping[str, ReadSoFar] = MappingProxyType({}),
    entered_folders: Collection[str] = (),
    run_folder: str | None = None,
) -> Iterator[PartitionReport]:
    """Yield the reports of the partitions that are not in *finished* when a log dir goes offline for *error*.

    Args:
        read_so_far: of those that were begun, by folder.
        entered_folders: those whose changes the next run finishes and reports.
        run_folder: of the run in quarantine: what it has cut of them by now is reported.
    """
    cuts_by_folder = cuts_of_run(inventory.log_dir, run_folder)
    for task in inventory.tasks:
        if task.folder not in finished:
            so_far = read_so_far.get(task.folder, ReadSoFar())
            pending = [] if task.folder in entered_folders else [*_carried_out(task)]
            cuts = cuts_by_folder.get(task.folder, ())
            yield PartitionReport(
                log_dir=task.log_dir,
                folder=task.folder,
                topic=task.topic_partition.topic,
                partition=task.topic_partition.partition,
                status="failed",
                scanned_bytes=so_far.scanned_bytes,
                recovered_segments=so_far.recovered_segments,
                recovered_bytes=so_far.recovered_bytes,
                pending_deletion_count=len(pending),
                pending_deletion_bytes=sum(pending),
                reasons=(f"the log dir went offline: {error_text(error)}",),
                cuts=cuts,
                quarantined=tuple(_saved_paths(os.path.join(run_folder or "", task.folder), cuts)),
            )


def _saved_paths(folder: str, cuts: Iterable[Cut]) -> Iterator[str]:
    """Yield where a run has saved what *cuts* took from a partition, given its folder in quarantine."""
    for cut in cuts:
        names = (f"{cut.file}.from-{cut.position}", cut.file)
        yield from (path for name in names if is_there(path := os.path.join(folder, name)))


def _carried_out(task: PartitionTask) -> Iterator[int]:
    """Yield the sizes of the `.deleted` files that are gone by now, as far as can be seen."""
    for name, stat in task.files.items():
        with suppress(OSError):
            if name.endswith(DELETED_SUFFIX) and not is_there(os.path.join(task.log_dir, task.folder, name)):
                yield stat.size_bytes


def finished_event(
    report: PartitionReport, bounds: LogBounds | None, *, thread_num: int, finished_count: int, log_count: int
) -> PartitionFinished:
    """Return the event for a partition that is done.

    Args:
        bounds: None if it was refused.
        thread_num: the thread that owned it.
        finished_count: how many of the dir's logs are done, this one included.
        log_count: how many logs the dir has.
    """
    return PartitionFinished(
        log_dir=report.log_dir,
        partition=report.folder,
        thread_num=thread_num,
        status=report.status,
        log_start_offset=max(report.log_start_offset, 0),
        log_end_offset=max(report.log_end_offset, 0),
        segment_count=report.segment_count,
        truncated_bytes=report.truncated_bytes,
        truncated_batches=report.truncated_batches,
        duration_ms=report.duration_ms,
        finished_count=finished_count,
        log_count=log_count,
        local_log_start_offset=bounds.local_log_start_offset if bounds is not None else None,
        topic_id=bounds.topic_id if bounds is not None else None,
        reason="; ".join(report.reasons) if report.status in ("refused", "failed") else "",
        loss=f"{loss_text(report.losses)}: {report.losses[0].reason}" if report.losses else "",
        recovered_segments=report.recovered_segments,
        recovered_bytes=report.recovered_bytes,
    )
