"""`kafka-log-recovery undo`: take a recovery back, out of quarantine."""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Iterable, Iterator
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
    verbosity_of,
)
from recovery.cli.session import complain, print_result, watched_signals
from recovery.errors import (
    FULL_ERRNOS,
    InterruptedRecoveryError,
    RecoveryError,
    UndoneError,
    UnsafeError,
    UsageError,
    error_text,
    scarcity_remedy,
)

if TYPE_CHECKING:
    from recovery.logdir.dirs import BrokerDirs
    from recovery.saved.run_undoing import LogDirUndo

_EPILOG = """\
examples:
  kafka-log-recovery undo -c /etc/kafka/server.properties --dry-run
  kafka-log-recovery undo -c /etc/kafka/server.properties

exit codes:
  0  done, or nothing to take back
  1  usage or I/O error; after an I/O error start again to resume, unless only the report could not be written: \
then the undo is done, and the next one takes back the run before
  3  a log dir is locked, or has changed since its recovery; nothing was changed
  129, 130, 143  interrupted; start again to resume
"""
_MOST_MOVED = 10
"""Of what a repair has moved away and comes back, how much is listed; the rest is counted, unless -v is given."""


def add_parser(commands: argparse._SubParsersAction[Any]) -> None:
    """Add this command to the command line."""
    parser = commands.add_parser(
        "undo",
        help="undo the newest recovery or restore of each log dir",
        description="Put every log, epoch file, checkpoint and name back as it was before the newest recover or "
        "archive restore that changed a partition; later runs go first, and earlier ones are named. Nothing is touched "
        "if anything has changed since, for instance because a broker was started.",
        epilog=_EPILOG,
    )
    add_property_argument(add_log_dir_arguments(parser, "undo"))
    parser.add_argument(
        "--quarantine-dir",
        metavar="DIR",
        action=GivenOnce,
        help="the folder that was given to recover, if any",
    )
    parser.add_argument(
        "--run",
        action=GivenOnce,
        metavar="NAME",
        dest="run_name",
        help="the run to take back, with those after it (default: the newest of each log dir that changed a partition)",
    )
    parser.add_argument("-n", "--dry-run", action="store_true", help="change nothing, say what would be done")
    add_progress_argument(parser)
    parser.add_argument("--format", choices=("text", "json"), default="text", help="form of the result")
    add_verbosity_arguments(parser, "each action")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    with watched_signals() as signals:
        try:
            from recovery.logdir.dirs import find_broker_dirs
            from recovery.saved.undo import undo
            from recovery.stop_request import StopRequest
            from recovery.watch.tally import open_tally

            stop = StopRequest()
            log_dirs, config = log_dirs_of(arguments), properties_of(arguments).values
            quarantine_dir = kept_quarantine_dir(arguments)
            signals.forward_to(stop)
            dirs = find_broker_dirs(log_dirs, config, quarantine_dir=quarantine_dir)
            with open_tally(arguments.progress, "Taking back", "changes") as tally, _told_how_far(dirs):
                undone = undo(
                    dirs.log_dirs,
                    locked_dirs=dirs.locked_dirs,
                    quarantine_dir=dirs.quarantine_dir,
                    run=arguments.run_name,
                    dry_run=arguments.dry_run,
                    check_stop=stop.check,
                    tally=tally,
                )
        except InterruptedRecoveryError as error:
            complain(str(error))
            return error.signal_exit_code
        # An undo that was interrupted is finished as it was begun, whatever it is told now.
        is_passed_over = arguments.run_name is not None and arguments.run_name not in {
            undoing.run for undoing in undone
        }
        exit_code = UsageError.exit_code if is_passed_over else 0
        lines = (
            [_to_json(undone, dry_run=arguments.dry_run, exit_code=exit_code)]
            if arguments.format == "json"
            else _lines(
                undone,
                quarantine_dir=dirs.quarantine_dir,
                dry_run=arguments.dry_run,
                verbosity=verbosity_of(arguments),
            )
        )
        print_result("\n".join(lines), signals, form=arguments.format)
        if is_passed_over:
            finished = (
                "has to be finished first. Remedy: undo without --dry-run finishes it"
                if arguments.dry_run
                else "is finished. Remedy: start the same command again"
            )
            raise UsageError(
                f"--run {arguments.run_name}: not taken back. The undo that was interrupted {finished}"
            )
    return 0


