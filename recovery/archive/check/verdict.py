"""The verdicts on the objects of a partition, and on the partition. Values only."""

from __future__ import annotations

from dataclasses import dataclass, field

from recovery.archive.check.logs.sound_logs import SoundLogs
from recovery.archive.check.rebuild import RebuildWork
from recovery.archive.check.scanned import PartitionHead
from recovery.archive.stores.archived import StoredObject
from recovery.check.checked_log_dir import kind_of
from recovery.check.finding import FileVerdict, Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectVerdict:
    """The verdict on one object.

    Attributes:
        base_offset: of the segment that it belongs to; -1 for those that belong to none.
        verdict: its path is the object's key.
        rebuilt: the object that was written in its place, None without one.
        holder: key of the object that holds it, if it is a part of an object; empty if it is one itself.
        obstacle: why a damaged part that follows from a log is not rebuilt; empty if it is, or can be.
    """

    base_offset: int
    segment_id: str
    size_bytes: int
    version: str
    verdict: FileVerdict
    rebuilt: StoredObject | None = None
    holder: str = ""
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
