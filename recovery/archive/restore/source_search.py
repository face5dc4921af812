"""The partitions of an archive that are restored, each once, wherever in it they lie."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from recovery.archive.copy.account import CopiedFolder, CopyAccounts
from recovery.archive.copy.listing import PARTIAL_SUFFIX
from recovery.archive.layouts.layout import Layout
from recovery.archive.layouts.walk import UnlistedPrefix, Walked, walk
from recovery.archive.records.broker_view import BrokerView
from recovery.archive.restore.copied_log_dirs import CopiedLogDirs
from recovery.archive.restore.copied_source import CHANGED_REMEDY, copied_partition
from recovery.archive.restore.log_end import RECOVER_COPY
from recovery.archive.restore.source import READABLE, SourcePartition
from recovery.archive.restore.tiered_source import tiered_partition
from recovery.archive.stores.archived import PartitionPrefix
from recovery.archive.stores.store import Store
from recovery.logdir.choice import PartitionChoice
from segfmt.filenames import CLUSTER_METADATA_TOPIC, FolderState, read_folder_name

_NOT_WHOLE = "archive copy has not copied all of it. Remedy: start that again; if its source is gone, "


def find_partitions(
    store: Store,
    layout: Layout,
    is_chosen: PartitionChoice,
    broker: BrokerView | None,
    accounts: CopyAccounts | None,
    topic_id_of: Callable[[str], str | None],
) -> Iterator[SourcePartition]:
    """Yield the chosen partitions of an archive, each once; what cannot be restored with the reasons.

    Args:
        accounts: what copies say of the folders; None for tiered storage.
        topic_id_of: the id that a topic is restored under, None if not known: tiered storage may also have what is left
            of a deleted topic of that name.

    Raises:
        UsageError: the manifest of a copy cannot be understood.
        OSError: the archive cannot be listed, or a folder in which there may be partitions.
    """
    found: list[_Found] = []
    seen = set()
    on_level = (lambda _prefix, _level: None) if accounts is None else accounts.look_at
    for walked in walk(store, layout, is_chosen=is_chosen, on_level=on_level):
        if isinstance(walked, UnlistedPrefix):
            unlisted = layout.partition_at(walked.prefix.rstrip("/"))
            reason = f"{walked.prefix}: cannot be listed: {walked.error}. {READABLE}"
            if unlisted is None:  # there may be partitions in it
                raise OSError(reason)
            seen.add(walked.prefix)
            yield SourcePartition(where=unlisted, layout=layout, reasons=(reason,))
        if isinstance(walked, Walked):
            where = walked.partition.where
            seen.add(where.prefix)
            if _is_current(where, layout):
                copied = None if accounts is None else accounts.folder(where.prefix)
                found.append(_Found(where, walked, copied))
    if accounts is not None:
        absent = [(prefix, _NOT_WHOLE + RECOVER_COPY) for prefix in accounts.unfinished()]
        absent += [
            (prefix, f"it was copied, and is not there. {CHANGED_REMEDY}") for prefix in accounts.present()
        ]
        for prefix, reason in sorted(dict(reversed(absent)).items()):
            folder = layout.partition_at(prefix.rstrip("/")) if prefix not in seen else None
            if folder is not None and _is_current(folder, layout) and is_chosen(folder):
                found.append(_Found(folder, None, accounts.folder(prefix), reason))
    by_partition: dict[tuple[str, int], list[_Found]] = {}
    for one in found:
        by_partition.setdefault((one.where.topic, one.where.partition), []).append(one)
    log_dirs = CopiedLogDirs(store)
    for twins in by_partition.values():
        rank = min(one.rank for one in twins)
        best = [one for one in twins if one.rank == rank]
        topic_id = topic_id_of(best[0].where.topic)
        own = [one for one in best if one.where.topic_id and one.where.topic_id == topic_id]
        # Where there are folders, those of deleted topics stay behind their segments
        filled = [one for one in best if layout.is_tiered and one.has_segments]
        yield _restorable(store, layout, own or filled or best, broker, log_dirs)


@dataclass(frozen=True, slots=True)
class _Found:
    """A folder of a partition: one that is there, or one that is not and should be, for a reason."""

    where: PartitionPrefix
    walked: Walked | None
    copied: CopiedFolder | None
    reason: str = ""

    @property
    def has_segments(self) -> bool:
        """Whether anything of a segment is in it."""
        return self.walked is not None and len(self.walked.partition.segments) > 0

    @property
    def rank(self) -> int:
        """What there is now, before what was not copied whole, before what had gone from its log dir."""
        if self.copied is None:
            return 0
        return 2 if self.copied.is_gone else int(not self.copied.is_whole or self.walked is None)


def _restorable(
    store: Store,
    layout: Layout,
    folders: Sequence[_Found],
    broker: BrokerView | None,
    log_dirs: CopiedLogDirs,
) -> SourcePartition:
    """Return what is restored of a partition that is in *folders*; of more than one, nothing."""
    one = folders[0]
    if len(folders) > 1:
        meant = "one" if layout.is_tiered else "folder of the log dir"
        reason = (
            f"the archive has it {len(folders)} times: {', '.join(folder.where.prefix for folder in folders)}. Remedy: "
            f"name the {meant} that is meant as the archive"
        )
        return SourcePartition(where=one.where, layout=layout, reasons=(reason,))
    if one.walked is None:
        return SourcePartition(where=one.where, layout=layout, reasons=(one.reason,))
    if one.copied is not None and not one.copied.is_whole:
        return SourcePartition(where=one.where, layout=layout, reasons=(_not_whole(one.walked),))
    if layout.is_tiered:
        return tiered_partition(store, layout, one.walked, broker)
    return copied_partition(store, layout, one.walked, one.copied, log_dirs)


def _not_whole(walked: Walked) -> str:
    parts = [name for name in walked.partition.others.names if name.endswith(PARTIAL_SUFFIX)]
    if not parts:
        return _NOT_WHOLE + RECOVER_COPY
    others = " (and the others likewise)" if parts[1:] else ""
    return (
        f"{_NOT_WHOLE}rename {parts[0]}, what could be read of that file, to "
        f"{parts[0].removesuffix(PARTIAL_SUFFIX)} if that is not there{others}, {RECOVER_COPY}"
    )


def _is_current(where: PartitionPrefix, layout: Layout) -> bool:
    """Return whether a folder is a log's of a topic, and not one of a move, a stray one, or the cluster's own."""
    if layout.is_tiered:
        return True
    is_of_topic = where.topic != CLUSTER_METADATA_TOPIC
    return is_of_topic and read_folder_name(where.folder).state is FolderState.CURRENT
