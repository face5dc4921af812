"""Consecutive segments, checked like a partition's folder: producers, transactions, epochs, offsets.

In tiered storage each segment comes with the producers and the leader epochs at its end. Here they become what a broker
would have in the folder: a snapshot where the next segment begins, and the epochs of the last segment. Where that was
decided, they are rebuilt from the state before the segment; if that is not known, they are not.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from recovery.archive.check.epoch_seams import Epochs, EpochSeams
from recovery.archive.check.rebuild import Rebuilding
from recovery.archive.check.scanned import ScannedSegment
from recovery.archive.layouts.layout import kafka_name, part_kind
from recovery.archive.stores.archived import ArchivedSegment, PartKind, SegmentKey
from recovery.check.facts import PartitionFacts
from recovery.check.finding import Finding
from recovery.check.folder_files import FolderFiles
from recovery.check.partition import PartitionCheck
from recovery.check.rules.blame import blame_logs
from recovery.check.rules.epochs import check_epochs, epochs_between
from recovery.check.rules.transaction_index import check_transaction_index
from recovery.errors import error_text
from recovery.load.leader_epochs import LeaderEpochs
from recovery.load.model import FileStat
from segfmt.checkpoint import LeaderEpochEntry, encode_leader_epoch_checkpoint, read_leader_epoch_checkpoint
from segfmt.filenames import LEADER_EPOCH_CHECKPOINT, snapshot_name, txn_index_name
from segfmt.transaction_index import encode_transaction_index, view_transaction_index

NAMED_BY_BASE = (PartKind.LOG, PartKind.OFFSET_INDEX, PartKind.TIME_INDEX, PartKind.TXN_INDEX)
"""Parts whose names in a folder are their segment's base offset."""


class Chain:
    """Segments of one partition, each beginning where the one before ends.

    Args:
        facts: of the partition.
        files: of its folder, as far as they are known beforehand.
        rebuilding: None: nothing is rebuilt.

    Attributes:
        end_offset: after the last segment; None if it is not known.
    """

    def __init__(self, facts: PartitionFacts, files: FolderFiles, rebuilding: Rebuilding | None) -> None:
        self._files = files
        self._check = self._check_of(facts, files)
        self._rebuilding = rebuilding
        self.end_offset: int | None = files.base_offsets[0] if files.base_offsets else None

    def take(self, scanned: ScannedSegment) -> None:
        """Take in the next segment."""
        self.end_offset = scanned.end_offset
        if scanned.result is None:
            return
        self._check.take(scanned.result)
        rebuilding = self._rebuilding
        indexes = None if rebuilding is None else rebuilding.indexes.get(scanned.segment.key)
        if rebuilding is not None and indexes is not None:
            scanned.rebuilt.update(indexes.parts)
            self._rebuild(scanned, indexes.kinds, rebuilding)

    def finish(self) -> list[Finding]:
        """Return the findings of the chain as a whole."""
        return self._check.finish()

    @property
    def checked_bytes(self) -> dict[str, int]:
        """How many bytes were checked, by file name."""
        return self._check.checked_bytes

    def _check_of(self, facts: PartitionFacts, files: FolderFiles) -> PartitionCheck:
        return PartitionCheck(facts, files)

    # -- rebuilding ------------------------------------------------------------------------------------------

    def _rebuild(self, scanned: ScannedSegment, kinds: Collection[PartKind], rebuilding: Rebuilding) -> None:
        made = {kind: data for kind, data in self._rebuilt(scanned).items() if kind in kinds}
        for kind, data in made.items():
            self._write(scanned, kind, data, rebuilding)
        if PartKind.SNAPSHOT in made and scanned.end_offset is not None:
            self._files.snapshots[scanned.end_offset] = made[PartKind.SNAPSHOT]
            self._check.restart_producers(scanned.end_offset)

    def _write(self, scanned: ScannedSegment, kind: PartKind, data: bytes, rebuilding: Rebuilding) -> None:
        try:
            scanned.rebuilt[kind] = rebuilding.write(scanned.segment, kind, data)
        except OSError as error:
            rebuilding.failures[scanned.segment.key, kind] = error_text(error)

    def _rebuilt(self, scanned: ScannedSegment) -> dict[PartKind, bytes]:
        """Return the replacements of parts that are missing or wrong."""
        made = {PartKind.TXN_INDEX: self._txn_index(scanned), PartKind.SNAPSHOT: self._snapshot(scanned)}
        return {kind: data for kind, data in made.items() if data is not None}

    def _txn_index(self, scanned: ScannedSegment) -> bytes | None:
        """Return the rebuilt transaction index, None if it is right, or if not all is known."""
        known = self._check.rebuilt_aborts()
        data = self._files.transaction_indexes.get(scanned.segment.base_offset)
        if known is None or scanned.end_offset is None or (data is None and not len(known.entries)):
            return None
        index_findings = check_transaction_index(
            txn_index_name(scanned.segment.base_offset),
            view_transaction_index(data or b""),
            known,
            base_offset=scanned.segment.base_offset,
            end_offset=scanned.end_offset,
            is_complete=True,
            is_compacted=bool(scanned.result and scanned.result.has_compacted),
        )
        is_whole = data is not None and len(data) % known.entries.dtype.itemsize == 0
        if is_whole and not any(finding.severity == "damage" for finding in index_findings):
            return None
        return encode_transaction_index(known.entries)

    def _snapshot(self, scanned: ScannedSegment) -> bytes | None:
        """Return the rebuilt snapshot at the segment's end, None if it is right, or if not all is known."""
        assert scanned.end_offset is not None
        name = snapshot_name(scanned.end_offset)
        wrong = {finding.file for finding in self._check.producer_findings}
        if scanned.end_offset in self._files.snapshots and name not in wrong:
            return None
        return self._check.rebuilt_snapshot() or None


