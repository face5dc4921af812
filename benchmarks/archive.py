"""CPU of `archive verify` on Spark against that of the local `verify`, on the same files.

    python -m benchmarks.archive --scratch DIR [--bytes 8GiB] [--repeats 5] [--where local|standalone]
        [--small-segments 100000] [--rounds 3] [--json FILE]

The archive is a log dir whose partitions are there `--repeats` times, by hard links, so that the work takes long beside
Spark's own. What is measured is CPU, of all processes together: this one, the JVMs, the Python workers; of the local
engine this one alone. The two take turns, and the session is there before the clock runs. Efficiency is local CPU
divided by Spark's. Both read with `pread`, in windows, through the same code.

With `--small-segments` the archive is that many segments of 4 KiB instead, and what is told is CPU a segment.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import machine
from benchmarks.generate import Shape, generate, read_size
from benchmarks.small_segments import make_small_segments
from recovery.archive.scanned import ScanOptions
from recovery.scrub import verify
from tests.spark_cluster import StandaloneCluster, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TICKS = os.sysconf("SC_CLK_TCK")
_SMALL_BYTES = 4096
_THREADS = 2


def tree_cpu_seconds() -> float:
    """Return the CPU that this process and all below it have used, those that were waited for included."""
    usage: dict[int, float] = {}
    parents: dict[int, int] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                fields = Path(entry.path, "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
            usage[int(entry.name)] = sum(map(int, fields[11:15])) / _TICKS
    ours = {os.getpid()}
    while below := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= below
    return sum(usage.get(pid, 0.0) for pid in ours)


def linked(source: Path, into: Path, repeats: int) -> int:
    """Link the partitions below *source* so many times below *into*; return the bytes of their logs."""
    total = 0
    for repeat in range(repeats):
        for number, folder in enumerate(sorted(path for path in source.iterdir() if path.is_dir())):
            place = into / f"repeat{repeat}-{number}"
            place.mkdir(parents=True)
            for file in folder.iterdir():
                os.link(file, place / file.name)
                total += file.stat().st_size if file.suffix == ".log" else 0
    return total


@contextmanager
def session(where: str, work_dir: Path) -> Iterator[SparkSession]:
    """A session on `local[2]`, or on a cluster of two workers."""
    from pyspark.sql import SparkSession as ClassicSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers take it from nowhere else
    with ExitStack() as stack:
        configured = settings(work_dir / "driver") | {"spark.master": "local[2]"}
        if where == "standalone":
            configured = stack.enter_context(StandaloneCluster(work_dir / "cluster")).settings
        builder = ClassicSession.builder.appName("kafka-log-recovery benchmark")
        for name, value in configured.items():
            if "TieredStopAtLevel" not in value:  # what suits tests of seconds
                builder = builder.config(name, value)
        spark = builder.getOrCreate()
        stack.callback(spark.stop)
        yield spark


def on_spark(spark: SparkSession, root: Path) -> int:
    """Verify the archive at *root*; return its damaged objects."""
    from recovery.spark.jobs import ArchiveRun

    options = ScanOptions(url=str(root), layout="plain", now_ms=time.time_ns() // 1_000_000)
    return ArchiveRun(spark, options).run().tally.damaged


def locally(root: Path) -> int:
    """Verify the log dir at *root*; return its damaged files."""
    report = verify([str(root)], threads=_THREADS)
    return sum(Path(one.path).parent != root for one in report.damaged)


def measured(work: Callable[[], int]) -> dict[str, float]:
    """Return CPU and time of *work*, and what it has counted."""
    started_s, cpu_s = time.monotonic(), tree_cpu_seconds()
    damaged = work()
    return {
        "cpu_s": tree_cpu_seconds() - cpu_s,
        "wall_s": time.monotonic() - started_s,
        "damaged": damaged,
    }


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scratch", required=True, type=Path, help="where data is made")
    parser.add_argument("--bytes", type=read_size, default=8 << 30, help="of the logs")
    parser.add_argument("--repeats", type=int, default=5, help="how often each is read")
    parser.add_argument("--where", choices=("local", "standalone"), default="local")
    parser.add_argument("--small-segments", type=int, default=0, help="so many of 4 KiB instead")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    machine.end_cleanly_when_told()
    with tempfile.TemporaryDirectory(dir=options.scratch, prefix="archive-") as folder:
        work_dir = Path(folder)
        root = work_dir / "log-dir"
        log_bytes, segments = _make(options, work_dir, root)
        with session(options.where, work_dir) as spark:
            on_spark(spark, root), locally(root)  # page cache, kernels, JVM
            rounds = []
            for _ in range(options.rounds):
                meter = machine.CpuMeter()
                rounds.append(
                    {
                        "local": measured(lambda: locally(root)),
                        "spark": measured(lambda: on_spark(spark, root)),
                        "foreign": meter.foreign_share(),
                    }
                )
                print(json.dumps(rounds[-1]), flush=True)
        _tell(options, rounds, log_bytes, segments)
        shutil.rmtree(root)


def _make(options: argparse.Namespace, work_dir: Path, root: Path) -> tuple[int, int]:
    if options.small_segments:
        return (
            make_small_segments(root, count=options.small_segments, segment_bytes=_SMALL_BYTES),
            options.small_segments,
        )
    shape = Shape(bytes_total=options.bytes, batch_bytes=64 << 10, dirs=1, partitions=4)
    dataset = generate(work_dir / "data", shape, with_broker=False)
    log_bytes = linked(dataset.log_dirs[0], root, options.repeats)
    return log_bytes, sum(1 for _ in root.rglob("*.log"))


def _tell(options: argparse.Namespace, rounds: list[dict[str, Any]], log_bytes: int, segments: int) -> None:
    efficiency = [one["local"]["cpu_s"] / one["spark"]["cpu_s"] for one in rounds]
    wall = [one["local"]["wall_s"] / one["spark"]["wall_s"] for one in rounds]
    found: dict[str, Any] = {
        "where": options.where,
        "log_bytes": log_bytes,
        "segments": segments,
        "efficiency_cpu": statistics.median(efficiency),
        "efficiency_wall": statistics.median(wall),
        "local_cpu_s": statistics.median(one["local"]["cpu_s"] for one in rounds),
        "spark_cpu_us_a_segment": statistics.median(one["spark"]["cpu_s"] for one in rounds) / segments * 1e6,
        "local_cpu_us_a_segment": statistics.median(one["local"]["cpu_s"] for one in rounds) / segments * 1e6,
        "foreign_share": max(one["foreign"] for one in rounds),
        "machine": machine.describe(options.scratch),
    }
    print(json.dumps(found, indent=1, default=str))
    if options.json is not None:
        options.json.write_text(json.dumps({**found, "rounds": rounds}, indent=1, default=str) + "\n")


if __name__ == "__main__":
    main()
