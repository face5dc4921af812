"""How much of a topic's logs brokers keep, and whether they copy it to remote storage, by the layers of settings.

    --topic-config  over  topic records  over  dynamic records of brokers  over  --property, file

Kafka: LogConfig, KafkaConfig.logRetentionTimeMillis, ServerTopicConfigSynonyms, DynamicLogConfig.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from recovery.broker.cluster_metadata import ClusterMetadata
from recovery.broker.config import (
    CLEANUP_POLICY,
    LOG_CLEANUP_POLICY,
    LOG_RETENTION_BYTES,
    LOG_RETENTION_HOURS,
    LOG_RETENTION_MINUTES,
    LOG_RETENTION_MS,
    REMOTE_STORAGE_ENABLE,
    RETENTION_BYTES,
    RETENTION_MS,
    LogConfig,
)
from recovery.broker.settings import BooleanKind, Key, Layer, Settings, valid_entries
from recovery.broker.topic_configs import COMPACTED_BY_BROKERS, TOPIC_CONFIG_OPTION, TopicConfigs

_UNLIMITED = -1
_HOURS = 168

_COPY_DISABLE = Key("remote.log.copy.disable", BooleanKind())
_DYNAMIC = (LOG_CLEANUP_POLICY, LOG_RETENTION_MS, LOG_RETENTION_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRetention:
    """The settings of a topic that say how long what is kept.

    Attributes:
        is_expiring: whether what is local goes by age and size, which `cleanup.policy` decides; what is in remote
            storage goes under any policy.
        retention_ms: -1: for ever.
        retention_bytes: of each partition, its remote part included; -1: without limit.
        is_tiered: whether the topic asks for tiered storage; None: nothing says so, and the metadata log is not known.
        is_copy_disabled: whether nothing more is copied to it.
    """

    is_expiring: bool
    retention_ms: int
    retention_bytes: int
    is_tiered: bool | None
    is_copy_disabled: bool


def retention_of(
    topic: str, configs: TopicConfigs, metadata: ClusterMetadata | None, node_id: int | None
) -> LogRetention:
    """Return how much of the logs of *topic* a broker keeps.

    Args:
        topic: its name.
        configs: what was given, and the records of topics.
        metadata: dynamic settings of brokers as they are once a broker runs; None if they are not known.
        node_id: of that broker, None if it is not known: then its own dynamic settings are not, either.

    Raises:
        UsageError: a value that Kafka refuses.
    """
    own = Settings(
        (
            Layer(f"{TOPIC_CONFIG_OPTION}, topic {topic}", configs.overrides.get(topic, {})),
            Layer(f"metadata log, topic {topic}", configs.records.get(topic, {})),
        ),
        override='--topic-config \'{"TOPIC": {"KEY": ...}}\'',
    )
    broker = Settings((*_dynamic_layers(metadata, node_id), *configs.broker.layers))
    retention_ms = own.find(RETENTION_MS)
    retention_bytes = own.find(RETENTION_BYTES)
    if retention_bytes is None:
        retention_bytes = broker.find(LOG_RETENTION_BYTES)
    is_tiered = own.find(REMOTE_STORAGE_ENABLE)
    if is_tiered is None and metadata is not None:
        is_tiered = False
    is_copy_disabled = bool(own.find(_COPY_DISABLE))
    policy = _cleanup_policy(topic, own, broker)
    return LogRetention(
        is_expiring="delete" in policy or (not policy and bool(is_tiered) and not is_copy_disabled),
        retention_ms=_broker_retention_ms(broker) if retention_ms is None else retention_ms,
        retention_bytes=_UNLIMITED if retention_bytes is None else retention_bytes,
        is_tiered=is_tiered,
        is_copy_disabled=is_copy_disabled,
    )


def _cleanup_policy(topic: str, own: Settings, broker: Settings) -> tuple[str, ...]:
    """Return the policy of a topic. Kafka: UnifiedLog.deleteOldSegments looks at it."""
    policy = own.find(CLEANUP_POLICY)
    if policy is not None:
        return policy
    if topic in COMPACTED_BY_BROKERS:
        return ("compact",)
    default = broker.find(LOG_CLEANUP_POLICY)
    return LogConfig().cleanup_policy if default is None else default


def _dynamic_layers(metadata: ClusterMetadata | None, node_id: int | None) -> tuple[Layer, ...]:
    if metadata is None:
        return ()
    own: Mapping[str, str] = metadata.brokers_after_load.get(str(node_id), {})
    return (
        Layer("dynamic settings of this broker", valid_entries(own, _DYNAMIC)),
        Layer(
            "dynamic settings of all brokers", valid_entries(metadata.cluster_default_after_load, _DYNAMIC)
        ),
    )


def _broker_retention_ms(broker: Settings) -> int:
    """Return the first of milliseconds, minutes and hours that is set. Kafka: KafkaConfig.logRetentionTimeMillis."""
    retention_ms = broker.find(LOG_RETENTION_MS)
    if retention_ms is None:
        minutes, hours = broker.find(LOG_RETENTION_MINUTES), broker.find(LOG_RETENTION_HOURS)
        retention_ms = (
            (_HOURS if hours is None else hours) * 3_600_000 if minutes is None else minutes * 60_000
        )
    return max(retention_ms, _UNLIMITED)