@contextlib.contextmanager
def _told_how_far(dirs: BrokerDirs) -> Iterator[None]:
    """Let an I/O error, or a lack of memory, say whether something was changed, and how it goes on."""
    try:
        yield
    except (OSError, MemoryError) as error:
        what, _, mend = (error_text(error) or "there is too little memory").partition(". Remedy: ")
        is_full = isinstance(error, OSError) and error.errno in FULL_ERRNOS
        mend = mend or scarcity_remedy(error) or ("make room" if is_full else "mend what was the cause")
        state, remedy = "Nothing was changed", f"{mend}, and start undo again"
        if any(_is_begun(log_dir, dirs.quarantine_dir) for log_dir in dirs.log_dirs):
            state, remedy = "The undo is not finished: no broker may start yet", f"{remedy}, which goes on"
        elif isinstance(error, UndoneError):
            state = "All is put back, but a power failure now may take a part of that away"
            remedy = (
                "look for I/O errors of its disk (dmesg), and check the file system before a broker starts"
            )
        raise RecoveryError(f"{what}. {state}. Remedy: {remedy}") from error


def _is_begun(log_dir: str, quarantine_dir: str | None) -> bool:
    """Return whether an `undo` has begun there, and has not ended, as far as can be seen."""
    from recovery.write.undo_notice import refuse_entered_undo, refuse_unfinished_undo

    try:
        refuse_entered_undo(log_dir)
    except (UnsafeError, OSError):
        return True
    try:
        refuse_unfinished_undo(log_dir, quarantine_dir)
    except UnsafeError:
        return True
    except OSError:  # nobody can take anything back from there
        pass
    return False


def _to_json(undone: Iterable[LogDirUndo], *, dry_run: bool, exit_code: int) -> str:
    from recovery.plan.actions import action_words

    document = {
        "version": 1,
        "dryRun": dry_run,
        "exitCode": exit_code,
        "logDirs": [
            {
                "logDir": undoing.log_dir,
                "run": undoing.run,
                "left": undoing.is_left,
                "partitions": list(undoing.partitions),
                "restoredBytes": undoing.restored_bytes,
                "logBytes": undoing.log_bytes,
                "removedBytes": undoing.removed_bytes,
                "movedBack": list(undoing.moved_back),
                "earlierRuns": list(undoing.earlier_runs),
                "actions": [f"{folder}: {action_words(action)}" for folder, action in undoing.actions],
            }
            for undoing in undone
        ],
    }
    return json.dumps(document, indent=2)


def _sizes(undoing: LogDirUndo, *, dry_run: bool) -> str:
    """Return what comes back, and what goes, as all that a restore has brought in."""
    from recovery.quantity import bytes_text, exact_bytes_text

    soon = "to be " if dry_run else ""
    parts = [f"{exact_bytes_text(undoing.log_bytes)} of logs"]
    if other_bytes := undoing.restored_bytes - undoing.log_bytes:
        parts.append(f"{bytes_text(other_bytes)} of other files")
    restored = f"{' and '.join(parts)} {soon}restored"
    removed = f"{exact_bytes_text(undoing.removed_bytes)} of the run's own {soon}removed"
    if not undoing.removed_bytes:
        return restored
    return f"{restored}, {removed}" if undoing.restored_bytes else removed


def _lines(
    undone: Iterable[LogDirUndo], *, quarantine_dir: str | None, dry_run: bool, verbosity: int
) -> Iterable[str]:
    from recovery.logdir.undo_command import undo_command
    from recovery.plan.actions import LOG_DIR_ITSELF, action_words
    from recovery.printable import printable
    from recovery.quantity import count_text

    looked = (
        "next to it and inside it; a recovery with --quarantine-dir needs the same option here"
        if quarantine_dir is None
        else f"only in {quarantine_dir}"
    )
    for undoing in undone:
        if undoing.is_left:
            yield printable(
                f"{undoing.log_dir}: left as it is: this undo resumed one that was interrupted elsewhere"
            )
            continue
        if verbosity < 0:
            continue
        if undoing.run is None:
            yield printable(f"{undoing.log_dir}: nothing to take back (looked {looked})")
            continue
        yield printable(
            f"{undoing.log_dir}: run {undoing.run}, {count_text(len(undoing.partitions), 'partition')}, "
            f"{_sizes(undoing, dry_run=dry_run)}"
        )
        if verbosity > 0:
            yield from (
                printable(f"  {'' if folder == LOG_DIR_ITSELF else f'{folder}: '}{action_words(action)}")
                for folder, action in undoing.actions
            )
        shown = undoing.moved_back if verbosity > 0 else undoing.moved_back[:_MOST_MOVED]
        yield from (printable(f"  {moved.removeprefix(f'{LOG_DIR_ITSELF}/')}: moved back") for moved in shown)
        if more := len(undoing.moved_back) - len(shown):
            yield f"  {more:,} more moved back (-v lists them)"
        if undoing.earlier_runs:
            command = undo_command([undoing.log_dir], quarantine_dir, run=undoing.earlier_runs[-1])
            earlier = count_text(len(undoing.earlier_runs), "earlier run")
            yield printable(f"{undoing.log_dir}: {earlier} not taken back; this does that, too: {command}")
