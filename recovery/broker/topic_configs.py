"""The settings of each topic's logs: from the command line, the metadata log, the broker.

    --topic-config  over  topic records  over  the broker's defaults (dynamic records, --property, file)

Kafka: LogManager.fetchTopicConfigOverrides, LogConfig.fromProps.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from uuid import UUID

from recovery.broker.config import (
    CLEANUP_POLICY,
    NEVER_TIERED_TOPICS,
    REMOTE_STORAGE_ENABLE,
    BrokerConfig,
    LogConfig,
)
from recovery.broker.settings import Layer
from recovery.errors import UsageError
from recovery.load.model import LogSettings
from recovery.misspelling import question, similar_names
from recovery.quantity import listed_text
from recovery.several import refuse_no_mapping
from segfmt.kafka_uuid import format_uuid

Configs = Mapping[str, str]

TOPIC_CONFIG_OPTION = "--topic-config"

COMPACTED_BY_BROKERS = frozenset({"__consumer_offsets", "__transaction_state"})
"""Brokers create these with `cleanup.policy=compact`, whatever their defaults say."""
_EXPECTED = "JSON {topic: {key: value}}"
_MOST_COMPARED = 10_000
"""Pairs of names that are looked at for a misspelled topic, half a second's work: settings may be those of a whole
cluster, and most of its topics may not be here."""
_MOST_NAMED = 3
_LEAST_SIMILARITY = 0.8  # names with a common part, `codec-gzip` and `codec-zstd`, are less similar

TOPIC_CONFIG_NAMES = frozenset(
    {
        "cleanup.policy",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
        "delete.retention.ms",
        "errors.deadletterqueue.group.enable",
        "file.delete.delay.ms",
        "flush.messages",
        "flush.ms",
        "follower.replication.throttled.replicas",
        "index.interval.bytes",
        "internal.segment.bytes",
        "leader.replication.throttled.replicas",
        "local.retention.bytes",
        "local.retention.ms",
        "max.compaction.lag.ms",
        "max.decompressed.message.bytes",
        "max.message.bytes",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.type",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "min.insync.replicas",
        "preallocate",
        "remote.copy.lag.bytes",
        "remote.copy.lag.ms",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
        "retention.bytes",
        "retention.ms",
        "segment.bytes",
        "segment.index.bytes",
        "segment.jitter.ms",
        "segment.ms",
        "unclean.leader.election.enable",
    }
)
"""Every setting that a topic of 4.3 or 4.4 can have; most do not matter here. Kafka: LogConfig.configNames."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfigs:
    """What is known of the topics' settings.

    Attributes:
        broker: gives the defaults.
        records: own settings by topic, from the metadata log (`ClusterMetadata.topic_configs`).
        overrides: settings by topic from `--topic-config`; key by key, they take precedence over the records.
        topic_ids: of the topics in the metadata log; None if none was read, empty if that log has lost them.
        is_metadata_whole: whether all of that log was read: a topic that is not in the rest may be in what was not.
        is_remote_storage_known: whether *broker* says for certain that tiered storage is on, or off.
        is_config_complete: whether *broker* was made from all of the broker's properties.
    """

    broker: BrokerConfig
    records: Mapping[str, Configs] = field(default_factory=dict)
    overrides: Mapping[str, Configs] = field(default_factory=dict)
    topic_ids: Mapping[str, UUID] | None = None
    is_metadata_whole: bool = True
    is_remote_storage_known: bool = True
    is_config_complete: bool = True

    def config_of(self, topic: str) -> LogConfig:
        """Return the settings of *topic*'s logs; an unknown topic (a stray log) has the defaults.

        Raises:
            UsageError: a value that Kafka refuses; one in a record stops the broker when it loads its logs.
        """
        layers = (
            Layer(f"{TOPIC_CONFIG_OPTION}, topic {topic}", self.overrides.get(topic, {})),
            Layer(f"metadata log, topic {topic}", self.records.get(topic, {})),
        )
        return self.broker.log_defaults.overridden(layers)

    def settings_of(self, topic: str) -> LogSettings:
        """Return what the recovery of a log of *topic* needs. Raises like `config_of`."""
        config = self.config_of(topic)
        settings = config.settings(
            topic, is_remote_log_storage_system_enabled=self.broker.is_remote_log_storage_system_enabled
        )
        return replace(
            settings,
            remote_log_known=self.is_config_complete
            if settings.remote_log_prevented_by
            else self._is_remote_log_known(topic),
            is_config_complete=self.is_config_complete,
            is_compacted=self._is_compacted(topic, config),
            topic_id=self._topic_id(topic),
        )

    def _topic_id(self, topic: str) -> str | None:
        if self.topic_ids is not None and topic in self.topic_ids:
            return format_uuid(self.topic_ids[topic])
        return "" if self.is_gone(topic) else None

    def is_gone(self, topic: str) -> bool:
        """Return whether it is known that the cluster has no such topic: not from a metadata log that has lost all."""
        topic_ids = self.topic_ids or {}
        return bool(topic_ids) and self.is_metadata_whole and topic not in topic_ids

    def _is_compacted(self, topic: str, config: LogConfig) -> bool | None:
        """Return whether *topic* is compacted; None if that is not known, for want of the metadata log for example."""
        if topic in COMPACTED_BY_BROKERS:
            return True
        sources = (self.overrides.get(topic, {}), self.records.get(topic, {}))
        is_known = topic in (self.topic_ids or ()) or any(
            CLEANUP_POLICY.name in configs for configs in sources
        )
        return "compact" in config.cleanup_policy if is_known else None

    def _is_remote_log_known(self, topic: str) -> bool:
        """Return whether it is known if logs of *topic* have a remote part."""
        if self.is_remote_storage_known and not self.broker.is_remote_log_storage_system_enabled:
            return True
        if REMOTE_STORAGE_ENABLE.name in self.overrides.get(topic, {}) or topic in NEVER_TIERED_TOPICS:
            return True
        # A broker whose settings are known takes a topic that no longer exists for a plain one.
        return topic in (self.topic_ids or ()) or (self.is_remote_storage_known and self.is_gone(topic))


