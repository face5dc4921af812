"""`recovery.recover`: the local run as a library call. Settings are put together here, then the engine runs."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from recovery.cluster_metadata import ClusterMetadata
from recovery.config import REMOTE_LOG_STORAGE_SYSTEM_ENABLE, REMOTE_STORAGE_ENABLE, BrokerConfig
from recovery.engine import Engine, StopRequest
from recovery.errors import UsageError
from recovery.metadata_files import find_metadata_folder, load_cluster_metadata
from recovery.observer import Observer, Remark
from recovery.report import RecoveryReport
from recovery.setting import Layer
from recovery.topic_configs import TOPIC_CONFIG_OPTION, TopicConfigs
from segfmt.errors import FormatError
from segfmt.filenames import META_PROPERTIES
from segfmt.meta_properties import read_meta_properties


def recover(
    log_dirs: Sequence[str] | None,
    *,
    config: Mapping[str, str] | None = None,
    topic_configs: Mapping[str, Mapping[str, str]] | None = None,
    now_ms: int | None = None,
    dry_run: bool = False,
    handoff: Literal["clean-shutdown", "recovery-point", "none"] = "clean-shutdown",
    threads: int | None = None,
    quarantine_dir: str | None = None,
    observers: Iterable[Observer] = (),
    stop: StopRequest | None = None,
) -> RecoveryReport:
    """Recover the log dirs of a stopped broker as a 4.3.1 broker would, and hand them back.

    Args:
        log_dirs: paths; None for those in *config*.
        config: the broker's properties, as in its server.properties.
        topic_configs: settings by topic; they win over those in the metadata log.
        now_ms: the clock by which producers expire, ms since 1970; None for now.
        dry_run: change nothing, say what would be done.
        handoff: what the broker finds afterwards.
        threads: threads for each log dir; None for `num.recovery.threads.per.data.dir`.
        quarantine_dir: where cut bytes go; None for a sibling of each log dir.
        observers: told of all progress, from the threads that make it.
        stop: lets somebody else end the run at the next safe place.

    Returns:
        What became of every partition; `exit_code` says it in a number.

    Raises:
        UsageError: settings that Kafka does not accept, or no log dir.
        LogDirLockedError: a broker runs, or another recovery; nothing was changed.
    """
    run_config = _broker_config(log_dirs, config or {})
    if threads is not None and threads < 1:
        raise UsageError(f"threads: {threads}: expected at least 1")
    paths = tuple(dict.fromkeys(os.path.abspath(path) for path in run_config.log_dirs))
    for path in paths:
        if not os.path.isdir(path):
            raise UsageError(f"{path}: no such log dir")
    metadata_dir = os.path.abspath(run_config.metadata_log_dir)
    remarks: list[Remark] = []
    broker, topics = _settings(run_config, config or {}, topic_configs, (metadata_dir, *paths), remarks)
    return Engine(
        paths,
        locked_dirs=[metadata_dir] if os.path.isdir(metadata_dir) else [],
        settings=lambda: topics.settings_of,
        thread_count=broker.recovery_threads_per_data_dir if threads is None else threads,
        now_ms=time.time_ns() // 1_000_000 if now_ms is None else now_ms,
        producer_id_expiration_ms=broker.producer_id_expiration_ms,
        handoff=handoff,
        dry_run=dry_run,
        quarantine_dir=None if quarantine_dir is None else os.path.abspath(quarantine_dir),
        observers=observers,
        stop=stop,
        remarks=remarks,
    ).run()


def _broker_config(log_dirs: Sequence[str] | None, properties: Mapping[str, str]) -> BrokerConfig:
    if log_dirs is None:
        return BrokerConfig.from_properties(properties)
    if not log_dirs:
        raise UsageError("no log dir given")
    return BrokerConfig.from_properties(
        properties, overrides=(Layer("--log-dirs", {"log.dirs": ",".join(map(os.fspath, log_dirs))}),)
    )


def _settings(
    broker: BrokerConfig,
    properties: Mapping[str, str],
    topic_configs: Mapping[str, Mapping[str, str]] | None,
    dirs: tuple[str, ...],
    remarks: list[Remark],
) -> tuple[BrokerConfig, TopicConfigs]:
    """Return the broker's settings with the dynamic ones, and those of the topics."""
    metadata = _metadata(dirs, has_topic_configs=topic_configs is not None, remarks=remarks)
    broker = _with_remote_storage(broker, properties, metadata, remarks)
    node_id = broker.node_id if broker.node_id is not None else _node_id(dirs)
    broker = broker.with_dynamic(cluster_default=metadata.cluster_default, broker=metadata.broker(node_id))
    return broker, TopicConfigs(broker=broker, records=metadata.topic_configs, overrides=topic_configs or {})


def _metadata(dirs: tuple[str, ...], *, has_topic_configs: bool, remarks: list[Remark]) -> ClusterMetadata:
    folder = find_metadata_folder(dirs)
    if folder is None:
        if not has_topic_configs:
            remarks.append(
                Remark(
                    text="no __cluster_metadata-0 in the log dirs: topics get the broker's default settings. If some "
                    f"have their own index.interval.bytes or segment.index.bytes, give them with {TOPIC_CONFIG_OPTION}",
                    level="warning",
                )
            )
        return ClusterMetadata()
    try:
        return load_cluster_metadata(folder)
    except FormatError as error:
        if has_topic_configs:
            remarks.append(
                Remark(
                    text=f"{folder}: {error}; settings come from {TOPIC_CONFIG_OPTION} alone", level="warning"
                )
            )
            return ClusterMetadata()
        raise UsageError(
            f"{folder}: {error} ({error.kafka}: the node does not start). The topics' settings cannot be read from it. "
            f"Remedy: give them with {TOPIC_CONFIG_OPTION} ('{{}}' for the broker's defaults)"
        ) from error


def _with_remote_storage(
    broker: BrokerConfig, properties: Mapping[str, str], metadata: ClusterMetadata, remarks: list[Remark]
) -> BrokerConfig:
    """Take tiered storage for enabled where a topic uses it and no properties say otherwise.

    Without a properties file nobody says it; to take a tiered log for a plain one would forget where it
    starts.
    """
    if properties or broker.is_remote_log_storage_system_enabled:
        return broker
    tiered = [
        topic
        for topic, own in metadata.topic_configs.items()
        if own.get(REMOTE_STORAGE_ENABLE.name, "") == "true"
    ]
    if not tiered:
        return broker
    key = REMOTE_LOG_STORAGE_SYSTEM_ENABLE.name
    remarks.append(
        Remark(text=f"{', '.join(sorted(tiered))}: remote.storage.enable=true, so {key}=true is assumed")
    )
    return BrokerConfig.from_layers((Layer("assumed", {key: "true"}), *broker.layers))


def _node_id(dirs: tuple[str, ...]) -> int | None:
    """Return the node id in the first `meta.properties` that has one."""
    for one in dirs:
        try:
            with open(os.path.join(one, META_PROPERTIES), "rb") as file:
                node_id = read_meta_properties(file.read()).node_id
        except (OSError, FormatError):
            continue
        if node_id is not None:
            return node_id
    return None
