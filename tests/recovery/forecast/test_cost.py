"""The model of what a restart costs: what makes it longer, what does not, and how threads share the work."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.forecast.api import _log_work
from recovery.forecast.cost import (
    LogDirWork,
    LogWork,
    Machine,
    broker_seconds,
    makespan,
    slowdown,
    tool_seconds,
    worst_makespan,
)
from recovery.forecast.survey import LogToRecover
from recovery.load.forecast import SegmentToRecover
from segfmt.filenames import log_name

MACHINE = Machine(
    cpu_count=8,
    slowness=1.0,
    slowdown=1.0,
    byte_s=0.3e-9,
    disk_byte_s=0.0,
    absent_share=0.0,
    byte_batches=1 / 65536,
)
GIB = 1 << 30


def work(*logs: tuple[int, int], threads: int = 2) -> LogDirWork:
    """A log dir with logs of (segments, bytes)."""
    works = [LogWork(count, size, count, size) for count, size in logs]
    return LogDirWork(threads=threads, log_count=len(logs), file_count=4 * len(logs), logs=works)


def tool(*dirs: LogDirWork, machine: Machine = MACHINE, has_processes: bool = False) -> float:
    return tool_seconds(dirs, machine, has_processes=has_processes)


@given(st.lists(st.floats(0.001, 10), max_size=6), st.integers(1, 4))
def test_makespans_enclose_every_order(seconds: list[float], threads: int) -> None:
    worst = worst_makespan(seconds, threads)
    for order in itertools.islice(itertools.permutations(seconds), 24):
        ends = [0.0] * threads
        for job in order:
            ends[ends.index(min(ends))] += job
        assert max(ends) <= worst + 1e-9
        assert max(ends) >= max(sum(seconds) / threads, max(seconds, default=0.0)) - 1e-9
    assert makespan(seconds, threads) <= worst + 1e-9


def test_a_broker_needs_as_long_as_its_largest_log() -> None:
    one, many = work((8, 8 * GIB)), work(*[(1, GIB)] * 8)
    assert broker_seconds([one], MACHINE).low_s > 1.8 * broker_seconds([many], MACHINE).low_s
    assert tool(one) == pytest.approx(tool(many), rel=0.1)  # threads share its segments


def test_small_batches_cost_a_broker() -> None:
    small = replace(MACHINE, byte_batches=1 / 170)
    dirs = [work(*[(4, GIB)] * 8)]
    assert broker_seconds(dirs, small).low_s > 5 * broker_seconds(dirs, MACHINE).low_s
    assert broker_seconds(dirs, small).high_s > 5 * broker_seconds(dirs, MACHINE).high_s


def test_many_small_logs_cost_by_the_log() -> None:
    few, many = work(*[(1, 1000)] * 100), work(*[(1, 1000)] * 10_000)
    assert tool(many) > 20 * (tool(few) - tool(work()))
    assert broker_seconds([many], MACHINE).low_s > 20 * broker_seconds([few], MACHINE).low_s


def test_logs_with_nothing_to_recover_are_loaded_all_the_same() -> None:
    loaded = LogDirWork(threads=2, log_count=10_000, file_count=0, logs=[])
    assert tool(loaded) > tool(work()) + 5
    assert broker_seconds([loaded], MACHINE).low_s > broker_seconds([work()], MACHINE).low_s + 2


def test_log_dirs_are_recovered_side_by_side_as_far_as_there_are_cpus() -> None:
    one = work(*[(4, GIB)] * 8)
    both = broker_seconds([one, one], MACHINE)
    assert both.low_s == pytest.approx(broker_seconds([one], MACHINE).low_s)
    single = replace(MACHINE, cpu_count=1)
    assert broker_seconds([one, one], single).low_s > 1.9 * broker_seconds([one], single).low_s
    assert tool(one, one, machine=single) > 1.7 * tool(one, machine=single)


def test_processes_spare_the_second_log_dir_its_wait() -> None:
    one = work(*[(1, 1000)] * 5000)
    assert tool(one, one, has_processes=True) < 0.6 * tool(one, one)


def test_a_broker_reads_twice_what_has_no_index() -> None:
    segments = tuple(
        SegmentToRecover(log_name(base), base, 100, is_unflushed, is_reindexed)
        for base, (is_unflushed, is_reindexed) in enumerate([(True, True), (True, False), (False, True)])
    )
    log = LogToRecover(folder="/d/t-0", topic="t", segments=segments)
    assert _log_work(log) == LogWork(segment_count=3, size_bytes=300, broker_segments=4, broker_bytes=400)
    once = LogDirWork(threads=1, log_count=1, file_count=4, logs=[LogWork(4, GIB, 4, GIB)])
    twice = replace(once, logs=[LogWork(4, GIB, 8, 2 * GIB)])
    assert broker_seconds([twice], MACHINE).low_s > 1.5 * broker_seconds([once], MACHINE).low_s
    assert tool(twice) == tool(once)


@pytest.mark.parametrize("key", ["slowness", "slowdown", "absent_share"])
def test_what_slows_a_machine_down(key: str) -> None:
    cold = replace(MACHINE, disk_byte_s=1e-8)
    slow = replace(cold, **{key: 1.0 if key == "absent_share" else 4.0})
    dirs = [work(*[(4, GIB)] * 8)]
    assert tool(*dirs, machine=slow) > tool(*dirs, machine=cold)
    assert broker_seconds(dirs, slow).high_s > broker_seconds(dirs, cold).high_s
    if key == "absent_share":
        assert broker_seconds(dirs, slow).low_s > broker_seconds(dirs, cold).low_s
    else:  # it may be over when the broker starts
        assert broker_seconds(dirs, slow).low_s == broker_seconds(dirs, cold).low_s


def test_a_faster_machine_lowers_the_least() -> None:
    dirs = [work(*[(4, GIB)] * 8)]
    fast = replace(MACHINE, slowness=0.5)
    assert broker_seconds(dirs, fast).low_s < broker_seconds(dirs, MACHINE).low_s


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 1 << 34)), max_size=9), st.integers(1, 8))
def test_low_is_not_above_high(logs: list[tuple[int, int]], threads: int) -> None:
    for machine in (MACHINE, replace(MACHINE, absent_share=0.5, disk_byte_s=1e-8, cpu_count=2)):
        span = broker_seconds([work(*logs, threads=threads), work()], machine)
        assert 0 < span.low_s <= span.high_s
        assert tool(work(*logs, threads=threads), machine=machine) > 0


def test_threads_share_the_cpus_with_others() -> None:
    def of(contention: float, running: float, threads: int) -> float:
        return slowdown(contention=contention, running=running, threads=threads, cpu_count=8)

    assert of(1.0, 0.0, 4) == of(0.9, 4.0, 4) == 1.0
    assert of(1.0, 20.0, 4) == 3.0
    assert of(1.0, 20.0, 20) == 2.0
    assert of(5.0, 20.0, 4) == 5.0


@given(
    st.lists(
        st.lists(st.tuples(st.integers(1, 9), st.integers(0, 1 << 34)), max_size=5), min_size=1, max_size=4
    )
)
def test_all_log_dirs_take_no_less_than_one_of_them(dirs: list[list[tuple[int, int]]]) -> None:
    machine = replace(MACHINE, slowdown=3.0, cpu_count=2, absent_share=0.2, disk_byte_s=1e-9)
    works = [work(*logs) for logs in dirs]
    for one in works:
        assert tool(one, machine=machine) <= tool(*works, machine=machine) + 1e-9
        assert broker_seconds([one], machine).high_s <= broker_seconds(works, machine).high_s + 1e-9
