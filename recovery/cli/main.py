"""`kafka-log-recovery`: what every command shares, and the way errors reach the user.

Standard output is the result and nothing else. No traceback reaches a user: an error says what is wrong, where,
and what to do. Heavy modules are imported by the command that needs them, so `--help` is quick.
"""

from __future__ import annotations

import argparse
import errno
import itertools
import os
import signal
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from recovery.cli import (
    archive,
    completion,
    estimate,
    log_dirs,
    quarantine,
    recover,
    undo,
    verify,
    warm,
    watch,
)
from recovery.cli.patient_writer import given_up_signal, hasten, replace_standard_error
from recovery.cli.session import (
    ENDING_SIGNALS,
    begin_last_words,
    complain,
    discard,
    end_process_then,
    print_result,
)
from recovery.cli.wrapping import wrapped, wrapped_usage
from recovery.errors import (
    AS_ROOT_DENIED,
    MORE_MEMORY,
    RecoveryError,
    error_text,
    exit_code_of,
    remedied_text,
    scarcity_remedy,
)
from recovery.misspelling import question, similar_names
from recovery.own_process import prepare_process
from recovery.version import VERSION

TRACEBACK_VARIABLE = "KAFKA_LOG_RECOVERY_TRACEBACK"
"""If set, the line about an error in the tool itself is followed by the traceback."""

_COMMANDS = (recover, undo, verify, watch, estimate, quarantine, log_dirs, archive, warm, completion)
_NAMES = {"FILE", "DIR", "JSON", "NAME", "URL"}
"""Values, by their names in the help, that are names of something."""


class _HelpFormatter(argparse.HelpFormatter):
    """Breaks the lines of an epilog one by one: they are examples, and exit codes.

    The usage has what is needed alone: all options are listed below it, and would fill half a screen before that.
    """

    def _format_usage(
        self,
        usage: str | None,
        actions: Iterable[argparse.Action],
        groups: Iterable[argparse._MutuallyExclusiveGroup],
        prefix: str | None,
    ) -> str:
        if prefix is not None:  # a command's full name, for the commands below it
            return super()._format_usage(usage, actions, groups, prefix)
        needed_groups = [group for group in groups if group.required]
        grouped = [action for group in needed_groups for action in group._group_actions]
        told = [action for action in actions if action.dest != "help"]
        needed = [one for one in told if one.required or not one.option_strings or one in grouped]
        program, width = self._prog, self._width
        self._prog = f"{program} [options]" if len(needed) < len(told) else program
        self._width = sys.maxsize
        try:
            line = super()._format_usage(usage, needed, needed_groups, prefix)
        finally:
            self._prog, self._width = program, width
        return wrapped_usage(line, width) + "\n\n"

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return wrapped(text, width) if "\n" in text else super()._fill_text(text, width, indent)


