"""The fold over one partition of an archive: its head, then its segments in order, then the verdict.

A plain copy is a folder, and is judged as the local engine judges it. Segments of tiered storage are put into chains: a
segment continues the chain that ends where it begins. After a change of leader several may cover the same offsets;
each such history is a chain of its own. Offsets that no chain reaches are a gap.
"""

from __future__ import annotations

from dataclasses import replace

from recovery.archive.check.chain import NAMED_BY_BASE, FolderChain, TieredChain, epochs_of
from recovery.archive.check.chain_ends import ChainEnds
from recovery.archive.check.epoch_cover import EpochCover
from recovery.archive.check.index_density import excuse_other_intervals
from recovery.archive.check.rebuild import Rebuilding
from recovery.archive.check.remains import are_remains
from recovery.archive.check.scanned import PartitionHead, ScannedSegment
from recovery.archive.check.trust import RebuildDecisions, SeamWitness
from recovery.archive.check.verdict import ObjectVerdict, PartitionVerdict, verdict_of_nothing
from recovery.archive.layouts.layout import Layout, kafka_name, part_kind, stored_part
from recovery.archive.stores.archived import ArchivedSegment, PartKind, StoredObject
from recovery.check.checked_log_dir import kind_of
from recovery.check.finding import FileVerdict, Finding, findings_by_file
from recovery.check.folder_files import FolderFiles
from recovery.logdir.checkpoints import LOG_DIR_FILES


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
        self._ends = ChainEnds(head.gone)
        self._cover = EpochCover()
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
            self._cover.take(scanned)
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
        by_key = {scanned.segment.key: scanned for scanned in self._scanned} if self._head.twins else {}
        if self._layout.is_tiered:
            excuse_other_intervals(self._scanned)
        for scanned in self._scanned:
            if scanned.segment.key in self._head.unfinished or are_remains(scanned, self._head, by_key):
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
        if not all(judged.verdict.is_valid for judged in verdict.objects):
            self._decisions().enter(verdict)
        return verdict

    # -- chains ----------------------------------------------------------------------------------------------

    def _chain_of(self, scanned: ScannedSegment) -> int:
        """Return the number of the chain that a segment continues, a new one if there is none."""
        base = scanned.segment.base_offset
        chain_number = self._ends.find(
            base, lambda chain_number: self._chains[chain_number].is_of_lineage(scanned)
        )
        if chain_number is not None:
            return chain_number
        finding = self._ends.begin(base, self._cover.end_of(epochs_of(scanned) or (), base))
        if finding is not None:
            is_cut_off = scanned.segment.key in self._head.cut_off
            scanned.findings.append(finding.as_note() if is_cut_off else finding)
        snapshots = (chain.snapshot_at(base) for chain in self._chains)
        snapshot = next((data for data in snapshots if data is not None), None)
        self._chains.append(TieredChain(self._head.facts, base, snapshot, self._rebuilding))
        return len(self._chains) - 1

    def _decisions(self) -> RebuildDecisions:
        return RebuildDecisions(
            self._head,
            [scanned for scanned in self._scanned if not scanned.segment.other_file],
            SeamWitness(
                unconfirmed={key for chain in self._chains for key in chain.unconfirmed},
                told_after={key for chain in self._chains for key in chain.told_after},
            ),
            is_tiered=self._layout.is_tiered,
            is_forked=len(self._chains) > 1,
            rebuilding=self._rebuilding,
        )

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
            stored = objects.get(name, StoredObject(key=_key_of(prefix, name), size_bytes=0))
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
                    holder=self._holder_of(segment, kind),
                )
            )
        return verdicts

    def _holder_of(self, segment: ArchivedSegment, kind: PartKind) -> str:
        """Return the key of the object that holds a part, empty if the part is an object itself."""
        if kind in self._layout.objects_of(kind):
            return ""
        return stored_part(self._layout, self._head.where, segment, PartKind.INDEXES).key

    def _add_findings(self, verdict: PartitionVerdict) -> None:
        """Give the findings of the partition as a whole to the objects that they name, there or not."""
        prefix = self._head.where.prefix
        numbers = {judged.verdict.path: number for number, judged in enumerate(verdict.objects)}
        for file, findings in findings_by_file(self._findings).items():
            key = _key_of(prefix, file)
            number = numbers.get(key)
            if number is None:
                verdict.objects.append(verdict_of_nothing(key, findings))
                continue
            judged = verdict.objects[number]
            file_verdict = replace(judged.verdict, findings=(*judged.verdict.findings, *findings))
            verdict.objects[number] = replace(judged, verdict=file_verdict)


def is_partial(segment: ArchivedSegment, head: PartitionHead, layout: Layout) -> bool:
    """Return whether a segment was never complete, so that others have its offsets, or there is a gap."""
    if segment.key in head.twins:
        return True
    is_unfinished = segment.key in head.unfinished
    return is_unfinished and layout.last_part is not None and layout.last_part not in segment.parts


def _key_of(prefix: str, file: str) -> str:
    """Return the key of a *file* of a partition, or of the log dir that the partition's folder lies in."""
    if file in LOG_DIR_FILES:
        prefix = prefix[: prefix.rstrip("/").rfind("/") + 1]
    return prefix + file


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
