"""What lies in the archive of tiered partitions, compared with what the metadata topic knows of their segments.

By the rules of an inventory: what is missing, what is an orphan, and what cannot be told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from recovery.archive.inventory.entry import InventoryEntry, PartitionInventory, SegmentStatus
from recovery.archive.inventory.expectations import Expectations
from recovery.archive.layouts.all_layouts import ArchiveWalk
from recovery.archive.layouts.layouts import refuse_nothing
from recovery.archive.remote.remote_metadata import RemoteMetadata
from recovery.archive.remote.replicas import topic_id_of
from recovery.archive.stores.archived import PartitionPrefix, PartKind
from recovery.archive.stores.segment_table import SegmentTable
from recovery.archive.stores.store import Store
from recovery.archive.tiering.figures import OF_ARCHIVE
from recovery.archive.tiering.options import TieringOptions
from recovery.archive.tiering.partition_state import PartitionState
from recovery.errors import UsageError
from recovery.quantity import count_text
from recovery.stop_request import StopRequest
from segfmt.remote_log_metadata import RemoteSegment

_FOUND = ("archived_segments", "archived_log_bytes")
"""Figures for which nothing is compared."""
_NONE_FOUND = dict.fromkeys(OF_ARCHIVE, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """What was listed.

    Attributes:
        url, layout: of the archive; layouts are separated by commas.
        other_partitions: that are in it, and not among the tiered ones: of deleted topics, or of other clusters.
        other_segments, other_log_bytes: of these.
    """

    url: str
    layout: str
    other_partitions: int
    other_segments: int
    other_log_bytes: int


class ArchiveSurvey:
    """Lists an archive, all of it at once, and keeps some figures of each partition.

    Args:
        options: which archive, and which partitions.
        metadata: what the metadata topic says.
        log_dirs: of the brokers.
        stop: lets another thread end the run.

    Attributes:
        warnings: what is not known, and why.

    Raises:
        UsageError: no partition of remote storage was found.
        OSError: the archive cannot be listed.
        InterruptedRecoveryError: *stop* was asked for.
    """

    def __init__(
        self,
        options: TieringOptions,
        metadata: RemoteMetadata,
        log_dirs: Sequence[Store],
        stop: StopRequest | None = None,
    ) -> None:
        self.warnings: list[str] = []
        self._store = options.open_archive()
        self._choice = options.choice()
        # By their ids, too: the plugin's key prefix may be a part of the topics' names in the archive
        self._chosen = {(one.topic_id, one.partition) for one in metadata.partitions() if self._choice(one)}
        self._is_empty = True
        self._expectations = Expectations(metadata, log_dirs)
        self._prefixes: dict[tuple[UUID, int], str] = {}
        self._figures: dict[tuple[UUID, int], dict[str, int]] = {}
        self._walk = ArchiveWalk(self._store, options.layout, is_chosen=self._is_chosen)
        self._take_listed(stop)
        self._take_missing()
        self._refuse_others()

    def of(self, state: PartitionState) -> dict[str, Any]:
        """Return the figures of a partition, each of `OF_ARCHIVE` by its name; a partition is asked for once."""
        key = state.topic_id, state.partition
        found = self._figures.pop(key, {} if self._walk.unlisted else _NONE_FOUND)
        names = _FOUND if state.cache is None else OF_ARCHIVE
        return {name: found.get(name) for name in names}

    def rest(self) -> Archive:
        """Return what was listed; called once all partitions have been asked for."""
        others = [one for one in self._figures.values() if one.get("archived_segments")]
        return Archive(
            url=self._store.url,
            layout=", ".join(self._walk.names),
            other_partitions=len(others),
            other_segments=sum(one["archived_segments"] for one in others),
            other_log_bytes=sum(one["archived_log_bytes"] for one in others),
        )

    def _take_listed(self, stop: StopRequest | None) -> None:
        for layout, walked in self._walk.partitions():
            if stop is not None:
                stop.check()
            where = walked.partition.where
            topic_id = topic_id_of(where)
            if not layout.is_tiered or topic_id is None:
                continue
            inventory = self._expectations.judge(walked.partition, layout, self._store)
            self._take((topic_id, where.partition), where, walked.partition.segments, inventory)
        self.warnings += [f"{self._store.url}: {note}" for note in self._walk.notes]
        for unlisted in self._walk.unlisted:
            self.warnings.append(f"{self._store.url}/{unlisted.prefix}: {unlisted.error}: it was not listed")
            for key, prefix in self._prefixes.items():
                if unlisted.prefix.startswith(prefix):
                    self._figures[key] = {}
        if self._is_empty and not self._walk.unlisted:
            self._refuse_nothing()

    def _is_chosen(self, where: PartitionPrefix) -> bool:
        """Return whether a partition is chosen, and note that there is one in a layout that is looked for."""
        path = where.prefix.rstrip("/") or self._store.url.rstrip("/")
        if any(one.is_tiered and one.partition_at(path) is not None for one in self._walk.layouts):
            self._is_empty = False
        return (topic_id_of(where), where.partition) in self._chosen or self._choice(where)

    def _refuse_nothing(self) -> None:
        if self._walk.tiered.is_tiered:
            refuse_nothing(self._store, self._walk.tiered)
        raise UsageError(
            f"{self._store.url}: copies of log dirs (layout {self._walk.tiered.name}), which hold no remote segments. "
            "Remedy: name the folder or bucket that the brokers' remote storage manager writes to"
        )

    def _refuse_others(self) -> None:
        """Refuse an archive with nothing of what was copied, and with partitions that nobody here knows."""
        ours = [self._figures[key] for key in self._figures.keys() & self._chosen]
        found = sum(one.get("archived_segments", 0) for one in self._figures.values())
        if (
            found
            and any(one.get("missing_segments") for one in ours)
            and not any(one.get("archived_segments") for one in ours)
        ):
            raise UsageError(
                f"{self._store.url}: no segment of these log dirs' partitions is in it, and "
                f"{count_text(found, 'segment')} of others. Remedy: name the remote storage of this cluster, or the "
                "folder or prefix above this one"
            )

    def _take_missing(self) -> None:
        """Take in the partitions of which nothing lies there; if not all was listed, they are not known."""
        if self._walk.unlisted:
            return
        for where, inventory in self._expectations.unlisted(self._walk.tiered, is_chosen=self._is_chosen):
            topic_id = topic_id_of(where)
            assert topic_id is not None
            self._take((topic_id, where.partition), where, SegmentTable(), inventory)

    def _take(
        self,
        key: tuple[UUID, int],
        where: PartitionPrefix,
        segments: SegmentTable,
        inventory: PartitionInventory,
    ) -> None:
        logs = segments.logs()
        figures = {
            "archived_segments": len(logs),
            "archived_log_bytes": sum(logs.sizes_bytes),
        }
        if key in self._prefixes:
            self.warnings.append(
                f"{where.topic}-{where.partition}: it lies there twice, in {self._prefixes[key]} and {where.prefix}: "
                "what is missing cannot be told. Remedy: name the folder or prefix above one of them"
            )
            before = self._figures[key]
            self._figures[key] = {name: before.get(name, 0) + figures[name] for name in _FOUND}
            return
        self._prefixes[key] = where.prefix
        self._figures[key] = figures | _compared(
            inventory, self._expectations.remote_segments(where) if _has_gaps(inventory) else {}
        )


def _compared(inventory: PartitionInventory, remote: Mapping[str, RemoteSegment]) -> dict[str, int]:
    """Return the figures for which segments are compared; *remote* are those that brokers know, by their ids."""
    by_status: dict[SegmentStatus, list[InventoryEntry]] = {status: [] for status in SegmentStatus}
    for entry in inventory.entries:
        # Without a record about the partition nothing tells which of them a broker knows
        status = SegmentStatus.NOT_COMPARED if inventory.lineage is None else entry.status
        by_status[status].append(entry)
    incomplete = by_status[SegmentStatus.INCOMPLETE]
    missing = by_status[SegmentStatus.MISSING] + [one for one in incomplete if _lacks_log(one)]
    orphans, undeleted = by_status[SegmentStatus.ORPHAN], by_status[SegmentStatus.DELETED]
    return {
        "missing_segments": len(missing),
        "missing_bytes": sum(remote[one.segment_id].size_bytes for one in missing),
        "incomplete_segments": len(incomplete) - sum(map(_lacks_log, incomplete)),
        "wrong_size_segments": len({one.file for one in inventory.findings if one.rule == "object-size"}),
        "orphan_segments": len(orphans),
        "orphan_bytes": sum(one.size_bytes for one in orphans),
        "undeleted_segments": len(undeleted),
        "undeleted_bytes": sum(one.size_bytes for one in undeleted),
        "uncompared_segments": len(by_status[SegmentStatus.NOT_COMPARED]),
    }


def _has_gaps(inventory: PartitionInventory) -> bool:
    gaps = (SegmentStatus.MISSING, SegmentStatus.INCOMPLETE)
    return any(entry.status in gaps for entry in inventory.entries)


def _lacks_log(entry: InventoryEntry) -> bool:
    return PartKind.LOG not in entry.present
