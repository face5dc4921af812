"""Which log dirs of a broker are cordoned: they get no new logs, and keep those that they have.

    dynamic record of the broker, after the whole metadata log    over    cordoned.log.dirs in its properties

That is what the broker was told, and what it tells its controller. What its LogManager goes by may be something else:
up to 4.4.0 it gets the cordons only when a log setting changes while it runs. A start takes all dynamic settings from
the newest metadata snapshot before there is a LogManager, so what stands there, or in the properties, is no change; and
what was deleted after the snapshot is deleted only by the next change. Both are warnings here, as is a spelling that no
broker recognizes: entries are compared as text with log.dirs, but take effect by the path that Java makes of it.

Kafka: DynamicLogConfig.reconfigure, DynamicBrokerConfig.processReconfiguration,
DynamicConfigPublisher.onMetadataUpdate, ReplicaManager.describeLogDirs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from recovery.broker.cluster_metadata import ClusterMetadata, Configs
from recovery.broker.config import ALL_LOG_DIRS, CORDONED_LOG_DIRS, LOG_DIRS, BrokerConfig

_CORDONS_SINCE = 30
"""The level of metadata.version with which cordons begin. Kafka: MetadataVersion.IBP_4_3_IV0."""

_RELEASES = "4.3.1, 4.4.0"
_REMEDY = "Remedy: once it runs, set cordoned.log.dirs with kafka-configs to another value, and back"
_SLASHES = re.compile("/{2,}")
_LOG_SETTINGS = frozenset(
    {
        CORDONED_LOG_DIRS.name,
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
        "log.cleaner.delete.retention.ms",
        "log.cleaner.max.compaction.lag.ms",
        "log.cleaner.min.cleanable.ratio",
        "log.cleaner.min.compaction.lag.ms",
        "log.cleanup.policy",
        "log.flush.interval.messages",
        "log.flush.interval.ms",
        "log.index.interval.bytes",
        "log.index.size.max.bytes",
        "log.local.retention.bytes",
        "log.local.retention.ms",
        "log.message.timestamp.after.max.ms",
        "log.message.timestamp.before.max.ms",
        "log.message.timestamp.type",
        "log.preallocate",
        "log.remote.copy.lag.bytes",
        "log.remote.copy.lag.ms",
        "log.retention.bytes",
        "log.retention.ms",
        "log.roll.jitter.ms",
        "log.roll.ms",
        "log.segment.bytes",
        "log.segment.delete.delay.ms",
        "max.decompressed.message.bytes",
        "message.max.bytes",
        "min.insync.replicas",
        "unclean.leader.election.enable",
    }
)
"""Those of 4.3.1 and 4.4.0 whose change hands the cordons on. Kafka: DynamicLogConfig.RECONFIGURABLE_CONFIGS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cordons:
    """What is cordoned.

    Attributes:
        log_dirs: absolute paths, in the order of the settings.
        warnings: where a broker does not, or not yet, do what its settings say; a sentence each.
    """

    log_dirs: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def find_cordons(
    broker: BrokerConfig,
    log_dirs: Sequence[str],
    metadata: ClusterMetadata | None = None,
    node_id: int | None = None,
) -> Cordons:
    """Return which log dirs are cordoned by the settings of *broker* and, if it is known, its metadata log.

    Args:
        log_dirs: absolute paths that `*` stands for if the broker's own log dirs are not known.
        metadata: None if no metadata log is known.
        node_id: of the broker; None for that in its settings.
    """
    if metadata is None:
        return _told(broker, log_dirs)
    name = str(broker.node_id if node_id is None else node_id)
    at_load = _Dynamic(metadata.cluster_default, metadata.brokers.get(name, {}))
    now = _Dynamic(metadata.cluster_default_after_load, metadata.brokers_after_load.get(name, {}))
    told = _told(now.over(broker), log_dirs)
    warnings = list(told.warnings)
    if fault := broker.dynamic_fault(now.broker):
        warnings.append(
            f"dynamic settings of broker {name}: {fault}. A broker that "
            "starts now applies none of these settings"
        )
    level = metadata.metadata_version
    if told.log_dirs and level is not None and level < _CORDONS_SINCE:
        warnings.append(
            f"{CORDONED_LOG_DIRS.name}: brokers ignore it, as metadata.version is {level} and cordons begin with "
            f"{_CORDONS_SINCE} (4.3-IV0). Remedy: upgrade metadata.version with kafka-features"
        )
        return Cordons(warnings=tuple(warnings))
    # Where the image has nothing left of what the snapshot sets, a start leaves it set.
    started = _Dynamic(now.cluster_default or at_load.cluster_default, now.broker or at_load.broker)
    applied: tuple[str, ...] = ()
    if started.log_settings(broker) != at_load.log_settings(broker):
        applied = _told(started.over(broker), log_dirs).log_dirs
    warnings += _differences(told.log_dirs, applied)
    return Cordons(log_dirs=told.log_dirs, warnings=tuple(warnings))


