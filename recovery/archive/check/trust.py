"""Whether what follows from a log may be replaced: only if nothing says that the log is not what it was.

A log that was cut between two batches, or swapped with another, is sound by itself. That it is the wrong one is known
only from what was derived from the right one: an index whose last entry is of no batch in the log, a snapshot of other
producers, a segment that begins elsewhere. Such files are evidence. Whoever replaces them by what the wrong log gives
destroys the last trace of a loss, so they stay, and everything else of the segment with them.

A file that is missing, or malformed by itself, says nothing about its log, and can be replaced. One that contradicts
the log never is, whatever else speaks for the log: that sizes, ends and neighbours agree shows how long the log is, not
that its batches are the right ones.

Pure: results of scans and findings in, reasons out.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from recovery.archive.check.rebuild import Rebuilding, RebuildWork
from recovery.archive.check.scanned import PartitionHead, ScannedSegment
from recovery.archive.check.verdict import ObjectVerdict, PartitionVerdict
from recovery.archive.stores.archived import PartKind, SegmentKey
from recovery.check.finding import OF_COPIES, Finding
from recovery.check.rules.blame import excused, is_contradiction, is_of_another_log
from segfmt.filenames import offset_index_name, read_offset, time_index_name

DERIVED: tuple[PartKind, ...] = (
    PartKind.OFFSET_INDEX,
    PartKind.TIME_INDEX,
    PartKind.TXN_INDEX,
    PartKind.SNAPSHOT,
    PartKind.LEADER_EPOCHS,
)
"""What can be rebuilt from a log and what precedes it."""
STATEFUL: tuple[PartKind, ...] = (PartKind.TXN_INDEX, PartKind.SNAPSHOT, PartKind.LEADER_EPOCHS)
"""Those of them that follow from earlier logs as well."""
_ALWAYS_HELD = tuple(kind for kind in DERIVED if kind is not PartKind.TXN_INDEX)
_KINDS = {kind.value: kind for kind in PartKind}
_UNKNOWN_BEFORE = {
    PartKind.TXN_INDEX: "the producers at the start of its segment are not known",
    PartKind.SNAPSHOT: "the producers at the start of its segment are not known",
    PartKind.LEADER_EPOCHS: "the leader epochs at the start of its segment are not known",
}
_MADE_BY_BROKER = "a broker that starts on the log without a clean-shutdown marker makes it itself"
_UNCONFIRMED = (
    "no leader epochs confirm that its segment continues the log before, which may be another history's"
)

_Parts = Mapping[PartKind, ObjectVerdict]


@dataclass(slots=True, kw_only=True)
class SeamWitness:
    """What the leader epochs of a partition say of its seams.

    Attributes:
        unconfirmed: segments of which nothing confirms that they continue the log before.
        told_after: segments whose leader epochs the segment after knows.
    """

    unconfirmed: Collection[SegmentKey] = ()
    told_after: Collection[SegmentKey] = ()


class RebuildDecisions:
    """Decides which parts of a partition's segments are rebuilt, and says why the others are not.

    Args:
        head: of the partition.
        segments: of the partition, in the order of base offsets.
        witness: what leader epochs say of the seams.
        is_tiered: whether they are of tiered storage.
        is_forked: whether several segments have the same offsets.
        rebuilding: what has been rebuilt; None: nothing is yet.
    """

    def __init__(
        self,
        head: PartitionHead,
        segments: Sequence[ScannedSegment],
        witness: SeamWitness,
        *,
        is_tiered: bool,
        is_forked: bool,
        rebuilding: Rebuilding | None,
    ) -> None:
        self._head = head
        self._segments = segments
        self._witness = witness
        self._is_tiered = is_tiered
        self._is_forked = is_forked
        self._rebuilding = rebuilding
        self._row = Row(segments, head.gone)
        self._state = _StateBefore()

    def enter(self, verdict: PartitionVerdict) -> None:
        """Enter in *verdict* what can be rebuilt, and why the rest is not; blame no file for a log not its own."""
        numbers_by_segment: dict[SegmentKey, dict[PartKind, int]] = {}
        for number, judged in enumerate(verdict.objects):
            kind = _KINDS.get(judged.verdict.kind)
            if judged.base_offset >= 0 and kind is not None:
                key = judged.base_offset, judged.segment_id
                numbers_by_segment.setdefault(key, {})[kind] = number
            elif any(finding.rule == "missing-snapshot" for finding in judged.verdict.findings):
                verdict.objects[number] = replace(judged, obstacle=_MADE_BY_BROKER)
        for scanned in self._segments:
            numbers = numbers_by_segment.get(scanned.segment.key, {})
            parts = {kind: verdict.objects[number] for kind, number in numbers.items()}
            self._state.reach(is_confirmed=scanned.segment.key not in self._witness.unconfirmed)
            if any(judged.verdict.is_valid is False for judged in parts.values()):
                for kind, judged in self._decide(scanned, parts, verdict.rebuilds).items():
                    verdict.objects[numbers[kind]] = judged
            self._state.pass_by(parts)

    def _decide(
        self, scanned: ScannedSegment, parts: _Parts, rebuilds: list[RebuildWork]
    ) -> dict[PartKind, ObjectVerdict]:
        """Return the verdicts on the *parts* of a segment with what was decided; enter what is to be rebuilt."""
        segment = scanned.segment
        decided = dict(parts)
        if self._is_tiered:
            decided |= _excused_parts(parts, self._state)
        wrong = [
            kind for kind in (*DERIVED, PartKind.INDEXES) if kind in decided and _is_wrong(decided[kind])
        ]
        wanted = set(DERIVED if PartKind.INDEXES in wrong else wrong)
        obstacle = obstacle_of(
            scanned,
            {kind: judged.verdict.findings for kind, judged in parts.items()},
            self._row,
            is_finished=segment.key not in self._head.unfinished and segment.key not in self._head.twins,
            is_tiered=self._is_tiered,
        )
        state_obstacles = {} if obstacle else self._state_obstacles(segment.key)
        wanted.difference_update(state_obstacles)
        if wanted and not obstacle:
            work = RebuildWork(
                segment=segment,
                kinds=frozenset(wanted),
                index_interval_bytes=self._head.settings.index_interval_bytes,
                segment_index_bytes=self._head.settings.segment_index_bytes,
            )
            rebuilds.append(work)
        for kind in wrong:
            if decided[kind].rebuilt is not None:
                continue
            # Of several parts the first that is missing says why the whole is not there
            needed = self._held(segment.key) if kind is PartKind.INDEXES else (kind,)
            missing = [part for part in needed if part not in scanned.rebuilt]
            reasons = (
                obstacle or state_obstacles.get(part) or self._failure(segment.key, part) for part in missing
            )
            decided[kind] = replace(
                decided[kind],
                obstacle=next(filter(None, reasons), ""),
                is_held_rebuilt=kind is PartKind.INDEXES and not missing,
            )
        return decided

    def _state_obstacles(self, key: SegmentKey) -> dict[PartKind, str]:
        """Return the parts that follow from the state before a segment, if that is not sure, and why it is not."""
        why = self._state.obstacle
        if not why and self._is_forked:
            why = "several segments have the same offsets: which of them it continues is not known"
        if not why:
            return {}
        kinds = set(STATEFUL)
        if key in self._witness.told_after:
            kinds.discard(PartKind.LEADER_EPOCHS)
        return dict.fromkeys(kinds, why)

    def _held(self, key: SegmentKey) -> tuple[PartKind, ...]:
        """Return the parts that an object which holds all of a segment should have, as far as is known.

        A transaction index is among them where one could not be written: only segments with aborted ones have one.
        """
        is_txn_index_lost = self._rebuilding is not None and (
            (key, PartKind.TXN_INDEX) in self._rebuilding.failures
        )
        return DERIVED if is_txn_index_lost else _ALWAYS_HELD

    def _failure(self, key: SegmentKey, kind: PartKind) -> str:
        """Return why a part that was to be rebuilt was not; empty if nothing is rebuilt now."""
        if self._rebuilding is None:
            return ""
        indexes = self._rebuilding.indexes.get(key)
        if indexes is None:
            return "it was found only with what was rebuilt now: run `archive recover` again"
        return (
            self._rebuilding.failures.get((key, kind))
            or indexes.failures.get(kind)
            or _UNKNOWN_BEFORE.get(kind, "")
        )


def _is_valid(parts: _Parts, kind: PartKind) -> bool:
    """Return whether a segment has a part, and it is sound."""
    return kind in parts and parts[kind].verdict.is_valid is True


def _is_wrong(judged: ObjectVerdict) -> bool:
    """Return whether a part is damaged, and not only another one than was copied: a rebuilt one is that, too."""
    return any(
        finding.severity == "damage" and finding.rule not in OF_COPIES for finding in judged.verdict.findings
    )


def _excused_parts(parts: _Parts, state: _StateBefore) -> dict[PartKind, ObjectVerdict]:
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
        obstacle: why it is not sure; empty if sound logs, and no wrong snapshot, of its own history lead to it.
        has_bad_log: whether a log before the segment is damaged, and no sound snapshot followed.
    """

    obstacle: str = ""
    has_bad_log: bool = False

    def reach(self, *, is_confirmed: bool) -> None:
        """Come to the next segment; *is_confirmed*: whether it continues the log before."""
        if not self.obstacle and not is_confirmed:
            self.obstacle = _UNCONFIRMED

    def pass_by(self, parts: _Parts) -> None:
        """Go on to the next segment, past one with these *parts*."""
        is_log_sound, has_snapshot = _is_valid(parts, PartKind.LOG), _is_valid(parts, PartKind.SNAPSHOT)
        # The checks continue from each snapshot that is well-formed.
        is_misled = PartKind.SNAPSHOT in parts and any(
            map(is_contradiction, parts[PartKind.SNAPSHOT].verdict.findings)
        )
        if not is_log_sound or is_misled:
            self.obstacle = "a log or a snapshot before its own log is damaged, or of another history"
        elif has_snapshot:
            self.obstacle = ""
        self.has_bad_log = not is_log_sound or (self.has_bad_log and not has_snapshot)


