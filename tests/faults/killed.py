"""A command that kills itself just before something happens to a file, whatever else it does before.

    python -m tests.faults.killed os.rename PATTERN NUMBER archive restore ...

It is the NUMBER-th such event of Python's (`sys.addaudithook`) with a path in which the regular expression is found.
The shim (tests/faults/shim.py) counts calls, whose number differs between runs of several threads.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from dataclasses import dataclass

from recovery.cli.main import main


@dataclass(frozen=True, slots=True, kw_only=True)
class KillPoint:
    """What a command does not get to.

    Attributes:
        event: of Python: `open`, `os.rename`, `os.remove`, `shutil.rmtree`.
        path: a regular expression.
        number: from 1.
    """

    event: str
    path: str
    number: int = 1

    def command(self) -> tuple[str, ...]:
        """What the command line begins with."""
        return (sys.executable, "-m", "tests.faults.killed", self.event, self.path, str(self.number))


def _kill_at(point: KillPoint) -> None:
    left = point.number
    path = re.compile(point.path)

    def look(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal left
        if event == point.event and any(path.search(one) for one in arguments if isinstance(one, str)):
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(look)


if __name__ == "__main__":
    given, path_given, number_given, *arguments_given = sys.argv[1:]
    _kill_at(KillPoint(event=given, path=path_given, number=int(number_given)))
    sys.exit(main(arguments_given))