class _Dynamic(NamedTuple):
    """The dynamic settings that reach a broker at one time."""

    cluster_default: Configs
    broker: Configs

    def over(self, static: BrokerConfig) -> BrokerConfig:
        return static.with_dynamic(cluster_default=self.cluster_default, broker=self.broker)

    def log_settings(self, static: BrokerConfig) -> dict[str, str]:
        """Return those settings whose change hands the cordons on, as they are over *static*."""
        layers = (self.broker, self.cluster_default, *(layer.values for layer in static.layers))
        return {
            key: next(layer[key] for layer in layers if key in layer)
            for key in _LOG_SETTINGS
            if any(key in layer for layer in layers)
        }


def _told(broker: BrokerConfig, log_dirs: Sequence[str]) -> Cordons:
    """Return the cordons of *broker* that have an effect, and warnings of the others."""
    entries = broker.cordoned_log_dirs
    if entries == (ALL_LOG_DIRS,):
        if not broker.own_log_dirs:
            return Cordons(log_dirs=tuple(log_dirs))
        entries = broker.own_log_dirs
    return Cordons(
        log_dirs=tuple(entry for entry in entries if entry == java_path(entry)),
        warnings=tuple(_misspelled(entry) for entry in entries if entry != java_path(entry)),
    )


def java_path(entry: str) -> str | None:
    """Return the absolute path that a broker makes of an entry of log.dirs, None of a relative one.

    Only repeated and last slashes go: dots and links stay. Kafka: File.getAbsolutePath, as in LogManager.
    """
    if not entry.startswith("/"):
        return None
    return _SLASHES.sub("/", entry).rstrip("/") or "/"


def _misspelled(entry: str) -> str:
    path = java_path(entry)
    why = "a relative path" if path is None else f"to a broker the log dir is {path}"
    better = "the absolute path" if path is None else path
    return (
        f"{CORDONED_LOG_DIRS.name}: {entry}: {why}, so brokers ({_RELEASES}) accept this cordon and ignore it. "
        f"Remedy: write {better} in {LOG_DIRS.name} and in {CORDONED_LOG_DIRS.name}"
    )


def _differences(told: tuple[str, ...], applied: tuple[str, ...]) -> Iterator[str]:
    """Yield how the cordons that a broker applies when it starts now differ from those that it is told."""
    if ignored := [log_dir for log_dir in told if log_dir not in applied]:
        yield (
            f"{CORDONED_LOG_DIRS.name}: {', '.join(ignored)}: a broker ({_RELEASES}) that starts now ignores this "
            "cordon until one of its log settings changes: all of them are in its properties and the newest metadata "
            f"snapshot. {_REMEDY}"
        )
    if kept := [log_dir for log_dir in applied if log_dir not in told]:
        yield (
            f"{CORDONED_LOG_DIRS.name}: {', '.join(kept)}: a broker ({_RELEASES}) that starts now takes this for "
            "cordoned until its dynamic settings change: they were deleted after the newest metadata snapshot. "
            f"{_REMEDY}"
        )
