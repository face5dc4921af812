"""What a cut takes from a log, in words: offsets, bytes and batches, as far as headers tell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from recovery.load.model import Cut
from recovery.quantity import count_text, exact_bytes_text


def loss_text(cuts: Sequence[Cut]) -> str:
    """Return what the *cuts* of one log take: "offsets 230 to 269 (at most 40 records), 15,417 bytes, 2 batches"."""
    return f"{_offsets(cuts)}, {amount_text(cuts)}"


def total_text(cuts_of_logs: Sequence[Sequence[Cut]]) -> str:
    """Return what the cuts of many logs come to; records are counted only where the offsets of all are known."""
    all_cuts = [cut for cuts in cuts_of_logs for cut in cuts]
    if all(map(_are_known, cuts_of_logs)):
        count = sum(map(lost_offsets, cuts_of_logs))
        return f"at most {count_text(count, 'record')}, {exact_bytes_text(sum(cut.size_bytes for cut in all_cuts))}"
    return amount_text(all_cuts)


def lost_offsets(cuts: Sequence[Cut]) -> int:
    """Return how many offsets the *cuts* of one log take, those of which both ends are known."""
    return sum(last - first + 1 for first, last in _ranges(cuts) if last >= first)


def amount_text(cuts: Iterable[Cut]) -> str:
    """Return e.g. "15,417 bytes, 2 batches"; of bytes that no header leads through it is not known what they hold."""
    size_bytes = batch_count = 0
    is_counted = True
    for cut in cuts:
        size_bytes += cut.size_bytes
        batch_count += cut.batch_count
        is_counted = is_counted and cut.is_followed
    if not (is_counted or batch_count):
        return exact_bytes_text(size_bytes)
    at_least = "" if is_counted else "at least "
    return f"{exact_bytes_text(size_bytes)}, {at_least}{count_text(batch_count, 'batch', 'batches')}"


def _offsets(cuts: Sequence[Cut]) -> str:
    ranges = _ranges(cuts)
    if not ranges:
        return "offsets that cannot be told"
    first = ranges[0][0]
    if not _are_known(cuts):
        return f"offsets from {first} on"
    last = max(last for _, last in ranges)
    return f"offsets {first} to {last} (at most {count_text(lost_offsets(cuts), 'record')})"


def _are_known(cuts: Sequence[Cut]) -> bool:
    """Return whether both ends of all *cuts* of one log are known."""
    ranges = _ranges(cuts)
    return len(ranges) == len(cuts) and all(last >= first for first, last in ranges)


def _ranges(cuts: Sequence[Cut]) -> list[tuple[int, int]]:
    """Return the first and last offset of each of the *cuts* of one log of which the first is known, ascending.

    One whose headers do not tell the last offset ends before the next one, if there is one; else the last is -1.
    """
    ordered = sorted((cut for cut in cuts if cut.first_offset >= 0), key=lambda cut: cut.first_offset)
    before_next = [*(cut.first_offset - 1 for cut in ordered[1:]), -1]
    return [
        (cut.first_offset, before if cut.known_last_offset < 0 else cut.known_last_offset)
        for cut, before in zip(ordered, before_next, strict=False)
    ]
