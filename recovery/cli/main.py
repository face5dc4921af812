"""`kafka-log-recovery`: what every command shares, and the way errors reach the user.

Standard output is the result and nothing else. No traceback reaches a user: an error says what, where and
what to do. Heavy modules are imported by the command that needs them, so `--help` is quick.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from recovery.cli import recover
from recovery.errors import RecoveryError

_COMMANDS = (recover,)


class _Parser(argparse.ArgumentParser):
    """Exits with 1 on a usage error, as Kafka's own tools do."""

    def error(self, message: str) -> None:  # type: ignore[override]  # it does not return in either class
        self.print_usage(sys.stderr)
        print(f"{self.prog}: {message}", file=sys.stderr)  # noqa: T201 - the command line's own voice
        sys.exit(1)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = _parser().parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except RecoveryError as error:
        print(f"kafka-log-recovery: {error}", file=sys.stderr)  # noqa: T201
        return error.exit_code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        print(f"kafka-log-recovery: {error}", file=sys.stderr)  # noqa: T201
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="kafka-log-recovery",
        description="Recover the log dirs of an Apache Kafka broker after an unclean shutdown.",
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)
    for command in _COMMANDS:
        command.add_parser(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
