"""Leader epochs: the log's batches against leader-epoch-checkpoint. Pure.

A broker writes the line of an epoch before its first batch, so each batch has the epoch that the file gives for its
offset. The file does not know what lies before its first line (a recovery begins the file where it begins itself).

Kafka: LeaderEpochFileCache.assign, epochForOffset.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from recovery.check.finding import Finding, Rule
from recovery.check.rules.batches import EpochRun
from segfmt.checkpoint import LeaderEpochEntry
from segfmt.filenames import LEADER_EPOCH_CHECKPOINT

PlacedRun = tuple[str, EpochRun]
"""A log's name, and a run of batches of one epoch in it."""


@dataclass(frozen=True, slots=True)
class EpochDifference:
    """The first offset about which two lists of leader epochs differ, and its epoch in each; None: in no line."""

    offset: int
    own: int | None
    other: int | None


def epochs_between(
    entries: Sequence[LeaderEpochEntry], start_offset: int, end_offset: int
) -> list[LeaderEpochEntry]:
    """Return the epochs of the offsets from *start_offset* up to *end_offset*, which is not included.

    Kafka: LeaderEpochFileCache.epochEntriesInRange.
    """
    starts = [entry.start_offset for entry in entries]
    first, last = bisect_right(starts, start_offset), bisect_left(starts, end_offset)
    kept = list(entries[first:last])
    if first and start_offset < end_offset:
        kept.insert(0, LeaderEpochEntry(entries[first - 1].epoch, start_offset))
    return kept


def first_difference(
    own: Sequence[LeaderEpochEntry], other: Sequence[LeaderEpochEntry], end_offset: int
) -> EpochDifference | None:
    """Return where two lists first differ about an offset before *end_offset* that both know; None if nowhere."""
    if not own or not other:
        return None
    start = max(own[0].start_offset, other[0].start_offset)
    pairs = zip_longest(epochs_between(own, start, end_offset), epochs_between(other, start, end_offset))
    for pair in pairs:
        if pair[0] != pair[1]:
            offset = min(entry.start_offset for entry in pair if entry is not None)
            own_epoch, other_epoch = (
                _epoch_at([entry.start_offset for entry in entries], entries, offset)
                for entries in (own, other)
            )
            return EpochDifference(offset, own_epoch, other_epoch)
    return None


def check_epochs(
    runs: Sequence[PlacedRun],
    entries: Sequence[LeaderEpochEntry],
    *,
    log_end_offset: int | None,
    is_clean: bool,
    log_start_offset: int = 0,
    has_all_batches: bool = False,
) -> list[Finding]:
    """Return the contradictions between batches and file, and within each.

    Args:
        runs: those of the whole log, in its order.
        entries: those of the file, in its order.
        log_end_offset: None if it is unknown (damage, a live broker).
        is_clean: whether the log dir was shut down cleanly.
        log_start_offset: what lies before it is deleted, though its batches may be there: the file need not know it.
        has_all_batches: whether *runs* are of all batches that were ever written from the first of them on.
    """
    findings = _check_entries(entries)
    if findings:
        return findings
    real = [(file, run) for file, run in runs if run.epoch != -1 and run.last_offset >= log_start_offset]
    if real and not entries:
        detail = (
            f"the file has no line, although batches have epochs up to {max(run.epoch for _, run in real)}"
        )
        return [_of_file("missing-epochs", detail)]
    findings += [finding for _, finding in find_contradictions(runs, entries)]
    within = (
        start_within_batch([run for _, run in runs], entries, log_end_offset) if has_all_batches else None
    )
    if within is not None and not findings:
        detail = f"epoch {within.epoch} starts at {within.start_offset}, where no batch of it begins"
        findings.append(_of_file("epoch-content", detail))
    if (
        real
        and log_end_offset is not None
        and entries[0].start_offset > max(run.last_offset for _, run in real)
        and entries[0].epoch != real[-1][1].epoch  # else the log start lies within the last batch
    ):
        detail = f"the first line begins at {entries[0].start_offset}, after all batches that have an epoch"
        return [*findings, _of_file("epoch-content", detail)]
    if log_end_offset is not None and entries and entries[-1].start_offset > log_end_offset:
        detail = f"epoch {entries[-1].epoch} starts at {entries[-1].start_offset}, the log ends at {log_end_offset}"
        finding = _of_file("epoch-content", detail)
        findings.append(finding if is_clean else finding.as_note())
    return findings


