"""Which partitions are tiered, by log dirs or copies of them, and what is known of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from uuid import UUID

from recovery.archive.copy.account import CopyAccounts
from recovery.archive.remote.log_dir_copy import read_log_dir_copy
from recovery.archive.remote.remote_metadata import RemoteMetadata, Source
from recovery.archive.remote.replicas import Replica, Replicas, last_epoch
from recovery.archive.remote_size import held_size
from recovery.archive.stores.archived import PartitionPrefix
from recovery.archive.stores.store import Store
from recovery.archive.tiering.absent_brokers import AbsentBrokers
from recovery.archive.tiering.cluster_view import ClusterView
from recovery.archive.tiering.options import ALL_LOG_DIRS, TieringOptions
from recovery.archive.tiering.partition_state import (
    PartitionState,
    read_tiered_log,
    told_ends,
    why_bounds_are_unknown,
    why_cache_is_behind,
    why_copy_is_in_part,
    why_log_is_behind,
)
from recovery.archive.tiering.partition_warning import PartitionWarning
from recovery.archive.tiering.tiered_log import TieredLog
from recovery.broker.config import NEVER_TIERED_TOPICS, BrokerConfig, misspelled
from recovery.broker.log_retention import LogRetention, retention_of
from recovery.broker.settings import Layer
from recovery.broker.topic_configs import TopicConfigs, without_effect
from recovery.check.finding import Finding
from recovery.errors import UsageError
from recovery.quantity import bytes_text, count_text
from segfmt.kafka_uuid import format_uuid
from segfmt.remote_log_metadata import TOPIC, RemotePartition, metadata_partition

_REMEDY = f"Remedy: {ALL_LOG_DIRS}"


class TieringSurvey:
    """Goes through the tiered partitions of log dirs.

    Args:
        stores: the log dirs.
        metadata: what the metadata topic in them says.
        options: which partitions, and their settings.

    Attributes:
        warnings: what is not known, and why.
    """

    def __init__(self, stores: Sequence[Store], metadata: RemoteMetadata, options: TieringOptions) -> None:
        self._stores = stores
        self._metadata = metadata
        self._replicas = Replicas(stores)
        self._copies = {store.url: read_log_dir_copy(store, store.list_level("").objects) for store in stores}
        self._accounts = {store.url: CopyAccounts(store) for store in stores}
        self._in_part: dict[int, str] = {}
        # One only chooses; the other notes what is tiered here, and refuses names of anything else in the end
        self._is_wanted, self._is_chosen = options.choice(), options.choice()
        self.warnings: list[str] = [*options.config_notes, *misspelled(options.config)]
        self._view = ClusterView(stores, metadata, self._replicas)
        self._metadata_log = self._view.metadata_log
        self.warnings += self._metadata_log.warnings
        self.warnings += [
            f"{text}: whether the copy is whole is not known"
            for accounts in self._accounts.values()
            for text in accounts.unread
        ]
        self._cluster = self._metadata_log.cluster
        self._absent = AbsentBrokers(stores, self._metadata_log.assignments)
        self._configs = TopicConfigs(
            broker=BrokerConfig.from_layers((Layer("-c or --property", options.config),)),
            records={} if self._cluster is None else self._cluster.topic_configs,
            overrides=options.topic_configs,
        )

    def partitions(self) -> Iterator[PartitionState]:
        """Yield each tiered partition that is chosen: those with remote segments first.

        Raises:
            UsageError: nothing is tiered here, or not what was chosen; a setting that Kafka refuses.
        """
        seen: set[tuple[UUID, int]] = set()
        for owner in self._metadata.partitions():
            seen.add((owner.topic_id, owner.partition))
            where = _where(owner.topic, owner.partition, owner.topic_id)
            state = self._state(owner) if self._is_wanted(where) else None
            if state is not None and not self._is_something(state):
                continue  # to ask for it alone is an error
            if self._is_chosen(where) and state is not None:
                yield self._noted(state)
        for topic, partition in self._replicas.folders():
            where = _where(topic, partition, None)
            replica = self._replicas.of(where)
            if replica is None or (replica.topic_id, partition) in seen:
                continue
            if not (self._is_tiered(topic) or self._looks_tiered(replica, where)):
                continue
            seen.add((replica.topic_id, partition))
            owner = RemotePartition(topic=topic, topic_id=replica.topic_id, partition=partition)
            if not self._view.is_deleted(owner) and self._is_chosen(where):
                yield self._noted(self._state(owner))
        yield from self._without_trace(seen)
        among = ", ".join(store.url for store in self._stores)
        self._is_chosen.refuse_missing(f"the tiered logs of {among}")
        topics = {owner.topic for owner in self._metadata.partitions()}
        topics |= {topic for topic, _ in self._replicas.folders()}
        self.warnings += self._absent.warnings()
        self.warnings += without_effect(self._configs.overrides, topics)

    def _without_trace(self, seen: Set[tuple[UUID, int]]) -> Iterator[PartitionState]:
        """Yield the tiered partitions that the cluster has, and of which nothing else was found."""
        for topic, topic_id in () if self._cluster is None else self._cluster.topic_ids.items():
            numbers = self._metadata_log.assignments.numbers.get(topic_id, frozenset())
            absent = sorted(number for number in numbers if (topic_id, number) not in seen)
            if not absent or not self._is_tiered(topic):
                continue
            for partition in absent:
                where = _where(topic, partition, topic_id)
                if self._is_chosen(where):
                    owner = RemotePartition(topic=topic, topic_id=topic_id, partition=partition)
                    yield self._noted(self._state(owner))

    def _is_something(self, state: PartitionState) -> bool:
        """Return whether a partition that the metadata topic names is there, or something of it is left."""
        if state.cache is None or state.cache.segments:
            return True
        is_of_cluster = self._metadata_log.assignments.of(state.topic_id, state.partition) is not None
        return not state.is_disabled and (state.log is not None or is_of_cluster)

    def _looks_tiered(self, replica: Replica, where: PartitionPrefix) -> bool:
        """Return whether a log of a topic whose settings are not known begins before its first local segment.

        Only tiered logs do.
        """
        if replica.log_start_offset is None or self._retention(where.topic) is not None:
            return False
        first = self._replicas.local_start(where)
        return first is not None and replica.log_start_offset < first

    def _state(self, owner: RemotePartition) -> PartitionState:
        where = _where(owner.topic, owner.partition, owner.topic_id)
        replica = self._replicas.of(where, self._view.may_lead(owner))
        unknown: list[str] = []
        cache = None
        if why := self._why_cache_is_unknown(owner):
            unknown.append(f"its remote segments: {why}")
        else:
            cache = self._metadata.cache(owner.topic_id, owner.partition)
            if hiding := self._metadata.hiding(owner.topic_id, owner.partition):
                cache = None
                unknown.append(f"its remote segments: {hiding.file}: {hiding.detail}{_remedy_of(hiding)}")
        is_deleted, why_no_topic = self._view.is_deleted(owner), self._view.why_topic_is_unknown(owner)
        retention = None if is_deleted or why_no_topic else self._retention(owner.topic, replica)
        log, why = None, ""
        if replica is None and not is_deleted:
            why = self._replicas.why_unread(where) or f"no replica was found. {_REMEDY}"
        if replica is not None and not is_deleted:
            log, why = self._read_log(owner, replica, retention)
        if log is not None and cache is not None and replica is not None:
            is_copied = retention is None or not retention.is_copy_disabled
            if why := why_log_is_behind(log, cache, replica.url):
                log = None
            elif is_copied and (behind := why_cache_is_behind(log, cache, replica.url)):
                cache = None
                unknown.append(f"its remote segments: {behind}")
            elif retention is not None and retention.is_tiered and is_copied:
                log = log.as_led(cache)
        if why:
            unknown.append(f"its local part: {why}")
        if why_no_topic:
            unknown.append(f"its topic: {why_no_topic}")
        elif retention is None and not is_deleted:
            unknown.append("its retention: no metadata log was found. Remedy: give --topic-config")
        return PartitionState(
            topic=owner.topic,
            topic_id=owner.topic_id,
            partition=owner.partition,
            cache=cache,
            log=log,
            retention=retention,
            is_deleted=is_deleted,
            unknown=tuple(unknown),
        )

    def _read_log(
        self, owner: RemotePartition, replica: Replica, retention: LogRetention | None
    ) -> tuple[TieredLog | None, str]:
        """Return the local part of a partition by a replica, and why it is None."""
        where = _where(owner.topic, owner.partition, owner.topic_id)
        copied = self._accounts[replica.store.url].folder(replica.prefix)
        gone = frozenset[str]() if copied is None else copied.gone
        ends = told_ends(replica, where, self._copies[replica.store.url], gone)
        why = why_copy_is_in_part(replica.url, copied) or self._view.why_out_of_sync(
            owner.topic_id,
            owner.partition,
            log_dir=replica.store.url,
            last_epoch=last_epoch(replica.epochs),
            place=replica.url,
        )
        if why:
            return None, why
        is_tiered = retention is None or retention.is_tiered is not False
        log, why = read_tiered_log(replica, where, gone, is_tiered=is_tiered)
        if log is not None:
            why = why_bounds_are_unknown(log, replica, ends)
        return None if why else log, why

    def _noted(self, state: PartitionState) -> PartitionState:
        """Return *state*, having warned of what is not known of it, and of what nobody deletes."""
        self._absent.note(state)
        self.warnings += [PartitionWarning(state.name, text) for text in state.unknown]
        if state.cache is not None and (state.is_deleted or (state.is_disabled and state.cache.segments)):
            left = count_text(len(state.cache.segments), "remote segment")
            size = bytes_text(held_size(state.cache))
            why = (
                f"the topic with the id {format_uuid(state.topic_id)} was deleted, and {left} of it, {size}, are left"
                if state.is_deleted
                else f"remote storage is disabled for the topic, and {left} of it, {size}, are left{_doubts(state)}"
            )
            text = (
                f"{why}{self._stale_replica(state)}. Remedy: if their deletion is not under way, delete their "
                "objects by hand: no broker will"
            )
            self.warnings.append(PartitionWarning(state.name, text))
        return state

    def _stale_replica(self, state: PartitionState) -> str:
        """Return where a deleted topic still has a replica: what that says holds if the metadata log is not older."""
        if not state.is_deleted:
            return ""
        replica = self._replicas.of(_where(state.topic, state.partition, state.topic_id))
        if replica is None:
            return ""
        return f"; its replica {replica.url} does not count, unless the metadata log that was given is older than it"

    def _why_cache_is_unknown(self, owner: RemotePartition) -> str:
        """Return why the partition of the topic in which its records would be was not read; empty if it was."""
        count = self._metadata_log.partition_count(TOPIC)
        number = None if count is None else metadata_partition(owner, count)
        if self._metadata.knows(owner.topic_id, owner.partition):
            read_from = self._metadata.read_from(owner.topic_id, owner.partition)
            for one in sorted(read_from):
                if why := self._why_metadata_is_in_part(one):
                    return why
            if number is None or read_from == {number} or self._view.is_deleted(owner):
                return ""
            named = ", ".join(f"{TOPIC}-{one}" for one in sorted(read_from))
            return (
                f"their records are in {named}, and brokers look for them in {TOPIC}-{number} of {count}: the topic "
                "was given more partitions, or a copied folder another name. Remedy: give the folder its name; brokers "
                "do not find what was written with another number of partitions"
            )
        if number is None:
            return f"how many partitions {TOPIC} has is not known without a metadata log. {_REMEDY}"
        if number not in self._metadata.sources:
            return f"{TOPIC}-{number}, which tells of them, was not found. {_REMEDY}"
        return self._why_metadata_is_in_part(number)

    def _why_metadata_is_in_part(self, number: int) -> str:
        """Return why no replica has all of a partition of the topic, as far as is known; empty if one may have it."""
        if number not in self._in_part:
            whys = []
            for source in self._metadata.sources.get(number, ()):
                prefix = source.logs[0].key.removesuffix(source.logs[0].name)
                copied = self._accounts[source.store.url].folder(prefix)
                place = f"{source.store.url}/{prefix}".rstrip("/")
                whys.append(
                    why_copy_is_in_part(place, copied) or self._why_source_is_behind(source, number, place)
                )
            self._in_part[number] = whys[0] if whys and all(whys) else ""
        return self._in_part[number]

    def _why_source_is_behind(self, source: Source, number: int, place: str) -> str:
        topic_id = None if self._cluster is None else self._cluster.topic_ids.get(TOPIC)
        if topic_id is None:
            return ""
        last = last_epoch(source.epochs)
        return self._view.why_out_of_sync(
            topic_id, number, log_dir=source.store.url, last_epoch=last, place=place
        )

    def _retention(self, topic: str, replica: Replica | None = None) -> LogRetention | None:
        """Return the settings of a topic, as the broker has them that *replica* is of."""
        if self._cluster is None and topic not in self._configs.overrides:
            return None
        properties = None if replica is None else self._view.properties[replica.store.url]
        node_id = self._configs.broker.node_id if properties is None else properties.node_id
        return retention_of(topic, self._configs, self._cluster, node_id)

    def _is_tiered(self, topic: str) -> bool:
        retention = self._retention(topic)
        return retention is not None and retention.is_tiered is True and topic not in NEVER_TIERED_TOPICS


def _remedy_of(hiding: Finding) -> str:
    """Return what helps against damage of the metadata topic, as the end of a sentence."""
    if hiding.detail.startswith("malformed-record"):  # it is the same in every replica
        return ""
    readable = "see that this user can read it, or " if hiding.detail.startswith("unreadable") else ""
    return f". Remedy: {readable}{ALL_LOG_DIRS}"


def _doubts(state: PartitionState) -> str:
    """Return what speaks against the setting that remote storage is disabled; empty if nothing does.

    Kafka: TopicConfigHandler.maybeUpdateRemoteLogComponents lets the log begin with its first local segment.
    """
    log = state.log
    if log is None or log.log_start_offset >= log.segments[0].base_offset:
        return ""
    return (
        f"; but its log begins at {log.log_start_offset}, in remote storage: they are a part of it if that setting "
        "is not what brokers have"
    )


def refuse_nothing(stores: Sequence[Store], metadata: RemoteMetadata) -> None:
    """Refuse log dirs without a partition of the metadata topic.

    Raises:
        UsageError: there is none.
    """
    if not metadata.sources:
        named = ", ".join(store.url for store in stores)
        raise UsageError(f"{named}: no partition of {TOPIC} is in it. {_REMEDY}, or copies of them")


def _where(topic: str, partition: int, topic_id: UUID | None) -> PartitionPrefix:
    folder = f"{topic}-{partition}"
    return PartitionPrefix(
        prefix=f"{folder}/",
        topic=topic,
        partition=partition,
        topic_id="" if topic_id is None else format_uuid(topic_id),
        folder=folder,
    )
