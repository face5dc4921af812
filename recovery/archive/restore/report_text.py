"""The report of a restore for people: problems first, then what became of all, and what comes next.

What is the same in many partitions is one line with their number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from recovery.logdir.undo_command import undo_commands
from recovery.printable import shell_line
from recovery.quantity import bytes_text, count_text, offsets_text, partitions_text

if TYPE_CHECKING:
    from recovery.archive.restore.report import RestoredLogDir, RestoredPartition, RestoreReport

_MOST_NAMED = 3
"""Partitions that a line about several names, unless each is asked for."""
FINISHED_TEXT = "moved in what an interrupted run had fetched"


def text_lines(report: RestoreReport, verbosity: int) -> Iterator[str]:
    """Yield the lines of *report*, without line ends; names in them are not escaped.

    Args:
        verbosity: -1: problems alone; 1: each partition.
    """
    most = None if verbosity > 0 else _MOST_NAMED
    yield from _problems(report, most)
    yield from _warnings(report, most)
    if verbosity < 0:
        return
    yield from (
        f"FINISHED {one.log_dir}: {FINISHED_TEXT}: {', '.join(one.finished.partitions)}"
        for one in report.log_dirs
        if one.finished is not None and one.finished.partitions
    )
    if verbosity > 0:
        yield from (_line(one, report) for one in report.partitions if not _is_left(one))
    yield from map(_log_dir_line, report.log_dirs)
    yield f"{_counts(report)}. {_next(report)}"
    yield from undo_commands({one.log_dir: one.kept_runs for one in report.log_dirs}, "takes it back")


def _problems(report: RestoreReport, most: int | None) -> Iterator[str]:
    if report.signal_number is not None:
        yield f"INTERRUPTED by signal {report.signal_number}: start again to resume"
    yield from (f"NOT WHOLE {text}" for text in report.in_part)
    yield from (f"OFFLINE {one.log_dir}: {one.error}" for one in report.log_dirs if one.error is not None)
    reasons: dict[tuple[str, str], list[RestoredPartition]] = {}
    for one in report.partitions:
        if _is_left(one):
            reasons.setdefault((one.status, "; ".join(one.reasons)), []).append(one)
    for (status, reason), partitions in sorted(reasons.items(), key=lambda item: item[0][0]):
        yield f"{status.upper()} {_named(partitions, most)}: {reason}"


def _warnings(report: RestoreReport, most: int | None) -> Iterator[str]:
    """Yield what the operator should know of what is there: once, however many partitions it is about."""
    retained = [
        (one, one.retained) for one in report.partitions if one.retained is not None and one.retained[0]
    ]
    if retained:
        segments, size_bytes = (sum(figures[number] for _, figures in retained) for number in (0, 1))
        yield (
            f"RETENTION deletes {count_text(segments, 'segment')}, {bytes_text(size_bytes)}, within minutes of the "
            f"broker's start: {_named([one for one, _ in retained], most)}. Remedy: raise retention.ms and "
            "retention.bytes of the topics before"
        )
    texts: dict[str, list[RestoredPartition]] = {}
    for one in report.partitions:
        for text in one.warnings:
            texts.setdefault(text, []).append(one)
    yield from (f"WARNING {_named(partitions, most)}: {text}" for text, partitions in texts.items())
    yield from (f"WARNING {text}" for text in report.warnings)


def _named(partitions: Sequence[RestoredPartition], most: int | None) -> str:
    return partitions_text([f"{one.topic}-{one.partition}" for one in partitions], most)


def _is_left(one: RestoredPartition) -> bool:
    return one.status in ("refused", "failed")


def _line(one: RestoredPartition, report: RestoreReport) -> str:
    size = f"{count_text(one.segments, 'segment')}, {bytes_text(one.size_bytes)}"
    epochs = "" if one.leader_epochs is None else f", leader epochs {one.leader_epochs}"
    return (
        f"{one.topic}-{one.partition}: {_done(one.status, report)} in {one.log_dir} ({one.mode}): {size}, "
        f"{_offsets(one)}{epochs}"
    )


def _offsets(one: RestoredPartition) -> str:
    if one.log_end_offset is None and not one.segments:
        return "empty"
    if one.log_end_offset is None:
        end = "its last one" if one.status == "unchanged" else "the last one archived"
        return f"offsets {one.log_start_offset} to {end}"
    assert one.log_start_offset is not None
    return offsets_text(one.log_start_offset, one.log_end_offset)


def _done(status: str, report: RestoreReport) -> str:
    words = {"restored": "to be restored" if report.dry_run else "restored", "unchanged": "there already"}
    return words.get(status, status)


def _log_dir_line(one: RestoredLogDir) -> str:
    usable = "unknown" if one.usable_bytes is None else bytes_text(one.usable_bytes)
    cordoned = ", cordoned" if one.is_cordoned else ""
    return f"{one.log_dir}: {bytes_text(one.needed_bytes)} needed, {usable} usable{cordoned}"


def _counts(report: RestoreReport) -> str:
    counts = Counter(one.status for one in report.partitions)
    sizes: Counter[str] = Counter()
    for one in report.partitions:
        sizes[one.status] += one.size_bytes
    words = [
        f"{counts[status]:,} {_done(status, report)}"
        + (f" ({bytes_text(sizes[status])})" if sizes[status] else "")
        for status in ("restored", "unchanged", "refused", "failed")
        if counts[status]
    ]
    if report.signal_number is not None and not words:
        return "Interrupted before it was known what is to be restored"
    return f"{count_text(len(report.partitions), 'partition')}: {', '.join(words) or 'nothing to do'}"


def _next(report: RestoreReport) -> str:
    """Return what the operator does next."""
    if report.dry_run:
        return "Nothing was written (dry run)."
    if report.exit_code == 0 and report.unclean_dirs:
        return (
            "Before the broker starts, recover the logs that were there, which were not shut down cleanly: "
            + shell_line(["kafka-log-recovery", "recover", "--log-dirs", ",".join(report.unclean_dirs)])
        )
    if report.exit_code == 0:
        return "Read the warnings, then start the broker." if report.warnings else "Start the broker now."
    return "A broker that is started now begins empty what is not there, or fetches it from other replicas."
