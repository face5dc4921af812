"""The content of `__remote_log_metadata`, read offline from log dirs or an archive of them.

The topic's partitions are plain logs. Their records are put into a temporary SQLite file as they are, by the partition
that they are about, and are replayed (`remote_cache`) when that partition is asked for: memory grows with the largest
partition and the number of partitions, not with that of segments. All records about a partition are in one metadata
partition, so their order is kept.

Damage is a `Finding`, never an error: a torn tail, a bad batch, records that are missing, at the end too, or do not
parse, records that Kafka would drop.
"""

from __future__ import annotations

import re
import sqlite3
import tempfile
import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Literal, Self
from uuid import UUID

from recovery.archive.remote.log_batches import LoggedBatch, read_batches
from recovery.archive.remote.log_dir_copy import read_log_dir_copy
from recovery.archive.remote.log_ends import read_log_end
from recovery.archive.remote.remote_cache import RemoteLogCache
from recovery.archive.remote.replicas import last_epoch, read_leader_epochs
from recovery.archive.remote.told_ends import ToldEnd, ends_by_checkpoints, ends_by_files, furthest
from recovery.archive.stores.archived import StoredObject
from recovery.archive.stores.store import Store
from recovery.check.finding import Finding, Severity
from recovery.errors import error_text
from segfmt.checkpoint import LeaderEpochEntry
from segfmt.errors import FormatError
from segfmt.kafka_uuid import format_uuid
from segfmt.remote_log_metadata import (
    FRAME_VERSION,
    TOPIC,
    RemoteApiKey,
    RemotePartition,
    RemoteSegment,
    RemoteSegmentUpdate,
    read_remote_log_metadata,
)

MOST_FINDINGS = 1000
"""How many are kept; the rest is counted."""
_MOST_CONTENT_BYTES = 64 << 20
_ROWS_AT_A_TIME = 4096
_FOLDER = re.compile(re.escape(TOPIC) + r"-(0|[1-9][0-9]{0,9})/")
_LOG = re.compile(r"([0-9]{20})\.log")
_OWNER_ID_BYTES = 16 + 4
"""Topic id and partition, after the topic's name."""

Rule = Literal[
    "torn-tail",
    "damaged-batch",
    "missing-records",
    "missing-end",
    "malformed-record",
    "dropped-record",
    "unreadable",
]


_DAMAGE = frozenset[Rule](
    {"damaged-batch", "missing-records", "missing-end", "malformed-record", "unreadable"}
)
_HIDING = _DAMAGE | {"torn-tail"}
"""Rules that may hide what became of segments: also a torn tail, which is no damage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A partition of the topic in one log dir, as it was listed.

    Attributes:
        store: the log dir, or the folder itself.
        logs: its segments, ascending; two sources are equal if these are.
        objects: all files of the folder.
        epochs: its leader epochs; none if they cannot be read.
    """

    store: Store
    logs: Sequence[StoredObject]
    objects: Sequence[StoredObject] = field(compare=False)
    epochs: Sequence[LeaderEpochEntry] = field(compare=False)

    @property
    def reach(self) -> tuple[str, int]:
        """A value that grows with the log's end, if segments begin at the same offsets as those of others."""
        return self.logs[-1].name, self.logs[-1].size_bytes

    def is_before(self, other: Source) -> bool:
        """Return whether it ends in an earlier leader epoch than *other*, and may have what that has not.

        It has not where *other* has that epoch, too, and goes on with it at least as far.
        """
        last = last_epoch(self.epochs)
        if not self.epochs or last >= last_epoch(other.epochs):
            return False
        until = next(entry.start_offset for entry in other.epochs if entry.epoch > last)
        is_shared = any(entry.epoch == last for entry in other.epochs)
        return not is_shared or read_log_end(self.store, self.objects) > until


Sources = dict[int, list[Source]]
"""The replicas of the partitions of the topic, as `find_sources` returns them."""


