"""What a cut takes from a log, in words: offsets, bytes and batches, as far as headers tell."""

from __future__ import annotations

from collections.abc import Sequence

from recovery.load.model import Cut
from recovery.quantity import count_text, exact_bytes_text


def loss_text(cuts: Sequence[Cut]) -> str:
    """Return what the *cuts* of one log take: "offsets 230 to 269 (at most 40 records), 15,417 bytes, 2 batches"."""
    size_bytes, batch_count = sum(cut.size_bytes for cut in cuts), sum(cut.batch_count for cut in cuts)
    return f"{_offsets(cuts)}, {amount_text(size_bytes, batch_count)}"


def total_text(cuts: Sequence[Cut]) -> str:
    """Return what *cuts* of many logs come to; records are counted only where the offsets of all are known."""
    size_bytes = sum(cut.size_bytes for cut in cuts)
    if all(0 <= cut.first_offset <= cut.last_offset for cut in cuts):
        return f"at most {count_text(lost_offsets(cuts), 'record')}, {exact_bytes_text(size_bytes)}"
    return amount_text(size_bytes, sum(cut.batch_count for cut in cuts))


def lost_offsets(cuts: Sequence[Cut]) -> int:
    """Return how many offsets *cuts* take, those of which both ends are known."""
    return sum(
        cut.last_offset - cut.first_offset + 1 for cut in cuts if 0 <= cut.first_offset <= cut.last_offset
    )


def amount_text(size_bytes: int, batch_count: int) -> str:
    """Return e.g. "15,417 bytes, 2 batches"."""
    return f"{exact_bytes_text(size_bytes)}, {count_text(batch_count, 'batch', 'batches')}"


def _offsets(cuts: Sequence[Cut]) -> str:
    first = min((cut.first_offset for cut in cuts if cut.first_offset >= 0), default=-1)
    last = max((cut.last_offset for cut in cuts), default=-1)
    if first < 0:
        return "offsets that cannot be told"
    if last < 0 or any(cut.last_offset < 0 for cut in cuts):
        return f"offsets from {first} on"
    return f"offsets {first} to {last} (at most {count_text(lost_offsets(cuts), 'record')})"
