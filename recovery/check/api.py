"""`recovery.verify`: the scrub as a library call. It reads, and writes nothing, not even a lock file."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from recovery.broker.cluster_metadata import ClusterMetadata
from recovery.broker.topic_configs import TopicConfigs, without_effect
from recovery.check.choice import PartitionChoice
from recovery.check.report import ScrubReport
from recovery.check.run import ScrubRun, TopicFacts
from recovery.errors import UsageError
from recovery.logdir.dirs import find_broker_dirs, topics_in
from recovery.logdir.metadata_files import find_metadata_folder, load_cluster_metadata
from recovery.read.file_system import absolute
from recovery.read.rate_limit import refuse_wrong_rate
from recovery.stop_request import StopRequest
from recovery.watch.events import Observer, Remark
from segfmt.errors import FormatError
from segfmt.filenames import CLUSTER_METADATA_TOPIC

_COMPACT = "compact"


def verify(
    log_dirs: Sequence[str] | None,
    *,
    config: Mapping[str, str] | None = None,
    config_notes: Iterable[str] = (),
    topic_configs: Mapping[str, Mapping[str, str]] | None = None,
    deep: bool = False,
    threads: int | None = None,
    max_bytes_per_second: int | None = None,
    drop_cache: bool = False,
    topics: Collection[str] = (),
    partitions: Collection[str] = (),
    now_ms: int | None = None,
    observers: Iterable[Observer] = (),
    stop: StopRequest | None = None,
) -> ScrubReport:
    """Check every file of log dirs, beside a live broker as well, and change nothing.

    Args:
        log_dirs: paths; None for those in *config*.
        config: the broker's properties, as in its server.properties.
        config_notes: what is to be said of the place they are from; notes of the run.
        topic_configs: settings by topic; they win over those in the metadata log.
        deep: open and parse every record.
        threads: threads for each log dir; None for `num.recovery.threads.per.data.dir`.
        max_bytes_per_second: limit on reads over all threads together; None for none.
        topics: only these; all by default.
        partitions: only these folders ("orders-3"), besides *topics*.
        now_ms: the clock by which producers expire, ms since 1970; None for now.
        observers: told of all progress.
        stop: lets somebody else end the run.

    Returns:
        One verdict a file; `exit_code` says it in a number.

    Raises:
        UsageError: settings that Kafka does not accept; a log dir that is missing, relative, or named twice; a topic
            or partition that is in none of them.
    """
    dirs = find_broker_dirs(log_dirs, config or {}, may_be_foreign=True)
    broker = dirs.broker
    if threads is not None and threads < 1:
        raise UsageError(f"--threads {threads}: expected at least 1")
    refuse_wrong_rate(max_bytes_per_second)
    overrides, topics_here = topic_configs or {}, topics_in(dirs.log_dirs)
    texts = (*config_notes, *dirs.notes, *without_effect(overrides, topics_here))
    remarks = [Remark(text=text, level="warning") for text in texts]
    metadata = _metadata((absolute(broker.metadata_log_dir), *dirs.log_dirs), remarks)
    configs = TopicConfigs(
        broker=broker if metadata is None else broker.with_dynamic(cluster_default=metadata.cluster_default),
        records={} if metadata is None else metadata.topic_configs,
        overrides=overrides,
    )
    remarks += _wrong_settings(configs, topics_here)
    return ScrubRun(
        dirs.log_dirs,
        topic_facts=lambda topic: _topic_facts(topic, configs, metadata),
        choice=PartitionChoice(topics, partitions),
        thread_count=broker.recovery_threads_per_data_dir if threads is None else threads,
        bytes_per_second=max_bytes_per_second,
        drops_cache=drop_cache,
        is_deep=deep,
        now_ms=time.time_ns() // 1_000_000 if now_ms is None else now_ms,
        expiration_ms=broker.producer_id_expiration_ms,
        observers=observers,
        stop=stop,
        remarks=remarks,
        node_id=broker.node_id,
    ).run()


def _wrong_settings(configs: TopicConfigs, topics: Iterable[str]) -> Iterator[Remark]:
    """Yield what is to be said of topics whose settings in the metadata log are no settings.

    Raises:
        UsageError: such settings are given for this run.
    """
    for topic in sorted(topics):
        try:
            configs.config_of(topic)
        except UsageError as error:
            if topic in configs.overrides:
                raise
            yield Remark(text=f"nothing is known of the settings of {topic}: {error}", level="warning")


def _topic_facts(topic: str, configs: TopicConfigs, metadata: ClusterMetadata | None) -> TopicFacts:
    """Return what is known of a topic; what a wrong setting would say is not known."""
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
    )


def _metadata(dirs: Sequence[str], remarks: list[Remark]) -> ClusterMetadata | None:
    """Return what the metadata log says of topics, None where there is none or it cannot be read."""
    words = "no __cluster_metadata-0 in the log dirs"
    try:
        folder = find_metadata_folder(dirs)
        if folder is not None:
            words = folder
            return load_cluster_metadata(folder)
    except (FormatError, OSError) as error:
        words = f"{words}: {error}"
    remarks.append(
        Remark(
            text=f"{words}: which topics are compacted is not known, so gaps in the offsets are not judged",
            level="warning",
        )
    )
    return None
