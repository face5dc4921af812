"""A second look at a partition of a live broker, before damage is reported.

Retention removes files, compaction replaces them, a follower truncates, an append is under way: what was found is
checked again, from a new listing, until two looks in a row find the same. Segments that have not changed and
in which nothing was found are not read again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from recovery.check.facts import PartitionFacts
from recovery.check.finding import Finding
from recovery.check.folder_files import FolderFiles, LocalFolder, read_folder
from recovery.check.partition import PartitionCheck
from recovery.check.task import Piece, SegmentResult, SegmentTask
from recovery.load.model import FileStat
from recovery.stop_request import StopRequest
from segfmt.errors import FileNameError
from segfmt.filenames import read_offset

_MOST_LOOKS = 6
_WAIT_S = 0.25


class Recheck:
    """Checks a partition again.

    Args:
        facts: those of the partition, which is live.
        read: reads a segment; returns a finding if it cannot be read.
        stop: ends the waiting.
        take: called with the number of bytes before small files are read.
    """

    def __init__(
        self,
        *,
        facts: PartitionFacts,
        read: Callable[[SegmentTask], SegmentResult | Finding],
        stop: StopRequest,
        take: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._facts = facts
        self._read = read
        self._stop = stop
        self._take = take

    def confirm(
        self, findings: list[Finding], results: Sequence[SegmentResult], files: FolderFiles
    ) -> list[Finding]:
        """Return what is found by two looks in a row; nothing if the partition is gone."""
        for look in range(_MOST_LOOKS):
            self._wait(_WAIT_S * (look + 1))
            try:
                current = read_folder(
                    LocalFolder(self._facts.path),
                    is_live=True,
                    is_metadata_log=self._facts.is_metadata_log,
                    take=self._take,
                )
            except FileNotFoundError:
                return []
            again, results = self._look(findings, results, files, current)
            files = current
            identities = {finding.identity for finding in findings}
            confirmed = [finding for finding in again if finding.identity in identities]
            if len(confirmed) == len(again):
                return confirmed
            findings = again
        return [finding for finding in confirmed if finding.severity != "unchecked"] + [
            Finding(
                file=finding.file,
                position=finding.position,
                rule="changing",
                detail=f"last seen: {finding.rule}: {finding.detail}",
                severity="unchecked",
            )
            for finding in again
            if finding.identity not in identities and finding.severity == "damage"
        ]

    def _look(
        self,
        findings: Iterable[Finding],
        results: Sequence[SegmentResult],
        before: FolderFiles,
        current: FolderFiles,
    ) -> tuple[list[Finding], list[SegmentResult]]:
        ends = {one.task.base_offset: one.last_offset + 1 for one in results if one.last_offset is not None}
        check = PartitionCheck(self._facts, current, ends)
        results_by_task = {result.task: result for result in results}
        suspects = self._suspects(findings, current)
        look_results: list[SegmentResult] = []
        failures: list[Finding] = []
        for task in check.tasks():
            earlier = results_by_task.get(task)
            is_same = _stamp(before, task.log) == _stamp(current, task.log)
            result: SegmentResult | Finding
            if (
                earlier is None
                or not is_same
                or task.base_offset in suspects
                or earlier.findings
                or earlier.gaps
            ):
                result = self._read(task)
            else:
                earlier.pieces = [_NOTHING]  # its pieces were consumed: nothing is known of its producers
                result = earlier
            if isinstance(result, Finding):
                failures.append(result)
                continue
            check.take(result)
            look_results.append(result)
        return [*check.finish(), *failures], look_results

    def _suspects(self, findings: Iterable[Finding], files: FolderFiles) -> set[int]:
        """Return the base offsets of the segments from the snapshot before a finding up to the finding."""
        suspects: set[int] = set()
        for finding in findings:
            try:
                offset = read_offset(finding.file)
            except FileNameError:
                continue
            start = max((snapshot for snapshot in files.snapshots if snapshot < offset), default=-1)
            floor = max((base for base in files.base_offsets if base <= start), default=-1)
            suspects |= {base for base in files.base_offsets if floor <= base <= offset}
        return suspects

    def _wait(self, seconds: float) -> None:
        until_s = time.monotonic() + seconds
        while (left_s := until_s - time.monotonic()) > 0:
            self._stop.check()
            time.sleep(min(left_s, 0.05))


def _stamp(files: FolderFiles, name: str) -> tuple[int, int] | None:
    file_stat: FileStat | None = files.names.get(name)
    return None if file_stat is None else (file_stat.inode, file_stat.size_bytes)


def _nothing() -> Piece:
    from native.segment_scan import SegmentScanner

    return Piece(scan=SegmentScanner(base_offset=0, size_bytes=0, build_index=False).result(), is_broken=True)


_NOTHING = _nothing()
