"""The fold over the logs of one partition, and nothing else of it: sound ones stay columns to the end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from recovery.archive.check.logs.log_columns import LogColumns
from recovery.archive.check.logs.log_order import judge_chains, judge_folder
from recovery.archive.check.logs.sound_logs import SoundLogs
from recovery.archive.check.partition_fold import (
    ObjectVerdict,
    PartitionVerdict,
    is_partial,
    part_of,
    verdict_of_nothing,
)
from recovery.archive.check.scanned import PartitionHead, ScannedSegment
from recovery.archive.layouts.layout import Layout
from recovery.archive.stores.archived import ArchivedSegment, PartKind, StoredObject
from recovery.check.checked_log_dir import kind_of
from recovery.check.finding import FileVerdict, Finding


class LogFold:
    """Takes in what was scanned of one partition's logs, in any order.

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
        for found in head.findings:
            self.add(found)

    def take(self, scanned: ScannedSegment) -> None:
        """Take in a log of which there is something to say."""
        self._scanned.append(scanned)

    def take_sound(self, sound: SoundLogs) -> None:
        """Take in sound logs."""
        self._sound.append(sound)

    def add(self, finding: Finding) -> None:
        """Take in a finding about the partition as a whole, or about the object that it names."""
        self._findings[finding.file].append(finding)

    def finish(self) -> PartitionVerdict:
        """Return what was found."""
        others = [one for one in self._scanned if one.segment.other_file]
        scanned = [one for one in self._scanned if not one.segment.other_file]
        logs = LogColumns(self._sound, scanned)
        verdict = PartitionVerdict(head=self._head, chain_count=1, segment_count=len(logs) + len(others))
        if self._layout.is_tiered:
            partial = np.zeros(len(logs), np.bool_)
            partial[len(logs) - len(scanned) :] = [
                is_partial(one.segment, self._head, self._layout) for one in scanned
            ]
            verdict.chain_count, findings = judge_chains(self._head, logs, partial)
        else:
            findings = list(judge_folder(self._head, logs, others))
        for name, found in findings:
            self._findings[name].append(found)
        starts = [*logs.base_offsets.tolist(), *(one.segment.base_offset for one in others)]
        ends = [
            *logs.end_offsets.tolist(),
            *(-1 if one.end_offset is None else one.end_offset for one in others),
        ]
        verdict.start_offset = min(starts, default=None)
        verdict.end_offset = None if max(ends, default=-1) < 0 else max(ends)
        self._give_out(verdict)
        return verdict

    def _give_out(self, verdict: PartitionVerdict) -> None:
        """Enter objects and counts: sound logs of which nothing is found as columns, each other one by itself."""
        for sound in self._sound:
            verdict.batch_count += int(sound.batch_counts.sum())
            verdict.log_bytes += int(sound.log_bytes.sum())
            names = sound.segments.logs().names
            told = (
                [place for place, name in enumerate(names) if name in self._findings]
                if self._findings
                else []
            )
            for place in told:
                findings = self._findings.pop(names[place])
                verdict.objects += self._objects(sound.segments[place], int(sound.log_bytes[place]), findings)
            kept = set(range(len(sound))).difference(told)
            verdict.sound.append(sound.take(sorted(kept)) if told else sound)
        for one in self._scanned:
            verdict.log_bytes += one.log_bytes
            findings = list(one.findings)
            read_bytes = one.log_bytes
            if one.result is not None:
                verdict.batch_count += one.result.batch_count
                findings += one.result.findings
                read_bytes = sum(one.result.checked_bytes.values())
            log = one.segment.parts.get(PartKind.LOG)
            findings += self._findings.pop(log.name, []) if log is not None else []
            verdict.objects += self._objects(one.segment, read_bytes, findings)
        prefix = self._head.where.prefix
        verdict.objects += [
            verdict_of_nothing(prefix + name, found) for name, found in self._findings.items()
        ]

    def _objects(
        self, segment: ArchivedSegment, read_bytes: int, findings: Sequence[Finding]
    ) -> Iterator[ObjectVerdict]:
        """Yield the verdict of a segment's log, and of what else of it there are findings about."""
        if (segment.base_offset, segment.segment_id) in self._head.unfinished:
            findings = [found.as_note() for found in findings]
        is_tiered = self._layout.is_tiered
        by_kind: dict[PartKind, list[Finding]] = {}
        for found in findings:
            by_kind.setdefault(part_of(found.file), []).append(found)
        for kind in sorted({*by_kind, *({PartKind.LOG} & segment.parts.keys())}, key=lambda one: one.value):
            one = segment.parts.get(kind)
            if one is None:
                one = StoredObject(
                    key=self._head.where.prefix + self._layout.name_of(segment, kind), size_bytes=0
                )
            yield ObjectVerdict(
                base_offset=segment.base_offset,
                segment_id=segment.segment_id,
                size_bytes=one.size_bytes,
                version=one.version,
                verdict=FileVerdict(
                    path=one.key,
                    kind=kind.value if is_tiered else kind_of(one.name),
                    checked_bytes=read_bytes if kind is PartKind.LOG else one.size_bytes,
                    findings=tuple(by_kind.get(kind, ())),
                ),
            )
