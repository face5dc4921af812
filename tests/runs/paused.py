"""The command line with an observer that stops it at a chosen event, so that a test can act in mid-run.

    python -m tests.runs.paused EVENT NUMBER recover ...

prints `paused` on standard output at the NUMBERth event of that class and waits for a line on standard
input. Everything else is the command line itself.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import recovery.watch.open
from recovery.cli.main import main
from recovery.watch.events import Event, Observer
from tests import ROOT
from tests.patience import LONGEST_WAIT_SECONDS
from tests.runs.command import start

COMMAND = (sys.executable, "-m", "tests.runs.paused")


class Pause:
    """Waits for a line at one event."""

    def __init__(self, event: str, number: int) -> None:
        self._event = event
        self._left = number

    def __call__(self, event: Event) -> None:
        """Count, and wait when it is time."""
        self._left -= type(event).__name__ == self._event
        if self._left == 0:
            self._left = -1
            print("paused", flush=True)
            sys.stdin.readline()


def start_paused(event: str, number: int, *arguments: object) -> subprocess.Popen[str]:
    """Start the command line and return when it is paused: at its *number*th *event*."""
    process = start(event, str(number), *map(str, arguments), command=COMMAND, cwd=ROOT)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line == "paused\n", (line, process.communicate())
    return process


def resume(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Let it go on to its end; exit code, standard output, standard error."""
    stdout, stderr = process.communicate("\n", timeout=LONGEST_WAIT_SECONDS)
    return process.returncode, stdout, stderr


def _with_pause(pause: Pause) -> None:
    open_observers = recovery.watch.open.open_observers

    @contextmanager
    def open_paused(*arguments: object, **options: object) -> Iterator[list[Observer]]:
        with open_observers(*arguments, **options) as observers:  # type: ignore[arg-type]  # handed on as they are
            yield [*observers, pause]

    recovery.watch.open.open_observers = open_paused


if __name__ == "__main__":
    _with_pause(Pause(sys.argv[1], int(sys.argv[2])))
    sys.exit(main(sys.argv[3:]))
