"""The time of a run by phase: what is inside another phase counts there alone, threads add up."""

from __future__ import annotations

import threading
import time

import pytest

from recovery.watch.phases import Phases
from tests.patience import LONGEST_WAIT_SECONDS


class Clock:
    """Both clocks of `time`, turned by hand; of the wall's time a tenth is CPU's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ms = 0
        monkeypatch.setattr(time, "perf_counter_ns", lambda: self.now_ms * 1_000_000)
        monkeypatch.setattr(time, "thread_time_ns", lambda: self.now_ms * 100_000)


def times(phases: Phases) -> dict[str, tuple[int, int]]:
    return {one.phase: (one.thread_ms, one.cpu_ms) for one in phases.times()}


def test_what_is_inside_another_phase_counts_there_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, phases = Clock(monkeypatch), Phases()
    clock.now_ms = 7000  # before any phase: nobody's
    with phases.during("fold"):
        clock.now_ms += 100
        with phases.during("scan"):
            clock.now_ms += 1000
        clock.now_ms += 200
        with phases.during("scan"):
            clock.now_ms += 50
    clock.now_ms += 5000
    with phases.during("write"):
        clock.now_ms += 10
    assert times(phases) == {"fold": (300, 30), "scan": (1050, 105), "write": (10, 1)}


def test_a_phase_that_ends_in_an_error_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, phases = Clock(monkeypatch), Phases()

    def fail() -> None:
        with phases.during("scan"):
            clock.now_ms += 30
            raise OSError("disk")

    with phases.during("fold"):
        with pytest.raises(OSError, match="disk"):
            fail()
        clock.now_ms += 40
    assert times(phases) == {"scan": (30, 3), "fold": (40, 4)}


def test_threads_add_up() -> None:
    phases = Phases()
    together = threading.Barrier(3)

    def work() -> None:
        with phases.during("scan"):
            together.wait(timeout=LONGEST_WAIT_SECONDS)
            time.sleep(0.05)
            together.wait(timeout=LONGEST_WAIT_SECONDS)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    together.wait(timeout=LONGEST_WAIT_SECONDS)
    started_ms = time.perf_counter_ns() / 1e6
    together.wait(timeout=LONGEST_WAIT_SECONDS)
    elapsed_ms = time.perf_counter_ns() / 1e6 - started_ms
    for thread in threads:
        thread.join(timeout=LONGEST_WAIT_SECONDS)
    (scan,) = phases.times()
    assert scan.thread_ms >= 2 * int(min(elapsed_ms, 50)) - 1
    assert scan.cpu_ms <= scan.thread_ms
