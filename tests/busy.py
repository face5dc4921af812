"""A command with busy loops beside it, again and again: a test that depends on luck fails.

python -m tests.busy --times 3 -- python3 dev.py test -n 8
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

_LOOP = (sys.executable, "-c", "while True: pass")


@contextmanager
def busy_loops(count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Keep *count* processes busy during the `with` block."""
    loops = [subprocess.Popen(_LOOP) for _ in range(count)]
    try:
        yield loops
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command until it fails or was run often enough; its last exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.busy", description=__doc__)
    parser.add_argument("--loops", type=int, default=4, metavar="N")
    parser.add_argument("--times", type=int, default=1, metavar="N")
    parser.add_argument("command", nargs="+", metavar="COMMAND")
    arguments = parser.parse_args(argv)
    code = 0
    with busy_loops(arguments.loops):
        for number in range(1, arguments.times + 1):
            began_s = time.monotonic()
            code = subprocess.run(arguments.command).returncode
            took_s = time.monotonic() - began_s
            print(f"run {number} of {arguments.times}: exit code {code} after {took_s:,.0f} s", flush=True)
            if code:
                break
    return code


if __name__ == "__main__":
    sys.exit(main())
