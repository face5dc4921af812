"""`recovery.estimate`: the library call. It only reads: nothing is written, created or locked."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from recovery.broker.cluster_metadata import ClusterMetadata
from recovery.broker.config import RECOVERY_THREADS, BrokerConfig
from recovery.broker.remote_storage import assumption_text, remote_storage_of
from recovery.broker.starting_release import starting_release
from recovery.broker.topic_configs import TopicConfigs, without_effect
from recovery.engine.pool import processes_pay
from recovery.errors import UsageError
from recovery.forecast.cost import (
    REFERENCE_INTERPRETER_S,
    LogDirWork,
    LogWork,
    Machine,
    broker_seconds,
    slowdown,
    tool_seconds,
)
from recovery.forecast.options import EstimateOptions
from recovery.forecast.report import EstimateReport, LogDirEstimate, SampleSummary, TopicEstimate
from recovery.forecast.sample import Sample, take_sample
from recovery.forecast.survey import LogDirSurvey, LogToRecover, survey_log_dirs
from recovery.load.model import LogSettings
from recovery.load.release import Release
from recovery.logdir.dirs import (
    CHECK_MOUNT,
    NOT_A_LOG_DIR,
    BrokerDirs,
    find_broker_dirs,
    foreign_among,
    topics_in,
)
from recovery.logdir.identity import identify
from recovery.logdir.metadata_files import look_for_metadata
from recovery.problem import Note, Problem
from recovery.quantity import bytes_text
from recovery.read.file_system import absolute
from recovery.read.kernel_start import start_kernels
from recovery.watch.tally import Tally
from recovery.write.interruptions import interruptions
from segfmt.filenames import LOG_SUFFIX

_NOTABLE_METADATA_BYTES = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class _BrokerFacts:
    """What is known of the broker that would start.

    Attributes:
        settings_of: the settings of a topic's logs.
        thread_count: threads for each log dir.
        problems: by log dir.
        notes: what was assumed, ignored or missing.
    """

    settings_of: Callable[[str], LogSettings]
    thread_count: int
    release: Release
    problems: dict[str, tuple[Problem, ...]]
    notes: tuple[Note, ...]


def estimate(
    log_dirs: Sequence[str] | None,
    options: EstimateOptions | None = None,
    *,
    tally: Tally | None = None,
    **changes: Any,  # noqa: ANN401 - the fields of EstimateOptions, whose types stand there alone
) -> EstimateReport:
    """Return what a restart of a broker would have to recover now, as if it were killed now, and how long that takes.

    A broker may run on the log dirs meanwhile.

    Args:
        log_dirs: paths; None for those in the options' `config`.
        options: None for the defaults.
        tally: counts the logs that are looked at.
        changes: fields of `EstimateOptions` that differ from *options*: `estimate(dirs, sample_bytes=0)`.

    Raises:
        UsageError: settings that Kafka does not accept; a log dir that is missing, relative, named twice, or a folder
            that no broker has ever opened.
    """
    options = replace(options or EstimateOptions(), **changes)
    options.refuse_wrong_values()
    started_s, now_ms = time.monotonic(), time.time_ns() // 1_000_000
    dirs = find_broker_dirs(log_dirs, options.config or {}, may_be_foreign=True)
    if (path := foreign_among(dirs.log_dirs)) is not None:
        raise UsageError(f"{path}: {NOT_A_LOG_DIR}. {CHECK_MOUNT}")
    facts = _broker_facts(dirs, options, is_place_configured=log_dirs is None)
    surveys = survey_log_dirs(
        dirs.log_dirs,
        settings_of=facts.settings_of,
        release=facts.release,
        now_ms=now_ms,
        known_problems=facts.problems,
        tally=tally,
    )
    logs = [log for survey in surveys for log in survey.logs]
    sample = Sample()
    if options.sample_bytes:
        start_kernels()
        sample = take_sample(logs, most_bytes=options.sample_bytes, seed=options.seed)
    is_measured = bool(sample.read_bytes) or (
        options.sample_bytes > 0 and not any(log.size_bytes for log in logs)
    )
    machine = _machine(sample, facts.thread_count * len(surveys)) if is_measured else None
    works = [_work(survey, facts.thread_count) for survey in surveys]
    has_processes = processes_pay([work.file_count for work in works])
    notes = (Note(text=note) for survey in surveys for note in survey.notes)
    return EstimateReport(
        now_ms=now_ms,
        log_dirs=tuple(_estimate_of(*pair, machine) for pair in zip(surveys, works, strict=True)),
        topics=_topics(logs),
        sample=SampleSummary(
            read_bytes=sample.read_bytes,
            batch_count=sample.batch_count,
            cached_bytes=sample.read_bytes - sample.absent_bytes,
            bytes_per_second=sample.bytes_per_second,
        ),
        tool_s=None if machine is None else tool_seconds(works, machine, has_processes=has_processes),
        broker=None if machine is None else broker_seconds(works, machine),
        notes=(*facts.notes, *notes),
        duration_ms=int((time.monotonic() - started_s) * 1000),
    )


def _machine(sample: Sample, threads: int) -> Machine:
    """Return what *sample* says of this machine, on which *threads* would recover."""
    read_bytes = max(sample.read_bytes, 1)
    return Machine(
        cpu_count=len(os.sched_getaffinity(0)),
        slowness=sample.interpreter_s / REFERENCE_INTERPRETER_S,
        slowdown=slowdown(
            contention=sample.contention,
            running=sample.running,
            threads=threads,
            cpu_count=os.cpu_count() or 1,
        ),
        byte_s=sample.scan_cpu_s / read_bytes + sample.cached_cpu_s / max(sample.cached_bytes, 1),
        disk_byte_s=sample.disk_s / max(sample.absent_bytes, 1),
        absent_share=sample.absent_bytes / read_bytes,
        byte_batches=sample.batch_count / read_bytes,
    )


def _work(survey: LogDirSurvey, thread_count: int) -> LogDirWork:
    return LogDirWork(
        threads=thread_count,
        log_count=survey.log_count,
        file_count=survey.file_count,
        logs=[_log_work(log) for log in survey.logs],
    )


def _log_work(log: LogToRecover) -> LogWork:
    again = [segment for segment in log.segments if segment.is_unflushed and segment.is_reindexed]
    return LogWork(
        segment_count=len(log.segments),
        size_bytes=log.size_bytes,
        broker_segments=len(log.segments) + len(again),
        broker_bytes=log.size_bytes + sum(segment.size_bytes for segment in again),
    )


def _estimate_of(survey: LogDirSurvey, work: LogDirWork, machine: Machine | None) -> LogDirEstimate:
    return LogDirEstimate(
        log_dir=survey.log_dir,
        is_live=survey.is_live,
        had_clean_shutdown=survey.had_clean_shutdown,
        log_count=survey.log_count,
        logs_to_recover=len(survey.logs),
        segment_count=sum(log.segment_count for log in work.logs),
        size_bytes=work.size_bytes,
        threads=work.threads,
        tool_s=None if machine is None else tool_seconds([work], machine, has_processes=False),
        broker=None if machine is None else broker_seconds([work], machine),
        problems=survey.problems,
        error=survey.error,
    )


def _topics(logs: Sequence[LogToRecover]) -> tuple[TopicEstimate, ...]:
    """Return what is recovered of each topic, the largest first."""
    by_topic: dict[str, list[LogToRecover]] = {}
    for log in logs:
        by_topic.setdefault(log.topic, []).append(log)
    topics = [
        TopicEstimate(
            topic=topic,
            log_count=len(own),
            segment_count=sum(len(log.segments) for log in own),
            size_bytes=sum(log.size_bytes for log in own),
        )
        for topic, own in by_topic.items()
    ]
    return tuple(sorted(topics, key=lambda one: (-one.size_bytes, -one.segment_count, one.topic)))


# -- the broker -----------------------------------------------------------------------------------------------


def _broker_facts(dirs: BrokerDirs, options: EstimateOptions, *, is_place_configured: bool) -> _BrokerFacts:
    """Return what is known of the broker from its properties, its metadata log and its log dirs.

    Threads are those that a restart begins with: a broker takes its dynamic settings from the newest snapshot of the
    metadata log before it loads its logs, and what was set later only afterwards.

    Kafka: BrokerServer.startup (DynamicBrokerConfig.readDynamicBrokerConfigsFromSnapshot comes before LogManager),
    BrokerMetadataPublisher.onMetadataUpdate (initializeManagers comes before dynamicConfigPublisher).
    """
    metadata_log_dir = absolute(dirs.broker.metadata_log_dir)
    metadata_first = tuple(dict.fromkeys((metadata_log_dir, *dirs.log_dirs)))
    configured = dirs.broker.metadata_log_dir if is_place_configured else None
    identity = identify(metadata_first, node_id=dirs.broker.node_id, metadata_log_dir=configured)
    overrides, topics_here = options.topic_configs or {}, topics_in(dirs.log_dirs)
    texts = [
        *options.config_notes,
        *dirs.notes,
        *without_effect(overrides, topics_here),
        *interruptions(dirs.log_dirs),
    ]
    metadata = _metadata(metadata_first, texts)
    release = starting_release(options.release, metadata, identity.node_id)
    texts += [release.warning] if release.warning else []
    topic_records = {} if metadata is None else metadata.topic_configs
    is_complete = is_place_configured if options.is_config_complete is None else options.is_config_complete
    remote_storage = remote_storage_of(
        dirs.broker, (topic_records, overrides), is_config_complete=is_complete
    )
    broker = remote_storage.broker
    if metadata is not None:
        texts += _later_threads(broker, metadata, identity.node_id)
        own = metadata.broker(identity.node_id)
        broker = broker.with_dynamic(cluster_default=metadata.cluster_default, broker=own)
    configs = TopicConfigs(
        broker=broker,
        records=topic_records,
        overrides=overrides,
    )
    for topic in overrides:
        configs.config_of(topic)  # what was given for this run must be right
    here = [topic for topic in remote_storage.wanted_by if topic in topics_here]
    if tiered := [topic for topic in here if _settings_of(topic, configs).remote_log_enabled]:
        texts.append(assumption_text(tiered))
    return _BrokerFacts(
        settings_of=lambda topic: _settings_of(topic, configs),
        thread_count=broker.recovery_threads_per_data_dir,
        release=release.release,
        problems=identity.all_problems,
        notes=tuple(Note(text=text) for text in texts),
    )


def _settings_of(topic: str, configs: TopicConfigs) -> LogSettings:
    """Return the settings of a topic's logs; Kafka's defaults where those in the metadata log are invalid."""
    try:
        config = configs.config_of(topic)
    except UsageError:
        return LogSettings()
    is_enabled = configs.broker.is_remote_log_storage_system_enabled
    return config.settings(topic, is_remote_log_storage_system_enabled=is_enabled)


def _metadata(dirs: Sequence[str], texts: list[str]) -> ClusterMetadata | None:
    """Return what the metadata log says, None if there is none or it cannot be read; *texts* get remarks on it."""
    metadata, place = look_for_metadata(dirs)
    if metadata is None:
        texts.append(f"{place}: the settings are those given to this command, and Kafka's defaults")
    elif (size_bytes := _log_bytes(place)) >= _NOTABLE_METADATA_BYTES:
        texts.append(f"before its other logs a node reads {place}, {bytes_text(size_bytes)}, at each start")
    return metadata


def _log_bytes(folder: str) -> int:
    with suppress(FileNotFoundError), os.scandir(folder) as entries:  # a broker may be deleting a segment
        return sum(entry.stat().st_size for entry in entries if entry.name.endswith(LOG_SUFFIX))
    return 0


def _later_threads(broker: BrokerConfig, metadata: ClusterMetadata, node_id: int | None) -> list[str]:
    """Return a remark if the number of threads was changed after the newest snapshot of the metadata log."""
    at_load = broker.with_dynamic(
        cluster_default=metadata.cluster_default, broker=metadata.broker(node_id)
    ).recovery_threads_per_data_dir
    later = broker.with_dynamic(
        cluster_default=metadata.cluster_default_after_load,
        broker=metadata.brokers_after_load.get(str(node_id), {}),
    ).recovery_threads_per_data_dir
    if later == at_load:
        return []
    return [
        f"{RECOVERY_THREADS.name} was set to {later} at run time, after the newest snapshot of the metadata log: a "
        f"restart loads its logs with {at_load}. Remedy: set it in server.properties"
    ]
