"""A broker that recovers, `watch` beside it, and what its own gauges show at the same time.

    python -m tests.brokers.watched_broker 4.3.1 INTO [--bytes 600MB] [--partitions 40] [--segments 5]
        [--batch-bytes 170] [--threads 2] [--without-dirs] [--keep] [--cpus 0.5]

makes log dirs of a killed broker of that version below INTO, lets it recover them, and prints how far `watch`, by its
log, is from the truth: remaining logs as by JMX at that moment, bytes left in segments a thread, the ETA from a tenth
of the recovery on.
"""

from __future__ import annotations

import argparse
import bisect
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import recovery
from benchmarks.generate import TOPIC, Shape, generate, read_size
from recovery.follow.report import WatchReport
from recovery.stop_request import StopRequest
from recovery.watch.events import Event, RunFinished, RunStarted
from recovery.watch.figures import GaugeValues
from recovery.watch.gauges import Gauges
from tests.brokers.agents import GaugeChange, recorded, recorder_agent
from tests.brokers.broker import QUIET_PROPERTIES, Broker

SAMPLE_S = 0.1
_LONGEST_S = 1800.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What `watch` showed at a moment."""

    now_ms: int
    values: GaugeValues


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedRecovery:
    """A recovery that was watched.

    Attributes:
        began_ms, ended_ms: by the broker's log.
        samples: while it lasted.
        changes: of the broker's own gauges.
    """

    report: WatchReport
    began_ms: int
    ended_ms: int
    samples: list[Sample]
    changes: list[GaugeChange]
    segment_bytes: int
    threads: int

    def equal_logs(self) -> list[bool]:
        """Whether each sample has the remaining logs of the broker, of each log dir."""
        truth = _Steps(self.changes)
        return [
            log_dir.remaining_logs == truth.value(log_dir.log_dir, None, sample.now_ms)
            for sample in self.samples
            for log_dir in sample.values.log_dirs
            if truth.value(log_dir.log_dir, None, sample.now_ms) is not None
        ]

    def segments_off(self) -> list[float]:
        """How far the bytes left of each log dir are from the truth, in segments for each thread."""
        done = _recovered_segments(self.changes)
        off = []
        for sample in self.samples:
            for log_dir in sample.values.log_dirs:
                count = bisect.bisect_right(done.get(log_dir.log_dir, []), sample.now_ms)
                truth_bytes = log_dir.bytes_total - count * self.segment_bytes
                off.append(abs(log_dir.remaining_bytes - truth_bytes) / self.segment_bytes / self.threads)
        return off

    def eta_errors(self) -> list[float | None]:
        """Error of the ETA as a share of the time that was left, from a tenth of the recovery on; None: withheld."""
        first_ms = self.began_ms + (self.ended_ms - self.began_ms) / 10
        errors: list[float | None] = []
        for sample in self.samples:
            left_s = (self.ended_ms - sample.now_ms) / 1000
            if sample.now_ms >= first_ms and left_s > 1:
                eta_s = sample.values.eta_seconds
                errors.append(None if eta_s is None else abs(eta_s - left_s) / left_s)
        return errors


class _Steps:
    """The values of gauges as functions of time."""

    def __init__(self, changes: Sequence[GaugeChange]) -> None:
        self._changes: dict[tuple[str, int | None], list[GaugeChange]] = {}
        for change in changes:
            self._changes.setdefault((change.log_dir, change.thread_num), []).append(change)

    def value(self, log_dir: str, thread_num: int | None, now_ms: int) -> int | None:
        changes = self._changes.get((log_dir, thread_num), [])
        index = bisect.bisect_right(changes, now_ms, key=lambda change: change.now_ms) - 1
        value = changes[index].value if index >= 0 else None
        return value if isinstance(value, int) else None


def _recovered_segments(changes: Sequence[GaugeChange]) -> dict[str, list[int]]:
    """When a segment of each log dir was recovered, by the falls of its threads' gauges."""
    last: dict[tuple[str, int], int] = {}
    done: dict[str, list[int]] = {}
    for change in changes:
        if change.thread_num is None or not isinstance(change.value, int):
            continue
        before = last.get((change.log_dir, change.thread_num), 0)
        # More than before: the thread has taken a log, and its 0 before that was too short to be seen.
        count = before if change.value > before else before - change.value
        done.setdefault(change.log_dir, []).extend([change.now_ms] * count)
        last[change.log_dir, change.thread_num] = change.value
    return {log_dir: sorted(times) for log_dir, times in done.items()}


@dataclass(slots=True)
class _Times:
    """When the recovery that is watched began and ended."""

    began_ms: int = 0
    ended_ms: int = 0
    events: list[Event] = field(default_factory=list)

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, RunStarted):
            self.began_ms = event.now_ms
        elif isinstance(event, RunFinished):
            self.ended_ms = event.now_ms


