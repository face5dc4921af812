"""The broker's settings that decide what a load of its log dirs does, and the defaults they give to topics.

Read from text that others have fetched: nothing is opened here. Names, defaults and limits are Kafka's.

    --property       over    server.properties             (`BrokerConfig.from_properties`)
    dynamic records  over    both                           (`BrokerConfig.with_dynamic`)

Kafka: KafkaConfig, LogConfig, KafkaConfig.extractLogConfigMap, ServerTopicConfigSynonyms,
DynamicBrokerConfig.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from recovery.broker.settings import (
    BooleanKind,
    IntKind,
    Key,
    Layer,
    ListKind,
    LongKind,
    Settings,
    TextKind,
    list_entries,
    valid_entries,
)
from recovery.errors import UsageError
from recovery.load.model import LogSettings
from recovery.misspelling import question, similar_names

_T = TypeVar("_T")

DEFAULT_LOG_DIR = "/tmp/kafka-logs"
ALL_LOG_DIRS = "*"
LOG_DIRS_OPTION = "--log-dirs"
"""Origin of the layer that selects log dirs for this run: the broker itself does not have it."""

_CLEANUP_POLICIES = ListKind(choices=("compact", "delete"))
_SEGMENT_BYTES = IntKind(1024 * 1024)
_INDEX_BYTES = IntKind(4)

LOG_DIRS = Key("log.dirs", ListKind(is_empty_allowed=False))
LOG_DIR = Key("log.dir", ListKind(is_empty_allowed=False))
METADATA_LOG_DIR = Key("metadata.log.dir", TextKind())
NODE_ID = Key("node.id", IntKind(0))
BROKER_ID = Key("broker.id", IntKind(-(2**31)))
RECOVERY_THREADS = Key("num.recovery.threads.per.data.dir", IntKind(1))
PRODUCER_ID_EXPIRATION_MS = Key("producer.id.expiration.ms", IntKind(1))
REMOTE_LOG_STORAGE_SYSTEM_ENABLE = Key("remote.log.storage.system.enable", BooleanKind())
CORDONED_LOG_DIRS = Key("cordoned.log.dirs", ListKind())
LOG_INDEX_INTERVAL_BYTES = Key("log.index.interval.bytes", IntKind(0))
LOG_INDEX_SIZE_MAX_BYTES = Key("log.index.size.max.bytes", _INDEX_BYTES)
LOG_SEGMENT_BYTES = Key("log.segment.bytes", _SEGMENT_BYTES)
LOG_PREALLOCATE = Key("log.preallocate", BooleanKind())
LOG_CLEANUP_POLICY = Key("log.cleanup.policy", _CLEANUP_POLICIES)

INDEX_INTERVAL_BYTES = Key("index.interval.bytes", IntKind(0))
SEGMENT_INDEX_BYTES = Key("segment.index.bytes", _INDEX_BYTES)
SEGMENT_BYTES = Key("segment.bytes", _SEGMENT_BYTES)
INTERNAL_SEGMENT_BYTES = Key("internal.segment.bytes", IntKind(-(2**31)))
PREALLOCATE = Key("preallocate", BooleanKind())
CLEANUP_POLICY = Key("cleanup.policy", _CLEANUP_POLICIES)
REMOTE_STORAGE_ENABLE = Key("remote.storage.enable", BooleanKind())
RETENTION_MS = Key("retention.ms", LongKind(-1))
RETENTION_BYTES = Key("retention.bytes", LongKind(-(2**63)))
LOG_RETENTION_MS = Key("log.retention.ms", LongKind(-(2**63)))
LOG_RETENTION_MINUTES = Key("log.retention.minutes", IntKind(-(2**31)))
LOG_RETENTION_HOURS = Key("log.retention.hours", IntKind(-(2**31)))
LOG_RETENTION_BYTES = Key("log.retention.bytes", LongKind(-(2**63)))

_CLUSTER_DYNAMIC_KEYS: tuple[Key[object], ...] = (
    LOG_INDEX_INTERVAL_BYTES,
    LOG_INDEX_SIZE_MAX_BYTES,
    LOG_SEGMENT_BYTES,
    LOG_PREALLOCATE,
    LOG_CLEANUP_POLICY,
    RECOVERY_THREADS,
    PRODUCER_ID_EXPIRATION_MS,
)
_BROKER_KEYS = frozenset(
    key.name
    for key in (
        *_CLUSTER_DYNAMIC_KEYS,
        LOG_DIRS,
        LOG_DIR,
        METADATA_LOG_DIR,
        NODE_ID,
        BROKER_ID,
        REMOTE_LOG_STORAGE_SYSTEM_ENABLE,
        CORDONED_LOG_DIRS,
        LOG_RETENTION_MS,
        LOG_RETENTION_MINUTES,
        LOG_RETENTION_HOURS,
        LOG_RETENTION_BYTES,
    )
)
_BROKER_KEYS_OF_TOPICS = {
    INDEX_INTERVAL_BYTES.name: LOG_INDEX_INTERVAL_BYTES.name,
    SEGMENT_INDEX_BYTES.name: LOG_INDEX_SIZE_MAX_BYTES.name,
    SEGMENT_BYTES.name: LOG_SEGMENT_BYTES.name,
    PREALLOCATE.name: LOG_PREALLOCATE.name,
    CLEANUP_POLICY.name: LOG_CLEANUP_POLICY.name,
    RETENTION_MS.name: LOG_RETENTION_MS.name,
    RETENTION_BYTES.name: LOG_RETENTION_BYTES.name,
}
_BYTE_ORDER_MARK = "\xef\xbb\xbf"  # that of UTF-8, as java.util.Properties reads it
_LEAST_SIMILARITY = 0.88  # Kafka's other settings are less similar to the keys above
_BROKER_DYNAMIC_KEYS = (*_CLUSTER_DYNAMIC_KEYS, CORDONED_LOG_DIRS)
NEVER_TIERED_TOPICS = frozenset(
    {
        "__consumer_offsets",
        "__transaction_state",
        "__share_group_state",
        "__remote_log_metadata",
        "__cluster_metadata",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """The settings of a topic's logs that matter for loading them. Kafka: LogConfig.

    Attributes:
        index_interval_bytes: bytes of log between two index entries.
        segment_index_bytes: size of the active segment's indexes.
        segment_bytes: size at which a segment is full, and of a preallocated one.
        preallocate: whether a new segment gets its full size at once.
        cleanup_policy: any of compact and delete.
        remote_storage_enable: whether the topic asks for tiered storage; see `prevents_tiering`.
    """

    index_interval_bytes: int = 4096
    segment_index_bytes: int = 10 * 1024 * 1024
    segment_bytes: int = 1024 * 1024 * 1024
    preallocate: bool = False
    cleanup_policy: tuple[str, ...] = ("delete",)
    remote_storage_enable: bool = False

    def overridden(self, layers: tuple[Layer, ...]) -> LogConfig:
        """Return the config of a topic whose own settings are in *layers*, with these defaults.

        Raises:
            UsageError: a value that Kafka refuses; it would stop a broker when it loads its logs.

        Kafka: LogConfig.fromProps, LogConfig.segmentSize (internal.segment.bytes comes first).
        """
        own = Settings(layers, override='--topic-config \'{"TOPIC": {"KEY": ...}}\'')
        segment_bytes = _or_default(own.find(SEGMENT_BYTES), self.segment_bytes)
        return LogConfig(
            index_interval_bytes=_or_default(own.find(INDEX_INTERVAL_BYTES), self.index_interval_bytes),
            segment_index_bytes=_or_default(own.find(SEGMENT_INDEX_BYTES), self.segment_index_bytes),
            segment_bytes=_or_default(own.find(INTERNAL_SEGMENT_BYTES), segment_bytes),
            preallocate=_or_default(own.find(PREALLOCATE), self.preallocate),
            cleanup_policy=_or_default(own.find(CLEANUP_POLICY), self.cleanup_policy),
            remote_storage_enable=_or_default(own.find(REMOTE_STORAGE_ENABLE), self.remote_storage_enable),
        )

    def wants_tiering(self, topic: str) -> bool:
        """Return whether a log of *topic* has a remote part, unless a setting prevents it.

        Kafka: UnifiedLog.isRemoteLogEnabled.
        """
        return self.remote_storage_enable and topic not in NEVER_TIERED_TOPICS

    def prevents_tiering(self, *, is_remote_log_storage_system_enabled: bool) -> str:
        """Return the setting, `key=value`, that keeps all logs from being tiered; empty if there is none."""
        if not is_remote_log_storage_system_enabled:
            return f"{REMOTE_LOG_STORAGE_SYSTEM_ENABLE.name}=false"
        if "compact" in self.cleanup_policy:
            return f"{CLEANUP_POLICY.name}={','.join(self.cleanup_policy)}"
        return ""

    def settings(self, topic: str, *, is_remote_log_storage_system_enabled: bool) -> LogSettings:
        """Return what the recovery of a log of *topic* needs of these settings."""
        prevented_by = self.prevents_tiering(
            is_remote_log_storage_system_enabled=is_remote_log_storage_system_enabled
        )
        is_wanted = self.wants_tiering(topic)
        return LogSettings(
            index_interval_bytes=self.index_interval_bytes,
            segment_index_bytes=self.segment_index_bytes,
            segment_bytes=self.segment_bytes,
            preallocate=self.preallocate,
            remote_log_enabled=is_wanted and not prevented_by,
            remote_log_prevented_by=prevented_by if is_wanted else "",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """A broker's settings, with Kafka's defaults for what is not set. Kafka: KafkaConfig.

    Attributes:
        log_dirs: as written in the settings or `--log-dirs`, without duplicates; not made absolute.
        own_log_dirs: those that the broker itself is told, whatever `--log-dirs` says; empty if that is not known.
        metadata_log_dir: the first of `log_dirs` unless it is set.
        node_id: int32, None if neither node.id nor broker.id is set.
        recovery_threads_per_data_dir: threads per log dir.
        producer_id_expiration_ms: how long a producer without open transaction is remembered.
        is_remote_log_storage_system_enabled: whether the broker supports tiered storage.
        cordoned_log_dirs: those that get no new logs, as written: of `own_log_dirs` if they are known, or `*` alone;
            `recovery.broker.cordons` says what a broker makes of them.
        log_defaults: for topics without settings of their own.
        layers: where all this came from.
    """

    log_dirs: tuple[str, ...]
    own_log_dirs: tuple[str, ...]
    metadata_log_dir: str
    node_id: int | None
    recovery_threads_per_data_dir: int
    producer_id_expiration_ms: int
    is_remote_log_storage_system_enabled: bool
    cordoned_log_dirs: tuple[str, ...]
    log_defaults: LogConfig
    layers: tuple[Layer, ...]

    @classmethod
    def from_properties(
        cls,
        properties: Mapping[str, str],
        *,
        origin: str = "server.properties",
        overrides: tuple[Layer, ...] = (),
    ) -> BrokerConfig:
        """Return the config in a properties file.

        Args:
            properties: the file's entries.
            origin: the file's name, for messages.
            overrides: what comes before the file: `--log-dirs`, `--property`.

        Raises:
            UsageError: a value that Kafka refuses; names key, value, origin and remedy.
        """
        return cls.from_layers((*overrides, Layer(origin, properties)))

    @classmethod
    def from_layers(cls, layers: tuple[Layer, ...]) -> BrokerConfig:
        """Return the config that *layers* give; the first one that has a key decides.

        Raises:
            UsageError: as `from_properties`.
        """
        settings = Settings(layers)
        own = Settings(tuple(layer for layer in layers if layer.origin != LOG_DIRS_OPTION))
        own_log_dirs = own.find(LOG_DIRS) or own.find(LOG_DIR) or ()
        if not own_log_dirs and own.layers == layers:
            own_log_dirs = (DEFAULT_LOG_DIR,)
        log_dirs = settings.find(LOG_DIRS) or settings.find(LOG_DIR) or own_log_dirs
        cordoned = settings.find(CORDONED_LOG_DIRS) or ()
        if fault := _cordon_fault(cordoned, own_log_dirs):
            raise UsageError(fault)
        return cls(
            log_dirs=log_dirs,
            own_log_dirs=own_log_dirs,
            metadata_log_dir=_or_default(settings.find(METADATA_LOG_DIR), log_dirs[0]),
            node_id=_node_id(settings),
            recovery_threads_per_data_dir=_or_default(settings.find(RECOVERY_THREADS), 2),
            producer_id_expiration_ms=_or_default(settings.find(PRODUCER_ID_EXPIRATION_MS), 86_400_000),
            is_remote_log_storage_system_enabled=_or_default(
                settings.find(REMOTE_LOG_STORAGE_SYSTEM_ENABLE), False
            ),
            cordoned_log_dirs=cordoned,
            log_defaults=_log_defaults(settings),
            layers=layers,
        )

    @property
    def names_log_dirs(self) -> bool:
        """Whether something names the log dirs; else Kafka's default stands for them."""
        return any(setting.name in layer.values for layer in self.layers for setting in (LOG_DIRS, LOG_DIR))

    @property
    def repeated_log_dirs(self) -> list[str]:
        """The entries of `log_dirs` that are in the settings more than once."""
        settings = Settings(self.layers)
        for key in (LOG_DIRS, LOG_DIR):
            if layer := settings.layer_with(key):
                counts = Counter(list_entries(layer.values[key.name]))
                return [entry for entry, count in counts.items() if count > 1]
        return []

    def with_dynamic(
        self, *, cluster_default: Mapping[str, str], broker: Mapping[str, str] | None = None
    ) -> BrokerConfig:
        """Return the config overridden by the cluster's dynamic settings, with this broker's own taking precedence.

        Settings that are not dynamic, not valid, or not allowed at their level are ignored, as the broker ignores them;
        so are all of this broker's own if `dynamic_fault` finds one.

        Kafka: DynamicBrokerConfig.updateDefaultConfig, updateBrokerConfig, fromPersistentProps.
        """
        own = {} if broker is None or self.dynamic_fault(broker) else broker
        dynamic = (
            Layer("dynamic settings of this broker", valid_entries(own, _BROKER_DYNAMIC_KEYS)),
            Layer("dynamic settings of all brokers", valid_entries(cluster_default, _CLUSTER_DYNAMIC_KEYS)),
        )
        return replace(BrokerConfig.from_layers((*dynamic, *self.layers)), layers=self.layers)

    def dynamic_fault(self, broker: Mapping[str, str]) -> str | None:
        """Return why a broker that starts applies none of its own dynamic settings, *broker*; None if it does.

        A cordon of a log dir that has since been removed from its file is enough.

        Kafka: KafkaConfig.validateCordonedLogDirs; DynamicBrokerConfig.updateBrokerConfig logs what it throws.
        """
        cordoned = CORDONED_LOG_DIRS.kind.read(broker.get(CORDONED_LOG_DIRS.name, "")) or ()
        return _cordon_fault(cordoned, self.own_log_dirs)


