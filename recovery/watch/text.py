"""One line on how far a run is, for logs and for the end of the terminal view."""

from recovery.quantity import bytes_text, duration_text, rate_text
from recovery.watch.figures import GaugeValues


def progress_text(values: GaugeValues) -> str:
    """Return e.g. "12/40 logs, 3/9 segments, 1.2 GiB of 4.0 GiB (30 %), 512 MiB/s, about 6s left"."""
    log_dirs = values.log_dirs
    bytes_total = sum(log_dir.bytes_total for log_dir in log_dirs)
    done_bytes = bytes_total - sum(log_dir.remaining_bytes for log_dir in log_dirs)
    segment_count = sum(log_dir.segment_count for log_dir in log_dirs)
    parts = [f"{_of(sum(d.finished_logs for d in log_dirs), sum(d.log_count for d in log_dirs))} logs"]
    if segment_count or values.command != "watch":  # gauges of others do not say how many there are
        parts.append(f"{_of(sum(d.finished_segments for d in log_dirs), segment_count)} segments")
    elif recovered_segments := sum(d.recovered_segments for d in log_dirs):
        parts.append(f"{recovered_segments:,} segments")
    if bytes_total:
        percent = 100 * done_bytes // bytes_total
        parts.append(f"{bytes_text(done_bytes)} of {bytes_text(bytes_total)} ({percent} %)")
    if values.bytes_per_second is not None and (bytes_total or values.command != "watch"):
        parts.append(rate_text(values.bytes_per_second))
    if values.eta_seconds:
        parts.append(f"about {duration_text(values.eta_seconds)} left")
    return ", ".join(parts)


def _of(done: int, total: int) -> str:
    return f"{done:,}/{total:,}"
