"""How long a restart takes: a model of what bytes, batches, segments and logs cost a recovery of ours, and a broker.

What a byte costs us is measured by the sample, on this machine and with these batches. All else is a constant of the
machine on which it was measured, times how much slower this one is at a fixed loop of Python. The constants of a broker
are those of 4.3.1, with the least and the most that was seen: CRC-32C and the copy of each byte; the objects, the
checks and the producer state of each batch; two mapped indexes and the fsync of a snapshot for each segment; the small
files of each log. `python -m benchmarks.estimate` holds them against real brokers.

No clock is read here, and nothing is opened.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

REFERENCE_INTERPRETER_S: Final = 0.00177
"""`Sample.interpreter_s` of the machine of the constants below: 2 vCPUs of an AMD EPYC (Zen 4), Python 3.11."""


class BrokerCosts(NamedTuple):
    """Seconds of one recovery thread of a broker."""

    start_s: float
    byte_s: float
    batch_s: float
    segment_s: float
    log_s: float


BROKER_LEAST: Final = BrokerCosts(start_s=0.1, byte_s=0.25e-9, batch_s=1.5e-6, segment_s=0.0015, log_s=0.0007)
BROKER_MOST: Final = BrokerCosts(start_s=2.5, byte_s=1.1e-9, batch_s=10.0e-6, segment_s=0.008, log_s=0.006)
"""With a cold JIT compiler, and more threads than CPUs: four on two take three times as long as two."""

_MOST_READ_AHEAD: Final = 3
"""How much faster a disk may be when a whole file is read than in the single pieces of the sample."""
_TOOL_START_S: Final = 0.35
_TOOL_FILE_S: Final = 40e-6
_TOOL_SEGMENT_S: Final = 0.0009
_TOOL_LOG_S: Final = 0.0014
_SHARED_INTERPRETER: Final = 1.4
"""How much more the Python of a log costs where several log dirs share a process."""


class LogWork(NamedTuple):
    """What is to be done in one log.

    Attributes:
        size_bytes: of the segments, each counted once.
        broker_bytes: the same as a broker reads them: a segment that is unflushed and has no index twice.
        broker_segments: likewise.
    """

    segment_count: int
    size_bytes: int
    broker_segments: int
    broker_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirWork:
    """What is to be done in one log dir.

    Attributes:
        threads: `num.recovery.threads.per.data.dir`.
        log_count, file_count: of all logs that are loaded, those with nothing to recover included.
        logs: those with something to recover.
    """

    threads: int
    log_count: int
    file_count: int
    logs: Sequence[LogWork]

    @property
    def size_bytes(self) -> int:
        """Bytes to be recovered."""
        return sum(log.size_bytes for log in self.logs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What the sample says of the machine.

    Attributes:
        cpu_count: CPUs that this process may use.
        slowness: its time for a fixed loop, 1.0 for the machine of the constants.
        slowdown: how much longer all takes because of others; at least 1.0.
        byte_s: reading a byte that is in the page cache and checking it, by one thread of ours, on a CPU.
        disk_byte_s: reading one that is not, by the clock.
        absent_share: of the bytes, not in the page cache.
        byte_batches: batches in a byte.
    """

    cpu_count: int
    slowness: float
    slowdown: float
    byte_s: float
    disk_byte_s: float
    absent_share: float
    byte_batches: float


class Span(NamedTuple):
    """The least and the most seconds that something may take."""

    low_s: float
    high_s: float


def slowdown(*, contention: float, running: float, threads: int, cpu_count: int) -> float:
    """Return how much longer than alone *threads* take beside others; at least 1.0.

    Of many threads that want a CPU each gets the same share of them. A short loop may be luckier than that.

    Args:
        contention: how much longer such a loop took.
        running: threads of others that want a CPU.
        cpu_count: CPUs of the machine.
    """
    return max(contention, (running + threads) / max(cpu_count, threads), 1.0)