class RemoteMetadata:
    """The records of `__remote_log_metadata` by the partition that they are about. A context manager.

    Its queries may be called from several threads.

    Args:
        folder: for its temporary file; the system's folder for such files by default. It takes some 200 bytes per
            record.

    Attributes:
        findings: what is wrong with the topic so far, the first `MOST_FINDINGS` of it, and with the checkpoints of the
            log dirs.
        counts: of all that is wrong, by rule.
        record_count: records that were read.
        sources: the replicas of the partitions of the topic that were found, as they were listed.
    """

    def __init__(self, folder: str | None = None) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="kafka-log-recovery-", dir=folder)
        self._database = sqlite3.connect(
            str(Path(self._folder.name, "remote-metadata.sqlite")),
            isolation_level=None,
            check_same_thread=False,
        )
        self._lock = threading.Lock()
        for statement in (
            "PRAGMA journal_mode=OFF",
            "PRAGMA synchronous=OFF",
            "PRAGMA locking_mode=EXCLUSIVE",
            "CREATE TABLE records (number INTEGER PRIMARY KEY, owner INTEGER, log_offset INTEGER, value BLOB)",
        ):
            self._database.execute(statement)
        self._owners: dict[bytes, int] = {}
        self._numbers: dict[RemotePartition, int] = {}
        self._partitions: dict[tuple[UUID, int], list[int]] = {}
        self._reported: set[tuple[UUID, int]] = set()
        self._number_read = 0
        self._read_from: dict[tuple[UUID, int], set[int]] = {}
        self._first_ms: dict[UUID, int] = {}
        self._hiding: dict[tuple[int | tuple[UUID, int], Severity], Finding] = {}
        self._rows: list[tuple[int, int, bytes]] = []
        self._is_indexed = False
        self.findings: list[Finding] = []
        self.counts: Counter[Rule] = Counter()
        self.record_count = 0
        self.sources: Sources = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove the temporary file."""
        self._database.close()
        self._folder.cleanup()

    # -- filling -----------------------------------------------------------------------

    def start_partition(self, number: int) -> None:
        """Note that what is added and reported from here on is of partition *number* of the topic."""
        self._number_read = number
        self._owners.clear()

    def add(self, value: bytes, offset: int, place: str = TOPIC) -> None:
        """Take in the value of the next record.

        Args:
            value: as it is in the log.
            offset: of the record in its metadata partition.
            place: where it was read, for messages.
        """
        self.record_count += 1
        name = _owner_bytes(value)
        owner = None if name is None else self._owners.get(name)
        if owner is None:
            try:
                owner = self._number(value)
            except FormatError as error:
                self.report("malformed-record", place, str(error), offset)
                return
            if name is not None:
                self._owners[name] = owner
        self._rows.append((owner, offset, value))
        if len(self._rows) >= _ROWS_AT_A_TIME:
            self._flush()

    def report(
        self,
        rule: Rule,
        place: str,
        detail: str,
        offset: int | None = None,
        *,
        about: tuple[UUID, int] | None = None,
    ) -> None:
        """Note a record or batch that cannot be taken as it is.

        Args:
            rule: what is wrong.
            place: the object, or the metadata partition.
            detail: a description.
            offset: of the record or the batch in the metadata partition, None if it is not known.
            about: topic id and number of the only partition that it is about, if that is known.
        """
        at = "" if offset is None else f" (offset {offset})"
        finding = Finding(
            file=place,
            position=None,
            rule="metadata-topic",
            detail=f"{rule}: {detail}{at}",
            severity="damage" if rule in _DAMAGE else "note",
        )
        self.counts[rule] += 1
        if len(self.findings) < MOST_FINDINGS:
            self.findings.append(finding)
        if rule in _HIDING:
            key = self._number_read if about is None else about
            self._hiding.setdefault((key, finding.severity), finding)

    def _number(self, value: bytes) -> int:
        """Return the number of the partition that a record is about; a new number for a new partition."""
        record = read_remote_log_metadata(value)
        if record.owner is None:
            raise FormatError("a snapshot record, which belongs to no partition")
        number = self._numbers.setdefault(record.owner, len(self._numbers))
        first_ms = self._first_ms.get(record.owner.topic_id, record.event_timestamp_ms)
        self._first_ms[record.owner.topic_id] = min(first_ms, record.event_timestamp_ms)
        key = record.owner.topic_id, record.owner.partition
        self._read_from.setdefault(key, set()).add(self._number_read)
        of_id = self._partitions.setdefault(key, [])
        if number not in of_id:
            of_id.append(number)
        return number

    def _flush(self) -> None:
        if self._rows:
            self._database.execute("BEGIN")
            self._database.executemany(
                "INSERT INTO records (owner, log_offset, value) VALUES (?, ?, ?)", self._rows
            )
            self._database.execute("COMMIT")
            self._rows.clear()
            self._is_indexed = False

    # -- asking ------------------------------------------------------------------------

    def partitions(self) -> list[RemotePartition]:
        """Return the partitions that any record is about, by topic, partition and id."""
        return sorted(
            self._numbers,
            key=lambda partition: (partition.topic, partition.partition, partition.topic_id.bytes),
        )

    def knows(self, topic_id: UUID, partition: int) -> bool:
        """Return whether any record is about a partition.

        All of its records are in one partition of the topic, so if there is one, that partition was read.
        """
        return (topic_id, partition) in self._partitions

    def read_from(self, topic_id: UUID, partition: int) -> frozenset[int]:
        """Return the numbers of the partitions of the topic that records about a partition are in."""
        return frozenset(self._read_from.get((topic_id, partition), ()))

    def first_event_ms(self, topic_id: UUID) -> int | None:
        """Return when the first record about any partition of a topic was made, None without one."""
        return self._first_ms.get(topic_id)

    def cache(self, topic_id: UUID, partition: int) -> RemoteLogCache:
        """Return what a broker knows of a partition; nothing if no record is about it."""
        cache = RemoteLogCache()
        is_new = (topic_id, partition) not in self._reported
        self._reported.add((topic_id, partition))
        for offset, value in self._values(self._partitions.get((topic_id, partition), [])):
            wrong = _apply(cache, value)
            if wrong is not None and is_new:
                self.report(*wrong, offset, about=(topic_id, partition))
        return cache

    def hiding(self, topic_id: UUID | None, partition: int) -> Finding | None:
        """Return which damage hides what became of the segments of a partition; None for a sound topic.

        That is what is wrong with the partition of the topic that its records are in, or with one of these, which
        `cache` finds; of a partition without any record, what is wrong with any partition of the topic.
        """
        return next(self._hiding_of(topic_id, partition, ("damage",)), None)

    def hides_records(self, topic_id: UUID, partition: int) -> bool:
        """Return the same as `hiding`, also by what is no damage: a torn tail."""
        return any(self._hiding_of(topic_id, partition, ("damage", "note")))

    def _hiding_of(
        self, topic_id: UUID | None, partition: int, severities: Sequence[Severity]
    ) -> Iterator[Finding]:
        known = None if topic_id is None else self._read_from.get((topic_id, partition))
        for (place, severity), finding in self._hiding.items():
            is_about = (
                place == (topic_id, partition)
                if isinstance(place, tuple)
                else known is None or place in known
            )
            if is_about and severity in severities:
                yield finding

    def _values(self, owners: Sequence[int]) -> list[tuple[int, bytes]]:
        with self._lock:
            self._flush()
            if not self._is_indexed:
                self._database.execute("DROP INDEX IF EXISTS by_owner")
                self._database.execute("CREATE INDEX by_owner ON records (owner)")
                self._is_indexed = True
            rows: list[tuple[int, int, bytes]] = []
            for owner in owners:  # more than one only if a topic with one id had two names
                rows += self._database.execute(
                    "SELECT number, log_offset, value FROM records WHERE owner = ? ORDER BY number", (owner,)
                )
        return [(offset, value) for _, offset, value in sorted(rows)]


def read_remote_metadata(stores: Iterable[Store], *, folder: str | None = None) -> RemoteMetadata:
    """Return what the metadata topic in *stores* says.

    Args:
        stores: log dirs, of one broker or of several, or copies of them; or the folder of a metadata partition itself.
            Of several replicas of a metadata partition those of the latest leader epoch are read: one of them, and
            from the others what it has not.
        folder: for the temporary file.

    Raises:
        OSError: a store cannot be listed. What cannot be read in it is a finding.
    """
    metadata = RemoteMetadata(folder)
    try:
        stores = list(stores)
        copies = [read_log_dir_copy(store, store.list_level("").objects) for store in stores]
        for store, copy in zip(stores, copies, strict=True):
            metadata.findings += [
                replace(finding, file=f"{store.url}/{finding.file}") for finding in copy.findings
            ]
        metadata.sources = find_sources(stores)  # after the checkpoints: live brokers append to their logs
        for number, replicas in sorted(metadata.sources.items()):
            metadata.start_partition(number)
            ends = [
                end
                for store, copy in zip(stores, copies, strict=True)
                for replica in replicas
                if replica.store is store
                for end in (
                    *ends_by_checkpoints(store, copy, TOPIC, number),
                    *ends_by_files(store, replica.objects),
                )
            ]
            _read_partition(metadata, replicas, ends)
    except BaseException:
        metadata.close()
        raise
    return metadata


def find_sources(stores: Iterable[Store]) -> Sources:
    """Return the replicas of each partition that have a segment, without those that may have what is not committed.

    That is what is in an earlier leader epoch alone: the leader after it does not have it.
    """
    sources: Sources = {}
    for store in stores:
        level = store.list_level("")
        own = _FOLDER.fullmatch(f"{store.url.rstrip('/').rpartition('/')[2]}/")
        partition_prefixes = [
            (int(named[1]), prefix) for prefix in level.prefixes if (named := _FOLDER.fullmatch(prefix))
        ]
        for partition, prefix in [(int(own[1]), "")] if own else partition_prefixes:
            objects = level.objects if prefix == "" else store.list_level(prefix).objects
            logs = sorted(
                (stored for stored in objects if _LOG.fullmatch(stored.name)), key=lambda stored: stored.name
            )
            if logs:
                epochs = read_leader_epochs(store, prefix)
                replica = Source(store=store, logs=logs, objects=objects, epochs=epochs)
                sources.setdefault(partition, []).append(replica)
    return {partition: _of_latest_epoch(replicas) for partition, replicas in sources.items()}


def _of_latest_epoch(replicas: Sequence[Source]) -> list[Source]:
    latest = [one for one in replicas if not any(one.is_before(other) for other in replicas)]
    # One whose epochs are not known comes last: what it has may never have been committed
    return sorted(latest, key=lambda one: (last_epoch(one.epochs), one.reach), reverse=True)


def _read_partition(metadata: RemoteMetadata, replicas: Sequence[Source], told: Sequence[ToldEnd]) -> None:
    """Read the first of *replicas*, and from the others what it has not: after its end, or where it is damaged."""
    ends = [read_log_end(replica.store, replica.objects) for replica in replicas]
    end_offset, start, damaged = 0, -1, None
    torn_before = metadata.counts["torn-tail"]
    while end_offset > start:
        start = end_offset
        for replica, own_end in zip(replicas, ends, strict=True):
            is_first = start == 0 and replica is replicas[0]
            if is_first or own_end > end_offset:
                end_offset, is_sound = _read_sound(metadata, replica, end_offset)
                damaged = None if is_sound else damaged or replica
    if damaged is not None:
        end_offset = _read_logs(metadata, damaged, end_offset)
    is_cut_off = damaged is not None or metadata.counts["torn-tail"] > torn_before
    end = furthest(told, is_cut_off=is_cut_off)
    if end is not None and end_offset < end.end_offset:
        last = replicas[0].logs[-1]
        detail = (
            f"the log ends at offset {end_offset}, but {end.witness} says that it had offset {end.end_offset - 1}: "
            "what became of some segments is unknown"
        )
        metadata.report("missing-end", f"{replicas[0].store.url}/{last.key}", detail)


def _read_sound(metadata: RemoteMetadata, replica: Source, next_offset: int) -> tuple[int, bool]:
    """Read a replica from *next_offset* on, up to damage.

    Returns:
        The offset after the last record that was read, and whether that is the replica's end. Damage before
        *next_offset*, where another replica was read, is none.
    """
    for stored in _segments_from(replica, next_offset):
        name = f"{replica.store.url}/{stored.key}"
        found: list[Finding] = []
        try:
            with closing(replica.store.open(stored.key)) as log:
                for batch in read_batches(log, found.append, name=name):
                    if batch.base_offset > next_offset:
                        return next_offset, False
                    found.clear()
                    next_offset = _take_batch(metadata, batch, next_offset, name)
        except OSError:
            return next_offset, False
        for finding in found:
            if not _is_torn_tail(finding, stored, replica):
                return next_offset, False
            _report(metadata, finding, stored, replica)
    return next_offset, True


def _read_logs(metadata: RemoteMetadata, replica: Source, next_offset: int) -> int:
    """Read a replica from *next_offset* on, passing over damage; return the offset after the last record."""
    for stored in _segments_from(replica, next_offset):
        name = f"{replica.store.url}/{stored.key}"
        report = partial(_report, metadata, stored=stored, replica=replica)

        try:
            with closing(replica.store.open(stored.key)) as log:
                for batch in read_batches(log, report, name=name):
                    next_offset = _take_batch(metadata, batch, next_offset, name)
        except OSError as error:
            metadata.report("unreadable", name, error_text(error))
    return next_offset


def _segments_from(replica: Source, offset: int) -> Sequence[StoredObject]:
    """Return the segments of a replica that may have *offset* or later ones."""
    bases = [int(stored.name[:20]) for stored in replica.logs]
    return replica.logs[max(bisect_right(bases, offset) - 1, 0) :]


def _is_torn_tail(finding: Finding, stored: StoredObject, replica: Source) -> bool:
    return finding.rule == "torn-batch" and stored is replica.logs[-1]


def _report(metadata: RemoteMetadata, finding: Finding, stored: StoredObject, replica: Source) -> None:
    rule: Rule = "torn-tail" if _is_torn_tail(finding, stored, replica) else "damaged-batch"
    metadata.report(rule, finding.file, f"position {finding.position}: {finding.detail}")


def _take_batch(metadata: RemoteMetadata, batch: LoggedBatch, next_offset: int, name: str) -> int:
    """Take in the records of a batch; return the offset after it."""
    if batch.base_offset > next_offset:
        detail = f"offsets {next_offset} to {batch.base_offset - 1} are missing: the segments they describe are unknown"
        metadata.report("missing-records", name, detail, next_offset)
    if batch.is_control or batch.last_offset < next_offset:
        return max(next_offset, batch.last_offset + 1)
    try:
        for offset, value in batch.values(most_bytes=_MOST_CONTENT_BYTES):
            if offset >= next_offset and value is not None:
                metadata.add(value, offset, name)
    except FormatError as error:
        detail = f"position {batch.position}: {error}"
        metadata.report("damaged-batch", name, detail, batch.base_offset)
    return batch.last_offset + 1


def _apply(cache: RemoteLogCache, value: bytes) -> tuple[Rule, str, str] | None:
    """Apply a record; return what is wrong with it."""
    try:
        record = read_remote_log_metadata(value)
    except FormatError as error:
        return "malformed-record", TOPIC, str(error)
    dropped = cache.apply(record)
    if dropped is None or record.owner is None:
        return None
    partition = f"{record.owner.topic}-{record.owner.partition}"
    if isinstance(record, RemoteSegment | RemoteSegmentUpdate):
        return "dropped-record", partition, f"segment {format_uuid(record.segment_id)}: {dropped.value}"
    return "dropped-record", partition, dropped.value


def _owner_bytes(value: bytes) -> bytes | None:
    """Return the bytes that name the record's partition, without reading the rest; None if the encoding is unusual."""
    if len(value) < 5 or value[0] != FRAME_VERSION or value[1] > RemoteApiKey.PARTITION_DELETE or value[2]:
        return None
    size, position = value[3], 4
    if size > 0x7F:
        size, position = size & 0x7F | value[4] << 7, 5
        if value[4] > 0x7F:
            return None
    return value[3 : position + size - 1 + _OWNER_ID_BYTES]
