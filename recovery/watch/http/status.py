r"""The objects of `/api/v1/status` and `/healthz`; docs/reference/progress.md describes both.

`status` is "Progress" of the JSON lines with what a page or a script needs besides: the time, the notices, and what
each thread has in hand. Names are as in JSON lines: a byte that is not UTF-8 is one of \udc80 to \udcff.
"""

from typing import Any

from recovery.watch.figures import GaugeValues, LogDirValues, Source
from recovery.watch.json_lines import VERSION, progress
from recovery.watch.notices import Notices

_NOTICE = ("level", "text", "log_dir", "partition")


def status(
    values: GaugeValues, notices: Notices, *, now_ms: int, source: Source, stall_seconds: float
) -> dict[str, Any]:
    """Return the figures of a run as `/api/v1/status` has them; null stands for what is not known."""
    figures = progress(values)
    log_dirs = [
        _log_dir(figures_of_dir, dir_values)
        for figures_of_dir, dir_values in zip(figures.pop("log_dirs"), values.log_dirs, strict=True)
    ]
    latest, count = notices.latest()
    return {
        "version": VERSION,
        "now_ms": now_ms,
        "source": source,
        "is_source_gone": values.is_source_gone,
        "command": values.command,
        "started_ms": values.started_ms,
        "last_progress_ms": values.last_progress_ms,
        "seconds_without_progress": _seconds_without_progress(values),
        "stall_seconds": stall_seconds,
        **figures,
        "log_dirs": log_dirs,
        "notices": [{name: getattr(notice, name) for name in _NOTICE} for notice in latest],
        "notice_count": count,
    }


def _log_dir(figures: dict[str, Any], values: LogDirValues) -> dict[str, Any]:
    return figures | {
        "had_clean_shutdown": values.had_clean_shutdown,
        "partitions": values.partitions,
        "threads": _threads(values),
    }


def _threads(values: LogDirValues) -> list[dict[str, Any]]:
    """Return what each thread has in hand, by thread number."""
    remaining = dict(enumerate(values.remaining_segments))
    return [
        {
            "thread_num": thread_num,
            "partition": values.threads.get(thread_num),
            "remaining_segments": remaining.get(thread_num),
        }
        for thread_num in sorted({*remaining, *values.threads})
    ]


def health(values: GaugeValues, stall_seconds: float) -> dict[str, Any]:
    """Return the object of `/healthz`: unhealthy when work is going on and nothing has moved for *stall_seconds*.

    A run that has not begun, or is over, is healthy however it ended: there is nothing that a restart would cure. A
    broker that is watched, and cannot be seen any more, is unhealthy.
    """
    seconds = values.seconds_without_progress
    return {
        "healthy": (seconds is None or seconds < stall_seconds) and not values.is_source_gone,
        "state": values.state,
        "seconds_without_progress": _seconds_without_progress(values),
    }


def _seconds_without_progress(values: GaugeValues) -> float | None:
    seconds = values.seconds_without_progress
    return None if seconds is None else round(seconds, 3)
