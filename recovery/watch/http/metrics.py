"""The figures in Prometheus' text format: what `/metrics` answers and `--metrics-textfile` holds.

The two KIP-831 gauges have the names that the usual jmx_exporter rules give them and live as long as Kafka's
(see `gauges`); the rest is `kafka_log_recovery_*`, with units, and stays to the end of the process.
"""

from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from recovery.watch.figures import LOG_STATUSES, OF_ARCHIVES, RUN_STATES, GaugeValues, LogDirValues

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
REMAINING_LOGS = "kafka_log_logmanager_remaininglogstorecover"
REMAINING_SEGMENTS = "kafka_log_logmanager_remainingsegmentstorecover"
OFFLINE, OFFLINE_COUNT = (
    "kafka_log_logmanager_logdirectoryoffline",
    "kafka_log_logmanager_offlinelogdirectorycount",
)
CORDONED = "kafka_log_logmanager_logdirectorycordoned"
CORDONED_COUNT = "kafka_log_logmanager_cordonedlogdirectorycount"
AUX_REQUESTS = "kafka_server_brokertopicmetrics_buildremotelogauxstaterequests"
AUX_ERRORS = "kafka_server_brokertopicmetrics_buildremotelogauxstateerrors"
PREFIX = "kafka_log_recovery_"

_DIR_GAUGES: tuple[tuple[str, str, Callable[[LogDirValues], float | None]], ...] = (
    ("logs", "Logs in the log dir.", lambda d: d.log_count),
    ("segments", "Unflushed segments to recover.", lambda d: d.known("segment_count")),
    ("bytes", "Bytes of unflushed segments.", lambda d: d.known("bytes_total")),
    ("remaining_bytes", "Bytes still to be scanned.", lambda d: d.known("remaining_bytes")),
    ("remaining_segments", "Unflushed segments still to be recovered.", lambda d: _remaining_segments(d)),
    ("bytes_per_second", "Scan rate over the last half minute.", lambda d: d.bytes_per_second),
    ("eta_seconds", "Time left; no sample while it would be a guess.", lambda d: d.eta_seconds),
    ("log_dir_finished", "1 when nothing is left to do in the log dir.", lambda d: d.is_finished),
    ("log_dir_offline", "1 when an I/O error ended the work in the log dir.", lambda d: d.is_offline),
)
_DIR_COUNTERS: tuple[tuple[str, str, Callable[[LogDirValues], float | None]], ...] = (
    ("scanned_bytes", "Bytes read and checked.", lambda d: d.known("scanned_bytes")),
    ("recovered_bytes", "Bytes of recovered segments found valid.", lambda d: d.known("recovered_bytes")),
    ("recovered_segments", "Segments recovered.", lambda d: d.recovered_segments),
    ("truncated_bytes", "Bytes of log files cut off.", lambda d: d.known("truncated_bytes")),
    ("truncated_batches", "Record batches cut off.", lambda d: d.known("truncated_batches")),
)


class _Families:
    """What prometheus_client takes for a registry."""

    def __init__(self, values: GaugeValues) -> None:
        self._values = values

    def collect(self) -> Iterator[Metric]:
        """Yield every family that has a sample."""
        return (family for family in families(self._values) if family.samples)


def metrics_text(values: GaugeValues) -> bytes:
    """Return *values* in Prometheus' text format, UTF-8; what is not known has no sample."""
    return generate_latest(_Families(values))


def families(values: GaugeValues) -> Iterator[Metric]:
    """Yield the metric families of *values*, including those without samples."""
    yield from _kafka_families(values)
    for name, text, value_of in _DIR_GAUGES:
        yield _by_dir(GaugeMetricFamily(PREFIX + name, text, labels=["dir"]), values, value_of)
    for name, text, count_of in _DIR_COUNTERS:
        yield _by_dir(CounterMetricFamily(PREFIX + name, text, labels=["dir"]), values, count_of)
    yield _finished_logs(values)
    yield from _run_families(values)
    yield from _aux_families(values)


def _by_dir(
    family: GaugeMetricFamily | CounterMetricFamily,
    values: GaugeValues,
    value_of: Callable[[LogDirValues], float | None],
) -> Metric:
    """Return *family* with a sample for each log dir of which the figure is known."""
    for log_dir in values.log_dirs:
        value = value_of(log_dir)
        if value is not None:
            family.add_metric([_label(log_dir.log_dir)], value)
    return family


