"""`kafka-log-recovery quarantine list` and `purge`: what lies in quarantine, and its removal."""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from typing import TYPE_CHECKING, Any

from recovery.cli.arguments import (
    GivenOnce,
    add_log_dir_arguments,
    add_progress_argument,
    add_property_argument,
    add_verbosity_arguments,
    kept_quarantine_dir,
    log_dirs_of,
    properties_of,
)
from recovery.errors import UsageError, error_text
from recovery.quantity import bytes_text, count_text

if TYPE_CHECKING:
    from recovery.saved.report import LogDirListing, PurgeReport, QuarantineListing
    from recovery.saved.runs import QuarantineRun
    from recovery.watch.tally import Tally

_LIST_EPILOG = """\
examples:
  kafka-log-recovery quarantine list -c /etc/kafka/server.properties --verify

exit codes:
  0  done
  1  usage error, or no log dir can be looked at
  2  something is missing, or unknown to the manifest, or not what it was (--verify)
  3  a journal cannot be read
  4  some log dirs cannot be looked at, the rest are listed
  129, 130, 143  interrupted; nothing is printed
"""
_PURGE_EPILOG = """\
examples:
  kafka-log-recovery quarantine purge -c /etc/kafka/server.properties --older-than 30d

A broker may run meanwhile. What is purged cannot be put back by undo.

exit codes:
  0  done, or nothing to do
  1  usage error, or quarantine cannot be read; nothing was purged, unless only the report could not be written
  3  a recovery or an undo is at work or was interrupted; nothing was purged
  4  runs could not be purged, at least not whole; the rest were
  129, 130, 143  interrupted; start again for the rest
"""
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_DURATION = re.compile(r"(\d{1,9})([smhdw])")


def add_parser(commands: argparse._SubParsersAction[Any]) -> None:
    """Add this command to the command line."""
    parser = commands.add_parser(
        "quarantine",
        help="list and purge what recoveries have put into quarantine",
        description="List and purge what recoveries have put into quarantine.",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser(
        "list",
        help="show what lies in quarantine",
        description="Show what lies in quarantine: since when, how much, of which partitions, why. Changes nothing.",
        epilog=_LIST_EPILOG,
    )
    _add_common_arguments(listing, "look at")
    listing.add_argument(
        "--verify", action="store_true", help="read everything, and compare it with the manifest's SHA-256"
    )
    add_verbosity_arguments(listing, "each log")
    listing.set_defaults(run=run_list)
    purging = actions.add_parser(
        "purge",
        help="remove runs from quarantine",
        description="Remove whole runs from quarantine: what they saved, and nothing else.",
        epilog=_PURGE_EPILOG,
    )
    _add_common_arguments(purging, "purge")
    chosen = purging.add_argument_group("which runs (one of the three is needed)")
    which = chosen.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--older-than",
        action=GivenOnce,
        metavar="AGE",
        type=_seconds,
        help="runs that began longer ago: 30d, 12h, 90m, 2w, 45s",
    )
    which.add_argument(
        "--run",
        metavar="NAME",
        action=GivenOnce,
        dest="run_name",
        help="the run of this name, as list has it",
    )
    which.add_argument("--all", action="store_true", help="all runs; on a terminal it asks first")
    purging.add_argument("-y", "--yes", action="store_true", help="do not ask")
    purging.add_argument(
        "-n", "--dry-run", action="store_true", help="change nothing, list what would be removed"
    )
    add_verbosity_arguments(purging, "each run")
    purging.set_defaults(run=run_purge)


def _add_common_arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    add_property_argument(add_log_dir_arguments(parser, verb))
    parser.add_argument(
        "--quarantine-dir",
        metavar="DIR",
        action=GivenOnce,
        help="the folder that was given to recover, if any",
    )
    add_progress_argument(parser)
    parser.add_argument(
        "--format", choices=("text", "json"), default="text", help="form of the result on standard output"
    )


