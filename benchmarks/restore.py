"""`archive restore` beside `cp -r` and `sync` of the same archive, in alternating rounds.

    python -m benchmarks.restore --scratch DIR [--bytes 4GiB] [--batch-bytes 64KiB] [--rounds 3] [--renumber]
        [--from-copy] [--json FILE]

Rates by the clock; both end when all is on disk. Exit code 1: below 0.7 of the copy. `--renumber` has the leader epoch
of each batch rewritten, too. `--from-copy` restores what `archive copy` made of the log dir, where each file is held
against the SHA-256 of its manifest.
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
from pathlib import Path

from benchmarks.copies import remove_tree
from benchmarks.generate import TOPIC, Shape, generate, read_size

GOAL = 0.7


def timed(command: list[str]) -> float:
    """Return the seconds until *command* has ended and all is on disk."""
    started_s = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    os.sync()
    return time.monotonic() - started_s


def main() -> int:
    """Measure, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--bytes", type=read_size, default=4 << 30)
    parser.add_argument("--batch-bytes", type=read_size, default=64 << 10)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--renumber", action="store_true")
    parser.add_argument("--from-copy", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    scratch = options.scratch / "restore"
    shutil.rmtree(scratch, ignore_errors=True)
    shape = Shape(
        bytes_total=options.bytes, batch_bytes=options.batch_bytes, partitions=options.partitions, dirs=1
    )
    dataset = generate(scratch / "made", shape)
    (source,) = dataset.log_dirs
    bare = scratch / "bare"
    shutil.copytree(
        source, bare, ignore=lambda _folder, names: [one for one in names if one.startswith(TOPIC)]
    )
    archive = source
    if options.from_copy:
        archive = scratch / "archive"
        made = [sys.executable, "-m", "recovery", "archive", "copy", "--log-dirs", str(source)]
        subprocess.run(
            [*made, "--output", str(archive), "--progress", "none"], check=True, stdout=subprocess.DEVNULL
        )
    target, copy = scratch / "target", scratch / "copy"
    epochs = "renumber" if options.renumber else "keep"
    restore = [
        sys.executable,
        "-m",
        "recovery",
        "archive",
        "restore",
        str(archive),
        "--log-dirs",
        str(target),
    ]
    restore += ["--leader-epochs", epochs, "--progress", "none", "--topic", TOPIC]
    rates: dict[str, list[float]] = {"restore": [], "cp": []}
    for _ in range(options.rounds):
        shutil.copytree(bare, target)
        os.sync()
        rates["restore"].append(dataset.log_bytes / timed(restore))
        remove_tree(target)
        os.sync()
        rates["cp"].append(dataset.log_bytes / timed(["cp", "-r", str(archive), str(copy)]))
        remove_tree(copy)
        os.sync()
    ratio = statistics.median(one / other for one, other in zip(rates["restore"], rates["cp"], strict=True))
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
