"""`recovery.recover`: the local run as a library call. Settings and locks are made ready here."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from recovery.broker_dirs import find_broker_dirs
from recovery.cluster_metadata import ClusterMetadata
from recovery.config import REMOTE_LOG_STORAGE_SYSTEM_ENABLE, REMOTE_STORAGE_ENABLE, BrokerConfig
from recovery.engine import Engine
from recovery.errors import UsageError
from recovery.identity import identify
from recovery.lock import LogDirLocks
from recovery.metadata_files import find_metadata_folder, load_cluster_metadata
from recovery.observer import Observer, Remark
from recovery.pool import Processes
from recovery.rate_limit import refuse_wrong_rate
from recovery.report import RecoveryReport
from recovery.setting import Layer
from recovery.stop_request import StopRequest
from recovery.topic_configs import TOPIC_CONFIG_OPTION, TopicConfigs
from segfmt.errors import FormatError


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
    keep_deleted: bool = False,
    force: bool = False,
    repair: bool = False,
    restart: bool = False,
    max_bytes_per_second: int | None = None,
    drop_cache: bool = False,
    processes: Processes = "auto",
    observers: Iterable[Observer] = (),
    stop: StopRequest | None = None,
    acknowledge: bool = True,
) -> RecoveryReport:
    """Recover the log dirs of a stopped broker as a 4.3.1 broker would, and hand them back.

    Args:
        log_dirs: paths; None for those in *config*.
        config: the broker's properties, as in its server.properties.
        topic_configs: settings by topic; they win over those in the metadata log.
        now_ms: the clock by which producers expire, ms since 1970; None for now, or for that of an interrupted run.
        dry_run: change nothing, say what would be done.
        handoff: what the broker finds afterwards.
        threads: threads for each log dir; None for `num.recovery.threads.per.data.dir`.
        quarantine_dir: where cut bytes go; None for a sibling of each log dir.
        keep_deleted: whether `.deleted` files found at the start, the broker's own pending deletions, are kept in
            quarantine before they go.
        force: recover as after an unclean shutdown, whatever the markers say.
        repair: first move to quarantine what keeps a broker from loading, where that costs no batch.
        restart: forget what an interrupted run has done, and begin anew.
        max_bytes_per_second: read no more of the `.log` files, all threads together; None for no limit.
        drop_cache: what had to be read from disk leaves the page cache behind the reader.
        processes: whether each log dir gets a process of its own: `auto` where there are so many logs that it pays,
            `always` or `never`. With a limit on bytes a second there is one process.
        observers: told of all progress, from the threads that make it.
        stop: lets somebody else end the run at the next safe place.
        acknowledge: whether the cuts in the report count as told once it is returned. Who hands the report on does that
            when it has arrived: `recovery.cut_ledger.acknowledge`.

    Returns:
        What became of every partition; `exit_code` says it in a number.

    Raises:
        UsageError: settings that Kafka does not accept, or no log dir.
        LogDirLockedError: a broker runs, or another recovery; nothing was changed.
        UnsafeError: a folder is not a broker's, a separate metadata.log.dir cannot be locked, or an interrupted run
            had another configuration; nothing was changed.
    """
    if threads is not None and threads < 1:
        raise UsageError(f"--threads {threads}: expected at least 1")
    refuse_wrong_rate(max_bytes_per_second)
    dirs = find_broker_dirs(log_dirs, config or {}, quarantine_dir=quarantine_dir)
    run_config, paths = dirs.broker, dirs.log_dirs
    remarks: list[Remark] = []
    # Locked before the metadata log is read: a broker would still write to it.
    with LogDirLocks(dirs.locked_dirs, dry_run=dry_run) as locks:
        metadata_first = tuple(dict.fromkeys((os.path.abspath(run_config.metadata_log_dir), *paths)))
        identity = identify(
            metadata_first,
            node_id=run_config.node_id,
            metadata_log_dir=run_config.metadata_log_dir if log_dirs is None else None,
        )
        remarks += [Remark(text=note, level="warning") for note in identity.notes]
        node_id = identity.node_id if run_config.node_id is None else run_config.node_id
        broker, topics = _settings(run_config, config or {}, topic_configs, metadata_first, node_id, remarks)
        return Engine(
            paths,
            settings=lambda: topics.settings_of,
            thread_count=broker.recovery_threads_per_data_dir if threads is None else threads,
            now_ms=now_ms,
            producer_id_expiration_ms=broker.producer_id_expiration_ms,
            handoff=handoff,
            dry_run=dry_run,
            quarantine_dir=dirs.quarantine_dir,
            keep_deleted=keep_deleted,
            force=force,
            repair=repair,
            problems=identity.problems,
            restart=restart,
            observers=observers,
            stop=stop,
            remarks=remarks,
            locks=locks,
            max_bytes_per_second=max_bytes_per_second,
            drop_cache=drop_cache,
            processes=processes,
            acknowledge=acknowledge,
        ).run()


def _settings(
    broker: BrokerConfig,
    properties: Mapping[str, str],
    topic_configs: Mapping[str, Mapping[str, str]] | None,
    dirs: tuple[str, ...],
    node_id: int | None,
    remarks: list[Remark],
) -> tuple[BrokerConfig, TopicConfigs]:
    """Return the broker's settings with the dynamic ones, and those of the topics."""
    metadata = _metadata(dirs, has_topic_configs=topic_configs is not None, remarks=remarks)
    broker = _with_remote_storage(broker, properties, metadata, remarks)
    broker = broker.with_dynamic(cluster_default=metadata.cluster_default, broker=metadata.broker(node_id))
    topics = TopicConfigs(
        broker=broker,
        records=metadata.topic_configs,
        topics=frozenset(metadata.topic_ids),
        overrides=topic_configs or {},
    )
    return broker, topics


def _metadata(dirs: tuple[str, ...], *, has_topic_configs: bool, remarks: list[Remark]) -> ClusterMetadata:
    folder = find_metadata_folder(dirs)
    if folder is None:
        if not has_topic_configs:
            remarks.append(
                Remark(
                    text="no __cluster_metadata-0 in the log dirs: topics get the broker's default settings. "
                    "If some have their own index.interval.bytes or segment.index.bytes, "
                    f"give them with {TOPIC_CONFIG_OPTION}",
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
            f"{folder}: {error} ({error.kafka}: the node does not start). The topics' settings cannot be "
            f"read from it. Remedy: give them with {TOPIC_CONFIG_OPTION} ('{{}}' for the broker's defaults)"
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
