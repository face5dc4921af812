"""`kafka-log-recovery archive inventory|verify|recover`: archived and tiered logs, in this process or on Spark.

The other actions of `archive` are in `recovery.cli.tiering`.
"""

from __future__ import annotations

import argparse
import atexit
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from recovery.archive.layouts.layouts import AUTO, LAYOUTS
from recovery.cli import copy, restore, tiering
from recovery.cli.arguments import (
    GivenOnce,
    add_progress_argument,
    add_setting_arguments,
    add_verbosity_arguments,
    add_watching_arguments,
    metadata_of,
    observer_options,
    pair_of,
    properties_of,
    refuse_written_file,
    topic_configs_of,
)
from recovery.cli.session import Signals, complain, print_report, watched_signals
from recovery.errors import InterruptedRecoveryError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from recovery.archive.check.options import CheckOptions
    from recovery.archive.check.report import ArchiveReport

_INVENTORY_EPILOG = """\
examples:
  kafka-log-recovery archive inventory s3://backups/kafka --metadata /var/lib/kafka/d1,/var/lib/kafka/d2

exit codes:
  0  everything that should be there is there
  1  usage error, or the archive cannot be listed
  2  objects or segments are missing, or not what they should be
  4  some prefixes could not be listed, or some segments not compared
  129, 130, 143  interrupted; nothing is printed
"""
_VERIFY_EPILOG = """\
examples:
  kafka-log-recovery archive verify s3://backups/kafka
  kafka-log-recovery archive verify s3://backups/kafka --logs-only --output s3://backups/checked
  kafka-log-recovery archive verify s3://backups/kafka --engine spark

exit codes:
  0  no damage
  1  usage error, the archive cannot be listed, the output cannot be written, or Spark gave up
  2  damage was found
  4  some objects could not be read or compared; the others were checked
  129, 130, 143  interrupted; with --output the next run resumes
"""
_RECOVER_EPILOG = """\
examples:
  kafka-log-recovery archive recover s3://backups/kafka --output s3://backups/recovered

exit codes:
  0  nothing was damaged, or all of it was rebuilt
  1  usage error, the archive cannot be listed, the output cannot be written, or Spark gave up
  2  something is damaged that cannot be rebuilt from the logs
  4  some objects could not be read or compared
  129, 130, 143  interrupted; the next run with the same --output resumes
"""