def _kafka_families(values: GaugeValues) -> Iterator[Metric]:
    """Kafka: LogManager.addLogRecoveryMetrics."""
    logs = GaugeMetricFamily(REMAINING_LOGS, "Kafka's remainingLogsToRecover (KIP-831).", labels=["dir"])
    segments = GaugeMetricFamily(
        REMAINING_SEGMENTS, "Kafka's remainingSegmentsToRecover (KIP-831).", labels=["dir", "threadNum"]
    )
    for log_dir in values.log_dirs:
        label = _label(log_dir.log_dir)
        if log_dir.remaining_logs is not None:
            logs.add_metric([label], log_dir.remaining_logs)
        for thread_num, remaining in enumerate(log_dir.remaining_segments):
            segments.add_metric([label, str(thread_num)], remaining)
    yield logs
    yield segments
    yield from _directory_families(values)


def _directory_families(values: GaugeValues) -> Iterator[Metric]:
    """Kafka: LogManager's constructor, so they are there before the logs are loaded."""
    log_dirs = () if values.command in OF_ARCHIVES else values.log_dirs
    for name, count_name, word, states in (
        (OFFLINE, OFFLINE_COUNT, "offline", [log_dir.is_offline for log_dir in log_dirs]),
        (CORDONED, CORDONED_COUNT, "cordoned", [log_dir.is_cordoned for log_dir in log_dirs]),
    ):
        gauge = GaugeMetricFamily(name, f"Kafka's: 1 when the log dir is {word}.", labels=["logDirectory"])
        count = GaugeMetricFamily(count_name, f"Kafka's: log dirs that are {word}.", labels=[])
        known = [state for state in states if state is not None]
        for log_dir, state in zip(log_dirs, states, strict=True):
            if state is not None:
                gauge.add_metric([_label(log_dir.log_dir)], state)
        if known:
            count.add_metric([], sum(known))
        yield gauge
        yield count


def _finished_logs(values: GaugeValues) -> Metric:
    counter = CounterMetricFamily(
        PREFIX + "finished_logs", "Logs done, by how they ended.", labels=["dir", "status"]
    )
    for log_dir in values.log_dirs:
        for status in LOG_STATUSES:
            counter.add_metric([_label(log_dir.log_dir), status], log_dir.partitions.get(status, 0))
    return counter


def _run_families(values: GaugeValues) -> Iterator[Metric]:
    state = GaugeMetricFamily(PREFIX + "run_state", "1 for the state that the run is in.", labels=["state"])
    for name in RUN_STATES:
        state.add_metric([name], name == values.state)
    yield state
    yield _single("dry_run", "1 when the run writes nothing.", values.dry_run)
    yield _single(
        "run_eta_seconds", "Time left of the whole run: that of the dir that ends last.", values.eta_seconds
    )
    yield _single("elapsed_seconds", "Time since the run began.", values.elapsed_seconds)
    yield _single(
        "watched_source_up",
        "1 while the broker that is watched can be seen, 0 once it cannot.",
        not values.is_source_gone if values.command == "watch" else None,
    )
    yield _single("exit_code", "Exit code; no sample before the end.", values.exit_code)
    yield _single("start_timestamp_seconds", "When the run began.", _seconds(values.started_ms))
    yield _single(
        "last_progress_timestamp_seconds",
        "When a byte was last scanned, or a log finished; for alerts on a stalled run.",
        _seconds(values.last_progress_ms),
    )


def _aux_families(values: GaugeValues) -> Iterator[Metric]:
    """Kafka: BrokerTopicMetrics, BuildRemoteLogAuxStateRequestsPerSec and BuildRemoteLogAuxStateErrorsPerSec."""
    for name, what, counts in (
        (AUX_REQUESTS, "partitions whose auxiliary state was to be built", values.aux_requests),
        (AUX_ERRORS, "partitions whose auxiliary state could not be built", values.aux_errors),
    ):
        counter = CounterMetricFamily(name, f"Kafka's: {what}.", labels=["topic"])
        for topic, count in counts.items():
            counter.add_metric([_label(topic)], count)
        yield counter


def _single(name: str, text: str, value: float | None) -> Metric:
    family = GaugeMetricFamily(PREFIX + name, text, labels=[])
    if value is not None:
        family.add_metric([], value)
    return family


def _seconds(time_ms: int | None) -> float | None:
    return None if time_ms is None else time_ms / 1000


def _remaining_segments(values: LogDirValues) -> int | None:
    if not values.is_foreseen:
        return None
    if values.is_finished or values.is_offline:
        return 0
    return max(values.segment_count - values.finished_segments, 0)


def _label(log_dir: str) -> str:
    r"""Return a path as valid UTF-8, as the text format demands; two paths stay two, a byte that is none is \xff."""
    return log_dir.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
