"""`recover` beside a plain read of the same files and beside a real broker, in one run.

    python -m benchmarks.broker --scratch DIR [--data 2GiB/64KiB --data 300MiB/170] [--rounds 5] ...

For each data set (bytes of `.log` files / bytes of a batch) log dirs are made (`benchmarks.generate`), and
each round measures, forwards and backwards in turn, on copies that share the `.log` files
(`benchmarks.copies`), all synced and in the page cache:

    mapped, pread   reading the files and adding up their words, as many threads
    engine          `recovery.recover()` in a process that is warm: reading, writing, fsync, hand-over
    process         `kafka-log-recovery recover`, all of it, Python's start included
    broker          a 4.3.1 broker's own "Loaded N logs in T ms" on its copy, as many recovery threads

Every side's result is checked: nothing cut, the same log end offsets on both sides, every segment recovered,
no `.log` touched; and once, the whole tree against Kafka's own LogManager (tests/kafka_oracle.py).

Ratios are medians of the rounds' ratios. Seconds are this machine's, at that time.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import machine, plain_read
from benchmarks.copies import LogFiles, copy_log_dirs, tree_without_logs
from benchmarks.generate import TOPIC, Dataset, Shape, generate, read_size
from benchmarks.measured_broker import MeasuredBroker
from tests.kafka_broker import QUIET_PROPERTIES
from tests.kafka_oracle import Oracle
from tests.samples import differences

_WARM_UP_SHAPE = Shape(bytes_total=4 << 20, batch_bytes=400, dirs=1, partitions=1, segments=3)
_MEMORY_POLL_SECONDS = 0.02
CALM_SHARE = 0.08
"""Of the CPUs, used by others: what is measured meanwhile is taken as it is."""


class WrongResultError(Exception):
    """A side did not do its work: its time means nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One side in one round.

    Attributes:
        foreign_share: the CPU time that others used meanwhile, of all CPUs.
        disk_read_bytes: what the machine read from disks meanwhile: next to nothing with a warm cache.
        peak_anonymous_bytes: of the process, where that was watched.
    """

    seconds: float
    foreign_share: float
    disk_read_bytes: int
    peak_anonymous_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """What is compared: how many times faster, median and extremes of the rounds."""

    name: str
    median: float
    least: float
    most: float


class Sides:
    """The sides that are measured on one data set."""

    def __init__(
        self, dataset: Dataset, scratch: Path, *, threads: int, warm_up_dir: Path, with_broker: bool
    ) -> None:
        self._dataset = dataset
        self._scratch = scratch
        self._threads = threads
        self._warm_up_dir = warm_up_dir
        self._logs = LogFiles(dataset.log_dirs)
        self._copies = 0
        self._word_sum: int | None = None
        self._last_meter = (machine.CpuMeter(), 0)
        self.sides: dict[str, Callable[[], Measured]] = {
            "mapped": lambda: self._read(plain_read.sum_mapped),
            "pread": lambda: self._read(plain_read.sum_read),
            "engine": self._engine,
            "process": self._process,
        }
        if with_broker:
            self.sides["broker"] = self._broker

    def measure(self, name: str, *, tries: int, patience_seconds: float) -> Measured:
        """Measure one side; what it worked on is gone afterwards.

        Args:
            tries: how often it may be measured until others leave the CPUs alone meanwhile; the least
                disturbed measurement counts.
            patience_seconds: how long to wait for others before each.
        """
        found: list[Measured] = []
        while len(found) < tries and not any(one.foreign_share <= CALM_SHARE for one in found):
            machine.wait_until_quiet(patience_seconds)
            self._read_all_once()
            found.append(self.sides[name]())
            if not self._logs.are_untouched():
                raise WrongResultError(f"{name}: a .log file was changed")
        return min(found, key=lambda one: one.foreign_share)

    def check_against_oracle(self) -> int:
        """Recover one copy here and one with Kafka's LogManager; return how many files were compared."""
        ours, theirs = self._new_copy(), self._new_copy()
        self._run_process(ours)
        with Oracle(heap="2g") as oracle:
            now_ms = time.time_ns() // 1_000_000
            outcome = oracle.load(theirs.log_dirs, now_ms=now_ms, properties=QUIET_PROPERTIES)
        if outcome.outcome != "loaded":
            raise WrongResultError(f"the oracle: {outcome.outcome}: {outcome.error}")
        count = 0
        for our_dir, their_dir in zip(ours.log_dirs, theirs.log_dirs, strict=True):
            expected, actual = tree_without_logs(their_dir), tree_without_logs(our_dir)
            count += len(expected)
            if found := differences(expected, actual):
                raise WrongResultError("\n".join([f"{our_dir} is not what Kafka leaves:", *found]))
        self._drop(ours)
        self._drop(theirs)
        return count

    def check_whole_broker(self) -> None:
        """Let a whole broker recover a copy and serve it."""
        broker = self._new_copy()
        self._check_load(broker, until_running=True)
        strays = [path for log_dir in broker.log_dirs for path in log_dir.glob("*-stray")]
        if strays:
            raise WrongResultError(f"the broker took generated partitions for strays: {strays}")
        self._drop(broker)

    # -- sides ---------------------------------------------------------------------------------------------

    def _read(self, sum_of: Callable[[Path], int]) -> Measured:
        self._begin()
        seconds, total = plain_read.read_files(self._logs.by_dir, self._threads, sum_of)
        if self._word_sum is not None and total != self._word_sum:
            raise WrongResultError("two plain reads do not agree")
        self._word_sum = total
        return self._end(seconds)

    def _engine(self) -> Measured:
        copy = self._new_copy()
        warm_up = self._scratch / "warm-up"
        shutil.copytree(self._warm_up_dir, warm_up)
        self._begin()
        command = [sys.executable, "-m", "benchmarks.recover_worker", str(copy.config), str(warm_up)]
        done = subprocess.run(command, cwd=machine.ROOT, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise WrongResultError(f"engine:\n{done.stdout}{done.stderr}")
        answer = json.loads(done.stdout)
        measured = self._end(answer["seconds"])
        self._check_report(answer["report"])
        shutil.rmtree(warm_up)
        self._drop(copy)
        return measured

    def _process(self) -> Measured:
        copy = self._new_copy()
        self._begin()
        seconds, peak = self._run_process(copy)
        measured = self._end(seconds, peak)
        self._drop(copy)
        return measured

    def _broker(self) -> Measured:
        copy = self._new_copy()
        self._begin()
        seconds = self._check_load(copy)
        measured = self._end(seconds)
        self._drop(copy)
        return measured

    # -- work ----------------------------------------------------------------------------------------------

    def _run_process(self, copy: MeasuredBroker) -> tuple[float, int]:
        """Run the command line; return its seconds and its peak of anonymous memory."""
        command = [sys.executable, "-m", "recovery", "recover", "-c", str(copy.config)]
        command += ["--format", "json", "--progress", "none"]
        begin = time.perf_counter()
        with subprocess.Popen(command, cwd=machine.ROOT, stdout=subprocess.PIPE, text=True) as process:
            watch = _MemoryWatch(process.pid)
            printed = process.communicate()[0]
        seconds = time.perf_counter() - begin
        self._check_report(json.loads(printed))
        return seconds, watch.peak_bytes

    def _check_report(self, report: dict[str, Any]) -> None:
        partitions = {
            one["partition"]: one
            for log_dir in report["logDirs"]
            for one in log_dir["partitions"]
            if one["partition"].startswith(f"{TOPIC}-")
        }
        ends = {folder: one["logEndOffset"] for folder, one in partitions.items()}
        segments = sum(one["segments"]["recovered"] for one in partitions.values())
        cut = sum(one["truncatedBytes"] for one in partitions.values())
        if report["exitCode"] != 0 or cut or not all(one["cleanShutdownMarker"] for one in report["logDirs"]):
            raise WrongResultError(f"recover: exit code {report['exitCode']}, {cut} bytes cut")
        self._check("recover", ends, segments)

    def _check_load(self, copy: MeasuredBroker, *, until_running: bool = False) -> float:
        load = copy.recover(until_running=until_running)
        self._check("broker", load.log_end_offsets, load.segments)
        return load.seconds

    def _check(self, who: str, log_end_offsets: dict[str, int], segments: int) -> None:
        expected = self._dataset.shape.partitions * self._dataset.shape.segments
        if log_end_offsets != self._dataset.log_end_offsets or segments != expected:
            raise WrongResultError(
                f"{who}: {segments} segments recovered, expected {expected}; log end offsets "
                f"{log_end_offsets}, expected {self._dataset.log_end_offsets}"
            )

    def _new_copy(self) -> MeasuredBroker:
        """Return a broker, not started, on a fresh copy; its configuration serves both sides."""
        self._copies += 1
        place = self._scratch / f"copy-{self._copies}"
        log_dirs = copy_log_dirs(self._dataset.log_dirs, place)
        return MeasuredBroker(log_dirs, work_dir=place / "work", recovery_threads=self._threads)

    def _drop(self, copy: MeasuredBroker) -> None:
        shutil.rmtree(copy.log_dirs[0].parent)

    def _read_all_once(self) -> None:
        plain_read.read_files(self._logs.by_dir, 1, plain_read.sum_read)

    def _begin(self) -> None:
        self._last_meter = machine.CpuMeter(), machine.disk_read_bytes()

    def _end(self, seconds: float, peak_anonymous_bytes: int | None = None) -> Measured:
        meter, disk_bytes = self._last_meter
        return Measured(
            seconds=seconds,
            foreign_share=round(meter.foreign_share(), 3),
            disk_read_bytes=machine.disk_read_bytes() - disk_bytes,
            peak_anonymous_bytes=peak_anonymous_bytes,
        )


class _MemoryWatch:
    """Looks at a process's anonymous memory until it ends."""

    def __init__(self, pid: int) -> None:
        self.peak_bytes = 0
        self._status = Path(f"/proc/{pid}/status")
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            try:
                lines = self._status.read_text().splitlines()
            except OSError:
                return
            found = [int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:")]
            if not found:
                return
            self.peak_bytes = max(self.peak_bytes, found[0])
            time.sleep(_MEMORY_POLL_SECONDS)


def measure(
    dataset: Dataset, scratch: Path, options: argparse.Namespace, warm_up_dir: Path
) -> dict[str, Any]:
    """Measure one data set; return the object of the JSON file."""
    sides = Sides(
        dataset,
        scratch,
        threads=options.threads,
        warm_up_dir=warm_up_dir,
        with_broker=not options.no_broker,
    )
    compared_files = 0
    if not options.no_broker:
        compared_files = sides.check_against_oracle()
        sides.check_whole_broker()
    rounds = []
    for number in range(options.rounds):
        load_average = os.getloadavg()[0]
        order = list(sides.sides)[:: -1 if number % 2 else 1]
        measured = {
            name: sides.measure(name, tries=options.tries, patience_seconds=options.patience)
            for name in order
        }
        rounds.append(
            {
                "order": order,
                "load_average": load_average,
                "sides": {name: asdict(one) for name, one in measured.items()},
            }
        )
        words = "  ".join(f"{name} {one.seconds:.3f}" for name, one in measured.items())
        busy = max(one.foreign_share for one in measured.values())
        print(f"  round {number + 1}: {words}  (others: up to {busy:.0%} of the CPUs)", file=sys.stderr)
    seconds = {name: [one["sides"][name]["seconds"] for one in rounds] for name in sides.sides}
    return {
        "dataset": asdict(dataset),
        "threads_per_dir": options.threads,
        "files_equal_to_oracle": compared_files,
        "rounds": rounds,
        "ratios": [asdict(ratio) for ratio in ratios(seconds)],
        "median_seconds": {name: statistics.median(values) for name, values in seconds.items()},
        "peak_anonymous_bytes": max(one["sides"]["process"]["peak_anonymous_bytes"] for one in rounds),
    }


def ratios(seconds: dict[str, list[float]]) -> list[Ratio]:
    """Return what is compared, from the seconds of all rounds by side."""
    plain = [min(pair) for pair in zip(seconds["mapped"], seconds["pread"], strict=True)]
    pairs = [("engine's speed / plain read's", plain, seconds["engine"])]
    if "broker" in seconds:
        pairs += [
            ("engine faster than broker", seconds["broker"], seconds["engine"]),
            ("whole process faster than broker", seconds["broker"], seconds["process"]),
        ]
    found = []
    for name, slower, faster in pairs:
        each = [a / b for a, b in zip(slower, faster, strict=True)]
        found.append(Ratio(name=name, median=statistics.median(each), least=min(each), most=max(each)))
    return found


def print_table(name: str, result: dict[str, Any]) -> None:
    """Print the ratios of one data set as Markdown."""
    dataset, medians = result["dataset"], result["median_seconds"]
    shape = dataset["shape"]
    print(
        f"\n{name}: {dataset['log_bytes'] / 1e9:.2f} GB, {dataset['batch_count']:,} batches, "
        f"{shape['dirs']} dirs, {shape['partitions']} partitions of {shape['segments']} segments, "
        f"{result['threads_per_dir']} threads a dir, {len(result['rounds'])} rounds\n"
    )
    print("| | median | least .. most |\n|---|---|---|")
    for ratio in result["ratios"]:
        print(f"| {ratio['name']} | {ratio['median']:.2f} x | {ratio['least']:.2f} .. {ratio['most']:.2f} |")
    for side, seconds in medians.items():
        print(f"| {side} | {seconds:.3f} s | {dataset['log_bytes'] / seconds / 1e9:.2f} GB/s |")
    print(f"| process, peak anonymous memory | {result['peak_anonymous_bytes'] / 1e6:.0f} MB | |")
    shares = [side["foreign_share"] for one in result["rounds"] for side in one["sides"].values()]
    print(
        f"| CPU used by others | {statistics.median(shares):.1%} | {min(shares):.1%} .. {max(shares):.1%} |"
    )


def main() -> None:
    """Make the data sets, measure, print tables, write JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--scratch", type=Path, required=True, help="an empty or new folder on the disk to use"
    )
    parser.add_argument(
        "--data", action="append", metavar="BYTES/BATCH", help="default: 2GiB/64KiB and 300MiB/170"
    )
    parser.add_argument("--dirs", type=int, default=2)
    parser.add_argument("--partitions", type=int, default=8, help="of all dirs together (default 8)")
    parser.add_argument("--segments", type=int, default=4, help="of each partition (default 4)")
    parser.add_argument("--threads", type=int, default=1, help="recovery threads a log dir (default 1)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--patience", type=float, default=0, help="seconds to wait for others, a measurement")
    parser.add_argument("--tries", type=int, default=1, help="measurements of a side while others disturb it")
    parser.add_argument("--no-broker", action="store_true", help="only our sides; needs no Java")
    parser.add_argument("--json", type=Path, help="file for all figures")
    options = parser.parse_args()
    options.scratch.mkdir(parents=True, exist_ok=True)
    scratch = options.scratch.resolve() / f"benchmark-{os.getpid()}"
    facts = machine.describe(options.scratch)
    print("\n".join(f"{key}: {value}" for key, value in facts.items()))
    plain_read.warm_up()
    results = {}
    try:
        warm_up_dir = generate(scratch / "warm", _WARM_UP_SHAPE, with_broker=False).log_dirs[0]
        for name in options.data or ["2GiB/64KiB", "300MiB/170"]:
            size, _, batch = name.partition("/")
            shape = Shape(
                bytes_total=read_size(size),
                batch_bytes=read_size(batch),
                dirs=options.dirs,
                partitions=options.partitions,
                segments=options.segments,
            )
            print(f"{name}: generating", file=sys.stderr)
            dataset = generate(scratch / "data", shape, with_broker=not options.no_broker)
            results[name] = measure(dataset, scratch, options, warm_up_dir)
            print_table(name, results[name])
            shutil.rmtree(scratch / "data")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if options.json:
        document = {"version": 1, "machine": facts, "results": results}
        options.json.write_text(json.dumps(document, default=str, indent=1) + "\n")


if __name__ == "__main__":
    main()
