"""The order of one partition's logs: each must begin where the one before ends.

Rules and messages are those of the whole fold (`recovery.check.rules.neighbours`, `recovery.archive.check.chain_ends`),
which are called only if the columns show something unusual.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from recovery.archive.check.chain_ends import ChainEnds
from recovery.archive.check.logs.log_columns import UNKNOWN, LogColumns
from recovery.archive.check.scanned import DIGEST_BYTES, PartitionHead, ScannedSegment
from recovery.archive.stores.archived import PartKind
from recovery.check.finding import Finding
from recovery.check.rules.neighbours import find_gaps_before, find_lossy_swaps, find_no_segment
from recovery.check.task import SegmentResult, SegmentTask
from recovery.check.tasks import segment_task, unflushed_from
from segfmt.filenames import LOG_SUFFIX, SWAP_SUFFIX, FileKind, file_kind, log_name

NamedFinding = tuple[str, Finding]
"""The name of an object, there or not, and a finding about it."""


def judge_folder(
    head: PartitionHead, logs: LogColumns, other_files: Sequence[ScannedSegment]
) -> Iterator[NamedFinding]:
    """Yield the findings about the logs in a plain copy's folder.

    Args:
        head: of the partition.
        logs: of its segments.
        other_files: what was read besides them: `.log.swap` files, snapshots of the metadata log.
    """
    results = [scanned.result for scanned in other_files if scanned.result is not None]
    swaps = [swap for swap in results if swap.task.log.endswith(LOG_SUFFIX + SWAP_SUFFIX)]
    if head.facts.is_contiguous:
        folder = _Folder(head, logs)
        if not logs.has_compacted.any():
            for finding in folder.gaps(swaps):
                yield finding.file, finding
        if swaps:
            for finding in find_lossy_swaps(folder.results_of(swaps), swaps):
                yield finding.file, finding
    is_all_there = len(head.digests) == DIGEST_BYTES * len(other_files)
    if is_all_there and not len(logs) and not swaps:
        facts = head.facts
        kinds = {file_kind(stored.name) for stored in head.archived.others}
        has_traces = bool(facts.recovery_point or kinds - {FileKind.OTHER})
        finding = find_no_segment(max(0, facts.log_start_offset or 0), has_traces=has_traces)
        yield finding.file, finding


class _Folder:
    def __init__(self, head: PartitionHead, logs: LogColumns) -> None:
        self._head = head
        self._logs = logs
        order = logs.in_order()
        self._bases: list[int] = logs.base_offsets[order].tolist()
        self._unflushed_from = unflushed_from(head.facts, self._bases)
        was_read = logs.was_read[order]
        self._read = order[was_read]
        self._follows = np.diff(np.flatnonzero(was_read), prepend=-2) == 1

    def gaps(self, swaps: Sequence[SegmentResult]) -> Iterator[Finding]:
        """Yield a finding for each range of offsets that no batch has."""
        logs, read = self._logs, self._read
        base, end = logs.base_offsets[read], logs.end_offsets[read]
        is_suspect = logs.first_offsets[read] > base
        is_suspect[1:] |= (end[:-1] != UNKNOWN) & (end[:-1] < base[1:]) & self._follows[1:]
        names = {stored.name for stored in self._head.archived.others}
        for at in np.flatnonzero(is_suspect).tolist():
            before = self._result(int(read[at - 1])) if self._follows[at] else None
            yield from find_gaps_before(self._result(int(read[at])), before, swaps, names)
        for number in read.tolist():
            scanned = logs.scanned_at(number)
            if scanned is not None and scanned.result is not None:
                yield from scanned.result.gaps

    def results_of(self, swaps: Sequence[SegmentResult]) -> list[SegmentResult]:
        """Return the segments that a broker would replace by *swaps*."""
        base_offsets = [swap.task.base_offset for swap in swaps]
        is_wanted = np.isin(self._logs.base_offsets[self._read], base_offsets)
        return [self._result(number) for number in self._read[is_wanted].tolist()]

    def _result(self, number: int) -> SegmentResult:
        base = int(self._logs.base_offsets[number])
        following = bisect_right(self._bases, base)
        task = segment_task(
            self._head.facts,
            base,
            next_base_offset=self._bases[following] if following < len(self._bases) else None,
            unflushed_from=self._unflushed_from,
            snapshot_offsets=(),
        )
        return self._logs.result_at(number, task)


def judge_chains(
    head: PartitionHead, logs: LogColumns, is_partial: npt.NDArray[np.bool_]
) -> tuple[int, list[NamedFinding]]:
    """Return how many chains the segments of tiered storage make up, and the findings about their logs.

    Args:
        head: of the partition.
        logs: of its segments.
        is_partial: whether a segment was never complete, so that others have its offsets; bool, shape (n,).
    """
    order = logs.in_order()
    order = order[~is_partial[order]]
    base, end = logs.base_offsets[order], logs.end_offsets[order]
    findings: list[NamedFinding] = []
    chains = np.zeros(len(order), np.int64)
    if (end == UNKNOWN).any() or (end[:-1] != base[1:]).any():
        ends = ChainEnds(head.gone)
        for at, (base_offset, end_offset) in enumerate(zip(base.tolist(), end.tolist(), strict=True)):
            chain = ends.find(base_offset)
            if chain is None:
                finding = ends.begin(base_offset)
                chain = len(ends.offsets) - 1
                if finding is not None:
                    findings.append((_name_at(logs, int(order[at])), finding))
            ends.reach(chain, None if end_offset == UNKNOWN else end_offset)
            chains[at] = chain
    compacted = np.unique(chains[logs.has_compacted[order]])
    is_closed = ~np.isin(chains, compacted) & logs.was_read[order]
    for number in order[is_closed & (logs.first_offsets[order] > base)].tolist():
        base_offset = int(logs.base_offsets[number])
        task = SegmentTask(
            folder=head.facts.path, base_offset=base_offset, log=log_name(base_offset), next_base_offset=None
        )
        gaps = find_gaps_before(logs.result_at(number, task), None, (), ())
        findings += [(_name_at(logs, number), finding) for finding in gaps]
    for number in order[is_closed].tolist():
        scanned = logs.scanned_at(number)
        if scanned is not None and scanned.result is not None:
            findings += [(_name_at(logs, number), finding) for finding in scanned.result.gaps]
    return int(chains.max(initial=0)) + 1, findings


def _name_at(logs: LogColumns, number: int) -> str:
    """Return the name of a log's object if there is one, else the name that a broker gives it."""
    segment = logs.segment_at(number)
    log = segment.parts.get(PartKind.LOG)
    return log_name(segment.base_offset) if log is None else log.name
