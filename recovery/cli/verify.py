"""`kafka-log-recovery verify`: check every file of log dirs, changing nothing."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from recovery.cli.arguments import (
    add_log_dir_arguments,
    add_reading_arguments,
    add_release_argument,
    add_setting_arguments,
    add_thread_argument,
    add_verbosity_arguments,
    add_watching_arguments,
    log_dirs_of,
    observer_options,
    properties_of,
    topic_configs_of,
)
from recovery.cli.session import Signals, complain, print_report, watched_signals
from recovery.errors import InterruptedRecoveryError

if TYPE_CHECKING:
    from recovery.check.options import VerifyOptions
    from recovery.check.report import VerifyReport

_EPILOG = """\
examples:
  kafka-log-recovery verify -c /etc/kafka/server.properties --topic orders
  kafka-log-recovery verify -c /etc/kafka/server.properties --deep

exit codes:
  0  no damage
  1  usage error, or no log dir could be listed
  2  damage was found
  4  some files could not be read; the others were checked
  129, 130, 143  interrupted; the report covers what was checked
"""


def add_parser(commands: argparse._SubParsersAction[Any]) -> None:
    """Add this command to the command line."""
    parser = commands.add_parser(
        "verify",
        help="check every file of log dirs, even while a broker runs",
        description="Check all segments, flushed ones too, their indexes, snapshots and checkpoints. Nothing is "
        "written, locked or created.",
        epilog=_EPILOG,
    )
    add_log_dir_arguments(parser, "verify")
    parser.add_argument(
        "--topic",
        metavar="NAME",
        action="append",
        default=[],
        help="only this topic; may be given more than once",
    )
    parser.add_argument(
        "--partition",
        metavar="TOPIC-N",
        action="append",
        default=[],
        help="only this partition; may be given more than once",
    )
    settings = add_setting_arguments(parser)
    add_release_argument(settings)
    add_thread_argument(settings)
    add_reading_arguments(settings)
    parser.add_argument("--deep", action="store_true", help="decompress and parse every record")
    add_watching_arguments(parser, served="progress")
    add_verbosity_arguments(parser, "each finding, also where many files have the same")
    parser.set_defaults(run=run, command="verify")


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    with watched_signals() as signals, ExitStack() as process:
        try:
            report = _verify(arguments, signals, process)
        except InterruptedRecoveryError as error:
            complain("interrupted before anything was checked")
            return error.signal_exit_code
        print_report(report, arguments, signals)
    return report.exit_code


def _verify(arguments: argparse.Namespace, signals: Signals, process: ExitStack) -> VerifyReport:
    from recovery.check.api import verify
    from recovery.stop_request import StopRequest
    from recovery.watch.open import open_observers

    stop = StopRequest()
    options, log_dirs = _options(arguments), log_dirs_of(arguments)
    signals.forward_to(stop)
    with open_observers(observer_options(arguments), process=process) as observers:
        return verify(log_dirs, options, observers=observers, stop=stop)


def _options(arguments: argparse.Namespace) -> VerifyOptions:
    from recovery.check.options import VerifyOptions

    properties = properties_of(arguments)
    return VerifyOptions(
        config=properties.values,
        config_notes=properties.notes,
        topic_configs=topic_configs_of(arguments),
        release=arguments.release,
        deep=arguments.deep,
        threads=arguments.threads,
        max_bytes_per_second=arguments.max_bytes_per_second,
        drop_cache=arguments.drop_cache,
        topics=arguments.topic,
        partitions=arguments.partition,
    )
