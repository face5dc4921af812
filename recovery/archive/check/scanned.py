"""What the map step reads of an archive, and what it passes to the fold. Values only."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from recovery.archive.columns import NOT_KEPT
from recovery.archive.layouts.aiven_cipher import NO_KEYS, AivenKeys
from recovery.archive.stores.archived import (
    ArchivedSegment,
    PartitionPrefix,
    PartKind,
    SegmentKey,
    StoredObject,
)
from recovery.archive.stores.segment_table import ArchivedPartition, SegmentTable
from recovery.check.facts import PartitionFacts
from recovery.check.finding import Finding
from recovery.check.task import SegmentResult, SegmentTask
from recovery.check.tasks import other_task, segment_task, standing_of
from recovery.load.model import LogSettings
from segfmt.filenames import log_name, read_offset
from segfmt.remote_log_metadata import RemoteSegment

SEGMENT_DIGEST_BYTES = 16
DIGEST_BYTES = 2 * SEGMENT_DIGEST_BYTES
"""The first half changes with the segment and its objects, the other one with all else that its scan depends on."""
VERSION = 15
"""Version of the checks and of kept scans; a segment whose kept scan has another version is scanned again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionHead:
    """What precedes the segments of a partition.

    Attributes:
        archived: its objects. Segments of tiered storage are left out, because each has a row of its own.
        facts: what else is known of it.
        settings: of its log, which rebuilt indexes follow.
        findings: of the inventory.
        unfinished: base offsets and ids of segments whose copy or deletion is not finished, or that the metadata does
            not know: no broker reads them, and faults in them are notes, not damage.
        twins: of each segment that may be left of an interrupted copy, by names alone, the complete one beside it.
        gone: first and last offsets, ascending, of what is deleted or below the log start: if it is missing, that is
            not a gap.
        cut_off: base offsets and ids of finished segments that are no part of the log any more: offsets that their
            histories lack are in no broker's log.
        digests: of the segments that exist now, DIGEST_BYTES each, in their order.
        copied_sha256: of small files, by name, by the manifest of the copy that it is in.
    """

    archived: ArchivedPartition
    facts: PartitionFacts
    settings: LogSettings
    findings: tuple[Finding, ...] = ()
    unfinished: frozenset[SegmentKey] = frozenset()
    twins: Mapping[SegmentKey, SegmentKey] = field(default_factory=dict)
    gone: tuple[tuple[int, int], ...] = ()
    cut_off: frozenset[tuple[int, str]] = frozenset()
    digests: bytes = b""
    copied_sha256: Mapping[str, str] = field(default_factory=dict)

    @property
    def where(self) -> PartitionPrefix:
        """Its prefix and names."""
        return self.archived.where


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentWork:
    """One segment to be read.

    Attributes:
        facts: of its partition.
        digest: of the segment, DIGEST_BYTES.
        remote: what the metadata topic says of it, None if that is not known.
    """

    segment: ArchivedSegment
    task: SegmentTask
    facts: PartitionFacts
    digest: bytes
    remote: RemoteSegment | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionWork:
    """Segments of one partition that are to be read: the work on each is made when it is needed.

    Attributes:
        prefix: of the partition.
        facts: what is known of it.
        unflushed_from: base offset of the first segment past the recovery point; None in tiered storage, where each
            segment is closed and independent.
        segments: of a plain copy also other files that are read, with the log's name as id.
        digests: of the segments, DIGEST_BYTES each.
        remote: what the metadata topic says of them, by id, as far as it does.
    """

    prefix: str
    facts: PartitionFacts
    unflushed_from: int | None = None
    segments: SegmentTable = field(default_factory=SegmentTable)
    digests: bytes = b""
    remote: Mapping[str, RemoteSegment] = field(default_factory=dict)

    def __len__(self) -> int:
        """Return how many segments there are."""
        return len(self.segments)

    def __iter__(self) -> Iterator[SegmentWork]:
        """Yield the work on each segment."""
        for row, segment in enumerate(self.segments):
            yield SegmentWork(
                segment=segment,
                task=self._task(segment),
                facts=self.facts,
                digest=self.digests[row * DIGEST_BYTES : (row + 1) * DIGEST_BYTES],
                remote=self.remote.get(segment.segment_id),
            )

    def between(self, start: int, stop: int) -> Self:
        """Return the work on neighbouring segments."""
        return self._of(self.segments[start:stop], self.digests[start * DIGEST_BYTES : stop * DIGEST_BYTES])

    def take(self, rows: Sequence[int]) -> Self:
        """Return the work on the segments in *rows*, in their order."""
        digests = (self.digests[row * DIGEST_BYTES : (row + 1) * DIGEST_BYTES] for row in rows)
        return self._of(self.segments.take(rows), b"".join(digests))

    def _of(self, segments: SegmentTable, digests: bytes) -> Self:
        ids = segments.segment_ids if self.remote else ()
        remote = {segment_id: self.remote[segment_id] for segment_id in ids if segment_id in self.remote}
        return replace(self, segments=segments, digests=digests, remote=remote)

    def _task(self, segment: ArchivedSegment) -> SegmentTask:
        if self.unflushed_from is None:
            return SegmentTask(
                folder=self.facts.path,
                base_offset=segment.base_offset,
                log=log_name(segment.base_offset),
                next_base_offset=None,
                is_tiered=True,
                index_interval_bytes=self.facts.index_interval_bytes,
                is_deep=self.facts.is_deep,
                expiration_ms=self.facts.expiration_ms,
            )
        if segment.other_file:
            return other_task(self.facts, segment.other_file)
        return segment_task(
            self.facts,
            segment.base_offset,
            next_base_offset=segment.next_base_offset,
            unflushed_from=self.unflushed_from,
            snapshot_offsets=_offsets_inside(segment),
        )