def run_list(arguments: argparse.Namespace) -> int:
    """Run `quarantine list` and return its exit code."""
    from recovery.cli.session import print_report, watched_signals
    from recovery.watch.tally import open_tally

    with watched_signals() as signals:
        with open_tally(arguments.progress, "Reading what is in quarantine", "files") as tally:
            listing = _listing(arguments, tally)
        print_report(listing, arguments, signals)
    return listing.exit_code


def run_purge(arguments: argparse.Namespace) -> int:
    """Run `quarantine purge` and return its exit code."""
    from recovery.cli.session import print_report, watched_signals
    from recovery.saved.purge import purge
    from recovery.saved.report import PurgeReport
    from recovery.stop_request import StopRequest
    from recovery.watch.tally import open_tally

    latest_ms = _now_ms() - 1000 * (arguments.older_than or 0)

    def is_chosen(run: QuarantineRun) -> bool:
        if arguments.run_name is not None:
            return bool(run.name == arguments.run_name)
        return bool(arguments.all) or run.started_ms < latest_ms

    log_dirs, quarantine_dir = _paths(arguments)
    for log_dir in log_dirs:
        _refuse_missing(log_dir, quarantine_dir)
    is_asking = arguments.all and not (arguments.yes or arguments.dry_run)
    if is_asking and sys.stdin.isatty():
        planned = purge(log_dirs, quarantine_dir, is_chosen, dry_run=True)
        _ask_for_all(PurgeReport(dry_run=True, log_dirs=planned))
    stop = StopRequest()
    with watched_signals() as signals:
        signals.forward_to(stop)
        with open_tally(arguments.progress, "Removing what is in quarantine", "files") as tally:
            purged = purge(
                log_dirs,
                quarantine_dir,
                is_chosen,
                dry_run=arguments.dry_run,
                tally=tally,
                check_stop=stop.check,
            )
        runs = [one for log_dir_purge in purged for one in log_dir_purge.runs]
        if arguments.run_name is not None and not runs:
            raise UsageError(f"--run {arguments.run_name}: there is no such run. Remedy: see quarantine list")
        is_interrupted = any(one.rule == "interrupted" for one in runs)
        report = PurgeReport(
            dry_run=arguments.dry_run,
            log_dirs=purged,
            signal_exit_code=128 + stop.signal_number if is_interrupted else None,
        )
        print_report(report, arguments, signals)
    return report.exit_code


def _ask_for_all(planned: PurgeReport) -> None:
    """Let somebody at a terminal think again: what a purge removes is nowhere else.

    Raises:
        UsageError: the answer is not yes.
    """
    if not planned.run_count:
        return
    amount = f"{count_text(planned.run_count, 'run')}, {bytes_text(planned.freed_bytes)}"
    _show_question(f"{amount}: undo cannot put this back once it is removed. Go on? [y/N] ")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError("nothing was removed. Remedy: answer y, or give --yes")


def _show_question(text: str) -> None:
    """Write *text* to the terminal on which the answer is typed, also if standard error goes elsewhere.

    Raises:
        UsageError: it cannot be written to.
    """
    stream = sys.stderr if sys.stderr.isatty() else sys.stdin
    try:
        os.write(stream.fileno(), text.encode())
    except OSError as error:
        raise UsageError("nobody can be asked here. Remedy: give --yes") from error


def _listing(arguments: argparse.Namespace, tally: Tally) -> QuarantineListing:
    from recovery.logdir.quarantine_place import possible_roots
    from recovery.saved.report import LogDirListing, QuarantineListing

    log_dirs, quarantine_dir = _paths(arguments)
    listed: list[LogDirListing] = []
    missing: list[UsageError] = []
    for log_dir in log_dirs:
        try:
            listed.append(_log_dir_listing(log_dir, quarantine_dir, tally if arguments.verify else None))
        except UsageError as error:
            places = possible_roots(log_dir, quarantine_dir)
            listed.append(LogDirListing(log_dir=log_dir, places=places, error=str(error)))
            missing.append(error)
    if len(missing) == len(listed):
        raise missing[0]
    return QuarantineListing(now_ms=_now_ms(), log_dirs=tuple(listed))


