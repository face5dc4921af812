"""What a recovery will most likely read, less what an interrupted run has read already."""

from __future__ import annotations

from collections.abc import Iterable

from recovery.engine.resume import RunJournal
from recovery.load.forecast import segments_recovered, unflushed_segments
from recovery.load.model import FileStat, Original, PartitionTask, ScanRequest

LEAST_KEPT_SCAN_BYTES = 1 << 20
"""The scan of a smaller segment is not entered in the journal: reading it again costs less than the entry."""


def bytes_to_scan(task: PartitionTask, journal: RunJournal) -> int:
    """Return how many bytes a recovery of *task* will most likely read; what is in the journal is not read again."""
    if journal.is_committed(task.folder):
        return 0
    segments = segments_recovered(task)
    if not journal.has_scans:
        return sum(segment.size_bytes for segment in segments)
    return sum(
        size
        for file, base, size, *_ in segments
        if size < LEAST_KEPT_SCAN_BYTES
        or not journal.has_scan(task.folder, recovery_request(file, base, size), task.files[file])
    )


def segments_to_recover(task: PartitionTask, journal: RunJournal) -> int:
    """Return how many segments a recovery of *task* will most likely go through."""
    return 0 if journal.is_committed(task.folder) else len(unflushed_segments(task))


def recovery_request(file: str, base_offset: int, size_bytes: int) -> ScanRequest:
    """Return the scan that a recovery requests of a segment."""
    return ScanRequest(part=Original(file=file, size_bytes=size_bytes), base_offset=base_offset)


def is_kept(request: ScanRequest, stat: FileStat | None) -> bool:
    """Whether the scan that *request* asks for belongs in the journal: it is of a whole, large file."""
    is_large = request.part.size_bytes >= LEAST_KEPT_SCAN_BYTES
    return is_large and stat is not None and request.recovers_whole_file(stat.size_bytes)


def most_busy_threads(tasks: Iterable[PartitionTask]) -> int:
    """Return how many threads can be busy at once: one for each log, and for each segment that is to be read."""
    return max(1, sum(max(1, len(unflushed_segments(task))) for task in tasks))