def tool_seconds(dirs: Sequence[LogDirWork], machine: Machine, *, has_processes: bool) -> float:
    """Return how long `recover` takes, from its start to its end.

    Args:
        has_processes: whether each log dir has a process of its own, and so an interpreter.
    """
    python = [
        one.file_count * _TOOL_FILE_S
        + one.log_count * _TOOL_LOG_S
        + sum(log.segment_count for log in one.logs) * _TOOL_SEGMENT_S
        for one in dirs
    ]
    if has_processes:
        python_s = max(max(python), sum(python) / machine.cpu_count)
    else:
        python_s = sum(python) * (_SHARED_INTERPRETER if sum(seconds > 1 for seconds in python) > 1 else 1)
    # Threads without a log of their own help with the segments of others, so a log dir keeps all of its threads busy.
    scans = [
        one.size_bytes * machine.byte_s / min(one.threads, max(sum(log.segment_count for log in one.logs), 1))
        for one in dirs
    ]
    total_bytes = sum(one.size_bytes for one in dirs)
    scan_s = max(max(scans), total_bytes * machine.byte_s / machine.cpu_count)
    # While one thread waits for the disk, others are at work.
    start_s = machine.slowdown * machine.slowness * _TOOL_START_S
    work_s = machine.slowdown * (machine.slowness * python_s + scan_s)
    return start_s + max(work_s, _disk_seconds(dirs, machine))


def broker_seconds(dirs: Sequence[LogDirWork], machine: Machine) -> Span:
    """Return how long a 4.3.1 broker takes for its `Loaded N logs`; its start before and its elections after excluded.

    Kafka: LogManager.loadLogs: a pool of threads for each log dir, a log by one thread.
    """
    disk_s = _disk_seconds(dirs, machine)
    least_disk_s = disk_s / (_MOST_READ_AHEAD * len(dirs))
    # What makes this machine slow now may be over when the broker starts.
    least_slowness = min(machine.slowness, 1.0)
    low_s = max(least_slowness * _load_seconds(dirs, machine, BROKER_LEAST, makespan), least_disk_s)
    most_s = _load_seconds(dirs, machine, BROKER_MOST, worst_makespan)
    return Span(low_s, machine.slowness * machine.slowdown * most_s + 2 * disk_s)


def _load_seconds(
    dirs: Sequence[LogDirWork],
    machine: Machine,
    costs: BrokerCosts,
    span_of: Callable[[Sequence[float], int], float],
) -> float:
    longest_s, total_s = 0.0, 0.0
    for one in dirs:
        seconds = [
            costs.log_s
            + log.broker_segments * costs.segment_s
            + log.broker_bytes * (costs.byte_s + machine.byte_batches * costs.batch_s)
            for log in one.logs
        ]
        seconds += [costs.log_s] * (one.log_count - len(one.logs))
        longest_s = max(longest_s, span_of(seconds, one.threads))
        total_s += sum(seconds)
    return costs.start_s + max(longest_s, total_s / machine.cpu_count)


def makespan(seconds: Sequence[float], threads: int) -> float:
    """Return when *threads* that take the longest job that is left have done all, which is about as soon as can be."""
    ends = [0.0] * threads
    for job_s in sorted(seconds, reverse=True):
        heapq.heapreplace(ends, ends[0] + job_s)
    return max(ends)


def worst_makespan(seconds: Sequence[float], threads: int) -> float:
    """Return the most that any order of the jobs can make of it: a broker takes them as the file system lists them."""
    return (sum(seconds) + (threads - 1) * max(seconds, default=0.0)) / threads


def _disk_seconds(dirs: Iterable[LogDirWork], machine: Machine) -> float:
    """Return how long reading from disk takes, if all log dirs share one disk: the sample does not tell."""
    return sum(one.size_bytes for one in dirs) * machine.absent_share * machine.disk_byte_s
