"""Whether another thread runs while a kernel does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from tests.patience import LONGEST_WAIT_SECONDS

TICKS = 3
"""More than the two that a switch just before and just behind a call may let through."""


def most_ticks_within(call: Callable[[], object]) -> int:
    """Call until another thread has run `TICKS` times within one call; return how often it did at most.

    On a busy machine neither of the two gets a CPU when it wants one, so it may take many calls. With the GIL held
    no call is enough.
    """
    ticks: list[float] = []
    done = threading.Event()

    def tick() -> None:
        while not done.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.0002)

    ticker = threading.Thread(target=tick)
    ticker.start()
    most, until = 0, time.monotonic() + LONGEST_WAIT_SECONDS
    while most < TICKS and time.monotonic() < until:
        ticks.clear()
        begin = time.perf_counter()
        call()
        end = time.perf_counter()
        most = max(most, sum(begin < tick < end for tick in list(ticks)))
    done.set()
    ticker.join()
    return most
