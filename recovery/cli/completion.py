"""`kafka-log-recovery completion`: what a shell needs to complete commands, options and paths."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from recovery.cli.session import print_result

if TYPE_CHECKING:
    from recovery.cli.main import _Parser

_SHELLS = ("bash", "zsh", "fish")
_FOLDERS = {"A,B", "DIR", "ARCHIVE", "SOURCE", "URL"}
"""Names of values that are, or may be, folders; the first of several can be completed."""
_CLAUSE = re.compile(r".+?(?=[.;:] | \(default|\.?$)", re.DOTALL)
"""What a shell has room for of an option's help."""
_EPILOG = """\
examples:
  kafka-log-recovery completion bash

Where it goes, for all users (as root):
bash: /usr/share/bash-completion/completions/kafka-log-recovery
zsh:  /usr/share/zsh/vendor-completions/_kafka-log-recovery
fish: /usr/share/fish/vendor_completions.d/kafka-log-recovery.fish

For one user:
bash: ~/.local/share/bash-completion/completions/kafka-log-recovery
zsh:  _kafka-log-recovery in a folder of $fpath
fish: ~/.config/fish/completions/kafka-log-recovery.fish

exit codes:
  0  the script was printed
  1  usage error
"""


def add_parser(commands: argparse._SubParsersAction[Any]) -> None:
    """Add this command to the command line."""
    parser = commands.add_parser(
        "completion",
        help="print what a shell needs to complete commands and options",
        description="Print a script that lets a shell complete commands, options and paths.",
        epilog=_EPILOG,
    )
    parser.add_argument("shell", choices=_SHELLS, help="the shell")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run `completion` and return its exit code."""
    import shtab

    from recovery.cli.main import build_parser  # which adds this command

    parser = build_parser()
    helping = parser.commands["help"]
    (words,) = (action for action in helping._actions if action.dest == "words")
    helping._remove_action(words)
    _add_words(helping, parser)
    for action in _actions(parser):
        if action.help:
            action.help = _CLAUSE.match(action.help)[0]  # type: ignore[index]  # it matches all
        paths = shtab.DIRECTORY if action.metavar in _FOLDERS else shtab.FILE
        if action.metavar in (*_FOLDERS, "FILE"):
            action.complete = paths  # type: ignore[attr-defined]  # shtab's way to be told
    print_result(shtab.complete(parser, arguments.shell), form=arguments.shell)
    return 0


def _add_words(helping: argparse.ArgumentParser, parser: _Parser) -> None:
    """Let *helping* be followed by the commands of *parser*, without their options."""
    if parser.commands:
        words = helping.add_subparsers(metavar="COMMAND")
        for name, line in _lines(parser).items():
            if parser.commands[name] is not helping:
                _add_words(words.add_parser(name, help=line, add_help=False), parser.commands[name])


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield the options and arguments of a parser and of the commands below it."""
    for action in parser._actions:  # argparse has no public way to them
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for name, command in action.choices.items():
                command.description = _lines(parser)[name]  # which shtab shows
                yield from _actions(command)


def _lines(parser: argparse.ArgumentParser) -> dict[str, str]:
    """Return the line of each command below *parser* in its help."""
    found = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return {choice.dest: choice.help or "" for action in found for choice in action._choices_actions}
