"""The figures of tiered topics in Prometheus' text format.

Those that a broker has, too, are by topic, under the names that the usual jmx_exporter rules give them; all others, and
all by partition, are under `kafka_log_recovery_remote_`. What is not known has no sample.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

from prometheus_client import generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

from recovery.archive.tiering.report import TieredPartition, TieredTopic, TieringReport

_T = TypeVar("_T", TieredPartition, TieredTopic)
BROKER_PREFIX: Final = "kafka_server_brokertopicmetrics_"
OWN_PREFIX: Final = "kafka_log_recovery_remote_"

_BROKERS: Final = {
    "remote_copy_lag_bytes": ("remotecopylagbytes", "Bytes of closed segments that are not copied."),
    "remote_copy_lag_segments": ("remotecopylagsegments", "Closed segments that are not copied."),
    "remote_delete_lag_bytes": ("remotedeletelagbytes", "Bytes of remote segments to be deleted."),
    "remote_delete_lag_segments": ("remotedeletelagsegments", "Remote segments to be deleted."),
    "remote_log_size_bytes": ("remotelogsizebytes", "Bytes of the remote segments' logs."),
    "remote_log_metadata_count": ("remotelogmetadatacount", "Remote segments that are known."),
    "remote_log_size_computation_time_ms": (
        "remotelogsizecomputationtime",
        "Milliseconds to add up the size of the remote log.",
    ),
}
_OWN: Final = {
    "remote_copy_lag_bytes": ("copy_lag_bytes", "Bytes of closed segments that are not copied."),
    "remote_copy_lag_segments": ("copy_lag_segments", "Closed segments that are not copied."),
    "copy_disabled": ("copy_disabled", "1 if nothing more is copied."),
    "remote_delete_lag_bytes": ("delete_lag_bytes", "Bytes of remote segments to be deleted."),
    "remote_delete_lag_segments": ("delete_lag_segments", "Remote segments to be deleted."),
    "remote_log_size_bytes": ("log_size_bytes", "Bytes of the remote segments' logs."),
    "remote_log_metadata_count": ("log_metadata_count", "Remote segments that are known."),
    "remote_log_size_computation_time_ms": (
        "log_size_computation_time_ms",
        "Milliseconds to add up lineage_size_bytes.",
    ),
    "lineage_size_bytes": ("lineage_size_bytes", "Bytes of the finished segments that belong to the log."),
    "copy_requests": ("copy_requests", "Copies begun, over the life of the metadata topic."),
    "copy_unfinished": ("copy_unfinished", "Copies begun and not finished."),
    "delete_requests": ("delete_requests", "Deletions begun, over the life of the metadata topic."),
    "delete_unfinished": ("delete_unfinished", "Deletions begun and not finished."),
    "local_only_bytes": ("local_only_bytes", "Bytes that are in the log dir alone."),
    "local_only_segments": (
        "local_only_segments",
        "Segments that are in the log dir alone, the active one too.",
    ),
    "highest_copied_offset": ("highest_copied_offset", "The last offset that is copied; -1 if none is."),
    "log_start_offset": ("log_start_offset", "Where the log begins."),
    "local_log_start_offset": ("local_log_start_offset", "Where the local part of the log begins."),
    "log_end_offset": ("log_end_offset", "The offset after the last record."),
    "archived_segments": ("archived_segments", "Segments whose log lies in the archive."),
    "archived_log_bytes": ("archived_log_bytes", "Bytes of logs in the archive, as they lie there."),
    "missing_segments": ("missing_segments", "Finished segments whose log is not in the archive."),
    "missing_bytes": ("missing_bytes", "Bytes of these, as brokers know them."),
    "incomplete_segments": ("incomplete_segments", "Finished segments without an object besides the log."),
    "wrong_size_segments": ("wrong_size_segments", "Finished segments with objects of another size."),
    "orphan_segments": ("orphan_segments", "Segments in the archive that brokers do not know."),
    "orphan_bytes": ("orphan_bytes", "Bytes of all objects of these."),
    "undeleted_segments": (
        "undeleted_segments",
        "Segments with objects left by a deletion that is finished.",
    ),
    "undeleted_bytes": ("undeleted_bytes", "Bytes of all objects of these."),
    "uncompared_segments": (
        "uncompared_segments",
        "Segments that may be orphans, or newer than the metadata.",
    ),
}
_OTHERS: Final = {
    "other_partitions": ("archive_other_partitions", "Partitions in the archive of no tiered topic here."),
    "other_segments": ("archive_other_segments", "Segments of these."),
    "other_log_bytes": ("archive_other_log_bytes", "Bytes of the logs of these."),
}


class _Families:
    """What prometheus_client takes for a registry."""

    def __init__(self, report: TieringReport) -> None:
        self._report = report

    def collect(self) -> Iterator[Metric]:
        """Yield every family that has a sample."""
        return (family for family in _families(self._report) if family.samples)


def metrics_text(report: TieringReport) -> bytes:
    """Return the figures of *report* in Prometheus' text format, UTF-8."""
    return generate_latest(_Families(report))


def _families(report: TieringReport) -> Iterator[Metric]:
    partitions = _named_once(report.partitions)
    topics = _named_once(report.topics)
    for name, (metric, text) in _BROKERS.items():
        family = GaugeMetricFamily(BROKER_PREFIX + metric, text, labels=["topic"])
        for topic in topics:
            _add(family, [topic.topic], getattr(topic.figures, name))
        yield family
    for name, (metric, text) in _OWN.items():
        family = GaugeMetricFamily(OWN_PREFIX + metric, text, labels=["topic", "partition"])
        for one in partitions:
            _add(family, [one.topic, str(one.partition)], getattr(one.figures, name))
        yield family
    yield _by_epoch(partitions)
    yield _deleted(report.topics)
    if report.archive is not None:
        for name, (metric, text) in _OTHERS.items():
            yield GaugeMetricFamily(OWN_PREFIX + metric, text, value=getattr(report.archive, name))


def _named_once(found: Sequence[_T]) -> list[_T]:
    """Return what is of topics that exist, of one id for each name: no two samples may have the same labels."""
    ids: dict[str, str] = {}
    return [
        one for one in found if not one.is_deleted and ids.setdefault(one.topic, one.topic_id) == one.topic_id
    ]


def _deleted(topics: Sequence[TieredTopic]) -> Metric:
    text = "Bytes of the remote segments' logs that are left of a deleted topic."
    family = GaugeMetricFamily(
        f"{OWN_PREFIX}deleted_topic_log_size_bytes", text, labels=["topic", "topic_id"]
    )
    for topic in topics:
        if topic.is_deleted:
            _add(family, [topic.topic, topic.topic_id], topic.figures.remote_log_size_bytes)
    return family


def _by_epoch(partitions: Sequence[TieredPartition]) -> Metric:
    text = "Bytes of all segments with records of a leader epoch."
    family = GaugeMetricFamily(
        f"{OWN_PREFIX}log_size_by_epoch_bytes", text, labels=["topic", "partition", "leader_epoch"]
    )
    for one in partitions:
        for epoch, size_bytes in (one.figures.remote_log_size_by_epoch or {}).items():
            family.add_metric([one.topic, str(one.partition), str(epoch)], size_bytes)
    return family


def _add(family: GaugeMetricFamily, labels: Sequence[str], value: int | None) -> None:
    if value is not None:
        family.add_metric(labels, value)
