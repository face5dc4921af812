"""What one case may cost: five seconds of the processor, and 256 MB of memory that the process did not have before."""

from __future__ import annotations

import contextlib
import resource
import time

from tests.fuzz.targets import Target

MOST_SECONDS = 5.0
MOST_GROWTH_BYTES = 256 << 20


class BudgetExceededError(AssertionError):
    """A case took too long or too much memory."""


class Budget:
    """Runs cases of a target and keeps the worst figures.

    Attributes:
        runs: cases so far.
        slowest_s: of any case.
        growth_bytes: the most memory that a case needed beside what the process had before it.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._is_warm = False
        self.runs = 0
        self.slowest_s = 0.0
        self.growth_bytes = 0

    def run(self, data: bytes) -> None:
        """Run one case.

        Raises:
            BudgetExceededError: it took too much. And whatever the target raises.
        """
        if not self._is_warm:
            self._target.warm_up()
            self._is_warm = True
        self.runs += 1
        _forget_peak()
        before_bytes = _peak_bytes()
        started_s = time.process_time()
        self._target.run(data)
        elapsed_s = time.process_time() - started_s
        grown_bytes = _peak_bytes() - before_bytes
        self.slowest_s = max(self.slowest_s, elapsed_s)
        self.growth_bytes = max(self.growth_bytes, grown_bytes)
        if elapsed_s > MOST_SECONDS:
            raise BudgetExceededError(f"{self._target.name}: {len(data)} bytes took {elapsed_s:.1f} s")
        if grown_bytes > MOST_GROWTH_BYTES:
            raise BudgetExceededError(f"{self._target.name}: {grown_bytes >> 20} MB more at the peak")


def _forget_peak() -> None:
    """Let the kernel count the peak of memory from now on; where it cannot, the highest so far counts."""
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "wb", buffering=0) as control:
        control.write(b"5")


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
