"""What is measured against what, on one data set: plain reads, our engine and process, a real broker.

Each side works on a copy of its own that shares the `.log` files (`benchmarks.copies`), and each side's
result is checked: nothing cut, the log end offsets of the generator, every segment recovered (or, of log dirs
that were shut down cleanly, none), no `.log` touched.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks import machine, page_cache, plain_read
from benchmarks.copies import LogFiles, copy_log_dirs, tree_without_logs
from benchmarks.generate import TOPIC, Dataset, Shape, generate
from benchmarks.measured_broker import DEFAULT_HEAP, BrokerLoad, MeasuredBroker
from benchmarks.memory_watch import MemoryWatch
from native import cpu
from segfmt.checkpoint import encode_leader_epoch_checkpoint, read_leader_epoch_checkpoint
from segfmt.filenames import LEADER_EPOCH_CHECKPOINT
from tests.brokers.broker import QUIET_PROPERTIES
from tests.brokers.oracle import Oracle
from tests.logs.samples import differences

CALM_SHARE = 0.08
"""Of the CPUs, used by others: what is measured meanwhile is taken as it is."""
_WARM_UP_SHAPE = Shape(bytes_total=4 << 20, batch_bytes=400, dirs=1, partitions=1, segments=3)
_LONGEST_ORACLE_SECONDS = 3600
_MOST_COLD_SHORTFALL = 0.03
_MOST_SHOWN = 5


class WrongResultError(Exception):
    """A side did not do its work: its time means nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One side in one round.

    Attributes:
        foreign_share: the CPU time that others used meanwhile, of all CPUs.
        disk_read_bytes: what the machine read from disks meanwhile: next to nothing with a warm cache.
        peak_anonymous_bytes: of the process, where that was watched.
        phases: where the engine's time went, as its report has it.
    """

    seconds: float
    foreign_share: float
    disk_read_bytes: int
    peak_anonymous_bytes: int | None = None
    phases: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """How the sides of one data set are measured.

    Attributes:
        threads: recovery threads a log dir, on both sides.
        also_threads: measure the engine with so many as well; 0: do not.
        cpu_paths: measure the engine on each of these as well.
        is_clean: the log dirs were shut down cleanly: there is nothing to recover.
        is_cold: nothing of the `.log` files is in the page cache when a side begins.
        with_broker: False needs no Java.
        heap: of the broker's JVM.
    """

    threads: int = 1
    also_threads: int = 0
    cpu_paths: tuple[str, ...] = ()
    is_clean: bool = False
    is_cold: bool = False
    with_broker: bool = True
    heap: str = DEFAULT_HEAP


class Sides:
    """The sides that are measured on one data set.

    Attributes:
        sides: what measures each of them, by name.
    """

    def __init__(self, dataset: Dataset, scratch: Path, setup: Setup) -> None:
        self._dataset = dataset
        self._scratch = scratch
        self._setup = setup
        self._warm_up_dir = _warm_up_dir(scratch)
        self._logs = LogFiles(dataset.log_dirs)
        self._copies = 0
        self._free_places: list[Path] = []
        self._word_sum: int | None = None
        self._last_meter = (machine.CpuMeter(), 0)
        self.sides: dict[str, Callable[[], Measured]] = {}
        if setup.is_cold:
            self.sides["cat"] = lambda: self._cat(one_a_dir=False)
            self.sides["cat, one a dir"] = lambda: self._cat(one_a_dir=True)
        elif not setup.is_clean:
            self.sides["mapped"] = lambda: self._read(plain_read.sum_mapped)
            self.sides["pread"] = lambda: self._read(plain_read.sum_read)
        self.sides["engine"] = self._engine
        if setup.also_threads:
            self.sides[f"engine, threads {setup.also_threads}"] = functools.partial(
                self._engine, threads=setup.also_threads
            )
        for path in setup.cpu_paths:
            self.sides[f"engine, {path}"] = functools.partial(self._engine, cpu_path=path)
        self.sides["process"] = self._process
        if setup.with_broker:
            self.sides["broker"] = self._broker

    def prepare(self) -> int:
        """Check what both sides leave behind; make the log dirs clean where that is to be measured.

        Returns:
            How many files were compared with those that Kafka leaves.
        """
        if self._setup.is_clean:
            self._shut_down_cleanly()
            self._check_clean_is_untouched()
            return 0
        if not self._setup.with_broker:
            return 0
        compared = self._check_against_oracle()
        self._check_whole_broker()
        return compared

    def measure(self, name: str, *, tries: int, patience_seconds: float) -> Measured:
        """Measure one side, on a fresh copy.

        Args:
            tries: how often it may be measured until others leave the CPUs alone meanwhile; the least
                disturbed measurement counts.
            patience_seconds: how long to wait for others before each.
        """
        found: list[Measured] = []
        while len(found) < tries and not any(one.foreign_share <= CALM_SHARE for one in found):
            machine.wait_until_quiet(patience_seconds)
            if not self._setup.is_cold:
                plain_read.read_files(self._logs.by_dir, 1, plain_read.sum_read)
            found.append(self.sides[name]())
            if not self._logs.are_untouched():
                raise WrongResultError(f"{name}: a .log file was changed")
        return min(found, key=lambda one: one.foreign_share)

    # -- once ----------------------------------------------------------------------------------------------

    def _check_against_oracle(self) -> int:
        """Recover one copy here and one with Kafka's LogManager; return how many files were compared."""
        ours, theirs = self._new_copy(), self._new_copy()
        self._run_process(ours)
        with Oracle(heap="4g") as oracle:
            outcome = oracle.load(
                theirs.log_dirs,
                now_ms=time.time_ns() // 1_000_000,
                properties=QUIET_PROPERTIES,
                longest_seconds=_LONGEST_ORACLE_SECONDS,
            )
        if outcome.outcome != "loaded":
            raise WrongResultError(f"the oracle: {outcome.outcome}: {outcome.error}")
        count = 0
        for our_dir, their_dir in zip(ours.log_dirs, theirs.log_dirs, strict=True):
            expected, actual = tree_without_logs(their_dir), tree_without_logs(our_dir)
            count += len(expected)
            if found := differences(expected, actual):
                shown = found[:_MOST_SHOWN]
                raise WrongResultError("\n".join([f"{our_dir} is not what Kafka leaves:", *shown]))
        self._drop(ours)
        self._drop(theirs)
        return count

    def _check_whole_broker(self) -> None:
        """Let a whole broker recover a copy and serve it."""
        broker = self._new_copy()
        self._check_load(broker.recover(until_running=True))
        self._check_strays(broker.log_dirs)
        self._drop(broker)

    def _shut_down_cleanly(self) -> None:
        """Recover the data set itself: by a broker that serves and stops; without one, by us."""
        place = self._scratch / "clean"
        broker = MeasuredBroker(
            self._dataset.log_dirs,
            work_dir=place,
            recovery_threads=self._setup.threads,
            heap=self._setup.heap,
        )
        if self._setup.with_broker:
            broker.recover(until_running=True)
            self._check_strays(self._dataset.log_dirs)
        else:
            self._run(broker)
        shutil.rmtree(place)
        os.sync()

    def _check_clean_is_untouched(self) -> None:
        """See that recovering a clean log dir changes no more than a broker's load does."""
        copy = self._new_copy()
        before = [self._as_loaded(tree_without_logs(log_dir)) for log_dir in copy.log_dirs]
        self._run_process(copy)
        for log_dir, tree in zip(copy.log_dirs, before, strict=True):
            if found := differences(tree, tree_without_logs(log_dir)):
                shown = found[:_MOST_SHOWN]
                raise WrongResultError("\n".join([f"{log_dir} was clean and was changed:", *shown]))
        self._drop(copy)

    def _as_loaded(self, tree: dict[str, bytes]) -> dict[str, bytes]:
        """Return *tree* without leader epochs that begin at their log's end: each load drops them.

        A broker that became leader and got no batch leaves one. Kafka: LogLoader.load.
        """
        return {
            name: data
            if not name.endswith(f"/{LEADER_EPOCH_CHECKPOINT}")
            else drop_epochs_from(data, self._dataset.log_end_offsets.get(name.partition("/")[0]))
            for name, data in tree.items()
        }

    @staticmethod
    def _check_strays(log_dirs: tuple[Path, ...]) -> None:
        strays = [path for log_dir in log_dirs for path in log_dir.glob("*-stray")]
        if strays:
            raise WrongResultError(f"the broker took generated partitions for strays: {strays[:_MOST_SHOWN]}")

    # -- sides ---------------------------------------------------------------------------------------------

    def _read(self, sum_of: Callable[[Path], int]) -> Measured:
        self._begin()
        seconds, total = plain_read.read_files(self._logs.by_dir, self._setup.threads, sum_of)
        if self._word_sum is not None and total != self._word_sum:
            raise WrongResultError("two plain reads do not agree")
        self._word_sum = total
        return self._end(seconds)

    def _cat(self, *, one_a_dir: bool) -> Measured:
        """`cat` all files, in one process or in one for each log dir."""
        groups = self._logs.by_dir if one_a_dir else [[path for files in self._logs.by_dir for path in files]]
        commands = [["cat", *map(str, files)] for files in groups]
        self._begin()
        begin = time.perf_counter()
        running = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for command in commands]
        codes = [process.wait() for process in running]
        measured = self._end(time.perf_counter() - begin)
        if any(codes):
            raise WrongResultError(f"cat ended with {codes}")
        return measured

    def _engine(self, *, threads: int | None = None, cpu_path: str | None = None) -> Measured:
        copy = self._new_copy(threads)
        warm_up = self._scratch / "warm-up"
        shutil.copytree(self._warm_up_dir, warm_up)
        command = [sys.executable, "-m", "benchmarks.recover_worker", str(copy.config), str(warm_up)]
        environment = os.environ | ({} if cpu_path is None else {cpu.ENVIRONMENT: cpu_path})
        self._begin()
        done = subprocess.run(
            command, cwd=machine.ROOT, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise WrongResultError(f"engine:\n{done.stdout}{done.stderr}")
        answer = json.loads(done.stdout)
        if cpu_path is not None and cpu.named(answer["cpu_path"]) is not cpu.named(cpu_path):
            raise WrongResultError(f"engine: took the CPU path {answer['cpu_path']}, not {cpu_path}")
        measured = replace(self._end(answer["seconds"]), phases=tuple(answer["report"]["phases"]))
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
        load = copy.recover()
        measured = self._end(load.seconds)
        self._check_load(load)
        self._drop(copy)
        return measured

    # -- work ----------------------------------------------------------------------------------------------

    def _run_process(self, copy: MeasuredBroker) -> tuple[float, int]:
        """Run the command line; return its seconds and its peak of anonymous memory."""
        seconds, peak_bytes, report = self._run(copy)
        self._check_report(report)
        return seconds, peak_bytes

    @staticmethod
    def _run(copy: MeasuredBroker) -> tuple[float, int, dict[str, Any]]:
        return run_recover(["-c", str(copy.config)])

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

    def _check_load(self, load: BrokerLoad) -> None:
        self._check("broker", load.log_end_offsets, load.segments)

    def _check(self, who: str, log_end_offsets: Mapping[str, int], segments: int) -> None:
        shape = self._dataset.shape
        expected_segments = 0 if self._setup.is_clean else shape.partitions * shape.segments
        if segments != expected_segments:
            raise WrongResultError(f"{who}: {segments} segments recovered, expected {expected_segments}")
        expected = self._dataset.log_end_offsets
        wrong = {
            folder: (log_end_offsets.get(folder), expected.get(folder))
            for folder in sorted(expected.keys() | log_end_offsets.keys())
            if log_end_offsets.get(folder) != expected.get(folder)
        }
        if wrong:
            shown = dict(list(wrong.items())[:_MOST_SHOWN])
            raise WrongResultError(
                f"{who}: {len(wrong)} log end offsets are wrong; found and expected: {shown}"
            )

    def _new_copy(self, threads: int | None = None) -> MeasuredBroker:
        """Return a broker, not started, on a fresh copy; its configuration serves both sides."""
        if not self._free_places:
            self._copies += 1
            self._free_places.append(self._scratch / f"copy-{self._copies}")
        place = self._free_places.pop()
        log_dirs = copy_log_dirs(self._dataset.log_dirs, place, trash=self._scratch / "trash")
        return MeasuredBroker(
            log_dirs,
            work_dir=place / "work",
            recovery_threads=threads or self._setup.threads,
            heap=self._setup.heap,
        )

    def _drop(self, copy: MeasuredBroker) -> None:
        """Let the next side have the place of a copy."""
        self._free_places.append(copy.log_dirs[0].parent)

    def _begin(self) -> None:
        if self._setup.is_cold:
            page_cache.evict(path for files in self._logs.by_dir for path in files)
        self._last_meter = machine.CpuMeter(), machine.disk_read_bytes()

    def _end(self, seconds: float, peak_anonymous_bytes: int | None = None) -> Measured:
        meter, disk_bytes = self._last_meter
        read_bytes = machine.disk_read_bytes() - disk_bytes
        if self._setup.is_cold and read_bytes < self._dataset.log_bytes * (1 - _MOST_COLD_SHORTFALL):
            raise WrongResultError(
                f"only {read_bytes} of {self._dataset.log_bytes} bytes came from disk: the cache was not cold"
            )
        return Measured(
            seconds=seconds,
            foreign_share=round(meter.foreign_share(), 3),
            disk_read_bytes=read_bytes,
            peak_anonymous_bytes=peak_anonymous_bytes,
        )


def drop_epochs_from(checkpoint: bytes, log_end_offset: int | None) -> bytes:
    """Return a leader epoch checkpoint without the epochs that begin at *log_end_offset* or later.

    Kafka: LeaderEpochFileCache.truncateFromEndAsyncFlush.
    """
    entries = read_leader_epoch_checkpoint(checkpoint)
    if log_end_offset is None or all(start < log_end_offset for _, start in entries):
        return checkpoint
    return encode_leader_epoch_checkpoint(
        [(epoch, start) for epoch, start in entries if start < log_end_offset]
    )


def run_recover(arguments: list[str]) -> tuple[float, int, dict[str, Any]]:
    """Run `kafka-log-recovery recover`; return its seconds, its peak of anonymous memory and its report."""
    command = [sys.executable, "-m", "recovery", "recover", *arguments]
    command += ["--format", "json", "--progress", "none"]
    begin = time.perf_counter()
    with subprocess.Popen(command, cwd=machine.ROOT, stdout=subprocess.PIPE, text=True) as process:
        watch = MemoryWatch(process.pid)
        printed = process.communicate()[0]
    seconds = time.perf_counter() - begin
    if not printed:
        raise WrongResultError(f"{command} ended with {process.returncode} and printed nothing")
    return seconds, watch.peak_bytes, json.loads(printed)


def _warm_up_dir(scratch: Path) -> Path:
    """Return a small log dir to recover before the clock starts."""
    place = scratch / "warm"
    if not place.exists():
        generate(place, _WARM_UP_SHAPE, with_broker=False)
    return place / "d1"
