r"""Events as JSON, one object a line: what `--progress json` writes, as docs/reference/progress.md describes it.

    {"version":1,"event":"PartitionFinished","now_ms":1795267859045,"log_dir":"/d","partition":"t-0",...}

`event` is the name of the class in `events`, the other keys are its fields. "Progress" takes the place of
`BytesScanned` and `LogDirSampled`, at most once a second: the figures of the run and of each log dir.
"Message" is for words that belong to no event. A byte that is not UTF-8 in a name is \udc80 to \udcff, as
Python has it.
"""

import json
import time
from collections.abc import Iterable
from dataclasses import fields
from typing import Any, TextIO, get_args

from recovery.watch.events import (
    BytesScanned,
    Event,
    Level,
    LogDirSampled,
    PartitionChecked,
    PartitionFinished,
    RunFinished,
)
from recovery.watch.figures import GaugeValues, LogDirValues
from recovery.watch.gauges import Gauges

VERSION = 1
PROGRESS_INTERVAL_S = 1.0

_LOG_DIR_SUMS = (
    "log_count",
    "finished_logs",
    "segment_count",
    "finished_segments",
    "recovered_segments",
    "bytes_total",
    "remaining_bytes",
    "scanned_bytes",
    "recovered_bytes",
    "truncated_bytes",
    "truncated_batches",
)


# monotonic_s means nothing outside of this process.
_NAMES: dict[type, tuple[str, ...]] = {
    event_type: tuple(field.name for field in fields(event_type) if field.name != "monotonic_s")
    for event_type in get_args(Event)
}


class JsonLines:
    """An observer that prints JSON.

    Args:
        stream: text stream; flushed after each line.
        gauges: where "Progress" gets its figures; it must see each event before this observer.
    """

    def __init__(self, stream: TextIO, gauges: Gauges) -> None:
        self._stream = stream
        self._gauges = gauges
        self._progress_s: float | None = None

    def __call__(self, event: Event) -> None:
        """Print *event*, and the progress when it is time for it."""
        if isinstance(event, RunFinished):
            self._print_progress(event)  # the final figures come first, so that RunFinished is the last line
        if not isinstance(event, (BytesScanned, LogDirSampled)):
            self._print(event_fields(event))
        moves = (BytesScanned, LogDirSampled, PartitionFinished, PartitionChecked)
        if isinstance(event, moves) and self._is_time(event.monotonic_s):
            self._print_progress(event)

    def say(self, text: str, level: Level = "info") -> None:
        """Print a "Message"."""
        now_ms = time.time_ns() // 1_000_000
        self._print({"event": "Message", "now_ms": now_ms, "level": level, "text": text})

    def _is_time(self, monotonic_s: float) -> bool:
        return self._progress_s is None or monotonic_s - self._progress_s >= PROGRESS_INTERVAL_S

    def _print_progress(self, event: Event) -> None:
        self._progress_s = event.monotonic_s
        figures = progress(self._gauges.values(event.monotonic_s))
        self._print({"event": "Progress", "now_ms": event.now_ms} | figures)

    def _print(self, line: dict[str, Any]) -> None:
        self._stream.write(json.dumps({"version": VERSION} | line, separators=(",", ":")) + "\n")
        self._stream.flush()


def event_fields(event: Event) -> dict[str, Any]:
    """Return the JSON object of *event*, without the version."""
    return {"event": type(event).__name__} | {name: getattr(event, name) for name in _NAMES[type(event)]}


def progress(values: GaugeValues) -> dict[str, Any]:
    """Return the figures of a run as the keys of "Progress"; null stands for what is not known."""
    log_dirs = values.log_dirs
    return {
        "state": values.state,
        "dry_run": values.dry_run,
        **{name: _sum(log_dir.known(name) for log_dir in log_dirs) for name in _LOG_DIR_SUMS},
        "bytes_per_second": _rounded(values.bytes_per_second),
        "eta_seconds": _rounded(values.eta_seconds),
        "elapsed_seconds": _rounded(values.elapsed_seconds),
        "exit_code": values.exit_code,
        "log_dirs": [_log_dir(log_dir) for log_dir in log_dirs],
    }


def _log_dir(values: LogDirValues) -> dict[str, Any]:
    return {
        "log_dir": values.log_dir,
        "remaining_logs": values.remaining_logs,
        "remaining_segments": list(values.remaining_segments),
        **{name: values.known(name) for name in _LOG_DIR_SUMS},
        "bytes_per_second": _rounded(values.bytes_per_second),
        "eta_seconds": _rounded(values.eta_seconds),
        "is_finished": values.is_finished,
        "is_offline": values.is_offline,
        "is_cordoned": values.is_cordoned,
    }


def _sum(figures: Iterable[int | None]) -> int | None:
    """Return the sum of *figures*, None if one of them is not known."""
    known = list(figures)
    return None if None in known else sum(figure for figure in known if figure is not None)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