@contextmanager
def _steady_cpu(pid: int, cpus: float | None) -> Iterator[None]:
    """Give a process so much of the CPUs, and always, whatever else this machine does; needs root and cgroups (v1)."""
    if cpus is None:
        yield
        return
    group = Path(f"/sys/fs/cgroup/cpu/watched-{pid}")
    group.mkdir()
    (group / "cpu.shares").write_text("262144")
    (group / "cpu.cfs_period_us").write_text("20000")
    (group / "cpu.cfs_quota_us").write_text(str(round(20000 * cpus)))
    (group / "cgroup.procs").write_text(str(pid))
    try:
        yield
    finally:
        (group / "cpu.cfs_quota_us").write_text("-1")
        (group.parent / "cgroup.procs").write_text(str(pid))
        group.rmdir()


def watch_recovery(
    log_dirs: Sequence[Path],
    version: str,
    *,
    work_dir: Path,
    threads: int = 2,
    with_dirs: bool = True,
    cpus: float | None = None,
    wait_seconds: float = _LONGEST_S,
) -> WatchedRecovery:
    """Let a broker recover *log_dirs*, watch it by its log, and return what was seen of both.

    Args:
        with_dirs: whether `watch` knows the log dirs.
        cpus: how much of the CPUs the broker has; None: as much as it gets.
    """
    file = work_dir / "gauges.tsv"
    times, gauges, stop = _Times(), Gauges(), StopRequest()
    reports: list[WatchReport] = []

    def watch() -> None:
        options = {"log_dirs": [str(path) for path in log_dirs]} if with_dirs else {}
        reports.append(
            recovery.watch_broker(str(broker.log_path), observers=[gauges, times], stop=stop, **options)
        )

    properties = QUIET_PROPERTIES | {"num.recovery.threads.per.data.dir": str(threads)}
    with Broker(
        log_dirs,
        work_dir=work_dir,
        properties=properties,
        version=version,
        java_agents=[recorder_agent(file)],
    ) as broker:
        broker.launch()
        with _steady_cpu(broker.pid, cpus):
            watcher = threading.Thread(target=watch)
            watcher.start()
            samples = []
            deadline_s = time.monotonic() + wait_seconds
            while watcher.is_alive() and time.monotonic() < deadline_s:
                values = gauges.values(time.monotonic())
                if values.state == "recovering":
                    samples.append(Sample(now_ms=time.time_ns() // 1_000_000, values=values))
                time.sleep(SAMPLE_S)
            stop.request(15)
            watcher.join()
        broker.wait_for("Loaded ", wait_seconds=wait_seconds)
        time.sleep(1)
    sizes = [path.stat().st_size for log_dir in log_dirs for path in log_dir.glob(f"{TOPIC}-*/*.log")]
    return WatchedRecovery(
        report=reports[0],
        began_ms=times.began_ms,
        ended_ms=times.ended_ms,
        samples=[sample for sample in samples if sample.now_ms < times.ended_ms],
        changes=recorded(file),
        segment_bytes=sum(sizes) // len(sizes),
        threads=threads,
    )


def share(of: Sequence[bool]) -> float:
    """How many of *of* are true, from 0 to 1."""
    return sum(of) / len(of) if of else 0.0


def summary(run: WatchedRecovery) -> str:
    """What the campaign prints of a recovery."""
    errors = run.eta_errors()
    given = [error for error in errors if error is not None]
    off = run.segments_off()
    return (
        f"{(run.ended_ms - run.began_ms) / 1000:.1f} s, exit {run.report.exit_code}, {len(run.samples)} samples: "
        f"remaining logs equal in {share(run.equal_logs()):.1%}; "
        f"bytes left off by at most {max(off, default=0):.2f} segments a thread "
        f"({share([value <= 1 for value in off]):.1%} within one); "
        f"ETA within 35 % in {share([error <= 0.35 for error in given]):.1%} of {len(given)} that were given "
        f"({share([error is not None and error <= 0.35 for error in errors]):.1%} of all {len(errors)})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Watch real recoveries, and compare with JMX.")
    parser.add_argument("version")
    parser.add_argument("into", type=Path)
    parser.add_argument("--bytes", type=read_size, default=read_size("600MB"))
    parser.add_argument("--batch-bytes", type=read_size, default=170)
    parser.add_argument("--partitions", type=int, default=40)
    parser.add_argument("--segments", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--without-dirs", action="store_true")
    parser.add_argument("--cpus", type=float)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--series", type=Path, help="write time left and ETA of each sample to this file")
    arguments = parser.parse_args()
    shape = Shape(
        bytes_total=arguments.bytes,
        batch_bytes=arguments.batch_bytes,
        partitions=arguments.partitions,
        segments=arguments.segments,
    )
    data = arguments.into / f"data-{arguments.version}"
    generate(data, shape, version=arguments.version)
    try:
        run = watch_recovery(
            [data / "d1", data / "d2"],
            arguments.version,
            work_dir=arguments.into / "work",
            threads=arguments.threads,
            with_dirs=not arguments.without_dirs,
            cpus=arguments.cpus,
        )
        print(f"{arguments.version}, {shape}: {summary(run)}")
        if arguments.series:
            rows = ((run.ended_ms - one.now_ms, one.values.eta_seconds, one.values) for one in run.samples)
            arguments.series.write_text(
                "".join(f"{left_ms / 1000}\t{eta}\t{values}\n" for left_ms, eta, values in rows)
            )
    finally:
        if not arguments.keep:
            shutil.rmtree(data)


if __name__ == "__main__":
    main()
