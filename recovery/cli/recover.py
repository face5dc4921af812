"""`kafka-log-recovery recover`: recover log dirs and hand them back to the broker."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from recovery.cli.arguments import (
    GivenOnce,
    add_log_dir_arguments,
    add_reading_arguments,
    add_release_argument,
    add_setting_arguments,
    add_thread_argument,
    add_verbosity_arguments,
    add_watching_arguments,
    log_dirs_of,
    milliseconds,
    observer_options,
    properties_of,
    topic_configs_of,
)
from recovery.cli.session import Signals, complain, print_report, watched_signals
from recovery.errors import InterruptedRecoveryError

if TYPE_CHECKING:
    from recovery.engine.options import RecoverOptions
    from recovery.engine.report import RecoveryReport

_EPILOG = """\
examples:
  kafka-log-recovery recover -c /etc/kafka/server.properties --dry-run
  kafka-log-recovery recover -c /etc/kafka/server.properties
  kafka-log-recovery recover -c /etc/kafka/server.properties --threads 8 --metrics-port 9404 --format json > report.json

exit codes:
  0  done, nothing lost
  1  usage or I/O error; no log dir could be processed, or only the report could not be written
  2  data was cut off, and is in quarantine, or would be (--dry-run); or offsets are missing
  3  a log dir is locked or unsafe to touch; nothing was changed
  4  some partitions or log dirs were not recovered, the rest were; or a broker would not start: see PROBLEM
  129, 130, 143  interrupted; start again to resume
"""


def add_parser(commands: argparse._SubParsersAction[Any]) -> None:
    """Add this command to the command line."""
    parser = commands.add_parser(
        "recover",
        help="recover log dirs and hand them back to the broker",
        description="Do what a 4.3 or 4.4 broker does to its log dirs after an unclean shutdown, so that it has "
        "nothing left to do.",
        epilog=_EPILOG,
    )
    where = add_log_dir_arguments(parser, "recover")
    where.add_argument(
        "--topic",
        metavar="NAME",
        action="append",
        default=[],
        help="only this topic; may be given more than once. The rest stays as it is, and log dirs without a marker get "
        "none",
    )
    where.add_argument(
        "--partition",
        metavar="TOPIC-N",
        action="append",
        default=[],
        help="only this partition, likewise",
    )
    settings = add_setting_arguments(parser)
    add_release_argument(settings)
    add_thread_argument(settings)
    add_reading_arguments(settings)
    settings.add_argument(
        "--processes",
        choices=("auto", "always", "never"),
        default="auto",
        help="a process for each log dir: if there are so many logs that it pays (auto, the default), always, or "
        "never; else threads of one process",
    )
    settings.add_argument(
        "--now",
        metavar="MS",
        type=milliseconds,
        help="the clock by which producers expire, ms since 1970 (default: now)",
    )
    outcome = parser.add_argument_group("outcome")
    outcome.add_argument(
        "-n", "--dry-run", action="store_true", help="change nothing, list what would be done"
    )
    outcome.add_argument(
        "--restart",
        action="store_true",
        help="forget what an interrupted run has done, and begin anew",
    )
    outcome.add_argument(
        "--force",
        action="store_true",
        help="recover as after an unclean shutdown, whatever the clean-shutdown markers say",
    )
    outcome.add_argument(
        "--repair",
        action="store_true",
        help="first move to quarantine what would stop the broker, if that costs no data: foreign files and "
        "folders, indexes that cannot be used, malformed checkpoints",
    )
    outcome.add_argument(
        "--handoff",
        choices=("clean-shutdown", "recovery-point", "none"),
        default="clean-shutdown",
        help="what the broker finds: a clean-shutdown marker and recovery points at the log ends (default), "
        "recovery points only, or neither",
    )
    outcome.add_argument(
        "--quarantine-dir",
        metavar="DIR",
        action=GivenOnce,
        help="where cut bytes go (default: LOG_DIR.quarantine, on the same file system)",
    )
    outcome.add_argument(
        "--keep-deleted",
        action="store_true",
        help="move to quarantine all .deleted files, which the broker was to remove, "
        "not only those that may hold missing offsets",
    )
    outcome.add_argument(
        "--exit-zero-on-truncation",
        action="store_true",
        help="exit with 0 instead of 2: offsets that are cut, missing or hidden are reported alone",
    )
    add_watching_arguments(parser, served="the KIP-831 gauges and more")
    add_verbosity_arguments(parser, "each partition; -vv: also each action")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    with watched_signals() as signals, ExitStack() as process:
        try:
            report = _recover(arguments, signals, process)
        except InterruptedRecoveryError as error:
            complain(str(error))
            return error.signal_exit_code
        if print_report(report, arguments, signals):
            _acknowledge(report)
    if report.exit_code == 2 and arguments.exit_zero_on_truncation:
        return 0
    return report.exit_code


def _acknowledge(report: RecoveryReport) -> None:
    from recovery.engine.cut_ledger import acknowledge

    acknowledge(report)


def _recover(arguments: argparse.Namespace, signals: Signals, process: ExitStack) -> RecoveryReport:
    from recovery.engine.api import recover
    from recovery.stop_request import StopRequest
    from recovery.watch.open import open_observers

    stop = StopRequest()
    options, log_dirs = _options(arguments), log_dirs_of(arguments)
    signals.forward_to(stop)
    with open_observers(observer_options(arguments), process=process) as observers:
        return recover(log_dirs, options, observers=observers, stop=stop)


def _options(arguments: argparse.Namespace) -> RecoverOptions:
    from recovery.engine.options import RecoverOptions

    properties = properties_of(arguments)
    return RecoverOptions(
        config=properties.values,
        config_notes=properties.notes,
        is_config_complete=arguments.config is not None,
        topic_configs=topic_configs_of(arguments),
        release=arguments.release,
        now_ms=arguments.now,
        dry_run=arguments.dry_run,
        handoff=arguments.handoff,
        threads=arguments.threads,
        quarantine_dir=arguments.quarantine_dir,
        keep_deleted=arguments.keep_deleted,
        force=arguments.force,
        repair=arguments.repair,
        restart=arguments.restart,
        topics=tuple(arguments.topic),
        partitions=tuple(arguments.partition),
        max_bytes_per_second=arguments.max_bytes_per_second,
        drop_cache=arguments.drop_cache,
        processes=arguments.processes,
        acknowledge=False,
    )
