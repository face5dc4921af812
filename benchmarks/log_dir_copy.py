"""`archive copy` beside `cp -r` and `sync` of the same log dir, in alternating rounds.

    python -m benchmarks.log_dir_copy --scratch DIR [--bytes 4GiB] [--batch-bytes 64KiB] [--rounds 3] [--threads N]
        [--no-broker] [--json FILE]

Rates by the clock; both end when all is on disk. Exit code 1: below 0.8 of the copy.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.copies import remove_tree
from benchmarks.generate import Shape, generate, read_size

GOAL = 0.8


def timed(command: list[str]) -> float:
    """Return the seconds until *command* has ended and all is on disk."""
    started_s = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    os.sync()
    return time.monotonic() - started_s


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--bytes", type=read_size, default=4 << 30)
    parser.add_argument("--batch-bytes", type=read_size, default=64 << 10)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, help="of the copy (default: its own)")
    parser.add_argument("--no-broker", action="store_true", help="without Java")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    scratch = options.scratch / "log-dir-copy"
    shutil.rmtree(scratch, ignore_errors=True)
    shape = Shape(
        bytes_total=options.bytes, batch_bytes=options.batch_bytes, partitions=options.partitions, dirs=1
    )
    dataset = generate(scratch / "made", shape, with_broker=not options.no_broker)
    (source,) = dataset.log_dirs
    output, beside = scratch / "output", scratch / "beside"
    copy = [sys.executable, "-m", "recovery", "archive", "copy", "--log-dirs", str(source)]
    copy += ["--output", str(output), "--progress", "none"]
    copy += [] if options.threads is None else ["--threads", str(options.threads)]
    sides = {"copy": (copy, output), "cp": (["cp", "-r", str(source), str(beside)], beside)}
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(options.rounds):
        for name in list(sides)[:: -1 if number % 2 else 1]:
            command, place = sides[name]
            rates[name].append(dataset.log_bytes / timed(command))
            remove_tree(place)
            os.sync()
    ratio = statistics.median(one / other for one, other in zip(rates["copy"], rates["cp"], strict=True))
    found = {
        "log_bytes": dataset.log_bytes,
        "bytes_per_second": rates,
        "ratio": ratio,
        "peak_bytes": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024,
    }
    print(json.dumps(found, indent=1))
    if options.json is not None:
        options.json.write_text(json.dumps(found) + "\n")
    shutil.rmtree(scratch)
    return 0 if ratio >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
