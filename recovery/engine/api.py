"""`recovery.recover`: the local run as a library call. Settings are read and locks are taken here."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from recovery.broker.cluster_metadata import ClusterMetadata
from recovery.broker.config import BrokerConfig, assumed_defaults
from recovery.broker.remote_storage import assumption_text, remote_storage_of
from recovery.broker.starting_release import starting_release
from recovery.broker.topic_configs import TOPIC_CONFIG_OPTION, TopicConfigs, without_effect
from recovery.engine.options import RecoverOptions
from recovery.engine.report import RecoveryReport
from recovery.engine.run import BrokerFacts, Engine
from recovery.errors import UsageError, error_text, scarcity_remedy
from recovery.logdir.choice import PartitionChoice
from recovery.logdir.dirs import (
    BrokerDirs,
    cordons_in,
    find_broker_dirs,
    refuse_missing_partitions,
    topics_in,
)
from recovery.logdir.identity import Identity, identify
from recovery.logdir.lock import LogDirLocks
from recovery.logdir.metadata_files import find_metadata_folder, load_cluster_metadata
from recovery.logdir.missing_logs import MissingLog, find_missing_logs, missing_logs_text
from recovery.logdir.older_brokers import older_version, place_problems
from recovery.logdir.quarantine_place import write_problem
from recovery.logdir.user import access_remedy
from recovery.problem import Problem
from recovery.quantity import listed_text
from recovery.read.file_system import absolute, is_there
from recovery.stop_request import StopRequest
from recovery.watch.events import Observer, Remark
from segfmt.errors import FormatError
from segfmt.filenames import CLEAN_SHUTDOWN_FILE, CLUSTER_METADATA_FOLDER, CLUSTER_METADATA_TOPIC

_MOST_NAMED = 5


def recover(
    log_dirs: Sequence[str] | None,
    options: RecoverOptions | None = None,
    *,
    observers: Iterable[Observer] = (),
    stop: StopRequest | None = None,
    **changes: Any,  # noqa: ANN401 - the fields of RecoverOptions, whose types stand there alone
) -> RecoveryReport:
    """Recover the log dirs of a stopped broker as a broker of 4.3 or 4.4 would, and hand them back.

    Args:
        log_dirs: paths; None for those in the options' `config`.
        options: None for the defaults.
        observers: notified of all progress, from the threads that make it.
        stop: lets another thread end the run at the next safe place.
        changes: fields of `RecoverOptions` that differ from *options*: `recover(dirs, dry_run=True)`.

    Returns:
        What became of every partition; `exit_code` sums it up as a number.

    Raises:
        UsageError: settings that Kafka does not accept, or no log dir.
        LogDirLockedError: a broker or another recovery is running; nothing was changed.
        UnsafeError: a folder is not a broker's, a separate metadata.log.dir cannot be locked, or an interrupted run
            had another configuration; nothing was changed.
    """
    options = replace(options or RecoverOptions(), **changes)
    options.refuse_wrong_values()
    config = options.config or {}
    dirs = find_broker_dirs(log_dirs, config, quarantine_dir=options.quarantine_dir)
    options = replace(options, quarantine_dir=dirs.quarantine_dir)
    # Locked before the metadata log is read: a running broker would still write to it.
    with LogDirLocks(dirs.locked_dirs, dry_run=options.dry_run) as locks:
        refuse_missing_partitions(options.choice(), dirs.log_dirs)
        broker = broker_facts(
            dirs, options, is_place_configured=log_dirs is None, offline=locks.offline.keys()
        )
        missing = _missing_logs(dirs, options.choice())
        broker = replace(broker, remarks=(*_warnings(*missing), *broker.remarks))
        return Engine(dirs.log_dirs, options, broker, locks, observers=observers, stop=stop).run()


def broker_facts(
    dirs: BrokerDirs, options: RecoverOptions, *, is_place_configured: bool, offline: Collection[str]
) -> BrokerFacts:
    """Return what is known of the broker from its properties, its metadata log and the contents of its log dirs.

    Args:
        is_place_configured: whether the log dirs, and the metadata log's, are those of the properties.
        offline: log dirs that cannot be read.
    """
    config, topic_configs = options.config or {}, options.topic_configs
    metadata_log_dir = absolute(dirs.broker.metadata_log_dir)
    metadata_first = tuple(dict.fromkeys((metadata_log_dir, *dirs.log_dirs)))
    configured_log_dir = dirs.broker.metadata_log_dir if is_place_configured else None
    identity = identify(metadata_first, node_id=dirs.broker.node_id, metadata_log_dir=configured_log_dir)
    remarks = _warnings(*options.config_notes, *dirs.notes)
    if metadata_log_dir not in dirs.log_dirs:
        blockers = identity.blockers.get(metadata_log_dir, ())
        remarks += _warnings(*(f"{metadata_log_dir}: {problem}" for problem in blockers))
    # Settings must not depend on an I/O error: if the metadata log's place is known, it is read in any case.
    required = {metadata_log_dir} if is_place_configured and topic_configs is None else set()
    searched = (log_dir for log_dir in metadata_first if log_dir in required or log_dir not in offline)
    topics_here = topics_in(dirs.log_dirs)
    place = "the log dirs that can be read" if offline else "the log dirs"
    metadata = _metadata(searched, topic_configs, place=place, topics_here=topics_here, remarks=remarks)
    release = starting_release(options.release, metadata, identity.node_id)
    remarks += _warnings(*filter(None, [release.warning]))
    is_complete = options.is_config_complete
    broker, topics = _settings(
        dirs.broker,
        topic_configs,
        metadata,
        identity.node_id,
        topics_here=topics_here,
        is_config_complete=is_place_configured if is_complete is None else is_complete,
        remarks=remarks,
    )
    return BrokerFacts(
        settings_of=topics.settings_of,
        thread_count=options.threads or broker.recovery_threads_per_data_dir,
        producer_id_expiration_ms=broker.producer_id_expiration_ms,
        release=release,
        cordoned_log_dirs=cordons_in(dirs, metadata, identity.node_id).log_dirs,
        problems=_problems(identity, dirs, metadata, config, force=options.force),
        blockers=identity.blockers,
        remarks=tuple(remarks),
    )


def _missing_logs(dirs: BrokerDirs, is_chosen: PartitionChoice) -> Iterator[str]:
    """Yield a line on each log dir from which chosen logs have vanished."""
    metadata_dirs = (absolute(dirs.broker.metadata_log_dir), *dirs.log_dirs)
    by_log_dir: dict[str, list[MissingLog]] = {}
    for log in find_missing_logs(dirs.log_dirs, metadata_dirs=metadata_dirs):
        if is_chosen(log):
            by_log_dir.setdefault(log.log_dir, []).append(log)
    yield from map(missing_logs_text, by_log_dir.values())


def _warnings(*texts: str) -> list[Remark]:
    return [Remark(text=text, level="warning") for text in texts]


def _problems(
    identity: Identity,
    dirs: BrokerDirs,
    metadata: ClusterMetadata | None,
    config: Mapping[str, str],
    *,
    force: bool,
) -> dict[str, tuple[Problem, ...]]:
    """Return, by log dir, why it must not be touched: because of its owner, or of the place of its quarantine."""
    older = older_version(metadata, identity.node_id, config)
    misplaced = place_problems(dirs.log_dirs, older) if dirs.quarantine_dir is None else {}
    return {
        log_dir: (
            *identity.problems.get(log_dir, ()),
            *misplaced.get(log_dir, ()),
            *_quarantine_problems(log_dir, dirs.quarantine_dir, force=force),
        )
        for log_dir in dirs.log_dirs
    }


def _quarantine_problems(log_dir: str, quarantine_dir: str | None, *, force: bool) -> Iterator[Problem]:
    """Yield why nothing of a log dir can be saved; if it has a marker, there is most likely nothing to save."""
    with suppress(OSError):  # it goes offline for that
        if force or not is_there(os.path.join(log_dir, CLEAN_SHUTDOWN_FILE)):
            problem = write_problem(log_dir, quarantine_dir)
            if problem is not None:
                yield problem


def _settings(
    broker: BrokerConfig,
    topic_configs: Mapping[str, Mapping[str, str]] | None,
    metadata: ClusterMetadata | None,
    node_id: int | None,
    *,
    topics_here: frozenset[str],
    is_config_complete: bool,
    remarks: list[Remark],
) -> tuple[BrokerConfig, TopicConfigs]:
    """Return the broker's settings, the dynamic ones included, and those of the topics."""
    if metadata is None and topic_configs is None and is_config_complete:
        _refuse_missing_metadata_dir(broker)
    known_metadata = ClusterMetadata() if metadata is None else metadata
    remote_storage = remote_storage_of(
        broker, (known_metadata.topic_configs, topic_configs or {}), is_config_complete=is_config_complete
    )
    broker = remote_storage.broker
    remarks += _warnings(*without_effect(topic_configs or {}, topics_here))
    if not is_config_complete:
        dynamic = (known_metadata.cluster_default, known_metadata.broker(node_id))
        assumed = assumed_defaults(*(layer.values for layer in broker.layers), *dynamic)
        text = f"no configuration of the broker (-c): Kafka's defaults stand for {', '.join(assumed)}"
        remarks += [Remark(text=text)] if assumed else []
    if fault := broker.dynamic_fault(known_metadata.broker(node_id)):
        remarks += _warnings(
            f"the dynamic settings of broker {node_id} count for nothing, as for the broker: {fault}"
        )
    broker = broker.with_dynamic(
        cluster_default=known_metadata.cluster_default, broker=known_metadata.broker(node_id)
    )
    topics = TopicConfigs(
        broker=broker,
        records=known_metadata.topic_configs,
        overrides=topic_configs or {},
        topic_ids=None if metadata is None else metadata.topic_ids,
        is_metadata_whole=known_metadata.damage is None,
        is_remote_storage_known=remote_storage.is_known,
        is_config_complete=is_config_complete,
    )
    here = [topic for topic in remote_storage.wanted_by if topic in topics_here]
    if tiered := [topic for topic in here if topics.settings_of(topic).remote_log_enabled]:
        remarks += _warnings(assumption_text(tiered))
    return broker, topics


