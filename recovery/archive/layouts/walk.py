"""The partitions of an archive, one after another; prefixes are listed ahead, several at a time.

Memory grows with the partitions that are listed ahead, never with the archive.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace

from recovery.archive.layouts.layout import Layout
from recovery.archive.stores.archived import PartitionPrefix, StoredObject
from recovery.archive.stores.segment_table import ArchivedPartition
from recovery.archive.stores.store import Level, Store
from recovery.errors import error_text
from recovery.logdir.quarantine_place import is_ours
from recovery.threads import PoolAhead
from segfmt.filenames import (
    LOG_START_OFFSET_CHECKPOINT,
    LOG_SUFFIX,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
)

LISTED_AHEAD = 16
"""Listings in flight at a time."""
_BROKERS_FILES = frozenset(
    {META_PROPERTIES, RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT}
)
"""That are in a log dir, and not in the folder of a partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Walked:
    """One partition of an archive.

    Attributes:
        parent: the prefix above the partition's.
        siblings: the objects directly below that prefix: a log dir's own files.
        folders: the prefixes directly below it, its own among them.
    """

    partition: ArchivedPartition
    parent: str = ""
    siblings: Sequence[StoredObject] = ()
    folders: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UnlistedPrefix:
    """A prefix that could not be listed, or a single object that could not be looked at."""

    prefix: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherLayout:
    """A partition in another layout, which is not looked at."""

    prefix: str
    layout: str


def walk(
    store: Store,
    layout: Layout,
    *,
    is_chosen: Callable[[PartitionPrefix], bool] = lambda _: True,
    others: Sequence[Layout] = (),
    on_level: Callable[[str, Level], None] = lambda _prefix, _level: None,
) -> Iterator[Walked | UnlistedPrefix | OtherLayout]:
    """Yield the partitions in *store* in the order of their prefixes, and those that one of the *others* recognises.

    A folder that has the name of a partition, but no log and further folders, is looked into: log dirs have such names,
    too. What a recovery of a copied log dir has set aside is not.

    Args:
        on_level: is told each prefix above partitions, and what is there.

    Raises:
        OSError: the archive itself cannot be listed.
    """
    root = layout.partition_at(store.url.rstrip("/"))
    level = store.list_level("")
    if root is not None and not _is_above_partitions(level):
        where = replace(root, prefix="")
        if not is_chosen(where):
            return
        yield from _unread(level)
        yield Walked(partition=layout.partition(where, level.objects))
        return
    with PoolAhead(LISTED_AHEAD, thread_name_prefix="archive-list") as pool:
        yield from _below(_Walk(store, layout, pool, is_chosen, others, on_level), "", level)


def _is_above_partitions(level: Level) -> bool:
    """Return whether a folder with the name of a partition is none: it has folders, and no log."""
    return bool(level.prefixes) and not any(name.endswith(LOG_SUFFIX) for name in level.objects.names)


class _Walk:
    def __init__(
        self,
        store: Store,
        layout: Layout,
        pool: PoolAhead,
        is_chosen: Callable[[PartitionPrefix], bool],
        others: Sequence[Layout],
        on_level: Callable[[str, Level], None],
    ) -> None:
        self.on_level = on_level
        self.layout = layout
        self.is_chosen = is_chosen
        self._others = others
        self._store = store
        self._pool = pool

    def list(self, prefix: str) -> Future[Level]:
        return self._pool.submit(self._store.list_level, prefix)

    def other_at(self, prefix: str) -> OtherLayout | None:
        """Return the partition at *prefix* in another layout, None if there is none that is chosen."""
        for other in self._others:
            where = other.partition_at(prefix.rstrip("/"))
            if where is not None and self.is_chosen(where):
                return OtherLayout(prefix=prefix, layout=other.name)
        return None


def _unread(level: Level) -> Iterator[UnlistedPrefix]:
    for key, reason in level.unread:
        yield UnlistedPrefix(prefix=key, error=reason)


def _below(walk: _Walk, parent: str, level: Level) -> Iterator[Walked | UnlistedPrefix | OtherLayout]:
    walk.on_level(parent, level)
    yield from _unread(level)
    pending: deque[tuple[str, Future[Level]]] = deque()
    prefixes = iter(level.prefixes)
    # A broker's own files are beside partitions alone; elsewhere a folder with such a name may be a log dir
    may_be_above = not walk.layout.is_tiered and _BROKERS_FILES.isdisjoint(level.objects.names)
    while True:
        while len(pending) < LISTED_AHEAD and (prefix := next(prefixes, None)) is not None:
            where = walk.layout.partition_at(prefix.rstrip("/"))
            is_archived = not is_ours(prefix.rstrip("/").rpartition("/")[2])
            if is_archived and (where is None or may_be_above or walk.is_chosen(where)):
                pending.append((prefix, walk.list(prefix)))
        if not pending:
            return
        prefix, listing = pending.popleft()
        try:
            below = listing.result()
        except OSError as error:
            yield UnlistedPrefix(prefix=prefix, error=error_text(error))
            continue
        where = walk.layout.partition_at(prefix.rstrip("/"))
        if where is not None and not _is_above_partitions(below) and not walk.is_chosen(where):
            continue
        if where is None or _is_above_partitions(below):
            other = walk.other_at(prefix) if below.objects else None
            if other is not None:
                yield other
            yield from _below(walk, prefix, below)
        else:
            yield from _unread(below)
            partition = walk.layout.partition(where, below.objects)
            yield Walked(partition=partition, parent=parent, siblings=level.objects, folders=level.prefixes)