def _check_entries(entries: Sequence[LeaderEpochEntry]) -> list[Finding]:
    for number, entry in enumerate(entries):
        if entry.epoch < 0 or entry.start_offset < 0:
            return [
                _of_file("epoch-content", f"line {number + 3}: {entry.epoch} {entry.start_offset}: negative")
            ]
        before = entries[number - 1] if number else None
        if before is not None and (entry.epoch <= before.epoch or entry.start_offset <= before.start_offset):
            detail = f"line {number + 3}: epoch {entry.epoch} from {entry.start_offset} on is not above the line before"
            return [_of_file("epoch-content", detail)]
    return []


def find_contradictions(
    runs: Sequence[PlacedRun], entries: Sequence[LeaderEpochEntry]
) -> Iterator[tuple[EpochRun, Finding]]:
    """Yield the runs whose epoch is not that of the file, and which of the two is wrong.

    Args:
        runs: neighbours in a log, in its order.
        entries: those of the file, ascending.
    """
    starts = [entry.start_offset for entry in entries]
    known_epochs = {entry.epoch for entry in entries}
    for number, (file, run) in enumerate(runs):
        expected = {_epoch_at(starts, entries, offset) for offset in (run.first_offset, run.last_offset)}
        is_early = all(earlier_run.epoch == -1 for _, earlier_run in runs[:number])
        if run.epoch == -1 and is_early and expected == {None}:
            continue  # written by a broker without epochs
        before = runs[number - 1][1].epoch if number else -1
        after = runs[number + 1][1].epoch if number + 1 < len(runs) else None
        rises = run.epoch >= before and (after is None or after >= run.epoch)
        limit = entries[0].epoch if entries else None
        if expected == {run.epoch}:
            continue  # if anything is wrong, it is a neighbour
        if (
            None in expected
            and expected <= {None, run.epoch}
            and rises
            and (limit is None or run.epoch <= limit)
        ):
            continue
        says = ", ".join("nothing" if epoch is None else str(epoch) for epoch in sorted(expected, key=str))
        if run.epoch >= 0 and rises and (run.epoch in known_epochs or _is_confirmed(runs, number)):
            batches = f"batches from {run.first_offset} to {run.last_offset}"
            detail = f"{batches} have epoch {run.epoch}, the file says {says}"
            yield run, _of_file("epoch-content", detail)
        else:
            detail = f"leader epoch {run.epoch} at offset {run.first_offset}, {LEADER_EPOCH_CHECKPOINT} says {says}"
            yield run, Finding(file=file, position=run.position, rule="leader-epoch", detail=detail)


def start_within_batch(
    runs: Sequence[EpochRun], entries: Sequence[LeaderEpochEntry], log_end_offset: int | None
) -> LeaderEpochEntry | None:
    """Return the first line, but the very first, that begins where no batch of its epoch does; None without one.

    A broker writes a line before the first batch of its epoch.

    Args:
        runs: of all batches that were ever written from the first of them on.
        entries: the lines.
        log_end_offset: None if it is unknown.
    """
    if not runs or any(run.epoch == -1 for run in runs):
        return None
    begun = {run.first_offset for run in runs}
    end = runs[-1].last_offset if log_end_offset is None else log_end_offset
    known = (entry for entry in entries[1:] if runs[0].first_offset <= entry.start_offset < end)
    return next((entry for entry in known if entry.start_offset not in begun), None)


def _is_confirmed(runs: Sequence[PlacedRun], number: int) -> bool:
    """Return whether several batches have the epoch of a run: a damaged field is in one batch only."""
    run = runs[number][1]
    neighbours = [
        neighbour.epoch
        for _, neighbour in (*runs[max(0, number - 1) : number], *runs[number + 1 : number + 2])
    ]
    return run.first_offset != run.last_offset or run.epoch in neighbours


def _epoch_at(starts: list[int], entries: Sequence[LeaderEpochEntry], offset: int) -> int | None:
    count = bisect_right(starts, offset)
    return entries[count - 1].epoch if count else None


def _of_file(rule: Rule, detail: str) -> Finding:
    return Finding(file=LEADER_EPOCH_CHECKPOINT, position=None, rule=rule, detail=detail)
