"""Log lines on a stream: Kafka's words in the layout of its log4j pattern, followed by fields.

    [2026-11-21 13:19:00,123] WARN [LogLoader partition=t-0, dir=/d] Corruption found ... reason="CRC wrong"

Every ten seconds of work a line of our own says how far the run is. The time of a line is its event's, in the
local time zone as a broker prints it. Fields are logfmt. Control characters in file names are escaped.

This is for a person or a log shipper; programs read `json_lines`.
"""

import time
from datetime import datetime
from typing import TextIO

import structlog
from structlog.typing import EventDict, WrappedLogger

from recovery.printable import printable
from recovery.watch.events import BytesScanned, Event, Level, PartitionChecked, PartitionFinished
from recovery.watch.gauges import Gauges
from recovery.watch.kafka_lines import KafkaLines, Line
from recovery.watch.text import progress_text

PROGRESS_INTERVAL_S = 10.0

_LEVEL_WORDS = {"info": "INFO", "warning": "WARN", "error": "ERROR"}
_render_fields = structlog.processors.LogfmtRenderer(bool_as_flag=False)


class LogLines:
    """An observer that prints.

    Args:
        stream: text stream; each line is flushed, for whoever tails it.
        gauges: where the progress lines get their figures; it must see each event before this observer.
    """

    def __init__(self, stream: TextIO, gauges: Gauges) -> None:
        self._gauges = gauges
        self._kafka = KafkaLines()
        self._progress_s: float | None = None
        self._now_ms = 0
        # A logger of its own: a library must not change the program's structlog configuration.
        self._logger = structlog.wrap_logger(
            structlog.WriteLogger(stream),
            processors=[_render],
            wrapper_class=structlog.BoundLogger,
            cache_logger_on_first_use=True,
        ).bind()

    def __call__(self, event: Event) -> None:
        """Print the lines of *event*."""
        self._now_ms = event.now_ms
        for line in self._kafka.lines(event):
            self._print(line)
        if isinstance(event, (BytesScanned, PartitionFinished, PartitionChecked)):
            self._print_progress(event.monotonic_s)

    def say(self, text: str, level: Level = "info") -> None:
        """Print a line that belongs to no event."""
        self._now_ms = time.time_ns() // 1_000_000
        self._print(Line(text, level))

    def _print_progress(self, monotonic_s: float) -> None:
        if self._progress_s is None:
            self._progress_s = monotonic_s
        if monotonic_s - self._progress_s < PROGRESS_INTERVAL_S:
            return
        self._progress_s = monotonic_s
        self._print(Line(progress_text(self._gauges.values(monotonic_s))))

    def _print(self, line: Line) -> None:
        self._logger.msg(line.text, now_ms=self._now_ms, level=line.level, fields=line.fields)


def _render(_logger: WrappedLogger, _name: str, event: EventDict) -> str:
    # structlog's own console renderer pads and sorts for the eye; Kafka's pattern is what searches expect.
    moment = datetime.fromtimestamp(event["now_ms"] / 1000).astimezone()
    stamp = f"{moment:%Y-%m-%d %H:%M:%S},{moment.microsecond // 1000:03d}"
    text = printable(f"[{stamp}] {_LEVEL_WORDS[event['level']]} {event['event']}")
    fields = {
        name: printable(value) if isinstance(value, str) else value for name, value in event["fields"].items()
    }
    return f"{text} {_render_fields(_logger, _name, fields)}" if fields else text
