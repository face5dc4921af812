"""`kafka-log-recovery log-dirs`: what is in log dirs, of a broker that is down or of live ones."""

from __future__ import annotations

import argparse
from typing import Any

from recovery.cli.arguments import (
    GivenOnce,
    add_log_dir_arguments,
    add_progress_argument,
    add_property_argument,
    add_verbosity_arguments,
    log_dirs_of,
    properties_of,
    read_properties_file,
)
from recovery.cli.session import complain, print_report, watched_signals
from recovery.errors import InterruptedRecoveryError, UsageError

_EPILOG = """\
examples:
  kafka-log-recovery log-dirs --describe -c /etc/kafka/server.properties
  kafka-log-recovery log-dirs --describe --bootstrap-server broker:9092 --format json

exit codes:
  0  everything is described
  1  usage error, no such broker or topic, or no broker gave an answer
  4  a log dir is offline, or a broker gave no answer; the others are described
  129, 130, 143  interrupted
"""


def add_parser(commands: argparse._SubParsersAction[Any]) -> None:
    """Add this command to the command line."""
    parser = commands.add_parser(
        "log-dirs",
        help="sizes of replicas, room on the volumes, what is offline, what is cordoned",
        description="Describe log dirs as kafka-log-dirs does, with the room on their volumes (KIP-827) and what is "
        "cordoned (KIP-1066): from their files, whether the broker is down or runs beside, or by live brokers. Nothing "
        "is written, locked or created.",
        epilog=_EPILOG,
    )
    parser.add_argument("--describe", action="store_true", required=True, help="the one thing it does")
    where = add_log_dir_arguments(parser, "describe", choices="one of these is needed")
    add_property_argument(where)
    where.add_argument(
        "--bootstrap-server", metavar="H:P", action=GivenOnce, help="live brokers, which are asked instead"
    )
    where.add_argument(
        "--command-config",
        metavar="FILE",
        action=GivenOnce,
        help="properties of the client for these: protocol, keys, user",
    )
    parser.add_argument("--broker-list", metavar="1,2", type=_node_ids, help="only these brokers")
    parser.add_argument(
        "--topic-list", metavar="A,B", action=GivenOnce, type=_names, help="only replicas of these topics"
    )
    add_progress_argument(parser)
    parser.add_argument(
        "--format", choices=("text", "json"), default="text", help="form of the result on standard output"
    )
    add_verbosity_arguments(parser, "each replica")
    parser.set_defaults(run=run, command="log-dirs")


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    with watched_signals() as signals:
        try:
            from recovery.describe.api import describe_log_dirs
            from recovery.watch.tally import open_tally

            noun = "folders and segments" if arguments.bootstrap_server is None else "brokers"
            with signals.raising(), open_tally(arguments.progress, "Describing log dirs", noun) as tally:
                report = describe_log_dirs(_log_dirs(arguments), tally=tally, **_options(arguments))
        except InterruptedRecoveryError as error:
            complain("interrupted")
            return error.signal_exit_code
        if arguments.format == "json":
            for line in report.complaints:
                complain(line)
        print_report(report, arguments, signals)
    return report.exit_code


def _log_dirs(arguments: argparse.Namespace) -> list[str] | None:
    if arguments.bootstrap_server is None:
        return log_dirs_of(arguments, also="--bootstrap-server H:P")
    if arguments.config is not None or arguments.log_dirs is not None or arguments.property:
        raise UsageError(
            "--bootstrap-server asks live brokers, -c, --property and --log-dirs name files. Remedy: leave one out"
        )
    return None


def _options(arguments: argparse.Namespace) -> dict[str, Any]:
    options: dict[str, Any] = {"brokers": arguments.broker_list, "topics": arguments.topic_list}
    if arguments.command_config is not None:
        properties, notes = read_properties_file(arguments.command_config, "--command-config")
        options |= {"client_config": properties, "config_notes": tuple(notes)}
    if arguments.bootstrap_server is not None:
        return options | {"bootstrap_servers": arguments.bootstrap_server}
    given = properties_of(arguments)
    return options | {"config": given.values, "config_notes": given.notes}


def _names(text: str) -> list[str]:
    names = [name for part in text.split(",") if (name := part.strip())]
    if not names:
        raise argparse.ArgumentTypeError("names separated by commas are expected")
    return names


def _node_ids(text: str) -> list[int]:
    names = _names(text)
    if not all(name.isascii() and name.isdigit() for name in names):
        raise argparse.ArgumentTypeError(f"{text}: node ids separated by commas are expected, as in 1,2")
    return list(map(int, names))