def refuse_wrong_topic_configs(topic_configs: object) -> None:
    """Raise UsageError if *topic_configs* of a caller are not by topic; None is none."""
    refuse_no_mapping("topic_configs", topic_configs, "{'orders': {'preallocate': 'true'}}, for example")


def read_topic_configs(text: str) -> dict[str, dict[str, str]]:
    """Return the settings in the argument of `--topic-config`, JSON `{topic: {key: value}}`.

    Values may be JSON strings, numbers or booleans.

    Raises:
        UsageError: not such JSON, a name that is in it twice, or a key that no topic has.
    """
    try:
        topics = json.loads(text, object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{TOPIC_CONFIG_OPTION}: {error}; expected JSON {{topic: {{key: value}}}}"
        ) from error
    if not isinstance(topics, dict):
        raise UsageError(f"{TOPIC_CONFIG_OPTION}: expected {_EXPECTED}, found {text[:80]}")
    return {topic: _read_one_topic(topic, configs) for topic, configs in topics.items()}


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    entries: dict[str, object] = {}
    for key, value in pairs:
        if key in entries:
            raise UsageError(f"{TOPIC_CONFIG_OPTION}: {key} is there twice; leave one of them out")
        entries[key] = value
    return entries


def _read_one_topic(topic: str, configs: object) -> dict[str, str]:
    if not isinstance(configs, dict):
        raise UsageError(f"{TOPIC_CONFIG_OPTION}, topic {topic}: expected {{key: value}}, found {configs!r}")
    return {key: _read_value(topic, key, value) for key, value in configs.items()}


def _read_value(topic: str, key: str, value: object) -> str:
    origin = f"{TOPIC_CONFIG_OPTION}, topic {topic}"
    if key not in TOPIC_CONFIG_NAMES:
        raise UsageError(
            f"{origin}: {key} is not a setting of a topic{question(_similar(key, TOPIC_CONFIG_NAMES))}"
        )
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int):
        raise UsageError(f"{origin}: {key}={value!r}: expected a string, an integer, true or false")
    return str(value)


def without_effect(
    overrides: Mapping[str, Configs], topics_here: Collection[str], *, where: str = "in the log dirs"
) -> list[str]:
    """Return sentences on the topics that are given settings and have no log *where* this run looks.

    One for each that may be a misspelled one of *topics_here*, and one for all others.
    """
    idle = sorted(overrides.keys() - topics_here)
    known = topics_here if len(idle) * len(topics_here) <= _MOST_COMPARED else ()
    hints = {topic: hint for topic in idle if (hint := question(_similar(topic, known)))}
    rest = [topic for topic in idle if topic not in hints]
    if len(rest) == 1:
        hints[rest.pop()] = ""
    told = [
        f"{TOPIC_CONFIG_OPTION}: no log of {topic} lies {where}, so its settings have no effect{hint}"
        for topic, hint in hints.items()
    ]
    if rest:
        topics = listed_text(rest, _MOST_NAMED)
        told.append(
            f"{TOPIC_CONFIG_OPTION}: no logs of {topics} lie {where}, so their settings have no effect"
        )
    return told


def _similar(name: str, known: Collection[str]) -> list[str]:
    return similar_names(name, known, least=_LEAST_SIMILARITY)