def _offsets_inside(segment: ArchivedSegment) -> tuple[int, ...]:
    """Return the offsets of a plain segment's snapshots but for those at its start and its end, ascending."""
    offsets = list(segment.snapshots)
    if PartKind.SNAPSHOT in segment.parts:
        offsets.append(read_offset(segment.parts[PartKind.SNAPSHOT].name))
    end = segment.next_base_offset
    return tuple(
        offset for offset in sorted(offsets) if segment.base_offset < offset and (end is None or offset < end)
    )


@dataclass(slots=True, kw_only=True)
class ScannedSegment:
    """The results of scanning one segment.

    Attributes:
        result: of its log and indexes; None if the log cannot be opened.
        small: the sound small files that it came with.
        findings: about these, about its objects, and from the comparison with the metadata.
        is_confirmed: whether the metadata topic, or the manifest, says the same of its log: size, end, timestamps.
        rebuilt: what was rebuilt and written to the output, by part.
        log_bytes: size of the log as a broker has it.
        broker_id: of the broker that has copied it, by the metadata topic or the manifest; None if that is not known.
    """

    segment: ArchivedSegment
    result: SegmentResult | None = None
    small: dict[PartKind, bytes] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    is_confirmed: bool = False
    rebuilt: dict[PartKind, StoredObject] = field(default_factory=dict, metadata=NOT_KEPT)
    log_bytes: int = 0
    broker_id: int | None = None
    end_offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanOptions:
    """How segments are scanned.

    Attributes:
        url: of the archive.
        layout: its name.
        output: URL where results go; None: they are not kept after the run.
        rebuilds: whether what is missing or wrong is rebuilt.
        is_in_place: whether rebuilt parts replace the present ones.
        keys: for encrypted segments.
        is_deep: whether records are opened.
        now_ms: time by which producers expire in plain copies.
        is_logs_only: whether only the logs are checked.
    """

    url: str
    layout: str
    output: str | None = None
    rebuilds: bool = False
    is_in_place: bool = False
    keys: AivenKeys = NO_KEYS
    is_deep: bool = False
    now_ms: int = 0
    is_logs_only: bool = False

    def digests(
        self,
        segments: SegmentTable,
        facts: PartitionFacts,
        *,
        remote: Mapping[str, RemoteSegment],
        unflushed_from: int | None = None,
    ) -> bytes:
        """Return DIGEST_BYTES for each of *segments*, which change with its objects and with all its scan depends on.

        Those of a segment with an object of unknown version are of this survey alone: by its size an object that was
        replaced is the same.

        Args:
            segments: of one partition.
            facts: of the partition.
            remote: what the metadata topic says of them, by id.
            unflushed_from: see `PartitionWork`.
        """
        depth = "logs" if self.is_logs_only else self.is_deep
        facts_used = facts.expiration_ms, facts.is_preallocated, facts.index_interval_bytes
        shared = f"{VERSION} {self.layout} {depth} {facts_used}".encode()
        start = hashlib.blake2b(shared, digest_size=DIGEST_BYTES - SEGMENT_DIGEST_BYTES)
        digests = []
        unversioned = segments.unversioned()
        ids = zip(segments.base_offsets, segments.segment_ids, segments.next_base_offsets, strict=True)
        for row, (own, (base_offset, segment_id, following)) in enumerate(
            zip(segment_digests(segments), ids, strict=True)
        ):
            if row in unversioned:
                digests += [own, secrets.token_bytes(DIGEST_BYTES - SEGMENT_DIGEST_BYTES)]
                continue
            digest = start.copy()
            if unflushed_from is not None:
                tail, is_flushed, log_start_offset = standing_of(
                    facts, base_offset, is_last=following is None, unflushed_from=unflushed_from
                )
                digest.update(f"\0{tail.value} {is_flushed} {log_start_offset}".encode())
            if segment_id in remote:
                digest.update(f"\0{remote[segment_id]}".encode("utf-8", "surrogateescape"))
            digests += [own, digest.digest()]
        return b"".join(digests)


def segment_digests(segments: SegmentTable) -> Iterator[bytes]:
    """Yield SEGMENT_DIGEST_BYTES for each of *segments*, which change with its keys and all its objects."""
    start = hashlib.blake2b(digest_size=SEGMENT_DIGEST_BYTES)
    start.update(segments.objects.prefix.encode("utf-8", "surrogateescape") + b"\0")
    for text in segments.identities():
        digest = start.copy()
        digest.update(text.encode("utf-8", "surrogateescape"))
        yield digest.digest()
