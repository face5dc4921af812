"""What is said of the partitions of a log dir in the end."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from recovery.engine.cut_ledger import untold_in
from recovery.engine.handoff import reported_marker
from recovery.engine.report import EarlierCut, LogDirReport, PartitionReport
from recovery.errors import LogDirOfflineError
from recovery.load.model import LogBounds
from recovery.logdir.inventory import LogDirInventory
from recovery.watch.events import CutByEarlierRun, PartitionFinished


def log_count(inventory: LogDirInventory) -> int:
    """Return how many logs a dir holds, refused ones included."""
    return len(inventory.tasks) + len(inventory.refused)


def finished_event(
    report: PartitionReport, bounds: LogBounds | None, *, thread_num: int, finished_count: int, log_count: int
) -> PartitionFinished:
    """Return what observers are told of a partition that is done.

    Args:
        bounds: None where it was refused.
        thread_num: of the thread that owned it.
        finished_count: of the dir's logs, this one included.
        log_count: of all of them.
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
    )


def earlier_cut_event(log_dir: str, cut: EarlierCut) -> CutByEarlierRun:
    """Return what observers are told of a cut that an earlier run has made and not told."""
    return CutByEarlierRun(
        log_dir=log_dir,
        partition=cut.partition,
        truncated_bytes=cut.truncated_bytes,
        truncated_batches=cut.truncated_batches,
        text=str(cut),
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


def check_all_ended(inventory: LogDirInventory, done: Collection[str]) -> None:
    """Make sure that each partition has ended in a result: none may be missing from the report without a word.

    Args:
        done: the folders of those that have.

    Raises:
        OSError: one has not. The dir is not handed over then.
    """
    lost = [task.folder for task in inventory.tasks if task.folder not in done]
    if lost:
        others = f" ({len(lost) - 1} more as well)" if lost[1:] else ""
        raise OSError(
            f"{inventory.log_dir}/{lost[0]}: recovery ended without a result{others}, a defect of this program. "
            "Remedy: run again, and report it"
        )


def failed_reports(
    inventory: LogDirInventory, done: Collection[str], error: OSError
) -> Iterator[PartitionReport]:
    """Yield the reports of the partitions that are not in *done* when a log dir goes offline for *error*."""
    for task in inventory.tasks:
        if task.folder not in done:
            yield PartitionReport(
                log_dir=task.log_dir,
                folder=task.folder,
                topic=task.topic_partition.topic,
                partition=task.topic_partition.partition,
                status="failed",
                reasons=(f"the log dir went offline: {error}",),
            )


def offline_report(error: LogDirOfflineError, *, repairs: tuple[str, ...]) -> LogDirReport:
    """Return the report of a log dir that is left as it is.

    Args:
        repairs: what was moved away in it before, in words.
    """
    return LogDirReport(
        log_dir=error.log_dir,
        status="offline",
        had_clean_shutdown=False,
        marker=reported_marker(error.log_dir),
        partitions=(),
        error=str(error.error),
        problems=error.problems,
        actions=repairs,
        earlier_cuts=untold_in(error.log_dir),
    )
