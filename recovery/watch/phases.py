"""Where the time of a run goes: kept by the driver around its calls, so that the core knows no clock.

A thread is in one phase at a time, the innermost that it has entered: its time there does not count for the others.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal, get_args

Phase = Literal["inventory", "scan", "fold", "plan", "write", "hand-over"]
"""What a thread does: list what is there; read segments; load a log as a broker would, without the reading; find out
what to change; change it; hand the log dir back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseTime:
    """The time of all threads together in one phase.

    Attributes:
        thread_ms: by the clock, waiting included: for a disk, for another thread.
        cpu_ms: the part of it spent on a CPU.
    """

    phase: Phase
    thread_ms: int
    cpu_ms: int

    def to_json(self) -> dict[str, object]:
        """Return this as the report's JSON has it."""
        return {"phase": self.phase, "threadMs": self.thread_ms, "cpuMs": self.cpu_ms}


class Phases:
    """The time that each phase takes. Thread-safe."""

    def __init__(self) -> None:
        self._spent_ns: dict[Phase, tuple[int, int]] = {}
        self._lock = threading.Lock()
        self._thread = _Thread()

    def during(self, phase: Phase) -> AbstractContextManager[None]:
        """Count the time of the block for *phase*, except what it spends in other phases."""
        return _Stay(self, phase)

    def spent_ns(self) -> dict[Phase, tuple[int, int]]:
        """Return (by the clock, on a CPU) of each phase, nanoseconds."""
        with self._lock:
            return dict(self._spent_ns)

    def add(self, spent_ns: Mapping[Phase, tuple[int, int]]) -> None:
        """Add what another process has counted."""
        with self._lock:
            for phase, (wall_ns, cpu_ns) in spent_ns.items():
                before = self._spent_ns.get(phase, (0, 0))
                self._spent_ns[phase] = (before[0] + wall_ns, before[1] + cpu_ns)

    def times(self) -> tuple[PhaseTime, ...]:
        """Return what was counted so far, in the order of a run."""
        with self._lock:
            spent = [(phase, *self._spent_ns[phase]) for phase in get_args(Phase) if phase in self._spent_ns]
        return tuple(
            PhaseTime(phase=phase, thread_ms=wall_ns // 1_000_000, cpu_ms=cpu_ns // 1_000_000)
            for phase, wall_ns, cpu_ns in spent
        )

    def _turn(self, phase: Phase | None) -> Phase | None:
        """Move the calling thread from its phase to *phase*; return the phase that it was in."""
        thread, outer = self._thread, self._thread.phase
        wall_ns, cpu_ns = time.perf_counter_ns(), time.thread_time_ns()
        if outer is not None:
            with self._lock:
                before = self._spent_ns.get(outer, (0, 0))
                self._spent_ns[outer] = (
                    before[0] + wall_ns - thread.since_ns,
                    before[1] + cpu_ns - thread.cpu_since_ns,
                )
        thread.phase, thread.since_ns, thread.cpu_since_ns = phase, wall_ns, cpu_ns
        return outer


class _Stay:
    """A block that counts for a phase. Not a generator, which would be slower: each segment has one."""

    __slots__ = ("_outer", "_phase", "_phases")

    def __init__(self, phases: Phases, phase: Phase) -> None:
        self._phases = phases
        self._phase = phase
        self._outer: Phase | None = None

    def __enter__(self) -> None:
        self._outer = self._phases._turn(self._phase)

    def __exit__(self, *_error: object) -> None:
        self._phases._turn(self._outer)


class _Thread(threading.local):
    """The phase that a thread is in, and since when."""

    phase: Phase | None = None
    since_ns = 0
    cpu_since_ns = 0
