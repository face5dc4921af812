"""`kafka-log-recovery estimate`: what a restart would have to recover now, and how long that would take."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from recovery.cli.arguments import (
    add_log_dir_arguments,
    add_progress_argument,
    add_release_argument,
    add_setting_arguments,
    add_verbosity_arguments,
    byte_count,
    log_dirs_of,
    properties_of,
    refuse_kernel_folder,
    topic_configs_of,
)
from recovery.cli.session import print_report, tell_of_compiling, watched_signals

_EPILOG = """\
examples:
  kafka-log-recovery estimate -c /etc/kafka/server.properties

exit codes:
  0  done
  1  usage error
  4  a log dir, or a part of one, could not be read; the rest is estimated
  129, 130, 143  interrupted; nothing is printed
"""


def add_parser(commands: argparse._SubParsersAction[Any]) -> None:
    """Add this command to the command line."""
    parser = commands.add_parser(
        "estimate",
        help="what a restart would have to recover now, even while a broker runs",
        description="Tell what a restart would have to recover if the broker died now, and how long recover and a "
        "broker would take. Nothing is written, locked or created.",
        epilog=_EPILOG,
    )
    add_log_dir_arguments(parser, "estimate")
    settings = add_setting_arguments(parser)
    add_release_argument(settings)
    output = parser.add_argument_group("sample and output")
    output.add_argument(
        "--sample-bytes",
        metavar="N",
        type=byte_count,
        help="read about this much of the segments to learn how fast this machine is (default 128M; 0: no seconds); k, "
        "M and G are powers of 1024",
    )
    add_progress_argument(output)
    output.add_argument(
        "--format", choices=("text", "json"), default="text", help="form of the report on standard output"
    )
    add_verbosity_arguments(parser, "each topic and problem")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run `estimate` and return its exit code."""
    with watched_signals() as signals:
        from native import kernels
        from recovery.forecast.api import estimate
        from recovery.forecast.options import DEFAULT_SAMPLE_BYTES, EstimateOptions
        from recovery.watch.tally import open_tally

        refuse_kernel_folder(arguments)
        properties = properties_of(arguments)
        given = arguments.sample_bytes
        options = EstimateOptions(
            config=properties.values,
            config_notes=properties.notes,
            is_config_complete=arguments.config is not None,
            topic_configs=topic_configs_of(arguments),
            release=arguments.release,
            sample_bytes=DEFAULT_SAMPLE_BYTES if given is None else given,
        )
        if sys.stderr.isatty() and arguments.progress != "none":
            kernels.before_compiling(tell_of_compiling)
        with signals.raising(), open_tally(arguments.progress, "Looking into log dirs", "logs") as tally:
            report = estimate(log_dirs_of(arguments), options, tally=tally)
        print_report(report, arguments, signals)
    return report.exit_code
