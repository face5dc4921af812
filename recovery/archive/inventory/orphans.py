"""Whether a segment that the metadata topic does not know is an orphan, or may be newer than what was read of it.

Only if other segments have all of its offsets, in leader epochs that the topic knows, is it certain that no broker has
copied it since. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from recovery.archive.inventory.own_span import OwnSpan
from recovery.archive.remote.lineage import OffsetRange, subtract_ranges

_OLDER = "the log dirs may be older than the archive"


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the metadata topic knows of a partition.

    Attributes:
        end_offset: the last offset of any segment.
        epoch: the latest leader epoch, by the log dirs as well.
        covered: the offsets of finished segments within the log's lineage, and those that are deleted; ascending.
        hides_records: whether records about it may be missing or damaged.
    """

    end_offset: int
    epoch: int
    covered: Sequence[OffsetRange]
    hides_records: bool = False


def doubt_orphan(
    base_offset: int, known: Known, span_of: Callable[[], OwnSpan | None] | None, *, is_whole: bool
) -> str:
    """Return why records that were not read may tell of an unknown segment; empty if it is an orphan.

    Args:
        base_offset: of the segment.
        known: by the topic.
        span_of: returns what the segment says of its end, None if that cannot be read; None: its name is judged alone.
        is_whole: whether it has all of its parts.
    """
    if base_offset > known.end_offset:
        return f"nor any after offset {known.end_offset}: {_OLDER}"
    if known.hides_records:
        return "but some of its records are missing or damaged"
    end_offset = base_offset
    if span_of is not None:
        span = span_of()
        if span is None and is_whole:
            return "and its end cannot be read, so nothing shows that other segments have its offsets"
        if span is not None and span.last_epoch > known.epoch:
            return f"nor its leader epoch {span.last_epoch}, only those up to {known.epoch}: {_OLDER}"
        end_offset = base_offset if span is None else max(span.end_offset, end_offset)
    uncovered = subtract_ranges(OffsetRange(start_offset=base_offset, end_offset=end_offset), known.covered)
    if uncovered:
        return f"nor any finished one that has offset {uncovered[0][0]}: {_OLDER}"
    return ""
