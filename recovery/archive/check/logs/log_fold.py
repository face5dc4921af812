"""The fold over the logs of one partition, and only these: sound ones stay columns to the end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from recovery.archive.check.logs.log_columns import LogColumns
from recovery.archive.check.logs.log_order import judge_chains, judge_folder
from recovery.archive.check.logs.sound_logs import SoundLogs
from recovery.archive.check.partition_fold import is_partial, part_of
from recovery.archive.check.remains import is_sound
from recovery.archive.check.scanned import PartitionHead, ScannedSegment
from recovery.archive.check.verdict import ObjectVerdict, PartitionVerdict, verdict_of_nothing
from recovery.archive.layouts.layout import Layout, stored_part
from recovery.archive.stores.archived import ArchivedSegment, PartKind, SegmentKey
from recovery.check.checked_log_dir import kind_of
from recovery.check.finding import FileVerdict, Finding


class LogFold:
    """Takes in the scanned logs of one partition, in any order.

    Args:
        head: of the partition.
        layout: of the archive.
    """

    def __init__(self, head: PartitionHead, layout: Layout) -> None:
        self._head = head
        self._layout = layout
        self._sound: list[SoundLogs] = []
        self._scanned: list[ScannedSegment] = []
        self._findings: dict[str, list[Finding]] = defaultdict(list)
        self._sound_twins: set[SegmentKey] = set()
        for finding in head.findings:
            self.add(finding)

    def take(self, scanned: ScannedSegment) -> None:
        """Take in a log with findings."""
        self._scanned.append(scanned)

    def take_sound(self, sound: SoundLogs) -> None:
        """Take in sound logs."""
        self._sound.append(sound)

    def add(self, finding: Finding) -> None:
        """Take in a finding about the partition as a whole, or about the object that it names."""
        self._findings[finding.file].append(finding)

    def finish(self) -> PartitionVerdict:
        """Return the verdict."""
        other_files = [scanned_log for scanned_log in self._scanned if scanned_log.segment.other_file]
        scanned = [scanned_log for scanned_log in self._scanned if not scanned_log.segment.other_file]
        logs = LogColumns(self._sound, scanned)
        self._sound_twins = set(self._head.twins.values())
        self._sound_twins.difference_update(one.segment.key for one in scanned if not is_sound(one))
        verdict = PartitionVerdict(head=self._head, chain_count=1, segment_count=len(logs) + len(other_files))
        if self._layout.is_tiered:
            partial = np.zeros(len(logs), np.bool_)
            partial[len(logs) - len(scanned) :] = [
                is_partial(scanned_log.segment, self._head, self._layout) for scanned_log in scanned
            ]
            if self._head.twins:
                bases = [base_offset for base_offset, _ in self._head.twins]
                for number in np.flatnonzero(np.isin(logs.base_offsets, bases)).tolist():
                    partial[number] = is_partial(logs.segment_at(number), self._head, self._layout)
            verdict.chain_count, findings = judge_chains(self._head, logs, partial)
        else:
            findings = list(judge_folder(self._head, logs, other_files))
        for name, finding in findings:
            self._findings[name].append(finding)
        starts = [
            *logs.base_offsets.tolist(),
            *(scanned_log.segment.base_offset for scanned_log in other_files),
        ]
        ends = [
            *logs.end_offsets.tolist(),
            *(
                -1 if scanned_log.end_offset is None else scanned_log.end_offset
                for scanned_log in other_files
            ),
        ]
        verdict.start_offset = min(starts, default=None)
        verdict.end_offset = None if max(ends, default=-1) < 0 else max(ends)
        self._give_out(verdict)
        return verdict

    def _give_out(self, verdict: PartitionVerdict) -> None:
        """Enter objects and counts: sound logs without findings as columns, the others one by one."""
        for sound in self._sound:
            verdict.batch_count += int(sound.batch_counts.sum())
            verdict.log_bytes += int(sound.log_bytes.sum())
            names = sound.segments.logs().names
            with_findings = (
                [row for row, name in enumerate(names) if name in self._findings] if self._findings else []
            )
            for row in with_findings:
                findings = self._findings.pop(names[row])
                verdict.objects += self._objects(sound.segments[row], int(sound.log_bytes[row]), findings)
            kept = set(range(len(sound))).difference(with_findings)
            verdict.sound.append(sound.take(sorted(kept)) if with_findings else sound)
        for scanned in self._scanned:
            verdict.log_bytes += scanned.log_bytes
            findings = list(scanned.findings)
            read_bytes = scanned.log_bytes
            if scanned.result is not None:
                verdict.batch_count += scanned.result.batch_count
                findings += scanned.result.findings
                read_bytes = sum(scanned.result.checked_bytes.values())
            log = scanned.segment.parts.get(PartKind.LOG)
            findings += self._findings.pop(log.name, []) if log is not None else []
            verdict.objects += self._objects(scanned.segment, read_bytes, findings)
        prefix = self._head.where.prefix
        verdict.objects += [
            verdict_of_nothing(prefix + name, findings) for name, findings in self._findings.items()
        ]

    def _objects(
        self, segment: ArchivedSegment, read_bytes: int, findings: Sequence[Finding]
    ) -> Iterator[ObjectVerdict]:
        """Yield the verdict of a segment's log, and of its other parts that have findings."""
        if segment.key in self._head.unfinished or self._head.twins.get(segment.key) in self._sound_twins:
            findings = [finding.as_note() for finding in findings]
        is_tiered = self._layout.is_tiered
        by_kind: dict[PartKind, list[Finding]] = {}
        for finding in findings:
            by_kind.setdefault(part_of(finding.file), []).append(finding)
        for kind in sorted({*by_kind, *({PartKind.LOG} & segment.parts.keys())}, key=lambda part: part.value):
            stored = stored_part(self._layout, self._head.where, segment, kind)
            yield ObjectVerdict(
                base_offset=segment.base_offset,
                segment_id=segment.segment_id,
                size_bytes=stored.size_bytes,
                version=stored.version,
                verdict=FileVerdict(
                    path=stored.key,
                    kind=kind.value if is_tiered else kind_of(stored.name),
                    checked_bytes=read_bytes if kind is PartKind.LOG else stored.size_bytes,
                    findings=tuple(by_kind.get(kind, ())),
                ),
            )
