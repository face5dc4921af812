"""What the map step is given of an archive, and what it gives to the fold. Values only."""

from __future__ import annotations

from dataclasses import field

from recovery.archive.aiven_cipher import NO_KEYS, AivenKeys
from recovery.archive.archived import (
    ArchivedPartition,
    ArchivedSegment,
    PartitionPrefix,
    PartKind,
    StoredObject,
)
from recovery.folder_files import FolderFiles
from recovery.model import LogSettings
from recovery.partition_facts import PartitionFacts
from recovery.segment_task import SegmentResult, SegmentTask
from recovery.verdict import Finding
from segfmt.remote_log_metadata import RemoteSegment
from segfmt.value_class import dataclass

VERSION = 1
"""Of the checks and of the records that are kept of them; a kept record of another version is made again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionHead:
    """A partition, in front of its segments.

    Attributes:
        archived: what lies there. Its segments are told one by one, so here they are left out of tiered storage.
        facts: what is known of it besides.
        findings: of the inventory.
        unfinished: base offsets and ids of segments whose copy or deletion is not finished: what is wrong with them is
            worth a note, and no damage.
        gone: first and last offsets, in order, of what is deleted or lies below the log start: where it is missing
            there is no gap.
        digests: of the segments that there are now, 16 bytes each, in their order.
    """

    archived: ArchivedPartition
    facts: PartitionFacts
    findings: tuple[Finding, ...] = ()
    unfinished: frozenset[tuple[int, str]] = frozenset()
    gone: tuple[tuple[int, int], ...] = ()
    digests: bytes = b""

    @property
    def where(self) -> PartitionPrefix:
        """Its prefix and names."""
        return self.archived.where


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentWork:
    """One segment to be read.

    Attributes:
        settings: of the log, which rebuilt indexes follow.
        remote: what the metadata topic says of it, None where that is not known.
    """

    segment: ArchivedSegment
    task: SegmentTask
    settings: LogSettings
    remote: RemoteSegment | None = None


@dataclass(slots=True, kw_only=True)
class ScannedSegment:
    """What was found in one segment.

    Attributes:
        result: of its log and indexes; None where the log cannot be opened.
        small: the sound small files that it came with.
        findings: of these, of its objects, and against the metadata.
        rebuilt: what was rebuilt and written to the output, by part: key and bytes.
        log_bytes: size of the log as a broker has it.
    """

    segment: ArchivedSegment
    result: SegmentResult | None = None
    small: dict[PartKind, bytes] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    rebuilt: dict[PartKind, StoredObject] = field(default_factory=dict)
    log_bytes: int = 0
    end_offset: int | None = None


@dataclass(slots=True, kw_only=True)
class ScannedFolder:
    """The small files of a plain copy's folder."""

    files: FolderFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanOptions:
    """How segments are scanned.

    Attributes:
        url: of the archive.
        layout: its name.
        output: URL where results go; None: they stay within the run.
        rebuilds: whether what is missing or wrong is rebuilt.
        is_in_place: whether that replaces what is there.
        keys: for encrypted segments.
        is_deep: whether records are opened.
        now_ms: by which producers expire in plain copies.
    """

    url: str
    layout: str
    output: str | None = None
    rebuilds: bool = False
    is_in_place: bool = False
    keys: AivenKeys = NO_KEYS
    is_deep: bool = False
    now_ms: int = 0

    def digest(self, work: SegmentWork) -> bytes:
        """Return 16 bytes that change with a segment's objects, and with all else that its record depends on."""
        rebuilds = (self.is_in_place, work.settings) if self.rebuilds else ()
        return work.segment.digest(f"{VERSION} {self.layout} {self.is_deep} {rebuilds} {work.remote}")
