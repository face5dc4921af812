"""What an engine does for a run over an archive: the map over its segments, and the fold over its partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from recovery.archive.check.scanned import ScanOptions
from recovery.archive.engine.verdicts import FoldResult
from recovery.stop_request import StopRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """What all tasks of a run have in common.

    Attributes:
        run: 16 bytes that name the run.
        began_ms: when it began, in ms since the epoch.
    """

    options: ScanOptions
    run: bytes
    began_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSize:
    """How much there is to do.

    Attributes:
        segment_count: segments of the archive, whether or not they have to be read.
        log_bytes: bytes of the logs that have to be read.
    """

    segment_count: int
    log_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSizes:
    """How an engine wants its work divided. Bytes are those of logs, and of what each segment costs besides them.

    Attributes:
        tasks_a_core: at least, if there is enough to do: a core that is done early takes another.
        least_bytes, most_bytes: what a task may cost.
    """

    tasks_a_core: int
    least_bytes: int
    most_bytes: int

    def task_bytes(self, cost_bytes: int, cores: int) -> int:
        """Return what a task is to cost of *cost_bytes* in all."""
        return max(self.least_bytes, min(self.most_bytes, cost_bytes // (self.tasks_a_core * cores) + 1))


class Engine(Protocol):
    """Does the work of one run: first `scan`, wave by wave, then perhaps `rebuild`, then `fold`; last `close`.

    Whichever engine does it, the verdicts and all bytes that are written are the same.

    Attributes:
        cores: how many tasks it works on at a time.
        sizes: of its tasks.
    """

    cores: int
    sizes: TaskSizes

    def scan(self, tasks: Sequence[bytes], on_finished: Callable[[int], None]) -> None:
        """Scan the segments of a wave of tasks.

        Args:
            tasks: pickled `PackedTask`s.
            on_finished: called now and then with how many of them are finished.

        Raises:
            RecoveryError: a task failed for a reason outside the archive, or the run is to stop.
        """
        ...

    def rebuild(self) -> None:
        """Judge all partitions by their scans, and rebuild the indexes that may be; call it at most once.

        Raises:
            RecoveryError: as `scan`.
        """
        ...

    def fold(self) -> Iterator[FoldResult]:
        """Judge all partitions, and write the verdicts to the output; yield the results in parts.

        Raises:
            RecoveryError: as `scan`.
        """
        ...

    def close(self) -> None:
        """Forget what is kept between the steps."""
        ...


OpenEngine = Callable[[RunPlan, RunSize, StopRequest], tuple[Engine, Sequence[str]]]
"""Chooses the engine for a run of some size; returns it with notes for the report."""
