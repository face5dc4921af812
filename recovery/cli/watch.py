"""`kafka-log-recovery watch`: somebody else's recovery, a broker's, by its log or its gauges."""

from __future__ import annotations

import argparse
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recovery.cli.arguments import (
    add_place_arguments,
    add_property_argument,
    add_watching_arguments,
    log_dirs_of,
    observer_options,
    properties_of,
)
from recovery.cli.session import Signals, complain, print_result, watched_signals
from recovery.errors import InterruptedRecoveryError

if TYPE_CHECKING:
    from recovery.follow.options import WatchOptions
    from recovery.follow.report import WatchReport

_EPILOG = """\
examples:
  kubectl logs -f kafka-0 | kafka-log-recovery watch -
  kafka-log-recovery watch /var/log/kafka/server.log -c /etc/kafka/server.properties
  kafka-log-recovery watch http://kafka-0:9404/metrics
  kafka-log-recovery watch http://localhost:8778/jolokia

exit codes:
  0  the recovery is over, or the broker needed none
  1  usage error; there is no such source, or nothing about a load of logs in it
  2  the recover that was watched ended with 2
  4  the broker, or the source, ended before the recovery was over; the recover that was watched left something
  129, 130, 143  interrupted
"""


def add_parser(commands: argparse._SubParsersAction[Any]) -> None:
    """Add this command to the command line."""
    parser = commands.add_parser(
        "watch",
        help="watch the recovery of a broker",
        description="Watch the recovery of a broker, by what it logs or exports: how far it is, how long it will take, "
        "whether it has stalled. Nothing is written or locked.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "source",
        metavar="SOURCE",
        help="the broker's log: a file, or - for standard input; or its gauges: "
        "http://HOST:PORT[/metrics] of jmx_exporter, of Strimzi's reporter or of this tool, http://HOST:PORT/jolokia",
    )
    where = parser.add_argument_group(
        "beside a log", "The broker's log dirs, if they are on this machine: gives bytes, and a better ETA."
    )
    add_place_arguments(where)
    add_property_argument(where)
    how = parser.add_argument_group("how long")
    how.add_argument(
        "--interval", metavar="S", type=_seconds, default=1.0, help="look every S seconds (default: 1)"
    )
    how.add_argument(
        "--once",
        action="store_true",
        help="say how far it is, and end; shows progress only with --progress bar, log or json",
    )
    how.add_argument(
        "--forever", action="store_true", help="go on when the recovery is over, and watch the next start"
    )
    add_watching_arguments(parser, served="progress")
    parser.set_defaults(run=run, command="watch")


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    with watched_signals() as signals:
        try:
            report = _watch(arguments, signals)
        except InterruptedRecoveryError as error:
            complain("interrupted before anything was seen")
            return error.signal_exit_code
        print_result(
            report.to_json() if arguments.format == "json" else report.to_text(),
            signals,
            form=arguments.format,
        )
    return report.exit_code


def _watch(arguments: argparse.Namespace, signals: Signals) -> WatchReport:
    from recovery.follow.api import watch_broker
    from recovery.stop_request import StopRequest
    from recovery.watch.open import open_observers

    stop = StopRequest()
    options = _options(arguments)
    signals.forward_to(stop)
    observing = observer_options(arguments)
    if options.once and observing.progress == "auto":  # what has happened before now is no progress
        observing = replace(observing, progress="none")
    # A named pipe is not open until something writes to it.
    waiting = signals.raising() if Path(arguments.source).is_fifo() else nullcontext()
    with open_observers(observing, source="watch") as observers, waiting:
        return watch_broker(arguments.source, options, observers=observers, stop=stop)


def _options(arguments: argparse.Namespace) -> WatchOptions:
    from recovery.follow.options import WatchOptions

    has_dirs = arguments.config is not None or arguments.log_dirs is not None
    return WatchOptions(
        log_dirs=log_dirs_of(arguments) if has_dirs else None,
        config=properties_of(arguments).values if arguments.config or arguments.property else None,
        interval_s=arguments.interval,
        **({} if arguments.stall_seconds is None else {"stall_seconds": arguments.stall_seconds}),
        once=arguments.once,
        forever=arguments.forever,
    )


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"{text}: expected seconds above 0")
    return value