class Row:
    """The segments of a partition by offset: which offsets they have.

    Args:
        scanned: in the order of base offsets.
        gone: first and last offsets of what is deleted or below the log start.
    """

    def __init__(self, scanned: Sequence[ScannedSegment], gone: Iterable[tuple[int, int]]) -> None:
        self._bases = [segment.segment.base_offset for segment in scanned]
        ends = (
            segment.segment.base_offset if segment.end_offset is None else segment.end_offset
            for segment in scanned
        )
        self._ends = list(accumulate(ends, max))
        self._gone = tuple(gone)

    def begins_at(self, offset: int) -> bool:
        """Return whether a segment begins at *offset*."""
        count = bisect_right(self._bases, offset)
        return bool(count) and self._bases[count - 1] == offset

    def is_continued(self, end_offset: int) -> bool:
        """Return whether another segment has *end_offset*, or none has a later one, or it is known to be gone."""
        count = bisect_right(self._bases, end_offset)
        if count == len(self._bases) or self.begins_at(end_offset):
            return True
        has_it = bool(count) and self._ends[count - 1] > end_offset
        return has_it or any(first <= end_offset <= last for first, last in self._gone)


def obstacle_of(
    scanned: ScannedSegment,
    findings: Mapping[PartKind, Sequence[Finding]],
    row: Row,
    *,
    is_finished: bool,
    is_tiered: bool,
) -> str:
    """Return why nothing that follows from a segment's log is replaced, empty if it may be.

    Args:
        scanned: the segment.
        findings: all that concern it, by the part that they blame.
        row: of the segments of its partition.
        is_finished: whether its copy is complete, and its deletion was not begun.
        is_tiered: whether it is of tiered storage; else the names of snapshots are their offsets.
    """
    if scanned.result is None or not scanned.result.is_whole or scanned.end_offset is None:
        return "its log could not be read to the end"
    if any(finding.severity != "note" for finding in findings.get(PartKind.LOG, ())):
        return "its log is damaged, and what contradicts it is evidence"
    if not is_finished:
        return (
            "no broker reads it: its copy or its deletion is not finished, or the metadata does not know it"
        )
    if not row.is_continued(scanned.end_offset):
        return "offsets after its end are missing, so its log may have been cut"
    if not is_tiered and _is_beyond(scanned, scanned.end_offset):
        return "a snapshot was taken at a later offset than its end, so its log may have been cut"
    evidence = _evidence(scanned, findings, is_end_known=row.begins_at(scanned.end_offset))
    if evidence:
        names = " and ".join(kind.noun for kind in evidence)
        return f"its {names} and its log contradict each other: either may be of another log"
    return ""


