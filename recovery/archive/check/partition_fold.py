"""The fold over one partition of an archive: its head, then its segments in order, then the verdict.

A plain copy is a folder, and is judged as the local engine judges it. Segments of tiered storage are put into chains: a
segment continues the chain that ends where it begins. After a change of leader several may cover the same offsets;
each such history is a chain of its own. Offsets that no chain reaches are a gap.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from recovery.archive.check.chain import NAMED_BY_BASE, FolderChain, TieredChain
from recovery.archive.check.chain_ends import ChainEnds
from recovery.archive.check.logs.sound_logs import SoundLogs
from recovery.archive.check.rebuild import Rebuilding, RebuildWork
from recovery.archive.check.scanned import PartitionHead, ScannedSegment
from recovery.archive.check.trust import DERIVED, STATEFUL, Row, obstacle_of
from recovery.archive.layouts.layout import Layout, kafka_name, part_kind, stored_part
from recovery.archive.stores.archived import ArchivedSegment, PartKind, SegmentKey, StoredObject
from recovery.check.checked_log_dir import kind_of
from recovery.check.finding import FileVerdict, Finding, findings_by_file
from recovery.check.folder_files import FolderFiles
from recovery.check.rules.blame import excused, is_contradiction, is_of_another_log

_kinds = {kind.value: kind for kind in PartKind}
_UNKNOWN_BEFORE = {
    PartKind.TXN_INDEX: "the producers at the start of its segment are not known",
    PartKind.SNAPSHOT: "the producers at the start of its segment are not known",
    PartKind.LEADER_EPOCHS: "the leader epochs at the start of its segment are not known",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectVerdict:
    """The verdict on one object.

    Attributes:
        base_offset: of the segment that it belongs to; -1 for those that belong to none.
        verdict: its path is the object's key.
        rebuilt: the object that was written in its place, None without one.
        obstacle: why a damaged part that follows from a log is not rebuilt; empty if it is, or can be.
    """

    base_offset: int
    segment_id: str
    size_bytes: int
    version: str
    verdict: FileVerdict
    rebuilt: StoredObject | None = None
    obstacle: str = ""


@dataclass(slots=True, kw_only=True)
class PartitionVerdict:
    """The verdict on a partition.

    Attributes:
        start_offset, end_offset: of what is there, the end after the last record; None if not known.
        chain_count: how many chains of consecutive segments there are.
        rebuilds: what can be rebuilt.
        sound: logs without findings; empty unless only logs were checked.
    """

    head: PartitionHead
    objects: list[ObjectVerdict] = field(default_factory=list)
    start_offset: int | None = None
    end_offset: int | None = None
    segment_count: int = 0
    batch_count: int = 0
    log_bytes: int = 0
    chain_count: int = 0
    rebuilds: list[RebuildWork] = field(default_factory=list)
    sound: list[SoundLogs] = field(default_factory=list)


class PartitionFold:
    """Takes in the scanned segments of one partition.

    Args:
        head: of the partition.
        layout: of the archive.
        folder: the small files of a plain copy; None in tiered storage.
        rebuilding: what was decided to be rebuilt; None: nothing.
    """

    def __init__(
        self,
        head: PartitionHead,
        layout: Layout,
        *,
        folder: FolderFiles | None = None,
        rebuilding: Rebuilding | None = None,
    ) -> None:
        self._head = head
        self._layout = layout
        self._rebuilding = rebuilding
        self._scanned: list[ScannedSegment] = []
        self._chains: list[TieredChain] = []
        self._breaks: set[SegmentKey] = set()  # segments that continue a chain of another history
        self._ends = ChainEnds(head.gone)
        self._folder = None if folder is None else FolderChain(head.facts, folder, rebuilding)
        self._findings = list(head.findings)

    def take(self, scanned: ScannedSegment) -> None:
        """Take in the next segment, in the order of base offsets and ids."""
        if self._folder is not None:
            self._folder.take(scanned)
        elif not is_partial(scanned.segment, self._head, self._layout):
            chain_number = self._chain_of(scanned)
            self._chains[chain_number].take(scanned)
            self._ends.reach(chain_number, scanned.end_offset)
        scanned.small = {}
        if scanned.result is not None:
            scanned.result.pieces = []
        self._scanned.append(scanned)

    def add(self, finding: Finding) -> None:
        """Take in a finding about the partition as a whole, or about the object that it names."""
        self._findings.append(finding)

    def finish(self) -> PartitionVerdict:
        """Return the verdict."""
        for chain in self._chains:
            chain.finish()
        for scanned in self._scanned:
            if scanned.is_confirmed:  # a cut log is not as long as a broker has told
                scanned.findings = [finding for finding in scanned.findings if finding.rule != "cut-end"]
        for scanned in self._scanned:
            if scanned.segment.key in self._head.unfinished:
                _make_notes(scanned)
        verdict = PartitionVerdict(head=self._head, chain_count=max(1, len(self._chains)))
        for scanned in self._scanned:
            verdict.segment_count += 1
            verdict.log_bytes += scanned.log_bytes
            if scanned.result is not None:
                verdict.batch_count += scanned.result.batch_count
        if self._scanned:
            verdict.start_offset = self._scanned[0].segment.base_offset
            ends = [scanned.end_offset for scanned in self._scanned if scanned.end_offset is not None]
            verdict.end_offset = max(ends, default=None)
        if self._folder is not None:
            verdict.objects = self._of_folder(self._folder)
        else:
            verdict.objects = [judged for scanned in self._scanned for judged in self._of_segment(scanned)]
        self._add_findings(verdict)
        self._decide_rebuilds(verdict)
        return verdict

    # -- chains ----------------------------------------------------------------------------------------------

    def _chain_of(self, scanned: ScannedSegment) -> int:
        """Return the number of the chain that a segment continues, a new one if there is none."""
        base = scanned.segment.base_offset
        chain_number = self._ends.find(
            base, lambda chain_number: self._chains[chain_number].is_of_lineage(scanned)
        )
        if chain_number is not None:
            if not self._chains[chain_number].is_of_lineage(scanned):
                self._breaks.add(scanned.segment.key)
            return chain_number
        finding = self._ends.begin(base)
        if finding is not None:
            scanned.findings.append(finding)
        snapshots = (chain.snapshot_at(base) for chain in self._chains)
        snapshot = next((data for data in snapshots if data is not None), None)
        self._chains.append(TieredChain(self._head.facts, base, snapshot, self._rebuilding))
        return len(self._chains) - 1

    # -- verdicts --------------------------------------------------------------------------------------------

    def _of_folder(self, folder: FolderChain) -> list[ObjectVerdict]:
        findings = folder.finish()
        for scanned in self._scanned:
            findings += scanned.findings
        objects = {stored.name: stored for stored in self._head.archived.objects}
        owners: dict[str, ScannedSegment] = {}
        for scanned in self._scanned:
            if scanned.segment.other_file:
                owners[scanned.segment.other_file] = scanned
                continue
            owners.update({kafka_name(kind, scanned.segment.base_offset): scanned for kind in NAMED_BY_BASE})
            for stored in (*scanned.segment.parts.values(), *scanned.segment.snapshots.values()):
                owners[stored.name] = scanned
        by_file = findings_by_file(findings)
        prefix = self._head.where.prefix
        verdicts = []
        for name in sorted({*objects, *by_file}):
            stored = objects.get(name, StoredObject(key=prefix + name, size_bytes=0))
            owner = owners.get(name)
            kind = part_kind(name)
            verdicts.append(
                ObjectVerdict(
                    base_offset=-1 if owner is None else owner.segment.base_offset,
                    segment_id="" if owner is None else owner.segment.segment_id,
                    size_bytes=stored.size_bytes,
                    version=stored.version,
                    verdict=FileVerdict(
                        path=stored.key,
                        kind=kind_of(name),
                        checked_bytes=folder.checked_bytes.get(name, 0),
                        findings=tuple(by_file.get(name, ())),
                    ),
                    rebuilt=None if owner is None or kind is None else owner.rebuilt.get(kind),
                )
            )
        return verdicts

    def _of_segment(self, scanned: ScannedSegment) -> list[ObjectVerdict]:
        segment, result = scanned.segment, scanned.result
        findings = [*scanned.findings, *(result.findings if result is not None else ())]
        by_kind: dict[PartKind, list[Finding]] = {}
        for finding in findings:
            by_kind.setdefault(part_of(finding.file), []).append(finding)
        checked = result.checked_bytes if result is not None else {}
        verdicts = []
        for kind in sorted({*segment.parts, *by_kind, *scanned.rebuilt}, key=lambda part: part.value):
            stored = stored_part(self._layout, self._head.where, segment, kind)
            read = next(
                (size for name, size in checked.items() if part_kind(name) is kind), stored.size_bytes
            )
            verdicts.append(
                ObjectVerdict(
                    base_offset=segment.base_offset,
                    segment_id=segment.segment_id,
                    size_bytes=stored.size_bytes,
                    version=stored.version,
                    verdict=FileVerdict(
                        path=stored.key,
                        kind=kind.value,
                        checked_bytes=read,
                        findings=tuple(by_kind.get(kind, ())),
                    ),
                    rebuilt=scanned.rebuilt.get(kind),
                )
            )
        return verdicts

    def _add_findings(self, verdict: PartitionVerdict) -> None:
        """Give the findings of the partition as a whole to the objects that they name, there or not."""
        prefix = self._head.where.prefix
        numbers = {judged.verdict.path: number for number, judged in enumerate(verdict.objects)}
        for file, findings in findings_by_file(self._findings).items():
            number = numbers.get(prefix + file)
            if number is None:
                verdict.objects.append(verdict_of_nothing(prefix + file, findings))
                continue
            judged = verdict.objects[number]
            file_verdict = replace(judged.verdict, findings=(*judged.verdict.findings, *findings))
            verdict.objects[number] = replace(judged, verdict=file_verdict)

    # -- what is rebuilt -------------------------------------------------------------------------------------

    def _decide_rebuilds(self, verdict: PartitionVerdict) -> None:
        """Enter what can be rebuilt, and why the rest is not; do not blame files for a log that is not theirs."""
        if all(judged.verdict.is_valid for judged in verdict.objects):
            return
        numbers_by_segment: dict[SegmentKey, dict[PartKind, int]] = {}
        for number, judged in enumerate(verdict.objects):
            kind = _kinds.get(judged.verdict.kind)
            if judged.base_offset >= 0 and kind is not None:
                key = judged.base_offset, judged.segment_id
                numbers_by_segment.setdefault(key, {})[kind] = number
        segments = [scanned for scanned in self._scanned if not scanned.segment.other_file]
        row = Row(segments, self._head.gone)
        state = _StateBefore()
        for scanned in segments:
            numbers = numbers_by_segment.get(scanned.segment.key, {})
            parts = {kind: verdict.objects[number] for kind, number in numbers.items()}
            state.is_known &= scanned.segment.key not in self._breaks
            if any(judged.verdict.is_valid is False for judged in parts.values()):
                for kind, judged in self._decide(scanned, parts, row, state, verdict.rebuilds).items():
                    verdict.objects[numbers[kind]] = judged
            state.pass_by(parts)

    def _decide(
        self,
        scanned: ScannedSegment,
        parts: Mapping[PartKind, ObjectVerdict],
        row: Row,
        state: _StateBefore,
        rebuilds: list[RebuildWork],
    ) -> dict[PartKind, ObjectVerdict]:
        """Return the verdicts on the *parts* of a segment with what was decided; enter what is to be rebuilt."""
        segment = scanned.segment
        decided = dict(parts)
        if self._folder is None:
            decided |= _excused_parts(parts, state)
        wrong = [
            kind
            for kind in (*DERIVED, PartKind.INDEXES)
            if kind in decided and decided[kind].verdict.is_valid is False
        ]
        wanted = set(DERIVED if PartKind.INDEXES in wrong else wrong)
        obstacle = obstacle_of(
            scanned,
            {kind: judged.verdict.findings for kind, judged in parts.items()},
            row,
            is_finished=segment.key not in self._head.unfinished,
            is_tiered=self._layout.is_tiered,
        )
        obstacles = dict.fromkeys(wrong, obstacle)
        state_obstacle = self._state_obstacle(state)
        if not obstacle and state_obstacle:
            wanted.difference_update(STATEFUL)
            obstacles.update(dict.fromkeys(STATEFUL, state_obstacle))
        if wanted and not obstacle:
            work = RebuildWork(
                segment=segment,
                kinds=frozenset(wanted),
                index_interval_bytes=self._head.settings.index_interval_bytes,
                segment_index_bytes=self._head.settings.segment_index_bytes,
            )
            rebuilds.append(work)
        for kind in wrong:
            if decided[kind].rebuilt is None:
                why = obstacles[kind] or self._failure(segment.key, kind)
                decided[kind] = replace(decided[kind], obstacle=why)
        return decided

    def _state_obstacle(self, state: _StateBefore) -> str:
        """Return why nothing is rebuilt that follows from the *state* before a segment, empty if it may be."""
        if not state.is_known:
            return "a log or a snapshot before its own log is damaged, or of another history"
        if len(self._chains) > 1:
            return "several segments have the same offsets: which of them it continues is not known"
        return ""

    def _failure(self, key: SegmentKey, kind: PartKind) -> str:
        """Return why a part that was to be rebuilt was not; empty if nothing is rebuilt now."""
        if self._rebuilding is None:
            return ""
        indexes = self._rebuilding.indexes.get(key)
        if indexes is None:
            return "it was found only with what was rebuilt now: run `archive recover` again"
        return self._rebuilding.failures.get((key, kind)) or indexes.failure or _UNKNOWN_BEFORE.get(kind, "")


def _is_valid(parts: Mapping[PartKind, ObjectVerdict], kind: PartKind) -> bool:
    """Return whether a segment has a part, and it is sound."""
    return kind in parts and parts[kind].verdict.is_valid is True


def _excused_parts(
    parts: Mapping[PartKind, ObjectVerdict], state: _StateBefore
) -> dict[PartKind, ObjectVerdict]:
    """Return the verdicts on the parts of a segment that are not to blame: its log is, or one before it."""
    log = parts[PartKind.LOG].verdict.findings if PartKind.LOG in parts else ()
    if is_of_another_log(log):
        kinds, why = DERIVED, "the log is damaged, not this file"
    elif state.has_bad_log:
        kinds, why = STATEFUL, "a log before its own is damaged, not this file"
    else:
        return {}
    return {kind: _not_blamed(parts[kind], why) for kind in kinds if kind in parts}


def _not_blamed(judged: ObjectVerdict, why: str) -> ObjectVerdict:
    """Return the verdict on a file that contradicts a log, which is to blame; *why*."""
    findings = tuple(excused(finding, why) for finding in judged.verdict.findings)
    return replace(judged, verdict=replace(judged.verdict, findings=findings))


@dataclass(slots=True)
class _StateBefore:
    """What is known of the state before a segment: of its producers, transactions and leader epochs.

    Attributes:
        is_known: whether sound logs, and no wrong snapshot, lead to it.
        has_bad_log: whether a log before the segment is damaged, and no sound snapshot followed.
    """

    is_known: bool = True
    has_bad_log: bool = False

    def pass_by(self, parts: Mapping[PartKind, ObjectVerdict]) -> None:
        """Go on to the next segment, past one with these *parts*."""
        is_log_sound, has_snapshot = _is_valid(parts, PartKind.LOG), _is_valid(parts, PartKind.SNAPSHOT)
        # The checks continue from each snapshot that is well-formed.
        is_misled = PartKind.SNAPSHOT in parts and any(
            map(is_contradiction, parts[PartKind.SNAPSHOT].verdict.findings)
        )
        self.is_known = is_log_sound and not is_misled and (self.is_known or has_snapshot)
        self.has_bad_log = not is_log_sound or (self.has_bad_log and not has_snapshot)


def is_partial(segment: ArchivedSegment, head: PartitionHead, layout: Layout) -> bool:
    """Return whether a segment was never complete, so that others have its offsets, or there is a gap."""
    is_unfinished = segment.key in head.unfinished
    return is_unfinished and layout.last_part is not None and layout.last_part not in segment.parts


def verdict_of_nothing(key: str, findings: list[Finding]) -> ObjectVerdict:
    """Return the verdict on an object that was not listed."""
    return ObjectVerdict(
        base_offset=-1,
        segment_id="",
        size_bytes=0,
        version="",
        verdict=FileVerdict(
            path=key, kind=kind_of(key.rpartition("/")[2]), checked_bytes=0, findings=tuple(findings)
        ),
    )


def _make_notes(scanned: ScannedSegment) -> None:
    """Turn all findings about a segment into notes, which do not count as damage."""
    scanned.findings = [finding.as_note() for finding in scanned.findings]
    if scanned.result is not None:
        scanned.result.findings = [finding.as_note() for finding in scanned.result.findings]


def part_of(file: str) -> PartKind:
    """Return the part that a finding is about, by its file name in the checks."""
    for kind in (PartKind.MANIFEST, PartKind.INDEXES):
        if file == kind.value:
            return kind
    return part_kind(file) or PartKind.LOG
