"""Offsets that are missing between segments that were read: a `.log` that is empty or not there. Pure.

A broker notices nothing of it. Within a segment it does not show without reading headers again: `verify` does that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from recovery.model import Hole
from recovery.segment import Segment


def find_holes(segments: Iterable[Segment], log_start_offset: int) -> Iterator[Hole]:
    """Yield the offsets from *log_start_offset* on that are missing before a segment that was recovered.

    Args:
        segments: of the log, ascending. What lies behind one that was not recovered is not known.
    """
    end_offset: int | None = None  # of what was read, up to here without a break
    last: Segment | None = None
    for segment in segments:
        if segment.scan is None:
            end_offset = None
        elif not segment.scan.batch_count:
            end_offset = segment.base_offset if end_offset is None else end_offset
        else:
            start = segment.base_offset if segment.first_offset is None else segment.first_offset
            yield from _hole(
                segment.base_offset if end_offset is None else end_offset, start, segment, log_start_offset
            )
            end_offset = segment.scan.last_offset + 1
        last = segment
    if last is not None and end_offset is not None and last.scan is not None and not last.scan.batch_count:
        yield from _hole(end_offset, last.base_offset, last, log_start_offset)  # the active segment is empty


def _hole(end_offset: int, start_offset: int, segment: Segment, log_start_offset: int) -> Iterator[Hole]:
    first = max(end_offset, log_start_offset)
    if first < start_offset:
        yield Hole(first_offset=first, last_offset=start_offset - 1, before=segment.log)