def _evidence(
    scanned: ScannedSegment, findings: Mapping[PartKind, Sequence[Finding]], *, is_end_known: bool
) -> list[PartKind]:
    """Return the derived parts that contradict the log of a segment, though they are well-formed."""
    assert scanned.result is not None
    base_offset, agreements = scanned.segment.base_offset, scanned.result.agreements
    names = {
        PartKind.OFFSET_INDEX: offset_index_name(base_offset),
        PartKind.TIME_INDEX: time_index_name(base_offset),
    }
    evidence = []
    for kind in DERIVED:
        of_kind = [finding for finding in findings.get(kind, ()) if finding.severity == "damage"]
        if kind in names:
            agreement = agreements.get(names[kind])
            contradicts = agreement is not None and agreement.contradicts
            # One that ends too early was cut; or its log is a longer one than it was made from.
            contradicts |= not is_end_known and any(finding.rule == "index-sparse" for finding in of_kind)
        else:
            contradicts = any(map(is_contradiction, of_kind))
        if contradicts:
            evidence.append(kind)
    return evidence


def _is_beyond(scanned: ScannedSegment, end_offset: int) -> bool:
    """Return whether a plain segment has a snapshot, by its name, past the end of its log."""
    segment = scanned.segment
    named = segment.parts.get(PartKind.SNAPSHOT)
    offsets = [*segment.snapshots, *([read_offset(named.name)] if named is not None else [])]
    return any(offset > end_offset for offset in offsets)
