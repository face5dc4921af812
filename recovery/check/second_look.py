"""A second look at a partition of a live broker, before anything is said against it.

Retention removes files, compaction replaces them, a follower truncates, an append is on its way: what was found is
looked at again, from a new listing, until two looks in a row find the same. Segments that have not changed and
that nothing was found in are not read again.
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
    """Looks again.

    Args:
        facts: of the partition, live.
        read: reads a segment; a finding where it cannot be read.
        stop: ends the waiting.
        take: asked before small files are read.
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
        """Return what is found again and again; nothing where the partition is gone."""
        for look in range(_MOST_LOOKS):
            self._wait(_WAIT_S * (look + 1))
            try:
                now = read_folder(
                    LocalFolder(self._facts.path),
                    is_live=True,
                    is_metadata_log=self._facts.is_metadata_log,
                    take=self._take,
                )
            except FileNotFoundError:
                return []
            again, results = self._look(findings, results, files, now)
            files = now
            known = {found.identity for found in findings}
            confirmed = [found for found in again if found.identity in known]
            if len(confirmed) == len(again):
                return confirmed
            findings = again
        return [found for found in confirmed if found.severity != "unchecked"] + [
            Finding(
                file=found.file,
                position=found.position,
                rule="changing",
                detail=f"last seen: {found.rule}: {found.detail}",
                severity="unchecked",
            )
            for found in again
            if found.identity not in known and found.severity == "damage"
        ]

    def _look(
        self,
        findings: Iterable[Finding],
        results: Sequence[SegmentResult],
        before: FolderFiles,
        now: FolderFiles,
    ) -> tuple[list[Finding], list[SegmentResult]]:
        check = PartitionCheck(self._facts, now)
        known = {result.task: result for result in results}
        suspects = self._suspects(findings, now)
        taken: list[SegmentResult] = []
        failures: list[Finding] = []
        for task in check.tasks():
            old = known.get(task)
            is_same = _stamp(before, task.log) == _stamp(now, task.log)
            result: SegmentResult | Finding
            if old is None or not is_same or task.base_offset in suspects or old.findings or old.gaps:
                result = self._read(task)
            else:
                old.pieces = [_NOTHING]  # its producers are no longer known
                result = old
            if isinstance(result, Finding):
                failures.append(result)
                continue
            check.take(result)
            taken.append(result)
        return [*check.finish(), *failures], taken

    def _suspects(self, findings: Iterable[Finding], files: FolderFiles) -> set[int]:
        """Return the segments from the snapshot before a finding up to it."""
        suspects: set[int] = set()
        for found in findings:
            try:
                offset = read_offset(found.file)
            except FileNameError:
                continue
            start = max((known for known in files.snapshots if known < offset), default=-1)
            floor = max((base for base in files.base_offsets if base <= start), default=-1)
            suspects |= {base for base in files.base_offsets if floor <= base <= offset}
        return suspects

    def _wait(self, seconds: float) -> None:
        until_s = time.monotonic() + seconds
        while (left_s := until_s - time.monotonic()) > 0:
            self._stop.check()
            time.sleep(min(left_s, 0.05))


def _stamp(files: FolderFiles, name: str) -> tuple[int, int] | None:
    found: FileStat | None = files.names.get(name)
    return None if found is None else (found.inode, found.size_bytes)


def _nothing() -> Piece:
    from native.segment_scan import SegmentScanner

    return Piece(scan=SegmentScanner(base_offset=0, size_bytes=0, build_index=False).result(), is_broken=True)


_NOTHING = _nothing()
