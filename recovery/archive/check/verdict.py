"""The verdicts on the objects of a partition, and on the partition. Values only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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
        is_held_rebuilt: whether all that it should hold was rebuilt, each part as an object of its own.
        obstacle: why a damaged part that follows from a log is not rebuilt; empty if it is, or can be.
    """

    base_offset: int
    segment_id: str
    size_bytes: int
    version: str
    verdict: FileVerdict
    rebuilt: StoredObject | None = None
    holder: str = ""
    is_held_rebuilt: bool = False
    obstacle: str = ""

    @property
    def is_unsettled(self) -> bool:
        """Whether it is damaged, and was not rebuilt."""
        return self.verdict.is_valid is False and self.rebuilt is None and not self.is_held_rebuilt


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


def by_object(verdicts: Sequence[ObjectVerdict]) -> Iterator[list[ObjectVerdict]]:
    """Yield the verdicts on each object: several on one that holds several parts."""
    parts: dict[str, list[ObjectVerdict]] = {judged.holder: [] for judged in verdicts if judged.holder}
    for judged in verdicts:
        own = parts.get(judged.holder or judged.verdict.path)
        if own is None:
            yield [judged]
        else:
            own.append(judged)
    yield from parts.values()


def validity(parts: Iterable[ObjectVerdict]) -> bool | None:
    """Return whether all *parts* of an object are sound; None if none is known to be damaged, and one is not known."""
    values = {judged.verdict.is_valid for judged in parts}
    return False if False in values else None if None in values else True


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
