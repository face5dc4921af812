"""`archive verify` by this process and by Spark, whole commands by the clock, beside a plain read of the same files.

    python -m benchmarks.archive_engines --scratch DIR [--bytes 20MiB,1GiB,8GiB] [--small-segments 2000,20000]
        [--rounds 5] [--json FILE]

Each archive is a plain copy of a log dir: some of 64 KiB batches, some of segments of 4 KiB. The command is timed from
its start to its exit, `--engine process` and `--engine spark` in turn, all in the page cache; CPU is that of all
processes together. The plain read adds up the words of every file, on as many threads. Where the ratio of both engines
comes near 1, Spark's fixed cost is paid off: the limits of `--engine auto` are chosen by it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.archive import TreeCpu
from benchmarks.generate import Shape, generate, read_size
from benchmarks.plain_read import read_files, sum_read, warm_up
from benchmarks.small_segments import make_small_segments

_SMALL_BYTES = 4096
_ENGINES = ("process", "spark")
_THREADS = len(os.sched_getaffinity(0))


def command_seconds(engine: str, root: Path, cpu: TreeCpu) -> dict[str, float]:
    """Verify the archive at *root* by the command line; return time, CPU and the damaged objects."""
    arguments = ["archive", "verify", str(root), "--layout", "plain", "--engine", engine]
    started_s, cpu_s = time.monotonic(), cpu.seconds()
    done = subprocess.run(
        [sys.executable, "-m", "recovery.cli.main", *arguments, "--progress", "none", "--format", "json"],
        capture_output=True,
        text=True,
        check=False,
    )
    wall_s = time.monotonic() - started_s
    if done.returncode not in (0, 2):
        raise RuntimeError(f"{engine}: {done.stderr}")
    damaged = json.loads(done.stdout)["summary"]["damaged"]
    return {"wall_s": wall_s, "cpu_s": cpu.seconds() - cpu_s, "damaged": damaged}


def plain_seconds(root: Path) -> float:
    """Read every file below *root* and add up its words; return the time."""
    seconds, _ = read_files([sorted(path for path in root.rglob("*") if path.is_file())], _THREADS, sum_read)
    return seconds


def measured(root: Path, rounds: int, cpu: TreeCpu) -> dict[str, Any]:
    """Return medians over *rounds*, and the rounds."""
    plain_seconds(root)
    command_seconds("process", root, cpu)  # page cache, kernels
    found: list[dict[str, Any]] = []
    for _ in range(rounds):
        meter = machine.CpuMeter()
        plain_s = plain_seconds(root)
        found.append(
            {"plain_s": plain_s}
            | {engine: command_seconds(engine, root, cpu) for engine in _ENGINES}
            | {"foreign": meter.foreign_share()}
        )
    assert len({one[engine]["damaged"] for one in found for engine in _ENGINES}) == 1
    return {
        "plain_s": statistics.median(one["plain_s"] for one in found),
        **{
            f"{engine}_{unit}": statistics.median(one[engine][unit] for one in found)
            for engine in _ENGINES
            for unit in ("wall_s", "cpu_s")
        },
        "process_of_spark": statistics.median(
            one["process"]["wall_s"] / one["spark"]["wall_s"] for one in found
        ),
        "plain_of_process": statistics.median(one["plain_s"] / one["process"]["wall_s"] for one in found),
        "foreign_share": max(one["foreign"] for one in found),
        "rounds": found,
    }


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scratch", required=True, type=Path, help="where data is made")
    parser.add_argument("--bytes", default="20MiB,1GiB,8GiB", help="of logs, an archive each")
    parser.add_argument("--small-segments", default="2000,20000", help="so many of 4 KiB, an archive each")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    machine.end_cleanly_when_told()
    warm_up()
    cpu, results = TreeCpu(), []
    for text, is_small in [
        *((text, False) for text in options.bytes.split(",") if text),
        *((text, True) for text in options.small_segments.split(",") if text),
    ]:
        with tempfile.TemporaryDirectory(dir=options.scratch, prefix="archive-engines-") as folder:
            root = Path(folder)
            if is_small:
                name = f"{int(text)} segments of 4 KiB"
                make_small_segments(root, count=int(text), segment_bytes=_SMALL_BYTES)
            else:
                name = f"{text} of 64 KiB batches"
                shape = Shape(bytes_total=read_size(text), batch_bytes=64 << 10, dirs=1, partitions=4)
                root = generate(root / "data", shape, with_broker=False).log_dirs[0]
            result = {"archive": name} | measured(root, options.rounds, cpu)
            results.append(result)
            _print_row(result, is_first=len(results) == 1)
    if options.json is not None:
        report = {"machine": machine.describe(options.scratch), "archives": results}
        options.json.write_text(json.dumps(report, indent=1, default=str) + "\n")


def _print_row(result: dict[str, Any], *, is_first: bool) -> None:
    """Print a row of the table in docs/internals/performance.md."""
    if is_first:
        print("| archive | plain read | process | Spark | process / Spark | plain read / process |")
        print("|---|---|---|---|---|---|")
    engines = [
        f"{result[f'{engine}_wall_s']:.2f} s ({result[f'{engine}_cpu_s']:.1f} CPU-s)" for engine in _ENGINES
    ]
    ratios = f"{result['process_of_spark']:.2f} | {result['plain_of_process']:.2f}"
    print(
        f"| {result['archive']} | {result['plain_s']:.3f} s | {' | '.join(engines)} | {ratios} |", flush=True
    )


if __name__ == "__main__":
    main()
