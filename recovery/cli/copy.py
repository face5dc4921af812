"""`kafka-log-recovery archive copy`: log dirs as they are, to a folder or a bucket."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from recovery.cli.arguments import (
    GivenOnce,
    add_log_dir_arguments,
    add_property_argument,
    add_verbosity_arguments,
    add_watching_arguments,
    byte_rate,
    log_dirs_of,
    observer_options,
    properties_of,
    thread_count,
)
from recovery.cli.session import print_report, watched_signals

if TYPE_CHECKING:
    from recovery.archive.copy.options import CopyOptions

_EPILOG = """\
examples:
  kafka-log-recovery archive copy -c /etc/kafka/server.properties --output s3://backups/copy

exit codes:
  0  all is copied
  1  usage error, or the output cannot be written
  3  a broker or a recovery is running on a log dir
  4  some files could not be read, or not whole; all others are copied
  129, 130, 143  interrupted; start again to resume
"""


def add_action(actions: argparse._SubParsersAction[Any]) -> None:
    """Add the command to those of `archive`."""
    parser = actions.add_parser(
        "copy",
        help="copy log dirs to a folder or a bucket, as far as they can be read",
        description="Copy the log dirs of a stopped broker to a folder or a bucket: off a dying disk, or before "
        "anything is tried. Nothing in them is changed. Started again it sends only what is new or changed.",
        epilog=_EPILOG,
    )
    add_log_dir_arguments(parser, "copy")
    parser.add_argument(
        "--output", metavar="URL", action=GivenOnce, required=True, help="path or URL of the copy"
    )
    parser.add_argument("--topic", metavar="NAME", action="append", default=[], help="only this topic")
    parser.add_argument(
        "--partition", metavar="TOPIC-N", action="append", default=[], help="only this partition"
    )
    parser.add_argument("--restart", action="store_true", help="send everything, whatever is there")
    settings = parser.add_argument_group("settings")
    add_property_argument(settings)
    settings.add_argument(
        "--threads", metavar="N", type=thread_count, help="files that are copied at a time (default: 2)"
    )
    settings.add_argument(
        "--max-bytes-per-second",
        metavar="N",
        type=byte_rate,
        help="read at most this many bytes a second; k, M and G are powers of 1024",
    )
    add_watching_arguments(parser, served="progress")
    add_verbosity_arguments(parser, "each file that could not be copied")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    with watched_signals() as signals, ExitStack() as process:
        from recovery.archive.copy.run import copy
        from recovery.stop_request import StopRequest
        from recovery.watch.open import open_observers

        stop = StopRequest()
        options = _options(arguments)
        signals.forward_to(stop)
        with open_observers(observer_options(arguments), process=process) as observers:
            report = copy(options, observers=observers, stop=stop)
        print_report(report, arguments, signals)
    return report.exit_code


def _options(arguments: argparse.Namespace) -> CopyOptions:
    from recovery.archive.copy.options import CopyOptions

    log_dirs = log_dirs_of(arguments)
    return CopyOptions(
        output=arguments.output,
        log_dirs=None if log_dirs is None else tuple(log_dirs),
        config=properties_of(arguments).values,
        topics=tuple(arguments.topic),
        partitions=tuple(arguments.partition),
        threads=arguments.threads,
        max_bytes_per_second=arguments.max_bytes_per_second,
        restart=arguments.restart,
    )
