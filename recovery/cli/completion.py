"""`kafka-log-recovery completion`: what a shell needs to complete commands, options and paths."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from recovery.cli.session import print_result

_SHELLS = ("bash", "zsh", "fish")
_FOLDERS = {"A,B", "DIR", "ARCHIVE", "SOURCE", "URL"}
"""Names of values that are, or may be, folders; the first of several can be completed."""
_EPILOG = """\
examples:
  kafka-log-recovery completion bash

Where it goes, as root:
bash: kafka-log-recovery completion bash > /usr/share/bash-completion/completions/kafka-log-recovery
zsh:  kafka-log-recovery completion zsh > /usr/share/zsh/vendor-completions/_kafka-log-recovery
fish: kafka-log-recovery completion fish > /usr/share/fish/vendor_completions.d/kafka-log-recovery.fish

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
    for action in _actions(parser):
        if action.dest == "words":  # of `help`
            action.choices = _commands(parser)
        paths = shtab.DIRECTORY if action.metavar in _FOLDERS else shtab.FILE
        if action.metavar in (*_FOLDERS, "FILE"):
            action.complete = paths  # type: ignore[attr-defined]  # shtab's way to be told
    print_result(shtab.complete(parser, arguments.shell), form=arguments.shell)
    return 0


def _commands(parser: argparse.ArgumentParser) -> list[str]:
    """Return the names of all commands, and of the commands below them."""
    choices = [
        action.choices for action in _actions(parser) if isinstance(action, argparse._SubParsersAction)
    ]
    return list(dict.fromkeys(name for names in choices for name in names))


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield the options and arguments of a parser and of the commands below it."""
    for action in parser._actions:  # argparse has no public way to them
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)
