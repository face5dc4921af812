"""The report of a run for people: problems first, and no more than needed of what went well."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from recovery.load.model import Cut

if TYPE_CHECKING:
    from recovery.engine.report import LogDirReport, PartitionReport, RecoveryReport

_MOST_QUIET_PARTITIONS = 30


def text_lines(report: RecoveryReport) -> Iterable[str]:
    """Yield the lines of *report*, without line ends; names in them are not escaped."""
    verb = "would be" if report.dry_run else "are"
    for log_dir in report.log_dirs:
        yield f"{log_dir.log_dir}: {_dir_text(log_dir, dry_run=report.dry_run)}"
        if log_dir.error and not log_dir.problems:
            yield f"  {log_dir.error}"
        yield from (f"  {problem}" for problem in log_dir.problems)
        if report.dry_run and log_dir.needed_bytes:
            yield f"  needs at most {log_dir.needed_bytes} bytes here, {log_dir.free_bytes} free"
        for earlier in log_dir.earlier_cuts:
            yield f"  {earlier}"
            yield from (f"    {_cut_text(cut)}" for cut in earlier.cuts)
        yield from _partitions_lines(log_dir.partitions, with_actions=report.dry_run)
        for folder in log_dir.passed_over:
            yield f"  {folder}: left alone"
        for action in log_dir.actions:
            yield f"  {action}"
        for note in log_dir.all_notes:
            yield f"  note: {note.text}"
        if log_dir.quarantine and any(partition.quarantined for partition in log_dir.partitions):
            yield f"  quarantine: {log_dir.quarantine}"
        elif log_dir.quarantine:
            yield f"  what was replaced or moved away is kept in {log_dir.quarantine}"
    for note in report.notes:
        yield f"note: {note.text}"
    yield f"{'planned' if report.dry_run else 'done'} {report.release}"
    if report.phases:
        times = ", ".join(f"{phase.phase} {phase.thread_ms / 1000:.1f} s" for phase in report.phases)
        yield f"took {report.duration_ms / 1000:.1f} s; of all threads: {times}"
    counts = _count(partition.status for partition in report.partitions)
    counts_text = ", ".join(f"{counts[status]} {status}" for status in counts)
    if not counts_text:
        counts_text = (
            "nothing found" if report.signal_exit_code is None else "interrupted before any was recovered"
        )
    yield f"{len(report.partitions)} partitions: {counts_text}" + (
        " (dry run: nothing was changed)" if report.dry_run else ""
    )
    repairable = sum(problem.repair is not None for problem in report.problems)
    if repairable:
        yield f"{repairable} of {len(report.problems)} problems can be repaired: recover --repair moves files away"
    cut = sum(partition.truncated_bytes for partition in report.partitions)
    if cut:
        batches = sum(partition.truncated_batches for partition in report.partitions)
        yield f"{cut} bytes ({batches} batches) {verb} cut off and kept in quarantine"
    earlier_bytes = sum(
        earlier_cut.truncated_bytes for log_dir in report.log_dirs for earlier_cut in log_dir.earlier_cuts
    )
    if earlier_bytes:
        yield f"{earlier_bytes} bytes were cut off by an earlier run, which did not get to say so"
    hole_count = sum(bool(partition.holes) for partition in report.partitions)
    if hole_count:
        yield f"offsets are missing in {_partitions_count(hole_count)}"
    earlier_count = sum(
        bool(earlier_cut.holes) for log_dir in report.log_dirs for earlier_cut in log_dir.earlier_cuts
    )
    if earlier_count:
        yield (
            f"offsets were missing in {_partitions_count(earlier_count)} that an earlier run read, "
            "which did not get to say so"
        )


def _partitions_count(count: int) -> str:
    return f"{count} partition{'s' if count > 1 else ''}"


def _dir_text(log_dir: LogDirReport, *, dry_run: bool) -> str:
    if log_dir.status == "offline":
        return "offline; what was not reached is as it was"
    if log_dir.status == "interrupted":
        return "interrupted, not handed over"
    if log_dir.status == "unchanged":
        return "nothing to recover, nothing changed"
    counts = _count(partition.status for partition in log_dir.partitions)
    counts_text = ", ".join(f"{count} {status}" for status, count in counts.items())
    if log_dir.marker and any(partition.status in ("refused", "failed") for partition in log_dir.partitions):
        marker = "the clean-shutdown marker stays, but a broker may halt on what is refused"
    elif log_dir.marker:
        marker = "a broker will skip recovery here"
    else:
        marker = "no clean-shutdown marker: a broker will check this dir"
    return f"{counts_text or 'no partitions'}; {marker}" + (" (dry run)" if dry_run else "")


def _partitions_lines(partitions: Iterable[PartitionReport], *, with_actions: bool) -> Iterable[str]:
    """Yield lines for all partitions that need them, but only for the first ones that were merely recovered."""
    quiet_count = 0
    for partition in partitions:
        is_quiet = not (partition.cuts or partition.holes or partition.warnings)
        if partition.status == "recovered" and is_quiet and not with_actions:
            quiet_count += 1
            if quiet_count > _MOST_QUIET_PARTITIONS:
                continue
        elif partition.status == "unchanged" and is_quiet:
            continue
        yield from _partition_lines(partition, with_actions=with_actions)
    if quiet_count > _MOST_QUIET_PARTITIONS:
        yield f"  and {quiet_count - _MOST_QUIET_PARTITIONS} more recovered, nothing lost (--format json names them)"


def _partition_lines(partition: PartitionReport, *, with_actions: bool) -> Iterable[str]:
    line = f"  {partition.folder}: {partition.status}"
    if partition.log_end_offset >= 0:
        line += f", offsets {partition.log_start_offset} to {partition.log_end_offset}"
    if partition.status in ("refused", "failed"):
        pass  # where it ended says more than what was read before
    elif partition.recovered_segments > partition.segment_count:
        line += f", {partition.recovered_segments} segments read, {partition.segment_count} left"
    elif partition.recovered_segments:
        line += f", {partition.recovered_segments} of {partition.segment_count} segments read"
    if partition.pending_deletion_count:
        line += f", {partition.pending_deletion_count} .deleted files ({partition.pending_deletion_bytes} bytes) gone"
    yield line
    yield from (f"    {_cut_text(cut)}" for cut in partition.cuts)
    yield from (f"    {hole}" for hole in partition.holes)
    for reason in partition.reasons if not partition.cuts else ():
        yield f"    {reason}"
    if with_actions:
        yield from (f"    save {save}" for save in partition.to_quarantine)
        yield from (f"    {action}" for action in partition.actions)
    for warning in partition.warnings:
        yield f"    note: {warning}"


def _cut_text(cut: Cut) -> str:
    is_whole = cut.position == 0 and not cut.is_scattered
    part = "whole segment" if is_whole else f"from byte {cut.position}"
    return f"{cut.file} {part}: {cut.size_bytes} bytes, {cut.batch_count} batches: {cut.reason}"


def _count(statuses: Iterable[str]) -> Mapping[str, int]:
    counts: dict[str, int] = {}
    for status in statuses:
        counts[status] = counts.get(status, 0) + 1
    return counts