def _refuse_missing_metadata_dir(broker: BrokerConfig) -> None:
    """Refuse to run if the metadata log has a place of its own and is not there: its disk may not be mounted."""
    if broker.metadata_log_dir not in broker.log_dirs:
        raise UsageError(
            f"metadata.log.dir {broker.metadata_log_dir}: no {CLUSTER_METADATA_FOLDER} there, which has the topics' "
            "settings. Nothing was changed. Remedy: check the path, and that its file system is mounted; or give the "
            f"settings with {TOPIC_CONFIG_OPTION} ('{{}}' for the broker's defaults)"
        )


def _missing_metadata(topics: list[str], place: str) -> Remark:
    """Return what is assumed of *topics*, or of all topics if there are none, without a metadata log in *place*."""
    named = f"topics {listed_text(topics, _MOST_NAMED)}" if topics else "topics"
    return Remark(
        text=f"no {CLUSTER_METADATA_FOLDER} in {place}: {named} get the "
        "broker's default settings. If some have their own index.interval.bytes, segment.index.bytes or preallocate, "
        f"give them with {TOPIC_CONFIG_OPTION}",
        level="warning",
    )


def _metadata(
    dirs: Iterable[str],
    topic_configs: Mapping[str, Mapping[str, str]] | None,
    *,
    place: str,
    topics_here: frozenset[str],
    remarks: list[Remark],
) -> ClusterMetadata | None:
    """Return what the metadata log in *place*, which is *dirs*, says, None if there is none, or none that can be read.

    Raises:
        UsageError: it cannot be read, and no *topic_configs* are given in its place.
    """
    remedy = f"give them with {TOPIC_CONFIG_OPTION} ('{{}}' for the broker's defaults)"

    def unreadable(what: str, why: str) -> None:
        if topic_configs is None:
            raise UsageError(f"{what}: {why}")
        text = f"{what}; settings come from {TOPIC_CONFIG_OPTION} alone"
        remarks.append(Remark(text=text, level="warning"))

    try:
        folder = find_metadata_folder(dirs)
    except OSError as error:
        if isinstance(error, PermissionError):
            remedy = f"{access_remedy(error.filename or place)}, or {remedy}"
        elif (more := scarcity_remedy(error)) is not None:
            remedy = more
        why = f"the topics' settings are in the metadata log, which cannot be read. Remedy: {remedy}"
        unreadable(error_text(error), why)
        return None
    if folder is None:
        without_config = sorted(topics_here - set(topic_configs or {}) - {CLUSTER_METADATA_TOPIC})
        if without_config or not topic_configs:
            remarks.append(_missing_metadata(without_config if topic_configs else [], place))
        return None
    try:
        metadata = load_cluster_metadata(folder)
    except FormatError as error:
        why = f"the topics' settings cannot be read from it. Remedy: {remedy}"
        outcome = (
            f"{error.kafka}: the node does not start"
            if error.kafka
            else "a node waits for ever, or starts without it"
        )
        unreadable(f"{folder}: {error} ({outcome})", why)
        return None
    except PermissionError as error:
        why = (
            f"the topics' settings are in it. Remedy: {access_remedy(error.filename or folder)}, or {remedy}"
        )
        unreadable(error_text(error), why)
        return None
    if metadata.damage is not None:
        text = f"{folder}: settings are read up to offset {metadata.end_offset}: {metadata.damage}"
        remarks.append(Remark(text=text))
    if not metadata.topic_ids and (others := sorted(topics_here - {CLUSTER_METADATA_TOPIC})):
        text = (
            f"{folder}: it has no topic at all, and there are logs of {listed_text(others, _MOST_NAMED)}: has it lost "
            f"records? They get the broker's default settings. Remedy: {remedy}"
        )
        remarks.append(Remark(text=text, level="warning"))
    return metadata