class FolderChain(Chain):
    """The segments of a plain copy: a folder, whose small files are known beforehand."""

    def finish(self) -> list[Finding]:
        """Return the findings of the folder as a whole."""
        return blame_logs(super().finish())

    def _snapshot(self, scanned: ScannedSegment) -> bytes | None:
        """Return the rebuilt snapshot only in place of a wrong one: a broker keeps snapshots of some segments only."""
        return super()._snapshot(scanned) if PartKind.SNAPSHOT in scanned.segment.parts else None


class _TieredCheck(PartitionCheck):
    """The checks of segments that each came with leader epochs: these are judged at each seam."""

    def _judge_epochs(self, end_offset: int | None) -> None:
        pass


class TieredChain(Chain):
    """Segments of tiered storage, which come with their small files.

    Args:
        facts: of the partition.
        base_offset: of the first segment.
        snapshot: the producers at its start, None if they are not known.
        rebuilding: None: nothing is rebuilt.

    Attributes:
        told_after: segments whose leader epochs the next one knows.
    """

    def __init__(
        self, facts: PartitionFacts, base_offset: int, snapshot: bytes | None, rebuilding: Rebuilding | None
    ) -> None:
        files = FolderFiles(base_offsets=[base_offset], epochs=None)
        if snapshot is not None:
            files.snapshots[base_offset] = snapshot
        super().__init__(replace(facts, is_contiguous=True, had_clean_shutdown=False), files, rebuilding)
        self._last_epoch: int | None = None
        self._last: ScannedSegment | None = None
        self._seams = EpochSeams(base_offset)
        self.told_after: set[SegmentKey] = set()
        self._owners: dict[str, ScannedSegment] = {}
        self._entries: Epochs | None = () if base_offset == 0 else None
        self._entries_before: Epochs | None = self._entries

    def take(self, scanned: ScannedSegment) -> None:
        """Take in the next segment."""
        base = scanned.segment.base_offset
        if base != self._files.base_offsets[-1]:
            self._files.base_offsets.append(base)
        self._last_epoch = _last_epoch(scanned)
        self._own(scanned)
        epochs = epochs_of(scanned)
        is_right = self._seams.take(scanned, epochs)
        self._settle_epochs(epochs if is_right else None)
        self._entries_before, self._entries = self._entries, epochs
        self._last = scanned
        if self._entries is not None:
            self._files.epochs = tuple(self._entries)
        # A broker that recovers a tiered log knows of producers only what its local segments say.
        self._check.forget_before(base)
        super().take(scanned)
        for offset in [offset for offset in self._files.snapshots if offset < base]:
            del self._files.snapshots[offset]

    def finish(self) -> list[Finding]:
        """Give each finding to the segment that it concerns, and return none."""
        self._settle_epochs(None)
        self._seams.finish()
        for finding in super().finish():
            assert self._last is not None
            owner = self._owners.get(finding.file, self._last)
            if finding not in owner.findings and not (owner.result and finding in owner.result.findings):
                owner.findings.append(finding)
        return []

    def snapshot_at(self, offset: int) -> bytes | None:
        """Return the producers at *offset*, None if they are not known."""
        return self._files.snapshots.get(offset)

    def is_of_lineage(self, scanned: ScannedSegment) -> bool:
        """Return whether a segment that begins where the chain ends has the chain's history, as far as is known.

        The epoch of the offset before it decides: replicas that have a record of the same offset and epoch have the
        same records before it. After an unclean election two leaders may have archived the same offsets.
        """
        before = _epoch_before(scanned)
        return None in (before, self._last_epoch) or before == self._last_epoch

    @property
    def unconfirmed(self) -> Collection[SegmentKey]:
        """The segments of which nothing confirms that they continue the log before; known once it is finished."""
        return self._seams.unconfirmed

    def _check_of(self, facts: PartitionFacts, files: FolderFiles) -> PartitionCheck:
        return _TieredCheck(facts, files)

    def _own(self, scanned: ScannedSegment) -> None:
        """Map the segment's files by the names that a broker gives them."""
        base, small = scanned.segment.base_offset, scanned.small
        for kind in NAMED_BY_BASE:
            # Missing files are reported already.
            name = kafka_name(kind, base)
            self._files.names[name] = FileStat(size_bytes=_size(scanned.segment, kind))
            self._owners[name] = scanned
        if PartKind.TXN_INDEX in small:
            self._files.transaction_indexes[base] = small[PartKind.TXN_INDEX]
        if scanned.end_offset is not None:
            name = snapshot_name(scanned.end_offset)
            self._files.names[name] = FileStat(size_bytes=_size(scanned.segment, PartKind.SNAPSHOT))
            self._owners[name] = scanned
            if PartKind.SNAPSHOT in small:
                self._files.snapshots[scanned.end_offset] = small[PartKind.SNAPSHOT]
        self._owners[LEADER_EPOCH_CHECKPOINT] = scanned

    def _settle_epochs(self, after: Epochs | None) -> None:
        """Rebuild the leader epochs of the last segment, if that was decided: by those *after* it, or before.

        Args:
            after: those of the next segment, if nothing contradicts them.
        """
        last = self._last
        if last is None:
            return
        told = _told_by(after, last) if after else None
        if told is not None:
            self.told_after.add(last.segment.key)
        rebuilding = self._rebuilding
        indexes = None if rebuilding is None else rebuilding.indexes.get(last.segment.key)
        if rebuilding is None or indexes is None or PartKind.LEADER_EPOCHS not in indexes.kinds:
            return
        epochs = told or _followed(self._entries_before, last)
        if epochs is not None:
            self._write(last, PartKind.LEADER_EPOCHS, encode_leader_epoch_checkpoint(epochs), rebuilding)
            self._entries = self._files.epochs = tuple(epochs)


