"""The map step over an archive: one segment, any order, any machine.

The log and its indexes go through the check of `verify`. What tiered storage keeps with each log, the producers and
leader epochs at its end, is checked here by itself; what depends on earlier segments is left to the fold.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from native.crc32c import crc32c_of_bytes
from recovery.archive.check.scanned import ScannedSegment, SegmentWork
from recovery.archive.layouts.holed_log import ChunkError
from recovery.archive.layouts.layout import ArchivedFiles, Layout, is_gone, kafka_name, part_kind
from recovery.archive.stores.archived import PartKind, StoredObject
from recovery.archive.stores.store import Store
from recovery.check.finding import Finding, Rule, Severity
from recovery.check.rules.epochs import check_epochs, start_within_batch
from recovery.check.segment import check_segment
from recovery.check.task import Reading
from recovery.errors import error_text
from recovery.read.opened_log import OpenedLog
from recovery.read.rate_limit import RateLimit
from segfmt import byte_layout
from segfmt.checkpoint import LeaderEpochEntry, read_leader_epoch_checkpoint
from segfmt.errors import FormatError, MissingKeyError
from segfmt.filenames import LEADER_EPOCH_CHECKPOINT, log_name, txn_index_name
from segfmt.java_text import LONG_MAX
from segfmt.kafka_uuid import format_uuid
from segfmt.producer_snapshot import read_producer_snapshot
from segfmt.remote_log_metadata import RemoteSegment

_SMALL = (PartKind.SNAPSHOT, PartKind.TXN_INDEX, PartKind.LEADER_EPOCHS)


class SegmentMap:
    """Scans segments of one archive.

    Args:
        store: the archive.
        layout: its layout.
        on_bytes: called with the number of bytes of a log that were read.
        is_logs_only: whether only the logs are checked.
    """

    def __init__(
        self,
        store: Store,
        layout: Layout,
        *,
        on_bytes: Callable[[int], None] = lambda _: None,
        is_logs_only: bool = False,
    ) -> None:
        self._store = store
        self._layout = layout
        self._is_logs_only = is_logs_only
        self._reading = Reading(limit=RateLimit(None), on_bytes=on_bytes, one_at_a_time=threading.Lock())

    def scan(self, work: SegmentWork) -> ScannedSegment:
        """Return the results for a segment; a fault in it is a finding, never an error."""
        scanned = ScannedSegment(segment=work.segment)
        self._find_missing(work, scanned)
        files = self._files(work, scanned)
        if files is None:
            self._leave_out(scanned)
            return scanned
        for kind, detail in files.contradictions():
            _find(scanned, _canonical(scanned, kind), "object-size", detail)
        self._check(work, files, scanned)
        remotes = {"metadata": work.remote, "manifest": files.described()}
        if self._layout.is_tiered and not self._is_logs_only:
            self._read_small(files, scanned)
            _check_own_epochs(scanned, [remote for remote in remotes.values() if remote is not None])
        for source, remote in remotes.items():
            if remote is not None:
                scanned.broker_id = remote.broker_id
                _check_description(scanned, source, remote, has_epochs=not self._is_logs_only)
        return scanned

    def _find_missing(self, work: SegmentWork, scanned: ScannedSegment) -> None:
        required = self._layout.required_parts
        if self._is_logs_only:
            required &= self._layout.objects_of(PartKind.LOG)
        for kind in sorted(required - scanned.segment.parts.keys(), key=lambda part: part.value):
            name = self._layout.name_of(scanned.segment, kind)
            detail = f"{name} is not there"
            with suppress(OSError):
                self._store.stat(f"{work.facts.path}/{name}".lstrip("/"))
                detail = f"{name} exists, but the list or listing of the archive does not have it: it was not checked"
            _find(scanned, _canonical(scanned, kind), "missing-object", detail)

    def _leave_out(self, scanned: ScannedSegment) -> None:
        """Say of the objects that only their manifest makes readable that they were not checked."""
        for kind in sorted(scanned.segment.parts.keys() - {PartKind.MANIFEST}, key=lambda part: part.value):
            detail = "it was not checked: without its manifest it cannot be read"
            _find(scanned, _canonical(scanned, kind), "manifest", detail, severity="unchecked")

    def _files(self, work: SegmentWork, scanned: ScannedSegment) -> ArchivedFiles | None:
        try:
            files = self._layout.files(self._store, scanned.segment)
            return files if self._is_own(work, scanned, files) else None
        except FormatError as error:
            _find(scanned, PartKind.MANIFEST.value, "manifest", str(error), position=error.position or None)
        except OSError as error:
            if PartKind.MANIFEST in scanned.segment.parts:  # else it is reported already
                _find(scanned, PartKind.MANIFEST.value, "unreadable", error_text(error), severity="unchecked")
        return None

    def _is_own(self, work: SegmentWork, scanned: ScannedSegment, files: ArchivedFiles) -> bool:
        """Return whether a manifest is that of its segment, or may be; if not, nothing can be read by it."""
        if PartKind.MANIFEST not in self._layout.required_parts:
            return True
        described = files.described()
        name = PartKind.MANIFEST.value
        if described is None or described.owner is None:
            detail = "it does not say whose segment it describes: remoteLogSegmentMetadata is missing"
            _find(scanned, name, "manifest", detail, severity="unchecked")
            return True
        owner, facts = described.owner, work.facts
        # A `key.prefix` of the plugin's that does not end in / is part of the topic's name in the key; the id tells.
        has_prefix = owner.topic_id == facts.topic_id and facts.topic.endswith(owner.topic)
        told = {
            "topic": (owner.topic, owner.topic if has_prefix else facts.topic),
            "topic id": (format_uuid(owner.topic_id), facts.topic_id and format_uuid(facts.topic_id)),
            "partition": (owner.partition, facts.partition),
            "start offset": (described.start_offset, work.segment.base_offset),
            "segment id": (format_uuid(described.segment_id), work.segment.segment_id),
        }
        wrong = [f"{what} {own}, its key says {key}" for what, (own, key) in told.items() if own != key]
        if wrong:
            _find(scanned, name, "manifest", f"it is another segment's: {'; '.join(wrong)}")
        return not wrong

    # -- log and indexes -------------------------------------------------------------------------------------

    def _check(self, work: SegmentWork, files: ArchivedFiles, scanned: ScannedSegment) -> None:
        log = work.segment.parts.get(PartKind.LOG)
        if log is None:
            return
        scanned.log_bytes = files.log_bytes()
        task = work.task
        if self._is_logs_only:
            task = replace(task, has_indexes=False, expiration_ms=None)
        guarded = _GuardedFiles(files, scanned, self._layout)
        try:
            result = check_segment(task, self._reading, guarded)
        except MissingKeyError as error:
            _find(scanned, work.task.log, "missing-key", str(error), severity="unchecked")
            return
        except ChunkError as error:
            detail = f"{error}; the log was not checked any further"
            _find(scanned, work.task.log, "chunk", detail, position=error.position)
            return
        except OSError as error:
            _find(scanned, work.task.log, "unreadable", error_text(error), severity="unchecked")
            self._leave_indexes(scanned)
            return
        result.findings = [finding for finding in result.findings if finding.file not in guarded.lost]
        scanned.result = result
        if result.is_whole:
            last_offset = work.task.base_offset - 1 if result.last_offset is None else result.last_offset
            scanned.end_offset = min(last_offset + 1, LONG_MAX)  # of a damaged header
        is_empty = not result.batch_count and self._layout.is_tiered
        has_listed_size = result.checked_bytes[task.log] == scanned.log_bytes
        if result.findings or is_empty or not has_listed_size:
            self._look_again(log, scanned, has_listed_size=has_listed_size)
        if is_empty and scanned.result is not None:
            _find(scanned, work.task.log, "empty-log", "it holds no batch: no broker archives such a segment")

    def _leave_indexes(self, scanned: ScannedSegment) -> None:
        """Say of the indexes that they were not checked, because their log cannot be read."""
        if self._is_logs_only:
            return
        for kind in sorted(
            self._layout.objects_of(PartKind.OFFSET_INDEX, PartKind.TIME_INDEX) - {PartKind.MANIFEST},
            key=lambda part: part.value,
        ):
            if kind in scanned.segment.parts:
                detail = "it was not checked: the log that it belongs to cannot be read"
                _find(scanned, _canonical(scanned, kind), "unreadable", detail, severity="unchecked")

    def _look_again(self, log: StoredObject, scanned: ScannedSegment, *, has_listed_size: bool) -> None:
        """Drop the result of a log that was replaced while it was read."""
        try:
            now = self._store.stat(log.key)
        except OSError as error:
            _find(
                scanned,
                log_name(scanned.segment.base_offset),
                "unreadable",
                error_text(error),
                severity="unchecked",
            )
            if not has_listed_size:
                scanned.result = scanned.end_offset = None
            return
        if not has_listed_size or (log.version and now.version != log.version):
            detail = f"the object was replaced after it was listed ({log.size_bytes} bytes then, {now.size_bytes} now)"
            scanned.result = scanned.end_offset = None
            _find(scanned, log_name(scanned.segment.base_offset), "changing", detail, severity="unchecked")

    # -- what tiered storage keeps of each segment -----------------------------------------------------------

    def _read_small(self, files: ArchivedFiles, scanned: ScannedSegment) -> None:
        for kind in _SMALL:
            name = _canonical(scanned, kind)
            try:
                data = files.read_part(kind)
                _check_small(kind, data, scanned)
            except FileNotFoundError as error:
                if is_gone(error):
                    _find_gone(scanned, self._layout, kind, error)
            except MissingKeyError as error:
                _find(scanned, name, "missing-key", str(error), severity="unchecked")
            except ChunkError as error:
                _find(scanned, name, "chunk", str(error))
            except FormatError as error:
                rule: Rule = "snapshot" if kind is PartKind.SNAPSHOT else "epoch-checkpoint"
                _find(scanned, name, rule, str(error), position=error.position or None)
            except OSError as error:
                _find(scanned, name, "unreadable", error_text(error), severity="unchecked")
            else:
                scanned.small[kind] = data


class _GuardedFiles:
    """Log and indexes of a segment; an index that cannot be restored counts as damaged, and the log is still read.

    Attributes:
        lost: names of these indexes, in whose place an empty one is read.
    """

    def __init__(self, files: ArchivedFiles, scanned: ScannedSegment, layout: Layout) -> None:
        self._files = files
        self._scanned = scanned
        self._layout = layout
        self.lost: set[str] = set()

    def open(self, name: str) -> OpenedLog:
        """Open the log."""
        return self._files.open(name)

    def read_index(self, name: str, take: Callable[[int], None]) -> tuple[bytes, int]:
        """Return the first bytes of an index and its size."""
        try:
            return self._files.read_index(name, take)
        except FileNotFoundError as error:
            kind = part_kind(name)
            if kind is not None and is_gone(error):
                _find_gone(self._scanned, self._layout, kind, error)
            raise
        except ChunkError as error:
            self.lost.add(name)
            _find(self._scanned, name, "chunk", str(error))
            return b"", 0


def _canonical(scanned: ScannedSegment, kind: PartKind) -> str:
    """Return the name that a broker gives a part."""
    return kafka_name(kind, scanned.segment.base_offset, scanned.end_offset)


def _find_gone(scanned: ScannedSegment, layout: Layout, kind: PartKind, error: OSError) -> None:
    """Say of the object that holds a part that it was listed, and is not there any more."""
    (holder,) = layout.objects_of(kind) - {PartKind.MANIFEST}
    name = _canonical(scanned, holder)
    if not any(finding.file == name and finding.rule == "unreadable" for finding in scanned.findings):
        _find(
            scanned,
            name,
            "unreadable",
            f"it was listed, and has gone: {error_text(error)}",
            severity="unchecked",
        )


def _check_small(kind: PartKind, data: bytes, scanned: ScannedSegment) -> None:
    """Check a small file by itself.

    Raises:
        FormatError: it is malformed.
    """
    if kind is PartKind.SNAPSHOT:
        read_producer_snapshot(data, crc32c=crc32c_of_bytes)
        return
    if kind is PartKind.TXN_INDEX:
        entry_bytes = byte_layout.ABORTED_TXN_DTYPE.itemsize
        if len(data) % entry_bytes:
            at = len(data) // entry_bytes * entry_bytes
            detail = f"{len(data)} bytes are not a multiple of {entry_bytes}"
            _find(scanned, txn_index_name(scanned.segment.base_offset), "index-size", detail, position=at)
        return
    read_leader_epoch_checkpoint(data)


def _check_own_epochs(scanned: ScannedSegment, remotes: Sequence[RemoteSegment]) -> None:
    """Check the leader epochs against the batches of their segment, and where they begin and end.

    A broker copies those that begin before the segment's end, which may be past its last batch.

    Args:
        remotes: what the metadata topic and the manifest say of the segment.
    """
    data, result = scanned.small.get(PartKind.LEADER_EPOCHS), scanned.result
    if data is None or result is None:
        return
    entries = read_leader_epoch_checkpoint(data)
    end_offset = scanned.end_offset
    if end_offset is not None:
        end_offset = max(end_offset, *(remote.end_offset + 1 for remote in remotes), 0)
    found = check_epochs(
        [(result.task.log, run) for run in result.epoch_runs],
        entries,
        log_end_offset=end_offset,
        is_clean=True,
        has_all_batches=result.has_all_batches and not result.has_compacted,
    )
    scanned.findings += found
    if found or not entries:
        return
    last, start_offset = entries[-1], entries[0].start_offset
    if len(entries) > 1 and last.start_offset == end_offset:
        detail = f"epoch {last.epoch} starts at {end_offset}, where the segment has ended"
        _find(scanned, LEADER_EPOCH_CHECKPOINT, "epoch-content", detail)
    known_from = min((remote.leader_epochs[0].start_offset for remote in remotes), default=start_offset)
    if scanned.segment.base_offset <= known_from < start_offset:
        detail = f"it knows of offsets from {start_offset} on, the metadata of those from {known_from} on"
        _find(scanned, LEADER_EPOCH_CHECKPOINT, "missing-epochs", detail)


def _check_description(
    scanned: ScannedSegment, source: str, remote: RemoteSegment, *, has_epochs: bool
) -> None:
    """Compare a segment with what the metadata topic, or its manifest, says of it."""
    segment, result = scanned.segment, scanned.result
    log = log_name(segment.base_offset)
    finding_count = len(scanned.findings)

    def differs(detail: str, *, position: int | None = None, severity: Severity = "damage") -> None:
        _find(
            scanned,
            log,
            "metadata",
            f"{detail} according to the {source}",
            position=position,
            severity=severity,
        )

    if (remote.start_offset, format_uuid(remote.segment_id)) != (segment.base_offset, segment.segment_id):
        differs(
            f"named {segment.base_offset}-{segment.segment_id}, {remote.start_offset}-{format_uuid(remote.segment_id)}"
        )
    if scanned.log_bytes and scanned.log_bytes != remote.size_bytes:
        differs(f"the log has {scanned.log_bytes} bytes, {remote.size_bytes}")
    if result is None or not result.is_whole:
        return
    if result.last_offset is not None and result.last_offset != remote.end_offset:
        # After a roll a segment may own offsets past its last batch, so the description may reach further.
        severity: Severity = "note" if result.last_offset < remote.end_offset else "damage"
        differs(f"ends at offset {result.last_offset}, {remote.end_offset}", severity=severity)
    if result.max_timestamp_ms != remote.max_timestamp_ms:
        differs(f"the largest timestamp is {result.max_timestamp_ms}, {remote.max_timestamp_ms}")
    scanned.is_confirmed |= len(scanned.findings) == finding_count
    if not has_epochs:
        return
    if remote.has_no_transactions and scanned.small.get(PartKind.TXN_INDEX):
        # Brokers would not read its transaction index, and consumers would get aborted records.
        detail = f"its transaction index has entries, and has none according to the {source}"
        if source == "manifest":
            _find(scanned, PartKind.MANIFEST.value, "manifest", detail)
        else:
            _find(scanned, log, "metadata", detail)
    epoch_starts = [(entry.epoch, entry.start_offset) for entry in remote.leader_epochs]
    forgotten = _forgotten_before(scanned, remote)
    for run in result.epoch_runs:
        at = [epoch for epoch, start in epoch_starts if start <= run.first_offset]
        if run.first_offset < forgotten.start_offset and run.epoch <= forgotten.epoch:
            continue
        if run.epoch >= 0 and (not at or at[-1] != run.epoch):
            detail = f"offset {run.first_offset} is of epoch {run.epoch}, {at[-1] if at else 'none'}"
            differs(detail, position=run.position)
            return
    if result.has_all_batches and not result.has_compacted:
        within = start_within_batch(result.epoch_runs, remote.leader_epochs, remote.end_offset + 1)
        if within is not None:
            own = [run.epoch for run in result.epoch_runs if run.first_offset <= within.start_offset]
            differs(f"offset {within.start_offset} is of epoch {own[-1]}, {within.epoch}")


def _forgotten_before(scanned: ScannedSegment, remote: RemoteSegment) -> LeaderEpochEntry:
    """Return the first leader epoch that the broker knew when it copied the segment, and where it began.

    A log start offset within the segment cuts off the epochs before it, those of the segment's description as well as
    those of its checkpoint. Otherwise the epochs begin with the segment.
    """
    data = scanned.small.get(PartKind.LEADER_EPOCHS)
    first = read_leader_epoch_checkpoint(data)[:1] if data is not None else ()
    if first and first == remote.leader_epochs[:1]:
        return first[0]
    return LeaderEpochEntry(-1, scanned.segment.base_offset)


def _find(
    scanned: ScannedSegment,
    file: str,
    rule: Rule,
    detail: str,
    *,
    position: int | None = None,
    severity: Severity = "damage",
) -> None:
    scanned.findings.append(
        Finding(file=file, position=position, rule=rule, detail=detail, severity=severity)
    )