def _log_dir_listing(log_dir: str, quarantine_dir: str | None, tally: Tally | None) -> LogDirListing:
    """Return what lies in quarantine of *log_dir*; with a *tally* it is verified.

    Raises:
        UsageError: there is neither such a log dir nor quarantine of it.
    """
    from recovery.logdir.quarantine_place import possible_roots
    from recovery.logdir.user import access_remedy
    from recovery.saved.purge import hindrance, runs_of, unfinished, untold_runs
    from recovery.saved.report import ListedRun, LogDirListing
    from recovery.saved.runs import check_run, is_unfinished, missing_files, unnamed_segments

    roots = possible_roots(log_dir, quarantine_dir)
    try:
        _refuse_missing(log_dir, quarantine_dir)
        runs, untold = runs_of(log_dir, quarantine_dir), untold_runs(log_dir)
        if tally is not None:
            tally.expect(sum(len(run.counted) for run in runs))
        return LogDirListing(
            log_dir=log_dir,
            places=roots,
            unfinished=tuple(unfinished(log_dir, quarantine_dir)),
            runs=tuple(
                ListedRun(
                    run=run,
                    missing=tuple(missing_files(run)),
                    unnamed=() if is_unfinished(run) else tuple(unnamed_segments(run)),
                    hindered=hindrance(run, untold),
                    problems=None if tally is None else tuple(check_run(run, tally)),
                )
                for run in runs
            ),
        )
    except OSError as error:  # one disk may be gone: what lies on the others is still listed
        remedy = (
            f". Remedy: {access_remedy(error.filename or log_dir)}"
            if isinstance(error, PermissionError)
            else ""
        )
        return LogDirListing(log_dir=log_dir, places=roots, error=error_text(error) + remedy)


def _refuse_missing(log_dir: str, quarantine_dir: str | None) -> None:
    """Raise UsageError if there is no quarantine of *log_dir*, and it is no log dir: that alone may be gone."""
    from recovery.logdir.dirs import CHECK_MOUNT, NOT_A_LOG_DIR, is_foreign
    from recovery.logdir.quarantine_place import quarantine_roots
    from recovery.read.file_system import is_folder

    if any(is_folder(path) for path in quarantine_roots(log_dir, quarantine_dir)):
        return
    fault = NOT_A_LOG_DIR if is_folder(log_dir) else "no such log dir"
    if not is_folder(log_dir) or is_foreign(log_dir):
        raise UsageError(f"{log_dir}: {fault}, and nothing in quarantine from it. {CHECK_MOUNT}")


def _paths(arguments: argparse.Namespace) -> tuple[list[str], str | None]:
    """Return the log dirs and the quarantine dir as absolute paths."""
    from recovery.broker.config import BrokerConfig
    from recovery.logdir.dirs import CHECK_MOUNT, by_default, quarantine_place, refuse_relative
    from recovery.read.file_system import absolute, is_folder

    log_dirs = log_dirs_of(arguments)
    if log_dirs is None:
        broker = BrokerConfig.from_properties(properties_of(arguments).values)
        log_dirs = list(broker.log_dirs)
        if not broker.names_log_dirs and not is_folder(log_dirs[0]):
            raise UsageError(f"{log_dirs[0]}: no such log dir{by_default(broker)}. {CHECK_MOUNT}")
        for log_dir in log_dirs:
            refuse_relative(log_dir, "log.dirs", "--log-dirs")
    if not log_dirs:
        raise UsageError("no log dir given")
    return list(dict.fromkeys(map(absolute, log_dirs))), quarantine_place(kept_quarantine_dir(arguments))


def _seconds(text: str) -> int:
    match = _DURATION.fullmatch(text)
    if match is None or not text.isascii():
        raise argparse.ArgumentTypeError(
            f"{text}: expected a number of up to 9 digits and one of s, m, h, d, w, as in 30d"
        )
    return int(match[1]) * _UNITS_S[match[2]]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
