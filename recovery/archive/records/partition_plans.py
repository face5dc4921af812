"""The partitions that are read, planned several at a time.

A live archive grows while it is listed. A segment that is newer than the metadata topic, or one that it has and the
listing has not, is damage only if the topic has not changed since: else both are read again.
"""

from __future__ import annotations

import errno
import io
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from recovery.archive.layouts.layout import Layout
from recovery.archive.layouts.layouts import OtherLayouts, all_but
from recovery.archive.layouts.walk import OtherLayout, UnlistedPrefix, Walked, walk
from recovery.archive.records.broker_view import BrokerView
from recovery.archive.records.incarnations import Incarnations
from recovery.archive.records.planned_partition import FoundPartition, PlannedPartition
from recovery.archive.records.read_request import ReadRequest
from recovery.archive.records.record_schema import Include
from recovery.archive.records.uncompared import is_outdated
from recovery.archive.remote.log_dir_copy import LogDirCopy, read_log_dir_copy
from recovery.archive.stores.archived import PartitionPrefix, StoredObject
from recovery.archive.stores.store import Store
from recovery.archive.stores.stores import open_store
from recovery.check.folder_files import MOST_SMALL_FILE_BYTES
from recovery.errors import UsageError
from recovery.plan.manifest import json_object, read_lines
from recovery.threads import PoolAhead
from recovery.write.quarantine import MANIFEST
from segfmt.errors import FormatError
from segfmt.filenames import CLEANER_OFFSET_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, PARTITION_METADATA
from segfmt.kafka_uuid import format_uuid
from segfmt.partition_metadata import read_partition_metadata

PLANNED_AHEAD: Final = 8
"""Partitions that are planned at a time: for some, logs are opened."""
MOST_READINGS_AGAIN: Final = 3
"""Of the metadata topic, for partitions that have changed since it was read."""
_MOST_ACCOUNT_BYTES: Final = 1 << 20
"""Of the account of a quarantine, which are enough to tell it."""
_QUARANTINE = "a quarantine folder of this tool has what was cut from a log or replaced, not the log"


def planned_partitions(
    store: Store,
    layout: Layout,
    request: ReadRequest,
    broker: BrokerView | None,
    *,
    on_seen: Callable[[PartitionPrefix], None],
    on_note: Callable[[str], None],
) -> Iterator[PlannedPartition]:
    """Yield the partitions that are requested, in the order of their prefixes; those that have changed come last.

    Arguments and errors are those of `plan_reads`.
    """
    plans = _PartitionPlans(store, layout, request, broker, on_seen, on_note)
    with PoolAhead(PLANNED_AHEAD, thread_name_prefix="archive-plan") as pool:
        for partition in plans.plan(pool):
            for line in filter(None, (partition.unread_line, partition.lost_line)):
                on_note(line)
            yield partition
    plans.finish()


@dataclass(frozen=True, slots=True)
class _Changed:
    """A partition that has changed since the metadata topic was read."""

    found: FoundPartition


