"""Leader epochs: the log's batches against leader-epoch-checkpoint. Pure.

A broker writes the line of an epoch before the first batch of it, so each batch has the epoch that the file gives its
offset. What lies before the file's first line is not known there (a recovery begins the file where it begins).

Kafka: LeaderEpochFileCache.assign, epochForOffset.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from recovery.check.finding import Finding, Rule
from recovery.check.rules.batches import EpochRun
from segfmt.checkpoint import LeaderEpochEntry
from segfmt.filenames import LEADER_EPOCH_CHECKPOINT

PlacedRun = tuple[str, EpochRun]
"""A log's name, and a run of batches of one epoch in it."""


def check_epochs(
    runs: Sequence[PlacedRun],
    entries: Sequence[LeaderEpochEntry],
    *,
    log_end_offset: int | None,
    is_clean: bool,
) -> list[Finding]:
    """Return where batches and file contradict each other, or themselves.

    Args:
        runs: of the whole log, in its order.
        entries: of the file, in its order.
        log_end_offset: None where it is not known (damage, a live broker).
        is_clean: whether the log dir was shut down cleanly.
    """
    findings = _check_entries(entries)
    if findings:
        return findings
    real = [(file, run) for file, run in runs if run.epoch != -1]
    if real and not entries:
        words = f"no line, although batches have epochs up to {max(run.epoch for _, run in real)}"
        return [_of_file("missing-epochs", words)]
    findings += _check_runs(runs, entries)
    if (
        real
        and log_end_offset is not None
        and entries[0].start_offset > max(run.last_offset for _, run in real)
    ):
        words = f"the first line begins at {entries[0].start_offset}, behind all batches that have an epoch"
        return [*findings, _of_file("epoch-content", words)]
    if log_end_offset is not None and entries and entries[-1].start_offset > log_end_offset:
        words = f"epoch {entries[-1].epoch} starts at {entries[-1].start_offset}, the log ends at {log_end_offset}"
        found = _of_file("epoch-content", words)
        findings.append(found if is_clean else found.as_note())
    return findings


def _check_entries(entries: Sequence[LeaderEpochEntry]) -> list[Finding]:
    for number, entry in enumerate(entries):
        if entry.epoch < 0 or entry.start_offset < 0:
            return [
                _of_file("epoch-content", f"line {number + 3}: {entry.epoch} {entry.start_offset}: negative")
            ]
        before = entries[number - 1] if number else None
        if before is not None and (entry.epoch <= before.epoch or entry.start_offset <= before.start_offset):
            words = f"line {number + 3}: epoch {entry.epoch} from {entry.start_offset} on is not above the line before"
            return [_of_file("epoch-content", words)]
    return []


def _check_runs(runs: Sequence[PlacedRun], entries: Sequence[LeaderEpochEntry]) -> list[Finding]:
    starts = [entry.start_offset for entry in entries]
    known = {entry.epoch for entry in entries}
    findings: list[Finding] = []
    for place, (file, run) in enumerate(runs):
        expected = {_epoch_at(starts, entries, offset) for offset in (run.first_offset, run.last_offset)}
        if run.epoch == -1 and all(other.epoch == -1 for _, other in runs[:place]):
            continue  # written before there were epochs
        before = runs[place - 1][1].epoch if place else -1
        behind = runs[place + 1][1].epoch if place + 1 < len(runs) else None
        rises = run.epoch >= before and (behind is None or behind >= run.epoch)
        limit = entries[0].epoch if entries else None
        if expected == {run.epoch}:
            continue  # a neighbour is wrong, if anything
        if (
            None in expected
            and expected <= {None, run.epoch}
            and rises
            and (limit is None or run.epoch <= limit)
        ):
            continue
        says = ", ".join("nothing" if epoch is None else str(epoch) for epoch in sorted(expected, key=str))
        if rises and (run.epoch in known or _is_confirmed(runs, place)):
            words = f"batches from {run.first_offset} to {run.last_offset} have epoch {run.epoch}, the file says {says}"
            findings.append(_of_file("epoch-content", words))
        else:
            words = f"leader epoch {run.epoch} at offset {run.first_offset}, {LEADER_EPOCH_CHECKPOINT} says {says}"
            findings.append(Finding(file=file, position=run.position, rule="leader-epoch", detail=words))
    return findings


def _is_confirmed(runs: Sequence[PlacedRun], place: int) -> bool:
    """Return whether several batches have the epoch of a run: one damaged field is in one batch."""
    run = runs[place][1]
    neighbours = [
        other.epoch for _, other in (*runs[max(0, place - 1) : place], *runs[place + 1 : place + 2])
    ]
    return run.first_offset != run.last_offset or run.epoch in neighbours


def _epoch_at(starts: list[int], entries: Sequence[LeaderEpochEntry], offset: int) -> int | None:
    place = bisect_right(starts, offset)
    return entries[place - 1].epoch if place else None


def _of_file(rule: Rule, detail: str) -> Finding:
    return Finding(file=LEADER_EPOCH_CHECKPOINT, position=None, rule=rule, detail=detail)
