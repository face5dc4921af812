"""`kafka-log-recovery archive metrics|retention`: tiered logs seen from outside, while their brokers may be down."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from recovery.archive.layouts.layouts import AUTO, LAYOUTS
from recovery.cli.arguments import (
    GivenOnce,
    add_config_argument,
    add_progress_argument,
    add_setting_arguments,
    add_verbosity_arguments,
    metadata_of,
    milliseconds,
    properties_of,
    textfile_of,
    topic_configs_of,
    verbosity_of,
)
from recovery.cli.session import complain, print_parts, print_report, print_result, watched_signals
from recovery.errors import UsageError
from recovery.read.file_system import is_there

if TYPE_CHECKING:
    from recovery.archive.tiering.options import TieringOptions

_METRICS_EPILOG = """\
examples:
  kafka-log-recovery archive metrics --metadata /var/lib/kafka/d1,/var/lib/kafka/d2 -c /etc/kafka/server.properties
  kafka-log-recovery archive metrics s3://backups/kafka --metadata /var/lib/kafka/d1,/var/lib/kafka/d2

exit codes:
  0  all figures are known, whatever they are
  1  usage error, or a log dir or the archive cannot be listed
  4  some figures cannot be known; a warning says why
  129, 130, 143  interrupted; nothing is printed
"""
_RETENTION_EPILOG = """\
examples:
  kafka-log-recovery archive retention --metadata /var/lib/kafka/d1,/var/lib/kafka/d2 -c /etc/kafka/server.properties

exit codes:
  0  nothing that is in retention will be deleted
  1  usage error, or a log dir cannot be listed
  2  a broker before 4.3.2 will delete data that is in retention when it starts
  4  what will be deleted of some partitions cannot be known; a warning says why
  129, 130, 143  interrupted; nothing is printed
"""


def add_actions(actions: argparse._SubParsersAction[Any]) -> None:
    """Add both commands to those of `archive`."""
    metrics = actions.add_parser(
        "metrics",
        help="measure the remote parts of tiered logs: sizes, and what is not copied or deleted yet",
        description="Measure tiered logs by log dirs, or copies of them, as brokers' gauges do (KIP-963), also while "
        "the brokers are down, or copying fails. Nothing is locked or written.",
        epilog=_METRICS_EPILOG,
    )
    metrics.add_argument(
        "archive",
        metavar="ARCHIVE",
        nargs="?",
        help="the brokers' remote storage, path or URL: count what lies there, too, and what is missing",
    )
    metrics.add_argument(
        "--layout",
        choices=(AUTO, *LAYOUTS),
        default=AUTO,
        help="how the archive names things; auto detects it",
    )
    _add_arguments(metrics, formats=("text", "json", "prometheus"))
    metrics.add_argument(
        "--metrics-textfile",
        metavar="FILE",
        action=GivenOnce,
        help="write the figures to FILE, too, for node_exporter, which reads names in .prom; a run without figures "
        "empties it",
    )
    metrics.set_defaults(run=run_metrics)
    retention = actions.add_parser(
        "retention",
        help="show what brokers will delete of the remote parts of tiered logs",
        description="Show which remote segments retention will delete, and which a broker before 4.3.2 will delete "
        "by mistake when it starts (KAFKA-20732). Nothing is locked, written or deleted.",
        epilog=_RETENTION_EPILOG,
    )
    _add_arguments(retention, formats=("text", "json"))
    retention.set_defaults(run=run_retention)


def _add_arguments(parser: argparse.ArgumentParser, *, formats: tuple[str, ...]) -> None:
    parser.add_argument(
        "--metadata",
        metavar="A,B",
        action=GivenOnce,
        required=True,
        help="log dirs, or copies of them: those with partitions of __remote_log_metadata, and of the topics",
    )
    add_config_argument(parser)
    parser.add_argument("--topic", metavar="NAME", action="append", default=[], help="only this topic")
    parser.add_argument(
        "--partition", metavar="TOPIC-N", action="append", default=[], help="only this partition"
    )
    add_setting_arguments(parser)
    parser.add_argument(
        "--now",
        metavar="MS",
        type=milliseconds,
        help="judge retention as at this time, in ms since 1970 (default: now)",
    )
    add_progress_argument(parser)
    parser.add_argument(
        "--format", choices=formats, default=formats[0], help="form of the report on standard output"
    )
    add_verbosity_arguments(parser, "each partition")


def run_metrics(arguments: argparse.Namespace) -> int:
    """Run `archive metrics` and return its exit code."""
    from recovery.archive.tiering.prometheus import metrics_text
    from recovery.archive.tiering.run import measure_tiering
    from recovery.stop_request import StopRequest
    from recovery.watch.tally import open_tally

    with watched_signals() as signals:
        stop = StopRequest()
        options, textfile = _options(arguments), textfile_of(arguments)
        signals.forward_to(stop)
        with _kept_in_textfile(textfile) as keep:
            with open_tally(arguments.progress, "Measuring", "partitions") as tally:
                report = measure_tiering(options, stop=stop, tally=tally)
            keep(metrics_text(report))
        if arguments.format == "prometheus":
            for warning in report.warnings:
                complain(warning)
            print_result(metrics_text(report).decode().removesuffix("\n"), signals, form=arguments.format)
        else:
            print_report(report, arguments, signals)
    return report.exit_code


@contextmanager
def _kept_in_textfile(path: str | None) -> Iterator[Callable[[bytes], None]]:
    """Return what writes figures to the file at *path*, if there is one.

    Without figures, those of an earlier run do not stay there: nothing would tell that they are old.
    """
    from recovery.watch.textfile import replace_textfile

    def keep(figures: bytes) -> None:
        if path is None:
            return
        try:
            replace_textfile(path, figures)
        except OSError as error:
            raise UsageError(
                f"--metrics-textfile {path}: {error.strerror}. Remedy: name a file in a folder that this user may "
                "write to"
            ) from error

    try:
        yield keep
    except BaseException:
        if path is not None:
            with suppress(OSError):
                if is_there(path):
                    replace_textfile(path, b"")
        raise


def run_retention(arguments: argparse.Namespace) -> int:
    """Run `archive retention` and return its exit code."""
    from recovery.archive.tiering.run import foretell_retention
    from recovery.stop_request import StopRequest
    from recovery.watch.tally import open_tally

    with watched_signals() as signals:
        stop = StopRequest()
        options = _options(arguments)
        signals.forward_to(stop)
        with open_tally(arguments.progress, "Measuring", "partitions") as tally:
            report = foretell_retention(options, stop=stop, tally=tally)
        if arguments.format == "json":
            print_parts(report.json_parts(), signals)
        else:
            print_result(report.to_text(verbosity_of(arguments)), signals)
    return report.exit_code


def _options(arguments: argparse.Namespace) -> TieringOptions:
    from recovery.archive.tiering.options import TieringOptions

    properties = properties_of(arguments)
    return TieringOptions(
        archive=getattr(arguments, "archive", None),
        layout=getattr(arguments, "layout", AUTO),
        metadata=metadata_of(arguments),
        config=properties.values,
        config_notes=properties.notes,
        topic_configs=topic_configs_of(arguments) or {},
        topics=tuple(arguments.topic),
        partitions=tuple(arguments.partition),
        now_ms=arguments.now,
    )