def assumed_defaults(*given: Mapping[str, str]) -> list[str]:
    """Return the settings that affect the bytes of all logs and are in none of *given*."""
    deciding = {key.name for key in _CLUSTER_DYNAMIC_KEYS if key is not RECOVERY_THREADS}
    return sorted(deciding.difference(*given))


def misspelled(properties: Mapping[str, str]) -> list[str]:
    """Return a sentence for each key in *properties* that is similar to one that is read here, and passed over.

    A key that is similar to none is another setting of the broker.
    """
    return [hint for key in properties if key not in _BROKER_KEYS and (hint := _meant_by(key))]


def _meant_by(key: str) -> str:
    if key.startswith(_BYTE_ORDER_MARK):
        plain = key.removeprefix(_BYTE_ORDER_MARK)
        return f"the file begins with a byte order mark, for Kafka a part of its first key, {plain}: save it without"
    if key == REMOTE_STORAGE_ENABLE.name:
        return f"{key} is a setting of topics, and has no effect here; give it with --topic-config"
    if key in _BROKER_KEYS_OF_TOPICS:
        return f"{key} is a setting of topics, and has no effect here; the broker's is {_BROKER_KEYS_OF_TOPICS[key]}"
    plain = key.lower().replace("_", ".").replace("-", ".")
    similar = similar_names(plain, _BROKER_KEYS, least=_LEAST_SIMILARITY)
    return f"{key} is not a setting of a broker, and has no effect{question(similar)}" if similar else ""


