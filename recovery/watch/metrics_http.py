"""The figures over HTTP in Prometheus' text format, at any path, usually /metrics.

The two KIP-831 gauges have the names that the usual jmx_exporter rules give them and live as long as Kafka's
(see `gauges`); the rest is `kafka_log_recovery_*`, with units, and stays to the end of the process.

The server is up before the first byte is read, so a scrape at any time finds it. It listens on loopback
unless told otherwise, in threads of its own, and reads a consistent set of figures at each scrape.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from recovery.errors import UsageError
from recovery.watch.figures import LOG_STATUSES, RUN_STATES, GaugeValues, LogDirValues
from recovery.watch.gauges import Gauges

LOOPBACK = "127.0.0.1"
REMAINING_LOGS = "kafka_log_logmanager_remaininglogstorecover"
REMAINING_SEGMENTS = "kafka_log_logmanager_remainingsegmentstorecover"
PREFIX = "kafka_log_recovery_"

_DIR_GAUGES: tuple[tuple[str, str, Callable[[LogDirValues], float | None]], ...] = (
    ("logs", "Logs in the log dir.", lambda d: d.log_count),
    ("segments", "Unflushed segments to recover.", lambda d: d.segment_count),
    ("bytes", "Bytes of unflushed segments.", lambda d: d.bytes_total),
    ("remaining_bytes", "Bytes still to be scanned.", lambda d: d.remaining_bytes),
    ("remaining_segments", "Unflushed segments still to be recovered.", lambda d: _remaining_segments(d)),
    ("bytes_per_second", "Scan rate over the last half minute.", lambda d: d.bytes_per_second),
    ("eta_seconds", "Time left; no sample while it would be a guess.", lambda d: d.eta_seconds),
    ("log_dir_finished", "1 when nothing is left to do in the log dir.", lambda d: d.is_finished),
    ("log_dir_offline", "1 when an I/O error ended the work in the log dir.", lambda d: d.is_offline),
)
_DIR_COUNTERS: tuple[tuple[str, str, Callable[[LogDirValues], float]], ...] = (
    ("scanned_bytes", "Bytes read and checked.", lambda d: d.scanned_bytes),
    ("recovered_bytes", "Bytes of recovered segments found valid.", lambda d: d.recovered_bytes),
    ("recovered_segments", "Segments recovered.", lambda d: d.recovered_segments),
    ("truncated_bytes", "Bytes of log files cut off.", lambda d: d.truncated_bytes),
    ("truncated_batches", "Record batches cut off.", lambda d: d.truncated_batches),
)


class GaugeCollector(Collector):
    """Makes metric families of the figures at the moment of the scrape.

    Args:
        gauges: the observer that keeps the figures.
        monotonic_s: the clock of the events, so that the rate falls when nothing moves.
    """

    def __init__(self, gauges: Gauges, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._gauges = gauges
        self._monotonic_s = monotonic_s

    def collect(self) -> Iterator[Metric]:
        """Yield every family that has a sample."""
        values = self._gauges.values(self._monotonic_s())
        yield from filter(lambda family: family.samples, families(values))


def families(values: GaugeValues) -> Iterator[Metric]:
    """Yield the metric families of *values*, including those without samples."""
    yield from _kafka_families(values)
    for name, text, value_of in _DIR_GAUGES:
        gauge = GaugeMetricFamily(PREFIX + name, text, labels=["dir"])
        for log_dir in values.log_dirs:
            if (value := value_of(log_dir)) is not None:
                gauge.add_metric([_label(log_dir.log_dir)], value)
        yield gauge
    for name, text, count_of in _DIR_COUNTERS:
        counter = CounterMetricFamily(PREFIX + name, text, labels=["dir"])
        for log_dir in values.log_dirs:
            counter.add_metric([_label(log_dir.log_dir)], count_of(log_dir))
        yield counter
    yield _finished_logs(values)
    yield from _run_families(values)


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
        "run_eta_seconds", "Time left of the whole run: that of its slowest dir.", values.eta_seconds
    )
    yield _single("elapsed_seconds", "Time since the run began.", values.elapsed_seconds)
    yield _single("exit_code", "Exit code; no sample before the end.", values.exit_code)
    yield _single("start_timestamp_seconds", "When the run began.", _seconds(values.started_ms))
    yield _single(
        "last_progress_timestamp_seconds",
        "When a byte was last scanned, or a log finished; for alerts on a stalled run.",
        _seconds(values.last_progress_ms),
    )


def _single(name: str, text: str, value: float | None) -> Metric:
    family = GaugeMetricFamily(PREFIX + name, text, labels=[])
    if value is not None:
        family.add_metric([], value)
    return family


def _seconds(time_ms: int | None) -> float | None:
    return None if time_ms is None else time_ms / 1000


def _remaining_segments(values: LogDirValues) -> int:
    if values.is_finished or values.is_offline:
        return 0
    return max(values.segment_count - values.finished_segments, 0)


def _label(log_dir: str) -> str:
    """Return *path* as valid UTF-8, as the text format demands; a path need not be."""
    return log_dir.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _pass_over(request: object, client_address: object) -> None:
    """Print nothing: the traceback of a connection that breaks, or gets no thread, does not belong in the log."""


@contextmanager
def serve_metrics(gauges: Gauges, port: int, address: str = LOOPBACK) -> Iterator[int]:
    """Serve the figures while the context is open; gives the port, which is a free one for *port* 0.

    Raises:
        UsageError: the port is in use, or may not be used.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(GaugeCollector(gauges))
    try:
        server, thread = start_http_server(port, addr=address, registry=registry)
    except (OSError, OverflowError) as error:
        raise UsageError(
            f"Cannot serve metrics at {address} port {port}: {error}. Choose another --metrics-port."
        ) from error
    except RuntimeError as error:
        raise UsageError(
            f"Cannot serve metrics: {error}. Remedy: allow more threads (ulimit -u, pids.max), or leave out "
            "--metrics-port"
        ) from error
    server.handle_error = _pass_over  # type: ignore[method-assign]  # a scrape that fails is reported by the scraper
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