def _damaged_parts(scanned: ScannedSegment) -> set[PartKind | None]:
    """Return the parts of a segment that are damaged, as far as its own files show."""
    findings = [*scanned.findings, *(scanned.result.findings if scanned.result is not None else ())]
    return {part_kind(finding.file) for finding in findings if finding.severity == "damage"}


def epochs_of(scanned: ScannedSegment) -> tuple[LeaderEpochEntry, ...] | None:
    """Return the leader epochs that a segment came with, None if they are missing or wrong."""
    data = scanned.small.get(PartKind.LEADER_EPOCHS)
    is_wrong = PartKind.LEADER_EPOCHS in _damaged_parts(scanned)
    return None if data is None or is_wrong else read_leader_epoch_checkpoint(data)


def _epoch_before(scanned: ScannedSegment) -> int | None:
    """Return the leader epoch of the offset before a segment, None if the segment does not tell."""
    base = scanned.segment.base_offset
    before = [entry.epoch for entry in epochs_of(scanned) or () if entry.start_offset < base]
    return before[-1] if before else None


def _last_epoch(scanned: ScannedSegment) -> int | None:
    """Return the leader epoch of a segment's last batch, None if it has none."""
    runs = scanned.result.epoch_runs if scanned.result is not None else []
    return runs[-1].epoch if runs and runs[-1].epoch >= 0 else None


def _followed(before: Epochs | None, scanned: ScannedSegment) -> Epochs | None:
    """Return the leader epochs at the segment's end, None if those at its start are not known."""
    if before is None or scanned.result is None:
        return None
    epochs = LeaderEpochs(before)
    for run in scanned.result.epoch_runs:
        if run.epoch >= 0:
            epochs.observe(run.epoch, run.first_offset)
    return [LeaderEpochEntry(*entry) for entry in epochs.entries]


def _told_by(after: Epochs, scanned: ScannedSegment) -> Epochs | None:
    """Return the leader epochs at the segment's end by those of the next one; None if they do not tell all of them."""
    if scanned.result is None or scanned.end_offset is None:
        return None
    if after[0].start_offset > scanned.segment.base_offset:
        return None
    epochs = epochs_between(after, after[0].start_offset, scanned.end_offset)
    runs = [(scanned.result.task.log, run) for run in scanned.result.epoch_runs]
    findings = check_epochs(runs, epochs, log_end_offset=scanned.end_offset, is_clean=True)
    return None if findings else epochs


def _size(segment: ArchivedSegment, kind: PartKind) -> int:
    stored = segment.parts.get(kind)
    return 0 if stored is None else stored.size_bytes