def _or_default(value: _T | None, default: _T) -> _T:
    return default if value is None else value


def _node_id(settings: Settings) -> int | None:
    node_id, broker_id = settings.find(NODE_ID), settings.find(BROKER_ID)
    if node_id is not None and broker_id is not None and node_id != broker_id:
        raise UsageError(f"node.id={node_id} and broker.id={broker_id} differ; leave out broker.id")
    return broker_id if node_id is None else node_id


def _cordon_fault(cordoned: tuple[str, ...], log_dirs: tuple[str, ...]) -> str | None:
    """Return why Kafka refuses *cordoned*, None if it does not; *log_dirs*: empty if they are not known."""
    if ALL_LOG_DIRS in cordoned:
        if len(cordoned) == 1:
            return None
        return f"{CORDONED_LOG_DIRS.name}: * must be the only entry; leave out the others"
    unknown = [entry for entry in cordoned if entry not in log_dirs]
    if not unknown or not log_dirs:
        return None
    return f"{CORDONED_LOG_DIRS.name}: {', '.join(unknown)}: not in {LOG_DIRS.name}; spell it as it is spelled there"


def _log_defaults(settings: Settings) -> LogConfig:
    """Return the topics' defaults that the broker's settings give. Kafka: KafkaConfig.extractLogConfigMap."""
    kafka = LogConfig()
    return LogConfig(
        index_interval_bytes=_or_default(settings.find(LOG_INDEX_INTERVAL_BYTES), kafka.index_interval_bytes),
        segment_index_bytes=_or_default(settings.find(LOG_INDEX_SIZE_MAX_BYTES), kafka.segment_index_bytes),
        segment_bytes=_or_default(settings.find(LOG_SEGMENT_BYTES), kafka.segment_bytes),
        preallocate=_or_default(settings.find(LOG_PREALLOCATE), kafka.preallocate),
        cleanup_policy=_or_default(settings.find(LOG_CLEANUP_POLICY), kafka.cleanup_policy),
    )
