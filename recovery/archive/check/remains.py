"""Whether an incomplete segment is what an interrupted copy has left, where no metadata tells: beside a sound twin.

By names a segment with the same start offset and all of its parts, and a log at least as long, is its twin. It takes
the place of the incomplete one only if it is sound, and has the same batches in the same leader epochs.
"""

from __future__ import annotations

from collections.abc import Mapping

from recovery.archive.check.scanned import PartitionHead, ScannedSegment
from recovery.archive.stores.archived import SegmentKey


def are_remains(
    scanned: ScannedSegment, head: PartitionHead, by_key: Mapping[SegmentKey, ScannedSegment]
) -> bool:
    """Return whether another segment of the partition is sound and has all that an incomplete one has.

    Args:
        scanned: the incomplete one.
        head: of the partition.
        by_key: all of its segments.
    """
    twin_key = head.twins.get(scanned.segment.key)
    twin = None if twin_key is None else by_key.get(twin_key)
    if twin is None or twin.result is None or not is_sound(twin):
        return False
    if scanned.result is None:
        return True
    own_runs, runs = (
        {(run.epoch, run.first_offset) for run in one.epoch_runs} for one in (scanned.result, twin.result)
    )
    return own_runs <= runs and (scanned.end_offset or 0) <= (twin.end_offset or 0)


def is_sound(scanned: ScannedSegment) -> bool:
    """Return whether nothing but notes was found of a segment."""
    findings = [*scanned.findings, *(scanned.result.findings if scanned.result is not None else ())]
    return all(finding.severity == "note" for finding in findings)