class _Parser(argparse.ArgumentParser):
    """Exits with 1 on a usage error, as Kafka's own tools do, and accepts only the full names of options."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 - handed on
        super().__init__(**(options | {"allow_abbrev": False, "formatter_class": _HelpFormatter}))
        self._given: tuple[str, ...] = ()

    @property
    def commands(self) -> dict[str, _Parser]:
        """The commands below this one."""
        below: dict[str, _Parser] = {}
        for action in self._subparsers._group_actions if self._subparsers else ():
            below |= action.choices or {}
        return below

    def format_help(self) -> str:
        """Name the manual page, which the package installs."""
        return f"{super().format_help()}\nmanual: man {self.prog.replace(' ', '-')}\n"

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:  # noqa: ANN401 - argparse's
        """Refuse what is not known here: left to the parser of all commands, the hint would be at its help."""
        words = sys.argv[1:] if args is None else args
        if self._subparsers and not words:
            self.print_help()
            self.exit(1)
        self._given = tuple(words)
        first = words[0] if self._subparsers else ""
        if first.startswith("-") and first not in self._option_string_actions:
            hint = self._meant([first]) or "; options go after the command"
            self.error(f"unrecognized arguments: {first}{hint}")
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}{self._meant(unknown)}")
        return found, unknown

    def _unknown_options(self) -> list[str]:
        names = [word.partition("=")[0] for word in self._given if word.startswith("--") and word != "--"]
        return [name for name in names if name not in self._option_string_actions]

    def _meant(self, unknown: Iterable[str]) -> str:
        """Return which of this command's options are near to *unknown* ones, as the end of a sentence."""
        given = (word.partition("=")[0] for word in unknown if word.startswith("--"))
        near = (similar_names(option, self._option_string_actions, least=0.8) for option in given)
        return question([*itertools.chain.from_iterable(near)])

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:  # noqa: ANN401 - argparse's
        """Refuse an empty name: a shell's variable that is not set does not mean the present folder, or all."""
        if arg_strings == [""] and action.option_strings and action.metavar in _NAMES:
            raise argparse.ArgumentError(action, "the name is empty; is a variable of the shell not set?")
        return super()._get_values(action, arg_strings)

    def _check_value(self, action: argparse.Action, value: object) -> None:
        """Name the choice that is near to a wrong one. argparse does so since 3.14, if it is asked to."""
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            near = similar_names(str(value).lower(), map(str, action.choices or ()))
            if near and near[0][0].isalpha():  # no release is near to another one
                error.message += question(near)
            raise

    def _print_message(self, message: str, _file: object = None) -> None:
        """Print help or a version as a report is: argparse does not mind if nobody gets it."""
        print_result(message.rstrip("\n"), form="help")

    def error(self, message: str) -> None:  # type: ignore[override]  # it does not return in either class
        if "required" in message and (hint := self._meant(unknown := self._unknown_options())):
            message = (
                f"unrecognized arguments: {' '.join(unknown)}{hint}"  # it is missing as it is misspelled
            )
        end = "" if message.endswith("?") else "."
        sys.exit(_fail(f"{message}{end} Remedy: see {self.prog} --help", 1, self.prog))


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    A signal that comes when everything is done and printed changes nothing: the interpreter takes a while to end.
    """
    if argv is None:
        end_process_then()
    code = _run(argv)
    if argv is None:
        _discard_unwritten()
        for number in ENDING_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
    return code


def _run(argv: Sequence[str] | None) -> int:
    prepare_process()
    arguments = argparse.Namespace()
    try:
        _open_closed_streams()
        if argv is None:
            replace_standard_error()
        arguments = build_parser().parse_args(argv)
        return int(arguments.run(arguments))
    except RecoveryError as error:
        return _fail(str(error), exit_code_of(error))
    except KeyboardInterrupt:
        hasten(signal.SIGINT)
        return _fail("interrupted", 130)
    except OSError as error:
        return _fail(_io_text(error), 1)
    except MemoryError:
        fewer = ", or give fewer --threads" if hasattr(arguments, "threads") else ""
        return _fail(
            f"there is too little memory. Remedy: {MORE_MEMORY}{fewer}; then start the same command again, which "
            "resumes what this one has begun, if anything",
            1,
        )
    except Exception as error:
        from native.errors import NativeError  # not earlier: --help needs no kernels

        if isinstance(error, NativeError):
            return _fail(str(error), 1)
        if os.environ.get(TRACEBACK_VARIABLE):
            import traceback  # slow to import, and hardly ever needed

            traceback.print_exc()
        return _fail(
            f"an error in the tool itself: {type(error).__name__}: {error}. "
            f"Remedy: start again with {TRACEBACK_VARIABLE}=1 and report what it prints",
            1,
        )


def _io_text(error: OSError) -> str:
    """Return an error of the operating system, or of a store, with the file first and without its number."""
    if error.filename is None or error.strerror is None or scarcity_remedy(error) is not None:
        return remedied_text(error)
    remedies = {
        FileNotFoundError: "check the path",
        NotADirectoryError: "give a folder",
        PermissionError: AS_ROOT_DENIED
        if os.geteuid() == 0 and error.errno == errno.EPERM
        else "run this as a user who may read and write it",
    }
    remedy = next((text for kind, text in remedies.items() if isinstance(error, kind)), None)
    is_told = remedy is None or "Remedy:" in error.strerror
    return error_text(error) + ("" if is_told else f". Remedy: {remedy}")


def _fail(text: str, exit_code: int, program: str = "kafka-log-recovery") -> int:
    """Print one line to standard error; return the exit code, a signal's if that has ended the wait for a reader."""
    begin_last_words()
    complain(text, program)
    return 128 + number if (number := given_up_signal()) else exit_code


def _discard_unwritten() -> None:
    """Give up messages that standard error does not take: the interpreter would end with 120 after its last flush."""
    try:
        sys.stderr.flush()
    except (OSError, ValueError):
        discard(sys.stderr)


def _open_closed_streams() -> None:
    """Open the null device in place of each standard stream that a caller has closed (`2>&-`).

    Otherwise the next file that is opened gets the descriptor, and a message ends up in a log. The device is opened
    only if needed: in some containers a user may not write to it. For standard output it is opened read-only, so that
    writing a report fails, which shows that nobody gets it.
    """
    while (lowest := _lowest_free_descriptor()) <= 2:
        mode = os.O_WRONLY if lowest == 2 else os.O_RDONLY
        os.set_inheritable(os.open(os.devnull, mode), True)
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 - open to the end of the process
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115 - the same


def _lowest_free_descriptor() -> int:
    """Return the descriptor that the next file to be opened gets, if it is that of a standard stream; else 3."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            return descriptor
    return 3


def build_parser() -> _Parser:
    """Return the parser of the whole command line."""
    parser = _Parser(
        prog="kafka-log-recovery",
        description="Recover the log dirs of an Apache Kafka broker after an unclean shutdown.",
    )
    parser.add_argument(
        "--version", action="version", version=f"%(prog)s {VERSION}", help="show the version and exit"
    )
    commands = parser.add_subparsers(
        dest="command", metavar="COMMAND", required=True, parser_class=_Parser, prog=parser.prog
    )
    for command in _COMMANDS:
        command.add_parser(commands)
    helping = commands.add_parser(
        "help", help="show the help of a command", description="Show the help of a command."
    )
    helping.add_argument("words", metavar="COMMAND", nargs="*", help="such as recover, or archive verify")
    helping.set_defaults(run=_show_help)
    return parser


def _show_help(arguments: argparse.Namespace) -> int:
    """Run `help` and return its exit code; the parser of the words before it refuses one that is no command."""
    parser, words = build_parser(), [*arguments.words]
    while words and words[0] in parser.commands:
        parser = parser.commands[words.pop(0)]
    if words and not parser.commands:
        parser.error(f"unrecognized arguments: {' '.join(words)}")
    parser.parse_args([*words, "--help"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