class _PartitionPlans:
    def __init__(
        self,
        store: Store,
        layout: Layout,
        request: ReadRequest,
        broker: BrokerView | None,
        on_seen: Callable[[PartitionPrefix], None],
        on_note: Callable[[str], None],
    ) -> None:
        selection = request.selection
        named = selection.topics or frozenset(topic for topic, _ in selection.assigned or ())
        self._store = store
        self._layout = layout
        self._request = request
        self._broker = broker
        self._on_seen = on_seen
        self._on_note = on_note
        self._is_listing = request.options.include is Include.BATCHES
        self._incarnations = Incarnations(selection.topic_ids, is_listing=self._is_listing, named=named)
        self._others = OtherLayouts()
        self._quarantined, self._has_others = "", False
        self._waits_for_changes = True

    def plan(self, pool: PoolAhead) -> Iterator[PlannedPartition]:
        """Yield the partitions; those that have changed are listed and compared again, at last as they are."""
        if self._broker is not None:
            self._broker.require_log_dirs(is_tiered=self._layout.is_tiered)
        found = pool.map_ahead(self._identified, self._walked(), PLANNED_AHEAD)
        chosen: Iterable[FoundPartition] = filter(self._is_taken, found)
        for count in range(MOST_READINGS_AGAIN + 1):
            self._waits_for_changes = count < MOST_READINGS_AGAIN
            changed = []
            for planned in pool.map_ahead(self._planned, chosen, PLANNED_AHEAD):
                if isinstance(planned, _Changed):
                    changed.append(planned.found)
                else:
                    yield planned
            if not changed:
                return
            assert self._broker is not None
            self._broker.read_again()
            chosen = pool.map_ahead(self._listed_again, changed, PLANNED_AHEAD)

    def finish(self) -> None:
        """Judge what was found as a whole, once all partitions are known.

        Raises:
            UsageError: see `Incarnations.check`; or there is nothing but a quarantine folder.
        """
        for note in (*self._incarnations.check(), *self._others.notes([self._layout.name])):
            self._on_note(note)
        if self._quarantined and not self._has_others:
            raise UsageError(
                f"{self._quarantined}: {_QUARANTINE}. Read the log dir; `undo` puts back what was cut from it"
            )

    # -- finding ---------------------------------------------------------------------------------------------

    def _walked(self) -> Iterator[tuple[Walked, LogDirCopy]]:
        """Yield the partitions that are requested, each with the checkpoints of its log dir."""
        parent: str | None = None
        is_quarantine = False
        for walked in walk(
            self._store, self._layout, is_chosen=self._is_wanted, others=all_but(self._layout)
        ):
            if isinstance(walked, UnlistedPrefix):
                raise OSError(errno.EIO, f"{walked.prefix}: cannot be listed: {walked.error}")
            if isinstance(walked, OtherLayout):
                self._others.note(walked)
                continue
            if walked.parent != parent:
                parent, copy = walked.parent, self._log_dir(walked)
                is_quarantine = self._is_in_quarantine(walked)
            if is_quarantine:
                self._quarantined = f"{self._store.url}/{walked.partition.where.prefix}"
                self._on_note(f"{self._quarantined}: left out: {_QUARANTINE}")
                continue
            self._has_others = True
            yield walked, copy

    def _is_wanted(self, where: PartitionPrefix) -> bool:
        self._on_seen(where)
        return self._request.selection.has(where)

    def _is_in_quarantine(self, walked: Walked) -> bool:
        """Return whether a folder is one of quarantine: parts of a log, the rest of which is in the log dir."""
        if self._layout.is_tiered:
            return False
        store, siblings = self._store, walked.siblings
        if not walked.partition.where.prefix:  # the partition's folder is all that is read
            with suppress(OSError):
                store = open_store(store.url.rstrip("/").rpartition("/")[0])
                siblings = store.list_level("").objects
        return any(stored.name == MANIFEST and _is_account(store, stored) for stored in siblings)

    def _log_dir(self, walked: Walked) -> LogDirCopy:
        """Return the checkpoints next to a partition's folder that matter here."""
        if self._layout.is_tiered:
            return LogDirCopy()
        names = CLEANER_OFFSET_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT
        return read_log_dir_copy(self._store, [stored for stored in walked.siblings if stored.name in names])

    def _identified(self, found: tuple[Walked, LogDirCopy]) -> FoundPartition:
        walked, log_dir = found
        where = walked.partition.where
        return FoundPartition(walked, log_dir, where.topic_id or self._topic_id_at(where))

    def _topic_id_at(self, where: PartitionPrefix) -> str:
        """Return the topic's id by the file in a partition's folder, empty without a sound one."""
        try:
            metadata = self._store.read(where.prefix + PARTITION_METADATA, most_bytes=MOST_SMALL_FILE_BYTES)
            return format_uuid(read_partition_metadata(metadata).topic_id)
        except (FileNotFoundError, FormatError):
            return ""

    def _is_taken(self, found: FoundPartition) -> bool:
        where, segments = found.walked.partition.where, found.walked.partition.segments
        live = frozenset() if self._broker is None else self._broker.topic_ids(where.topic)
        return self._incarnations.takes(where, found.topic_id, segments, live)

    # -- planning --------------------------------------------------------------------------------------------

    def _planned(self, found: FoundPartition) -> PlannedPartition | _Changed:
        broker, partition = self._broker, found.walked.partition
        remote = None if broker is None else broker.remote_log(partition.where)
        if (
            broker is not None
            and self._layout.is_tiered
            and not self._is_listing
            and self._waits_for_changes
            and is_outdated(self._layout, partition, remote)
            and broker.has_changed()
        ):
            return _Changed(found)
        return PlannedPartition(self._store, self._layout, self._request, found, broker, remote)

    def _listed_again(self, found: FoundPartition) -> FoundPartition:
        where = found.walked.partition.where
        partition = self._layout.partition(where, self._store.list_level(where.prefix).objects)
        return found._replace(walked=replace(found.walked, partition=partition))


def _is_account(store: Store, stored: StoredObject) -> bool:
    """Return whether a file is the account of a quarantine, and not another one of its name; or cannot be read."""
    try:
        data = io.BytesIO(store.read(stored.key, most_bytes=_MOST_ACCOUNT_BYTES))
    except OSError:  # an account is for its owner alone
        return True
    entries = map(json_object, read_lines(data.read))
    return any(entry is not None and entry.keys() >= {"log_dir", "kind", "partition"} for entry in entries)
