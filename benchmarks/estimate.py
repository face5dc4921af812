"""`estimate` held against the recoveries that it foretells: a real broker's, and ours, after SIGKILL of an idle broker.

    python -m benchmarks.estimate --scratch DIR [--rounds 1] [--shape NAME ...] [--cold] [--json FILE]

For each shape log dirs are made (`benchmarks.generate`), and a 4.3.1 broker serves them. Beside it, idle, `estimate`
runs as a command. Then the broker gets SIGKILL, and its log dirs are recovered twice: a copy by `recover`, and they
themselves by the broker, which logs each segment and, in the end, "Loaded N logs in T ms".

Held to be true: segments and bytes are equal, of the estimate, of `recover` and of the broker's lines; the seconds of
`recover` are within a factor of two, those of the broker between low and high. Seconds are this machine's at that time,
and so is the estimate: what others do is in both. The share of the CPUs that others used is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.copies import copy_log_dirs, remove_tree
from benchmarks.generate import Shape, generate, log_files
from benchmarks.measured_broker import MeasuredBroker, make_room_for

SHAPES = {
    "64KiB": Shape(bytes_total=3 << 30, batch_bytes=64 << 10),
    "170": Shape(bytes_total=600 << 20, batch_bytes=170),
    "one-log": Shape(bytes_total=2 << 30, batch_bytes=64 << 10, dirs=1, partitions=1),
    "2000-logs": Shape(bytes_total=200 << 20, batch_bytes=4 << 10, partitions=2000, segments=1),
}
THREADS = 2
_READ_BYTES = 1 << 20
_FACTOR = 2.0


def main(arguments: list[str] | None = None) -> int:
    """Measure, print a table, write JSON; return 1 if something is not as foretold."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scratch", type=Path, required=True, help="a folder on the disk to use")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--shape", choices=SHAPES, action="append", help="all by default")
    parser.add_argument(
        "--cold",
        action="store_true",
        help="nothing of the `.log` files is in the page cache when a side begins",
    )
    parser.add_argument("--patience", type=float, default=0, help="seconds to wait for others, a measurement")
    parser.add_argument("--json", type=Path, help="file for all figures")
    options = parser.parse_args(arguments)
    options.scratch.mkdir(parents=True, exist_ok=True)
    scratch = options.scratch.resolve() / f"estimate-{os.getpid()}"
    print(machine.line(machine.describe(options.scratch)))
    print(
        "| shape | segments, bytes | recover: estimate, truth (ratio) | broker: low, truth, high | others |"
    )
    print("|---|---|---|---|---|")
    rounds: list[dict[str, Any]] = []
    try:
        for name in options.shape or SHAPES:
            rounds += _measure_shape(name, scratch / name, options)
            remove_tree(scratch / name)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if options.json:
        options.json.write_text(json.dumps({"version": 1, "rounds": rounds}, indent=1) + "\n")
    return 0 if all(one["as_foretold"] for one in rounds) else 1


def _measure_shape(name: str, place: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    shape = SHAPES[name]
    make_room_for(shape.partitions * shape.segments)
    dataset = generate(place / "data", shape)
    broker = MeasuredBroker(dataset.log_dirs, work_dir=place / "broker", recovery_threads=THREADS)
    found = []
    prepare = _drop_all if options.cold else _read_all
    for _ in range(options.rounds):
        broker.start(wait_seconds=3600)
        prepare(dataset.log_dirs)
        machine.wait_until_quiet(options.patience)
        meter = machine.CpuMeter()
        foretold = _run("estimate", dataset.log_dirs)[0]
        broker.kill()
        copies = copy_log_dirs(dataset.log_dirs, place / "copy", trash=place / "trash")
        prepare(copies)
        recovered, tool_s = _run("recover", copies)
        prepare(dataset.log_dirs)
        load = broker.recover()
        found.append(_judge(name, foretold, recovered, tool_s, load.seconds, load.segments))
        found[-1]["foreign_share"] = meter.foreign_share()
        print(_row(found[-1], found[-1]["foreign_share"]), flush=True)
    return found


def _judge(
    name: str,
    foretold: dict[str, Any],
    recovered: dict[str, Any],
    tool_s: float,
    broker_s: float,
    segments: int,
) -> dict[str, Any]:
    """Return the figures of a round, and whether it was as foretold."""
    partitions = [one for log_dir in recovered["logDirs"] for one in log_dir["partitions"]]
    estimated = [sum(one[key] for one in foretold["logDirs"]) for key in ("segments", "bytes")]
    ours = [sum(one[key]["recovered"] for one in partitions) for key in ("segments", "bytes")]
    low_s, high_s = foretold["brokerSeconds"]["low"], foretold["brokerSeconds"]["high"]
    ratio = foretold["toolSeconds"] / tool_s
    return {
        "shape": name,
        "estimated": estimated,
        "recovered": ours,
        "broker_segments": segments,
        "tool_s": [foretold["toolSeconds"], tool_s],
        "tool_ratio": ratio,
        "broker_s": [low_s, broker_s, high_s],
        "sample": foretold["sample"],
        "as_foretold": estimated == ours
        and estimated[0] == segments
        and 1 / _FACTOR <= ratio <= _FACTOR
        and low_s <= broker_s <= high_s,
    }


def _row(one: dict[str, Any], share: float) -> str:
    is_equal = one["estimated"] == one["recovered"] and one["estimated"][0] == one["broker_segments"]
    verdict = "equal" if is_equal else f"NOT {one['recovered']}, {one['broker_segments']}"
    counts = f"{one['estimated'][0]}, {one['estimated'][1]}: {verdict}"
    tool, truth = one["tool_s"]
    low_s, broker_s, high_s = one["broker_s"]
    return (
        f"| {one['shape']} | {counts} | {tool:.1f}, {truth:.1f} ({one['tool_ratio']:.2f}) | "
        f"{low_s:.1f}, {broker_s:.1f}, {high_s:.1f} | {share:.0%} |"
    )


def _run(command: str, log_dirs: Sequence[Path]) -> tuple[dict[str, Any], float]:
    """Run a command of ours on *log_dirs*; return its JSON, and its seconds from fork to exit."""
    argv = [sys.executable, "-m", "recovery", command, "--log-dirs", ",".join(map(str, log_dirs))]
    argv += ["--property", f"num.recovery.threads.per.data.dir={THREADS}", "--format", "json"]
    argv += ["--progress", "none"] if command == "recover" else []
    started_s = time.perf_counter()
    done = subprocess.run(argv, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout), time.perf_counter() - started_s


def _read_all(log_dirs: Sequence[Path]) -> None:
    """Have the `.log` files in the page cache."""
    for path in log_files(log_dirs):
        with path.open("rb", buffering=0) as opened:
            while opened.read(_READ_BYTES):
                pass


def _drop_all(log_dirs: Sequence[Path]) -> None:
    """Have nothing of the `.log` files in the page cache."""
    for path in log_files(log_dirs):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


if __name__ == "__main__":
    machine.end_cleanly_when_told()
    sys.exit(main())
