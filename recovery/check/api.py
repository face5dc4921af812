"""`recovery.verify`: the library call. It only reads, and writes nothing, not even a lock file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from recovery.broker.cluster_metadata import ClusterMetadata
from recovery.broker.starting_release import starting_release
from recovery.broker.topic_configs import TOPIC_CONFIG_OPTION, TopicConfigs, without_effect
from recovery.check.options import VerifyOptions
from recovery.check.report import VerifyReport
from recovery.check.run import BrokerFacts, TopicFacts, VerifyRun
from recovery.errors import UsageError
from recovery.logdir.dirs import BrokerDirs, cordons_in, find_broker_dirs, topics_in
from recovery.logdir.identity import identify
from recovery.logdir.metadata_files import look_for_metadata
from recovery.logdir.missing_logs import find_missing_logs
from recovery.read.file_system import absolute
from recovery.stop_request import StopRequest
from recovery.watch.events import Observer, Remark
from recovery.write.interruptions import interruptions
from segfmt.filenames import CLUSTER_METADATA_TOPIC

_COMPACT = "compact"


def verify(
    log_dirs: Sequence[str] | None,
    options: VerifyOptions | None = None,
    *,
    observers: Iterable[Observer] = (),
    stop: StopRequest | None = None,
    **changes: Any,  # noqa: ANN401 - the fields of VerifyOptions, whose types stand there alone
) -> VerifyReport:
    """Check every file of log dirs, beside a live broker as well, and change nothing.

    Args:
        log_dirs: paths; None for those in the options' `config`.
        options: None for the defaults.
        observers: notified of all progress.
        stop: lets another thread end the run.
        changes: fields of `VerifyOptions` that differ from *options*: `verify(dirs, deep=True)`.

    Returns:
        One verdict per file; `exit_code` sums them up as a number.

    Raises:
        UsageError: settings that Kafka does not accept; a log dir that is missing, relative, or named twice; a topic
            or partition that is in none of them.
    """
    options = replace(options or VerifyOptions(), **changes)
    options.refuse_wrong_values()
    dirs = find_broker_dirs(log_dirs, options.config or {}, may_be_foreign=True, may_be_missing="some")
    return VerifyRun(
        dirs.log_dirs, options, _broker_facts(dirs, options), observers=observers, stop=stop
    ).run()


def _broker_facts(dirs: BrokerDirs, options: VerifyOptions) -> BrokerFacts:
    """Return what is known of the broker from its properties and its metadata log."""
    broker = dirs.broker
    overrides, topics_here = options.topic_configs or {}, topics_in(dirs.log_dirs)
    texts = (
        *options.config_notes,
        *dirs.notes,
        *without_effect(overrides, topics_here),
        *interruptions(dirs.log_dirs),
    )
    metadata_first = (absolute(broker.metadata_log_dir), *dirs.log_dirs)
    metadata, place = look_for_metadata(metadata_first)
    if metadata is None:
        texts += (f"{place}: gaps in the offsets are judged only in topics that {TOPIC_CONFIG_OPTION} names",)
    remarks = [Remark(text=text, level="warning") for text in texts]
    identity = identify(metadata_first, node_id=broker.node_id, metadata_log_dir=None)
    release = starting_release(options.release, metadata, identity.node_id)
    remarks += [Remark(text=text, level="warning") for text in (release.warning,) if text is not None]
    configs = TopicConfigs(
        broker=broker if metadata is None else broker.with_dynamic(cluster_default=metadata.cluster_default),
        records={} if metadata is None else metadata.topic_configs,
        overrides=overrides,
        topic_ids=None if metadata is None else metadata.topic_ids,
        is_metadata_whole=metadata is None or metadata.damage is None,
    )
    remarks += _wrong_settings(configs, topics_here)
    return BrokerFacts(
        topic_facts=lambda topic: _topic_facts(topic, configs, metadata),
        thread_count=options.threads or broker.recovery_threads_per_data_dir,
        producer_id_expiration_ms=broker.producer_id_expiration_ms,
        node_id=broker.node_id,
        release=release,
        cordoned_log_dirs=cordons_in(dirs, metadata, identity.node_id).log_dirs,
        missing_logs=tuple(find_missing_logs(dirs.log_dirs, metadata_dirs=metadata_first)),
        remarks=tuple(remarks),
    )


def _wrong_settings(configs: TopicConfigs, topics: Iterable[str]) -> Iterator[Remark]:
    """Yield remarks on topics whose settings in the metadata log are invalid.

    Raises:
        UsageError: such settings are given for this run.
    """
    for topic in sorted(topics):
        try:
            configs.config_of(topic)
        except UsageError as error:
            if topic in configs.overrides:
                raise
            yield Remark(text=f"the settings of {topic} are unknown: {error}", level="warning")


def _topic_facts(topic: str, configs: TopicConfigs, metadata: ClusterMetadata | None) -> TopicFacts:
    """Return what is known of a topic; what an invalid setting would decide is unknown."""
    try:
        config = configs.config_of(topic)
    except UsageError:
        return TopicFacts()
    is_known = topic in configs.overrides or (metadata is not None and topic in metadata.topic_ids)
    is_plain = is_known and not topic.startswith("__") and _COMPACT not in config.cleanup_policy
    return TopicFacts(
        is_contiguous=is_plain or topic == CLUSTER_METADATA_TOPIC,
        is_preallocated=config.preallocate,
        segment_index_bytes=config.segment_index_bytes if is_known else None,
        topic_id=None if metadata is None else metadata.topic_ids.get(topic),
        is_gone=configs.is_gone(topic),
    )
