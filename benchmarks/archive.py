"""CPU of `archive verify` on Spark against that of the local `verify`, on the same files.

    python -m benchmarks.archive --scratch DIR [--bytes 8GiB] [--repeats 5] [--where local|standalone]
        [--store folder|s3] [--small-segments 100000 [--logs-only]] [--rounds 3] [--json FILE]

The archive is a log dir whose partitions are there `--repeats` times, by hard links, so that the work takes long beside
Spark's own. What is measured is CPU, of all processes together: this one, the JVMs, the Python workers; of the local
engine this one alone. The two take turns, and the session is there before the clock runs. Efficiency is local CPU
divided by Spark's. Both read with `pread`, in windows, through the same code.

With `--store s3` the archive lies in a real S3 server (versitygw) on loopback, whose CPU does not count, and Spark is
measured against the same reader in this process, on two threads.

With `--small-segments` the archive is that many segments of 4 KiB instead, and what is told is CPU a segment; with
`--logs-only`, too, that of `archive verify --logs-only`: of the survey on the driver, of the scan and of the fold, each
in all processes, beside a plain loop that reads the same logs and calls the same kernel.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import machine, small_logs
from benchmarks.generate import Shape, generate, read_size
from benchmarks.small_segments import make_small_segments
from recovery.archive.check.options import CheckOptions
from recovery.check.api import verify
from recovery.spark import archive
from tests.servers.s3_server import S3Server, in_environment
from tests.servers.spark_cluster import StandaloneCluster, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TICKS = os.sysconf("SC_CLK_TCK")
_LOOK_SECONDS = 0.2
_SMALL_BYTES = 4096
_THREADS = 2
_STAGES = ("survey", "scan", "fold")


class TreeCpu:
    """The CPU that this process and all below it have used, whether or not they are still there.

    Spark ends Python workers that have had nothing to do for a minute, and nobody waits for some of them: so all
    processes are looked at again and again.
    """

    def __init__(self) -> None:
        self._used: dict[tuple[int, str], float] = {}
        self._left_out: set[int] = set()
        self._lock = threading.Lock()
        threading.Thread(target=self._watch, daemon=True).start()

    def leave_out(self, pid: int) -> None:
        """Do not count a process."""
        self._left_out.add(pid)

    def seconds(self) -> float:
        """Return user and system time of all of them so far."""
        found: dict[int, tuple[tuple[int, str], float]] = {}
        parents: dict[int, int] = {}
        for entry in os.scandir("/proc"):
            if entry.name.isdigit():
                try:
                    fields = Path(entry.path, "stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                pid, started = int(entry.name), fields[19]
                parents[pid] = int(fields[1])
                found[pid] = (pid, started), (int(fields[11]) + int(fields[12])) / _TICKS
        ours = {os.getpid()}
        while below := {pid for pid, parent in parents.items() if parent in ours} - ours:
            ours |= below
        with self._lock:
            self._used.update(found[pid] for pid in ours - self._left_out if pid in found)
            return sum(self._used.values())

    def _watch(self) -> None:
        while True:
            self.seconds()
            time.sleep(_LOOK_SECONDS)


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
    from recovery.spark.session import open_session

    with ExitStack() as stack:
        master, configured = "local[2]", settings(work_dir / "driver")
        if where == "standalone":
            configured = stack.enter_context(StandaloneCluster(work_dir / "cluster")).settings
            master = configured.pop("spark.master")
        spark = open_session(
            master=master,
            is_for_one_run=True,
            settings={
                name: value for name, value in configured.items() if not name.endswith("JavaOptions")
            },  # what suits tests of seconds
        )
        stack.callback(spark.stop)
        yield spark


def on_spark(spark: SparkSession, url: str) -> int:
    """Verify the archive at *url*; return its damaged objects."""
    return archive.check(_options(url), spark=spark).summary.damaged


def locally(root: Path) -> int:
    """Verify the log dir at *root*; return its damaged files."""
    report = verify([str(root)], threads=_THREADS)
    return sum(Path(one.path).parent != root for one in report.damaged)


def in_this_process(url: str) -> int:
    """Verify the archive at *url* in this process; return its damaged objects."""
    return archive.check(replace(_options(url), cores=_THREADS), engine="process").summary.damaged


def _options(url: str) -> CheckOptions:
    return CheckOptions(url=url, layout="plain")


def measured(work: Callable[[], int], cpu: TreeCpu) -> dict[str, float]:
    """Return CPU and time of *work*, and what it has counted."""
    started_s, cpu_s = time.monotonic(), cpu.seconds()
    damaged = work()
    return {
        "cpu_s": cpu.seconds() - cpu_s,
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
    parser.add_argument("--store", choices=("folder", "s3"), default="folder")
    parser.add_argument("--small-segments", type=int, default=0, help="so many of 4 KiB instead")
    parser.add_argument("--logs-only", action="store_true", help="verify the logs alone")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    if options.logs_only and (not options.small_segments or options.store != "folder"):
        parser.error("--logs-only goes with --small-segments, in a folder")
    machine.end_cleanly_when_told()
    with tempfile.TemporaryDirectory(dir=options.scratch, prefix="archive-") as folder, ExitStack() as stack:
        work_dir = Path(folder)
        root, cpu = work_dir / "log-dir", TreeCpu()
        url = str(root)
        if options.store == "s3":
            server = stack.enter_context(S3Server(work_dir / "s3"))
            stack.enter_context(in_environment(server.environment()))
            # Files that are laid into the bucket's folder can be read: no need to keep all of it twice.
            root, url = server.bucket, server.url()
            cpu.leave_out(server.pid)
        log_bytes, segments = _make(options, work_dir, root)
        beside = partial(in_this_process, url) if options.store == "s3" else partial(locally, root)
        spark = stack.enter_context(session(options.where, work_dir))
        if options.logs_only:
            _tell_logs(options, _rounds_of_logs(options, spark, root, cpu), log_bytes)
            return
        on_spark(spark, url), beside()  # page cache, kernels, JVM
        rounds = []
        for _ in range(options.rounds):
            meter = machine.CpuMeter()
            rounds.append(
                {
                    "local": measured(beside, cpu),
                    "spark": measured(partial(on_spark, spark, url), cpu),
                    "foreign": meter.foreign_share(),
                }
            )
            print(json.dumps(rounds[-1]), flush=True)
        _tell(options, rounds, log_bytes, segments)


def _rounds_of_logs(
    options: argparse.Namespace, spark: SparkSession, root: Path, cpu: TreeCpu
) -> list[dict[str, Any]]:
    """Verify the logs below *root* as often as asked, and twice before that, for page cache, kernels and JVM."""
    rounds: list[dict[str, Any]] = []
    chosen = replace(_options(str(root)), is_logs_only=True)
    for number in range(2 + options.rounds):
        meter = machine.CpuMeter()
        found = {
            "loop": small_logs.in_a_loop(root),
            "spark": small_logs.on_spark(spark, chosen, cpu.seconds),
            "foreign": meter.foreign_share(),
        }
        if number >= 2:
            rounds.append(found)
            print(json.dumps(found), flush=True)
    return rounds


def _tell_logs(options: argparse.Namespace, rounds: list[dict[str, Any]], log_bytes: int) -> None:
    def us_a_segment(side: str, what: str) -> float:
        return statistics.median(one[side][what] / one[side]["segments"] for one in rounds) * 1e6

    found: dict[str, Any] = {
        "where": options.where,
        "log_bytes": log_bytes,
        "segments": options.small_segments,
        "loop_cpu_us_a_segment": us_a_segment("loop", "cpu_s"),
        **{f"{stage}_cpu_us_a_segment": us_a_segment("spark", f"{stage}_cpu_s") for stage in _STAGES},
        "foreign_share": max(one["foreign"] for one in rounds),
        "machine": machine.describe(options.scratch),
    }
    _print(options, found, rounds)


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
        "store": options.store,
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
    _print(options, found, rounds)


def _print(options: argparse.Namespace, found: dict[str, Any], rounds: list[dict[str, Any]]) -> None:
    print(json.dumps(found, indent=1, default=str))
    if options.json is not None:
        options.json.write_text(json.dumps({**found, "rounds": rounds}, indent=1, default=str) + "\n")


if __name__ == "__main__":
    main()