def add_parser(commands: argparse._SubParsersAction[Any]) -> None:
    """Add this command to the command line."""
    parser = commands.add_parser(
        "archive",
        help="verify, rebuild, measure, copy and restore archived and tiered logs",
        description="Work on logs outside the log dirs of a broker: copies of log dirs, and tiered storage. `verify` "
        "and `recover` check small archives in this process, large ones with Spark: the given one (--master, "
        "--remote), or one on all cores of this machine.",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    _add_inventory(actions)
    _add_verify(actions)
    _add_recover(actions)
    tiering.add_actions(actions)
    copy.add_action(actions)
    restore.add_action(actions)


def _add_inventory(actions: argparse._SubParsersAction[Any]) -> None:
    listing = actions.add_parser(
        "inventory",
        help="show what lies in an archive, and what should",
        description="List an archive: segments by topic and partition; with --metadata what is missing, orphaned, "
        "interrupted or duplicated. Only names and sizes are read, so Spark is not needed.",
        epilog=_INVENTORY_EPILOG,
    )
    _add_source_arguments(listing)
    listing.add_argument(
        "--output", metavar="URL", action=GivenOnce, help="keep a row for each segment here, as Parquet"
    )
    add_progress_argument(listing)
    listing.add_argument(
        "--format", choices=("text", "json"), default="text", help="form of the report on standard output"
    )
    add_verbosity_arguments(listing, "each note")
    listing.set_defaults(run=run_inventory)


def _add_verify(actions: argparse._SubParsersAction[Any]) -> None:
    verifying = actions.add_parser(
        "verify",
        help="check every object of an archive",
        description="Check every object of an archive: batches and their checksums, offsets, indexes, snapshots, "
        "epochs, and what follows from segments that follow one another. Nothing in the archive is changed.",
        epilog=_VERIFY_EPILOG,
    )
    _add_common_arguments(verifying)
    verifying.add_argument(
        "--output",
        metavar="URL",
        action=GivenOnce,
        help="keep verdicts here as Parquet; the next run reads only what is new or changed",
    )
    depth = verifying.add_mutually_exclusive_group()
    _add_deep(depth)
    depth.add_argument(
        "--logs-only",
        action="store_true",
        help="check only the batches and offsets of the logs: for very many small segments",
    )
    verifying.set_defaults(run=run_verify)


def _add_recover(actions: argparse._SubParsersAction[Any]) -> None:
    recovering = actions.add_parser(
        "recover",
        help="rebuild indexes, snapshots and leader epochs that are missing or malformed",
        description="Check an archive as verify does, and rebuild what derives from its logs: offset, time and "
        "transaction indexes, producer snapshots, leader epochs.",
        epilog=_RECOVER_EPILOG,
    )
    _add_common_arguments(recovering)
    _add_deep(recovering)
    recovering.add_argument(
        "--output",
        metavar="URL",
        action=GivenOnce,
        help="what was rebuilt goes here, and the verdicts (with --in-place by default ARCHIVE.quarantine)",
    )
    recovering.add_argument(
        "--in-place",
        action="store_true",
        help="write what was rebuilt into the archive; what it replaces goes to the output's quarantine first",
    )
    recovering.set_defaults(run=run_recover)


def _add_source_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("archive", metavar="ARCHIVE", help="path or URL: s3://, gs://, az://")
    parser.add_argument(
        "--layout",
        choices=(AUTO, *LAYOUTS),
        default=AUTO,
        help="how the archive names things; auto detects it",
    )
    parser.add_argument("--topic", metavar="NAME", action="append", default=[], help="only this topic")
    parser.add_argument(
        "--partition", metavar="TOPIC-N", action="append", default=[], help="only this partition"
    )
    parser.add_argument(
        "--metadata",
        metavar="A,B",
        action=GivenOnce,
        help="log dirs, or copies of them, with partitions of __remote_log_metadata: what should be there",
    )
    parser.add_argument(
        "--files-from",
        metavar="LIST",
        action=GivenOnce,
        help="a list of the archive's objects, or the manifest.json of an S3 Inventory, in place of a listing",
    )


def _add_deep(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--deep", action="store_true", help="decompress and parse every record")


def _add_common_arguments(parser: argparse.ArgumentParser) -> None:
    _add_source_arguments(parser)
    parser.add_argument(
        "--aiven-key",
        metavar="ID=FILE",
        action="append",
        default=[],
        help="RSA private key (PEM) for segments that the Aiven plugin has encrypted",
    )
    add_setting_arguments(parser)
    where = parser.add_argument_group("where the work is done")
    where.add_argument(
        "--engine",
        choices=("auto", "process", "spark"),
        default="auto",
        help="auto (default): this process up to 16 GiB and 15,000 segments, else Spark; and Spark where one is named",
    )
    spark = where.add_mutually_exclusive_group()
    spark.add_argument("--master", metavar="URL", help="a Spark master (default: all cores of this machine)")
    spark.add_argument("--remote", metavar="URL", help="a Spark Connect server: sc://host:port")
    where.add_argument(
        "--cores",
        metavar="N",
        type=int,
        help="tasks at a time (default: one for each CPU, or Spark's own; 8 with --remote)",
    )
    where.add_argument(
        "--spark-log",
        metavar="FILE",
        help="append what Spark prints on this machine to FILE; -: to standard output and error (default: nowhere)",
    )
    add_watching_arguments(parser, served="progress")
    add_verbosity_arguments(parser, "each finding, also where many objects have the same")


def run_inventory(arguments: argparse.Namespace) -> int:
    """Run `archive inventory` and return its exit code."""
    from recovery.archive.inventory.run import inventory
    from recovery.archive.options import ArchiveOptions
    from recovery.stop_request import StopRequest
    from recovery.watch.tally import open_tally

    with watched_signals() as signals:
        stop = StopRequest()
        signals.forward_to(stop)
        with open_tally(arguments.progress, f"Listing {arguments.archive}", "segments") as tally:
            report = inventory(ArchiveOptions(**_source(arguments)), stop=stop, tally=tally)
        print_report(report, arguments, signals)
    return report.exit_code


def run_verify(arguments: argparse.Namespace) -> int:
    """Run `archive verify` and return its exit code."""
    return _run(arguments)


def run_recover(arguments: argparse.Namespace) -> int:
    """Run `archive recover` and return its exit code."""
    return _run(arguments)


def _run(arguments: argparse.Namespace) -> int:
    with watched_signals() as signals, ExitStack() as process:
        try:
            report = _report(arguments, signals, process)
        except InterruptedRecoveryError as error:
            complain("interrupted before anything was read")
            if arguments.remote is not None:
                atexit._clear()  # Spark's client would call its server, which may be the reason for the wait
            return error.signal_exit_code
        print_report(report, arguments, signals)
    return report.exit_code


def _report(arguments: argparse.Namespace, signals: Signals, process: ExitStack) -> ArchiveReport:
    from recovery.spark import archive
    from recovery.spark.session import open_session
    from recovery.stop_request import StopRequest
    from recovery.watch.open import open_observers

    stop = StopRequest()
    options, log = _check_options(arguments), _spark_log(arguments)
    signals.forward_to(stop)
    with open_observers(observer_options(arguments), process=process) as observers, ExitStack() as stack:

        def open_spark() -> SparkSession:
            with signals.ending():
                spark = open_session(
                    master=arguments.master,
                    remote=arguments.remote,
                    is_for_one_run=True,
                    log=log,
                )
            signals.install()  # pyspark has replaced our handler with its own
            stack.callback(spark.stop)
            return spark

        return archive.check(
            options,
            engine=arguments.engine,
            open_spark=open_spark,
            is_cluster=arguments.master is not None or arguments.remote is not None,
            observers=observers,
            stop=stop,
        )


def _spark_log(arguments: argparse.Namespace) -> str | None:
    """Return `--spark-log`, None without it.

    Raises:
        UsageError: as `refuse_written_file`.
    """
    path: str | None = arguments.spark_log
    if path is None or path == "-":
        return path
    refuse_written_file("--spark-log", path, arguments)
    return path


def _source(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the options that all commands have, by the names of `ArchiveOptions`."""
    return {
        "url": arguments.archive,
        "layout": arguments.layout,
        "topics": tuple(arguments.topic),
        "partitions": tuple(arguments.partition),
        "metadata": metadata_of(arguments),
        "files_from": arguments.files_from,
        "output": arguments.output,
    }


def _check_options(arguments: argparse.Namespace) -> CheckOptions:
    from recovery.archive.check.options import CheckOptions
    from recovery.archive.layouts.aiven_cipher import load_aiven_keys

    properties = properties_of(arguments)
    recovers = arguments.action == "recover"
    return CheckOptions(
        **_source(arguments),
        rebuilds=recovers,
        is_in_place=recovers and arguments.in_place,
        is_deep=arguments.deep,
        is_logs_only=not recovers and arguments.logs_only,
        keys=load_aiven_keys(dict(pair_of(item, "--aiven-key", "ID=FILE") for item in arguments.aiven_key)),
        config=properties.values,
        config_notes=tuple(properties.notes),
        topic_configs=topic_configs_of(arguments) or {},
        cores=arguments.cores,
    )
