"""Which observers a run gets: the only place that interprets `ObserverOptions`.

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
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Literal, Protocol, TextIO, get_args

from recovery.errors import UsageError, exit_code_of
from recovery.watch.events import Event, Level, Observer, RunFinished
from recovery.watch.figures import Source
from recovery.watch.gauges import Gauges
from recovery.watch.notices import Notices
from recovery.watch.notifier import Notifier

Progress = Literal["auto", "bar", "log", "json", "none"]
PROGRESS_CHOICES: tuple[Progress, ...] = get_args(Progress)


class _Printer(Protocol):
    """An observer that also prints what belongs to no event."""

    def __call__(self, event: Event) -> None: ...
    def say(self, text: str, level: Level = "info") -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ObserverOptions:
    """Who watches a run; the command line has an option of the same name for each.

    Attributes:
        progress: one of `PROGRESS_CHOICES`.
        metrics_port: TCP port to serve HTTP at; 0 for any free one; None for no HTTP.
        metrics_host: address to listen on. Nobody who reaches it has to log in.
        metrics_textfile: file to keep the metrics in, for node_exporter.
        stall_seconds: nothing has moved for so long: `/healthz` answers 503.
    """

    progress: str = "auto"
    metrics_port: int | None = None
    metrics_host: str = "127.0.0.1"
    metrics_textfile: str | None = None
    stall_seconds: float = 300


@contextmanager
def open_observers(
    options: ObserverOptions | None = None,
    stream: TextIO | None = None,
    *,
    source: Source = "run",
    process: ExitStack | None = None,
) -> Iterator[list[Observer]]:
    """Open the observers of a run; hand them to `recover` inside the context.

    The metrics are served, and in their file, when this returns, which is before the first byte is read.

    Args:
        options: None for the defaults.
        stream: where to print; standard error by default.
        source: whose recovery it is: that of this process, or one that it watches.
        process: closed when the process ends: figures are served and kept until then, not only in this context, and
            tell of an error that comes later, such as a report that cannot be written.

    Raises:
        UsageError: an unknown progress, a port that cannot be opened, or a file that cannot be written or is somebody
            else's.
    """
    options = options or ObserverOptions()
    if options.progress not in PROGRESS_CHOICES:
        raise UsageError(f"--progress {options.progress}: expected one of {', '.join(PROGRESS_CHOICES)}")
    stream = sys.stderr if stream is None else stream
    gauges, notices = Gauges(), Notices()
    observers: list[Observer] = []
    with ExitStack() as stack:
        remarks: list[tuple[str, Level]] = []
        if options.metrics_port is not None:
            remarks = (process or stack).enter_context(_served(options, gauges, notices, source))
            observers = [gauges, notices]
        printer = _open_printer(options.progress, stream, gauges, stack)
        if printer is not None:
            stack.enter_context(_warnings_to(printer, notices))
            observers = [gauges, notices, printer]
            for text, level in remarks:
                printer.say(text, level)
        if options.metrics_textfile is not None:
            from recovery.watch.textfile import kept_in_file

            write = (process or stack).enter_context(kept_in_file(gauges, options.metrics_textfile))
            stack.callback(write)
            observers = observers or [gauges]
        if process is not None:
            # A view is closed by then; a log has to take back the exit code that it told.
            lines = [] if printer is None or isinstance(printer, AbstractContextManager) else [printer]
            process.enter_context(_told_of_errors(gauges, *lines))
        stack.enter_context(_told_of_errors(gauges))
        yield observers


@contextmanager
def _told_of_errors(gauges: Gauges, *lines: Observer) -> Iterator[None]:
    """Let the figures end as an error does that its observers were not told of: before the run, or after it.

    `lines` are told only after a run: of an error before it there is nothing to take back.
    """
    try:
        yield
    except BaseException as error:
        exit_code, told = exit_code_of(error), gauges.values().exit_code
        if told != exit_code:
            Notifier([gauges, *(lines if told is not None else ())])(RunFinished(exit_code=exit_code))
        raise


@contextmanager
def _served(
    options: ObserverOptions, gauges: Gauges, notices: Notices, source: Source
) -> Iterator[list[tuple[str, Level]]]:
    """Serve; gives what there is to say about it."""
    from recovery.watch.http.routes import Routes
    from recovery.watch.http.server import is_loopback, serve, url_of

    assert options.metrics_port is not None  # else nobody wants a server
    routes = Routes(gauges, notices, source=source, stall_seconds=options.stall_seconds)
    with serve(routes.answer, options.metrics_port, options.metrics_host) as (host, port):
        url = url_of(host, port)
        remarks: list[tuple[str, Level]] = [
            (f"Serving metrics at {url}/metrics, and a page at {url}/", "info")
        ]
        if not is_loopback(host):
            open_to = (
                "Whoever reaches that address can read the names of log dirs and topics: nobody has to log in"
            )
            remarks.append((f"{open_to}. Remedy: let a firewall or a network policy say who does", "warning"))
        yield remarks


def _open_printer(progress: str, stream: TextIO, gauges: Gauges, stack: ExitStack) -> _Printer | None:
    if progress == "auto":
        progress = "bar" if can_draw(stream) else "log"
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


def can_draw(stream: TextIO) -> bool:
    """Return whether *stream* is a terminal that can rewrite what it shows."""
    return stream.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown", "")


class _PrinterHandler(logging.Handler):
    """Passes what this package logs with the standard library (observers switched off) to the printer."""

    def __init__(self, printer: _Printer, notices: Notices) -> None:
        super().__init__(logging.WARNING)
        self._printer = printer
        self._notices = notices

    def emit(self, record: logging.LogRecord) -> None:
        """Print *record*; if the stream is gone, only keep it as a notice."""
        text = record.getMessage()
        level: Level = "error" if record.levelno >= logging.ERROR else "warning"
        self._notices.say(text, level)
        with suppress(OSError, ValueError):
            self._printer.say(text, level)


@contextmanager
def _warnings_to(printer: _Printer, notices: Notices) -> Iterator[None]:
    logger = logging.getLogger("recovery")
    handler = _PrinterHandler(printer, notices)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
