"""Which observers a run gets: the only place that interprets `--progress` and `--metrics-port`.

    auto   bar if the stream is a terminal that can draw, log otherwise
    bar    the view of `terminal`
    log    the lines of `log_lines`
    json   the objects of `json_lines`
    none   nothing is printed

The gauges come first in the list, so that everything that reads them sees each event counted.

Heavy modules (rich, structlog, prometheus_client) are imported when they are chosen: `--help` stays quick.
"""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Literal, Protocol, TextIO, get_args

from recovery.errors import UsageError
from recovery.watch.events import Event, Level, Observer
from recovery.watch.gauges import Gauges

Progress = Literal["auto", "bar", "log", "json", "none"]
PROGRESS_CHOICES: tuple[Progress, ...] = get_args(Progress)


class _Printer(Protocol):
    """An observer that also prints what belongs to no event."""

    def __call__(self, event: Event) -> None: ...
    def say(self, text: str, level: Level = "info") -> None: ...


@contextmanager
def open_observers(
    progress: str = "auto",
    metrics_port: int | None = None,
    stream: TextIO | None = None,
    *,
    metrics_address: str = "127.0.0.1",
) -> Iterator[list[Observer]]:
    """Open the observers of a run; hand them to `recover` inside the context.

    The metrics are served when this returns, which is before the first byte is read.

    Args:
        progress: one of `PROGRESS_CHOICES`.
        metrics_port: TCP port; 0 for any free one; None for no HTTP.
        stream: where to print; standard error by default.
        metrics_address: address to listen on.

    Raises:
        UsageError: an unknown *progress*, or a port that cannot be opened.
    """
    if progress not in PROGRESS_CHOICES:
        raise UsageError(f"--progress {progress}: expected one of {', '.join(PROGRESS_CHOICES)}")
    stream = sys.stderr if stream is None else stream
    gauges = Gauges()
    observers: list[Observer] = []
    with ExitStack() as stack:
        port = None
        if metrics_port is not None:
            from recovery.watch.metrics_http import serve_metrics

            port = stack.enter_context(serve_metrics(gauges, metrics_port, metrics_address))
            observers = [gauges]
        printer = _open_printer(progress, stream, gauges, stack)
        if printer is not None:
            stack.enter_context(_warnings_to(printer))
            observers = [gauges, printer]
            if port is not None:
                printer.say(f"Serving metrics at http://{metrics_address}:{port}/metrics")
        yield observers


def _open_printer(progress: str, stream: TextIO, gauges: Gauges, stack: ExitStack) -> _Printer | None:
    if progress == "auto":
        progress = "bar" if _can_draw(stream) else "log"
    if progress == "bar":
        from recovery.watch.terminal import Terminal

        with suppress(RuntimeError):  # no thread can be started to draw the view
            return stack.enter_context(Terminal(stream, gauges))
        progress = "log"
    if progress == "log":
        from recovery.watch.log_lines import LogLines

        return LogLines(stream, gauges)
    if progress == "json":
        from recovery.watch.json_lines import JsonLines

        return JsonLines(stream, gauges)
    return None


def _can_draw(stream: TextIO) -> bool:
    return stream.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown", "")


class _PrinterHandler(logging.Handler):
    """Passes what this package logs with the standard library (observers switched off) to the printer."""

    def __init__(self, printer: _Printer) -> None:
        super().__init__(logging.WARNING)
        self._printer = printer

    def emit(self, record: logging.LogRecord) -> None:
        """Print *record*; if the stream is gone, do nothing."""
        with suppress(OSError, ValueError):
            self._printer.say(record.getMessage(), "error" if record.levelno >= logging.ERROR else "warning")


@contextmanager
def _warnings_to(printer: _Printer) -> Iterator[None]:
    logger = logging.getLogger("recovery")
    handler = _PrinterHandler(printer)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
